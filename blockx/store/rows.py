"""Rows and keys of one table: checked against its definition, and turned into what SQLite keeps and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import frozen

from blockx.errors import PluginError
from blockx.filters import Row
from blockx.model import nearest
from blockx.shown import shown
from blockx.store.coders import Coder, coder_for
from blockx.store.schema import TableDef

__all__ = ["Row", "RowError", "TableCoder", "Unfit", "unknown_table"]

_UNDECODABLE = (ValueError, TypeError, LookupError, ArithmeticError)


class Unfit(Exception):
    """A name or value does not fit the tables; the sentence goes on as a ReadError or PluginError."""


class RowError(PluginError):
    """A row does not fit its table; `row` is its place in the list that was given, `column` the one at fault."""

    def __init__(self, message: str, *, row: int, column: str) -> None:
        super().__init__(message)
        self.row = row
        self.column = column


@frozen(slots=False)
class TableCoder:
    """Encodes and decodes the rows and keys of one table."""

    table: TableDef

    @cached_property
    def coders(self) -> Mapping[str, Coder]:
        table = self.table
        return {name: coder_for(column.type, in_key=name in table.key) for name, column in table.columns.items()}

    @cached_property
    def _row_plan(self) -> list[tuple[str, Coder, bool]]:
        return [(name, coder, self.table.is_required(name)) for name, coder in self.coders.items()]

    @cached_property
    def key_places(self) -> list[int]:
        """Where the key columns stand in an encoded row."""
        order = list(self.table.columns)
        return [order.index(name) for name in self.table.key]

    def encode_row(self, row: object, index: int) -> tuple[Any, ...]:
        """All columns in schema order; an absent one is NULL.

        Raises RowError for an unknown column, a missing required one and a value that its column does not take.
        """
        if not isinstance(row, Mapping):
            raise RowError(f"{self._row(index)} must be an object of columns, not {shown(row)}", row=index, column="")
        if not row.keys() <= self.table.columns.keys():
            self._refuse_unknown(row, index)
        return tuple([self._encode(name, coder, required, row, index) for name, coder, required in self._row_plan])

    def encode_rows(self, rows: Sequence[object], replace: Mapping[str, Any] | None) -> list[tuple[Any, ...]]:
        """All rows as `encode_row` makes them. Raises RowError also for one with other values than `replace`."""
        encoded = [self.encode_row(row, index) for index, row in enumerate(rows)]
        if replace is not None:
            self._check_scope(rows, encoded, replace)
        return encoded

    def _check_scope(self, rows: Sequence[Any], encoded: Sequence[tuple[Any, ...]], replace: Mapping[str, Any]) -> None:
        order = list(self.table.columns)
        for name, wanted in self.encode_scope(replace).items():
            place = order.index(name)
            for index, row in enumerate(encoded):
                if row[place] != wanted:
                    where = f"{self._row(index)}: column {name!r}"
                    given = f"{shown(replace[name])}, as in replace, not {shown(rows[index].get(name))}"
                    raise RowError(f"{where} must be {given}", row=index, column=name)

    def _encode(self, name: str, coder: Coder, required: bool, row: Mapping[str, Any], index: int) -> Any:
        value = row.get(name)
        if value is None:
            if required:
                where = f"{self._row(index)}: column {name!r}"
                raise RowError(f"{where} is required, but has no value", row=index, column=name)
            return None
        try:
            return coder.encode(value)
        except ValueError as expected:
            where = f"{self._row(index)}: column {name!r}"
            raise RowError(f"{where} must be {expected}, not {shown(value)}", row=index, column=name) from None

    def _refuse_unknown(self, row: Mapping[Any, Any], index: int) -> None:
        name = next(name for name in row if name not in self.table.columns)
        hint = nearest(name, self.table.columns)
        raise RowError(f"{self._row(index)} has an unknown column {shown(name)}{hint}", row=index, column=str(name))

    def _row(self, index: int) -> str:
        return f"row {index} for table {self.table.name!r}"

    def key_of(self, encoded_row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([encoded_row[place] for place in self.key_places])

    def encode_key(self, key: object) -> tuple[Any, ...]:
        """A key as it is kept: a scalar for a table with one key column, else a tuple or list in key order.

        Raises Unfit naming table and column.
        """
        names = self.table.key
        parts = tuple(key) if isinstance(key, (tuple, list)) else (key,)
        if len(parts) != len(names):
            raise Unfit(
                f"a key of table {self.table.name!r} has {len(names)} values ({', '.join(names)}), not {shown(key)}"
            )
        return tuple([self.encode_value(name, part) for name, part in zip(names, parts, strict=True)])

    def encode_value(self, column: str, value: object) -> Any:
        """One value of a known column. Raises Unfit naming table and column."""
        try:
            return self.coders[column].encode(value)
        except ValueError as expected:
            where = f"table {self.table.name!r}: column {column!r}"
            raise Unfit(f"{where} must be {expected}, not {shown(value)}") from None

    def encode_scope(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a `replace` with their kept values. Raises PluginError for what is no scope of this table."""
        if not scope:
            raise PluginError(f"replace on table {self.table.name!r} names no column; name at least one")
        try:
            known = self.known_columns(scope)
            return {name: None if scope[name] is None else self.encode_value(name, scope[name]) for name in known}
        except Unfit as error:
            raise PluginError(f"replace on {error}") from None

    def known_columns(self, names: Iterable[object] | None) -> tuple[str, ...]:
        """These columns (None: all of them). Raises Unfit naming the nearest column for an unknown one."""
        if names is None:
            return tuple(self.table.columns)
        columns = self.table.columns
        for name in names:
            if not isinstance(name, str) or name not in columns:
                hint = nearest(name, columns)
                raise Unfit(f"table {self.table.name!r} has no column {shown(name)}{hint}")
        return tuple(str(name) for name in names)

    def keys_as_json(self, keys: Sequence[object]) -> str:
        """Encoded keys as one JSON parameter: `[k, …]`, or `[[a, b], …]` for a composite key.

        Raises Unfit for a key that does not fit.
        """
        encoded = [self.encode_key(key) for key in keys]
        plain = encoded if len(self.table.key) > 1 else [key[0] for key in encoded]
        return json.dumps(plain)

    def decode_rows(self, columns: Sequence[str], fetched: Sequence[Sequence[Any]]) -> list[Row]:
        """Rows as the user knows them, from tuples in the order of `columns`.

        Raises Unfit for a value that was put into the database by other means and is none of its column's.
        """
        plan = [(name, self.coders[name].decode) for name in columns]
        try:
            return [
                {
                    name: value if decode is None or value is None else decode(value)
                    for (name, decode), value in zip(plan, values, strict=True)
                }
                for values in fetched
            ]
        except _UNDECODABLE:
            raise self._undecodable(columns, fetched) from None

    def _undecodable(self, columns: Sequence[str], fetched: Sequence[Sequence[Any]]) -> Unfit:
        for values in fetched:
            for name, value in zip(columns, values, strict=True):
                decode = self.coders[name].decode
                try:
                    _ = value if decode is None or value is None else decode(value)
                except _UNDECODABLE:
                    kind = self.table.columns[name].type
                    where = f"table {self.table.name!r}, column {name!r}"
                    return Unfit(f"{where} holds {shown(value)}, which is no {kind} that BlockX wrote; mend it by hand")
        raise AssertionError("every value could be decoded the second time")


def unknown_table(name: object, tables: Iterable[str]) -> Unfit:
    """What to raise for a table that the database does not have, naming the nearest one."""
    return Unfit(f"there is no table {shown(name)}{nearest(name, tables)}; `blockx tables apply` creates tables")
