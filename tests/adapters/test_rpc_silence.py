"""Peers that vanish, fall silent or stop taking anything, and the PINGs by which that is noticed. Time is simulated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall
from tests.adapters import rpc_frames as f
from tests.adapters.rpc_peers import (
    REQUEST_SLOT,
    WATCH,
    RawClient,
    Sleeper,
    framed,
    message,
    request_headers,
    worker_service,
)

EMPTY = framed(b"")
GREETING = f.PREFACE + f.settings()
PING = f.frame(f.PING, 0, 0, b"12345678")


class BlackHole:
    """A network between a client and a server that one day swallows everything, both ways, and says nothing."""

    def __init__(self, server: RpcServer, nursery: trio.Nursery) -> None:
        self._server = server
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []
        self.is_served = trio.Event()

    async def connect(self) -> trio.abc.HalfCloseableStream:
        client_end, near = trio.testing.memory_stream_pair()
        far, server_end = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._carry, near, far)
        self._nursery.start_soon(self._carry, far, near)
        self._nursery.start_soon(self._serve, server_end)
        return client_end

    def swallow(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    async def _carry(self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> None:
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            async for data in source:
                await sink.send_all(data)

    async def _serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        await self._server.serve_connection(stream, "hole")
        self.is_served.set()


async def test_a_peer_that_vanishes_is_noticed_by_both_sides_within_40_s(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sleeper = Sleeper()
    hole = BlackHole(RpcServer([worker_service(WatchTasks=sleeper.stream)]), nursery)
    channel = Channel("test:1", connect=hole.connect)
    nursery.start_soon(channel.run)
    async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
        await anext(updates)
        await trio.sleep(1000)
        began = trio.current_time()
        hole.swallow()
        with pytest.raises(errors.ConnectionFailed, match="fallen silent"):
            await anext(updates)
    assert trio.current_time() - began <= 30 + 10
    await sleeper.cancelled.wait()
    await hole.is_served.wait()
    assert trio.current_time() - began <= 30 + 10 + 1
    channel.close()


@pytest.mark.parametrize(("delay_s", "is_kept"), [(9.9, True), (10.1, False)])
async def test_the_time_to_answer_a_ping_is_exact(
    delay_s: float, is_kept: bool, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sleeper = Sleeper()
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(SubmitTask=sleeper.unary)]).serve_connection, far, "slow")
    await near.send_all(GREETING + f.request(1, "SubmitTask", EMPTY))
    await sleeper.begun.wait()
    await trio.sleep(30 + delay_s)
    assert sleeper.cancelled.is_set() is not is_kept
    if is_kept:
        await near.send_all(f.frame(f.PING, f.ACK, 0, b"blockx\0\0"))
        await trio.sleep(39)
        assert not sleeper.cancelled.is_set()
        await trio.sleep(2)
        assert sleeper.cancelled.is_set()
    await near.aclose()


@pytest.mark.parametrize(("delay_s", "is_kept"), [(9.9, True), (10.1, False)])
async def test_the_time_to_greet_is_exact(
    delay_s: float, is_kept: bool, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    server = RpcServer([worker_service()])
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve_connection, far, "slow")
    await near.send_all(GREETING[:-1])
    await trio.sleep(delay_s)
    assert len(server._links) == is_kept
    if is_kept:
        await near.send_all(GREETING[-1:])
        await trio.sleep(1)
        assert len(server._links) == 1
    await near.aclose()


@pytest.mark.parametrize("interval_s", [0.1, 1, 10])
async def test_a_client_may_ping_as_often_as_any_stock_client_does(
    interval_s: float, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sleeper = Sleeper()
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(SubmitTask=sleeper.unary)]).serve_connection, far, "memory")
    client = RawClient(near)
    await client.greet()
    await client.open(request_headers("SubmitTask"), EMPTY)
    nursery.start_soon(client.until_closed)
    for _ in range(5000):
        await trio.sleep(interval_s)
        await near.send_all(PING)
    await trio.testing.wait_all_tasks_blocked()
    assert client.pings_answered == 5000
    assert client.go_away is None
    assert not sleeper.cancelled.is_set()
    nursery.cancel_scope.cancel()


async def test_a_busy_client_may_ping_and_open_windows_for_each_frame_it_gets(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def many(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        for _ in range(10_000):
            await send(pb.TaskUpdate(error="x" * 10))

    near, far = trio.testing.memory_stream_pair()
    limits = Limits(max_idle_frames=1000)
    nursery.start_soon(RpcServer([worker_service(WatchTasks=many)], limits=limits).serve_connection, far, "memory")
    client = RawClient(near)
    await client.greet()
    stream_id = await client.open(request_headers("WatchTasks"), EMPTY)
    while not client.answers[stream_id].is_over:
        assert await client.receive()  # h2 opens both windows for every frame
        await near.send_all(PING)
    assert client.answers[stream_id].headers["grpc-status"] == "0"
    assert client.go_away is None
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_call", [False, True])
async def test_a_channel_pings_only_while_it_waits_for_something(
    has_call: bool, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Stock servers close a connection without calls over its PINGs."""
    sleeper, pings = Sleeper(), 0
    service = worker_service(WatchTasks=sleeper.stream)
    hole = BlackHole(RpcServer([service], limits=Limits(keepalive_interval_s=10_000)), nursery)

    async def connect() -> trio.abc.HalfCloseableStream:
        stream = await hole.connect()
        send_all = stream.send_all

        async def counting(data: Any) -> None:
            nonlocal pings
            pings += bytes(data).count(b"\0\0\x08\6\0\0\0\0\0blockx")
            await send_all(data)

        stream.send_all = counting  # type: ignore[method-assign]  # the test listens in
        return stream

    channel = Channel("test:1", connect=connect)
    nursery.start_soon(channel.run)
    await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
    if has_call:
        nursery.start_soon(_watch, channel)
        await sleeper.begun.wait()
    await trio.sleep(301)
    assert pings == (10 if has_call else 0)
    nursery.cancel_scope.cancel()


