"""One call on a connection, seen from the server and from the client. Nothing here touches the socket."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from blockx.rpc.messages import MessageReceived, decompress, frame_message
from blockx.rpc.status import OK, Code, Metadata, Status, StatusError

if TYPE_CHECKING:
    from blockx.rpc.link import Link


#: Stands for any empty queue: most calls wait most of the time, and a queue of their own takes 700 bytes.
_NO_MESSAGES: deque[MessageReceived] = deque()


class Stream:
    """Messages in both directions. One task reads, one task writes; they may be the same."""

    def __init__(self, link: Link, stream_id: int) -> None:
        self.stream_id = stream_id
        #: True once nothing more may be sent.
        self.is_closed = False
        self._link = link
        self._messages = _NO_MESSAGES
        self._end: Status | None = None
        self._readable = trio.lowlevel.ParkingLot()
        self._writable = trio.lowlevel.ParkingLot()

    async def receive(self) -> bytes | None:
        """The next message, None after the last. Raises StatusError when the call ends otherwise."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._messages:
            if self._end is not None:
                return self._ended(self._end)
            await self._readable.park()
        message = self._messages.popleft()
        if not self._messages:
            self._messages = _NO_MESSAGES
        self._link.consumed(self.stream_id, message.size)
        return decompress(message.data, self._link.limits.max_message_bytes) if message.is_compressed else message.data

    async def receive_only(self) -> bytes:
        """The one message of a unary side, once its sender has ended. Raises StatusError for none or two."""
        message = await self.receive()
        if message is None:
            raise StatusError(Status(Code.INTERNAL, "expected one message, got none"))
        if await self.receive() is not None:
            raise StatusError(Status(Code.INTERNAL, "expected one message, got more"))
        return message

    async def send(self, payload: bytes, *, is_last: bool = False) -> None:
        """Queue one message; waits while the peer or the connection is too slow. Does nothing once the call is over."""
        await trio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(frame_message(payload))
        del payload  # the framed copy is the one that may have to wait
        rest = self._send_some(rest, is_last=is_last)
        if rest:
            self._link.note_unsent(len(rest))
            try:
                await self._send_rest(rest, is_last=is_last)
            finally:
                self._link.note_unsent(-len(rest))

    async def _send_rest(self, rest: memoryview, *, is_last: bool) -> None:
        stalled_since = trio.current_time()
        while rest:
            await self._link.wait_for_room(self.stream_id, self._writable, stalled_since)
            left = self._send_some(rest, is_last=is_last)
            if len(left) < len(rest):
                stalled_since = trio.current_time()
            rest = left

    def _send_some(self, rest: memoryview, *, is_last: bool) -> memoryview:
        """Queue what there is room for; what is left, nothing once the call is over."""
        while rest and not self.is_closed:
            room = self._link.room(self.stream_id)
            if room <= 0:
                return rest
            chunk, rest = rest[:room], rest[room:]
            self._link.send_data(self.stream_id, chunk, is_last=is_last and not rest)
        return rest[:0]

    def send_end(self) -> None:
        """Say that no message follows. Does nothing once the call is over."""
        if not self.is_closed:
            self._link.send_data(self.stream_id, memoryview(b""), is_last=True)

    def message_received(self, message: MessageReceived) -> None:
        if not self._messages:
            self._messages = deque()
        self._messages.append(message)
        self._readable.unpark()

    def window_opened(self) -> None:
        self._writable.unpark_all()

    def over(self, status: Status) -> None:
        """The peer has ended the call, or is gone: nothing more is sent, messages that came may still be read."""
        self.is_closed = True
        self._finish_receiving(status)
        self._writable.unpark_all()

    def failed(self, status: Status) -> None:
        """The call cannot go on here; `status` says why."""
        self.over(status)

    def _finish_receiving(self, status: Status) -> None:
        if self._end is None:
            self._end = status
        self._readable.unpark_all()

    @staticmethod
    def _ended(status: Status) -> None:
        if status.code is not Code.OK:
            raise StatusError(status)


class ServerStream(Stream):
    """The server's side. Everything that the call does happens inside `scope`, and `finish` alone ends it."""

    def __init__(self, link: Link, stream_id: int, deadline: float) -> None:
        super().__init__(link, stream_id)
        self.scope = trio.CancelScope(deadline=deadline)
        #: Sent with the headers of the answer, that is ahead of its first message or its status.
        self.initial_metadata: list[tuple[str, str | bytes]] = []
        self._verdict: Status | None = None
        self._is_started = False

    @property
    def is_answered(self) -> bool:
        """Whether the answer has begun."""
        return self._is_started

    @property
    def verdict(self) -> Status:
        """Why the scope was cancelled."""
        return self._verdict or Status(Code.DEADLINE_EXCEEDED, "the call's deadline has passed")

    async def send(self, payload: bytes, *, is_last: bool = False) -> None:
        """Queue one message of the answer, its headers first. Raises ValueError for bad initial metadata."""
        self._start()
        await super().send(payload, is_last=is_last)

    def _start(self) -> None:
        if not self._is_started and not self.is_closed:
            self._link.send_response_headers(self.stream_id, self.initial_metadata)
            self._is_started = True

    async def wait_to_answer(self) -> None:
        """Wait while the connection's peer leaves too many answers unread."""
        await self._link.wait_to_answer()

    def request_ended(self) -> None:
        self._finish_receiving(OK)

    def failed(self, status: Status) -> None:
        """Cancel the call; its answer is `status`."""
        if self._verdict is None:
            self._verdict = status
        self.scope.cancel()

    def over(self, status: Status) -> None:
        """The client is gone: cancel the call."""
        super().over(status)
        self.failed(status)

    def finish(self, status: Status) -> None:
        """Send the status, unless the peer is gone, and forget the call."""
        if not self.is_closed:
            if self.initial_metadata:
                self._start()
            self.is_closed = True
            self._link.send_status(self.stream_id, status, is_started=self._is_started)
        self._link.remove(self)


class ClientStream(Stream):
    """The client's side. `release` ends it, whatever its state."""

    #: What came with the headers of the answer; empty before, and when the call ended without any.
    initial_metadata: Metadata = ()

    @property
    def status(self) -> Status | None:
        """How the call ended; None while it runs."""
        return self._end

    def release(self) -> None:
        """Forget the call, with RST_STREAM if it is not over."""
        self.is_closed = True
        self._link.remove(self)
