"""gRPC over HTTP/2 without IO: bytes in, events out. The only module that knows purerpc and h2.

Everything that a peer can get wrong ends here as a refused or failed stream, or as one ProtocolError that ends the
connection. Another HTTP/2 engine can take this module's place: what leaves it are the events below and plain bytes.
"""

from __future__ import annotations

import base64
import importlib.metadata
import logging
import math
import re
import struct
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.frame_buffer
import h2.settings
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame
from purerpc.grpclib.config import GRPCConfiguration
from purerpc.grpclib.connection import GRPCConnection
from purerpc.grpclib.headers import b64encode

from blockx.errors import ProtocolError
from blockx.rpc.limits import Limits
from blockx.rpc.status import Code, Metadata, Status, StatusError, shortened, status_of_http, too_large

_PINNED = {"purerpc": "0.8.0", "h2": "3.2.0"}
for _package, _version in _PINNED.items():
    if (_found := importlib.metadata.version(_package)) != _version:
        raise ImportError(f"blockx.rpc reaches into {_package} and needs version {_version}, found {_found}")

# hpack logs every header at DEBUG, with its value: slow, and no place for tokens.
logging.getLogger("hpack").setLevel(logging.INFO)

#: Large enough to keep h2's work per megabyte small, small enough to be fair to other calls. Bytes.
FRAME_BYTES = 64 * 1024
#: What a peer may send ahead on one connection; given back as soon as it arrives. Bytes.
CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
#: Consumed bytes are given back to the sender of a stream in portions of this size.
WINDOW_STEP_BYTES = 32 * 1024
_INITIAL_WINDOW_BYTES = 65_535  # RFC 9113, 6.9.2
_MAX_STREAM_ID = 2**31 - 1

_PREFIX = struct.Struct(">BI")  # gRPC: flag "compressed", then the length
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_TIMEOUT_UNITS_S = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}
_CONTENT_TYPE = re.compile(r"application/grpc(\+proto)?( *;.*)?")
_NAME = re.compile(r":?[0-9a-z_.!#$%&'*+^`|~-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_METADATA_NAME = re.compile(r"[0-9a-z_.-]+")
_CONNECTION_HEADERS = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})
_TRANSPORT_HEADERS = frozenset({"te", "content-type", "content-length", "host"})
_SAFE_IN_MESSAGE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_ENCODINGS = ("identity", "gzip", "deflate")
_GZIP_OR_ZLIB = 47  # zlib's wbits: either header, found by itself


@attrs.frozen
class RequestReceived:
    """A client opened a call; `timeout_s` is None without a deadline."""

    stream_id: int
    path: str
    timeout_s: float | None
    metadata: Metadata


@attrs.frozen
class RequestRefused:
    """A request was answered with an error before it became a call."""

    stream_id: int
    status: Status


@attrs.frozen
class MessageReceived:
    """One message, still compressed if `is_compressed`; `size` bytes are to be given back once it is read."""

    stream_id: int
    data: bytes
    is_compressed: bool
    size: int


@attrs.frozen
class RequestEnded:
    """The client has sent all of its messages."""

    stream_id: int


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
    | ResponseEnded
    | StreamFailed
    | StreamReset
    | WindowOpened
    | GoAway
)


class _Refused(Exception):
    def __init__(self, http_status: str, status: Status) -> None:
        super().__init__(status.message)
        self.http_status = http_status
        self.status = status


class _Inbound:
    """Cuts the DATA of one stream into messages and counts the bytes that nobody has read yet."""

    def __init__(self, limits: Limits, encoding: str) -> None:
        self._max_bytes = limits.max_message_bytes
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
        self.held_bytes += len(data)
        messages = []
        while len(self._buffer) >= _PREFIX.size:
            flag, length = _PREFIX.unpack_from(self._buffer)
            self._check(flag, length)
            end = _PREFIX.size + length
            if len(self._buffer) < end:
                break
            messages.append(MessageReceived(stream_id, bytes(self._buffer[_PREFIX.size : end]), bool(flag), end))
            del self._buffer[:end]
        return messages

    def _check(self, flag: int, length: int) -> None:
        if length > self._max_bytes:
            raise StatusError(too_large(str(length), self._max_bytes))
        if flag > 1:
            raise StatusError(Status(Code.INTERNAL, f"a message begins with the unknown flag byte {flag}"))
        if flag and self._encoding == "identity":
            raise StatusError(Status(Code.INTERNAL, "a message is marked compressed, but grpc-encoding is missing"))


