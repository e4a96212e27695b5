"""Our channel against a stock grpcio server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import open_channel
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, WATCH
from tests.contract.grpcio import grpc

NAMES = {"RequestTaskSlot": REQUEST_SLOT, "SubmitTask": SUBMIT, "WatchTasks": WATCH}


@contextmanager
def stock_server(compression: Any = None, **handlers: Callable[[Any, Any], Any]) -> Iterator[tuple[str, Any]]:
    """The address and the object of a grpcio server with plain functions as handlers; a generator function streams."""
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, compression=compression)
        made = {name: _handler(name, function) for name, function in handlers.items()}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("blockx.worker.v1.WorkerService", made)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}", server
        finally:
            server.stop(0).wait()


def _handler(name: str, function: Callable[[Any, Any], Any]) -> Any:
    request_class = getattr(pb, NAMES[name].input_type.name)
    response_class = getattr(pb, NAMES[name].output_type.name)
    is_stream = NAMES[name].server_streaming
    make = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
    return make(function, request_class.FromString, response_class.SerializeToString)


def echo(request: Any, context: Any) -> pb.RequestTaskSlotResponse:
    return pb.RequestTaskSlotResponse(slot_id=request.task_id)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_unary_call_is_answered(compression: Any) -> None:
    with stock_server(compression, RequestTaskSlot=echo) as (address, _):
        async with open_channel(address) as channel:
            for text in ("täsk", "x" * 3_000_000):
                answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id=text), timeout=10)
                assert answer.slot_id == text


async def test_a_stream_arrives_in_order_and_whole() -> None:
    def numbers(request: Any, context: Any) -> Iterator[pb.TaskUpdate]:
        for number in range(500):
            yield pb.TaskUpdate(timestamp_ms=number, error="x" * 20_000)

    with stock_server(WatchTasks=numbers) as (address, _):
        async with open_channel(address) as channel, channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            seen = [(update.timestamp_ms, len(update.error)) async for update in updates]
    assert seen == [(number, 20_000) for number in range(500)]


@pytest.mark.parametrize(
    ("code", "metadata", "kind", "hint"),
    [
        ("INVALID_ARGUMENT", (), errors.InvalidArgument, None),
        ("RESOURCE_EXHAUSTED", (("retry-after-ms", "70"),), errors.NoSlot, 70),
        ("RESOURCE_EXHAUSTED", (("retry-after-ms", "soon"),), errors.NoSlot, None),
        ("FAILED_PRECONDITION", (), errors.InvalidSlot, None),
        ("UNAVAILABLE", (("retry-after-ms", "5"),), errors.Unavailable, 5),
        ("NOT_FOUND", (), errors.NotFound, None),
        ("UNAUTHENTICATED", (), errors.Unauthenticated, None),
        ("PERMISSION_DENIED", (), errors.PermissionDenied, None),
        ("DEADLINE_EXCEEDED", (), errors.DeadlineExceeded, None),
        ("INTERNAL", (), errors.Internal, None),
        ("ABORTED", (), errors.Unavailable, None),
        ("UNKNOWN", (), errors.Internal, None),
        ("DATA_LOSS", (), errors.Internal, None),
        ("UNIMPLEMENTED", (), errors.Internal, None),
    ],
)
async def test_each_status_is_an_error_of_ours(
    code: str, metadata: Any, kind: type[Exception], hint: int | None
) -> None:
    def refuse(request: Any, context: Any) -> Any:
        context.set_trailing_metadata(metadata)
        context.abort(grpc.StatusCode[code], "grünes %\n")

    with stock_server(SubmitTask=refuse) as (address, _):
        async with open_channel(address) as channel:
            with pytest.raises(errors.RequestError) as caught:
                await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=10)
    assert type(caught.value) is kind
    assert str(caught.value).endswith("grünes %\n")
    assert getattr(caught.value, "retry_after_ms", None) == hint


async def test_the_server_is_told_the_timeout() -> None:
    seen: list[float] = []

    def handler(request: Any, context: Any) -> pb.SubmitTaskResponse:
        seen.append(context.time_remaining())
        return pb.SubmitTaskResponse()

    with stock_server(SubmitTask=handler) as (address, _):
        async with open_channel(address) as channel:
            await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=1234.5)
    assert 1200 < seen[0] <= 1234.5


async def test_leaving_a_stream_is_seen_by_the_server() -> None:
    ended = threading.Event()

    def endless(request: Any, context: Any) -> Iterator[pb.TaskUpdate]:
        context.add_callback(ended.set)
        yield pb.TaskUpdate(task_id="first")
        ended.wait(30)

    with stock_server(WatchTasks=endless) as (address, _):
        async with open_channel(address) as channel:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                assert (await anext(updates)).task_id == "first"
                assert not ended.is_set()
            assert await trio.to_thread.run_sync(ended.wait, 30)


async def test_a_server_that_stops_fails_the_calls_that_run() -> None:
    may_end = threading.Event()

    def endless(request: Any, context: Any) -> Iterator[pb.TaskUpdate]:
        yield pb.TaskUpdate(task_id="first")
        may_end.wait(30)

    with stock_server(WatchTasks=endless) as (address, server):
        async with open_channel(address) as channel, channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            await anext(updates)
            stopped = server.stop(0)
            with pytest.raises(errors.Unavailable):
                await anext(updates)
        may_end.set()
        stopped.wait()
