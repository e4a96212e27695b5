"""Messages as frames: 4 bytes of length, big-endian, then one msgpack array `[kind, *fields]`. No IO here."""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable
from typing import Any

import attrs
import msgspec

from blockx.errors import ProtocolError
from blockx.wire import messages as m

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The longest frame that either side sends or accepts, its length prefix not counted."""

MAX_VALUE_BYTES = MAX_FRAME_BYTES - 64 * 1024
"""The longest packed value, argument list or request that surely fits a frame of its own, beside names and numbers."""

_PREFIX_BYTES = 4
_ARRAY_OF_FEW = 0x90
"""First byte of a msgpack array of up to 15 items, its low half being their number."""

_encoder = msgspec.msgpack.Encoder()


def encode(message: m.Message, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The message as one frame. Raises ProtocolError if that is longer than `max_bytes`."""
    body = _encoder.encode((message.KIND, *_KINDS[message.KIND].fields_of(message)))
    if len(body) > max_bytes:
        raise ProtocolError(f"a {type(message).__name__} of {len(body)} bytes does not fit a frame of {max_bytes}")
    return len(body).to_bytes(_PREFIX_BYTES, "big") + body


class FrameReader:
    """Collects bytes in any portions and gives out the messages that are complete."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> list[m.Message]:
        """Take what was read; the messages that are complete now, in order.

        Raises ProtocolError for a frame that is too long, of unknown kind or malformed; the reader is of no use then.
        """
        buffer = self._buffer
        buffer += data
        found: list[m.Message] = []
        start = 0
        with memoryview(buffer) as view:
            while (end := self._end_of_frame(start)) <= len(buffer):
                with view[start + _PREFIX_BYTES : end] as body:
                    found.append(_decode(body))
                start = end
        del buffer[:start]
        return found

    def close(self) -> None:
        """The peer has closed. Raises ProtocolError if that was in the middle of a frame."""
        if self._buffer:
            raise ProtocolError(f"the connection ended in the middle of a frame, after {len(self._buffer)} bytes of it")

    def _end_of_frame(self, start: int) -> int:
        """Where the frame at `start` ends; beyond the buffer if it is not complete."""
        body_start = start + _PREFIX_BYTES
        if body_start > len(self._buffer):
            return body_start
        length = int.from_bytes(self._buffer[start:body_start], "big")
        if length > self._max_bytes:
            raise ProtocolError(f"a frame of {length} bytes is announced; at most {self._max_bytes} are allowed")
        return body_start + length


def _decode(body: memoryview) -> m.Message:
    kind = _KINDS.get(body[1]) if len(body) >= 2 and body[0] & 0xF0 == _ARRAY_OF_FEW else None
    if kind is None:
        raise ProtocolError(f"a frame of {len(body)} bytes is of no known kind; it begins with {bytes(body[:8]).hex()}")
    try:
        _, *fields = kind.decoder.decode(body)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"a {kind.name} frame is malformed: {error}") from None
    message: m.Message = kind.make(*fields)
    fault = kind.fault_of(message)
    if fault is not None:
        raise ProtocolError(f"a {kind.name} frame is malformed: {fault}")
    return message


@attrs.frozen
class _Kind:
    name: str
    make: Callable[..., m.Message]
    fields_of: Callable[[m.Message], tuple[Any, ...]]
    decoder: msgspec.msgpack.Decoder[Any]
    fault_of: Callable[[Any], str | None]


def _kind_of(message_type: Any) -> _Kind:
    hints = typing.get_type_hints(message_type)
    names = [field.name for field in attrs.fields(message_type)]
    shape = types.GenericAlias(tuple, (int, *(hints[name] for name in names)))
    parallel = [name for name in names if typing.get_origin(hints[name]) is list and "ids" in names]
    return _Kind(
        name=message_type.__name__,
        make=message_type,
        fields_of=_getter(names),
        decoder=msgspec.msgpack.Decoder(shape),
        fault_of=_FAULTS.get(message_type) or _unequal_lists(_getter(parallel)),
    )


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


def _unequal_lists(lists_of: Callable[[Any], tuple[Any, ...]]) -> Callable[[m.Message], str | None]:
    def fault_of(message: m.Message) -> str | None:
        lengths = set(map(len, lists_of(message)))
        return f"its lists must be of one length, not {sorted(lengths)}" if len(lengths) > 1 else None

    return fault_of


_resume_lists = _unequal_lists(operator.attrgetter("ids", "wait_ids", "io_us", "values", "errors"))


def _resume_fault(message: m.ResumeCalls) -> str | None:
    for value, error in zip(message.values, message.errors, strict=False):
        if (value is None) is (error is None):
            return "each answer must be either a value or an error"
        if error is not None and [type(part) for part in error] != [str, str, bool]:
            return "an error must be [type, message, retryable]"
    return _resume_lists(message)


def _failure_fault(message: m.CallFailed) -> str | None:
    return None if len(message.error) == 4 else "its error must be [code, type, message, traceback]"


_FAULTS: dict[Any, Callable[[Any], str | None]] = {m.ResumeCalls: _resume_fault, m.CallFailed: _failure_fault}
_KINDS = {kind.KIND: _kind_of(kind) for kind in typing.get_args(m.Message)}