class _FrameBuffer(h2.frame_buffer.FrameBuffer):  # type: ignore[misc]  # h2 has no type information
    def _parse_frame_header(self, data: bytes) -> Any:
        """Refuse an overlong frame by its header; h2 would first wait for all of it."""
        frame, length = super()._parse_frame_header(data)
        self._validate_frame_length(length)
        return frame, length


class _Http2(h2.connection.H2Connection):  # type: ignore[misc]  # h2 has no type information
    # h2 remembers how the last so many streams ended, to tell late frames from wrong ones.
    MAX_CLOSED_STREAMS = 4096

    # h2 would end the connection when a peer opens too many streams; Link refuses the stream instead.
    open_inbound_streams = 0
    open_outbound_streams = 0

    def __init__(self, config: h2.config.H2Configuration) -> None:
        super().__init__(config)
        self.incoming_buffer = _FrameBuffer(server=not config.client_side)

    def _receive_goaway_frame(self, frame: Any) -> Any:
        """To h2 a GOAWAY is the end; in truth the calls that run go on."""
        event = h2.events.ConnectionTerminated()
        event.error_code, event.last_stream_id = frame.error_code, frame.last_stream_id
        return [], [event]

    def _receive_window_update_frame(self, frame: Any) -> Any:
        """A window update may cross the end of its stream; h2 3.2 would end the connection over it."""
        try:
            return super()._receive_window_update_frame(frame)
        except h2.exceptions.StreamClosedError:
            return [], []


