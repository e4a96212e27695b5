"""Headers of gRPC calls: checked and read, made and written. Pure, and strict with what comes from outside."""

from __future__ import annotations

import base64
import math
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from blockx.rpc.status import Code, Metadata, Status, shortened, status_of_http

#: As they come from HTTP/2: names and values in bytes.
RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
Headers: TypeAlias = list[tuple[str, str]]

ENCODINGS = ("identity", "gzip", "deflate")
RESPONSE_HEADERS = ((":status", "200"), ("content-type", "application/grpc+proto"))

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_TIMEOUT_UNITS_S = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}
_CONTENT_TYPE = re.compile(r"application/grpc(\+proto)?( *;.*)?")
_NAME = re.compile(r":?[0-9a-z_.!#$%&'*+^`|~-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_METADATA_NAME = re.compile(r"[0-9a-z_.-]+")
_CONNECTION_HEADERS = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})
_TRANSPORT_HEADERS = frozenset({"te", "content-type", "content-length", "host"})
_RESERVED = _TRANSPORT_HEADERS | _CONNECTION_HEADERS
_DETAILS = "grpc-status-details-bin"
_SAFE_IN_MESSAGE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class Refused(Exception):
    """A request that does not become a call; its answer has this HTTP status and this gRPC status."""

    def __init__(self, http_status: str, status: Status) -> None:
        super().__init__(status.message)
        self.http_status = http_status
        self.status = status


@attrs.frozen
class Request:
    """What the headers of a request say; `timeout_s` is None without a deadline."""

    path: str
    timeout_s: float | None
    encoding: str
    metadata: Metadata
    authority: str = ""


@attrs.frozen
class Response:
    """What the headers of an answer say; `status` is set when they end it."""

    encoding: str = "identity"
    status: Status | None = None
    metadata: Metadata = ()


# -- reading


def parse_request(raw: RawHeaders, max_bytes: int) -> Request:
    """The call that a request asks for. Raises Refused when it is malformed, too large, or not gRPC."""
    size = sum(len(name) + len(value) + 32 for name, value in raw)  # RFC 9113, 6.5.2
    if size > max_bytes:
        text = f"the headers have {size} bytes, at most {max_bytes} are accepted"
        raise Refused("431", Status(Code.RESOURCE_EXHAUSTED, text))
    try:
        fields, metadata = _split(raw)
    except ValueError as error:
        raise Refused("400", Status(Code.INTERNAL, f"malformed headers: {error}")) from error
    _check_request(fields)
    timeout_s = _parse_timeout(fields.get("grpc-timeout"))
    encoding = fields.get("grpc-encoding", "identity")
    authority = fields.get(":authority") or fields.get("host", "")
    return Request(fields[":path"], timeout_s, encoding, tuple(metadata), authority)


def parse_response(raw: RawHeaders, *, is_end: bool) -> Response:
    """What an answer begins with; `is_end` tells whether it ends there too. What is not gRPC has a status."""
    fields, metadata = _split_leniently(raw)
    if is_end and "grpc-status" in fields:
        return Response(status=_parse_status(fields, metadata))
    is_grpc = fields.get(":status") == "200" and _CONTENT_TYPE.fullmatch(fields.get("content-type", ""))
    if is_end or not is_grpc:
        return Response(status=status_of_http(fields.get(":status", "")))
    encoding = fields.get("grpc-encoding", "identity")
    if encoding not in ENCODINGS:
        return Response(status=Status(Code.INTERNAL, f"the answer has the unknown encoding {encoding!r}"))
    return Response(encoding, metadata=tuple(metadata))


def parse_trailers(raw: RawHeaders) -> Status:
    """The status at the end of an answer; UNKNOWN when there is none."""
    return _parse_status(*_split_leniently(raw))


def _check_request(fields: Mapping[str, str]) -> None:
    if fields.get(":method") != "POST":
        raise Refused("405", Status(Code.UNIMPLEMENTED, f"the method must be POST, not {fields.get(':method')}"))
    content_type = fields.get("content-type", "")
    if not _CONTENT_TYPE.fullmatch(content_type):
        text = f"the content-type must be application/grpc or application/grpc+proto, not {content_type!r}"
        raise Refused("415", Status(Code.UNKNOWN, text))
    if fields.get("te") != "trailers":
        raise Refused("200", Status(Code.INTERNAL, "the header te: trailers is missing; a proxy may have removed it"))
    if ":path" not in fields or ":scheme" not in fields:
        raise Refused("400", Status(Code.INTERNAL, "malformed headers: :path or :scheme is missing"))
    encoding = fields.get("grpc-encoding", "identity")
    if encoding not in ENCODINGS:
        text = f"the encoding {encoding!r} is not supported, only {', '.join(ENCODINGS)}"
        raise Refused("200", Status(Code.UNIMPLEMENTED, text))


