"""Filters over the items of a bundle: the same form and operators as the filters of a table scan.

`[["contract_id", "=", "0x…"], ["topics.0", "in", […]], ["value", ">", "1000"]]`, joined by AND. A name is a field of
the item; a dot goes on into a list by place or into an object by key. Whole numbers compare as numbers, and the
filter's value may then be a decimal string or 0x-hex too; hex texts compare without regard to case, others exactly.
A field that is null or absent, or a place that a list does not have, passes `is_null` and nothing else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from blockx.model import nearest
from blockx.plugins import PluginError

_LIST_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "in": lambda found, values: found in values,
    "not_in": lambda found, values: found not in values,
}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    **_LIST_OPERATORS,
}
OPERATORS = (*_HOLDS, "is_null")
_WHOLE = re.compile(r"-?[0-9]{1,200}|0x[0-9a-fA-F]{1,200}")
_PLACE = re.compile(r"[0-9]{1,9}")

MAX_FILTERS = 100
"""Filters of one declaration; each is asked about each item."""

MAX_STEPS = 16
"""Steps of a filter's field, such as the two of `topics.0`."""

MAX_FILTER_VALUES = 10_000
"""Values in all `in` and `not_in` lists of one declaration together, as in a table scan."""


@define
class Filter:
    """One `[field, operator, value]`; the value of `in` and `not_in` is a list, that of `is_null` a bool."""

    name: str
    operator: str
    value: Any
    path: list[str] = field(init=False)
    _converted: dict[type, Any] = field(factory=dict, init=False)
    """`value` as it compares with items of one type."""

    def __attrs_post_init__(self) -> None:
        self.path = self.name.split(".")

    def passes(self, item: Any) -> bool:
        """Whether the item passes. Raises PluginError where its value and the filter's cannot be compared."""
        found = item
        for step in self.path:
            found = _step_into(found, step)
        if self.operator == "is_null":
            return (found is None) is self.value
        if found is None:
            return False
        return _HOLDS[self.operator](_folded(found), self._comparable_with(found))

    def _comparable_with(self, found: Any) -> Any:
        kind = type(found)
        if kind not in self._converted:
            if kind not in (int, str, bool):
                raise PluginError(f"where: {self.name} is {found!r:.80}; filter by a part of it ({self.name}.…)")
            is_list = self.operator in _LIST_OPERATORS
            convert = [self._convert(kind, value) for value in (self.value if is_list else [self.value])]
            self._converted[kind] = frozenset(convert) if is_list else convert[0]
        return self._converted[kind]

    def _convert(self, kind: type, value: Any) -> Any:
        if type(value) is kind:
            return _folded(value)
        if kind is int and isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value, 16 if value.startswith("0x") else 10)
        expected = {int: "a whole number", str: "a text", bool: "true or false"}[kind]
        raise PluginError(f"where: {self.name} is {expected} and cannot be compared with {value!r:.80}")


def read_filters(where: Sequence[Any]) -> list[Filter]:
    """The filters of a declaration. Raises ValueError naming the one that is wrong."""
    if len(where) > MAX_FILTERS:
        raise ValueError(f"where has {len(where)} filters, at most {MAX_FILTERS} are allowed")
    values = sum(
        len(part) for entry in where if isinstance(entry, list) for part in entry[2:3] if isinstance(part, list)
    )
    if values > MAX_FILTER_VALUES:
        raise ValueError(f"where has {values} values in its lists, at most {MAX_FILTER_VALUES} are allowed")
    return [_read_filter(f"where[{index}]", entry) for index, entry in enumerate(where)]


def _read_filter(place: str, entry: Any) -> Filter:
    if not isinstance(entry, list) or len(entry) not in (2, 3) or not all(isinstance(part, str) for part in entry[:2]):
        raise ValueError(f"{place} must be [field, operator, value], not {entry!r:.80}")
    name, comparison = entry[:2]
    if comparison not in OPERATORS:
        hint = nearest(comparison, OPERATORS)
        raise ValueError(f"{place} has an unknown operator {comparison!r}{hint}; operators: {' '.join(OPERATORS)}")
    if name.count(".") >= MAX_STEPS:
        raise ValueError(f"{place}: {name!r:.80} has more than {MAX_STEPS} steps")
    return Filter(name, comparison, _read_value(place, comparison, entry[2:]))


def _read_value(place: str, comparison: str, given: Sequence[Any]) -> Any:
    if comparison == "is_null":
        value = given[0] if given else True
        if not isinstance(value, bool):
            raise ValueError(f"{place}: is_null takes true or false, not {value!r:.80}")
        return value
    if not given or given[0] is None:
        raise ValueError(f"{place}: {comparison} needs a value; for null use is_null")
    if comparison in _LIST_OPERATORS and not isinstance(given[0], list):
        raise ValueError(f"{place}: {comparison} takes a list of values, not {given[0]!r:.80}")
    return given[0]


def _step_into(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step)
    if isinstance(found, list) and _PLACE.fullmatch(step) and int(step) < len(found):
        return found[int(step)]
    return None


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) and value[:2] in ("0x", "0X") else value
