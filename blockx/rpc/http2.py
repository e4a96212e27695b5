"""h2 as a server needs it that trusts no peer: bounded work and memory for any bytes. Only `wire` uses it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.frame_buffer
import h2.settings
import hpack.hpack
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack.exceptions import HPACKDecodingError
from hyperframe.exceptions import InvalidFrameError
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, SettingsFrame

from blockx.rpc.blocks import BlockDecoder, BlockEncoder

# hpack logs every header at DEBUG, with its value: slow, and no place for tokens.
logging.getLogger("hpack").setLevel(logging.INFO)

#: Frames handled in one go; then other connections have their turn. One that may begin a call counts more than once.
BATCH_FRAMES = 32
HEADERS_COST = 3
#: A header block is decoded in pure Python, so a large one counts once more for each so many bytes.
HEADER_BYTES_COST = 512
#: What makes up one header block: a peer with the smallest frames needs five for 64 KiB.
MAX_CONTINUATIONS = 16
#: HTTP/2 has seven settings; unknown ones are to be ignored.
MAX_SETTINGS = 32
#: A SETTINGS frame goes over all streams, and is answered.
SETTINGS_COST = 20
#: The table of our encoder, whatever larger one the peer offers: it is our memory, and searched one by one.
MAX_ENCODER_TABLE_BYTES = 4096
_FRAME_HEADER_BYTES = 9
_SETTING_BYTES = 6
_MAX_HPACK_SHIFT = 28  # an integer of five octets: 2**35 is far above all that is accepted


class PeerTooBusy(h2.exceptions.ProtocolError):  # type: ignore[misc]  # h2 has no type information
    """The peer asks for more work than is reasonable."""

    error_code = ErrorCodes.ENHANCE_YOUR_CALM


def _decode_integer(data: Any, prefix_bits: int) -> tuple[int, int]:
    """An integer of HPACK and the bytes it took. hpack's own takes any number of octets, in quadratic time."""
    mask = (1 << prefix_bits) - 1
    try:
        number: int = data[0] & mask
        if number < mask:
            return number, 1
        for index, shift in enumerate(range(0, _MAX_HPACK_SHIFT + 1, 7), start=1):
            octet = data[index]
            number += (octet & 0x7F) << shift
            if octet < 0x80:
                return number, index + 1
    except IndexError:
        raise HPACKDecodingError("an integer is cut off") from None
    raise HPACKDecodingError("an integer is too large")


hpack.hpack.decode_integer = _decode_integer


def _cost(frame: Any) -> int:
    if type(frame) is HeadersFrame:
        return HEADERS_COST + int(frame.body_len) // HEADER_BYTES_COST
    if type(frame) is ContinuationFrame:
        return 1 + int(frame.body_len) // HEADER_BYTES_COST
    return 1


class FrameBuffer(h2.frame_buffer.FrameBuffer):  # type: ignore[misc]  # h2 has no type information
    """Cuts bytes into frames, a batch at a time, and joins header blocks; h2's own bounds neither."""

    def __init__(self, *, server: bool, max_block_bytes: int) -> None:
        super().__init__(server=server)
        self.data = b""
        self._max_block_bytes = max_block_bytes
        self._begin = 0
        self._frames_left = 0

    def add_data(self, data: bytes) -> None:
        """Take in bytes, and begin a batch."""
        self.data = self.data[self._begin :]
        self._begin = 0
        self._frames_left = BATCH_FRAMES
        super().add_data(data)

    @property
    def has_more(self) -> bool:
        """Whether the last batch left frames behind; add no bytes, or more, to begin the next."""
        return self._frames_left <= 0 and len(self.data) - self._begin >= _FRAME_HEADER_BYTES

    def __next__(self) -> Any:
        while self._frames_left > 0:
            frame = self._cut()
            if frame is None:
                break
            self._frames_left -= _cost(frame)
            frame = self._update_header_buffer(frame)
            if frame is not None:
                return frame
        raise StopIteration

    def _cut(self) -> Any:
        """The next frame; None when it is not all there. An overlong one is refused by its header."""
        body = self._begin + _FRAME_HEADER_BYTES
        if len(self.data) < body:
            return None
        frame, length = self._parse_frame_header(self.data[self._begin : body])
        self._validate_frame_length(length)
        if type(frame) is SettingsFrame and length > MAX_SETTINGS * _SETTING_BYTES:
            raise PeerTooBusy(f"a SETTINGS frame of {length} bytes")
        if len(self.data) < body + length:
            return None
        try:
            frame.parse_body(memoryview(self.data)[body : body + length])
        except InvalidFrameError as error:
            raise h2.exceptions.FrameDataMissingError("frame data missing or invalid") from error
        self._begin = body + length
        return frame

    def _update_header_buffer(self, frame: Any) -> Any:
        """The frame, or the whole header block that it ends; None in between. Raises when a block grows too large."""
        if len(self._headers_buffer) > MAX_CONTINUATIONS:
            raise PeerTooBusy(f"a header block of more than {MAX_CONTINUATIONS + 1} frames")
        whole = super()._update_header_buffer(frame)
        parts = self._headers_buffer or ([whole] if type(whole) is HeadersFrame else [])
        size = sum(len(part.data) for part in parts)
        if size > self._max_block_bytes:
            raise PeerTooBusy(f"a header block of more than {self._max_block_bytes} bytes")
        return whole


