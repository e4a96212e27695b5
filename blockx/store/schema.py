"""Table definitions: read from TOML, checked as a whole, kept as JSON in the database."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from blockx.errors import ConfigError
from blockx.model import nearest
from blockx.store.coders import COLUMN_TYPES

__all__ = ["MAX_TABLE_NAME", "READABLE_SUFFIX", "ColumnDef", "Schema", "TableDef", "load_schema"]

READABLE_SUFFIX = "_readable"
"""Appended to a table's name, it names the view that shows the table's values as people write them."""

MAX_TABLE_NAME = 63 - len(READABLE_SUFFIX)
"""Characters of a table name, so that the view's name still fits in PostgreSQL's 63."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TABLE_KEYS = ("kind", "key", "indexes", "columns")
_COLUMN_KEYS = ("type", "required")
_KINDS = ("online", "block-versioned")


@frozen
class ColumnDef:
    """One column: its type (a word of COLUMN_TYPES) and whether every row must have a value in it."""

    type: str
    required: bool = False


@frozen
class TableDef:
    """One table. `columns` keeps the order of the schema file; key columns are always required."""

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, ColumnDef]
    indexes: tuple[tuple[str, ...], ...] = ()
    kind: str = "online"

    def is_required(self, column: str) -> bool:
        return column in self.key or self.columns[column].required

    def to_json(self) -> str:
        """The definition as it is kept in the database."""
        columns = {name: {"type": column.type, "required": column.required} for name, column in self.columns.items()}
        data = {"kind": self.kind, "key": self.key, "indexes": self.indexes, "columns": columns}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, name: str, text: str) -> TableDef:
        """Read a kept definition. Raises ConfigError if a later version wrote something that this one does not know."""
        return _table(name, json.loads(text))


@frozen
class Schema:
    """All tables of one schema file by name."""

    tables: Mapping[str, TableDef]


def load_schema(toml_text: str) -> Schema:
    """Read table definitions from TOML: one section a table with `kind`, `key`, `indexes` and `columns`.

    Raises ConfigError naming table, column and, for a misspelt word, the nearest valid one.
    """
    try:
        data = tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the table schema is not valid TOML: {error}") from None
    return Schema({name: _table(name, body) for name, body in data.items()})


def _table(name: str, data: object) -> TableDef:
    _check_table_name(name)
    where = f"table {name!r}"
    body = _entries(data, _TABLE_KEYS, where)
    kind = body.get("kind", "online")
    if kind not in _KINDS:
        raise ConfigError(f"{where} has an unknown kind {kind!r}{nearest(str(kind), _KINDS)}; use 'online'")
    if kind != "online":
        raise ConfigError(f'{where} has kind {kind!r}, which this version does not support yet; use kind = "online"')
    columns = _columns(body.get("columns"), where)
    key = _column_list(body.get("key"), columns, f"{where}: key")
    _check_key_types(key, columns, where)
    return TableDef(name, key, columns, _indexes(body.get("indexes", ()), columns, where), kind)


def _check_table_name(name: str) -> None:
    _check_name(name, "table name")
    if len(name) > MAX_TABLE_NAME:
        raise ConfigError(f"table name {name!r} is longer than {MAX_TABLE_NAME} characters; shorten it")
    if name.startswith(("sqlite_", "pg_")):
        raise ConfigError(f"table name {name!r} begins with a word that databases keep for themselves; rename it")
    if name.endswith(READABLE_SUFFIX):
        raise ConfigError(f"table name {name!r} ends in {READABLE_SUFFIX!r}, which names readable views; rename it")


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{what} {name!r} must be 1 to 63 of a-z, 0-9 and _, and must not begin with a digit")
    if name.startswith(("blockx_", "__")):
        raise ConfigError(f"{what} {name!r} begins with 'blockx_' or '__', which BlockX keeps for itself; rename it")


def _entries(data: object, known: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be a table of {', '.join(known)}, not {data!r}")
    for word in data:
        if word not in known:
            raise ConfigError(f"{where} has an unknown entry {word!r}{nearest(word, known)}; known: {', '.join(known)}")
    return data


def _columns(data: object, where: str) -> dict[str, ColumnDef]:
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f'{where} has no columns; add a section [….columns] with lines such as value = "text"')
    return {name: _column(name, spec, where) for name, spec in data.items()}


def _column(name: str, spec: object, table: str) -> ColumnDef:
    where = f"{table}, column {name!r}"
    _check_name(name, f"{table}: column name")
    body = {"type": spec} if isinstance(spec, str) else _entries(spec, _COLUMN_KEYS, where)
    kind, required = body.get("type"), body.get("required", False)
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        hint = nearest(str(kind), COLUMN_TYPES)
        raise ConfigError(f"{where} has an unknown type {kind!r}{hint}; types: {', '.join(COLUMN_TYPES)}")
    if not isinstance(required, bool):
        raise ConfigError(f"{where}: required must be true or false, not {required!r}")
    return ColumnDef(kind, required)


def _column_list(data: object, columns: Mapping[str, ColumnDef], where: str) -> tuple[str, ...]:
    if not isinstance(data, (list, tuple)) or not data or not all(isinstance(name, str) for name in data):
        raise ConfigError(f"{where} must be a list of column names, not {data!r}")
    for name in data:
        if name not in columns:
            raise ConfigError(f"{where} names an unknown column {name!r}{nearest(name, columns)}")
    if len(set(data)) != len(data):
        raise ConfigError(f"{where} names a column twice: {', '.join(data)}")
    return tuple(data)


def _check_key_types(key: tuple[str, ...], columns: Mapping[str, ColumnDef], where: str) -> None:
    for name in key:
        if columns[name].type == "json":
            raise ConfigError(f"{where}: key column {name!r} has type json, which cannot be a key; use another type")


def _indexes(data: object, columns: Mapping[str, ColumnDef], where: str) -> tuple[tuple[str, ...], ...]:
    if not isinstance(data, (list, tuple)):
        raise ConfigError(f'{where}: indexes must be a list of column lists such as [["token"]], not {data!r}')
    indexes = tuple(_column_list(index, columns, f"{where}: index {place}") for place, index in enumerate(data))
    if len(set(indexes)) != len(indexes):
        raise ConfigError(f"{where} has the same index twice; keep one")
    return indexes
