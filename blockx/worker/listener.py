"""The Unix socket on which executors arrive: who they are is checked here, before anything they say is believed."""

from __future__ import annotations

import os
import secrets
import socket
import struct
from pathlib import Path

import structlog
import trio
from attrs import define, field

from blockx.errors import ProtocolError
from blockx.stream import MessageStream
from blockx.wire import messages as m

log = structlog.get_logger("blockx.worker.executors")

HELLO_TIMEOUT_S = 10


@define(eq=False)
class Seat:
    """One place for an executor process: its one-time token, and where its connection arrives."""

    token: str
    arrived: trio.Event = field(factory=trio.Event)
    left: trio.Event = field(factory=trio.Event)
    stream: MessageStream | None = None
    hello: m.Hello | None = None


class Listener:
    """Hands each connection on the socket to the seat whose token it knows; all others are closed and logged."""

    def __init__(self, directory: Path) -> None:
        """`directory` must be private to this user (mode 0700)."""
        self.path = directory / "executors.sock"
        self._seats: dict[str, Seat] = {}

    def expect(self) -> Seat:
        """A new seat, waiting for its executor."""
        seat = Seat(secrets.token_urlsafe(24))
        self._seats[seat.token] = seat
        return seat

    def dismiss(self, seat: Seat) -> None:
        """The seat's executor is done: its connection is closed, its token worth nothing."""
        self._seats.pop(seat.token, None)
        seat.left.set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled; started once the socket listens."""
        listening = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await listening.bind(str(self.path))
        self.path.chmod(0o600)
        listening.listen(64)
        task_status.started()
        await trio.serve_listeners(self._welcome, [trio.SocketListener(listening)])

    async def _welcome(self, connection: trio.SocketStream) -> None:
        """Lasts as long as the connection: trio closes the socket when this returns."""
        stream = MessageStream(connection)
        seat = await self._seat_of(connection, stream)
        if seat is not None:
            seat.arrived.set()
            await seat.left.wait()

    async def _seat_of(self, connection: trio.SocketStream, stream: MessageStream) -> Seat | None:
        uid = _peer_uid(connection)
        if uid != os.getuid():
            log.warning("a connection of another user on the executors' socket was closed", uid=uid)
            return None
        try:
            with trio.fail_after(HELLO_TIMEOUT_S):
                batch = await stream.receive()
        except (ProtocolError, trio.TooSlowError, trio.BrokenResourceError) as error:
            log.warning("a connection on the executors' socket did not say hello and was closed", error=repr(error))
            return None
        hello = batch[0] if batch else None
        seat = self._seats.pop(hello.token, None) if isinstance(hello, m.Hello) else None
        if seat is None or not isinstance(hello, m.Hello) or hello.protocol != m.PROTOCOL_VERSION:
            log.warning("a connection on the executors' socket has no valid token or protocol and was closed")
            return None
        seat.stream, seat.hello = stream, hello
        return seat


def _peer_uid(connection: trio.SocketStream) -> int:
    packed = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", packed)
    return int(uid)
