"""What comes and goes leaves nothing behind: no task, connection, call or byte. Objects are counted, not memory."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from blockx.proto import worker_pb2 as pb
from blockx.rpc import Limits, RpcServer, ServerCall, open_channel, wire
from blockx.rpc.link import Link
from blockx.rpc.messages import Inbound
from blockx.rpc.stream import ClientStream, ServerStream
from tests.adapters.rpc_peers import (
    REQUEST_SLOT,
    SUBMIT,
    WATCH,
    RawClient,
    Sleeper,
    framed,
    message,
    request_headers,
    serve,
)

EMPTY = framed(b"")
KINDS = (Link, wire.Wire, Inbound, ServerStream, ClientStream, ServerCall)


def objects() -> Counter[str]:
    """How many objects of the layer there are."""
    gc.collect()
    return Counter(type(found).__name__ for found in gc.get_objects() if type(found) in KINDS)


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def assert_idle(link: Link) -> None:
    """A connection that is open and has no call must hold nothing of those it had."""
    protocol = link._wire
    assert link.streams == {}
    assert protocol._inbound == {}
    assert protocol._held_bytes == 0
    assert protocol.pending_bytes == 0
    assert protocol._h2.streams == {}
    assert len(protocol._h2._closed_streams) <= protocol._h2.MAX_CLOSED_STREAMS
    assert not protocol._h2.incoming_buffer.data[protocol._h2.incoming_buffer._begin :]
    assert [len(lot) for lot in (link._senders, link._openers)] == [0, 0]


async def settled(is_so: Callable[[], bool]) -> None:
    """Wait for something, and for all tasks to rest; where it never comes, the counts that follow tell what is left."""
    with trio.move_on_after(60):
        await trio.testing.wait_all_tasks_blocked(0.01)
        while not is_so():
            await trio.testing.wait_all_tasks_blocked(0.01)


async def all_gone(server: RpcServer) -> None:
    await settled(lambda: not server._links)


async def calls_over(*links: Link) -> None:
    """Wait until no call is left on these connections, nor anything to be sent."""
    await settled(lambda: not any(link.streams or link._wire._h2.streams or link._wire.pending_bytes for link in links))


async def drain(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


async def test_calls_leave_nothing_behind(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery)
    async with open_channel(address) as channel:
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
        (ours,) = server._links
        assert channel._link is not None
        await calls_over(ours, channel._link)
        tasks_before, objects_before = tasks(), objects()

        async def some() -> None:
            for size in range(200):
                await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="x" * size * 100))

        async with trio.open_nursery() as calls:
            for _ in range(10):
                calls.start_soon(some)
        await calls_over(ours, channel._link)
        assert tasks() == tasks_before
        assert objects() == objects_before
        for link in (ours, channel._link):
            assert_idle(link)


async def test_calls_that_end_badly_leave_nothing_behind(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery, Limits(max_dropped_calls=10_000), SubmitTask=Sleeper().unary)
    client = await RawClient.connect(address)
    await client.echo("first")
    (link,) = server._links
    await calls_over(link)
    tasks_before, objects_before = tasks(), objects()
    odd: list[Callable[[], Any]] = [
        lambda: client.call(request_headers(te=None), EMPTY),
        lambda: client.call(request_headers(path="/no/where"), EMPTY),
        lambda: client.call(request_headers(), EMPTY[:3]),
        lambda: client.call(request_headers(), framed(b"", flag=7) + bytes(1000), is_last=False),
        lambda: client.call(request_headers("SubmitTask", grpc_timeout="1m"), EMPTY),
        lambda: client.call(
            request_headers(grpc_timeout="1m"), message(pb.RequestTaskSlotRequest())[:2], is_last=False
        ),
    ]
    for _ in range(50):
        for call in odd:
            await call()
        stream_id = await client.open(request_headers("SubmitTask"), EMPTY * 9)
        client.h2.reset_stream(stream_id, 8)
        await client.flush()
    await client.echo("last")
    await calls_over(link)
    assert tasks() == tasks_before
    assert objects() == objects_before
    assert_idle(link)
    await client.stream.aclose()


async def test_a_thousand_streams_leave_nothing_behind(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery, WatchTasks=Sleeper().stream)
    async with open_channel(address) as channel:
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
        (link,) = server._links
        await calls_over(link)
        tasks_before, objects_before = tasks(), objects()

        async def watch(task_status: trio.TaskStatus[None]) -> None:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                await anext(updates)
                task_status.started()
                await anext(updates)

        async with trio.open_nursery() as watches:
            for _ in range(1000):
                await watches.start(watch)
            assert len(link.streams) == 1000
            watches.cancel_scope.cancel()
        await calls_over(link)
        assert tasks() == tasks_before
        assert objects() == objects_before
        assert_idle(link)


async def test_connections_leave_nothing_behind(nursery: trio.Nursery) -> None:
    server, address = await serve(nursery, SubmitTask=Sleeper().unary)
    tasks_before, objects_before = tasks(), objects()
    for number in range(500):
        client = await RawClient.connect(address)
        await client.echo("hello")
        await client.open(request_headers("SubmitTask"), EMPTY, is_last=number % 2 == 0)
        if number % 3 == 0:
            await client.stream.send_all(b"no frame, and the end of this connection")
        await client.stream.aclose()
    await all_gone(server)
    assert tasks() == tasks_before
    assert objects() == objects_before


async def test_a_channel_that_is_closed_leaves_nothing_behind(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    server, address = await serve(nursery, SubmitTask=sleeper.unary)
    tasks_before, objects_before = tasks(), objects()
    for _ in range(50):
        async with open_channel(address) as channel:
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
            async with trio.open_nursery() as calls:
                calls.start_soon(channel.unary, SUBMIT, pb.SubmitTaskRequest())
                await sleeper.begun.wait()
                calls.cancel_scope.cancel()
        sleeper.begun = trio.Event()
    del channel
    await all_gone(server)
    assert tasks() == tasks_before
    assert objects() == objects_before


async def test_a_server_that_ends_leaves_nothing_behind() -> None:
    tasks_before, objects_before = tasks(), objects()
    async with trio.open_nursery() as nursery:
        server, address = await serve(nursery, SubmitTask=Sleeper().unary)
        clients = [await RawClient.connect(address) for _ in range(20)]
        for client in clients:
            await client.open(request_headers("SubmitTask"), EMPTY)
            nursery.start_soon(drain, client.stream)
        await settled(lambda: sum(len(link.streams) for link in server._links) == len(clients))
        await server.shutdown(0)
    assert isinstance(server, RpcServer)
    assert not server._links
    for client in clients:
        await client.stream.aclose()
    assert tasks() == tasks_before
    assert objects() == objects_before
