"""The gRPC server: services by descriptor, one task and one cancel scope per call, an orderly end."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import attrs
import structlog
import trio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from blockx.errors import RequestError
from blockx.rpc.headers import Request, encode_metadata, status_headers
from blockx.rpc.interceptors import Interceptor, Proceed
from blockx.rpc.limits import Limits
from blockx.rpc.link import Link, Transport
from blockx.rpc.status import OK, Code, Status, StatusError, status_of
from blockx.rpc.stream import ServerStream
from blockx.rpc.tls import ServerHandshakes, ServerTls

logger = structlog.get_logger(__name__)

Send: TypeAlias = Callable[[Any], Awaitable[None]]
UnaryHandler: TypeAlias = Callable[[Any, "ServerCall"], Awaitable[Message]]
StreamHandler: TypeAlias = Callable[[Any, "ServerCall", Send], Awaitable[None]]


@attrs.define(kw_only=True)
class ServerCall:
    """What a handler may know of its call besides the request."""

    #: Full name, as `blockx.worker.v1.WorkerService.SubmitTask`.
    method: str
    #: The client's address, HOST:PORT.
    peer: str
    #: Pairs in the order they came; values are bytes for names that end in `-bin`.
    metadata: Sequence[tuple[str, str | bytes]] = ()
    #: The name in the client's certificate; None without TLS, and where the server asks for no certificate.
    peer_identity: str | None = None
    #: The name by which the client called this server, as it says.
    authority: str = ""
    #: On trio's clock; infinite when the client set none.
    deadline: float = math.inf
    #: Append pairs to be sent ahead of the answer's first message; later ones are not sent any more.
    initial_metadata: list[tuple[str, str | bytes]] = attrs.field(factory=list)
    #: Sent with the status as `grpc-status-details-bin`: a google.rpc.Status in bytes, or empty for none.
    status_details: bytes = b""
    #: Append pairs to be sent with the status, errors included.
    trailing_metadata: list[tuple[str, str | bytes]] = attrs.field(factory=list)


@attrs.frozen
class _Method:
    descriptor: MethodDescriptor
    handler: UnaryHandler | StreamHandler
    request_class: type[Message]
    response_class: type[Message]


class Service:
    """The handlers of one protobuf service.

    `handlers` has one entry for each method name of `descriptor`: for a unary method
    `async def handler(request, call) -> response`, for one that streams its answer
    `async def handler(request, call, send) -> None`, where `await send(message)` waits for a slow reader.
    Where the requests are a stream, `request` is an async iterator of them; the client may send ahead one message, or a
    few small ones, and then waits. A handler may answer before the last request: the client is told to send no more.
    A handler refuses by raising a RequestError. When its client goes away, or the deadline passes, it is cancelled.

    Raises ValueError when a handler is missing or unknown.
    """

    def __init__(self, descriptor: ServiceDescriptor, handlers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        self.descriptor = descriptor
        self.name: str = descriptor.full_name
        methods = list(descriptor.methods)
        names = {method.name for method in methods}
        if names != set(handlers):
            wrong = ", ".join(sorted(names ^ set(handlers)))
            raise ValueError(f"{self.name} needs one handler for each of its methods; missing or unknown: {wrong}")
        self.methods = {
            f"/{self.name}/{name}": _method(descriptor.methods_by_name[name], handlers[name]) for name in names
        }


def _method(descriptor: MethodDescriptor, handler: UnaryHandler | StreamHandler) -> _Method:
    return _Method(descriptor, handler, GetMessageClass(descriptor.input_type), GetMessageClass(descriptor.output_type))


class RpcServer:
    """Serves gRPC on one address: `bound = await nursery.start(server.serve, host, port)`, later `shutdown`."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        limits: Limits | None = None,
        tls: ServerTls | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._limits = limits or Limits()
        self._handshakes = None if tls is None else ServerHandshakes(tls.context(), self._limits.handshake_timeout_s)
        self._interceptors = tuple(interceptors)
        self._methods = {path: method for service in services for path, method in service.methods.items()}
        self._links: set[Link] = set()
        self._accepting = trio.CancelScope()
        self._is_draining = False
        self._done = trio.Event()
        self._done.set()

    async def serve(self, host: str, port: int, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until `shutdown` has completed; reports the bound address, such as 127.0.0.1:41234 or [::1]:41234.

        Port 0 takes a free one; an empty host all interfaces. Raises OSError when the address cannot be had.
        """
        listeners = await _listen(host, port)
        self._done = trio.Event()
        try:
            async with trio.open_nursery() as connections:
                task_status.started(_address(listeners[0].socket.getsockname()))
                with self._accepting:
                    await trio.serve_listeners(self._serve_socket, listeners, handler_nursery=connections)
        finally:
            self._done.set()

    async def shutdown(self, grace_s: float) -> None:
        """Take no new calls, let running ones go on for `grace_s` seconds, then cancel them; returns at the end."""
        self._is_draining = True
        self._accepting.cancel()
        if self._handshakes is not None:
            self._handshakes.cancel()
        for link in list(self._links):
            link.drain()
        with trio.move_on_after(grace_s):
            await self._done.wait()
        for link in list(self._links):
            link.cancel_calls(Status(Code.UNAVAILABLE, "the server is shutting down"))
        await self._done.wait()

    async def serve_connection(self, transport: Transport, peer: str) -> None:
        """Serve one connection, whatever it runs over, until it ends."""
        if self._is_full(peer):
            await trio.aclose_forcefully(transport)
            return
        link = Link(transport, self._limits, peer=peer, accept=self._accept)
        if self._is_draining:
            link.drain()
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        try:
            peer = _address(stream.socket.getpeername())
        except OSError:  # gone already
            return await trio.aclose_forcefully(stream)
        if self._handshakes is None:
            return await self.serve_connection(stream, peer)
        return await self._serve_encrypted(self._handshakes, stream, peer)

    async def _serve_encrypted(self, handshakes: ServerHandshakes, stream: trio.SocketStream, peer: str) -> None:
        if self._is_full(peer):
            return await trio.aclose_forcefully(stream)
        encrypted = await handshakes.perform(stream, peer)
        return None if encrypted is None else await self.serve_connection(encrypted, peer)

    def _is_full(self, peer: str) -> bool:
        held = len(self._links) + len(self._handshakes or ())
        if held >= self._limits.max_connections:
            logger.warning("connection turned away", peer=peer, reason="too many connections", held=held)
        return held >= self._limits.max_connections

    def _accept(self, link: Link, stream_id: int, request: Request) -> None:
        method = self._methods.get(request.path)
        if method is None:
            link.refuse_call(stream_id, Status(Code.UNIMPLEMENTED, f"there is no method {request.path}"))
            return
        deadline = math.inf if request.timeout_s is None else trio.current_time() + request.timeout_s
        stream = ServerStream(link, stream_id, deadline)
        call = ServerCall(
            method=method.descriptor.full_name,
            peer=link.peer,
            metadata=request.metadata,
            peer_identity=link.peer_identity,
            authority=request.authority,
            deadline=deadline,
            initial_metadata=stream.initial_metadata,
        )
        proceed: Proceed = partial(_outcome, stream, method, call)
        for interceptor in reversed(self._interceptors):
            proceed = partial(_intercepted, interceptor, call, proceed)
        link.start_call(stream, partial(_run_call, stream, call, proceed))


async def _run_call(stream: ServerStream, call: ServerCall, proceed: Proceed) -> None:
    status = await proceed()
    try:
        encode_metadata(call.initial_metadata)
        metadata = (*status.metadata, *call.trailing_metadata)
        status = attrs.evolve(status, metadata=metadata, details=call.status_details or status.details)
        status_headers(status)
    except Exception:  # what a handler has left there cannot be sent: its defect is its call's
        call.initial_metadata.clear()
        status = _unforeseen(call)
    stream.finish(status)


async def _intercepted(interceptor: Interceptor, call: ServerCall, proceed: Proceed) -> Status:
    try:
        return await interceptor(call, proceed)
    except RequestError as error:
        return status_of(error)
    except Exception:
        return _unforeseen(call)


async def _outcome(stream: ServerStream, method: _Method, call: ServerCall) -> Status:
    """Run the handler in the call's scope. Whatever comes of it is a status, but for a cancellation from outside."""
    try:
        with stream.scope:
            await _handle(stream, method, call)
    except StatusError as error:
        return error.status
    except RequestError as error:
        return status_of(error)
    except Exception:
        return _unforeseen(call)
    return stream.verdict if stream.scope.cancelled_caught else OK


async def _handle(stream: ServerStream, method: _Method, call: ServerCall) -> None:
    is_stream = method.descriptor.client_streaming
    await stream.wait_to_answer()
    request = _Requests(stream, method) if is_stream else _parse(method, await stream.receive_only())

    async def send(message: Message) -> None:
        if not isinstance(message, method.response_class):
            raise TypeError(f"{call.method} answers {method.response_class.__name__}, not {type(message).__name__}")
        await stream.wait_to_answer()
        payload = message.SerializeToString()
        del message
        await stream.send(payload)

    if method.descriptor.server_streaming:
        await cast(StreamHandler, method.handler)(request, call, send)
    else:
        await send(await cast(UnaryHandler, method.handler)(request, call))


@attrs.frozen
class _Requests:
    """The requests of one call, as they come; ends after the client's last."""

    _stream: ServerStream
    _method: _Method

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Message:
        data = await self._stream.receive()
        if data is None:
            raise StopAsyncIteration
        return _parse(self._method, data)


def _parse(method: _Method, data: bytes) -> Message:
    try:
        return method.request_class.FromString(data)
    except DecodeError as error:
        text = f"the request is not a valid {method.descriptor.input_type.full_name}"
        raise StatusError(Status(Code.INTERNAL, text)) from error


def _unforeseen(call: ServerCall) -> Status:
    """Log the exception being handled; the peer learns only the id under which it was logged."""
    error_id = secrets.token_hex(6)
    logger.exception("call failed", error_id=error_id, method=call.method, peer=call.peer)
    return Status(Code.INTERNAL, f"unforeseen error, logged by the server as {error_id}")


async def _listen(host: str, port: int) -> list[trio.SocketListener]:
    """Open the port on `host` alone. trio sets no SO_REUSEPORT: a second server on the same port is an error."""
    try:
        return await trio.open_tcp_listeners(port, host=host or None)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error


def _address(name: Any) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
