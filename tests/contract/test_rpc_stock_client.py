"""A stock grpcio client against our server."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import ServerCall
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, WATCH, Sleeper, serve
from tests.contract.grpcio import call, grpc, in_thread

Send = Callable[[Any], Awaitable[None]]
TIMEOUT_S = 10


async def test_a_unary_call_is_answered(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)

    def client() -> str:
        with grpc.insecure_channel(address) as channel:
            answer = call(channel, REQUEST_SLOT)(pb.RequestTaskSlotRequest(task_id="täsk"), timeout=TIMEOUT_S)
            return str(answer.slot_id)

    assert await in_thread(client) == "täsk"


async def test_a_stream_arrives_in_order_and_whole(nursery: trio.Nursery) -> None:
    async def numbers(request: Any, call: ServerCall, send: Send) -> None:
        for number in range(2000):
            await send(pb.TaskUpdate(timestamp_ms=number, error="x" * 5000))

    _, address = await serve(nursery, WatchTasks=numbers)

    def client() -> list[tuple[int, int]]:
        with grpc.insecure_channel(address) as channel:
            updates = call(channel, WATCH)(pb.WatchTasksRequest(), timeout=60)
            return [(update.timestamp_ms, len(update.error)) for update in updates]

    assert await in_thread(client) == [(number, 5000) for number in range(2000)]


async def test_metadata_goes_both_ways(nursery: trio.Nursery) -> None:
    seen: list[ServerCall] = []

    async def handler(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        seen.append(call)
        call.trailing_metadata += [("text", "out"), ("bytes-bin", b"\0\xff")]
        return pb.RequestTaskSlotResponse()

    _, address = await serve(nursery, RequestTaskSlot=handler)

    def client() -> dict[str, Any]:
        with grpc.insecure_channel(address) as channel:
            metadata = [("text", "in"), ("bytes-bin", b"\xff\0"), ("twice", "1"), ("twice", "2")]
            request = pb.RequestTaskSlotRequest()
            _, done = call(channel, REQUEST_SLOT).with_call(request, metadata=metadata, timeout=TIMEOUT_S)
            return dict(done.trailing_metadata())

    assert await in_thread(client) == {"text": "out", "bytes-bin": b"\0\xff"}
    (call_seen,) = seen
    ours = [pair for pair in call_seen.metadata if pair[0] in {"text", "bytes-bin", "twice"}]
    assert ours == [("text", "in"), ("bytes-bin", b"\xff\0"), ("twice", "1"), ("twice", "2")]
    assert call_seen.method == "blockx.worker.v1.WorkerService.RequestTaskSlot"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", call_seen.peer)
    assert 0 < call_seen.deadline - trio.current_time() <= TIMEOUT_S


async def test_a_call_without_timeout_has_no_deadline(nursery: trio.Nursery) -> None:
    seen: list[float] = []

    async def handler(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        seen.append(call.deadline)
        return pb.RequestTaskSlotResponse()

    _, address = await serve(nursery, RequestTaskSlot=handler)

    def client() -> None:
        with grpc.insecure_channel(address) as channel:
            call(channel, REQUEST_SLOT)(pb.RequestTaskSlotRequest())

    await in_thread(client)
    assert seen == [math.inf]


def failure_of(address: str, request: Any = None, **options: Any) -> Any:
    """The error that a stock client sees for SubmitTask."""
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, SUBMIT)(
                request or pb.SubmitTaskRequest(), timeout=options.pop("timeout", TIMEOUT_S), **options
            )
        return caught.value


@pytest.mark.parametrize(
    ("error", "code", "metadata"),
    [
        (errors.InvalidArgument("bad"), "INVALID_ARGUMENT", {}),
        (errors.NoSlot("full", retry_after_ms=250), "RESOURCE_EXHAUSTED", {"retry-after-ms": "250"}),
        (errors.NoSlot("full"), "RESOURCE_EXHAUSTED", {}),
        (errors.InvalidSlot("stale"), "FAILED_PRECONDITION", {}),
        (errors.Unavailable("draining", retry_after_ms=1), "UNAVAILABLE", {"retry-after-ms": "1"}),
        (errors.ConnectionFailed("behind us", may_have_arrived=True), "UNAVAILABLE", {}),
        (errors.NotFound("täsk\n100 % weg"), "NOT_FOUND", {}),
        (errors.Unauthenticated("who"), "UNAUTHENTICATED", {}),
        (errors.PermissionDenied("no"), "PERMISSION_DENIED", {}),
        (errors.DeadlineExceeded("late"), "DEADLINE_EXCEEDED", {}),
        (errors.Internal("as logged"), "INTERNAL", {}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_each_refusal_has_its_code(
    error: errors.RequestError, code: str, metadata: dict[str, str], nursery: trio.Nursery
) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise error

    _, address = await serve(nursery, SubmitTask=refuse)
    seen = await in_thread(lambda: failure_of(address))
    assert (seen.code().name, seen.details()) == (code, str(error))
    assert dict(seen.trailing_metadata()) == metadata


async def test_an_unforeseen_error_is_logged_under_an_id_and_told_to_nobody(nursery: trio.Nursery) -> None:
    async def broken(request: Any, call: ServerCall) -> Any:
        raise ZeroDivisionError("the secret")

    _, address = await serve(nursery, SubmitTask=broken)
    with capture_logs() as logs:
        seen = await in_thread(lambda: failure_of(address))
    (log,) = logs
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert log["error_id"] in seen.details()
    assert log["method"] == SUBMIT.full_name
    assert "secret" not in seen.details()
    assert "ZeroDivisionError" not in seen.details()


@pytest.mark.parametrize("answer", [None, pb.RequestTaskSlotResponse()])
async def test_an_answer_of_the_wrong_type_is_an_internal_error(answer: Any, nursery: trio.Nursery) -> None:
    async def wrong(request: Any, call: ServerCall) -> Any:
        return answer

    _, address = await serve(nursery, SubmitTask=wrong)
    with capture_logs() as logs:
        seen = await in_thread(lambda: failure_of(address))
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert [log["event"] for log in logs] == ["call failed"]


@pytest.mark.parametrize("pair", [("grpc-status", "0"), ("Upper", "x"), ("text", "ü"), ("text", b"x"), ("x-bin", "x")])
async def test_metadata_that_cannot_be_sent_is_an_internal_error(pair: Any, nursery: trio.Nursery) -> None:
    async def wrong(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        call.trailing_metadata.append(pair)
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=wrong)
    with capture_logs() as logs:
        seen = await in_thread(lambda: failure_of(address))
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert [log["event"] for log in logs] == ["call failed"]


async def test_a_long_message_is_cut_and_still_arrives(nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise errors.InvalidArgument("ü" * 5000)

    _, address = await serve(nursery, SubmitTask=refuse)
    seen = await in_thread(lambda: failure_of(address))
    assert seen.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert seen.details() == "ü" * 1024


async def test_the_clients_deadline_cancels_the_handler(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary)
    seen = await in_thread(lambda: failure_of(address, timeout=1))
    assert seen.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await sleeper.cancelled.wait()


async def test_cancelling_a_stream_cancels_its_handler(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, WatchTasks=sleeper.stream)
    with grpc.insecure_channel(address) as channel:
        updates = call(channel, WATCH)(pb.WatchTasksRequest())
        assert (await in_thread(lambda: next(updates))).task_id == "first"
        updates.cancel()
        await sleeper.cancelled.wait()


async def test_closing_the_channel_cancels_its_handlers(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, WatchTasks=sleeper.stream)
    with grpc.insecure_channel(address) as channel:
        updates = call(channel, WATCH)(pb.WatchTasksRequest())
        await in_thread(lambda: next(updates))
    await sleeper.cancelled.wait()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_accepted(compression: Any, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)

    def client() -> int:
        with grpc.insecure_channel(address, compression=compression) as channel:
            request = pb.RequestTaskSlotRequest(task_id="x" * 100_000)
            return len(call(channel, REQUEST_SLOT)(request, timeout=TIMEOUT_S).slot_id)

    assert await in_thread(client) == 100_000


async def test_an_oversized_message_fails_its_call_and_no_other(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)

    def client() -> tuple[Any, str]:
        with grpc.insecure_channel(address) as channel:
            stub = call(channel, REQUEST_SLOT)
            with pytest.raises(grpc.RpcError) as caught:
                stub(pb.RequestTaskSlotRequest(task_id="x" * 5_000_000), timeout=TIMEOUT_S)
            return caught.value, stub(pb.RequestTaskSlotRequest(task_id="next"), timeout=TIMEOUT_S).slot_id

    error, following = await in_thread(client)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "4194304" in error.details()
    assert following == "next"


async def test_many_large_requests_at_once_all_arrive(nursery: trio.Nursery) -> None:
    """Twelve times 3.5 MB on one connection is more than its window: it must not wait for a whole message."""
    _, address = await serve(nursery)

    def client() -> list[int]:
        with grpc.insecure_channel(address) as channel:
            request = pb.RequestTaskSlotRequest(task_id="x" * 3_500_000)
            calls = [call(channel, REQUEST_SLOT).future(request, timeout=60) for _ in range(12)]
            return [len(pending.result().slot_id) for pending in calls]

    assert await in_thread(client) == [3_500_000] * 12


async def test_shutdown_waits_for_running_calls_then_says_unavailable(nursery: trio.Nursery) -> None:
    begun, may_end, sleeper = trio.Event(), trio.Event(), Sleeper()

    async def slow(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        begun.set()
        await may_end.wait()
        return pb.RequestTaskSlotResponse(slot_id="done")

    server, address = await serve(nursery, RequestTaskSlot=slow, SubmitTask=sleeper.unary)
    with grpc.insecure_channel(address) as channel:
        slow_call = call(channel, REQUEST_SLOT).future(pb.RequestTaskSlotRequest(), timeout=TIMEOUT_S)
        endless = call(channel, SUBMIT).future(pb.SubmitTaskRequest(), timeout=TIMEOUT_S)
        await begun.wait()
        await sleeper.begun.wait()
        async with trio.open_nursery() as stopping:
            stopping.start_soon(server.shutdown, 1.0)
            await trio.testing.wait_all_tasks_blocked()
            may_end.set()
        assert slow_call.result().slot_id == "done"
        assert (await in_thread(endless.exception)).code() is grpc.StatusCode.UNAVAILABLE