def _parse_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise Refused("200", Status(Code.INTERNAL, f"the header grpc-timeout is malformed: {text!r}"))
    return int(match[1]) * _TIMEOUT_UNITS_S[match[2]]


def _parse_status(fields: Mapping[str, str], metadata: Metadata) -> Status:
    text = fields.get("grpc-status", "")
    try:
        code = Code(int(text))
    except ValueError:
        return Status(Code.UNKNOWN, f"the answer ended with the status {text!r}")
    message = urllib.parse.unquote(fields.get("grpc-message", ""))
    return Status(code, message, tuple(metadata), _decode_leniently(fields.get(_DETAILS, "")))


_Split: TypeAlias = tuple[dict[str, str], list[tuple[str, str | bytes]]]


def _split_leniently(raw: RawHeaders) -> _Split:
    """As `_split`; an answer with malformed headers is one without any, and so without a status."""
    try:
        return _split(raw)
    except ValueError:
        return {}, []


def _split(raw: RawHeaders) -> _Split:
    """Headers that steer the call, and metadata. Raises ValueError for what RFC 9113, 8.2 and 8.3 call malformed."""
    fields: dict[str, str] = {}
    metadata: list[tuple[str, str | bytes]] = []
    is_pseudo_over = False
    for raw_name, raw_value in raw:
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


def _check_header(name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or name in _CONNECTION_HEADERS:
        raise ValueError(f"{name!r} is no header of HTTP/2")
    if _FORBIDDEN_IN_VALUE.search(value):
        raise ValueError(f"the value of {name} has control characters")


def _decode_leniently(text: str) -> bytes:
    try:
        return _decode_binary(text)
    except ValueError:
        return b""


def _decode_binary(text: str) -> bytes:
    text = text.strip(" ")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


# -- writing


def request_headers(
    authority: str, path: str, timeout_s: float, metadata: Metadata = (), *, scheme: str = "http"
) -> Headers:
    """The headers of a call; `timeout_s` may be infinite. Raises ValueError when the metadata cannot be sent."""
    headers = [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", path),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc+proto"),
        ("user-agent", "blockx"),
    ]
    if math.isfinite(timeout_s):
        headers.append(("grpc-timeout", format_timeout(timeout_s)))
    return headers + encode_metadata(metadata)


def response_headers(metadata: Metadata = ()) -> Headers:
    """The headers that begin an answer. Raises ValueError when the metadata cannot be sent."""
    return [*RESPONSE_HEADERS, *encode_metadata(metadata)]


def status_headers(status: Status) -> Headers:
    """The trailers that end an answer. Raises ValueError when the status's metadata cannot be sent."""
    headers = [("grpc-status", str(int(status.code)))]
    if status.message:
        headers.append(("grpc-message", urllib.parse.quote(shortened(status.message), safe=_SAFE_IN_MESSAGE)))
    if status.details:
        headers.append((_DETAILS, _encode_binary(status.details)))
    return headers + encode_metadata(status.metadata)


def refusal_headers(http_status: str, status: Status) -> Headers:
    """The whole answer to a request that does not become a call."""
    headers = [(":status", http_status), *RESPONSE_HEADERS[1:], ("grpc-accept-encoding", ",".join(ENCODINGS))]
    return headers + status_headers(status)


def format_timeout(timeout_s: float) -> str:
    """`grpc-timeout` for so many seconds, in the finest unit that takes at most 8 digits, rounded up to three of them.

    So calls with the same timeout send the same text, though a moment of it has passed: the header table has it.
    """
    for unit in "umSM":
        amount = _rounded_up(timeout_s / _TIMEOUT_UNITS_S[unit])
        if amount < 10**8:
            return f"{amount}{unit}"
    return f"{min(99_999_999, math.ceil(timeout_s / 3600))}H"


def _rounded_up(amount: float) -> int:
    """At least 1, and no more than three digits that are not zero."""
    whole = max(1, math.ceil(round(amount, 6)))
    step: int = 10 ** max(0, len(str(whole)) - 3)
    return -(-whole // step) * step


def encode_metadata(metadata: Metadata) -> Headers:
    """Metadata as headers: bytes under names that end in `-bin`, else printable ASCII. Raises ValueError."""
    headers = []
    for name, value in metadata:
        if not _METADATA_NAME.fullmatch(name) or name.startswith("grpc-") or name in _RESERVED:
            raise ValueError(f"{name!r} cannot be the name of metadata")
        if isinstance(value, bytes) != name.endswith("-bin"):
            raise ValueError(f"metadata {name!r}: bytes go under names that end in -bin, text under all others")
        text = _encode_binary(value) if isinstance(value, bytes) else value
        if not _PRINTABLE.fullmatch(text):
            raise ValueError(f"metadata {name!r} must be printable ASCII")
        headers.append((name, text))
    return headers


def _encode_binary(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")