class Wire(GRPCConnection):  # type: ignore[misc]  # purerpc has no type information
    """One connection's protocol state. Not one method waits; after a ProtocolError only `data_to_send` is of use."""

    def __init__(self, *, client_side: bool, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self._uncredited_bytes = 0
        self._inbound: dict[int, _Inbound] = {}
        self.has_peer_settings = False
        super().__init__(GRPCConfiguration(client_side=client_side, max_message_length=limits.max_message_bytes))
        # Our own headers need no check, those of the peer are checked here: h2 would end the connection over them.
        config = h2.config.H2Configuration(
            client_side=client_side,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
        )
        self._h2 = self.h2_connection = _Http2(config)
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
        http2.local_settings = h2.settings.Settings(client=self.config.client_side, initial_values=values)
        http2.max_inbound_frame_size = FRAME_BYTES
        # Above what is advertised one call is refused; far above it the connection ends, as hpack stops in between.
        http2.decoder.max_header_list_size = 4 * self._limits.max_header_bytes

    # -- receiving

    def initiate_connection(self) -> None:
        """Queue the preface and our settings."""
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _INITIAL_WINDOW_BYTES)

    def receive_data(self, data: bytes) -> list[Event]:
        """What the peer's bytes mean, in order. Raises ProtocolError, with a GOAWAY queued, if they are not HTTP/2."""
        try:
            received = self._h2.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            if self._h2.state_machine.state is not h2.connection.ConnectionState.CLOSED:
                self.go_away(error.error_code)  # over a wrong preface h2 sends none
            raise ProtocolError(f"the peer broke HTTP/2: {error or type(error).__name__}") from error
        except Exception as error:  # whatever else h2 and hpack stumble over was caused by these bytes
            self.go_away(ErrorCodes.INTERNAL_ERROR)
            raise ProtocolError(f"the peer's bytes could not be read: {error!r}") from error
        events: list[Event] = []
        for event in received:
            hook = _HOOKS.get(type(event))
            if hook is not None:
                events += hook(self, event)
        return events

    def _request_received(self, event: Any) -> list[Event]:
        try:
            request, encoding = _parse_request(event.stream_id, event.headers, self._limits)
        except _Refused as refused:
            self.refuse(event.stream_id, refused.status, refused.http_status)
            return [RequestRefused(event.stream_id, refused.status)]
        self._inbound[event.stream_id] = _Inbound(self._limits, encoding)
        return [request]

    def _response_received(self, event: Any) -> list[Event]:
        stream_id = event.stream_id
        fields, metadata = _tolerant_split(event.headers)
        is_grpc = fields.get(":status") == "200" and _CONTENT_TYPE.fullmatch(fields.get("content-type", ""))
        if event.stream_ended and "grpc-status" in fields:
            return [ResponseEnded(stream_id, _parse_status(fields, metadata))]
        if event.stream_ended or not is_grpc:
            return [StreamFailed(stream_id, status_of_http(fields.get(":status", "")))]
        encoding = fields.get("grpc-encoding", "identity")
        if encoding not in _ENCODINGS:
            return [StreamFailed(stream_id, Status(Code.INTERNAL, f"the answer has the unknown encoding {encoding!r}"))]
        self._inbound[stream_id] = _Inbound(self._limits, encoding)
        return []

    def _trailers_received(self, event: Any) -> list[Event]:
        inbound = self._inbound.get(event.stream_id)
        if not self.config.client_side or inbound is None or inbound.is_ended:
            return []  # trailers of a request say nothing; that it ended is told by h2's next event
        inbound.is_ended = True
        status = _parse_status(*_tolerant_split(event.headers))
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
        self._held_bytes += len(data)
        try:
            messages = inbound.feed(stream_id, data)
            self._check_held_bytes()
        except StatusError as error:
            inbound.is_ended = True
            return [StreamFailed(stream_id, error.status)]
        return list(messages)

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
        self.has_peer_settings = True
        # The initial window counts for every open stream, the frame size and stream limit for the connection.
        return [WindowOpened(stream_id) for stream_id in (0, *self._h2.streams)]

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
            inbound.held_bytes -= size
            self._held_bytes -= size
            self._acknowledge(stream_id, inbound, size)

    def _acknowledge(self, stream_id: int, inbound: _Inbound, size: int) -> None:
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

    def send_request(self, stream_id: int, authority: str, path: str, timeout_s: float) -> None:
        """Queue the headers of a call; `timeout_s` may be infinite."""
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc+proto"),
            ("user-agent", "blockx"),
        ]
        if math.isfinite(timeout_s):
            headers.append(("grpc-timeout", format_timeout(timeout_s)))
        self._h2.send_headers(stream_id, headers)

    def send_response_headers(self, stream_id: int) -> None:
        """Queue the headers that come before the first message of an answer."""
        self._h2.send_headers(stream_id, _RESPONSE_HEADERS)

    def send_status(self, stream_id: int, status: Status, *, is_started: bool) -> None:
        """End an answer; `is_started` tells whether its headers went out before."""
        headers = [] if is_started else list(_RESPONSE_HEADERS)
        self._h2.send_headers(stream_id, headers + _status_headers(status), end_stream=True)

    def refuse(self, stream_id: int, status: Status, http_status: str = "200") -> None:
        """Answer a request that does not become a call."""
        if self._is_open(stream_id):
            headers = [(":status", http_status), *_RESPONSE_HEADERS[1:], ("grpc-accept-encoding", ",".join(_ENCODINGS))]
            self._h2.send_headers(stream_id, headers + _status_headers(status), end_stream=True)
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
        if stream is not None:
            self._h2._closed_streams[stream_id] = stream.closed_by

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._h2.ping(b"blockx\0\0")

    def go_away(self, error_code: int = ErrorCodes.NO_ERROR) -> None:
        """Tell the peer that it gets no new calls here. Calls that run go on: h2's own GOAWAY would end them."""
        frame = GoAwayFrame(0, last_stream_id=self._h2.highest_inbound_stream_id, error_code=error_code)
        self._h2._prepare_for_sending([frame])

    def _is_open(self, stream_id: int) -> bool:
        stream = self._h2.streams.get(stream_id)
        return stream is not None and stream.open


_RESPONSE_HEADERS = ((":status", "200"), ("content-type", "application/grpc+proto"))
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


def format_timeout(timeout_s: float) -> str:
    """`grpc-timeout` for so many seconds, rounded up, in the finest unit that takes at most 8 digits."""
    for unit in "umSM":
        amount = max(1, math.ceil(timeout_s / _TIMEOUT_UNITS_S[unit]))
        if amount < 10**8:
            return f"{amount}{unit}"
    return f"{min(99_999_999, math.ceil(timeout_s / 3600))}H"


def encode_metadata(metadata: Metadata) -> list[tuple[str, str]]:
    """Metadata as headers: bytes under names that end in `-bin`, else printable ASCII. Raises ValueError."""
    headers = []
    for name, value in metadata:
        if not _METADATA_NAME.fullmatch(name) or name.startswith("grpc-"):
            raise ValueError(f"{name!r} cannot be the name of metadata")
        if isinstance(value, bytes) != name.endswith("-bin"):
            raise ValueError(f"metadata {name!r}: bytes go under names that end in -bin, text under all others")
        text = b64encode(value) if isinstance(value, bytes) else value
        if not _PRINTABLE.fullmatch(text):
            raise ValueError(f"metadata {name!r} must be printable ASCII")
        headers.append((name, text))
    return headers


