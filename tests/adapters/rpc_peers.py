"""Peers for the tests of blockx.rpc: a service made of given handlers, and a client that may break every rule."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.events
import trio

from blockx.errors import NotFound
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Limits, RpcServer, ServerCall, Service

WORKER = pb.DESCRIPTOR.services_by_name["WorkerService"]
REQUEST_SLOT = WORKER.methods_by_name["RequestTaskSlot"]
SUBMIT = WORKER.methods_by_name["SubmitTask"]
WATCH = WORKER.methods_by_name["WatchTasks"]
READ = WORKER.methods_by_name["ReadTaskResult"]
PATH = "/blockx.worker.v1.WorkerService/"

Handler = Callable[..., Awaitable[Any]]
Headers = list[tuple[str, str]]


async def echo(request: pb.RequestTaskSlotRequest, call: ServerCall) -> pb.RequestTaskSlotResponse:
    return pb.RequestTaskSlotResponse(slot_id=request.task_id)


async def _not_used(request: Any, call: ServerCall, send: object = None) -> Any:
    raise NotFound("no test uses this method here")


def worker_service(**handlers: Handler) -> Service:
    """WorkerService with the given handlers; RequestTaskSlot echoes the task id unless given."""
    defaults: dict[str, Handler] = {method.name: _not_used for method in WORKER.methods}
    return Service(WORKER, defaults | {"RequestTaskSlot": echo} | handlers)


async def serve(nursery: trio.Nursery, limits: Limits | None = None, **handlers: Handler) -> tuple[RpcServer, str]:
    """A server on a free port of the loopback interface, and its address."""
    server = RpcServer([worker_service(**handlers)], limits=limits)
    bound: str = await nursery.start(server.serve, "127.0.0.1", 0)
    return server, bound


@contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 at which nobody listens: a test's servers may, and nobody else is given it meanwhile."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@attrs.define
class Sleeper:
    """Handlers that never answer, and tell when they begin and when they are cancelled."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)

    async def unary(self, request: Any, call: ServerCall) -> Any:
        await self._sleep()

    async def stream(self, request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
        await send(pb.TaskUpdate(task_id="first"))
        await self._sleep()

    async def _sleep(self) -> None:
        self.begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled.set()
            raise


@attrs.define
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = attrs.field(factory=dict)
    data: bytes = b""
    reset: int | None = None
    is_over: bool = False


def request_headers(method: str = "RequestTaskSlot", /, **changes: str | None) -> Headers:
    """The headers of a proper call, with changes: names in Python's spelling, None leaves a header out."""
    headers: dict[str, str | None] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": PATH + method,
        ":authority": "test",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    pseudo = {"method_": ":method", "path": ":path", "scheme": ":scheme", "authority": ":authority"}
    headers |= {pseudo.get(name, name.replace("_", "-")): value for name, value in changes.items()}
    return [(name, value) for name, value in headers.items() if value is not None]


def message(request: Any, flag: int = 0) -> bytes:
    """A request as it goes on the wire."""
    return framed(request.SerializeToString(), flag)


def framed(data: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


class RawClient:
    """An HTTP/2 client that sends what it is told to."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.answers: dict[int, Answer] = {}
        self.go_away: int | None = None
        self.gives_windows_back = True
        self.pings_answered = 0
        config = h2.config.H2Configuration(
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)

    @classmethod
    async def connect(cls, address: str) -> RawClient:
        host, _, port = address.rpartition(":")
        client = cls(await trio.open_tcp_stream(host, int(port)))
        await client.greet()
        return client

    async def greet(self) -> None:
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def open(self, headers: Headers, data: bytes = b"", *, is_last: bool = True) -> int:
        """Send a request; with no data and `is_last` its headers end it."""
        stream_id: int = self.h2.get_next_available_stream_id()
        self.answers[stream_id] = Answer()
        self.h2.send_headers(stream_id, headers, end_stream=is_last and not data)
        if data:
            self.h2.send_data(stream_id, data, end_stream=is_last)
        await self.flush()
        return stream_id

    async def call(self, headers: Headers, data: bytes = b"", *, is_last: bool = True) -> Answer:
        return await self.answer(await self.open(headers, data, is_last=is_last))

    async def echo(self, text: str) -> str:
        """A call that any healthy connection answers."""
        answer = await self.call(request_headers(), message(pb.RequestTaskSlotRequest(task_id=text)))
        assert answer.headers.get("grpc-status") == "0", answer
        return pb.RequestTaskSlotResponse.FromString(answer.data[5:]).slot_id

    async def answer(self, stream_id: int) -> Answer:
        """All of the answer, once it is over."""
        while not self.answers[stream_id].is_over:
            assert await self.receive(), "the connection ended without an answer"
        return self.answers[stream_id]

    async def until_closed(self) -> None:
        """Read until the server closes the connection."""
        while await self.receive():
            pass

    async def receive(self) -> bool:
        """Take in what comes next; False at the end of the connection."""
        try:
            data = await self.stream.receive_some()
        except trio.BrokenResourceError:
            return False
        for event in self.h2.receive_data(bytes(data)) if data else ():
            self._note(event)
        if data and self.go_away is None:
            await self.flush()
        return bool(data)

    def _note(self, event: Any) -> None:
        match event:
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                self.answers[event.stream_id].headers |= dict(event.headers)
            case h2.events.DataReceived():
                self.answers[event.stream_id].data += event.data
                if self.gives_windows_back:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.answers[event.stream_id].is_over = True
            case h2.events.StreamReset():
                answer = self.answers[event.stream_id]
                answer.reset, answer.is_over = int(event.error_code), True
            case h2.events.PingAckReceived():
                self.pings_answered += 1
            case h2.events.ConnectionTerminated():
                self.go_away = int(event.error_code)
