"""Messages over a trio stream. Reader and writer are independent: neither ever waits for the other."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import trio

from blockx.wire.frames import MAX_FRAME_BYTES, FrameReader, encode
from blockx.wire.messages import Message

READ_BYTES = 256 * 1024
FULL_BYTES = 4 * 1024 * 1024
"""From this many unsent bytes on a stream counts as full: whoever makes work for it is to wait."""


class MessageStream:
    """Sends and receives messages; `run_writer` must run beside, in a task of its own.

    `post` queues and never waits, so that a pure core's commands can call it. Frames queued in one scheduler pass leave
    in one write. The queue has no bound of its own: look at `is_full`, or await `wait_not_full`, before making work.
    """

    def __init__(self, stream: trio.abc.Stream, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._stream = stream
        self._reader = FrameReader(max_frame_bytes)
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._in_flight_bytes = 0
        self._broken = False
        self._work = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    @property
    def unsent_bytes(self) -> int:
        """Bytes posted, and not yet taken by the operating system."""
        return self._queued_bytes + self._in_flight_bytes

    @property
    def is_full(self) -> bool:
        return self.unsent_bytes >= FULL_BYTES

    @property
    def is_broken(self) -> bool:
        """The peer no longer takes anything: posts are dropped. The end is told by `receive`."""
        return self._broken

    def post(self, *messages: Message) -> None:
        """Queue messages for the writer. Dropped if the stream is broken or closed.

        Raises ProtocolError, and queues none of them, if one does not fit a frame.
        """
        frames = [encode(message, self.max_frame_bytes) for message in messages]
        if self._broken:
            return
        self._queue += frames
        self._queued_bytes += sum(map(len, frames))
        self._work.unpark()

    def flush(self) -> None:
        """Write now what is queued, as far as the socket takes it without waiting; the writer does the rest.

        While the writer is in the middle of a write this does nothing: its frame would be torn.
        """
        if self._in_flight_bytes or not self._queue or not isinstance(self._stream, trio.SocketStream):
            return
        data = b"".join(self._queue)
        try:
            sent = os.write(self._stream.socket.fileno(), data)
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        rest = data[sent:]
        self._queue = [rest] if rest else []
        self._queued_bytes = len(rest)
        self._progress.unpark_all()

    async def send(self, *messages: Message) -> None:
        """Queue messages, then wait while the stream is full."""
        self.post(*messages)
        await self.wait_not_full()

    async def wait_not_full(self) -> None:
        """Wait until work may be made again; returns at once when the stream is broken."""
        await trio.lowlevel.checkpoint()
        while self.is_full and not self._broken:
            await self._progress.park()

    async def wait_sent(self) -> None:
        """Wait until the operating system has taken everything that was posted, or the stream is broken."""
        await trio.lowlevel.checkpoint()
        while self.unsent_bytes and not self._broken:
            await self._progress.park()

    async def run_writer(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what is posted, until cancelled or the stream is broken."""
        task_status.started()
        while not self._broken:
            if not self._queue:
                await self._work.park()
            elif not await self._write(self._take()):
                self._break()

    async def receive(self) -> list[Message]:
        """All messages that one read completes: at least one, or none at all when the peer has closed.

        Raises ProtocolError for a malformed frame or an end in mid-frame, BrokenResourceError for a lost connection.
        """
        while True:
            data = await self._stream.receive_some(READ_BYTES)
            if not data:
                self._reader.close()
                return []
            found = self._reader.feed(data)
            if found:
                return found

    async def __aiter__(self) -> AsyncIterator[list[Message]]:
        while batch := await self.receive():
            yield batch

    async def aclose(self) -> None:
        """Close at once; what is unsent is dropped (await `wait_sent` before, if it matters)."""
        self._break()
        await self._stream.aclose()

    def _take(self) -> bytes:
        data = b"".join(self._queue)
        self._queue.clear()
        self._queued_bytes, self._in_flight_bytes = 0, len(data)
        return data

    async def _write(self, data: bytes) -> bool:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._in_flight_bytes = 0
        self._progress.unpark_all()
        return True

    def _break(self) -> None:
        self._broken = True
        self._queue.clear()
        self._queued_bytes = self._in_flight_bytes = 0
        self._work.unpark_all()
        self._progress.unpark_all()
