"""The bounds of one gRPC server or channel: sizes, counts and times, each with its unit in its name."""

from __future__ import annotations

import attrs
from attrs.validators import ge, gt

MIB = 1024 * 1024
#: What an unread message counts beside its content, about as much as it takes: millions of empty ones are not free.
MESSAGE_OVERHEAD_BYTES = 128


@attrs.frozen(kw_only=True)
class Limits:
    """Everything that a peer may use up, and how long it may be silent. The same class serves both ends.

    Sizes are in bytes, times in seconds. Raises ValueError when a value is out of range or two contradict each other.
    """

    #: One message, compressed or not. 4 MiB is what stock gRPC clients accept.
    max_message_bytes: int = attrs.field(default=4 * MIB, validator=ge(1))
    #: One header block, counted as HTTP/2 does (32 bytes on top of each name and value).
    max_header_bytes: int = attrs.field(default=16 * 1024, validator=ge(1024))
    #: Calls that one connection may have open at once; more are refused and may be tried again.
    max_concurrent_streams: int = attrs.field(default=1000, validator=ge(1))
    #: Connections that a server holds at once; more are closed as they arrive.
    max_connections: int = attrs.field(default=1000, validator=ge(1))
    #: Bytes received on one connection that nobody has read yet, over all its calls; see MESSAGE_OVERHEAD_BYTES.
    max_buffered_bytes: int = attrs.field(default=64 * MIB)
    #: Frames that carry nothing of a call (PING, PRIORITY, empty DATA, ...) which a peer may send at once, and a tenth
    #: of them each second, on top of those that answer what is sent to it. More end the connection.
    max_idle_frames: int = attrs.field(default=4000, validator=ge(100))
    #: Calls that a peer may reset before their answer begins, or send malformed, at once; and a tenth of them each
    #: second, and one for each call that is answered. More end the connection.
    max_dropped_calls: int = attrs.field(default=2000, validator=ge(1))
    #: Bytes queued for one connection before senders have to wait for a slow reader.
    send_buffer_bytes: int = attrs.field(default=256 * 1024, validator=ge(16 * 1024))
    #: Bytes of messages on one connection that wait for a slow reader; above it, no further answer is begun.
    max_unsent_bytes: int = attrs.field(default=16 * MIB, validator=ge(1))
    #: How long a new connection may take until it has sent its HTTP/2 settings.
    handshake_timeout_s: float = attrs.field(default=10.0, validator=gt(0))
    #: A connection that was silent for so long is asked for a sign of life (PING).
    keepalive_interval_s: float = attrs.field(default=30.0, validator=gt(0))
    #: ... and is given up when it does not answer for so long.
    keepalive_timeout_s: float = attrs.field(default=10.0, validator=gt(0))
    #: How long a message may wait for a peer that takes nothing of it, though it shows signs of life.
    stall_timeout_s: float = attrs.field(default=300.0, validator=gt(0))
    #: Opening a connection, at most.
    connect_timeout_s: float = attrs.field(default=5.0, validator=gt(0))
    #: After a failed attempt to connect, calls fail at once for so long; doubled with each further failure ...
    backoff_min_s: float = attrs.field(default=0.1, validator=gt(0))
    #: ... up to this.
    backoff_max_s: float = attrs.field(default=5.0, validator=gt(0))

    def __attrs_post_init__(self) -> None:
        if self.max_buffered_bytes < self.max_message_bytes + MESSAGE_OVERHEAD_BYTES:
            text = f"max_buffered_bytes must be at least max_message_bytes + {MESSAGE_OVERHEAD_BYTES}"
            raise ValueError(f"{text}: one whole message has to fit")
        if self.backoff_max_s < self.backoff_min_s:
            raise ValueError("backoff_max_s must be at least backoff_min_s")
