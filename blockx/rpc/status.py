"""The one table between our errors and gRPC status codes, used in both directions."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from blockx.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    InvalidSlot,
    NoSlot,
    NotFound,
    PermissionDenied,
    RequestError,
    Unauthenticated,
    Unavailable,
)

RETRY_AFTER_MS = "retry-after-ms"
#: Sent with RESOURCE_EXHAUSTED when a message was too large, so that it is not taken for "no free slot".
MAX_MESSAGE_BYTES = "max-message-bytes"
#: Stock clients take 8 KiB of headers; percent-encoding may triple a message.
MAX_TEXT_BYTES = 2048

Metadata = Sequence[tuple[str, str | bytes]]


class Code(enum.IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@attrs.frozen
class Status:
    """How a call ended: code, text for people, trailing metadata, and `grpc-status-details-bin` as it is."""

    code: Code
    message: str = ""
    metadata: Metadata = ()
    details: bytes = b""


OK = Status(Code.OK)


@attrs.frozen
class ConnectionLost(Status):
    """The end of a call whose connection failed. Made at the client, never sent."""

    may_have_arrived: bool = True


def connection_lost(message: str, *, may_have_arrived: bool) -> ConnectionLost:
    """The status of a call that has no answer; `may_have_arrived` tells whether the server may have begun it."""
    return ConnectionLost(Code.UNAVAILABLE, message, may_have_arrived=may_have_arrived)


class StatusError(Exception):
    """Ends one call with `status`. Inside this package only: callers see errors of blockx.errors."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"{status.code.name}: {status.message}")
        self.status = status


_CODE_OF: dict[type[RequestError], Code] = {
    InvalidArgument: Code.INVALID_ARGUMENT,
    NoSlot: Code.RESOURCE_EXHAUSTED,
    InvalidSlot: Code.FAILED_PRECONDITION,
    Unavailable: Code.UNAVAILABLE,
    NotFound: Code.NOT_FOUND,
    DeadlineExceeded: Code.DEADLINE_EXCEEDED,
    Unauthenticated: Code.UNAUTHENTICATED,
    PermissionDenied: Code.PERMISSION_DENIED,
    Internal: Code.INTERNAL,
}
_ERROR_OF: dict[Code, type[RequestError]] = {code: error for error, code in _CODE_OF.items()} | {
    # Codes that we never send. The first two mean "try again, perhaps elsewhere".
    Code.CANCELLED: Unavailable,
    Code.ABORTED: Unavailable,
    Code.OUT_OF_RANGE: InvalidArgument,
}
# What the gRPC specification makes of an HTTP/2 reset and of an HTTP status; all else is INTERNAL and UNKNOWN.
_REFUSED_STREAM = 7
_CODE_OF_RESET = {8: Code.CANCELLED, 11: Code.UNAVAILABLE, 12: Code.PERMISSION_DENIED}
_CODE_OF_HTTP = {
    "400": Code.INTERNAL,
    "401": Code.UNAUTHENTICATED,
    "403": Code.PERMISSION_DENIED,
    "404": Code.UNIMPLEMENTED,
    "429": Code.UNAVAILABLE,
    "502": Code.UNAVAILABLE,
    "503": Code.UNAVAILABLE,
    "504": Code.UNAVAILABLE,
}


def status_of(error: RequestError) -> Status:
    """The status that a server sends for a refusal; unknown kinds of refusal are INTERNAL."""
    known = (_CODE_OF[kind] for kind in type(error).__mro__ if kind in _CODE_OF)
    hint = error.retry_after_ms if isinstance(error, NoSlot | Unavailable) else None
    return Status(next(known, Code.INTERNAL), str(error), () if hint is None else ((RETRY_AFTER_MS, str(hint)),))


def error_of(status: Status) -> RequestError:
    """The error that a caller sees for a status other than OK."""
    if isinstance(status, ConnectionLost):
        return ConnectionFailed(status.message, may_have_arrived=status.may_have_arrived)
    metadata = dict(status.metadata)
    kind = _ERROR_OF.get(status.code)
    if kind is None:
        return Internal(f"{status.code.name}: {status.message}")
    if kind is NoSlot and MAX_MESSAGE_BYTES in metadata:
        return InvalidArgument(status.message)
    if kind is NoSlot:
        return NoSlot(status.message, retry_after_ms=_whole_number(metadata.get(RETRY_AFTER_MS)))
    if kind is Unavailable:
        return Unavailable(status.message, retry_after_ms=_whole_number(metadata.get(RETRY_AFTER_MS)))
    return kind(status.message)


def too_large(size: str, limit: int) -> Status:
    """The status for a message above the limit, in bytes; `size` is what is known of the message's own."""
    text = f"the message has {size} bytes, at most {limit} are accepted"
    return Status(Code.RESOURCE_EXHAUSTED, text, ((MAX_MESSAGE_BYTES, str(limit)),))


def status_of_reset(error_code: int) -> Status:
    """The status of a call that the peer ended with RST_STREAM."""
    if error_code == _REFUSED_STREAM:
        return connection_lost("the server takes no more calls on this connection", may_have_arrived=False)
    return Status(_CODE_OF_RESET.get(error_code, Code.INTERNAL), f"the peer reset the call (HTTP/2 error {error_code})")


def status_of_http(http_status: str) -> Status:
    """The status of an answer that is not gRPC, as proxies give them."""
    return Status(_CODE_OF_HTTP.get(http_status, Code.UNKNOWN), f"the answer is not gRPC (HTTP status {http_status})")


def shortened(text: str) -> str:
    """`text` cut to what fits into the headers that stock clients accept."""
    return text.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")


def _whole_number(value: str | bytes | None) -> int | None:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else None
