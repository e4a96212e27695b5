"""Our channel against a stock grpcio server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import open_channel
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT
from tests.contract.grpcio import grpc

METHODS = {"RequestTaskSlot": REQUEST_SLOT, "SubmitTask": SUBMIT}


@contextmanager
def stock_server(compression: Any = None, options: Any = (), **handlers: Callable[[Any, Any], Any]) -> Iterator[str]:
    """The address of a grpcio server with plain functions as handlers."""
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, compression=compression, options=options)
        made = {name: _handler(METHODS[name], function) for name, function in handlers.items()}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("blockx.worker.v1.WorkerService", made)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


def _handler(method: MethodDescriptor, function: Callable[[Any, Any], Any]) -> Any:
    from_bytes = GetMessageClass(method.input_type).FromString
    return grpc.unary_unary_rpc_method_handler(
        function, from_bytes, GetMessageClass(method.output_type).SerializeToString
    )


def echo(request: Any, context: Any) -> pb.RequestTaskSlotResponse:
    return pb.RequestTaskSlotResponse(slot_id=request.task_id)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_answers_are_read(compression: Any) -> None:
    with stock_server(compression, RequestTaskSlot=echo) as address:
        async with open_channel(address) as channel:
            for text in ("täsk", "x" * 3_000_000):
                answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id=text), timeout=10)
                assert answer.slot_id == text


async def test_calls_that_the_server_turns_away_for_their_number_are_made_anew() -> None:
    answers = []
    with stock_server(options=[("grpc.max_concurrent_streams", 3)], RequestTaskSlot=echo) as address:
        async with open_channel(address) as channel, trio.open_nursery() as calls:

            async def one(number: int) -> None:
                answer = await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(task_id=str(number)))
                answers.append(int(answer.slot_id))

            for number in range(500):
                calls.start_soon(one, number)
    assert sorted(answers) == list(range(500))


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

    with stock_server(SubmitTask=refuse) as address:
        async with open_channel(address) as channel:
            with pytest.raises(errors.RequestError) as caught:
                await channel.unary(SUBMIT, pb.SubmitTaskRequest(), timeout=10)
    assert type(caught.value) is kind
    assert str(caught.value).endswith("grünes %\n")
    assert getattr(caught.value, "retry_after_ms", None) == hint
