"""Our channel against our server."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall, Service, open_channel
from tests.adapters.rpc_peers import (
    REQUEST_SLOT,
    SUBMIT,
    WATCH,
    WORKER,
    Sleeper,
    echo,
    held_port,
    serve,
    worker_service,
)

Send = Callable[[Any], Awaitable[None]]


async def test_calls_that_come_at_any_moment_of_connecting_are_answered(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    for _ in range(10):
        async with open_channel(address) as channel, trio.open_nursery() as calls:

            async def one_after(passes: int, channel: Channel = channel) -> None:
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="task"), timeout=10)

            for passes in range(60):
                calls.start_soon(one_after, passes)


async def test_large_messages_go_both_ways_at_once(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    sizes: list[int] = []
    async with open_channel(address) as channel, trio.open_nursery() as calls:

        async def one() -> None:
            request = pb.RequestTaskSlotRequest(task_id="x" * 3_500_000)
            sizes.append(len((await channel.unary(REQUEST_SLOT, request)).slot_id))

        for _ in range(8):
            calls.start_soon(one)
    assert sizes == [3_500_000] * 8


async def test_an_oversized_request_is_an_invalid_argument_not_a_full_server(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    async with open_channel(address) as channel:
        with pytest.raises(errors.InvalidArgument, match="4194304"):
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="x" * 5_000_000))
        answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="next"))
    assert answer.slot_id == "next"


async def test_an_oversized_answer_fails_its_call_only(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    async with open_channel(address, limits=Limits(max_message_bytes=1000)) as channel:
        with pytest.raises(errors.InvalidArgument, match="at most 1000"):
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="x" * 1001))
        answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="next"))
    assert answer.slot_id == "next"


async def test_the_server_is_told_the_deadline_of_the_surrounding_scope(nursery: trio.Nursery) -> None:
    left: list[float] = []

    async def handler(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        left.append(call.deadline - trio.current_time())
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=handler)
    async with open_channel(address) as channel:
        with trio.fail_after(500):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest())
    assert 495 < left[0] <= 500


async def test_an_error_in_the_block_ends_the_stream_and_is_not_changed(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, WatchTasks=sleeper.stream)
    async with open_channel(address) as channel:

        async def fail_in_the_block() -> None:
            async with channel.stream(WATCH, pb.WatchTasksRequest()):
                await sleeper.begun.wait()
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await fail_in_the_block()
        await sleeper.cancelled.wait()


async def serve_until(scope: trio.CancelScope, port: int, task_status: Any, **handlers: Any) -> None:
    """A server that is gone, without a word, when `scope` is cancelled."""
    with scope:
        await RpcServer([worker_service(**handlers)]).serve("127.0.0.1", port, task_status)


async def test_the_next_call_after_a_loss_connects_again(nursery: trio.Nursery) -> None:
    scope, sleeper = trio.CancelScope(), Sleeper()
    with held_port() as port:
        serve_first = partial(serve_until, scope, port, SubmitTask=sleeper.unary)
        address = await nursery.start(lambda task_status: serve_first(task_status=task_status))
        async with open_channel(address) as channel:
            async with trio.open_nursery() as calls:
                calls.start_soon(lost_call, channel)
                await sleeper.begun.wait()
                scope.cancel()
            await nursery.start(RpcServer([worker_service()]).serve, "127.0.0.1", port)
            answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="again"))
    assert answer.slot_id == "again"


async def lost_call(channel: Channel) -> None:
    with pytest.raises(errors.ConnectionFailed):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest())


async def test_a_server_that_is_not_there_fails_the_call_at_once() -> None:
    with held_port() as port:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(errors.ConnectionFailed, match=f"127.0.0.1:{port} cannot be reached") as caught:
                await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=10)
    assert caught.value.may_have_arrived is False


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        *((address, "not HOST:PORT") for address in ("nowhere", "host:port", ":1", "[::1]", "host:123456")),
        *((address, "cannot be used") for address in ("a..b:80", ".x:80", f"{'x' * 64}:80")),
    ],
)
async def test_an_address_that_is_none_fails_the_call(address: str, reason: str) -> None:
    async with open_channel(address) as channel:
        with pytest.raises(errors.ConnectionFailed, match=reason):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest())


class Network:
    """Connections without a network, to servers that may be away; time may jump."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.server: RpcServer | None = None
        self.attempts: list[float] = []
        self.is_black_hole = False

    async def connect(self) -> trio.abc.HalfCloseableStream:
        self.attempts.append(trio.current_time())
        if self.is_black_hole:
            await trio.sleep_forever()
        if self.server is None:
            raise OSError("nobody home")
        client_end, server_end = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.server.serve_connection, server_end, "memory")
        return client_end


