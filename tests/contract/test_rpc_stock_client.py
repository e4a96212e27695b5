"""A stock grpcio client against our server."""

from __future__ import annotations

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


async def test_a_handler_knows_method_peer_and_deadline(nursery: trio.Nursery) -> None:
    seen: list[tuple[ServerCall, float]] = []

    async def handler(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        seen.append((call, call.deadline - trio.current_time()))
        return pb.RequestTaskSlotResponse()

    _, address = await serve(nursery, RequestTaskSlot=handler)

    def client() -> None:
        with grpc.insecure_channel(address) as channel:
            call(channel, REQUEST_SLOT)(pb.RequestTaskSlotRequest(), timeout=TIMEOUT_S)

    await in_thread(client)
    ((call_seen, left_s),) = seen
    assert call_seen.method == "blockx.worker.v1.WorkerService.RequestTaskSlot"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", call_seen.peer)
    assert 0 < left_s <= TIMEOUT_S


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


@pytest.mark.parametrize(
    "pair", [("grpc-status", "0"), ("Upper", "x"), ("text", "ü"), ("text", b"x"), ("x-bin", "x"), ("x", 1)]
)
async def test_metadata_that_cannot_be_sent_is_an_internal_error(pair: Any, nursery: trio.Nursery) -> None:
    async def wrong(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        call.trailing_metadata.append(pair)
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=wrong)
    with capture_logs() as logs:
        seen = await in_thread(lambda: failure_of(address))
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert [log["event"] for log in logs] == ["call failed"]


async def test_status_details_of_the_wrong_type_end_only_their_call(nursery: trio.Nursery) -> None:
    async def wrong(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        call.status_details = "no bytes"  # type: ignore[assignment]  # the mistake that is tested
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=wrong)
    with capture_logs() as logs:
        for _ in range(2):
            seen = await in_thread(lambda: failure_of(address))
            assert seen.code() is grpc.StatusCode.INTERNAL
    assert [log["event"] for log in logs] == ["call failed"] * 2


async def test_a_long_message_is_cut_and_still_arrives(nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise errors.InvalidArgument("ü" * 5000)

    _, address = await serve(nursery, SubmitTask=refuse)
    seen = await in_thread(lambda: failure_of(address))
    assert seen.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert seen.details() == "ü" * 1024


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


async def test_many_large_requests_at_once_all_arrive(nursery: trio.Nursery) -> None:
    """Twelve times 3.5 MB on one connection is more than its window: it must not wait for a whole message."""
    _, address = await serve(nursery)

    def client() -> list[int]:
        with grpc.insecure_channel(address) as channel:
            request = pb.RequestTaskSlotRequest(task_id="x" * 3_500_000)
            calls = [call(channel, REQUEST_SLOT).future(request, timeout=60) for _ in range(12)]
            return [len(pending.result().slot_id) for pending in calls]

    assert await in_thread(client) == [3_500_000] * 12
