"""When a channel is ready, and what it does before."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, open_channel
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, Sleeper, held_port, serve, worker_service

HELLO = pb.RequestTaskSlotRequest(task_id="hello")


async def test_wait_ready_waits_for_a_server_that_comes_up(nursery: trio.Nursery) -> None:
    with held_port() as port:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(errors.ConnectionFailed):
                await channel.unary(REQUEST_SLOT, HELLO)
            async with trio.open_nursery() as waiting:
                waiting.start_soon(channel.wait_ready)
                await nursery.start(RpcServer([worker_service()]).serve, "127.0.0.1", port)
            assert (await channel.unary(REQUEST_SLOT, HELLO)).slot_id == "hello"


async def test_wait_ready_says_why_the_server_is_out_of_reach(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    tried = 0

    async def refuse() -> trio.abc.HalfCloseableStream:
        nonlocal tried
        tried += 1
        raise OSError("nobody listens")

    channel = Channel("far:1", connect=refuse)
    nursery.start_soon(channel.run)
    began = trio.current_time()
    with pytest.raises(errors.ConnectionFailed, match="far:1 cannot be reached: nobody listens") as caught:
        await channel.wait_ready(20)
    assert not caught.value.may_have_arrived
    assert trio.current_time() - began == pytest.approx(20)
    assert 6 <= tried <= 12, "at 0.1 s, then doubled up to 5 s, each a fifth more or less"
    channel.close()
    with pytest.raises(errors.ConnectionFailed, match="the channel is closed"):
        await channel.wait_ready(math.inf)


async def test_nothing_is_asked_of_a_server_that_does_not_greet(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    theirs: list[trio.testing.MemoryReceiveStream] = []

    async def connect() -> trio.abc.HalfCloseableStream:
        await trio.lowlevel.checkpoint()
        ours, silent = trio.testing.memory_stream_pair()
        theirs.append(silent.receive_stream)
        return ours

    channel = Channel("silent:1", connect=connect)
    nursery.start_soon(channel.run)
    with pytest.raises(errors.ConnectionFailed, match="no connection within 5 s") as caught:
        await channel.unary(REQUEST_SLOT, HELLO)
    assert not caught.value.may_have_arrived
    with pytest.raises(errors.ConnectionFailed, match="no connection within 5 s"):
        await channel.unary(REQUEST_SLOT, HELLO)
    (receiver,) = theirs
    sent = b"".join([bytes(part) async for part in receiver])
    assert b"hello" not in sent
    channel.close()


async def test_a_call_that_waits_for_its_place_goes_on_when_its_connection_closes(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    stopping, old = await serve(nursery, Limits(max_concurrent_streams=1), SubmitTask=sleeper.unary)
    _, new = await serve(nursery)
    places = [old, new]

    async def connect() -> trio.abc.HalfCloseableStream:
        host, _, port = places.pop(0).rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    channel = Channel("moving:1", connect=connect)
    nursery.start_soon(channel.run)
    async with trio.open_nursery() as calls:
        calls.start_soon(channel.unary, SUBMIT, pb.SubmitTaskRequest())
        await sleeper.begun.wait()
        answers: list[str] = []

        async def waiting() -> None:
            answers.append((await channel.unary(REQUEST_SLOT, HELLO)).slot_id)
            calls.cancel_scope.cancel()

        calls.start_soon(waiting)
        await trio.testing.wait_all_tasks_blocked()
        assert (answers, places) == ([], [new]), "it waits for its place"
        nursery.start_soon(stopping.shutdown, math.inf)
    assert answers == ["hello"]
    channel.close()
    nursery.cancel_scope.cancel()