async def test_attempts_to_connect_come_ever_slower_and_calls_between_fail_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    network = Network(nursery)
    channel = Channel("test:1", connect=network.connect)
    nursery.start_soon(channel.run)
    failures = 0
    while trio.current_time() < 60:
        with pytest.raises(errors.ConnectionFailed, match="nobody home"):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=10)
        failures += 1
        await trio.sleep(0.05)
    pauses = [after - before for before, after in zip(network.attempts, network.attempts[1:], strict=False)]
    assert failures > 1000 > len(network.attempts)
    assert 0.08 <= pauses[0] < pauses[2] < pauses[4]
    assert all(4 <= pause <= 6.1 for pause in pauses[7:])

    network.server = RpcServer([worker_service()])
    await trio.sleep(6)
    await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())


async def test_a_connection_that_does_not_come_about_fails_its_calls_in_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    network = Network(nursery)
    network.is_black_hole = True
    channel = Channel("test:1", connect=network.connect)
    nursery.start_soon(channel.run)
    began = trio.current_time()
    with pytest.raises(errors.DeadlineExceeded):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=1)
    assert trio.current_time() - began == pytest.approx(1)
    with pytest.raises(errors.ConnectionFailed, match="no connection within 5 s"):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=100)
    assert trio.current_time() - began == pytest.approx(5)


async def test_a_server_that_falls_silent_is_given_up(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    near, far = trio.testing.memory_stream_pair()

    async def connect() -> trio.abc.HalfCloseableStream:
        return near

    channel = Channel("test:1", connect=connect)
    await far.send_all(b"\0\0\0\4\0\0\0\0\0")  # its settings, and no more
    nursery.start_soon(channel.run)
    with pytest.raises(errors.ConnectionFailed, match="fallen silent"):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest())
    await far.aclose()


async def test_calls_beyond_what_the_server_takes_wait_for_their_turn(nursery: trio.Nursery) -> None:
    running, most = 0, 0

    async def counted(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, Limits(max_concurrent_streams=3), SubmitTask=counted)
    async with open_channel(address) as channel:
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())  # so that the server's settings are known
        async with trio.open_nursery() as calls:
            for _ in range(20):
                calls.start_soon(channel.unary, SUBMIT, pb.SubmitTaskRequest())
    assert most == 3


async def test_a_call_to_a_server_that_stops_has_not_arrived(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    server, address = await serve(nursery, SubmitTask=sleeper.unary)
    async with open_channel(address) as channel, trio.open_nursery() as calls:
        calls.start_soon(channel.unary, SUBMIT, pb.SubmitTaskRequest())
        await sleeper.begun.wait()
        calls.start_soon(server.shutdown, math.inf)
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(errors.ConnectionFailed) as caught:
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
        assert caught.value.may_have_arrived is False
        calls.cancel_scope.cancel()


async def test_closing_the_channel_fails_what_is_pending_and_what_comes_after(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary)
    channel = Channel(address)
    async with trio.open_nursery() as calls:

        async def submit() -> None:
            with pytest.raises(errors.ConnectionFailed):
                await channel.unary(SUBMIT, pb.SubmitTaskRequest())

        calls.start_soon(channel.run)
        calls.start_soon(submit)
        await sleeper.begun.wait()
        channel.close()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest())
    await sleeper.cancelled.wait()


async def test_errors_raised_in_the_block_leave_open_channel_as_they_are(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    with pytest.raises(KeyError, match="mine"):
        async with open_channel(address):
            raise KeyError("mine")


@pytest.mark.parametrize("handlers", [{}, {method.name: echo for method in WORKER.methods} | {"Extra": echo}])
def test_a_service_needs_exactly_its_methods(handlers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="missing or unknown: "):
        Service(WORKER, handlers)
