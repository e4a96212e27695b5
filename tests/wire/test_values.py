from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import threading
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.errors import ProtocolError, UnserializableValue
from blockx.wire.kinds import MAX_DEPTH
from blockx.wire.values import pack_list, pack_value, to_json, unpack_value

NOON = datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=5, minutes=30)))
AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
Pair = namedtuple("Pair", ["left", "right"])


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.Enum):
    RED = "red"


class WideName(int):
    pass


class Name(str):
    __slots__ = ()


@attrs.frozen
class Transfer:
    token: str
    value: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class Point:
    x: int
    y: Decimal


@attrs.define(init=False)
class Unset:
    field: int


class Sly:
    __attrs_attrs__ = attrs.fields(Transfer)

    @property
    def token(self) -> str:
        raise RuntimeError("not now")


class BrokenZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError("no zone today")

    dst = tzname = utcoffset  # type: ignore[assignment]  # never asked for


def offsets() -> st.SearchStrategy[timezone]:
    return st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=offsets())
decimals = st.decimals() | st.sampled_from([Decimal("-0"), Decimal("1E+400"), Decimal("sNaN"), Decimal("NaN12")])
leaves = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**300), 2**300) | st.floats() | st.text()
    | st.binary() | decimals | moments | st.uuids()
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def fingerprint(value: object) -> object:
    """Equal for two values only if they are the same in type and content, NaN and the sign of zero included."""
    if isinstance(value, (list, tuple)):
        return (type(value), [fingerprint(part) for part in value])
    if isinstance(value, dict):
        return (dict, [(key, fingerprint(part)) for key, part in value.items()])
    if isinstance(value, datetime):
        return (datetime, value.isoformat())
    return (type(value), repr(value))


def nested(depth: int, wrap: Any) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = wrap(value)
    return value


@given(values)
def test_a_value_survives_the_round_trip_exactly(value: object) -> None:
    assert fingerprint(unpack_value(pack_value(value))) == fingerprint(value)


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 2**256 - 1, -(2**4096)])
def test_integers_of_any_size_survive(number: int) -> None:
    assert unpack_value(pack_value([number])) == [number]


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (None, "c0"),
        ([["ct2"], {}], "92 91 a3637432 80"),
        ({"a": True, "b": 1.5}, "82 a161 c3 a162 cb3ff8000000000000"),
        (b"\x00\xff", "c402 00ff"),
        (2**64, "c709 01 010000000000000000"),
        (-(2**63) - 1, "c709 01 ff7fffffffffffffff"),
        (Decimal("1.50"), "d6 02 312e3530"),
        (NOON, "d8 03 00e2d2971cb31005 000000049c2c0600"),
        (AN_ID, "d8 04 12345678123456781234567812345678"),
        ((), "91 c70005"),
        ((1, [2]), "93 c70005 01 91 02"),
    ],
)
def test_the_bytes_of_a_value_do_not_change(value: object, packed: str) -> None:
    assert pack_value(value).hex() == packed.replace(" ", "")
    assert unpack_value(bytes.fromhex(packed)) == value


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (Level.HIGH, 3),
        (Name("x"), "x"),
        ({Name("x"): Name("y")}, {"x": "y"}),
        (Pair(1, (2,)), (1, (2,))),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (OrderedDict(a=1), {"a": 1}),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (Transfer("0xa", 2**80, ("t",)), {"token": "0xa", "value": 2**80, "tags": ("t",)}),
        (Point(1, Decimal("2.0")), {"x": 1, "y": Decimal("2.0")}),
        ([Transfer("0xa", 1)], [{"token": "0xa", "value": 1, "tags": ()}]),
    ],
)
def test_instances_of_other_classes_arrive_as_what_they_are_made_of(sent: object, arrives: object) -> None:
    assert fingerprint(unpack_value(pack_value(sent))) == fingerprint(arrives)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0, 1, 2, {"lock": threading.Lock()}], r"^value\[3\]\['lock'\]: a _thread.lock cannot be sent$"),
        (object(), r"^value: an object cannot be sent$"),
        ({"a": {1, 2}}, r"^value\['a'\]: a set cannot be sent; send a sorted list$"),
        ((x for x in "ab"), r"^value: a generator cannot be sent; send a list of what it yields$"),
        (Colour.RED, r"Colour cannot be sent; send its value$"),
        ([date(2024, 1, 1)], r"^value\[0\]: a datetime.date cannot be sent"),
        ((datetime(2024, 1, 1),), r"^value\[0\]: a datetime without a time zone cannot be sent"),
        ([{"a": 1, 2: 3}], r"^value\[0\]: the key 2 is an int; keys must be str$"),
        ({b"a": 1}, r"^value: the key b'a' is a bytes; keys must be str$"),
        ({"ok": "\ud800"}, r"^value\['ok'\]: a str with a lone surrogate"),
        ({"\ud800": 1}, r"^value: the key '\\ud800' has a lone surrogate"),
        ([msgpack.ExtType(5, b"")], r"^value\[0\]: a msgpack.ext.ExtType cannot be sent"),
        ({"t": msgpack.Timestamp(1)}, r"^value\['t'\]: a msgpack.ext.Timestamp cannot be sent"),
        ([Transfer("a", 1, (object(),))], r"^value\[0\]\['tags'\]\[0\]: an object cannot be sent"),  # type: ignore[arg-type]
        ([Transfer], r"^value\[0\]: a type cannot be sent"),
        ([Unset()], r"^value\[0\]: reading .*Unset raised AttributeError"),
        ([Sly()], r"^value\[0\]: reading .*Sly raised RuntimeError: not now"),
        ([datetime(2024, 1, 1, tzinfo=BrokenZone())], r"^value\[0\]: reading a datetime.datetime raised RuntimeError"),
        ({"k" * 100: 1, "l": object()}, r"^value\['l'\]"),
        ({"k" * 100: object()}, r"^value\['k{58}…\]: an object"),
    ],
)
def test_a_value_that_cannot_cross_is_refused_with_its_type_and_path(value: object, message: str) -> None:
    with pytest.raises(UnserializableValue, match=message):
        pack_value(value)
    with pytest.raises(UnserializableValue, match=message):
        to_json(value)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: defaultdict(int, k=v)])
