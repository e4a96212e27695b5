"""grpcio, imported once with the setting that its threads need beside trio."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

# Read at import: without it grpcio installs fork handlers that warn about every subprocess.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc
import trio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

__all__ = ["call", "grpc", "in_thread"]

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run blocking client code; when the test is cancelled it is left behind, bounded by its own timeouts."""
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def call(channel: Any, method: MethodDescriptor) -> Any:
    """grpcio's callable for one method."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    to_bytes = GetMessageClass(method.input_type).SerializeToString
    return make(path, request_serializer=to_bytes, response_deserializer=GetMessageClass(method.output_type).FromString)
