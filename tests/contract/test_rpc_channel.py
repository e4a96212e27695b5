"""Our channel against our server."""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall, Service, open_channel
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, WATCH, WORKER, Sleeper, echo, serve, worker_service

Send = Callable[[Any], Awaitable[None]]


async def test_a_unary_call_is_answered(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    async with open_channel(address) as channel:
        answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="täsk"), timeout=10)
    assert answer == pb.RequestTaskSlotResponse(slot_id="täsk")


async def test_calls_share_a_connection_and_do_not_wait_for_each_other(nursery: trio.Nursery) -> None:
    peers: set[str] = set()
    all_here = trio.Event()
    waiting = 0

    async def together(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        nonlocal waiting
        peers.add(call.peer)
        waiting += 1
        if waiting == 100:
            all_here.set()
        await all_here.wait()
        return await echo(request, call)

    _, address = await serve(nursery, RequestTaskSlot=together)
    answers: set[str] = set()
    async with open_channel(address) as channel, trio.open_nursery() as calls:

        async def one(task_id: str) -> None:
            answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id=task_id))
            answers.add(answer.slot_id)

        for number in range(100):
            calls.start_soon(one, str(number))
    assert answers == {str(number) for number in range(100)}
    assert len(peers) == 1


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


async def test_a_stream_arrives_in_order_and_whole(nursery: trio.Nursery) -> None:
    async def numbers(request: Any, call: ServerCall, send: Send) -> None:
        for number in range(2000):
            await send(pb.TaskUpdate(timestamp_ms=number, error="x" * 5000))

    _, address = await serve(nursery, WatchTasks=numbers)
    async with open_channel(address) as channel:
        async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            seen = [(update.timestamp_ms, len(update.error)) async for update in updates]
    assert seen == [(number, 5000) for number in range(2000)]


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


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("bad"),
        errors.NoSlot("full", retry_after_ms=250),
        errors.NoSlot("full"),
        errors.InvalidSlot("stale"),
        errors.Unavailable("draining", retry_after_ms=0),
        errors.Unavailable("draining"),
        errors.NotFound("täsk\n100 % weg"),
        errors.Unauthenticated("who"),
        errors.PermissionDenied("no"),
        errors.DeadlineExceeded("late"),
        errors.Internal("as logged"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_refusal_crosses_unchanged(error: errors.RequestError, nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise error

    _, address = await serve(nursery, SubmitTask=refuse)
    async with open_channel(address) as channel:
        with pytest.raises(errors.RequestError) as caught:
            await channel.unary(SUBMIT, pb.SubmitTaskRequest())
    assert type(caught.value) is type(error)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))


async def test_a_refusal_after_some_messages_comes_after_them(nursery: trio.Nursery) -> None:
    async def two_then_refuse(request: Any, call: ServerCall, send: Send) -> None:
        await send(pb.TaskUpdate(task_id="1"))
        await send(pb.TaskUpdate(task_id="2"))
        raise errors.NotFound("no third")

    _, address = await serve(nursery, WatchTasks=two_then_refuse)
    seen: list[str] = []
    async with open_channel(address) as channel:
        async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            seen += [(await anext(updates)).task_id, (await anext(updates)).task_id]
            with pytest.raises(errors.NotFound, match="no third"):
                await anext(updates)
    assert seen == ["1", "2"]


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


async def test_the_timeout_ends_the_call_and_its_handler(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary)
    async with open_channel(address) as channel:
        await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())  # so that the connection is open
        with pytest.raises(errors.DeadlineExceeded, match="SubmitTask"):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=0.5)
        await sleeper.cancelled.wait()


async def test_the_timeout_of_a_stream_ends_it(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, WatchTasks=sleeper.stream)
    async with open_channel(address) as channel:
        async with channel.stream(WATCH, pb.WatchTasksRequest(), timeout=0.5) as updates:
            assert (await anext(updates)).task_id == "first"
            with pytest.raises(errors.DeadlineExceeded):
                await anext(updates)
        await sleeper.cancelled.wait()


@pytest.mark.parametrize("timeout", [5, None])
async def test_the_server_is_told_the_nearest_deadline(timeout: float | None, nursery: trio.Nursery) -> None:
    left: list[float] = []

    async def handler(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        left.append(call.deadline - trio.current_time())
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=handler)
    async with open_channel(address) as channel:
        with trio.fail_after(500):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=timeout)
    bound = timeout or 500
    assert bound - 5 < left[0] <= bound


async def test_a_call_without_timeout_has_no_deadline(nursery: trio.Nursery) -> None:
    seen: list[float] = []

    async def handler(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        seen.append(call.deadline)
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=handler)
    async with open_channel(address) as channel:
        await channel.unary(SUBMIT, pb.SubmitTaskRequest())
    assert seen == [math.inf]


