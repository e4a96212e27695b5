"""The exception tree. Every error that a user can meet derives from BlockxError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from blockx.model import TaskResult


class BlockxError(Exception):
    """Base of everything that BlockX raises on purpose."""

    def copy(self) -> Self:
        """An equal error without notes and traceback, for another task to raise."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name != "__notes__"})
        return other


class RequestError(BlockxError):
    """A request was refused; nothing was started or changed by it."""


class InvalidArgument(RequestError):
    """The request itself is wrong; sending it again unchanged will fail again."""


class NoSlot(RequestError):
    """Every slot is taken; `retry_after_ms` is a hint when to ask again (None: no hint)."""

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class InvalidSlot(RequestError):
    """The slot id is unknown, no longer leased, or leased to another task."""


class Unavailable(RequestError):
    """The server is not ready, is draining, or cannot be reached; another one may answer."""

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class ConnectionFailed(Unavailable):
    """The server could not be reached, or the connection was lost before it answered.

    `may_have_arrived` tells whether the request may have reached the server, so that its effect is unknown.
    """

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class NotFound(RequestError):
    """The task is not known here: never submitted, or its result was kept long enough and is gone."""


class DeadlineExceeded(RequestError):
    """The caller's own timeout ran out; whether the request took effect is unknown."""


class Unauthenticated(RequestError):
    """The token or certificate is missing or wrong."""


class PermissionDenied(RequestError):
    """The caller is known, but may not do this."""


class Internal(RequestError):
    """Something unforeseen happened on the server; the message carries the id under which it was logged."""


class NotFinished(BlockxError):
    """The task is known, but has no result yet; watch it, or ask again later."""


class TaskFailed(BlockxError):
    """A task ended FAILED; `result` holds what is known about it, `task_id` is its id where that is known."""

    def __init__(self, result: TaskResult, task_id: str = "") -> None:
        code = "" if result.failure_code is None else f"{result.failure_code.value}: "
        super().__init__(f"{code}{result.failure_message}")
        self.result = result
        self.task_id = task_id


class ConfigError(BlockxError):
    """A setting is unknown, has a bad value, or contradicts another."""


class ProtocolError(BlockxError):
    """The peer sent bytes that are not the protocol; the connection is to be closed."""


class UnserializableValue(BlockxError):
    """A value cannot cross between processes; the message names its type and its path inside the whole."""


class LoadFailed(BlockxError):
    """The functions could not be loaded: an import raised, a requirement is missing, or a name is taken twice."""


class ReadError(BlockxError):
    """A read failed; `retryable` says whether the same read may succeed later."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class CommitRefused(BlockxError):
    """The task has already ended (deadline, watch gone), so its writer may not commit; everything is rolled back."""


class PluginError(BlockxError):
    """Raised by a call builder or writer plugin to fail its task; `retryable` says whether trying again can help."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class RetryableError(BlockxError):
    """Raised by a user function to have this call attempted again (at most 3 attempts in all)."""


def only_cause(error: BaseException) -> BaseException:
    """The exception inside nested groups of one; a group of several as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def ungrouped() -> Iterator[None]:
    """Let an exception that nurseries have wrapped into groups of one leave the block as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        cause = only_cause(group)
        if cause is group:
            raise
        cause.__context__ = None
        raise cause from cause.__cause__
