"""Filters over the items of a bundle.

A name is a field of the item; a dot goes on into a list by place or into an object by key. Whole numbers compare as
numbers, and the filter's value may then be a decimal string or 0x-hex too; hex texts compare without regard to case,
others exactly. A place that a list does not have is absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from attrs import define, field

from blockx.filters import HOLDS, Filter, read_filters, whole_number
from blockx.plugins import PluginError
from blockx.shown import shown

MAX_STEPS = 16
"""Steps of a filter's field, such as the two of `topics.0`."""

_PLACE = re.compile(r"[0-9]{1,9}")


@define
class ItemFilter:
    """A filter, and its value as it compares with items of one type."""

    filter: Filter
    path: list[str]
    _converted: dict[type, Any] = field(factory=dict, init=False)

    def passes(self, item: Any) -> bool:
        """Whether the item passes. Raises PluginError where its value and the filter's cannot be compared."""
        found = item
        for step in self.path:
            found = _step_into(found, step)
        if self.filter.operator == "is_null":
            return (found is None) is self.filter.value
        if found is None:
            return False
        return HOLDS[self.filter.operator](_folded(found), self._comparable_with(found))

    def _comparable_with(self, found: Any) -> Any:
        kind = type(found)
        if kind not in self._converted:
            if kind not in (int, str, bool):
                name = self.filter.name
                raise PluginError(f"where: {name} is {shown(found)}; filter by a part of it ({name}.…)")
            converted = self.filter.converted(lambda value: self._convert(kind, value))
            self._converted[kind] = frozenset(converted) if self.filter.is_list else converted
        return self._converted[kind]

    def _convert(self, kind: type, value: Any) -> Any:
        if type(value) is kind:
            return _folded(value)
        number = whole_number(value) if kind is int and isinstance(value, str) else None
        if number is not None:
            return number
        expected = {int: "a whole number", str: "a text", bool: "true or false"}[kind]
        raise PluginError(f"where: {self.filter.name} is {expected} and cannot be compared with {shown(value)}")


def read_item_filters(where: Sequence[Any]) -> list[ItemFilter]:
    """The filters of a declaration. Raises ValueError naming the one that is wrong."""
    return [_item_filter(index, one) for index, one in enumerate(read_filters(where))]


def _item_filter(index: int, one: Filter) -> ItemFilter:
    path = one.name.split(".", MAX_STEPS)
    if len(path) > MAX_STEPS:
        raise ValueError(f"where[{index}]: {shown(one.name)} has more than {MAX_STEPS} steps")
    return ItemFilter(one, path)


def _step_into(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step)
    if isinstance(found, list) and _PLACE.fullmatch(step) and int(step) < len(found):
        return found[int(step)]
    return None


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) and value[:2] in ("0x", "0X") else value
