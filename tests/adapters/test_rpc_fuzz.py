"""No bytes may do more than end their own connection: valid conversations, mutated at random, and plain noise.

BLOCKX_FUZZ_INPUTS sets the number of inputs for the protocol alone; whole connections get a fraction of it.
A failure names its input's number and bytes; `BLOCKX_FUZZ_FIRST` begins with that number.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from blockx.errors import ProtocolError, RequestError
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel, Limits, RpcServer, ServerCall, wire
from blockx.rpc.headers import request_headers as our_request_headers
from blockx.rpc.messages import MessageReceived
from blockx.rpc.status import Code, Status
from tests.adapters import rpc_frames as f
from tests.adapters.rpc_peers import REQUEST_SLOT, WATCH, framed, message, request_headers, worker_service

INPUTS = int(os.environ.get("BLOCKX_FUZZ_INPUTS", "3000"))
FIRST = int(os.environ.get("BLOCKX_FUZZ_FIRST", "0"))
LIMITS = Limits(
    max_message_bytes=5000,
    max_header_bytes=2048,
    max_buffered_bytes=12_000,
    max_concurrent_streams=8,
    max_idle_frames=200,
)
GOOD = message(pb.RequestTaskSlotRequest(task_id="t"))
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0"), ("grpc-message", "fine%20"), ("some-bin", "AAA")]
OTHER_ANSWERS = (ANSWER + TRAILERS, [(":status", "100")], [(":status", "502")])
NAMES = ("grpc-timeout", "grpc-encoding", "content-length", "te", ":path", "x-bin", "X", "")
EDGES = (0, 1, 2, 4, 5, 127, 128, 255, 256, 16_384, 65_535, 65_536, 65_537, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)


class Script:
    """The bytes of one peer, made from a seed: a conversation in good order, with as much nonsense as the seed says."""

    def __init__(self, number: int, *, is_client: bool) -> None:
        self.random = random.Random(number)
        self._is_client = is_client
        self._wildness = self.random.choice((0.0, 0.01, 0.05, 0.2, 0.6))
        self._unopened = list(range(1, 60, 2)) if is_client else [1, 3, 5]
        self._open: list[int] = []

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they arrive."""
        data = self._bytes()
        while data:
            size = self.random.choice((1, 9, 30, 200, 5000, 65_536))
            yield data[:size]
            data = data[size:]

    def _bytes(self) -> bytes:
        if self.random.random() < 0.03:
            return self.random.randbytes(self.random.randrange(200))
        frames = [f.settings(), *(self._frame() for _ in range(self.random.randrange(1, 30)))]
        while self._is_wild():
            self._mutate(frames)
        data = bytearray((f.PREFACE if self._is_client else b"") + b"".join(frames))
        while data and self._is_wild():
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        return bytes(data)

    def _is_wild(self) -> bool:
        return self.random.random() < self._wildness

    def _mutate(self, frames: list[bytes]) -> None:
        at = self.random.randrange(len(frames))
        match self.random.randrange(7):
            case 0:
                frames.insert(at, frames[self.random.randrange(len(frames))])
            case 1:
                frames.insert(at, self.random.randbytes(self.random.randrange(30)))
            case 2:
                other = self.random.randrange(len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            case 3:
                frames[at] = frames[at][: self.random.randrange(len(frames[at]) + 1)]
            case 4:
                frames[at] = self._edge().to_bytes(5, "big")[-3:] + frames[at][3:]
            case 5:
                frames[at] = frames[at][:3] + self.random.randbytes(2) + frames[at][5:]
            case _:
                frames[at] *= self.random.choice((2, 30, 300))

    def _frame(self) -> bytes:
        if self._is_wild():
            return self._wild_frame()
        kind = self.random.randrange(12)
        if self._unopened and (kind < 4 or not self._open):
            return self._begin(self._unopened.pop(0))
        if self._open and kind < 10:
            return self._go_on(self.random.choice(self._open))
        stream_id = self.random.choice((0, *self._open))
        return self.random.choice(
            (
                f.frame(f.WINDOW_UPDATE, 0, stream_id, self.random.randrange(1, 9999).to_bytes(4, "big")),
                f.frame(f.PING, 0, 0, bytes(8)),
                f.settings(
                    (3, 100), (4, self.random.choice((0, 10, 65_535, 999_999))), (1, self.random.randrange(9999))
                ),
            )
        )

    def _begin(self, stream_id: int) -> bytes:
        self._open.append(stream_id)
        is_over = self._is_over(stream_id, 0.1) if self._is_client else False
        encoded = self._block(None)
        if self.random.random() < 0.1:
            return f.split_block(stream_id, encoded, [self.random.randrange(40) for _ in range(3)])
        return f.frame(f.HEADERS, f.END_HEADERS | is_over, stream_id, encoded)

    def _go_on(self, stream_id: int) -> bytes:
        if self.random.random() < 0.1:
            self._open.remove(stream_id)
            return f.frame(f.RST_STREAM, 0, stream_id, self.random.randrange(14).to_bytes(4, "big"))
        if not self._is_client and self._is_over(stream_id, 0.2):
            return f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, stream_id, self._block(TRAILERS))
        is_over = self._is_client and self._is_over(stream_id, 0.5)
        return f.frame(f.DATA, f.END_STREAM if is_over else 0, stream_id, self._body())

    def _is_over(self, stream_id: int, chance: float) -> bool:
        if self.random.random() > chance:
            return False
        self._open.remove(stream_id)
        return True

    def _wild_frame(self) -> bytes:
        stream_id, some = self._wild_id(), self.random.randrange
        match some(9):
            case 0:
                encoded = self._block(self.random.choice((None, TRAILERS)))
                flags = some(256)
                return f.frame(
                    self.random.choice((f.HEADERS, f.CONTINUATION, f.PUSH_PROMISE)), flags, stream_id, encoded
                )
            case 1:
                sizes = [some(9) for _ in range(some(20))]
                return f.split_block(stream_id, self._block(None), sizes)
            case 2:
                return f.frame(f.DATA, some(256), stream_id, self._body())
            case 3 | 4:
                kind = self.random.choice((f.RST_STREAM, f.WINDOW_UPDATE))
                return f.frame(kind, 0, stream_id, self._edge().to_bytes(4, "big"))
            case 5:
                return f.settings(*((some(1, 10), self._edge()) for _ in range(some(3))))
            case 6:
                return f.frame(f.PRIORITY, 0, stream_id, self._edge().to_bytes(4, "big") + b"\x10")
            case 7:
                return f.frame(f.GOAWAY, 0, 0, self._edge().to_bytes(4, "big") + bytes(4) + b"too_many_pings")
            case _:
                return f.frame(some(256), some(256), stream_id, self.random.randbytes(some(40)))

    def _block(self, headers: list[tuple[str, str]] | None) -> bytes:
        if headers is None:
            headers = self._first_headers()
        if not self._is_wild():
            return f.block(headers)
        headers = list(headers)
        match self.random.randrange(3):
            case 0:
                return self.random.randbytes(self.random.randrange(60))
            case 1:
                del headers[self.random.randrange(len(headers))]
            case _:
                value = self.random.choice(("", "-1", "9" * 900, "gzip", "é", "x" * 5000))
                headers.insert(self.random.randrange(len(headers) + 1), (self.random.choice(NAMES), value))
        return f.block(headers)

    def _first_headers(self) -> list[tuple[str, str]]:
        if self._is_client:
            return request_headers(self.random.choice(("RequestTaskSlot", "WatchTasks", "SubmitTask")))
        return ANSWER if self.random.random() < 0.9 else self.random.choice(OTHER_ANSWERS)

    def _body(self) -> bytes:
        some = self.random.randrange
        body = self.random.choice((GOOD, GOOD, GOOD * 9, b"", GOOD[:3], framed(bytes(some(4000)))))
        if self._is_wild():
            return bytes([some(256)]) + self._edge().to_bytes(4, "big") + body
        return body

    def _wild_id(self) -> int:
        return self.random.choice((1, 2, 3, 5, 7, 59)) if self.random.random() < 0.8 else self._edge() & (2**31 - 1)

    def _edge(self) -> int:
        return self.random.choice(EDGES)


