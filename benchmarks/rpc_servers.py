"""The servers that `benchmarks.rpc` compares, with the same three methods. `python -m benchmarks.rpc_servers NAME`.

One serves on a free port of 127.0.0.1, writes the address as its first line, and ends when its process is ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias

import trio
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue, UInt32Value

from blockx.rpc import RpcServer, ServerCall, Service
from blockx.rpc.server import Send
from blockx.telemetry.logs import setup_logs

NAME = "benchmarks.Echo"
Handlers: TypeAlias = Mapping[str, Callable[..., Any]]
STREAMED = BytesValue(value=b"s" * 98)  # 100 bytes with its own prefix


def descriptor() -> ServiceDescriptor:
    """Echo answers what it was sent; Count sends as many messages as it is told; Hold never sends one."""
    file = descriptor_pb2.FileDescriptorProto(name="benchmarks/echo.proto", package="benchmarks", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    service = file.service.add(name="Echo")
    for name, request, is_stream in (
        ("Echo", "BytesValue", False),
        ("Count", "UInt32Value", True),
        ("Hold", "BytesValue", True),
    ):
        service.method.add(
            name=name,
            input_type=f".google.protobuf.{request}",
            output_type=".google.protobuf.BytesValue",
            server_streaming=is_stream,
        )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName(NAME)


def announce(address: str) -> None:
    sys.stdout.write(address + "\n")
    sys.stdout.flush()


# -- blockx


async def _echo(request: BytesValue, call: ServerCall) -> BytesValue:
    return request


async def _count(request: UInt32Value, call: ServerCall, send: Send) -> None:
    for _ in range(request.value):
        await send(STREAMED)


async def _hold(request: BytesValue, call: ServerCall, send: Send) -> None:
    await trio.sleep_forever()


async def _serve_blockx() -> None:
    server = RpcServer([Service(descriptor(), {"Echo": _echo, "Count": _count, "Hold": _hold})])
    async with trio.open_nursery() as nursery:
        announce(await nursery.start(server.serve, "127.0.0.1", 0))


def serve_blockx() -> None:
    setup_logs(level="warning")
    trio.run(_serve_blockx)


# -- purerpc, as it is


async def _serve_purerpc() -> None:
    import purerpc
    from purerpc.rpc import Cardinality, RPCSignature

    async def echo(request: BytesValue) -> BytesValue:
        return request

    async def count(request: UInt32Value) -> AsyncIterator[BytesValue]:
        for _ in range(request.value):
            yield STREAMED

    async def hold(request: BytesValue) -> AsyncIterator[BytesValue]:
        await trio.Event().wait()
        yield STREAMED

    service = purerpc.Service(NAME)
    service.add_method("Echo", echo, RPCSignature(Cardinality.UNARY_UNARY, BytesValue, BytesValue))
    service.add_method("Count", count, RPCSignature(Cardinality.UNARY_STREAM, UInt32Value, BytesValue))
    service.add_method("Hold", hold, RPCSignature(Cardinality.UNARY_STREAM, BytesValue, BytesValue))
    server = purerpc.Server(0)
    server.add_service(service)
    async with trio.open_nursery() as nursery:
        announce(f"127.0.0.1:{await nursery.start(_purerpc_listener(server))}")


def _purerpc_listener(server: Any) -> Callable[..., Any]:
    """`serve_async` takes its task status by name alone, as trio's `start` gives it."""
    return lambda *, task_status: server.serve_async(task_status=task_status)


def serve_purerpc() -> None:
    trio.run(_serve_purerpc)


# -- grpc.aio


async def _serve_grpc_aio() -> None:
    import grpc.aio

    async def echo(request: BytesValue, context: Any) -> BytesValue:
        return request

    async def count(request: UInt32Value, context: Any) -> AsyncIterator[BytesValue]:
        for _ in range(request.value):
            yield STREAMED

    async def hold(request: BytesValue, context: Any) -> AsyncIterator[BytesValue]:
        await asyncio.Event().wait()
        yield STREAMED

    handlers: Handlers = {"Echo": echo, "Count": count, "Hold": hold}
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", 10_000)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, _grpc_handlers(handlers)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(f"127.0.0.1:{port}")
    await server.wait_for_termination()


def _grpc_handlers(handlers: Handlers) -> dict[str, Any]:
    import grpc

    made = {}
    for method in descriptor().methods:
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        made[method.name] = make(
            handlers[method.name],
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=BytesValue.SerializeToString,
        )
    return made


def serve_grpc_aio() -> None:
    asyncio.run(_serve_grpc_aio())


SERVERS: dict[str, Callable[[], None]] = {
    "blockx": serve_blockx,
    "purerpc": serve_purerpc,
    "grpc.aio": serve_grpc_aio,
}
#: The modules that the peers need.
PEERS = {"purerpc": "purerpc", "grpc.aio": "grpc"}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