async def _watch(channel: Channel) -> None:
    async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
        async for _ in updates:
            pass


async def answer_pings(client: RawClient) -> None:
    client.gives_windows_back = False
    await client.until_closed()


@pytest.mark.parametrize(("waited_s", "is_kept"), [(299, True), (301, False)])
@pytest.mark.parametrize("whose", ["stream", "connection"])
async def test_an_answer_that_nobody_takes_is_given_up_in_time(
    waited_s: float, is_kept: bool, whose: str, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    cancelled = False

    async def large(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        nonlocal cancelled
        try:
            await send(pb.TaskUpdate(error="x" * 4_000_000))
        finally:
            cancelled = True

    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(WatchTasks=large)]).serve_connection, far, "memory")
    client = RawClient(near)
    await client.greet()
    stream_id = await client.open(request_headers("WatchTasks"), EMPTY, is_last=False)
    client.h2.increment_flow_control_window(2**24, None if whose == "stream" else stream_id)
    client.h2.end_stream(stream_id)
    await client.flush()
    nursery.start_soon(answer_pings, client)
    await trio.sleep(waited_s)
    assert cancelled is not is_kept
    answer = client.answers[stream_id]
    assert answer.headers.get("grpc-status") == (None if is_kept else "14")
    echo = await client.open(request_headers(), message(pb.RequestTaskSlotRequest()))
    await trio.testing.wait_all_tasks_blocked()
    assert client.answers[echo].is_over is (whose == "stream")
    nursery.cancel_scope.cancel()


async def test_an_answer_that_is_taken_slowly_is_not_given_up(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def large(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        await send(pb.TaskUpdate(error="x" * 100_000))

    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(WatchTasks=large)]).serve_connection, far, "memory")
    client = RawClient(near)
    await client.greet()
    client.h2.increment_flow_control_window(2**24)
    stream_id = await client.open(request_headers("WatchTasks"), EMPTY)
    nursery.start_soon(answer_pings, client)
    for _ in range(35):
        await trio.sleep(299)
        client.h2.increment_flow_control_window(1000, stream_id)
        await client.flush()
    await trio.testing.wait_all_tasks_blocked()
    assert client.answers[stream_id].headers["grpc-status"] == "0"
    assert len(client.answers[stream_id].data) > 100_000
    nursery.cancel_scope.cancel()