class Side:
    """What Link does with a Wire, without its tasks."""

    def __init__(self, script: Script, *, is_client: bool) -> None:
        self._random = script.random
        self._is_client = is_client
        self._open: dict[int, bool] = {}
        self._failed: dict[int, Status] = {}
        self.wire = wire.Wire(client_side=is_client, limits=LIMITS)
        self.wire.initiate_connection()
        for stream_id in (1, 3, 5) if is_client else ():
            self.wire.send_request(stream_id, our_request_headers("test", "/a/b", 1.0, (), scheme="http"))
            self._open[stream_id] = False

    def feed(self, data: bytes) -> None:
        """Everything that Link does before it reads on."""
        while True:
            for event in self.wire.receive_data(data):
                self._handle(event)
            for stream_id in list(self._open):
                self._act(stream_id)
            self.check_bounds()
            self.wire.data_to_send()
            if not self.wire.is_behind:
                return
            data = b""

    def check_bounds(self) -> None:
        h2 = self.wire._h2
        assert len(h2.incoming_buffer.data) < 2 * wire.FRAME_BYTES + 1000
        assert sum(len(part.data) for part in h2.incoming_buffer._headers_buffer) <= 4 * LIMITS.max_header_bytes
        assert len(h2.encoder.table_size_changes) <= 2
        assert self.wire.pending_bytes < 500_000
        assert 0 <= self.wire._held_bytes <= LIMITS.max_buffered_bytes + wire.FRAME_BYTES
        assert self.wire._held_bytes == sum(inbound.held_bytes for inbound in self.wire._inbound.values())
        assert set(self.wire._inbound) <= set(self._open)

    def finish(self) -> None:
        """Nothing may be left when the calls are over."""
        for stream_id in list(self._open):
            self.wire.settle(stream_id)
        assert not self.wire._inbound
        assert not self.wire._held_bytes
        assert not [stream_id for stream_id, stream in self.wire._h2.streams.items() if stream.open]

    def _handle(self, event: wire.Event) -> None:
        assert not (self._is_client and isinstance(event, wire.RequestReceived)), "a server opens no streams"
        match event:
            case wire.RequestReceived() if len(self._open) >= LIMITS.max_concurrent_streams:
                self.wire.refuse_stream(event.stream_id)
            case wire.RequestReceived():
                self._open[event.stream_id] = False
            case MessageReceived() if event.stream_id in self._open and self._random.random() < 0.8:
                self.wire.consumed(event.stream_id, event.size)
            case wire.StreamReset() | wire.ResponseEnded():
                self._settle(event.stream_id)
            case wire.StreamFailed() if event.stream_id in self._open:
                self._failed[event.stream_id] = event.status

    def _settle(self, stream_id: int) -> None:
        self._failed.pop(stream_id, None)
        if self._open.pop(stream_id, None) is not None:
            self.wire.settle(stream_id)

    def _act(self, stream_id: int) -> None:
        """What the call's task does, once all that came has been told to it."""
        room = min(self.wire.connection_room, self.wire.stream_room(stream_id))
        failure = self._failed.pop(stream_id, None)
        if failure is not None:
            if not self._is_client:
                self.wire.send_status(stream_id, failure, is_started=self._open[stream_id])
            self._settle(stream_id)
        elif not self._is_client and self._random.random() < 0.5:
            self._answer(stream_id, room)

    def _answer(self, stream_id: int, room: int) -> None:
        if not self._open[stream_id]:
            self.wire.send_response_headers(stream_id)
            self._open[stream_id] = True
        if room > 0:
            self.wire.send_data(stream_id, memoryview(GOOD)[:room], end_stream=False)
        if self._random.random() < 0.5:
            self.wire.send_status(stream_id, Status(Code.OK), is_started=True)
            self._settle(stream_id)


