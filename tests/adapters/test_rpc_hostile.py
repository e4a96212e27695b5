"""Peers that mean harm: each ends only its own connection or call, in bounded work, and is logged once."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from hpack import hpack
from hpack.exceptions import HPACKDecodingError
from structlog.testing import capture_logs

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall, open_channel, wire
from blockx.rpc.http2 import MAX_CONTINUATIONS, MAX_ENCODER_TABLE_BYTES, MAX_SETTINGS, SETTINGS_COST
from blockx.rpc.limits import MIB
from blockx.rpc.link import STREAMS_LOST_AT_ONCE
from tests.adapters import rpc_frames as f
from tests.adapters.rpc_peers import (
    REQUEST_SLOT,
    RawClient,
    Sleeper,
    framed,
    message,
    request_headers,
    serve,
    worker_service,
)

GREETING = f.PREFACE + f.settings()
GOOD = message(pb.RequestTaskSlotRequest(task_id="t"))
EMPTY = framed(b"")
COUNT = 10_000
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 1, 3, 6
OPEN = f.request(1, "SubmitTask", EMPTY, is_last=False)
RESET = (8).to_bytes(4, "big")


def _ids(count: int = COUNT) -> range:
    return range(1, 2 * count, 2)


def _malformed(stream_id: int) -> bytes:
    return f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, stream_id, f.block(request_headers(te=None)))


FLOODS: dict[str, Callable[[], bytes]] = {
    "settings": lambda: f.settings((4, 70_000)) * COUNT,
    "pings": lambda: f.frame(f.PING, 0, 0, bytes(8)) * COUNT,
    "acknowledgements of pings": lambda: f.frame(f.PING, f.ACK, 0, bytes(8)) * COUNT,
    "empty data": lambda: OPEN + f.frame(f.DATA, 0, 1, b"") * COUNT,
    "padding": lambda: OPEN + f.frame(f.DATA, f.PADDED, 1, b"\7" + bytes(7)) * COUNT,
    "priorities": lambda: f.frame(f.PRIORITY, 0, 3, b"\0\0\0\1\x10") * COUNT,
    "window updates": lambda: f.frame(f.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * COUNT,
    "unknown frames": lambda: f.frame(99, 0, 1, b"") * COUNT,
    "farewells": lambda: f.frame(f.GOAWAY, 0, 0, bytes(8)) * COUNT,
    "resets of one call": lambda: OPEN + f.frame(f.RST_STREAM, 0, 1, RESET) * COUNT,
    "calls that are reset": lambda: b"".join(
        f.request(stream_id, "SubmitTask", EMPTY) + f.frame(f.RST_STREAM, 0, stream_id, RESET) for stream_id in _ids()
    ),
    "malformed calls": lambda: b"".join(map(_malformed, _ids())),
    "more calls than allowed": lambda: b"".join(f.request(stream_id, "SubmitTask", EMPTY) for stream_id in _ids()),
    "continuations": lambda: f.frame(f.HEADERS, 0, 1, b"") + f.frame(f.CONTINUATION, 0, 1, b"") * COUNT,
    "headers without end": lambda: f.frame(f.HEADERS, 0, 1, bytes(60_000)) + f.frame(f.CONTINUATION, 0, 1, bytes(6000)),
    "headers of 70 000 bytes": lambda: f.frame(
        f.HEADERS, f.END_HEADERS, 1, f.block(request_headers(large_1="a" * 35_000, large_2="b" * 35_000))
    ),
    "a header repeated 10 000 times": lambda: f.frame(
        f.HEADERS, f.END_HEADERS, 1, b"\x40\x01a\x7f\xa1\x0e" + b"b" * 2000 + b"\xbe" * COUNT
    ),
    "settings of 33 pairs": lambda: f.settings(*((99, number) for number in range(33))),
}


async def attack(address: str, data: bytes) -> bytes:
    """Send `data` to the server, then end; all that it answers until it closes the connection."""
    host, _, port = address.rpartition(":")
    received = bytearray()
    async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            with contextlib.suppress(trio.BrokenResourceError):  # closed in the face of the rest
                await stream.send_all(data)
                await stream.send_eof()

        nursery.start_soon(send)
        with contextlib.suppress(trio.BrokenResourceError):
            async for part in stream:
                received += part
    return bytes(received)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_ends_its_connection_and_no_other(flood: Callable[[], bytes], nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    server, address = await serve(nursery, Limits(max_concurrent_streams=100), SubmitTask=sleeper.unary)
    neighbour = await RawClient.connect(address)
    open_call = await neighbour.open(request_headers(), GOOD[:3], is_last=False)
    with capture_logs() as logs:
        received = await attack(address, GREETING + flood())
        assert await neighbour.echo("still here") == "still here"
    neighbour.h2.send_data(open_call, GOOD[3:], end_stream=True)
    await neighbour.flush()
    assert (await neighbour.answer(open_call)).headers["grpc-status"] == "0"
    assert f.goaway_code(received) == f.ENHANCE_YOUR_CALM
    events = [log["event"] for log in logs]
    assert events.count("connection ended") == 1
    assert len(events) < 30, "a flood of requests is no flood of log lines"
    await neighbour.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert not server._links


BROKEN: dict[str, tuple[bytes, int]] = {
    "no settings first": (f.PREFACE + f.request(1, data=GOOD), PROTOCOL_ERROR),
    "an acknowledgement first": (f.PREFACE + f.frame(f.SETTINGS, f.ACK, 0, b""), PROTOCOL_ERROR),
    "data on stream 0": (GREETING + f.frame(f.DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    "headers on stream 0": (GREETING + f.frame(f.HEADERS, 5, 0, b"\x82"), PROTOCOL_ERROR),
    "settings on a stream": (GREETING + f.frame(f.SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
    "a reset of nothing": (GREETING + f.frame(f.RST_STREAM, 0, 1, RESET), PROTOCOL_ERROR),
    "headers twice": (GREETING + OPEN + f.request(1, is_last=False), PROTOCOL_ERROR),
    "an id lower than the last": (GREETING + f.request(5) + f.request(3), PROTOCOL_ERROR),
    "an id after the highest": (GREETING + f.request(2**31 - 1) + f.request(1), PROTOCOL_ERROR),
    "another frame within headers": (GREETING + f.frame(f.HEADERS, 0, 1, b"\x82") + f.settings(), PROTOCOL_ERROR),
    "padding longer than the frame": (GREETING + OPEN + f.frame(f.DATA, f.PADDED, 1, b"\xff"), PROTOCOL_ERROR),
    "a connection window too large": (
        GREETING + f.frame(f.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
        FLOW_CONTROL_ERROR,
    ),
    "a window that grows too large": (
        GREETING + OPEN + f.frame(f.WINDOW_UPDATE, 0, 1, b"\0\1\0\0") + f.settings((4, 2**31 - 1)),
        FLOW_CONTROL_ERROR,
    ),
    "a number of 60 000 octets": (GREETING + f.frame(f.HEADERS, 5, 1, b"\xff" * 60_000), PROTOCOL_ERROR),
    "a number above 32 bits": (GREETING + f.frame(f.HEADERS, 5, 1, b"\xff" + b"\x80" * 5 + b"\1"), PROTOCOL_ERROR),
    "a number cut off": (GREETING + f.frame(f.HEADERS, 5, 1, b"\xff\x80"), PROTOCOL_ERROR),
    "a header table above the limit": (GREETING + f.frame(f.HEADERS, 5, 1, b"\x3f\xe2\x1f"), PROTOCOL_ERROR),
    "a content length that is none": (
        GREETING + f.frame(f.HEADERS, 5, 1, f.block(request_headers(content_length="x" * 9000))),
        PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=BROKEN)
async def test_frames_out_of_order_end_their_connection_with_the_right_error(
    data: bytes, code: int, nursery: trio.Nursery
) -> None:
    _, address = await serve(nursery, SubmitTask=Sleeper().unary)
    with capture_logs() as logs:
        received = await attack(address, data)
    assert f.goaway_code(received) == code
    assert [log["event"] for log in logs] == ["connection ended"]
    assert len(logs[0]["reason"]) <= wire.MAX_REASON


async def test_the_highest_stream_id_is_served() -> None:
    received = await _talk(f.request(2**31 - 1, data=GOOD))
    assert f.goaway_code(received) is None
    assert (2**31 - 1).to_bytes(4, "big") in received


@pytest.mark.parametrize("cut", range(1, len(GREETING + OPEN), 7))
async def test_a_connection_that_ends_in_the_middle_of_a_frame_is_just_over(cut: int, nursery: trio.Nursery) -> None:
    server, address = await serve(nursery, SubmitTask=Sleeper().unary)
    with capture_logs() as logs:
        await attack(address, (GREETING + OPEN)[:cut])
        await trio.testing.wait_all_tasks_blocked()
    assert logs == []
    assert not server._links


async def test_a_message_of_40_mb_is_refused_by_its_prefix(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery)
    client = await RawClient.connect(address)
    prefix = bytes([0]) + (40 * MIB).to_bytes(4, "big")
    stream_id = await client.open(request_headers(), prefix + bytes(10_000), is_last=False)
    answer = await client.answer(stream_id)
    assert answer.headers["grpc-status"] == "8"
    assert await client.echo("still here") == "still here"
    (link,) = server._links
    assert link._wire._held_bytes == 0
    await client.stream.aclose()


# -- where the limits are, with a clock that stands still


Talk = Callable[..., Awaitable[bytes]]


@pytest.fixture
def talk(mock_clock: trio.testing.MockClock) -> Talk:
    """Sends bytes to a server with these limits; what it answers until it has nothing more to say."""
    return _talk


async def _talk(data: bytes, **limits: Any) -> bytes:
    sleeper = Sleeper()
    server = RpcServer([worker_service(SubmitTask=sleeper.unary)], limits=Limits(**limits))
    near, far = trio.testing.memory_stream_pair()
    received = bytearray()

    async def receive() -> None:
        async for part in near:
            received.extend(part)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_connection, far, "memory")
        nursery.start_soon(receive)
        await near.send_all(GREETING + data)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return bytes(received)


@pytest.mark.parametrize(("count", "code"), [(79, None), (80, None), (81, f.ENHANCE_YOUR_CALM)])
async def test_the_limit_on_idle_frames_is_exact(count: int, code: int | None, talk: Talk) -> None:
    assert SETTINGS_COST == 20  # the greeting; the rest of 100 are PINGs
    received = await talk(f.frame(f.PING, 0, 0, bytes(8)) * count, max_idle_frames=100)
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("count", "code"), [(4, None), (5, None), (6, f.ENHANCE_YOUR_CALM)])
@pytest.mark.parametrize("kind", ["reset", "malformed"])
async def test_the_limit_on_dropped_calls_is_exact(count: int, code: int | None, kind: str, talk: Talk) -> None:
    reset = [f.request(i, "SubmitTask", EMPTY) + f.frame(f.RST_STREAM, 0, i, RESET) for i in _ids(count)]
    data = b"".join(reset if kind == "reset" else map(_malformed, _ids(count)))
    received = await talk(data, max_dropped_calls=5)
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("count", "code"), [(-1, None), (0, None), (1, f.ENHANCE_YOUR_CALM)])
async def test_the_limit_on_continuations_is_exact(count: int, code: int | None, talk: Talk) -> None:
    encoded = f.block(request_headers("SubmitTask"))
    received = await talk(f.split_block(1, encoded, [0] * (MAX_CONTINUATIONS + count)))
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("count", "code"), [(-1, None), (0, None), (1, f.ENHANCE_YOUR_CALM)])
async def test_the_limit_on_settings_in_a_frame_is_exact(count: int, code: int | None, talk: Talk) -> None:
    received = await talk(f.settings(*((3, number) for number in range(MAX_SETTINGS + count))))
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("size", "code"), [(65_535, None), (65_536, None), (65_537, FRAME_SIZE_ERROR)])
async def test_the_limit_on_frames_is_exact(size: int, code: int | None, talk: Talk) -> None:
    received = await talk(OPEN + f.frame(f.DATA, 0, 1, framed(bytes(size - 5))))
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("size", "code"), [(8191, None), (8192, None), (8193, f.ENHANCE_YOUR_CALM)])
async def test_the_limit_on_encoded_headers_is_exact(size: int, code: int | None, talk: Talk) -> None:
    encoded = f.block(request_headers("SubmitTask"))
    padded = b"\x20" * (size - len(encoded)) + encoded  # changes of the table's size are no headers
    received = await talk(f.frame(f.HEADERS, f.END_HEADERS, 1, padded), max_header_bytes=2048)
    assert f.goaway_code(received) == code


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_the_limit_on_connections_is_exact(number: int, nursery: trio.Nursery) -> None:
    server, address = await serve(nursery, Limits(max_connections=2))
    clients = [await RawClient.connect(address) for _ in range(number - 1)]
    for client in clients:
        await client.echo("first")
    last = await RawClient.connect(address)
    if number <= 2:
        assert await last.echo("welcome") == "welcome"
    else:
        await last.until_closed()
        assert last.h2.remote_settings.initial_window_size == 65_535, "closed without a word"
    assert len(server._links) == min(number, 2)
    for client in (*clients, last):
        await client.stream.aclose()


def _headers_of(size: int) -> list[tuple[str, str]]:
    headers = request_headers("SubmitTask", large="")
    used = sum(len(name) + len(value) + 32 for name, value in headers)
    return request_headers("SubmitTask", large="0" * (size - used))


@pytest.mark.parametrize(("size", "http_status"), [(2047, None), (2048, None), (2049, b"431")])
async def test_the_limit_on_headers_is_exact(size: int, http_status: bytes | None, nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, Limits(max_header_bytes=2048), SubmitTask=sleeper.unary)
    client = await RawClient.connect(address)
    stream_id = await client.open(_headers_of(size), EMPTY)
    if http_status is None:
        await sleeper.begun.wait()
    else:
        assert (await client.answer(stream_id)).headers[":status"] == "431"
    await client.stream.aclose()


@pytest.mark.parametrize(("size", "code"), [(8191, None), (8192, None), (8193, f.ENHANCE_YOUR_CALM)])
async def test_headers_far_above_the_limit_end_the_connection(size: int, code: int | None, talk: Talk) -> None:
    encoded = f.block(_headers_of(size))
    received = await talk(f.frame(f.HEADERS, f.END_HEADERS, 1, encoded), max_header_bytes=2048)
    assert f.goaway_code(received) == code


@pytest.mark.parametrize(("count", "refused"), [(2, 0), (3, 0), (4, 1)])
async def test_the_limit_on_calls_is_exact(count: int, refused: int, talk: Talk) -> None:
    received = await talk(b"".join(f.request(i, "SubmitTask", EMPTY) for i in _ids(count)), max_concurrent_streams=3)
    refusal = f.frame(f.RST_STREAM, 0, 7, (7).to_bytes(4, "big"))
    assert received.count(refusal) == refused
    assert f.goaway_code(received) is None


@pytest.mark.parametrize(("size", "is_refused"), [(1499, False), (1500, False), (1501, True)])
async def test_the_limit_on_unread_bytes_is_exact(size: int, is_refused: bool, talk: Talk) -> None:
    half = framed(bytes(1000))[:900]
    data = b"".join(
        f.request(i, "SubmitTask", part, is_last=False) for i, part in ((1, half), (3, half[: size - len(half)]))
    )
    received = await talk(data, max_message_bytes=1000, max_buffered_bytes=1500)
    assert (b"wait unread" in received) is is_refused or (
        f.block([("grpc-status", "14")])[1:] in received
    ) is is_refused


async def test_unread_messages_count_more_than_their_bytes() -> None:
    limits = Limits(max_message_bytes=1000, max_buffered_bytes=128 * 10)
    ours = wire.Wire(client_side=False, limits=limits)
    ours.initiate_connection()
    ours.receive_data(GREETING + f.request(1, "SubmitTask", EMPTY * 10, is_last=False))
    (failed,) = ours.receive_data(f.frame(f.DATA, 0, 1, EMPTY))
    assert isinstance(failed, wire.StreamFailed)
    for _ in range(11):
        ours.consumed(1, len(EMPTY))
    assert ours._held_bytes == 0


async def test_a_stream_window_too_large_ends_only_its_stream() -> None:
    received = await _talk(OPEN + f.frame(f.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") + f.request(3, data=GOOD))
    assert f.frame(f.RST_STREAM, 0, 1, FLOW_CONTROL_ERROR.to_bytes(4, "big")) in received
    assert f.goaway_code(received) is None
    assert message(pb.RequestTaskSlotResponse(slot_id="t")) in received


@pytest.mark.parametrize(("size", "sent"), [(1023, 17), (1024, 16), (1025, 16)])
async def test_the_limit_on_queued_bytes_is_exact(size: int, sent: int, nursery: trio.Nursery) -> None:
    count = 0
    update = pb.TaskUpdate(error="x" * (size - 9 - 5 - 3))  # as a frame it has `size` bytes
    near, far = trio.testing.memory_stream_pair()

    async def flood(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        nonlocal count
        await send(update)  # with the headers
        await trio.testing.wait_all_tasks_blocked()
        far.send_stream.send_all_hook = trio.sleep_forever
        await send(update)  # which keeps the writer busy for ever
        await trio.testing.wait_all_tasks_blocked()
        while True:
            await send(update)
            count += 1

    server = RpcServer([worker_service(WatchTasks=flood)], limits=Limits(send_buffer_bytes=16_384))
    nursery.start_soon(server.serve_connection, far, "deaf")
    await near.send_all(GREETING + f.request(1, "WatchTasks", EMPTY))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert count == sent
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("prefix_bits", range(1, 9))
@pytest.mark.parametrize("number", [0, 1, 30, 31, 127, 128, 254, 255, 256, 16_384, 2**28, 2**32 - 1])
def test_numbers_of_headers_are_read_as_written(number: int, prefix_bits: int) -> None:
    written = bytes(hpack.encode_integer(number, prefix_bits))
    assert hpack.decode_integer(memoryview(written + b"more"), prefix_bits) == (number, len(written))


@pytest.mark.parametrize("written", [b"", b"\xff", b"\xff\x80\x80", b"\xff" + b"\x80" * 5 + b"\1", b"\xff" * 60_000])
def test_numbers_of_headers_that_do_not_end_in_time_are_refused(written: bytes) -> None:
    with pytest.raises(HPACKDecodingError):
        hpack.decode_integer(memoryview(written), 7)


@pytest.mark.parametrize(("kind", "at_once"), [("pings", 32), ("calls that are reset", 8)])
def test_a_flood_is_handled_in_small_portions(kind: str, at_once: int) -> None:
    ours = wire.Wire(client_side=False, limits=Limits())
    ours.initiate_connection()
    ours.data_to_send()
    portions = []
    data = GREETING + FLOODS[kind]()
    while data or ours.is_behind:
        resets = [event for event in ours.receive_data(data) if isinstance(event, wire.StreamReset)]
        portions.append(len(resets) + ours.data_to_send().count(b"\0\0\x08\6\1"))
        data = b""
    assert sum(portions) == COUNT
    assert max(portions) <= at_once


async def test_handlers_of_a_lost_connection_are_ended_in_small_portions(nursery: trio.Nursery) -> None:
    cancelled, most = 0, 0

    async def endless(request: Any, call: ServerCall) -> Any:
        nonlocal cancelled
        try:
            await trio.sleep_forever()
        finally:
            cancelled += 1

    async def other() -> None:
        nonlocal most
        while cancelled < 200:
            before = cancelled
            await trio.lowlevel.checkpoint()
            most = max(most, cancelled - before)

    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(SubmitTask=endless)]).serve_connection, far, "lost")
    await near.send_all(GREETING + b"".join(f.request(i, "SubmitTask", EMPTY) for i in _ids(200)))
    await trio.testing.wait_all_tasks_blocked()
    async with trio.open_nursery() as others:
        others.start_soon(other)
        await near.aclose()
    assert 0 < most <= 2 * STREAMS_LOST_AT_ONCE


async def test_a_server_that_opens_a_stream_ends_its_connection(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    streams = [near]

    async def connect() -> trio.abc.HalfCloseableStream:
        if not streams:
            raise OSError("there is only one connection")
        return streams.pop()

    channel = Channel("test:1", connect=connect)
    nursery.start_soon(channel.run)
    await far.send_all(f.settings() + f.request(2, data=GOOD))
    with capture_logs() as logs, pytest.raises(errors.ConnectionFailed, match="only one connection"):
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
    (log,) = logs
    assert "a server opens no streams" in log["reason"]
    channel.close()
    await far.aclose()


async def test_a_connection_whose_ids_are_used_up_makes_room_for_another(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery)
    async with open_channel(address) as channel:
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
        first = channel._link
        assert first is not None
        first._wire._h2.highest_outbound_stream_id = 2**31 - 3
        for text in ("last", "first"):
            answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id=text))
            assert answer.slot_id == text
        assert channel._link is not first
        while len(server._links) > 1:
            await trio.testing.wait_all_tasks_blocked(0.01)


def test_what_a_peer_sets_is_kept_within_bounds() -> None:
    ours = wire.Wire(client_side=False, limits=Limits())
    ours.initiate_connection()
    ours.receive_data(f.PREFACE)
    for first in range(100, 10_000, 32):
        ours.receive_data(f.settings(*((code, 1) for code in range(first, first + 32))))
    for size in (4096, 0, 100, 2**32 - 1, 50, 2**32 - 1) * 5:
        ours.receive_data(f.settings((1, size)))
    http2 = ours._h2
    assert len(http2.remote_settings) < 10
    assert http2.encoder.header_table_size == MAX_ENCODER_TABLE_BYTES
    assert http2.encoder.table_size_changes == [0, 4096]


@pytest.mark.parametrize("sizes", [(100, 100), (100, 4096, 100), (0,)])
def test_a_changed_header_table_is_announced(sizes: tuple[int, ...]) -> None:
    ours = wire.Wire(client_side=False, limits=Limits())
    ours.initiate_connection()
    client = RawClient(trio.testing.memory_stream_pair()[0]).h2
    client.initiate_connection()
    ours.receive_data(client.data_to_send())
    for size in sizes:
        ours.receive_data(f.settings((1, size)))
    client.send_headers(1, request_headers(), end_stream=True)
    ours.receive_data(client.data_to_send())
    client.decoder.max_allowed_table_size = sizes[-1]  # from here on the client must be told, RFC 7541, 4.2
    ours.send_response_headers(1)
    client.receive_data(ours.data_to_send())
    assert client.decoder.header_table_size == sizes[-1]
