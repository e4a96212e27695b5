"""Who does not read is waited for, in bounded memory and bounded time; who cannot send on is woken when it may."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from h2.settings import SettingCodes

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall
from blockx.rpc.messages import decompress
from blockx.rpc.status import StatusError
from tests.adapters.rpc_peers import SUBMIT, RawClient, framed, request_headers, serve, worker_service

EMPTY = framed(b"")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\6\0\0\0\0\0" + b"12345678"


async def test_a_slow_reader_stops_the_handler_and_not_the_server(nursery: trio.Nursery) -> None:
    sent = 0

    async def flood(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        nonlocal sent
        while True:
            await send(pb.TaskUpdate(error="x" * 10_000))
            sent += 1

    _, address = await serve(nursery, WatchTasks=flood)
    slow, neighbour = await RawClient.connect(address), await RawClient.connect(address)
    slow.h2.increment_flow_control_window(2**30)
    stream_id = await slow.open(request_headers("WatchTasks"), EMPTY, is_last=False)
    slow.h2.increment_flow_control_window(2**30, stream_id)
    slow.h2.end_stream(stream_id)
    await slow.flush()
    before = -1
    while sent != before:  # until a whole round trip of another client moves it no further
        before = sent
        await neighbour.echo("ping")
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert 0 < sent * 10_000 < 20_000_000  # what the kernel takes, and the send buffer
    assert await neighbour.echo("still here") == "still here"
    await slow.stream.aclose()
    await neighbour.stream.aclose()


@pytest.mark.parametrize("how", ["window update", "settings"])
async def test_a_closed_window_stops_only_its_own_stream_until_it_opens(how: str, nursery: trio.Nursery) -> None:
    async def large(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        return pb.SubmitTaskResponse.FromString(_unknown_field(200_000))

    _, address = await serve(nursery, SubmitTask=large)
    client = await RawClient.connect(address)
    client.h2.increment_flow_control_window(1_000_000)
    client.gives_windows_back = False
    stream_id = await client.open(request_headers("SubmitTask"), EMPTY)
    while len(client.answers[stream_id].data) < 65_535:
        assert await client.receive()
    assert await client.echo("still here") == "still here"
    if how == "window update":
        client.h2.increment_flow_control_window(1_000_000, stream_id)
    else:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000})
    await client.flush()
    answer = await client.answer(stream_id)
    assert answer.data[5:] == _unknown_field(200_000)
    assert answer.headers["grpc-status"] == "0"
    await client.stream.aclose()


def _unknown_field(size: int) -> bytes:
    """A protobuf field that no message of ours has, of 2**14 to 2**21 bytes; it survives being parsed and sent on."""
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    return b"\x9a\x06" + length + bytes(size)


class DeafPeer(trio.abc.HalfCloseableStream):
    """A connection whose far end sends the same bytes again and again, and reads nothing."""

    def __init__(self, beginning: bytes, again: bytes, pause_s: float) -> None:
        self.sent_bytes = 0
        self._next = beginning
        self._again = again
        self._pause_s = pause_s

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep(self._pause_s)
        data, self._next = self._next, self._again
        self.sent_bytes += len(data)
        return data

    async def send_all(self, data: Any) -> None:
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_peer_that_sends_but_never_reads_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    peer = DeafPeer(PREFACE + SETTINGS, PING, pause_s=5)
    began = trio.current_time()
    await RpcServer([worker_service()]).serve_connection(peer, "deaf")
    assert 30 + 10 <= trio.current_time() - began <= 2 * (30 + 10)


async def test_a_flood_of_pings_that_nobody_hears_answered_takes_bounded_memory(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    peer = DeafPeer(PREFACE + SETTINGS, PING * 1000, pause_s=0)
    patient = Limits(max_idle_frames=1_000_000)
    nursery.start_soon(RpcServer([worker_service()], limits=patient).serve_connection, peer, "deaf")
    await trio.sleep(20)
    assert 250_000 < peer.sent_bytes < 1_500_000


async def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(StatusError):
        decompress(bomb, 1_000_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000


async def test_a_sender_that_waits_for_a_window_is_woken_by_an_early_answer(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()

    async def connect() -> trio.abc.HalfCloseableStream:
        return near

    async def answer_before_the_request_is_over() -> None:
        server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        server.initiate_connection()
        received = 0
        while received < 65_535:
            await far.send_all(server.data_to_send())
            for event in server.receive_data(bytes(await far.receive_some())):
                received += len(event.data) if isinstance(event, h2.events.DataReceived) else 0
        await trio.testing.wait_all_tasks_blocked()
        headers = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")]
        server.send_headers(1, headers, end_stream=True)
        await far.send_all(server.data_to_send())

    channel = Channel("test:1", connect=connect)
    nursery.start_soon(channel.run)
    nursery.start_soon(answer_before_the_request_is_over)
    request = pb.SubmitTaskRequest(slot_id="x" * 200_000)
    with pytest.raises(errors.NotFound):
        await channel.unary(SUBMIT, request)
    await far.aclose()
