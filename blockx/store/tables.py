"""Online tables in an SQLite file: one current row per key.

All methods are synchronous and may be called from several threads at once; reads never wait for the writer, writers
take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from attrs import define, field, frozen

from blockx.errors import ConfigError, PluginError, ReadError, Unavailable
from blockx.filters import Where
from blockx.shown import shown
from blockx.store.apply import ApplyReport, apply_schema, kept_definitions
from blockx.store.rows import Row, RowError, TableCoder, Unfit, unknown_table
from blockx.store.schema import ColumnDef, Schema, TableDef, load_schema
from blockx.store.sqlite import (
    MAX_WAL_BYTES,
    database_path,
    file_identity,
    is_missing_table,
    is_retryable,
    open_engine,
    wal_bytes,
)
from blockx.store.statements import TableStatements
from blockx.store.write import TableWrite, WriteCounts, encode_write, run_write

__all__ = [
    "ApplyReport",
    "ColumnDef",
    "Row",
    "RowError",
    "Schema",
    "TableDef",
    "TableStore",
    "TableWrite",
    "WriteCounts",
    "load_schema",
]


@frozen
class _Known:
    """The definitions as of one version of the database's schema."""

    version: int = -1
    tables: Mapping[str, TableStatements] = field(factory=dict)


@define(eq=False)
class TableStore:
    """The tables of one database; `open` makes it. After `close` every method fails."""

    _engine: sa.Engine
    _path: Path
    _file: tuple[int, int] | None = field(init=False)
    _known: _Known = field(factory=_Known, init=False)
    _write_lock: threading.Lock = field(factory=threading.Lock, init=False)
    _is_closed: bool = field(default=False, init=False)

    @_file.default
    def _opened_file(self) -> tuple[int, int] | None:
        return file_identity(self._path)

    @classmethod
    def open(cls, url: str, *, must_exist: bool = False) -> TableStore:
        """Open `sqlite:////absolute/path` or `sqlite:///relative`; a missing file is created, a missing folder is not.

        Raises ConfigError for a URL of another kind, and for a missing file that `must_exist`; Unavailable if the file
        cannot be opened.
        """
        path = database_path(url)
        if must_exist and not path.exists():
            raise ConfigError(f"there is no database {path}; `blockx tables apply` makes one, --database names another")
        return cls(open_engine(path), path)

    def close(self) -> None:
        """Give back all connections; closing twice is fine."""
        self._is_closed = True
        self._engine.dispose()

    def apply(self, schema: Schema) -> ApplyReport:
        """Create the tables of a schema, and add new nullable columns and new indexes to those that are there.

        Everything or nothing is done. Tables that the schema does not name stay as they are. Raises ConfigError for any
        other difference, with the SQL that a person would run; Unavailable if the database cannot be written now.
        """
        with self._transaction(self._applying) as connection, self._applying():
            return apply_schema(connection, schema)

    def schema(self) -> Mapping[str, TableDef]:
        """The definitions that the database keeps, by table name. Raises ReadError."""
        with self._reading("the table definitions") as connection:
            return MappingProxyType({name: found.coder.table for name, found in self._tables(connection).items()})

    def get_many(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        """One answer per key, in their order: the row (only `columns`, None: all), or None where there is none.

        A key is a scalar, or a tuple or list for a composite key. One query for any number of keys; about 500 are best.
        Raises ReadError for an unknown table or column, a key that does not fit, and a failing database (retryable).
        """
        with self._reading(f"table {table!r}") as connection:
            statements = self._table(connection, table)
            names = statements.coder.known_columns(columns)
            wanted = statements.coder.keys_as_json(keys)
            fetched = connection.exec_driver_sql(statements.get_many(names), (wanted,)).all()
            rows = statements.coder.decode_rows(names, [values[1:] for values in fetched])
        answers: list[Row | None] = [None] * len(keys)
        for values, row in zip(fetched, rows, strict=True):
            answers[values[0]] = row
        return answers

    def scan(self, table: str, where: Where = (), order: Sequence[str] = (), limit: int | None = None) -> list[Row]:
        """Full rows that pass every filter `[column, operator, value]`, by `order` (`-name`: descending), then key.

        Raises ReadError like `get_many`, naming the nearest valid word for an unknown column or operator.
        """
        with self._reading(f"table {table!r}") as connection:
            statements = self._table(connection, table)
            names = statements.coder.known_columns(None)
            fetched = connection.execute(statements.scan(names, where, order, _checked_limit(limit))).all()
            return statements.coder.decode_rows(names, fetched)

    def show(self, table: str, limit: int = 20) -> list[Row]:
        """The first rows by key, for people to look at. Raises ReadError."""
        return self.scan(table, limit=limit)

    def check_rows(self, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None = None) -> None:
        """Raise RowError for a row that does not fit its table or lies outside of `replace`.

        An unknown table is a PluginError.
        """
        with self._writing(f"table {table!r}"), self._engine.connect() as connection:
            coder = self._table(connection, table).coder
        coder.encode_rows(rows, replace)

    def write(self, writes: Sequence[TableWrite], before_commit: Callable[[], None]) -> dict[str, WriteCounts]:
        """Do all writes in one transaction, and count per table.

        Everything is checked before the first statement; tables are taken by name, a table's writes in the given order.
        `before_commit` is called once, right before COMMIT; what it raises is raised on, after a rollback.
        Raises RowError or PluginError, naming the table; whenever this raises, nothing was written.
        """
        named = sorted(writes, key=lambda write: str(write.table))
        counts = {write.table: WriteCounts() for write in named}
        what = ", ".join(f"table {name!r}" for name in counts)
        with self._transaction(lambda: self._writing(what)) as connection:
            with self._writing(what):
                encoded = [encode_write(self._table(connection, write.table), write) for write in named]
            for write, checked in zip(named, encoded, strict=True):
                with self._writing(f"table {write.table!r}"):
                    counts[write.table] += run_write(connection, checked)
            before_commit()
        return counts

    @contextmanager
    def _transaction(self, guard: Callable[[], AbstractContextManager[None]]) -> Iterator[sa.Connection]:
        """The writer's turn. `guard` translates what goes wrong at BEGIN and COMMIT, and nothing in between."""
        with self._write_lock:
            with guard():
                connection = self._begin()
            try:
                yield connection
                with guard():
                    connection.exec_driver_sql("COMMIT")
            finally:
                connection.close()  # rolls back what was not committed

    def _begin(self) -> sa.Connection:
        """BEGIN IMMEDIATE waits for another process's writer here, so that no statement is refused midway."""
        connection = self._engine.connect()
        try:
            if wal_bytes(self._path) > MAX_WAL_BYTES:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _applying(self) -> Iterator[None]:
        """Everything that goes wrong in the database becomes Unavailable."""
        try:
            self._check_usable()
            yield
        except sa.exc.DBAPIError as error:
            raise Unavailable(f"the schema could not be applied to {self._path}: {error.orig}") from error

    @contextmanager
    def _reading(self, what: str) -> Iterator[sa.Connection]:
        """A connection for one read; everything that goes wrong becomes a ReadError about `what`."""
        try:
            self._check_usable()
            with self._engine.connect() as connection:
                yield connection
        except (Unfit, ConfigError, Unavailable) as error:
            raise ReadError(str(error)) from None
        except sa.exc.DBAPIError as error:
            raise ReadError(_sentence(f"{what} could not be read", error), retryable=is_retryable(error)) from error

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Everything that goes wrong in the database becomes a PluginError about `what`."""
        try:
            self._check_usable()
            yield
        except (Unfit, ConfigError, Unavailable) as error:
            raise PluginError(str(error)) from None
        except sa.exc.DBAPIError as error:
            raise PluginError(
                _sentence(f"{what} could not be written", error), retryable=is_retryable(error)
            ) from error

    def _check_usable(self) -> None:
        """Also right before COMMIT: what a kept connection writes to a file that has lost its name is lost with it."""
        if self._is_closed:
            raise Unavailable(f"the table store {self._path} is closed")
        if self._file is None or file_identity(self._path) != self._file:
            raise Unavailable(f"the database file {self._path} is gone or was replaced; restart the worker")

    def _table(self, connection: sa.Connection, name: str) -> TableStatements:
        tables = self._tables(connection)
        if name not in tables:
            raise unknown_table(name, tables)
        return tables[name]

    def _tables(self, connection: sa.Connection) -> Mapping[str, TableStatements]:
        """The definitions, read again whenever any process has changed the database's schema."""
        known = self._known
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        if version != known.version:
            kept = kept_definitions(connection)
            known = _Known(version, {name: TableStatements(TableCoder(table)) for name, table in kept.items()})
            self._known = known
        return known.tables


def _checked_limit(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and 0 <= limit < 2**63):
        return limit
    raise Unfit(f"limit must be a number of rows, 0 or more, not {shown(limit)}")


def _sentence(what: str, error: sa.exc.DBAPIError) -> str:
    if is_missing_table(error):
        return f"{what}: it is no longer in the database; run `blockx tables apply` to create it again"
    return f"{what}: {error.orig}"