async def test_cancelling_the_caller_cancels_the_handler(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary)
    async with open_channel(address) as channel:
        async with trio.open_nursery() as calls:
            calls.start_soon(channel.unary, SUBMIT, pb.SubmitTaskRequest())
            await sleeper.begun.wait()
            calls.cancel_scope.cancel()
        await sleeper.cancelled.wait()
        assert (await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="x"))).slot_id == "x"


@pytest.mark.parametrize("how", ["break", "error"])
async def test_leaving_a_stream_early_cancels_its_handler(how: str, nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, WatchTasks=sleeper.stream)
    async with open_channel(address) as channel:
        try:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                async for _ in updates:
                    if how == "error":
                        raise KeyError("the caller's own")
                    break
        except KeyError:
            assert how == "error"
        await sleeper.cancelled.wait()


async def serve_until(scope: trio.CancelScope, port: int, task_status: Any, **handlers: Any) -> None:
    """A server that is gone, without a word, when `scope` is cancelled."""
    with scope:
        await RpcServer([worker_service(**handlers)]).serve("127.0.0.1", port, task_status)


async def test_losing_the_connection_fails_all_that_is_pending(nursery: trio.Nursery) -> None:
    sleeper, watched, caught = Sleeper(), Sleeper(), []
    scope, first_is_here = trio.CancelScope(), trio.Event()
    serve_them = partial(serve_until, scope, 0, SubmitTask=sleeper.unary, WatchTasks=watched.stream)
    address = await nursery.start(lambda task_status: serve_them(task_status=task_status))
    async with open_channel(address) as channel, trio.open_nursery() as calls:

        async def submit() -> None:
            with pytest.raises(errors.ConnectionFailed, match="is lost") as error:
                await channel.unary(SUBMIT, pb.SubmitTaskRequest())
            caught.append(error.value.may_have_arrived)

        async def watch() -> None:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                assert (await anext(updates)).task_id == "first"
                first_is_here.set()
                with pytest.raises(errors.ConnectionFailed, match="is lost") as error:
                    await anext(updates)
                caught.append(error.value.may_have_arrived)

        calls.start_soon(submit)
        calls.start_soon(watch)
        await sleeper.begun.wait()
        await first_is_here.wait()
        scope.cancel()
    assert caught == [True, True]


async def test_the_next_call_after_a_loss_connects_again(nursery: trio.Nursery) -> None:
    scope, sleeper = trio.CancelScope(), Sleeper()
    serve_first = partial(serve_until, scope, 0, SubmitTask=sleeper.unary)
    address = await nursery.start(lambda task_status: serve_first(task_status=task_status))
    async with open_channel(address) as channel:
        async with trio.open_nursery() as calls:
            calls.start_soon(lost_call, channel)
            await sleeper.begun.wait()
            scope.cancel()
        await nursery.start(RpcServer([worker_service()]).serve, "127.0.0.1", int(address.rpartition(":")[2]))
        answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id="again"))
    assert answer.slot_id == "again"


async def lost_call(channel: Channel) -> None:
    with pytest.raises(errors.ConnectionFailed):
        await channel.unary(SUBMIT, pb.SubmitTaskRequest())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


async def test_a_server_that_is_not_there_fails_the_call_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with open_channel(address) as channel:
        with pytest.raises(errors.ConnectionFailed, match=f"{address} cannot be reached") as caught:
            await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=10)
    assert caught.value.may_have_arrived is False


@pytest.mark.parametrize("address", ["nowhere", "host:port", ":1", "[::1]"])
async def test_an_address_that_is_none_fails_the_call(address: str) -> None:
    async with open_channel(address) as channel:
        with pytest.raises(errors.ConnectionFailed, match="not HOST:PORT"):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest())


async def test_an_unknown_method_is_an_internal_error(nursery: trio.Nursery) -> None:
    server = RpcServer([])
    address = await nursery.start(server.serve, "127.0.0.1", 0)
    async with open_channel(address) as channel:
        with capture_logs(), pytest.raises(errors.Internal, match="UNIMPLEMENTED: there is no method"):
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


async def test_a_call_during_shutdown_goes_to_a_new_connection_and_a_running_one_ends(nursery: trio.Nursery) -> None:
    begun, may_end, answers = trio.Event(), trio.Event(), []

    async def slow(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        begun.set()
        await may_end.wait()
        return pb.SubmitTaskResponse(payload_mismatch=True)

    server, address = await serve(nursery, SubmitTask=slow)
    async with open_channel(address) as channel, trio.open_nursery() as calls:

        async def submit() -> None:
            answers.append(await channel.unary(SUBMIT, pb.SubmitTaskRequest()))

        calls.start_soon(submit)
        await begun.wait()
        calls.start_soon(server.shutdown, math.inf)
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(errors.ConnectionFailed) as caught:
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest())
        assert caught.value.may_have_arrived is False
        may_end.set()
    assert answers == [pb.SubmitTaskResponse(payload_mismatch=True)]


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
