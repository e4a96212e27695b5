"""What becomes of an exception that ends a call: an error code, texts of bounded size, and whether to try again."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import trio
from attrs import frozen

from blockx.errors import ReadError, RetryableError, UnserializableValue
from blockx.model import CallErrorCode

MAX_MESSAGE_BYTES = 4 * 1024
MAX_TRACEBACK_BYTES = 16 * 1024

_PACKAGE = Path(__file__).resolve().parent.parent
_OUR_FOLDERS = (f"{_PACKAGE}/executor/", f"{_PACKAGE}/sdk/", f"{_PACKAGE}/wire/")


class BadArguments(TypeError):
    """A call's arguments do not fit the signature of its function."""


class ValueTooLarge(Exception):
    """A call's value does not fit a frame."""


@frozen
class Failure:
    """Why an attempt of a call failed. The texts are valid Unicode and of bounded size."""

    code: CallErrorCode
    error_type: str = ""
    message: str = ""
    traceback: str = ""
    retryable: bool = False

    def as_fields(self) -> list[str]:
        """As the message CallFailed carries it."""
        return [self.code.name, self.error_type, shortened(self.message, MAX_MESSAGE_BYTES), self.traceback]


def failure_of(error: BaseException) -> Failure:
    """What to tell of an exception that a function let through. A group of one counts as its only exception."""
    cause = _only_exception(error)
    code, retryable = CallErrorCode.EXCEPTION, isinstance(cause, RetryableError)
    if isinstance(cause, ReadError):
        code, retryable = CallErrorCode.IO_ERROR, cause.retryable
    elif isinstance(cause, BadArguments):
        return Failure(CallErrorCode.BAD_ARGUMENTS, "TypeError", str(cause))
    elif isinstance(cause, ValueTooLarge):
        return Failure(CallErrorCode.VALUE_TOO_LARGE, "", str(cause))
    elif isinstance(cause, UnserializableValue):
        code = CallErrorCode.UNSERIALIZABLE
    return Failure(code, type(cause).__qualname__, _message_of(cause), _traceback_of(error), retryable)


def is_cancellation(error: BaseException) -> bool:
    """Whether trio's Cancelled is in this exception: it must go on to the cancel scope that it belongs to."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[0] is not None
    return isinstance(error, trio.Cancelled)


def shortened(text: str, max_bytes: int) -> str:
    """Valid Unicode of at most `max_bytes` in UTF-8: lone surrogates escaped, the middle left out."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    gap = b"\n... (shortened) ...\n"
    half = (max_bytes - len(gap)) // 2
    return (encoded[:half] + gap + encoded[-half:]).decode(errors="ignore")


def _only_exception(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as failed:  # the exception class is the user's
        text = f"(its text could not be had: {type(failed).__name__})"
    if isinstance(error, SystemExit):
        return f"the function called sys.exit({text}), which ends this call only; raise an exception or return instead"
    if isinstance(error, KeyboardInterrupt):
        return f"the function raised KeyboardInterrupt, which ends this call only {text}".rstrip()
    return text


def _traceback_of(error: BaseException) -> str:
    """Formatted, without the frames of the executor and the SDK, which tell a function's author nothing."""
    told = traceback.TracebackException.from_exception(error)
    for part in _parts(told):
        theirs = [frame for frame in part.stack if not frame.filename.startswith(_OUR_FOLDERS)]
        part.stack = traceback.StackSummary.from_list(theirs)
    return shortened("".join(told.format()), MAX_TRACEBACK_BYTES)


def _parts(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """An exception as told, its causes, contexts and members; each once."""
    pending, seen = [told], set[int]()
    while pending:
        part = pending.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            linked = [part.__cause__, part.__context__, *(part.exceptions or ())]
            pending += [other for other in linked if other is not None]
