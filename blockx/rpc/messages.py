"""Messages on one stream: gRPC's five-byte prefix, compression, and their bounds. Pure."""

from __future__ import annotations

import struct
import zlib

import attrs

from blockx.rpc.limits import MESSAGE_OVERHEAD_BYTES
from blockx.rpc.status import Code, Status, StatusError, too_large

_PREFIX = struct.Struct(">BI")  # flag "compressed", then the length
_GZIP_OR_ZLIB = 47  # zlib's wbits: either header, found by itself


@attrs.frozen
class MessageReceived:
    """One message, still compressed if `is_compressed`; `size` bytes are to be given back once it is read."""

    stream_id: int
    data: bytes
    is_compressed: bool
    size: int


class Inbound:
    """Cuts the DATA of one stream into messages and counts the bytes that nobody has read yet."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._encoding = encoding
        self._buffer = bytearray()
        self.held_bytes = 0
        self.unacknowledged_bytes = 0
        self.is_ended = False

    @property
    def is_in_mid_message(self) -> bool:
        return bool(self._buffer)

    def feed(self, stream_id: int, data: bytes) -> list[MessageReceived]:
        """The messages completed by `data`. Raises StatusError when they are too large or malformed."""
        self._buffer += data
        self.held_bytes += len(data)  # its prefix is part of a message's overhead
        messages = []
        while len(self._buffer) >= _PREFIX.size:
            flag, length = _PREFIX.unpack_from(self._buffer)
            self._check(flag, length)
            end = _PREFIX.size + length
            if len(self._buffer) < end:
                break
            messages.append(MessageReceived(stream_id, bytes(self._buffer[_PREFIX.size : end]), bool(flag), end))
            self.held_bytes += MESSAGE_OVERHEAD_BYTES - _PREFIX.size
            del self._buffer[:end]
        return messages

    def read(self, size: int) -> None:
        """Note that a message of `size` bytes is no longer held here."""
        self.held_bytes -= size + MESSAGE_OVERHEAD_BYTES - _PREFIX.size

    def _check(self, flag: int, length: int) -> None:
        if length > self._max_bytes:
            raise StatusError(too_large(str(length), self._max_bytes))
        if flag > 1:
            raise StatusError(Status(Code.INTERNAL, f"a message begins with the unknown flag byte {flag}"))
        if flag and self._encoding == "identity":
            raise StatusError(Status(Code.INTERNAL, "a message is marked compressed, but grpc-encoding is missing"))


def frame_message(payload: bytes) -> bytes:
    """One message as it goes on the wire, uncompressed."""
    return _PREFIX.pack(0, len(payload)) + payload


def decompress(data: bytes, max_bytes: int) -> bytes:
    """The content of a gzip or deflate message. Raises StatusError when it is malformed or larger than `max_bytes`."""
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        content = inflater.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise StatusError(Status(Code.INTERNAL, f"a message cannot be decompressed: {error}")) from error
    if len(content) > max_bytes:
        raise StatusError(too_large(f"decompressed more than {max_bytes}", max_bytes))
    if not inflater.eof or inflater.unused_data:
        raise StatusError(Status(Code.INTERNAL, "a compressed message is cut off or has bytes behind its end"))
    return content