class _Values(list[int | None]):
    """The value of a setting, and those that are not acknowledged yet."""

    def popleft(self) -> int | None:
        return self.pop(0)


class LeanSettings(h2.settings.Settings):  # type: ignore[misc]  # h2 has no type information
    """h2 keeps each value in a deque, and so 10 KiB for each connection."""

    _settings: dict[int, Any]

    def __init__(self, client: bool, initial_values: Mapping[int, int] | None = None) -> None:
        super().__init__(client, initial_values)
        self._settings = {code: _Values(values) for code, values in self._settings.items()}


class Http2(h2.connection.H2Connection):  # type: ignore[misc]  # h2 has no type information
    """h2's connection. `idle_frames` counts what the peer sent that carries nothing of a call."""

    # h2 remembers how the last so many streams ended, to tell late frames from wrong ones.
    MAX_CLOSED_STREAMS = 4096

    # h2 would end the connection when a peer opens too many streams; Link refuses the stream instead.
    open_inbound_streams = 0
    open_outbound_streams = 0

    def __init__(self, config: h2.config.H2Configuration, max_block_bytes: int) -> None:
        super().__init__(config)
        self.incoming_buffer = FrameBuffer(server=not config.client_side, max_block_bytes=max_block_bytes)
        self.remote_settings = LeanSettings(not config.client_side)
        self.encoder = BlockEncoder()
        self.decoder = BlockDecoder(max_block_bytes)
        self.has_peer_settings = False
        self.idle_frames = 0

    def forget(self) -> None:
        """Receive no more; this cuts the circle of references that h2 is."""
        self._frame_dispatch_table.clear()

    def _receive_frame(self, frame: Any) -> Any:
        if not self.has_peer_settings and (type(frame) is not SettingsFrame or "ACK" in frame.flags):
            raise h2.exceptions.ProtocolError("the first frame must be SETTINGS")  # RFC 9113, 3.4
        self.idle_frames += _idle_cost(frame)
        return super()._receive_frame(frame)

    def _receive_headers_frame(self, frame: Any) -> Any:
        if self.config.client_side and frame.stream_id % 2 == 0:
            raise h2.exceptions.ProtocolError("a server opens no streams")
        return super()._receive_headers_frame(frame)

    def _receive_settings_frame(self, frame: Any) -> Any:
        """Keep none but known settings, for h2 stores all; a larger header table than ours is not used."""
        frame.settings = {code: value for code, value in frame.settings.items() if code in _KNOWN_SETTINGS}
        size = frame.settings.get(SettingCodes.HEADER_TABLE_SIZE)
        if size is not None:
            frame.settings[SettingCodes.HEADER_TABLE_SIZE] = min(size, MAX_ENCODER_TABLE_BYTES)
        result = super()._receive_settings_frame(frame)
        changes = self.encoder.table_size_changes
        if len(changes) > 2:
            self.encoder.table_size_changes = [min(changes), changes[-1]]  # RFC 7541, 4.2: these two suffice
        self.encoder.header_table.resized = bool(self.encoder.table_size_changes)  # hpack forgets it over a repetition
        self.has_peer_settings = True
        return result

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


_KNOWN_SETTINGS = frozenset(int(code) for code in SettingCodes)


def _idle_cost(frame: Any) -> int:
    kind = type(frame)
    if kind is HeadersFrame:
        return 0
    if kind is DataFrame:
        return 0 if frame.data or "END_STREAM" in frame.flags else 1
    return SETTINGS_COST if kind is SettingsFrame else 1
