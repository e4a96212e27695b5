"""Filters and orders that arrive as data become SQLAlchemy clauses; no name or value reaches SQL unchecked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from blockx.model import nearest
from blockx.store.rows import TableCoder, Unfit, shown

__all__ = ["MAX_FILTER_VALUES", "OPERATORS", "order_clauses", "where_clauses"]

MAX_FILTER_VALUES = 10_000
"""Values in all `in` and `not_in` lists of one scan together; SQLite takes 32 766 parameters a statement."""

_Clause = sa.ColumnElement[bool]

_COMPARISONS: Mapping[str, Callable[[Any, Any], _Clause]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}

_LISTS: Mapping[str, Callable[[Any, Any], _Clause]] = {
    "in": lambda column, values: column.in_(values),
    "not_in": lambda column, values: column.not_in(values),
}

OPERATORS: tuple[str, ...] = (*_COMPARISONS, *_LISTS, "is_null")
"""Operators of a filter. As in SQL, a row whose column is NULL passes none of them but `is_null`."""


def where_clauses(where: object, table: sa.Table, coder: TableCoder) -> list[_Clause]:
    """One clause for each `[column, operator, value]`; all of them must hold.

    `is_null` takes true (also when left out) or false. Raises Unfit with a sentence naming table, column or
    operator, and the nearest valid word.
    """
    if isinstance(where, (str, bytes)) or not isinstance(where, Sequence):
        raise Unfit(f"where must be a list of [column, operator, value], not {shown(where)}")
    _check_size(where)
    return [_clause(entry, table, coder) for entry in where]


def _check_size(where: Sequence[Any]) -> None:
    lists = [part for entry in where if isinstance(entry, (list, tuple)) for part in entry[2:] if _is_list(part)]
    total = sum(map(len, lists)) + len(where)
    if total > MAX_FILTER_VALUES:
        raise Unfit(f"where has {total} values, at most {MAX_FILTER_VALUES} are allowed; scan in several steps")


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _clause(entry: object, table: sa.Table, coder: TableCoder) -> _Clause:
    if not isinstance(entry, (list, tuple)) or len(entry) not in (2, 3):
        raise Unfit(f"a filter must be [column, operator, value], not {shown(entry)}")
    (name,) = coder.known_columns(entry[:1])
    operator, values = entry[1], entry[2:]
    where = f"table {coder.table.name!r}, column {name!r}"
    if not isinstance(operator, str) or operator not in OPERATORS:
        hint = nearest(str(operator), OPERATORS)
        raise Unfit(f"{where}: unknown operator {shown(operator)}{hint}; operators: {' '.join(OPERATORS)}")
    if operator == "is_null":
        return _null_clause(table.c[name], values, where)
    if not values or values[0] is None:
        raise Unfit(f"{where}: operator {operator!r} needs a value; for NULL write [{name!r}, 'is_null']")
    if operator in _LISTS:
        return _list_clause(operator, name, values[0], table, coder)
    if not coder.coders[name].is_ordered and operator not in ("=", "!="):
        raise Unfit(f"{where} of type {coder.table.columns[name].type} has no order; use = or !=")
    return _COMPARISONS[operator](table.c[name], coder.encode_value(name, values[0]))


def _null_clause(column: Any, values: Sequence[Any], where: str) -> _Clause:
    wanted = values[0] if values else True
    if not isinstance(wanted, bool):
        raise Unfit(f"{where}: is_null takes true or false, not {shown(wanted)}")
    clause: _Clause = column.is_(None) if wanted else column.is_not(None)
    return clause


def _list_clause(operator: str, name: str, values: object, table: sa.Table, coder: TableCoder) -> _Clause:
    if not isinstance(values, (list, tuple)):
        where = f"table {coder.table.name!r}, column {name!r}"
        raise Unfit(f"{where}: operator {operator!r} needs a list of values, not {shown(values)}")
    return _LISTS[operator](table.c[name], [coder.encode_value(name, value) for value in values])


def order_clauses(order: object, table: sa.Table, coder: TableCoder) -> list[sa.ColumnElement[Any]]:
    """The named columns (`-name`: descending), then the key, so that every scan has one defined order.

    Raises Unfit naming table and column.
    """
    if isinstance(order, (str, bytes)) or not isinstance(order, Sequence):
        raise Unfit(f'order must be a list of columns such as ["height", "-value"], not {shown(order)}')
    descending = {str(word).removeprefix("-"): str(word).startswith("-") for word in order}
    for name in coder.known_columns(descending):
        if not coder.coders[name].is_ordered:
            raise Unfit(f"table {coder.table.name!r}: column {name!r} has no order, so rows cannot be sorted by it")
    for name in coder.table.key:
        descending.setdefault(name, False)
    return [table.c[name].desc() if down else table.c[name].asc() for name, down in descending.items()]
