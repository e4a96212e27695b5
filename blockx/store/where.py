"""Filters and orders that arrive as data become SQLAlchemy clauses; no name or value reaches SQL unchecked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from blockx.filters import HOLDS, Filter, read_filters
from blockx.shown import shown
from blockx.store.rows import TableCoder, Unfit

__all__ = ["order_clauses", "where_clauses"]

_Clause = sa.ColumnElement[bool]

_CLAUSES: Mapping[str, Callable[[Any, Any], Any]] = {
    **HOLDS,
    "in": lambda column, values: column.in_(values),
    "not_in": lambda column, values: column.not_in(values),
}
"""Of a column the comparisons make clauses."""


def where_clauses(where: object, table: sa.Table, coder: TableCoder) -> list[_Clause]:
    """One clause for each `[column, operator, value]`; all of them must hold.

    `is_null` takes true (also when left out) or false. Raises Unfit with a sentence naming table, column or
    operator, and the nearest valid word.
    """
    try:
        filters = read_filters(where)
    except ValueError as error:
        raise Unfit(f"table {coder.table.name!r}, {error}") from None
    return [_clause(one, table, coder) for one in filters]


def _clause(one: Filter, table: sa.Table, coder: TableCoder) -> _Clause:
    (name,) = coder.known_columns([one.name])
    if one.operator == "is_null":
        null: _Clause = table.c[name].is_(None) if one.value else table.c[name].is_not(None)
        return null
    if not coder.coders[name].is_ordered and one.operator.startswith(("<", ">")):
        kind = coder.table.columns[name].type
        raise Unfit(f"table {coder.table.name!r}, column {name!r} of type {kind} has no order; use = or !=")
    clause: _Clause = _CLAUSES[one.operator](
        table.c[name], one.converted(lambda value: coder.encode_value(name, value))
    )
    return clause


def order_clauses(order: object, table: sa.Table, coder: TableCoder) -> list[sa.ColumnElement[Any]]:
    """The named columns (`-name`: descending), then the key, so that every scan has one defined order.

    Raises Unfit naming table and column.
    """
    if not isinstance(order, (list, tuple)) or not all(isinstance(word, str) for word in order):
        raise Unfit(f'order must be a list of columns such as ["height", "-value"], not {shown(order)}')
    descending = {word.removeprefix("-"): word.startswith("-") for word in order}
    for name in coder.known_columns(descending):
        if not coder.coders[name].is_ordered:
            raise Unfit(f"table {coder.table.name!r}: column {name!r} has no order, so rows cannot be sorted by it")
    for name in coder.table.key:
        descending.setdefault(name, False)
    return [table.c[name].desc() if down else table.c[name].asc() for name, down in descending.items()]
