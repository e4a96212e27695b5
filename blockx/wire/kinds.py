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

from blockx.shown import a_thing, shown, text_of, type_name
from blockx.strict_json import MAX_INT_DIGITS, fits_json

MAX_DEPTH = 512
"""Levels of nesting that may cross: half of what msgpack's C code takes, and safe for Python's own recursion."""

LEAVES = frozenset(
    (types.NoneType, bool, int, float, str, bytes, bytearray, memoryview, Decimal, datetime, UUID)
)  # fmt: skip
"""Exact types without parts. bytearray and memoryview arrive as bytes."""

Parts = list[Any] | tuple[Any, ...] | dict[Any, Any]

_FOREIGN = frozenset((ExtType, Timestamp))
"""Msgpack's own types, which it would pack as they are: nobody could read them."""

_FAULTLESS = frozenset((types.NoneType, bool, bytes, bytearray, memoryview, Decimal, UUID))

_SHOWN_STEPS = 6
"""Of a longer path to a part, so many first and last steps are told."""

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


_Path = tuple["_Path | None", object]
"""The steps to a part: those to what it is in, and its own, which is an index or a key."""


def first_fault(root: object, *, for_json: bool = False) -> str | None:
    """`path: what is wrong there` for the first part that may not cross, or that JSON cannot hold."""
    pending: list[tuple[Iterator[tuple[object, object]], _Path | None]] = []
    reason, parts = _looked_at(root, 1, for_json)
    path: _Path | None = None
    while reason is None:
        if parts is not None:
            pending.append((_steps(parts), path))
        if not pending:
            return None
        steps, inside = pending[-1]
        for step, part in steps:
            if not _is_plain(part, for_json):  # most are: nothing else is done for each of what may be millions
                path = inside, step
                reason, parts = _looked_at(part, len(pending) + 1, for_json)
                break
        else:
            pending.pop()
            parts = None
    return f"value{_written(path)}: {reason}"


def _is_plain(part: object, for_json: bool) -> bool:
    """Whether this is certainly no fault and has no parts."""
    kind = type(part)
    if kind is int:
        return not for_json or fits_json(part)  # type: ignore[arg-type]  # mypy does not narrow by exact type
    return kind in _FAULTLESS or (kind is float and (not for_json or math.isfinite(part)))  # type: ignore[arg-type]


def _looked_at(node: object, depth: int, for_json: bool) -> tuple[str | None, Parts | None]:
    """What is wrong with a value itself, and its parts, if it has any."""
    try:
        parts = as_container(node)
        return _refuse_leaf(node, for_json) if parts is None else _refuse_container(parts, depth), parts
    except Exception as error:  # from a property, an iterator or a time zone of the user's
        return f"reading {a_thing(node)} raised {type_name(type(error))}: {text_of(error)}", None


def _steps(parts: Parts) -> Iterator[tuple[object, object]]:
    return iter(parts.items()) if isinstance(parts, dict) else enumerate(parts)


def _written(path: _Path | None) -> str:
    """`[3]['lock']`; of a long one, beginning and end."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{_short(step)}]")
    steps.reverse()
    if len(steps) > 2 * _SHOWN_STEPS:
        steps[_SHOWN_STEPS:-_SHOWN_STEPS] = ["…"]
    return "".join(steps)


def _refuse_container(parts: Parts, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"nested too deeply (more than {MAX_DEPTH} levels) or contains itself"
    if isinstance(parts, dict):
        for key in parts:
            if not isinstance(key, str):
                return f"the key {_short(key)} is {a_thing(key)}; keys must be str"
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
    if for_json and isinstance(node, int) and not fits_json(node):
        return (
            f"{shown(node)} cannot be written as JSON, which has {MAX_INT_DIGITS} digits at most; "
            "return it as text or bytes"
        )
    if type(node) in LEAVES or isinstance(node, _SUBCLASSED_LEAVES):
        return None
    hint = next((f"; {hint}" for kinds, hint in _HINTS if isinstance(node, kinds)), "")
    return f"{a_thing(node)} cannot be sent{hint}"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _short(step: object) -> str:
    return shown(step, 60)
