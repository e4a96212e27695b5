"""One HTTP/2 connection: the only place that reads or writes its socket. All of it ends with `run`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import structlog
import trio

from blockx.errors import ConnectionFailed, ProtocolError
from blockx.rpc import wire
from blockx.rpc.floods import Patience, TokenBucket, TooMuch
from blockx.rpc.headers import Request, encode_metadata, request_headers
from blockx.rpc.limits import Limits
from blockx.rpc.messages import MessageReceived
from blockx.rpc.status import Code, Metadata, Status, StatusError, connection_lost, status_of_reset
from blockx.rpc.stream import ClientStream, ServerStream, Stream
from blockx.rpc.tls import TlsStream

logger = structlog.get_logger(__name__)

Transport: TypeAlias = trio.abc.HalfCloseableStream
#: What a server does with a new call: register a ServerStream and start its task, or refuse it.
Accept: TypeAlias = Callable[["Link", int, Request], None]

RECEIVE_BYTES = 64 * 1024
#: Answers to PING and SETTINGS, window updates: a peer that makes us queue more than this is not reading.
CONTROL_BYTES = 256 * 1024
#: Calls of a lost connection that are cancelled in one go.
STREAMS_LOST_AT_ONCE = 32
#: Refused requests are logged one by one up to here, then one a second.
REFUSALS_LOGGED = 10
#: For the last words (statuses, GOAWAY) to reach a peer, and for it to close its side.
FAREWELL_S = 1.0


class Link:
    """A connection and its calls. A server gives `accept`; without it the link is a client's."""

    def __init__(self, transport: Transport, limits: Limits, *, peer: str, accept: Accept | None = None) -> None:
        self.limits = limits
        self.peer = peer
        #: The name in the peer's certificate; None without TLS or without a certificate.
        self.peer_identity = transport.peer_identity if isinstance(transport, TlsStream) else None
        #: Server: the calls that run, also those whose peer is gone. Client: the calls not yet released.
        self.streams: dict[int, Stream] = {}
        self._transport = transport
        self._accept = accept
        self._wire = wire.Wire(client_side=accept is None, limits=limits)
        self._wire.initiate_connection()
        self._patience = Patience(limits)
        self._refusals_logged = TokenBucket(REFUSALS_LOGGED)
        self._scheme = "https" if isinstance(transport, TlsStream) else "http"
        self._greeted = trio.Event()
        self._reading = trio.CancelScope()
        self._end_reason: str | None = None
        self._is_draining = False
        self._is_gone = False
        self._is_broken = False
        self._is_flushing = False
        self._flushed = trio.Event()
        self._last_read = trio.current_time()
        self._last_opened = -math.inf
        self._unsent_bytes = 0
        self._answerers = trio.lowlevel.ParkingLot()
        self._write_began = math.inf
        self._writer = trio.lowlevel.ParkingLot()
        self._senders = trio.lowlevel.ParkingLot()
        self._openers = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None

    # -- life

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connection until it is over. Then every call on it is over too, and the socket is closed."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await self._live(nursery, task_status)
        finally:
            # These hold each other in circles, whose memory would else be free only when the oldest garbage is due.
            self.streams.clear()
            self._wire.forget()

    async def _live(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        try:
            nursery.start_soon(self._write)
            nursery.start_soon(self._keep_alive)
            task_status.started()
            with self._reading:
                await self._read()
            await self._lose_streams_in_turn()
            if not self._is_broken:
                await self._say_goodbye()
        finally:
            self._lose_streams()
            nursery.cancel_scope.cancel()
            await trio.aclose_forcefully(self._transport)

    def start_call(self, stream: ServerStream, call: Callable[[], object]) -> None:
        """Register a new call and run its task (an async function) in this connection's nursery."""
        assert self._nursery is not None, "only a running link receives calls"
        self.streams[stream.stream_id] = stream
        self._nursery.start_soon(call)  # type: ignore[arg-type]  # trio's type for async functions is not public

    def drain(self) -> None:
        """Take no new calls; end the connection when the last one is over."""
        if not self._is_draining and not self._is_gone:
            self._is_draining = True
            self._wire.go_away()
            self._wake_writer()
            self._openers.unpark_all()
            self._end_if_drained()

    def cancel_calls(self, status: Status) -> None:
        """Cancel the calls that run here; each is answered with `status`."""
        for stream in list(self.streams.values()):
            stream.failed(status)

    def end(self, reason: str) -> None:
        """End the connection; `reason` is what its calls are told."""
        if self._end_reason is None:
            self._end_reason = reason
        self._reading.cancel()

    async def greeting(self) -> str | None:
        """Wait for the peer's settings, by which it shows that it speaks HTTP/2. Else why the connection ended."""
        await self._greeted.wait()
        return None if self._wire.has_peer_settings else self._end_reason or "it was closed on this side"

    @property
    def is_usable(self) -> bool:
        """Whether a client may open a call here."""
        is_open = not self._is_gone and not self._is_draining and self._end_reason is None
        return is_open and self._wire.next_stream_id() is not None

    def _end_if_drained(self) -> None:
        if self._is_draining and not self.streams:
            self.end("the connection was closed in good order")

    async def _lose_streams_in_turn(self) -> None:
        """As `_lose_streams`, but others have their turn in between: a thousand handlers take their time to end."""
        self._is_gone = True
        streams = list(self.streams.values())
        for stream in streams:
            stream.is_closed = True
        for number, stream in enumerate(streams, start=1):
            stream.over(self._loss())
            if number % STREAMS_LOST_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._lose_streams()

    def _lose_streams(self) -> None:
        self._is_gone = True
        self._greeted.set()
        for stream in list(self.streams.values()):
            stream.over(self._loss())
        self._senders.unpark_all()
        self._openers.unpark_all()

    def _loss(self) -> Status:
        text = f"the connection to {self.peer} is lost: {self._end_reason or 'it was closed on this side'}"
        return connection_lost(text, may_have_arrived=True)

    async def _say_goodbye(self) -> None:
        """Let the peer have what is queued, then wait a moment for it to close: a close in between would discard it."""
        with trio.move_on_after(FAREWELL_S):
            self._is_flushing = True
            self._wake_writer()
            await self._flushed.wait()
            try:
                await self._transport.send_eof()
                while await self._transport.receive_some(RECEIVE_BYTES):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    # -- reading

    async def _read(self) -> None:
        while True:
            try:
                data = await self._transport.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                return self._broke(f"the connection broke ({error})" if str(error) else "the connection broke")
            if not data:
                return self._broke("the peer closed the connection")
            self._last_read = trio.current_time()
            if not await self._take_in(bytes(data)):
                return None

    async def _take_in(self, data: bytes) -> bool:
        """Handle what was read, in batches; others have their turn in between. False when it ends the connection."""
        while self._feed(data):
            while self._wire.pending_bytes > self.limits.send_buffer_bytes + CONTROL_BYTES:
                await self._senders.park()
            if not self._wire.is_behind:
                return True
            data = b""
            await trio.lowlevel.checkpoint()
        return False

    def _broke(self, reason: str) -> None:
        """End the connection without a farewell: nobody is left to hear it."""
        self._is_broken = True
        self.end(reason)

    def _feed(self, data: bytes) -> bool:
        """Pass on what the bytes say. False when they end the connection."""
        try:
            for event in self._wire.receive_data(data):
                self._dispatch(event)
            self._patience.idle_frames(self._wire.take_idle_frames(), trio.current_time())
        except ProtocolError as error:
            if isinstance(error, TooMuch):
                self._wire.calm_down()
            logger.warning("connection ended", peer=self.peer, reason=str(error))
            self.end(str(error))
            return False
        if self._wire.has_peer_settings:
            self._greeted.set()
        if self._wire.pending_bytes:
            self._wake_writer()
        return True

    def _dispatch(self, event: wire.Event) -> None:
        match event:
            case wire.RequestReceived():
                self._request_received(event.stream_id, event.request)
            case wire.RequestRefused():
                self._request_refused(event.status)
            case wire.WindowOpened(stream_id=0):
                self._senders.unpark_all()
                self._openers.unpark_all()
            case wire.GoAway():
                self._go_away_received(event)
            case _:
                stream = self.streams.get(event.stream_id)
                if stream is not None:
                    self._dispatch_to(stream, event)

    def _dispatch_to(self, stream: Stream, event: wire.Event) -> None:
        match event:
            case MessageReceived():
                stream.message_received(event)
            case wire.RequestEnded() if isinstance(stream, ServerStream):
                stream.request_ended()
            case wire.ResponseStarted() if isinstance(stream, ClientStream):
                stream.initial_metadata = event.metadata
            case wire.ResponseEnded() if isinstance(stream, ClientStream):
                stream.over(event.status)
                self._senders.unpark_all()
            case wire.StreamFailed():
                stream.failed(event.status)
                self._senders.unpark_all()
            case wire.StreamReset():
                stream.over(status_of_reset(event.error_code))
                self._senders.unpark_all()
                if isinstance(stream, ServerStream) and not stream.is_answered:
                    self._patience.call_dropped(trio.current_time())
            case wire.WindowOpened():
                stream.window_opened()

    def _request_received(self, stream_id: int, request: Request) -> None:
        assert self._accept is not None, "h2 lets no server open streams"
        if self._is_draining:
            self._wire.refuse_stream(stream_id)
        elif len(self.streams) >= self.limits.max_concurrent_streams:
            self._wire.refuse_stream(stream_id)
            self._patience.call_dropped(trio.current_time())
        else:
            self._accept(self, stream_id, request)

    def _request_refused(self, status: Status) -> None:
        now = trio.current_time()
        if self._refusals_logged.take(1, now):
            logger.info("request refused", peer=self.peer, code=status.code.name, reason=status.message)
        self._patience.call_dropped(now)

    def _go_away_received(self, event: wire.GoAway) -> None:
        if self._accept is not None:
            return  # a client that goes away closes the connection when it is done
        self._is_draining = True
        for stream_id, stream in list(self.streams.items()):
            if stream_id > event.last_stream_id:
                stream.over(connection_lost(f"{self.peer} takes no new calls", may_have_arrived=False))
        self._openers.unpark_all()
        self._senders.unpark_all()
        self._end_if_drained()

    # -- writing

    async def _write(self) -> None:
        while True:
            data = self._wire.data_to_send()
            if not data:
                if self._is_flushing:
                    self._flushed.set()
                await self._writer.park()
                continue
            self._senders.unpark_all()
            self._write_began = trio.current_time()
            try:
                await self._transport.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                return self._broke(f"the connection broke ({error})" if str(error) else "the connection broke")
            self._write_began = math.inf

    def _wake_writer(self) -> None:
        self._writer.unpark()

    def room(self, stream_id: int) -> int:
        """Bytes of DATA that may be queued now for an open stream; 0 or less: wait."""
        if self._wire.pending_bytes >= self.limits.send_buffer_bytes:
            return 0
        return min(self._wire.connection_room, self._wire.stream_room(stream_id))

    async def wait_to_answer(self) -> None:
        """Wait while too much waits already for the peer to read: what is not begun takes no memory."""
        while self._unsent_bytes >= self.limits.max_unsent_bytes:
            await self._answerers.park()

    def note_unsent(self, change_bytes: int) -> None:
        """Count a message that has to wait for its reader, and discount it when it is gone."""
        self._unsent_bytes += change_bytes
        if self._unsent_bytes < self.limits.max_unsent_bytes:
            self._answerers.unpark_all()

    async def wait_for_room(self, stream_id: int, stream_lot: trio.lowlevel.ParkingLot, since: float) -> None:
        """Wait until `room` may have changed, or the stream has ended.

        Raises StatusError when the message has waited too long; `since` is when it began to.
        """
        is_stream_full = self._wire.stream_room(stream_id) <= 0
        with trio.CancelScope(deadline=since + self.limits.stall_timeout_s) as scope:
            await (stream_lot if is_stream_full else self._senders).park()
        if scope.cancelled_caught:
            text = f"the peer took nothing of a message for {self.limits.stall_timeout_s:g} s"
            raise StatusError(Status(Code.UNAVAILABLE, text))

    def send_data(self, stream_id: int, data: memoryview, *, is_last: bool) -> None:
        self._wire.send_data(stream_id, data, end_stream=is_last)
        self._patience.frame_sent()
        self._wake_writer()

    def send_response_headers(self, stream_id: int, metadata: Metadata = ()) -> None:
        self._wire.send_response_headers(stream_id, metadata)
        self._wake_writer()

    def send_status(self, stream_id: int, status: Status, *, is_started: bool) -> None:
        self._wire.send_status(stream_id, status, is_started=is_started)
        self._patience.call_answered()
        self._wake_writer()

    def refuse_call(self, stream_id: int, status: Status) -> None:
        """Answer a request that does not become a call; many of them end the connection."""
        self._wire.refuse(stream_id, status)
        self._wake_writer()
        self._request_refused(status)

    def consumed(self, stream_id: int, size: int) -> None:
        """Give the bytes of a read message back to their sender."""
        if not self._is_gone:
            self._wire.consumed(stream_id, size)
            self._wake_writer()

    def remove(self, stream: Stream) -> None:
        """Forget a call, resetting its stream if it is not over."""
        if self.streams.pop(stream.stream_id, None) is None:
            return
        if not self._is_gone:
            if self._accept is None:
                self._wire.cancel(stream.stream_id)
            else:
                self._wire.settle(stream.stream_id)
            self._wake_writer()
            self._openers.unpark()
        self._end_if_drained()

    async def open_stream(self, path: str, timeout_at: float, metadata: Metadata = ()) -> ClientStream:
        """Begin a call; waits while the server has as many open as it takes.

        Raises ConnectionFailed when the connection ends, ValueError for metadata that cannot be sent.
        """
        encode_metadata(metadata)  # before the wait: who is woken must take the place
        while self.is_usable and len(self.streams) >= self._wire.max_peer_streams:
            await self._openers.park()
        stream_id = self._wire.next_stream_id()
        if not self.is_usable or stream_id is None:
            raise ConnectionFailed(f"the connection to {self.peer} is closing", may_have_arrived=False)
        timeout_s = timeout_at - trio.current_time()
        self._wire.send_request(stream_id, request_headers(self.peer, path, timeout_s, metadata, scheme=self._scheme))
        stream = self.streams[stream_id] = ClientStream(self, stream_id)
        self._last_opened = trio.current_time()
        if self._wire.next_stream_id() is None:
            self.drain()  # its ids are used up
        self._wake_writer()
        return stream

    # -- signs of life

    async def _keep_alive(self) -> None:
        await trio.sleep(self.limits.handshake_timeout_s)
        if not self._wire.has_peer_settings:
            logger.warning("connection ended", peer=self.peer, reason="no HTTP/2 settings came in time")
            return self._broke(f"no HTTP/2 settings came within {self.limits.handshake_timeout_s:g} s")
        while await self._is_alive():
            due = self._last_read + self.limits.keepalive_interval_s
            now = trio.current_time()
            await trio.sleep_until(due if due > now else now + self.limits.keepalive_interval_s)
        logger.warning("connection ended", peer=self.peer, reason="the peer has fallen silent")
        return self._broke("the peer has fallen silent")

    async def _is_alive(self) -> bool:
        now = trio.current_time()
        silence_s = self.limits.keepalive_interval_s
        if now - self._write_began > silence_s + self.limits.keepalive_timeout_s:
            return False  # it may send, but it does not read
        # A call that began after the last word of the peer has shown nothing yet, even if it is over.
        is_idle_client = self._accept is None and not self.streams and self._last_opened <= self._last_read
        if now - self._last_read < silence_s or is_idle_client or self._is_gone:
            return True
        self._wire.ping()
        self._wake_writer()
        await trio.sleep(self.limits.keepalive_timeout_s)
        return self._last_read >= now