@pytest.mark.parametrize("is_client", [False, True], ids=["server", "client"])
def test_no_bytes_upset_the_protocol(is_client: bool) -> None:
    ended = 0
    for number in range(FIRST, FIRST + INPUTS):
        script = Script(number, is_client=not is_client)
        side = Side(script, is_client=is_client)
        fed: list[bytes] = []
        try:
            for chunk in script.chunks():
                fed.append(chunk)
                side.feed(chunk)
            side.finish()
        except ProtocolError as error:
            if "could not be read" in str(error) or f.goaway_code(side.wire.data_to_send()[-17:]) is None:
                raise AssertionError(f"input {number}: {error}: {_shown(fed)}") from error
            ended += 1
        except Exception as error:
            raise AssertionError(f"input {number}: {_shown(fed)}") from error
    assert 0 < ended < INPUTS


def _shown(fed: list[bytes]) -> str:
    """The input as hexadecimal; what is cut off can be made again from its number."""
    return b"".join(fed)[:5000].hex()


async def _two(request: Any, call: ServerCall, send: Callable[[Any], Awaitable[None]]) -> None:
    await send(pb.TaskUpdate(task_id="1"))
    await trio.lowlevel.checkpoint()
    await send(pb.TaskUpdate(task_id="2", error="x" * 70_000))


