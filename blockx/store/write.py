"""One table's share of a transaction: deletions, then rows; everything encoded before the first statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from attrs import field, frozen

from blockx.errors import PluginError
from blockx.store.rows import Row, Unfit
from blockx.store.statements import TableStatements

__all__ = ["EncodedWrite", "TableWrite", "WriteCounts", "encode_write", "run_write"]

_Encoded = tuple[Any, ...]


@frozen
class TableWrite:
    """What one transaction does to one table.

    First it deletes `delete_keys`, then all rows with the column values `replace` whose key is not in `rows`; then it
    inserts or updates `rows` (full rows; of several with one key the last wins).
    """

    table: str
    rows: Sequence[Row] = ()
    delete_keys: Sequence[Any] = ()
    replace: Mapping[str, Any] | None = None


@frozen
class WriteCounts:
    """Rows inserted or changed; rows that were there already, equal in every column; rows deleted."""

    written: int = 0
    unchanged: int = 0
    deleted: int = 0

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.written + other.written, self.unchanged + other.unchanged, self.deleted + other.deleted)


@frozen
class EncodedWrite:
    """A TableWrite whose values have been checked and encoded; rows by key, in key order."""

    statements: TableStatements
    rows: Mapping[_Encoded, _Encoded] = field(repr=False)
    delete_keys: Sequence[_Encoded] = field(repr=False)
    replace: Mapping[str, Any] | None


def encode_write(statements: TableStatements, write: TableWrite) -> EncodedWrite:
    """Check everything. Raises RowError for a row, PluginError for a key or scope that does not fit the table."""
    coder = statements.coder
    encoded = coder.encode_rows(write.rows, write.replace)
    rows = {coder.key_of(row): row for row in encoded}
    try:
        keys = {coder.encode_key(key) for key in write.delete_keys}
    except Unfit as error:
        raise PluginError(str(error)) from None
    scope = None if write.replace is None else coder.encode_scope(write.replace)
    return EncodedWrite(statements, dict(sorted(rows.items())), sorted(keys), scope)


def run_write(connection: sa.Connection, write: EncodedWrite) -> WriteCounts:
    """Run the statements in the caller's transaction. Sorted by key, so that two writers meet in one order."""
    deleted = _run_many(connection, write.statements.delete, write.delete_keys)
    if write.replace is not None:
        deleted += _run_many(connection, write.statements.delete, _left_over(connection, write, write.replace))
    written = _run_many(connection, write.statements.upsert, list(write.rows.values()))
    return WriteCounts(written=written, unchanged=len(write.rows) - written, deleted=deleted)


def _left_over(connection: sa.Connection, write: EncodedWrite, scope: Mapping[str, Any]) -> list[_Encoded]:
    there = connection.execute(write.statements.keys_in_scope(scope.items()))
    return sorted(key for key in map(tuple, there) if key not in write.rows)


def _run_many(connection: sa.Connection, sql: str, parameters: Iterable[_Encoded]) -> int:
    """Run one statement for each parameter tuple; the number of rows that it changed in all."""
    many = list(parameters)
    return connection.exec_driver_sql(sql, many).rowcount if many else 0
