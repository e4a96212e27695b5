"""A load generator for gRPC servers that costs next to nothing: constant header blocks, frames cut by hand, one socket.

It reads no headers. That a call succeeded shows in its DATA: its length is counted, and a call that fails has none.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import hpack

DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, ACK, END_HEADERS = 1, 1, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER = struct.Struct(">HBBBI")  # 24 bits of length, type, flags, stream
_SETTING = struct.Struct(">HI")
_INITIAL_WINDOW, _WINDOW_UPDATE = 4, 8
_WINDOW = 2**30


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream_id) + payload


class Load:
    """One connection to the server at HOST:PORT; blocking."""

    def __init__(self, address: str, path: str, request: bytes) -> None:
        host, _, port = address.rpartition(":")
        self.data_bytes = 0
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._message = struct.pack(">BI", 0, len(request)) + request
        self._encoder = hpack.Encoder()
        self._fields = _fields(address, path)
        self._headers = self._encoder.encode(self._fields)
        self._next_id = 1
        self._buffer = b""
        self._is_settled = True
        settings = _SETTING.pack(_INITIAL_WINDOW, _WINDOW)
        window = struct.pack(">I", _WINDOW)
        self._socket.sendall(_PREFACE + frame(SETTINGS, 0, 0, settings) + frame(_WINDOW_UPDATE, 0, 0, window))

    def begin(self, calls: int) -> None:
        """Open so many calls, in one write."""
        self._socket.sendall(b"".join(self._call() for _ in range(calls)))

    def _call(self) -> bytes:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        headers = frame(HEADERS, END_HEADERS, stream_id, self._headers)
        if stream_id == 1:  # from now on, all of it stands in the table that both ends keep
            self._headers = self._encoder.encode(self._fields)
        return headers + frame(DATA, END_STREAM, stream_id, self._message)

    def run(self, calls: int, in_flight: int) -> None:
        """Make so many calls, with so many open at any time; returns when all have ended."""
        begun, ended = min(calls, in_flight), 0
        self.begin(begun)
        while ended < calls:
            now = self.receive()
            ended += now
            more = min(now, calls - begun)
            if more:
                self.begin(more)
                begun += more

    def settle(self) -> None:
        """Wait until the server has taken in all that was sent before: it answers a PING behind it."""
        self._socket.sendall(frame(PING, 0, 0, b"settled?"))
        self._is_settled = False
        while not self._is_settled:
            self.receive()

    def receive(self) -> int:
        """Take what has come, at least something; the number of calls that ended with it."""
        data = self._socket.recv(256 * 1024)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data
        return sum(self._take(*parts) for parts in self._frames())

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        buffer, at = self._buffer, 0
        while len(buffer) >= at + 9:
            high, low, kind, flags, _ = _HEADER.unpack_from(buffer, at)
            end = at + 9 + (high << 8 | low)
            if len(buffer) < end:
                break
            yield kind, flags, buffer[at + 9 : end]
            at = end
        self._buffer = buffer[at:]

    def _take(self, kind: int, flags: int, payload: bytes) -> int:
        if kind == DATA:
            self.data_bytes += len(payload)
        elif kind == HEADERS:
            return flags & END_STREAM
        elif kind == SETTINGS and not flags & ACK:
            self._socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == PING:
            self._is_settled = True
        return 0

    def close(self) -> None:
        self._socket.close()


def _fields(address: str, path: str) -> list[tuple[str, str]]:
    """What stock clients send with each call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", address),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-load/1"),
        ("grpc-accept-encoding", "identity, deflate, gzip"),
    ]