async def _never(request: Any, call: ServerCall) -> Any:
    await trio.sleep_forever()


async def test_no_bytes_upset_a_server(autojump_clock: trio.testing.MockClock) -> None:
    server = RpcServer([worker_service(WatchTasks=_two, SubmitTask=_never)], limits=LIMITS)
    for number in range(FIRST, FIRST + INPUTS // 10):
        script = Script(number, is_client=True)
        near, far = trio.testing.memory_stream_pair()
        with capture_logs() as logs:
            async with trio.open_nursery() as nursery, near:
                nursery.start_soon(server.serve_connection, far, "fuzz")
                await _send(script, near)
        assert not server._links
        assert "call failed" not in [log["event"] for log in logs], f"input {number}: {logs}"
        assert [log["event"] for log in logs].count("connection ended") <= 1


async def test_no_bytes_upset_a_channel(autojump_clock: trio.testing.MockClock) -> None:
    for number in range(FIRST, FIRST + INPUTS // 10):
        near, far = trio.testing.memory_stream_pair()
        with capture_logs():
            await _call_all(near, far, number)


async def _call_all(near: trio.abc.HalfCloseableStream, far: trio.abc.HalfCloseableStream, number: int) -> None:
    connects = 0

    async def connect() -> trio.abc.HalfCloseableStream:
        nonlocal connects
        connects += 1
        if connects > 1:
            raise OSError("only one connection")
        return near

    channel = Channel("test:1", limits=LIMITS, connect=connect)

    async def unary() -> None:
        with contextlib.suppress(RequestError):
            await channel.unary(REQUEST_SLOT, pb.RequestTaskSlotRequest(), timeout=100)

    async def stream() -> None:
        with contextlib.suppress(RequestError):
            async with channel.stream(WATCH, pb.WatchTasksRequest(), timeout=100) as updates:
                async for _ in updates:
                    pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.run)
        async with trio.open_nursery() as calls:
            for call in (unary, unary, stream):
                calls.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            async with far:
                await _send(Script(number, is_client=False), far)
        link = channel._link
        assert link is None or not link.streams, f"input {number}"
        channel.close()


async def _send(script: Script, stream: trio.abc.HalfCloseableStream) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # the other side has had enough
        for chunk in script.chunks():
            await stream.send_all(chunk)
            await trio.testing.wait_all_tasks_blocked()
