"""What SQLite is told to create or alter: tables, indexes and readable views, compiled by SQLAlchemy Core."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex

from blockx.errors import ConfigError
from blockx.store.coders import coder_for
from blockx.store.schema import READABLE_SUFFIX, TableDef

__all__ = [
    "DEFINITIONS_DDL",
    "DEFINITIONS_TABLE",
    "DIALECT",
    "drop_view",
    "plan_change",
    "quoted",
    "sql_table",
    "sql_text",
]

DIALECT = sqlite.dialect(paramstyle="qmark")

DEFINITIONS_TABLE = "blockx_tables"
"""Holds the definition of every table that `apply` made, so that workers need no schema file."""

DEFINITIONS_DDL = (
    f"CREATE TABLE IF NOT EXISTS {DEFINITIONS_TABLE} (name TEXT NOT NULL PRIMARY KEY, definition TEXT NOT NULL)"
)


def quoted(name: str) -> str:
    """A checked identifier as it stands in SQL."""
    return f'"{name}"'


def sql_text(statement: sa.ClauseElement) -> str:
    """A statement as SQLite text with `?` parameters."""
    return str(statement.compile(dialect=DIALECT)).strip()


def sql_table(table: TableDef) -> sa.Table:
    """The table as SQLAlchemy Core knows it. WITHOUT ROWID keeps rows in key order and no second copy of the key."""
    columns = [_sql_column(table, name) for name in table.columns]
    made = sa.Table(
        sa.sql.quoted_name(table.name, quote=True),
        sa.MetaData(),
        *columns,
        sa.PrimaryKeyConstraint(*[column for name in table.key for column in columns if column.name == name]),
        sqlite_with_rowid=False,
    )
    for index in table.indexes:
        sa.Index(index_name(table.name, index), *[made.c[name] for name in index])
    return made


def _sql_column(table: TableDef, name: str) -> sa.Column[object]:
    coder = coder_for(table.columns[name].type, in_key=name in table.key)
    nullable = not table.is_required(name)
    return sa.Column(sa.sql.quoted_name(name, quote=True), coder.sql_type, nullable=nullable, autoincrement=False)


def index_name(table: str, columns: tuple[str, ...]) -> str:
    """A name that no table can have, within the 63 characters that PostgreSQL allows."""
    digest = hashlib.sha256(" ".join((table, *columns)).encode()).hexdigest()[:10]
    return f"blockx_ix_{table[:40]}_{digest}"


def _create_indexes(table: TableDef) -> dict[tuple[str, ...], str]:
    made = sql_table(table)
    by_name = {str(index.name): sql_text(CreateIndex(index)) for index in made.indexes}
    return {columns: by_name[index_name(table.name, columns)] for columns in table.indexes}


def _create_view(table: TableDef) -> str:
    shown = []
    for name, column in table.columns.items():
        readable = coder_for(column.type, in_key=name in table.key).readable
        shown.append(quoted(name) if readable is None else f"{readable(quoted(name))} AS {quoted(name)}")
    view = quoted(table.name + READABLE_SUFFIX)
    return f"CREATE VIEW {view} AS SELECT {', '.join(shown)} FROM {quoted(table.name)}"


def drop_view(table: TableDef) -> str:
    """Removes the readable view, if it is there."""
    return f"DROP VIEW IF EXISTS {quoted(table.name + READABLE_SUFFIX)}"


def create_statements(table: TableDef) -> list[str]:
    """Everything that makes a new table: itself, its indexes, its readable view."""
    return [sql_text(CreateTable(sql_table(table))), *_create_indexes(table).values(), _create_view(table)]


def plan_change(old: TableDef | None, new: TableDef) -> tuple[str, ...]:
    """The statements that bring one table to its definition; none: it is there already.

    Raises ConfigError, with the SQL that a person would run, for more than new nullable columns and new indexes.
    """
    if old is None:
        return tuple(create_statements(new))
    refusals = _refusals(old, new)
    if refusals:
        reasons = "; ".join(refusals)
        raise ConfigError(
            f"table {new.name!r} cannot be altered to its definition: {reasons}. "
            f"To do it by hand, look through this SQL and run it:\n{_manual_sql(old, new)}"
        )
    return tuple(_alterations(old, new))


def _alterations(old: TableDef, new: TableDef) -> list[str]:
    if old == new:
        return []
    added = [name for name in new.columns if name not in old.columns]
    types = {name: DIALECT.type_compiler_instance.process(sql_table(new).c[name].type) for name in added}
    columns = [f"ALTER TABLE {quoted(new.name)} ADD COLUMN {quoted(name)} {types[name]}" for name in added]
    indexes = [sql for index, sql in _create_indexes(new).items() if index not in old.indexes]
    view = [drop_view(new), _create_view(new)] if added else []
    return [*columns, *indexes, *view]


def _refusals(old: TableDef, new: TableDef) -> list[str]:
    found = [f"column {name!r} is no longer defined" for name in old.columns if name not in new.columns]
    for name, column in new.columns.items():
        if name not in old.columns:
            if new.is_required(name):
                found.append(f"new column {name!r} is required, but the rows that are there have no value for it")
        elif column.type != old.columns[name].type:
            found.append(f"column {name!r} is {old.columns[name].type}, not {column.type}")
        elif new.is_required(name) != old.is_required(name):
            found.append(f"column {name!r} is {'nullable' if new.is_required(name) else 'required'} in the database")
    if old.key != new.key:
        found.append(f"its key is ({', '.join(old.key)}), not ({', '.join(new.key)})")
    found += [
        f"the index on ({', '.join(index)}) is no longer defined" for index in old.indexes if index not in new.indexes
    ]
    return found


def _manual_sql(old: TableDef, new: TableDef) -> str:
    """Copies the rows into a new table of the wanted shape, and tells the kept definition."""
    kept = quoted(f"blockx_old_{new.name}"[:63])
    old_indexes = [sql_text(DropIndex(index)) for index in sql_table(old).indexes]
    names = [quoted(name) for name in new.columns]
    values = [_manual_value(old, new, name) for name in new.columns]
    definition = new.to_json()  # holds checked names and fixed words only, hence no quote
    statements = [
        "BEGIN IMMEDIATE",
        drop_view(old),
        *old_indexes,
        f"ALTER TABLE {quoted(old.name)} RENAME TO {kept}",
        sql_text(CreateTable(sql_table(new))),
        f"INSERT INTO {quoted(new.name)} ({', '.join(names)}) SELECT {', '.join(values)} FROM {kept}",
        f"DROP TABLE {kept}",
        *_create_indexes(new).values(),
        _create_view(new),
        f"UPDATE {DEFINITIONS_TABLE} SET definition = '{definition}' WHERE name = '{new.name}'",
        "COMMIT",
    ]
    return "".join(f"{statement};\n" for statement in statements)


def _manual_value(old: TableDef, new: TableDef, name: str) -> str:
    if name not in old.columns:
        return f"NULL /* a value for {name} */" if new.is_required(name) else "NULL"
    if old.columns[name].type != new.columns[name].type:
        return f"{quoted(name)} /* convert {old.columns[name].type} to {new.columns[name].type} */"
    return quoted(name)
