"""Values as bytes: exact round trips in msgpack, and one-way JSON for results.

What may cross: None, bool, int of any size, float, str, bytes, Decimal, aware datetime, UUID, list, tuple, dict with
str keys, and attrs or dataclass instances, which arrive as dicts. Instances of subclasses arrive as their base (a
namedtuple as a tuple, an IntEnum as an int). What msgpack lacks travels as extension types 1 to 5, numbered below.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from msgpack import ExtType, Packer, unpackb

from blockx.errors import ProtocolError, UnserializableValue
from blockx.shown import text_of, type_name
from blockx.wire.kinds import LEAVES, as_container, first_fault, is_aware, is_sound

INT, DECIMAL, DATETIME, UUID_, TUPLE = 1, 2, 3, 4, 5
"""Extension types: two's complement big-endian; ASCII text; two 64-bit numbers of microseconds, local time since the
day before year 1 and UTC offset; 16 bytes; and an empty mark.

A tuple is an array whose first item is the mark: so nesting stays msgpack's own and costs no copy.
"""

_DATETIME_LAYOUT = struct.Struct(">qq")
_MICROSECOND = timedelta(microseconds=1)
_TUPLE_MARK = ExtType(TUPLE, b"")
_REUSED_PACKER_MAX_BYTES = 1024 * 1024
_INT_MIN, _INT_END = -(2**63), 2**64

# A packer cannot be shared by two threads, nor re-entered from its own hook; whoever packs takes one out of this list.
_packers: list[Packer] = []
_packer_of_headers = Packer()


def pack_value(value: object) -> bytes:
    """The value as bytes.

    Raises UnserializableValue, naming the type and the path inside the value, for anything that may not cross.
    """
    try:
        packer = _packers.pop()
    except IndexError:
        packer = Packer(default=_encode, strict_types=True)
    try:
        packed: bytes = packer.pack(value)
    except Exception as error:  # hooks run the user's own __iter__ and descriptors
        raise UnserializableValue(first_fault(value) or f"value: {type_name(type(error))}: {text_of(error)}") from None
    if type(value) not in LEAVES and not is_sound(value):
        raise UnserializableValue(first_fault(value))
    if len(packed) <= _REUSED_PACKER_MAX_BYTES:
        _packers.append(packer)
    return packed


def _encode(node: object) -> object:
    """Packer hook: what msgpack does not know by exact type, as something that it does."""
    if type(node) is tuple:
        return [_TUPLE_MARK, *node]
    if isinstance(node, int):
        return _encode_int(int.__int__(node))
    if isinstance(node, Decimal):
        return ExtType(DECIMAL, Decimal.__str__(node).encode())
    if isinstance(node, datetime) and is_aware(node):
        return ExtType(DATETIME, _DATETIME_LAYOUT.pack(_local_us(node), _offset_us(node)))
    if isinstance(node, UUID):
        return ExtType(UUID_, node.bytes)
    return _encode_subclass(node)


def _local_us(moment: datetime) -> int:
    minutes = (moment.toordinal() * 24 + moment.hour) * 60 + moment.minute
    return (minutes * 60 + moment.second) * 1_000_000 + moment.microsecond


def _offset_us(moment: datetime) -> int:
    return (moment.utcoffset() or timedelta()) // _MICROSECOND


def _decode_datetime(data: bytes) -> datetime:
    """Not from ISO 8601 text: Python's reader loses an offset that is shorter than a second."""
    local_us, offset_us = _DATETIME_LAYOUT.unpack(data)
    zone = timezone(timedelta(microseconds=offset_us)) if offset_us else UTC
    return datetime.min.replace(tzinfo=zone) + timedelta(days=-1, microseconds=local_us)