def test_nesting_is_bounded_and_what_packs_unpacks(wrap: Any) -> None:
    deepest = nested(MAX_DEPTH, wrap)
    assert pack_value(unpack_value(pack_value(deepest))) == pack_value(deepest)
    assert json.loads(to_json(deepest)) is not None
    for too_deep in (MAX_DEPTH + 1, 1_500, 5_000):
        for refuse in (pack_value, to_json):
            with pytest.raises(UnserializableValue, match="nested too deeply"):
                refuse(nested(too_deep, wrap))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = [1]
    loop += [loop, loop]
    for refuse in (pack_value, to_json):
        with pytest.raises(UnserializableValue, match="contains itself"):
            refuse({"loop": loop})


@pytest.mark.parametrize("refuse", [pack_value, to_json])
def test_a_long_path_is_told_by_its_beginning_and_its_end(refuse: Any) -> None:
    keyed = {"first": nested(600, lambda value: [value])}
    with pytest.raises(UnserializableValue) as caught:
        refuse(keyed)
    steps = "['first'][0][0][0][0][0]…[0][0][0][0][0][0]"
    assert str(caught.value) == f"value{steps}: nested too deeply (more than {MAX_DEPTH} levels) or contains itself"


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Mute:
    __attrs_attrs__ = attrs.fields(Transfer)

    @property
    def token(self) -> str:
        raise SaysNothing


class NamelessKey(int):
    def __repr__(self) -> str:
        raise SystemExit(4)


@pytest.mark.parametrize("refuse", [pack_value, to_json])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([Mute()], r"Mute raised SaysNothing: \(its text could not be had: SystemExit\)$"),
        ({NamelessKey(1): 1}, r"^value: the key 1 is a .*NamelessKey; keys must be str$"),
        ({10**5_000: 1}, r"^value: the key an integer of 16610 bits is an int; keys must be str$"),
    ],
)
def test_what_a_value_says_of_itself_does_not_hide_what_is_wrong_with_it(
    refuse: Any, value: object, message: str
) -> None:
    with pytest.raises(UnserializableValue, match=message):
        refuse(value)


def test_packing_works_after_a_refusal_and_within_a_hook() -> None:
    @attrs.define
    class Packs:
        field: int = 1

        def __getattribute__(self, name: str) -> Any:
            return pack_value((name, 2**70))

    with pytest.raises(UnserializableValue):
        pack_value(object())
    assert unpack_value(pack_value([Packs(), 1])) == [{"field": pack_value(("field", 2**70))}, 1]


@given(st.lists(values, max_size=20))
def test_packed_values_are_joined_into_a_list_without_being_opened(parts: list[object]) -> None:
    assert fingerprint(unpack_value(pack_list([pack_value(part) for part in parts]))) == fingerprint(parts)


