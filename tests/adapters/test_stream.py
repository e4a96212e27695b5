from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from blockx.errors import ProtocolError
from blockx.stream import FULL_BYTES, MessageStream
from blockx.wire import messages as m
from blockx.wire.frames import encode


class CountingStream(trio.abc.Stream):
    """Passes everything on, and remembers the size of each write."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self.inner = inner
        self.writes: list[int] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(len(data))
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.inner.aclose()


Pair = tuple[MessageStream, MessageStream]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two message streams over a pair of Unix sockets."""
    sockets = [trio.socket.from_stdlib_socket(end) for end in socket.socketpair()]
    left, right = (MessageStream(trio.SocketStream(end)) for end in sockets)
    yield left, right
    await left.aclose()
    await right.aclose()


async def received(stream: MessageStream, count: int) -> list[m.Message]:
    found: list[m.Message] = []
    while len(found) < count:
        batch = await stream.receive()
        assert batch, "the peer closed early"
        found += batch
    return found


async def test_frames_of_one_pass_leave_in_one_write(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    counting = CountingStream(near)
    stream = MessageStream(counting)
    await nursery.start(stream.run_writer)
    await trio.testing.wait_all_tasks_blocked()
    messages = [m.Ping(n) for n in range(100)]
    for message in messages:
        stream.post(message)
    assert await MessageStream(far).receive() == messages
    assert counting.writes == [sum(len(encode(message)) for message in messages)]
    nursery.cancel_scope.cancel()


async def test_frames_larger_than_the_socket_buffer_arrive_whole_though_flushed(
    pair: Pair, nursery: trio.Nursery
) -> None:
    left, right = pair
    await nursery.start(left.run_writer)
    sent = [m.CallsCompleted([n], [1], [1], [bytes([n % 256]) * (60_000 + n)]) for n in range(200)]

    async def send() -> None:
        for index, message in enumerate(sent):
            left.post(message)
            if index % 2:
                left.flush()
            if index % 7 == 0:
                await trio.lowlevel.checkpoint()

    nursery.start_soon(send)
    assert await received(right, len(sent)) == sent
    nursery.cancel_scope.cancel()


async def test_flush_writes_at_once_without_the_writer(pair: Pair) -> None:
    left, right = pair
    left.post(m.Ping(1))
    left.flush()
    assert left.unsent_bytes == 0
    assert await right.receive() == [m.Ping(1)]


async def test_flush_keeps_what_the_socket_does_not_take_for_the_writer(pair: Pair, nursery: trio.Nursery) -> None:
    left, right = pair
    large = m.CallsCompleted([1], [1], [1], [bytes(3_000_000)])
    left.post(large)
    left.flush()
    assert 0 < left.unsent_bytes < 3_000_000
    left.flush()  # the socket takes nothing more
    await nursery.start(left.run_writer)
    assert await right.receive() == [large]
    nursery.cancel_scope.cancel()


async def test_a_stream_that_is_not_read_becomes_full_and_recovers(pair: Pair, nursery: trio.Nursery) -> None:
    left, right = pair
    await nursery.start(left.run_writer)
    posted = 0
    while not left.is_full:
        left.post(m.CallsCompleted([posted], [1], [1], [bytes(100_000)]))
        posted += 1
        await trio.testing.wait_all_tasks_blocked()
    assert left.unsent_bytes < FULL_BYTES + 200_000
    resumed = trio.Event()

    async def wait() -> None:
        await left.wait_not_full()
        resumed.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not resumed.is_set()
    await received(right, posted)
    await resumed.wait()
    await left.wait_sent()
    assert left.unsent_bytes == 0
    nursery.cancel_scope.cancel()


async def test_send_waits_while_the_stream_is_full(autojump_clock: trio.testing.MockClock) -> None:
    near, _far = trio.testing.memory_stream_pair()
    stream = MessageStream(near)
    await stream.send(m.Ping(1))
    with trio.move_on_after(1) as scope:
        await stream.send(m.CallsCompleted([1], [1], [1], [bytes(FULL_BYTES)]))
    assert scope.cancelled_caught


async def test_a_reader_gets_its_messages_while_its_own_writes_are_stuck(pair: Pair, nursery: trio.Nursery) -> None:
    left, right = pair
    await nursery.start(left.run_writer)
    left.post(m.CallsCompleted([1], [1], [1], [bytes(8_000_000)]))
    await trio.testing.wait_all_tasks_blocked()
    right.post(m.Ping(7))
    right.flush()
    assert await left.receive() == [m.Ping(7)]
    assert left.is_full
    nursery.cancel_scope.cancel()


async def test_messages_can_be_iterated_until_the_peer_closes(pair: Pair, nursery: trio.Nursery) -> None:
    left, right = pair
    for n in range(3):
        left.post(m.Ping(n))
    left.flush()
    await left.aclose()
    assert [message async for batch in right for message in batch] == [m.Ping(0), m.Ping(1), m.Ping(2)]
    assert await right.receive() == []


async def test_a_close_in_the_middle_of_a_frame_is_a_protocol_error() -> None:
    near, far = trio.testing.memory_stream_pair()
    await near.send_all(encode(m.Ping(1))[:-1])
    await near.aclose()
    with pytest.raises(ProtocolError, match="middle of a frame"):
        await MessageStream(far).receive()


async def test_a_message_that_does_not_fit_is_refused_and_nothing_is_queued() -> None:
    near, _far = trio.testing.memory_stream_pair()
    stream = MessageStream(near, max_frame_bytes=50)
    with pytest.raises(ProtocolError, match="does not fit"):
        stream.post(m.Ping(1), m.CallLog(1, "info", "x" * 100))
    assert stream.unsent_bytes == 0


@pytest.mark.parametrize("flush", [True, False])
async def test_posts_to_a_peer_that_has_gone_are_dropped(pair: Pair, flush: bool) -> None:
    left, right = pair
    await right.aclose()
    left.post(m.Ping(1))
    if flush:
        left.flush()
    else:
        await left.run_writer()  # ends by itself
    assert left.is_broken
    left.post(m.Ping(2))
    assert left.unsent_bytes == 0
    await left.wait_not_full()
    await left.wait_sent()
    assert await left.receive() == []


async def test_closing_ends_the_writer_and_whoever_waits(pair: Pair) -> None:
    left, _right = pair
    left.post(m.CallsCompleted([1], [1], [1], [bytes(8_000_000)]))
    async with trio.open_nursery() as nursery:
        await nursery.start(left.run_writer)
        nursery.start_soon(left.wait_sent)
        nursery.start_soon(left.wait_not_full)
        await trio.testing.wait_all_tasks_blocked()
        await left.aclose()
