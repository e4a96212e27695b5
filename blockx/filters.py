"""Rows, and filters over them: `[["amount", ">", "0"], ["token", "in", […]], ["note", "is_null"]]`, joined by AND.

The form, the operators and the bounds are those of every place that takes filters. What a name may be, and how two
values compare, is for each place to say.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from blockx.model import nearest
from blockx.shown import shown

__all__ = [
    "HOLDS",
    "LIST_OPERATORS",
    "MAX_FILTERS",
    "MAX_FILTER_VALUES",
    "OPERATORS",
    "Filter",
    "Row",
    "Where",
    "read_filters",
    "whole_number",
]

Row = dict[str, Any]
Where = Sequence[Sequence[Any]]

MAX_FILTERS = 100
"""Filters of one scan: each is asked about each row."""

MAX_FILTER_VALUES = 10_000
"""Filters of one scan, and values in all their `in` and `not_in` lists, together; SQLite takes 32 766 parameters."""

LIST_OPERATORS = ("in", "not_in")

HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda found, values: found in values,
    "not_in": lambda found, values: found not in values,
}
"""Whether a value that was found, and is not None, stands to the filter's value as the operator says."""

OPERATORS: tuple[str, ...] = (*HOLDS, "is_null")
"""As in SQL, what is null or absent passes none of them but `is_null`."""

_WHOLE = re.compile(r"-?[0-9]{1,200}|0x[0-9a-fA-F]{1,200}")


@frozen
class Filter:
    """One `[name, operator, value]`; the value of `in` and `not_in` is a list, that of `is_null` a bool."""

    name: str
    operator: str
    value: Any

    @property
    def is_list(self) -> bool:
        return self.operator in LIST_OPERATORS

    def converted(self, convert: Callable[[Any], Any]) -> Any:
        """The value, or each one of its list, as `convert` makes it."""
        return [convert(value) for value in self.value] if self.is_list else convert(self.value)


def read_filters(where: object) -> list[Filter]:
    """The filters in `where`. Raises ValueError with a sentence that names the one that is wrong, as `where[2]`."""
    if isinstance(where, (str, bytes)) or not isinstance(where, Sequence):
        raise ValueError(f"where must be a list of [name, operator, value], not {shown(where)}")
    _check_size(where)
    return [_read_filter(f"where[{index}]", entry) for index, entry in enumerate(where)]


def whole_number(text: str) -> int | None:
    """The number that a decimal or 0x-hex text means; None where it means none."""
    return int(text, 16 if text.startswith("0x") else 10) if _WHOLE.fullmatch(text) else None


def _check_size(where: Sequence[Any]) -> None:
    if len(where) > MAX_FILTERS:
        raise ValueError(f"where has {len(where)} filters, at most {MAX_FILTERS} are allowed")
    lists = [part for entry in where if _is_list(entry) for part in entry[2:] if _is_list(part)]
    total = sum(map(len, lists)) + len(where)
    if total > MAX_FILTER_VALUES:
        raise ValueError(f"where has {total} values, at most {MAX_FILTER_VALUES} are allowed; ask in several steps")


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _read_filter(place: str, entry: Any) -> Filter:
    if not _is_list(entry) or len(entry) not in (2, 3) or not isinstance(entry[0], str):
        raise ValueError(f"{place} must be [name, operator, value], not {shown(entry)}")
    name, sign = entry[:2]
    if not isinstance(sign, str) or sign not in OPERATORS:
        hint = nearest(sign, OPERATORS)
        raise ValueError(f"{place} has an unknown operator {shown(sign)}{hint}; operators: {' '.join(OPERATORS)}")
    return Filter(name, sign, _read_value(place, sign, entry[2:]))


def _read_value(place: str, sign: str, given: Sequence[Any]) -> Any:
    if sign == "is_null":
        value = given[0] if given else True
        if not isinstance(value, bool):
            raise ValueError(f"{place}: is_null takes true or false, not {shown(value)}")
        return value
    if not given or given[0] is None:
        raise ValueError(f"{place}: {sign} needs a value; for null use is_null")
    if sign in LIST_OPERATORS and not _is_list(given[0]):
        raise ValueError(f"{place}: {sign} takes a list of values, not {shown(given[0])}")
    return given[0]
