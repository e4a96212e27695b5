"""Values and exceptions of users as they stand in messages: short, at once, and without running code of theirs."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

MAX_CHARS = 80
_MAX_NAME_CHARS = 200
_MAX_DEPTH = 6
_MAX_INT_BITS = 512
"""Wider integers are described: no decimal digits of one are taken that may take long or be refused."""

_PLAIN = (bool, float, decimal.Decimal, uuid.UUID, type(None))


def shown(value: object, max_chars: int = MAX_CHARS) -> str:
    """A value as it stands in a message: like its `repr`, of at most `max_chars` characters.

    Never raises and never takes long: wide integers are described by their bits, texts and containers are cut where
    the message has no more room, and of instances of other classes only the class is named.
    """
    return _cut(_text(value, max_chars, 1), max_chars)


def shown_arguments(args: Sequence[object], kwargs: Mapping[str, object], max_chars: int) -> str:
    """The arguments of a call as they would be written, like `shown`."""
    named = (f"{name[: max_chars + 1]}={_text(value, max_chars, 1)}" for name, value in kwargs.items())
    return _cut(_joined(chain((_text(value, max_chars, 1) for value in args), named), max_chars), max_chars)


def text_of(error: BaseException) -> str:
    """What `str` says of an exception, whose class may be anybody's: where that raises, a note says so."""
    try:
        return str.__str__(str(error))  # not an instance of a subclass, whose methods would be the user's
    except BaseException as failed:  # SystemExit too: a text is no place to leave a program from
        return f"(its text could not be had: {type_name(type(failed))})"


def type_name(kind: type) -> str:
    """The qualified name of a class, also where its metaclass tells another one, or raises."""
    name: str = type.__dict__["__qualname__"].__get__(kind)
    return _cut(name, _MAX_NAME_CHARS)


def a_thing(value: object) -> str:
    """`an int`, `a decimal.Decimal`: a value by its class alone."""
    kind = type(value)
    module = type.__dict__["__module__"].__get__(kind)
    name = type_name(kind) if module == "builtins" or type(module) is not str else f"{module}.{type_name(kind)}"
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def _text(value: Any, room: int, depth: int) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if issubclass(kind, int):
        bits = int.bit_length(value)
        return int.__repr__(value) if bits <= _MAX_INT_BITS else f"an integer of {bits} bits"
    if issubclass(kind, str):
        return _quoted(str.__str__(value), room)
    if kind is bytes:
        return _quoted(value, room)
    writer = _CONTAINERS.get(kind)
    if writer is not None:
        return writer(value, room, depth) if depth <= _MAX_DEPTH or not value else "…"
    if kind is datetime.datetime and type(value.tzinfo) in (datetime.timezone, type(None)):
        return repr(value)
    return a_thing(value)


def _quoted(text: str | bytes, room: int) -> str:
    return repr(text) if len(text) <= room else f"{text[:room]!r}…"


def _list(value: list[object], room: int, depth: int) -> str:
    return f"[{_joined(_texts(value, room, depth), room)}]"


def _tuple(value: tuple[object, ...], room: int, depth: int) -> str:
    return f"({_joined(_texts(value, room, depth), room)}{',' if len(value) == 1 else ''})"


def _dict(value: dict[object, object], room: int, depth: int) -> str:
    entries = (f"{_text(key, room, depth + 1)}: {_text(item, room, depth + 1)}" for key, item in value.items())
    return f"{{{_joined(entries, room)}}}"


_CONTAINERS: dict[type, Callable[[Any, int, int], str]] = {list: _list, tuple: _tuple, dict: _dict}


def _texts(values: Iterable[object], room: int, depth: int) -> Iterator[str]:
    return (_text(value, room, depth + 1) for value in values)


def _joined(parts: Iterable[str], room: int) -> str:
    """As many of the parts as there is room for, and the mark of a cut if there are more."""
    out: list[str] = []
    for part in parts:
        if room < 0:
            out.append("…")
            break
        out.append(part)
        room -= len(part) + 2
    return ", ".join(out)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
