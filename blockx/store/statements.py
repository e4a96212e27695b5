"""The SQL of one table's reads and writes, compiled once. Identifiers come from the checked definition and are quoted.

The point reads are written out, since SQLAlchemy's form for many composite keys makes SQLite read the whole table: the
keys travel as one JSON parameter, so that one statement serves every number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from attrs import field, frozen
from sqlalchemy.dialects import sqlite

from blockx.store.ddl import quoted, sql_table, sql_text
from blockx.store.rows import TableCoder
from blockx.store.where import order_clauses, where_clauses

__all__ = ["TableStatements"]


@frozen(slots=False)
class TableStatements:
    """Statements of one table over encoded values."""

    coder: TableCoder
    sql: sa.Table = field(init=False)
    _get_many: dict[tuple[str, ...], str] = field(init=False, factory=dict)

    @sql.default
    def _make_sql(self) -> sa.Table:
        return sql_table(self.coder.table)

    def get_many(self, columns: tuple[str, ...]) -> str:
        """Rows for a JSON list of keys: first the place of the key in the list, then the columns.

        CROSS JOIN makes SQLite look up each key rather than read the table.
        """
        if columns not in self._get_many:
            key = self.coder.table.key
            parts = (
                ["j.value"] if len(key) == 1 else [f"json_extract(j.value, '$[{place}]')" for place in range(len(key))]
            )
            match = " AND ".join(f"t.{quoted(name)} = {part}" for name, part in zip(key, parts, strict=True))
            wanted = ", ".join(["j.key", *[f"t.{quoted(name)}" for name in columns]])
            self._get_many[columns] = (
                f"SELECT {wanted} FROM json_each(?) AS j CROSS JOIN {quoted(self.coder.table.name)} AS t ON {match}"
            )
        return self._get_many[columns]

    def scan(self, columns: Sequence[str], where: object, order: object, limit: int | None) -> sa.Select[Any]:
        """Rows that match every filter. Raises Unfit for a filter or order that does not fit the table."""
        clauses = where_clauses(where, self.sql, self.coder)
        ordering = order_clauses(order, self.sql, self.coder)
        return sa.select(*[self.sql.c[name] for name in columns]).where(*clauses).order_by(*ordering).limit(limit)

    @cached_property
    def upsert(self) -> str:
        """Insert or update one full row; a row that is there unchanged is left alone and not counted."""
        insert = sqlite.insert(self.sql).values({name: sa.bindparam(name) for name in self.coder.table.columns})
        values = [name for name in self.coder.table.columns if name not in self.coder.table.key]
        if not values:
            return sql_text(insert.on_conflict_do_nothing())
        changed = sa.or_(*[self.sql.c[name].is_distinct_from(insert.excluded[name]) for name in values])
        return sql_text(
            insert.on_conflict_do_update(
                index_elements=[self.sql.c[name] for name in self.coder.table.key],
                set_={name: insert.excluded[name] for name in values},
                where=changed,
            )
        )

    @cached_property
    def delete(self) -> str:
        """Delete the row with one encoded key."""
        match = [self.sql.c[name] == sa.bindparam(name) for name in self.coder.table.key]
        return sql_text(sa.delete(self.sql).where(*match))

    def keys_in_scope(self, scope: Iterable[tuple[str, Any]]) -> sa.Select[Any]:
        """The keys of all rows with these encoded column values (None: NULL)."""
        clauses = [self.sql.c[name] == value for name, value in scope]
        return sa.select(*[self.sql.c[name] for name in self.coder.table.key]).where(*clauses)
