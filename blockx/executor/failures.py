"""What becomes of an exception that ends a call: an error code, texts of bounded size, and whether to try again."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from blockx.errors import ReadError, RetryableError, UnserializableValue
from blockx.model import CallErrorCode
from blockx.shown import text_of, type_name

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
    """What to tell of an exception that a function let through. A group of one counts as its only exception.

    Looks at exact classes only, since what an exception says of itself may be anything.
    """
    cause = _only_exception(error)
    kind = type(cause)
    if issubclass(kind, BadArguments):
        return Failure(CallErrorCode.BAD_ARGUMENTS, "TypeError", text_of(cause))
    if issubclass(kind, ValueTooLarge):
        return Failure(CallErrorCode.VALUE_TOO_LARGE, "", text_of(cause))
    code, retryable = CallErrorCode.EXCEPTION, issubclass(kind, RetryableError)
    if issubclass(kind, ReadError):
        code, retryable = CallErrorCode.IO_ERROR, _may_be_repeated(cause)
    elif issubclass(kind, UnserializableValue):
        code = CallErrorCode.UNSERIALIZABLE
    return Failure(code, type_name(kind), _message_of(cause), traceback_of(error), retryable)


def _may_be_repeated(error: Any) -> bool:
    try:
        return bool(error.retryable)
    except BaseException:  # a subclass may compute it
        return False


def cancellation_in(error: BaseException) -> trio.Cancelled | None:
    """A Cancelled of trio's that is this exception, or is in this group."""
    return next((leaf for leaf in _leaves(error) if type(leaf) is trio.Cancelled), None)


def shortened(text: str, max_bytes: int) -> str:
    """Valid Unicode of at most `max_bytes` in UTF-8: lone surrogates escaped, the middle left out."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    gap = b"\n... (shortened) ...\n"
    half = (max_bytes - len(gap)) // 2
    return (encoded[:half] + gap + encoded[-half:]).decode(errors="ignore")


def _members(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions in a group; none for any other exception."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = BaseExceptionGroup.exceptions.__get__(error)
    return members


def _leaves(error: BaseException) -> Iterator[BaseException]:
    pending = [error]
    while pending:
        found = pending.pop()
        members = _members(found)
        pending += members
        if not members:
            yield found


def _only_exception(error: BaseException) -> BaseException:
    while len(members := _members(error)) == 1:
        error = members[0]
    return error


def _message_of(error: BaseException) -> str:
    text = text_of(error)
    if issubclass(type(error), SystemExit):
        return f"the function called sys.exit({text}), which ends this call only; raise an exception or return instead"
    if issubclass(type(error), KeyboardInterrupt):
        return f"the function raised KeyboardInterrupt, which ends this call only {text}".rstrip()
    if type(error) is trio.Cancelled:
        return "the function raised trio.Cancelled where nothing of its own was cancelled; let it through at once"
    return text


def traceback_of(error: BaseException) -> str:
    """Formatted, without the frames of the executor and the SDK, which tell a function's author nothing."""
    try:
        told = traceback.TracebackException.from_exception(error)
        for part in _parts(told):
            theirs = [frame for frame in part.stack if not frame.filename.startswith(_OUR_FOLDERS)]
            part.stack = traceback.StackSummary.from_list(theirs)
        return shortened("".join(told.format()), MAX_TRACEBACK_BYTES)
    except BaseException as failed:  # an exception's class may answer for its parts with what it likes
        return f"(its traceback could not be had: {type_name(type(failed))})\n"


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