def test_long_lists_are_joined() -> None:
    assert unpack_value(pack_list([pack_value(n) for n in range(70_000)])) == list(range(70_000))


@given(st.binary(max_size=100))
def test_unpacking_arbitrary_bytes_raises_nothing_but_protocol_error(packed: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        unpack_value(packed)


@given(values, st.data())
def test_unpacking_damaged_bytes_raises_nothing_but_protocol_error(value: object, data: st.DataObject) -> None:
    packed = bytearray(pack_value(value))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        unpack_value(bytes(packed))


@given(st.integers(0, 127), st.binary(max_size=40))
def test_unpacking_any_extension_raises_nothing_but_protocol_error(code: int, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        unpack_value(msgpack.packb([msgpack.ExtType(code, data)]))


@pytest.mark.parametrize(
    "packed",
    [
        "",  # nothing
        "c1",  # never used
        "c0c0",  # one value too many
        "92c0",  # one item too few
        "8101c0",  # a key that is no str
        "a1ff",  # not UTF-8
        "dd7fffffff",  # a list longer than the bytes
        "91" * 2_000 + "c0",  # too deep
        "dd00000fa0" * 1_000,  # lists of thousands, nested
        "c7010700",  # an unknown extension
        "d6026e6f7065",  # a Decimal that is none
        "c70102ff",  # a Decimal that is not ASCII
        "d5040000",  # a UUID of two bytes
        "d50300ff",  # a datetime of two bytes
        "d803" + "7f" * 16,  # a datetime beyond time
        "d803" + "00" * 16,  # a datetime before time
        "d803" + "0000000100000000" + "7fffffffffffffff",  # an offset beyond a day
        "d50500ff",  # a tuple's mark with content
        "c70005",  # the mark alone
        "9201c70005",  # the mark in second place
        "92c70005c70005",  # two marks
        "81a161c70005",  # the mark as a dict's value
        "c70cff" + "ff" * 12,  # a timestamp beyond time
        "c70cff" + "00000000" + "7fffffffffffffff",  # a timestamp beyond datetime
    ],
)
def test_malformed_bytes_are_a_protocol_error(packed: str) -> None:
    with pytest.raises(ProtocolError, match="no packed value"):
        unpack_value(bytes.fromhex(packed))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, (2.5, None)], "é": True}, '{"a":[1,[2.5,null]],"é":true}'),
        (b"\x00\xff", '"0x00ff"'),
        (bytearray(b""), '"0x"'),
        (Decimal("1.50"), '"1.50"'),
        (2**256, str(2**256)),
        (AN_ID, f'"{AN_ID}"'),
        (NOON, '"2024-02-29T12:00:00.000005+05:30"'),
        (datetime(2024, 1, 1, tzinfo=UTC), '"2024-01-01T00:00:00Z"'),
        (datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(seconds=3_599))), '"2024-01-01T00:00:01Z"'),
        (Transfer("0xa", 1), '{"token":"0xa","value":1,"tags":[]}'),
        (Level.HIGH, "3"),
        (Pair(1, Name("x")), '[1,"x"]'),
    ],
)
def test_json_of_a_value(value: object, text: str) -> None:
    assert to_json(value).decode() == text


def test_json_holds_integers_of_4300_digits_and_no_longer_ones() -> None:
    widest = 10**4_300 - 1
    assert json.loads(to_json({"n": [widest, -widest]})) == {"n": [widest, -widest]}
    for wider in (10**4_300, -(10**4_300), 1 << 4_000_000, WideName(10**5_000)):
        message = (
            rf"^value\['n'\]\[1\]: an integer of {abs(wider).bit_length()} bits cannot be written as JSON, "
            "which has 4300 digits at most; return it as text or bytes$"
        )
        with pytest.raises(UnserializableValue, match=message):
            to_json({"n": [0, wider]})
        assert unpack_value(pack_value(wider)) == wider


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan_and_no_infinity(number: float) -> None:
    with pytest.raises(
        UnserializableValue, match=rf"^value\['a'\]\[1\]: the float {number} cannot be written as JSON$"
    ):
        to_json({"a": [0.5, number]})
    assert fingerprint(unpack_value(pack_value(number))) == fingerprint(number)


def test_a_moment_that_has_no_utc_cannot_be_written_as_json() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=30)))
    with pytest.raises(UnserializableValue, match="OverflowError"):
        to_json([first])


def is_finite(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(is_finite, value))
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


@given(values.filter(is_finite))
def test_whatever_packs_and_is_finite_is_valid_json(value: object) -> None:
    json.loads(to_json(value))