def _encode_int(number: int) -> int | ExtType:
    if _INT_MIN <= number < _INT_END:
        return number
    return ExtType(INT, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _encode_subclass(node: object) -> object:
    if isinstance(node, str):
        return str.__str__(node)
    if isinstance(node, float):
        return float.__float__(node)
    if isinstance(node, bytes):
        return bytes(memoryview(node))
    parts = as_container(node)
    if parts is None:
        raise TypeError(type(node).__name__)
    return [_TUPLE_MARK, *parts] if isinstance(parts, tuple) else parts


def pack_list(packed: Sequence[bytes]) -> bytes:
    """Packed values as one packed list, without opening them."""
    return bytes(_packer_of_headers.pack_array_header(len(packed))) + b"".join(packed)


class _TuplesMet(Exception):
    """Unpacking has met the mark of a tuple, so it must be done with a hook for every list."""


def unpack_value(packed: bytes) -> Any:
    """The value that was packed.

    Raises ProtocolError for bytes that are no packed value; what it allocates is bounded by their length.
    """
    try:
        try:
            return unpackb(packed, ext_hook=_decode, timestamp=3)
        except _TuplesMet:
            return _unpack_with_tuples(packed)
    except (ValueError, OverflowError, MemoryError) as error:
        raise ProtocolError(f"these bytes are no packed value: {error}") from None


def _decode(code: int, data: bytes) -> object:
    if code == INT:
        return int.from_bytes(data, "big", signed=True)
    if code == TUPLE and not data:
        raise _TuplesMet
    if code == UUID_:
        return UUID(bytes=bytes(data))
    if code == DECIMAL:
        with contextlib.suppress(InvalidOperation):
            return Decimal(data.decode("ascii"))
    if code == DATETIME and len(data) == _DATETIME_LAYOUT.size:
        return _decode_datetime(data)
    raise ProtocolError(
        f"these bytes are no packed value: extension type {code} with {len(data)} bytes is unknown or malformed"
    )


class _TupleReader:
    """Turns marked lists into tuples, and counts the marks, since one in any other place is not the protocol."""

    def __init__(self) -> None:
        self.unclaimed_marks = 0

    def decode(self, code: int, data: bytes) -> object:
        if code == TUPLE and not data:
            self.unclaimed_marks += 1
            return _TUPLE_MARK
        return _decode(code, data)

    def close_list(self, items: list[Any]) -> list[Any] | tuple[Any, ...]:
        if not items or items[0] is not _TUPLE_MARK:
            return items
        self.unclaimed_marks -= 1
        return tuple(items[1:])


def _unpack_with_tuples(packed: bytes) -> object:
    reader = _TupleReader()
    value: object = unpackb(packed, ext_hook=reader.decode, list_hook=reader.close_list, timestamp=3)
    if reader.unclaimed_marks:
        raise ProtocolError("these bytes are no packed value: the mark of a tuple is not the first item of an array")
    return value


def to_json(value: object) -> bytes:
    """The value as compact UTF-8 JSON: bytes as "0x…", Decimal and UUID as strings, datetimes after RFC 3339.

    Raises UnserializableValue, naming the path, for NaN and infinity, for integers of more than 4 300 digits
    (`MAX_INT_DIGITS`: many readers refuse them, and writing one takes quadratic time), and for anything that pack_value
    refuses.
    """
    try:
        text = _json_encoder.encode(value).encode()
        if type(value) in LEAVES or is_sound(value):
            return text
    except Exception as error:  # whatever it was, first_fault tells where
        fault = first_fault(value, for_json=True) or f"value: {type_name(type(error))}: {text_of(error)}"
        raise UnserializableValue(fault) from None
    raise UnserializableValue(first_fault(value, for_json=True))


def _jsonable(node: object) -> object:
    if isinstance(node, (bytes, bytearray, memoryview)):
        return f"0x{bytes(node).hex()}"
    if isinstance(node, (Decimal, UUID)):
        return str(node)
    if isinstance(node, datetime):
        return rfc3339(node)
    parts = as_container(node)
    if parts is None:
        raise TypeError(type(node).__name__)
    return parts


_json_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_jsonable
)


def rfc3339(moment: datetime) -> str:
    """An aware datetime as RFC 3339 writes it: whole minutes of offset only, `Z` for UTC."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError("a datetime without a time zone")
    if offset.total_seconds() % 60:
        moment = moment.astimezone(UTC)
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text
