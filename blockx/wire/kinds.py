"""Which values may cross between processes, and where in a value the first one sits that may not."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgpack import ExtType, Timestamp

MAX_DEPTH = 512
"""Levels of nesting that may cross: half of what msgpack's C code takes, and safe for Python's own recursion."""

LEAVES = frozenset(
    (types.NoneType, bool, int, float, str, bytes, bytearray, memoryview, Decimal, datetime, UUID)
)  # fmt: skip
"""Exact types without parts. bytearray and memoryview arrive as bytes."""

Parts = list[Any] | tuple[Any, ...] | dict[Any, Any]

_FOREIGN = frozenset((ExtType, Timestamp))
"""Msgpack's own types, which it would pack as they are: nobody could read them."""

_STR = frozenset((str,))
_SUBCLASSED_LEAVES = (int, float, str, bytes, Decimal, datetime, UUID)
_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((set, frozenset), "send a sorted list"),
    (types.GeneratorType, "send a list of what it yields"),
    (types.CoroutineType, "await it and send its result"),
    (enum.Enum, "send its value"),
)


def is_aware(moment: datetime) -> bool:
    return moment.utcoffset() is not None


def as_container(node: object) -> Parts | None:
    """The plain list, tuple or dict that a value with parts is sent as; None for one sent whole or not at all."""
    kind = type(node)
    if kind is dict or kind is list or kind is tuple:
        return node  # type: ignore[return-value]  # mypy does not narrow by exact type
    if kind in _FOREIGN:
        return None
    if isinstance(node, dict):
        return dict(node)
    if isinstance(node, (list, tuple)):
        return list(node) if isinstance(node, list) else tuple(node)
    fields = _field_names(kind)
    return None if fields is None else {name: getattr(node, name) for name in fields}


def _field_names(kind: type) -> list[str] | None:
    fields = getattr(kind, "__attrs_attrs__", None)
    if fields is None and dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
    return None if fields is None else [field.name for field in fields]


def is_sound(root: object) -> bool:
    """Whether a value that msgpack could pack also has str keys only, no foreign extension type, and bounded depth.

    Only for values without cycles, which is what having been packed shows.
    """
    level, depth = [root], 1
    while level:
        below: list[object] = []
        for node in level:
            parts = node if type(node) is list else as_container(node)
            if parts is None:
                if type(node) in _FOREIGN:
                    return False
            elif depth > MAX_DEPTH or (type(parts) is dict and not _has_str_keys(parts)):
                return False
            elif not LEAVES.issuperset(map(type, _values(parts))):
                below += [part for part in _values(parts) if type(part) not in LEAVES]
        level, depth = below, depth + 1
    return True


def _has_str_keys(parts: dict[Any, Any]) -> bool:
    return _STR.issuperset(map(type, parts)) or all(isinstance(key, str) for key in parts)


def _values(parts: Parts) -> Iterable[object]:
    return parts.values() if type(parts) is dict else parts


def first_fault(root: object, *, for_json: bool = False) -> str | None:
    """`path: what is wrong there` for the first part that may not cross, or that JSON cannot hold."""
    pending: list[tuple[object, str, int]] = [(root, "value", 1)]
    while pending:
        node, path, depth = pending.pop()
        try:
            parts = as_container(node)
            reason = _refuse_leaf(node, for_json) if parts is None else _refuse_container(parts, depth)
        except Exception as error:  # from a property, an iterator or a time zone of the user's
            return f"{path}: reading {_a(node)} raised {type(error).__name__}: {error}"
        if reason is not None:
            return f"{path}: {reason}"
        if parts is not None:
            pending.extend(reversed([(part, path + step, depth + 1) for step, part in _steps(parts)]))
    return None


def _steps(parts: Parts) -> Iterator[tuple[str, object]]:
    if isinstance(parts, dict):
        return ((f"[{_short(key)}]", part) for key, part in parts.items())
    return ((f"[{index}]", part) for index, part in enumerate(parts))


def _refuse_container(parts: Parts, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"nested more than {MAX_DEPTH} levels deep, or contains itself"
    if isinstance(parts, dict):
        for key in parts:
            if not isinstance(key, str):
                return f"the key {_short(key)} is {_a(key)}; keys must be str"
            if _has_surrogate(key):
                return f"the key {_short(key)} has a lone surrogate, which is not Unicode text"
    return None


def _refuse_leaf(node: object, for_json: bool) -> str | None:
    if isinstance(node, datetime) and not is_aware(node):
        return "a datetime without a time zone cannot be sent; make it aware, for instance with tzinfo=timezone.utc"
    if isinstance(node, str) and _has_surrogate(node):
        return "a str with a lone surrogate cannot be sent, it is not Unicode text"
    if for_json and isinstance(node, float) and not math.isfinite(node):
        return f"the float {float(node)} cannot be written as JSON"
    if type(node) in LEAVES or isinstance(node, _SUBCLASSED_LEAVES):
        return None
    hint = next((f"; {hint}" for kinds, hint in _HINTS if isinstance(node, kinds)), "")
    return f"{_a(node)} cannot be sent{hint}"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _a(node: object) -> str:
    """`an int`, `a _thread.lock`."""
    kind = type(node)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _short(key: object) -> str:
    text = ascii(key)
    return text if len(text) <= 60 else f"{text[:57]}..."
