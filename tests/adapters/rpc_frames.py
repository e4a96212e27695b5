"""HTTP/2 frames by hand, for peers that break the rules."""

from __future__ import annotations

from collections.abc import Sequence

from hpack import Encoder

from tests.adapters.rpc_peers import Headers, request_headers

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32
ENHANCE_YOUR_CALM = 11


def frame(kind: int, flags: int, stream_id: int, body: bytes) -> bytes:
    """One frame."""
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + body


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs))


def block(headers: Headers) -> bytes:
    """A header block that leaves the table of its decoder alone, so that it is good for any stream in any order."""
    encoder = Encoder()
    encoder.header_table_size = 0
    size_change = b"\x20"  # to 0: every connection may repeat it
    encoded: bytes = encoder.encode(headers)
    return size_change + encoded.removeprefix(size_change)


def request(stream_id: int, method: str = "RequestTaskSlot", data: bytes = b"", *, is_last: bool = True) -> bytes:
    """A call: its headers, and DATA if there is any."""
    ends_at_once = is_last and not data
    head = frame(HEADERS, END_HEADERS | (END_STREAM if ends_at_once else 0), stream_id, block(request_headers(method)))
    return head + (frame(DATA, END_STREAM if is_last else 0, stream_id, data) if data else b"")


def split_block(stream_id: int, encoded: bytes, sizes: Sequence[int]) -> bytes:
    """The same header block as HEADERS and CONTINUATION frames, of these sizes and one with the rest."""
    frames, kind = [], HEADERS
    for size in sizes:
        frames.append(frame(kind, 0, stream_id, encoded[:size]))
        kind, encoded = CONTINUATION, encoded[size:]
    return b"".join(frames) + frame(kind, END_HEADERS, stream_id, encoded)


def goaway_code(received: bytes) -> int | None:
    """The error of the last GOAWAY among the frames of a server; None without one."""
    code = None
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        if received[3] == GOAWAY:
            code = int.from_bytes(received[13:17], "big")
        received = received[9 + length :]
    return code
