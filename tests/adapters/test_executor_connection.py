from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from blockx.errors import LoadFailed, ProtocolError
from blockx.executor.runtime import CAPACITY, converse
from blockx.stream import MessageStream
from blockx.wire import messages as m
from tests.adapters.executor_peer import FUNCTIONS, Peer, executor, first_id


def welcome(protocol: int = m.PROTOCOL_VERSION, **limits: int) -> m.Welcome:
    return m.Welcome(protocol, "worker", limits, str(FUNCTIONS), "digest")


async def test_an_executor_says_hello_first_and_ready_after_it_has_loaded() -> None:
    async with executor() as peer:
        hello = await peer.hear(m.Hello)
        assert (hello.protocol, hello.pid, hello.token, hello.capacity) == (1, os.getpid(), "token", CAPACITY)
        peer.say(welcome())
        ready = await peer.hear(m.Ready)
        assert "renamed" in ready.functions
        assert "original" not in ready.functions
        assert ready.functions == sorted(ready.functions)


async def test_a_ping_is_answered() -> None:
    async with executor() as peer:
        await peer.greet()
        peer.say(m.Ping(2**40))
        assert await peer.hear(m.Pong) == m.Pong(2**40)


async def test_messages_that_came_with_the_welcome_are_heard() -> None:
    async with executor() as peer:
        peer.say(welcome(), m.Ping(5))
        assert await peer.hear(m.Pong) == m.Pong(5)


async def test_heartbeats_count_what_runs_and_what_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with executor() as peer:
        await peer.greet(heartbeat_ms=10_000)
        peer.open()
        idle = await peer.hear(m.Heartbeat)
        assert (idle.running, idle.waiting) == (0, 0)
        assert 1_000_000 < idle.rss_bytes < 2**40
        assert 0 <= idle.loop_lag_us < 5_000_000
        peer.execute("nap", [1_000, 1], [1_000, 2])
        peer.execute("row", ["a"], first=2)
        await peer.asked()
        peer.unheard.clear()
        busy = await peer.hear(m.Heartbeat)
        assert (busy.running, busy.waiting) == (2, 1)


async def test_heartbeats_are_as_far_apart_as_the_worker_asks(autojump_clock: trio.testing.MockClock) -> None:
    async with executor() as peer:
        await peer.greet(heartbeat_ms=250)
        first = trio.current_time()
        for _ in range(8):
            await peer.hear(m.Heartbeat)
        assert trio.current_time() - first == pytest.approx(2.0)


async def ended(peer: Peer) -> list[m.Message]:
    """What the executor said before it closed."""
    while batch := await peer.stream.receive():
        peer.unheard += batch
    return peer.unheard


async def test_shutdown_lets_calls_finish_and_tells_their_results(autojump_clock: trio.testing.MockClock) -> None:
    near, far = trio.testing.memory_stream_pair()
    peer = Peer(MessageStream(near))
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.stream.run_writer)

        async def converse_to_the_end() -> None:
            await converse(MessageStream(far), "token")
            await far.aclose()

        nursery.start_soon(converse_to_the_end)
        await peer.greet()
        peer.open()
        peer.execute("nap", [5, "first"], [20, "second"])
        peer.execute("add", [1], first=2)
        peer.say(m.Shutdown(10_000_000))
        told = await ended(peer)
        assert sum(len(message.ids) for message in told if isinstance(message, m.CallsCompleted)) == 3
        assert trio.current_time() < 3_600
        nursery.cancel_scope.cancel()


async def returns_when(say: Callable[[Peer], None], before: Callable[[Peer], Awaitable[object]]) -> None:
    """Have `converse` come to its own end by what the worker says."""
    near, far = trio.testing.memory_stream_pair()
    peer = Peer(MessageStream(near))
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.stream.run_writer)

        async def drive() -> None:
            await before(peer)
            say(peer)

        nursery.start_soon(drive)
        await converse(MessageStream(far), "token")
        nursery.cancel_scope.cancel()


async def test_shutdown_of_an_idle_executor_ends_it_at_once() -> None:
    await returns_when(lambda peer: peer.say(m.Shutdown(3_600_000)), lambda peer: peer.greet())


async def test_shutdown_does_not_wait_beyond_its_grace(autojump_clock: trio.testing.MockClock) -> None:
    async def busy(peer: Peer) -> None:
        await peer.greet()
        peer.open()
        peer.execute("nap", [1_000_000, "never"])

    await returns_when(lambda peer: peer.say(m.Shutdown(5_000)), busy)
    assert trio.current_time() == pytest.approx(5.0)


@pytest.mark.parametrize("greeted", [True, False])
async def test_an_executor_ends_when_the_worker_closes(greeted: bool) -> None:
    async with executor() as peer:
        if greeted:
            await peer.greet()
            peer.open()
            peer.execute("nap", [1_000_000, "never"])
        else:
            await peer.hear(m.Hello)
    # leaving the block waits for the executor, whose calls would sleep for days


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.Ready(["x"]), "began with Ready where Welcome was expected"),
        (welcome(protocol=2), "speaks protocol 2, this executor 1"),
        (welcome(heartbeat_ms=0), "limits cannot be kept"),
        (welcome(max_frame_bytes=1_000), "limits cannot be kept"),
    ],
)
async def test_a_worker_that_greets_wrongly_is_left(message: m.Message, reason: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ProtocolError, match=reason), flatten_subgroups=True):
        await returns_when(lambda peer: peer.say(message), lambda peer: peer.hear(m.Hello))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (m.Hello(1, 2, "3", "t", 5), "sent Hello, which only an executor may send"),
        (m.ExecuteCalls(9, "add", None, 1, [first_id(9)], [1], [b"\x92\x90\x80"]), "task 9 came before OpenTask"),
        (m.ExecuteCalls(1, "add", b"\x90", 1, [first_id(1)], [1], [b"\x92\x90\x80"]), "a block must be packed"),
        (m.ExecuteCalls(1, "add", b"\xc1", 1, [first_id(1)], [1], [b"\x92\x90\x80"]), "no packed value"),
    ],
)
async def test_a_worker_that_breaks_the_protocol_is_left(message: m.Message, reason: str) -> None:
    async def greeted(peer: Peer) -> None:
        await peer.greet()
        peer.open()

    with pytest.RaisesGroup(pytest.RaisesExc(ProtocolError, match=reason), flatten_subgroups=True):
        await returns_when(lambda peer: peer.say(message), greeted)


async def test_arguments_that_are_not_packed_fail_their_call_only() -> None:
    async with executor() as peer:
        await peer.greet()
        peer.open()
        ids = [first_id(1), first_id(1) + 1]
        peer.say(m.ExecuteCalls(1, "add", None, 1, ids, [1, 1], [b"\xc1", b"\x91\x90"]))
        for _ in ids:
            assert (await peer.hear(m.CallFailed)).error[1] == "ProtocolError"
        assert await peer.outcome("add", 1) == 111


async def test_functions_that_cannot_be_loaded_are_told_before_the_end() -> None:
    near, far = trio.testing.memory_stream_pair()
    peer = Peer(MessageStream(near))
    peer.say(m.Welcome(m.PROTOCOL_VERSION, "worker", {}, "/no/such/directory", ""))
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.stream.run_writer)
        with pytest.RaisesGroup(pytest.RaisesExc(LoadFailed, match="is no directory"), flatten_subgroups=True):
            await converse(MessageStream(far), "token")
        failed = await peer.hear(m.LoadFailed)
        assert failed.error == "/no/such/directory is no directory"
        nursery.cancel_scope.cancel()
