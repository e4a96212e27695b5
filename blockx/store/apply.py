"""Bringing a database to its schema: the definitions that it keeps, and what is created or altered."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from attrs import frozen

from blockx.errors import ConfigError
from blockx.store.ddl import DEFINITIONS_DDL, DEFINITIONS_TABLE, drop_view, plan_change
from blockx.store.schema import READABLE_SUFFIX, Schema, TableDef

__all__ = ["ApplyReport", "apply_schema", "kept_definitions"]

_KEEP = f"INSERT INTO {DEFINITIONS_TABLE} (name, definition) VALUES (?, ?)" + (
    " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition"
)


@frozen
class ApplyReport:
    """Names of the tables that `apply` created, altered, and found as they should be; each in the schema's order."""

    created: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def kept_definitions(connection: sa.Connection) -> dict[str, TableDef]:
    """All table definitions of the database; none where `apply` never ran.

    Raises ConfigError if a later version wrote one that this version does not know.
    """
    if DEFINITIONS_TABLE not in _objects(connection):
        return {}
    found = connection.exec_driver_sql(f"SELECT name, definition FROM {DEFINITIONS_TABLE} ORDER BY name")
    return {name: TableDef.from_json(name, text) for name, text in found}


def apply_schema(connection: sa.Connection, schema: Schema) -> ApplyReport:
    """Create and alter within the caller's transaction.

    Raises ConfigError, before any change to a table, for what it will not do.
    """
    connection.exec_driver_sql(DEFINITIONS_DDL)
    objects = _objects(connection)
    kept = {name: table for name, table in kept_definitions(connection).items() if objects.get(name) == "table"}
    plans = {name: plan_change(kept.get(name), table) for name, table in schema.tables.items()}
    created = [name for name in schema.tables if name not in kept]
    for name in created:
        _check_free(name, objects)
        connection.exec_driver_sql(drop_view(schema.tables[name]))
    for name, statements in plans.items():
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(_KEEP, (name, schema.tables[name].to_json()))
    altered = [name for name, statements in plans.items() if name in kept and statements]
    unchanged = [name for name, statements in plans.items() if name in kept and not statements]
    return ApplyReport(tuple(created), tuple(altered), tuple(unchanged))


def _objects(connection: sa.Connection) -> dict[str, str]:
    """Name and kind (table, view, index) of everything in the database."""
    found = connection.exec_driver_sql("SELECT name, type FROM sqlite_master")
    return {str(name): str(kind) for name, kind in found}


def _check_free(name: str, objects: Mapping[str, str]) -> None:
    if name in objects:
        raise ConfigError(
            f"the database already has a {objects[name]} {name!r} that BlockX did not create; rename one of the two"
        )
    view = name + READABLE_SUFFIX
    if objects.get(view, "view") != "view":
        raise ConfigError(f"the database already has a {objects[view]} {view!r}, which is to be a view; rename it")