def _status_headers(status: Status) -> list[tuple[str, str]]:
    headers = [("grpc-status", str(int(status.code)))]
    if status.message:
        headers.append(("grpc-message", urllib.parse.quote(shortened(status.message), safe=_SAFE_IN_MESSAGE)))
    return headers + encode_metadata(status.metadata)


def _parse_request(stream_id: int, headers: list[tuple[bytes, bytes]], limits: Limits) -> tuple[RequestReceived, str]:
    size = sum(len(name) + len(value) + 32 for name, value in headers)
    if size > limits.max_header_bytes:
        text = f"the headers have {size} bytes, at most {limits.max_header_bytes} are accepted"
        raise _Refused("431", Status(Code.RESOURCE_EXHAUSTED, text))
    try:
        fields, metadata = _split(headers)
    except ValueError as error:
        raise _Refused("400", Status(Code.INTERNAL, f"malformed headers: {error}")) from error
    timeout_s, encoding = _check_fields(fields)
    return RequestReceived(stream_id, fields[":path"], timeout_s, tuple(metadata)), encoding


def _check_fields(fields: Mapping[str, str]) -> tuple[float | None, str]:
    """The deadline in seconds and the encoding of a request that is gRPC. Raises _Refused if it is not."""
    if fields.get(":method") != "POST":
        raise _Refused("405", Status(Code.UNIMPLEMENTED, f"the method must be POST, not {fields.get(':method')}"))
    content_type = fields.get("content-type", "")
    if not _CONTENT_TYPE.fullmatch(content_type):
        text = f"the content-type must be application/grpc or application/grpc+proto, not {content_type!r}"
        raise _Refused("415", Status(Code.UNKNOWN, text))
    if fields.get("te") != "trailers":
        raise _Refused("200", Status(Code.INTERNAL, "the header te: trailers is missing; a proxy may have removed it"))
    if ":path" not in fields or ":scheme" not in fields:
        raise _Refused("400", Status(Code.INTERNAL, "malformed headers: :path or :scheme is missing"))
    encoding = fields.get("grpc-encoding", "identity")
    if encoding not in _ENCODINGS:
        text = f"the encoding {encoding!r} is not supported, only {', '.join(_ENCODINGS)}"
        raise _Refused("200", Status(Code.UNIMPLEMENTED, text))
    return _parse_timeout(fields.get("grpc-timeout")), encoding


def _parse_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise _Refused("200", Status(Code.INTERNAL, f"the header grpc-timeout is malformed: {text!r}"))
    return int(match[1]) * _TIMEOUT_UNITS_S[match[2]]


def _parse_status(fields: Mapping[str, str], metadata: Metadata) -> Status:
    text = fields.get("grpc-status", "")
    try:
        code = Code(int(text))
    except ValueError:
        return Status(Code.UNKNOWN, f"the answer ended with the status {text!r}")
    return Status(code, urllib.parse.unquote(fields.get("grpc-message", "")), tuple(metadata))


Split = tuple[dict[str, str], list[tuple[str, str | bytes]]]


def _tolerant_split(headers: Iterable[tuple[bytes, bytes]]) -> Split:
    """As `_split`; an answer with malformed headers is one without any, and so without a status."""
    try:
        return _split(headers)
    except ValueError:
        return {}, []


def _split(headers: Iterable[tuple[bytes, bytes]]) -> Split:
    """Headers that steer the call, and metadata. Raises ValueError for what RFC 9113, 8.2 and 8.3 call malformed."""
    fields: dict[str, str] = {}
    metadata: list[tuple[str, str | bytes]] = []
    is_pseudo_over = False
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii"), raw_value.decode()
        _check_header(name, value)
        if name[0] == ":":
            if is_pseudo_over or name in fields:
                raise ValueError(f"{name} is repeated or out of place")
            fields[name] = value
            continue
        is_pseudo_over = True
        if name in _TRANSPORT_HEADERS or name.startswith("grpc-"):
            fields[name] = value
        elif name.endswith("-bin"):
            metadata += ((name, _decode_binary(part)) for part in value.split(","))
        else:
            metadata.append((name, value))
    return fields, metadata


def _decode_binary(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _check_header(name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or name in _CONNECTION_HEADERS:
        raise ValueError(f"{name!r} is no header of HTTP/2")
    if _FORBIDDEN_IN_VALUE.search(value):
        raise ValueError(f"the value of {name} has control characters")
