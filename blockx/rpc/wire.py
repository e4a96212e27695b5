"""gRPC over HTTP/2 without IO: bytes in, events out. With `http2` the only module that knows purerpc and h2.

Everything that a peer can get wrong ends here as a refused or failed stream, or as one ProtocolError that ends the
connection. Another HTTP/2 engine can take this module's place: what leaves it are the events below and plain bytes.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from h2.stream import StreamClosedBy
from hyperframe.frame import GoAwayFrame
from purerpc.grpclib.config import GRPCConfiguration
from purerpc.grpclib.connection import GRPCConnection

from blockx.errors import ProtocolError
from blockx.rpc import headers
from blockx.rpc.http2 import Http2, LeanSettings
from blockx.rpc.limits import Limits
from blockx.rpc.messages import Inbound, MessageReceived
from blockx.rpc.status import Code, Metadata, Status, StatusError

_PINNED = {"purerpc": "0.8.0", "h2": "3.2.0", "hpack": "3.0.0", "hyperframe": "5.2.0"}
for _package, _version in _PINNED.items():
    if (_found := importlib.metadata.version(_package)) != _version:
        raise ImportError(f"blockx.rpc reaches into {_package} and needs version {_version}, found {_found}")

#: Large enough to keep h2's work per megabyte small, small enough to be fair to other calls. Bytes.
FRAME_BYTES = 64 * 1024
#: What a peer may send ahead on one connection; given back as soon as it arrives. Bytes.
CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
#: Consumed bytes are given back to the sender of a stream in portions of this size.
WINDOW_STEP_BYTES = 32 * 1024
#: Characters of a log line that may repeat what the peer sent.
MAX_REASON = 300
_INITIAL_WINDOW_BYTES = 65_535  # RFC 9113, 6.9.2
_MAX_STREAM_ID = 2**31 - 1
_CLOSED_BY_RESET = (StreamClosedBy.SEND_RST_STREAM, StreamClosedBy.RECV_RST_STREAM)


@attrs.frozen
class RequestReceived:
    """A client opened a call."""

    stream_id: int
    request: headers.Request


@attrs.frozen
class RequestRefused:
    """A request was answered with an error before it became a call."""

    stream_id: int
    status: Status


@attrs.frozen
class RequestEnded:
    """The client has sent all of its messages."""

    stream_id: int


@attrs.frozen
class ResponseStarted:
    """The server has begun to answer, with its initial metadata."""

    stream_id: int
    metadata: Metadata


@attrs.frozen
class ResponseEnded:
    """The server has ended the call."""

    stream_id: int
    status: Status


@attrs.frozen
class StreamFailed:
    """The peer broke the rules within one call; it is to end with this status."""

    stream_id: int
    status: Status


@attrs.frozen
class StreamReset:
    """The peer ended the call with RST_STREAM."""

    stream_id: int
    error_code: int


@attrs.frozen
class WindowOpened:
    """More may be sent, on one stream or (stream_id 0) on the connection."""

    stream_id: int


@attrs.frozen
class GoAway:
    """The peer takes no new calls; those above `last_stream_id` were not looked at."""

    last_stream_id: int
    error_code: int


Event = (
    RequestReceived
    | RequestRefused
    | MessageReceived
    | RequestEnded
    | ResponseStarted
    | ResponseEnded
    | StreamFailed
    | StreamReset
    | WindowOpened
    | GoAway
)


class Wire(GRPCConnection):  # type: ignore[misc]  # purerpc has no type information
    """One connection's protocol state. Not one method waits; after a ProtocolError only `data_to_send` is of use."""

    def __init__(self, *, client_side: bool, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self._uncredited_bytes = 0
        self._inbound: dict[int, Inbound] = {}
        # In place of purerpc's own __init__, which would set up an h2 connection that is not wanted.
        self.config = GRPCConfiguration(client_side=client_side, max_message_length=limits.max_message_bytes)
        # Our own headers need no check, those of the peer are checked here: h2 would end the connection over them.
        config = h2.config.H2Configuration(
            client_side=client_side,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
        )
        # Above what is advertised one call is refused; far above it the connection ends, as hpack stops in between.
        max_block_bytes = 4 * limits.max_header_bytes
        self._h2 = self.h2_connection = Http2(config, max_block_bytes)
        self._h2.decoder.max_header_list_size = max_block_bytes
        self._set_h2_connection_local_settings()

    def _set_h2_connection_local_settings(self) -> None:
        values = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.max_concurrent_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: self._limits.max_message_bytes + 2 * WINDOW_STEP_BYTES,
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: self._limits.max_header_bytes,
        }
        http2 = self.h2_connection
        http2.local_settings = LeanSettings(self.config.client_side, values)
        http2.max_inbound_frame_size = FRAME_BYTES

    # -- receiving

    def initiate_connection(self) -> None:
        """Queue the preface and our settings; they come before anything else."""
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _INITIAL_WINDOW_BYTES)

    @property
    def has_peer_settings(self) -> bool:
        """Whether the peer has shown that it speaks HTTP/2."""
        return bool(self._h2.has_peer_settings)

    @property
    def is_behind(self) -> bool:
        """Whether frames are left over from the last `receive_data`; `receive_data(b"")` goes on with them."""
        return bool(self._h2.incoming_buffer.has_more)

    def take_idle_frames(self) -> int:
        """How many frames that carry nothing of a call came since the last time; costly ones count more than once."""
        count, self._h2.idle_frames = int(self._h2.idle_frames), 0
        return count

    def forget(self) -> None:
        """The connection is over; nothing more is received."""
        self._h2.forget()

    def receive_data(self, data: bytes) -> list[Event]:
        """What the peer's bytes mean, in order; a batch of frames at a time, see `is_behind`.

        Raises ProtocolError, with a GOAWAY queued, if they are not HTTP/2.
        """
        try:
            return self._events_of(data)
        except h2.exceptions.ProtocolError as error:
            if self._h2.state_machine.state is not h2.connection.ConnectionState.CLOSED:
                self.go_away(error.error_code)  # over a wrong preface h2 sends none
            raise ProtocolError(f"the peer broke HTTP/2 ({type(error).__name__}: {error})"[:MAX_REASON]) from error
        except Exception as error:  # whatever else stumbles over these bytes ends this connection, not the program
            self.go_away(ErrorCodes.INTERNAL_ERROR)
            raise ProtocolError(f"the peer's bytes could not be read: {error!r}"[:MAX_REASON]) from error

    def _events_of(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for event in self._h2.receive_data(data):
            hook = _HOOKS.get(type(event))
            if hook is not None:
                events += hook(self, event)
        return events

    def _request_received(self, event: Any) -> list[Event]:
        stream_id = event.stream_id
        try:
            request = headers.parse_request(event.headers, self._limits.max_header_bytes)
        except headers.Refused as refused:
            self.refuse(stream_id, refused.status, refused.http_status)
            return [RequestRefused(stream_id, refused.status)]
        self._inbound[stream_id] = Inbound(request.encoding, self._limits.max_message_bytes)
        return [RequestReceived(stream_id, request)]

    def _response_received(self, event: Any) -> list[Event]:
        is_end = event.stream_ended is not None
        response = headers.parse_response(event.headers, is_end=is_end)
        if response.status is not None:
            kind = ResponseEnded if is_end else StreamFailed
            return [kind(event.stream_id, response.status)]
        self._inbound[event.stream_id] = Inbound(response.encoding, self._limits.max_message_bytes)
        return [ResponseStarted(event.stream_id, response.metadata)]

    def _trailers_received(self, event: Any) -> list[Event]:
        inbound = self._inbound.get(event.stream_id)
        if not self.config.client_side or inbound is None or inbound.is_ended:
            return []  # trailers of a request say nothing; that it ended is told by h2's next event
        inbound.is_ended = True
        status = headers.parse_trailers(event.headers)
        if status.code is Code.OK and inbound.is_in_mid_message:
            status = Status(Code.INTERNAL, "the answer ends in the middle of a message")
        return [ResponseEnded(event.stream_id, status)]

    def _data_received(self, event: Any) -> list[Event]:
        stream_id, data = event.stream_id, event.data
        self._credit_connection(event.flow_controlled_length)
        inbound = self._inbound.get(stream_id)
        if inbound is None or inbound.is_ended:
            return []
        self._acknowledge(stream_id, inbound, event.flow_controlled_length - len(data))
        try:
            return list(self._feed(stream_id, inbound, data))
        except StatusError as error:
            inbound.is_ended = True
            return [StreamFailed(stream_id, error.status)]

    def _feed(self, stream_id: int, inbound: Inbound, data: bytes) -> list[MessageReceived]:
        held_before = inbound.held_bytes
        try:
            messages = inbound.feed(stream_id, data)
        finally:
            self._held_bytes += inbound.held_bytes - held_before
        self._check_held_bytes()
        return messages

    def _check_held_bytes(self) -> None:
        if self._held_bytes > self._limits.max_buffered_bytes:
            text = f"more than {self._limits.max_buffered_bytes} bytes wait unread on this connection"
            raise StatusError(Status(Code.UNAVAILABLE, text))

    def _stream_ended(self, event: Any) -> list[Event]:
        inbound = self._inbound.get(event.stream_id)
        if inbound is None or inbound.is_ended:
            return []
        inbound.is_ended = True
        if self.config.client_side:
            return [StreamFailed(event.stream_id, Status(Code.INTERNAL, "the answer ended without a status"))]
        if inbound.is_in_mid_message:
            return [StreamFailed(event.stream_id, Status(Code.INTERNAL, "the request ends in the middle of a message"))]
        return [RequestEnded(event.stream_id)]

    def _stream_reset(self, event: Any) -> list[Event]:
        return [StreamReset(event.stream_id, int(event.error_code))]

    def _window_updated(self, event: Any) -> list[Event]:
        return [WindowOpened(event.stream_id)]

    def _remote_settings_changed(self, event: Any) -> list[Event]:
        # The initial window counts for every open stream, the frame size and stream limit for the connection.
        streams = self._h2.streams if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings else ()
        return [WindowOpened(stream_id) for stream_id in (0, *streams)]

    def _connection_terminated(self, event: Any) -> list[Event]:
        return [GoAway(event.last_stream_id, int(event.error_code))]

    def _credit_connection(self, size: int) -> None:
        self._uncredited_bytes += size
        if self._uncredited_bytes >= CONNECTION_WINDOW_BYTES // 4:
            self._h2.increment_flow_control_window(self._uncredited_bytes)
            self._uncredited_bytes = 0

    def consumed(self, stream_id: int, size: int) -> None:
        """Give `size` bytes of read messages back to their sender."""
        inbound = self._inbound.get(stream_id)
        if inbound is not None:
            held_before = inbound.held_bytes
            inbound.read(size)
            self._held_bytes += inbound.held_bytes - held_before
            self._acknowledge(stream_id, inbound, size)

    def _acknowledge(self, stream_id: int, inbound: Inbound, size: int) -> None:
        inbound.unacknowledged_bytes += size
        if inbound.unacknowledged_bytes >= WINDOW_STEP_BYTES and not inbound.is_ended and self._is_open(stream_id):
            self._h2.increment_flow_control_window(inbound.unacknowledged_bytes, stream_id)
            inbound.unacknowledged_bytes = 0

    # -- sending

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for `data_to_send`."""
        return len(self._h2._data_to_send)

    @property
    def max_peer_streams(self) -> int:
        """Calls that the peer lets us have open at once."""
        return int(self._h2.remote_settings.max_concurrent_streams)

    @property
    def connection_room(self) -> int:
        """Bytes of DATA that the connection takes now, in one frame."""
        return int(min(self._h2.max_outbound_frame_size, FRAME_BYTES, self._h2.outbound_flow_control_window))

    def stream_room(self, stream_id: int) -> int:
        """Bytes of DATA that an open stream takes now; may be negative."""
        return int(self._h2.streams[stream_id].outbound_flow_control_window)

    def next_stream_id(self) -> int | None:
        """The id for a new call; None when this connection has used them all up."""
        stream_id: int = (self._h2.highest_outbound_stream_id or -1) + 2
        return stream_id if stream_id <= _MAX_STREAM_ID else None

    def send_request(self, stream_id: int, request: headers.Headers) -> None:
        """Queue the headers of a call."""
        self._h2.send_headers(stream_id, request)

    def send_response_headers(self, stream_id: int, metadata: Metadata = ()) -> None:
        """Queue the headers that come before the first message of an answer. Raises ValueError for bad metadata."""
        self._h2.send_headers(stream_id, headers.response_headers(metadata) if metadata else headers.RESPONSE_HEADERS)

    def send_status(self, stream_id: int, status: Status, *, is_started: bool) -> None:
        """End an answer; `is_started` tells whether its headers went out before."""
        begin = [] if is_started else list(headers.RESPONSE_HEADERS)
        self._h2.send_headers(stream_id, begin + headers.status_headers(status), end_stream=True)

    def refuse(self, stream_id: int, status: Status, http_status: str = "200") -> None:
        """Answer a request that does not become a call."""
        if self._is_open(stream_id):
            self._h2.send_headers(stream_id, headers.refusal_headers(http_status, status), end_stream=True)
        self.settle(stream_id)

    def refuse_stream(self, stream_id: int) -> None:
        """Turn a call away unseen, so that its client may safely try again."""
        self.settle(stream_id, ErrorCodes.REFUSED_STREAM)

    def cancel(self, stream_id: int) -> None:
        """End a call of ours; the server is told if it was not over."""
        self.settle(stream_id, ErrorCodes.CANCEL)

    def settle(self, stream_id: int, error_code: int = ErrorCodes.NO_ERROR) -> None:
        """Forget a stream, resetting it first if either side was still open. Harmless when repeated."""
        inbound = self._inbound.pop(stream_id, None)
        if inbound is not None:
            self._held_bytes -= inbound.held_bytes
        if self._is_open(stream_id):
            self._h2.reset_stream(stream_id, error_code)
        stream = self._h2.streams.pop(stream_id, None)
        if stream is not None and stream.closed_by in _CLOSED_BY_RESET:
            self._h2._closed_streams[stream_id] = stream.closed_by  # late frames on others end the connection anyway

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._h2.ping(b"blockx\0\0")

    def go_away(self, error_code: int = ErrorCodes.NO_ERROR) -> None:
        """Tell the peer that it gets no new calls here. Calls that run go on: h2's own GOAWAY would end them."""
        frame = GoAwayFrame(0, last_stream_id=self._h2.highest_inbound_stream_id, error_code=error_code)
        self._h2._prepare_for_sending([frame])

    def calm_down(self) -> None:
        """Tell the peer that it asks for too much; the connection is to end."""
        self.go_away(ErrorCodes.ENHANCE_YOUR_CALM)

    def _is_open(self, stream_id: int) -> bool:
        stream = self._h2.streams.get(stream_id)
        return stream is not None and stream.open


_HOOKS: Mapping[type, Callable[[Wire, Any], list[Event]]] = {
    h2.events.RequestReceived: Wire._request_received,
    h2.events.ResponseReceived: Wire._response_received,
    h2.events.TrailersReceived: Wire._trailers_received,
    h2.events.DataReceived: Wire._data_received,
    h2.events.StreamEnded: Wire._stream_ended,
    h2.events.StreamReset: Wire._stream_reset,
    h2.events.WindowUpdated: Wire._window_updated,
    h2.events.RemoteSettingsChanged: Wire._remote_settings_changed,
    h2.events.ConnectionTerminated: Wire._connection_terminated,
}
