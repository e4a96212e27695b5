"""Runs one function as a task would, with no cluster, on data in memory: for function authors' tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from attrs import frozen

from blockx.errors import ReadError
from blockx.filters import HOLDS, Filter, read_filters, whole_number
from blockx.model import BlockContext, nearest
from blockx.sdk import Context, Function, function_of
from blockx.shown import shown
from blockx.wire.values import pack_value, unpack_value

Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[Any, Row] | Sequence[Row]]

log = logging.getLogger("blockx.testing")

_FROM_TEXT: Mapping[type, Callable[[str], Any]] = {
    int: whole_number,
    Decimal: Decimal,
    bytes: lambda text: bytes.fromhex(text.removeprefix("0x")),
    datetime: datetime.fromisoformat,
}
"""What a filter may spell as a text; a table's column types take the same."""

_NUMBERS = {int, float, Decimal}


async def run(
    function: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    tables: Tables | None = None,
    bundles: Iterable[Mapping[str, Any]] = (),
    block: BlockContext | None = None,
    attempt: int = 1,
) -> Any:
    """What the function returns for these arguments, or the exception that it raises.

    Arguments and result cross the same conversion as between processes, so that what cannot cross is found here.
    `tables` is `{name: {key: row}}`, a key of several columns being a tuple, or `{name: [row, …]}` with the columns of
    the key first in each row; `bundles` are whole blocks as stored, with `chain_id` and `block`. Raises TypeError for
    arguments that do not fit the signature, UnserializableValue for values that may not cross, ReadError for a table or
    bundle that was not given. `ctx.log` goes to `logging`.
    """
    described = _described(function)
    sent_args, sent_kwargs = _crossed([list(args), dict(kwargs or {})])
    mismatch = described.mismatch(sent_args, sent_kwargs)
    if mismatch is not None:
        raise TypeError(mismatch)
    if described.takes_ctx:
        port = _MemoryPort(tables or {}, list(bundles))
        sent_args = [Context(block, "test", 0, attempt, port), *sent_args]
    value = described.call(*sent_args, **sent_kwargs)
    return _crossed(await value if described.is_async else value)


def _described(function: Callable[..., Any]) -> Function:
    found = function_of(function)
    if found is None:
        raise TypeError(f"{function!r} is not marked with @function, so no task could call it")
    return found


def _crossed(value: Any) -> Any:
    return unpack_value(pack_value(value))


@frozen
class _MemoryPort:
    """Answers a context's requests from memory."""

    tables: Tables
    bundles: list[Mapping[str, Any]]

    async def read(self, request: list[Any]) -> Any:
        operation, *arguments = _crossed(request)
        answers: Mapping[str, Callable[..., Any]] = {
            "table.get_many": self._get_many,
            "table.scan": self._scan,
            "bundle.get": self._bundle,
        }
        return _crossed(answers[operation](*arguments))

    def log(self, level: str, message: str) -> None:
        log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message)

    def _rows(self, table: str) -> Mapping[Any, Row] | Sequence[Row]:
        rows = self.tables.get(table)
        if rows is None:
            raise ReadError(f"there is no table {table!r}{nearest(table, self.tables)}; give it to run(tables=...)")
        return rows

    def _get_many(self, table: str, keys: list[Any], columns: list[str] | None) -> list[Row | None]:
        rows = self._rows(table)
        found = [_row_of(rows, tuple(key) if isinstance(key, list) else key) for key in keys]
        return [None if row is None else _columns_of(row, columns, table) for row in found]

    def _scan(self, table: str, where: list[Any], order: list[str], limit: int | None) -> list[Row]:
        rows = self._rows(table)
        listed = rows.values() if isinstance(rows, Mapping) else rows
        filters = _filters(where, table)
        passing = [row for row in listed if all(_passes(row, one, table) for one in filters)]
        for name in reversed(order):
            column = name.removeprefix("-")
            passing.sort(key=partial(_sort_key, column, table), reverse=name != column)
        return passing[:limit]

    def _bundle(self, chain_id: int, block: str | int) -> Mapping[str, Any]:
        part = "id" if isinstance(block, str) else "height"
        for bundle in self.bundles:
            if bundle["chain_id"] == chain_id and bundle["block"][part] == block:
                return bundle
        raise ReadError(f"there is no bundle of block {block} of chain {chain_id}; give it to run(bundles=...)")


def _row_of(rows: Mapping[Any, Row] | Sequence[Row], key: Any) -> Row | None:
    if isinstance(rows, Mapping):
        return rows.get(key)
    values = key if isinstance(key, tuple) else (key,)
    return next((row for row in rows if tuple(row.values())[: len(values)] == values), None)


def _columns_of(row: Row, columns: Sequence[str] | None, table: str) -> Row:
    if columns is None:
        return row
    for name in columns:
        if name not in row:
            raise ReadError(f"table {table!r} has no column {name!r}{nearest(name, row)}")
    return {name: row[name] for name in columns}


def _sort_key(column: str, table: str, row: Row) -> tuple[bool, Any]:
    value = _columns_of(row, [column], table)[column]
    return value is not None, value


def _filters(where: object, table: str) -> list[Filter]:
    try:
        return read_filters(where)
    except ValueError as error:
        raise ReadError(f"table {table!r}, {error}") from None


def _passes(row: Row, one: Filter, table: str) -> bool:
    found = _columns_of(row, [one.name], table)[one.name]
    if one.operator == "is_null":
        return (found is None) is one.value
    if found is None:
        return False
    return HOLDS[one.operator](
        found, one.converted(partial(_comparable, f"table {table!r}, column {one.name!r}", found))
    )


def _comparable(where: str, found: Any, value: Any) -> Any:
    """The filter's value as it compares with what was found. Raises ReadError."""
    if type(value) is type(found) or {type(value), type(found)} <= _NUMBERS:
        return value
    try:
        converted = _FROM_TEXT[type(found)](value) if isinstance(value, str) else None
    except (KeyError, ValueError, ArithmeticError):
        converted = None
    if converted is None:
        raise ReadError(f"{where} is {shown(found)} and cannot be compared with {shown(value)}")
    return converted
