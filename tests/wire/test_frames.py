from __future__ import annotations

import contextlib
import typing

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.errors import ProtocolError
from blockx.wire import messages as m
from blockx.wire.frames import MAX_FRAME_BYTES, MAX_VALUE_BYTES, FrameReader, encode
from tests.wire.examples import EXAMPLES


def framed(*fields: object) -> bytes:
    body: bytes = msgpack.packb(list(fields))
    return len(body).to_bytes(4, "big") + body


def test_every_kind_of_message_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(typing.get_args(m.Message))


def test_kinds_are_numbered_once() -> None:
    kinds = [kind.KIND for kind in typing.get_args(m.Message)]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_round_trip(message: m.Message) -> None:
    assert FrameReader().feed(encode(message)) == [message]


def test_frames_are_a_length_and_a_msgpack_array() -> None:
    assert encode(m.CancelCall(300, 2)) == bytes.fromhex("00000006") + bytes.fromhex("930dcd012c02")
    assert encode(m.CallLog(1, "info", "hé")) == bytes.fromhex("0000000c940e01a4696e666fa368c3a9")
    assert encode(m.CallsCompleted([1], [1], [9], [b"\xc0"])) == bytes.fromhex("0000000c9509910191019109 91c401c0")


@given(st.lists(st.sampled_from(EXAMPLES), max_size=8), st.data())
def test_messages_arrive_whole_and_in_order_however_the_bytes_are_cut(
    sent: list[m.Message], data: st.DataObject
) -> None:
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()
    received = [
        message
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for message in reader.feed(stream[start:end])
    ]
    reader.close()
    assert received == sent


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        FrameReader().feed(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_frame_raises_nothing_but_protocol_error(message: m.Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        FrameReader().feed(bytes(frame))


@given(st.integers(0, 20), st.lists(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_wrong_fields_raise_nothing_but_protocol_error(kind: int, fields: list[object]) -> None:
    try:
        frame = framed(kind, *fields)
    except OverflowError:
        return
    with contextlib.suppress(ProtocolError):
        FrameReader().feed(frame)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\x00\x00\x00\x00", "no known kind"),
        (framed(99, 1), "no known kind"),
        (framed("Ping", 1), "no known kind"),
        (framed(16), "Ping frame is malformed"),
        (framed(16, 1, 2), "Ping frame is malformed"),
        (framed(16, "1"), "Ping frame is malformed"),
        (framed(9, [1, 2], [1], [1, 1], [b"", b""]), "one length"),
        (framed(12, [1], [1, 2], [0], [b""], [None]), "one length"),
        (framed(12, [1], [1], [0], [None], [None]), "either a value or an error"),
        (framed(12, [1], [1], [0], [b""], [["ReadError", "lost", True]]), "either a value or an error"),
        (framed(12, [1], [1], [0], [None], [["ReadError", "lost"]]), r"\[type, message, retryable\]"),
        (framed(10, 1, 1, ["EXCEPTION"], False, 0), r"\[code, type, message, traceback\]"),
        (framed(12, [1], [1], [0], [None], [None])[:-1] + b"\xc1", "malformed"),
        (b"\x00\x00\x0f\xa5\x96\x0c\x90\x90\x90\x90\x91" + b"\x91" * 4_000, "malformed"),
        (b"\xff\xff\xff\xff", "at most"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(frame: bytes, reason: str) -> None:
    length = int.from_bytes(frame[:4], "big")
    whole = frame.ljust(4 + length, b"\x91") if length < 10_000 else frame
    with pytest.raises(ProtocolError, match=reason):
        FrameReader().feed(whole)


def test_an_end_in_the_middle_of_a_frame_is_an_error() -> None:
    reader = FrameReader()
    assert reader.feed(encode(m.Ping(1))[:-1]) == []
    with pytest.raises(ProtocolError, match="middle of a frame"):
        reader.close()


def test_an_end_between_frames_is_none() -> None:
    reader = FrameReader()
    reader.feed(encode(m.Ping(1)))
    reader.close()


def test_a_frame_that_is_too_long_is_neither_sent_nor_accepted() -> None:
    message = m.CallLog(1, "info", "x" * 100)
    with pytest.raises(ProtocolError, match="a CallLog of 110 bytes does not fit a frame of 50"):
        encode(message, 50)
    with pytest.raises(ProtocolError, match="a frame of 110 bytes is announced; at most 50"):
        FrameReader(50).feed(encode(message))


def test_a_value_of_the_greatest_size_fits_a_frame() -> None:
    frame = encode(m.CallsCompleted([2**62], [3], [2**40], [bytes(MAX_VALUE_BYTES)]))
    assert len(frame) < MAX_FRAME_BYTES
    (message,) = FrameReader().feed(frame)
    assert isinstance(message, m.CallsCompleted)
    assert len(message.values[0]) == MAX_VALUE_BYTES
