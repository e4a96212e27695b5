"""Turns what went wrong into one sentence and an exit code: 1 failed, 2 bad usage, 3 could not reach, 4 timed out."""

from __future__ import annotations

import click

from blockx import errors
from blockx.model import FailedCall

FAILED = 1
BAD_USAGE = 2
UNREACHABLE = 3
TIMED_OUT = 4
INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C, with a sentence about what it did not end."""


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.ClickException, BAD_USAGE),
    (errors.InvalidArgument, BAD_USAGE),
    (errors.ConfigError, BAD_USAGE),
    (errors.Unauthenticated, BAD_USAGE),
    (errors.PermissionDenied, BAD_USAGE),
    (errors.Unavailable, UNREACHABLE),
    (errors.NoSlot, UNREACHABLE),
    (errors.DeadlineExceeded, TIMED_OUT),
    (Interrupted, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
    (click.Abort, INTERRUPTED),
)


def first_cause(error: BaseException) -> BaseException:
    """The first exception inside nested groups: several parts of a program may fail of one cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def explain(error: BaseException) -> tuple[str, int]:
    """The sentence for the person at the terminal, and the exit code of the program."""
    cause = first_cause(error)
    code = next((code for kind, code in _CODES if isinstance(cause, kind)), FAILED)
    return _sentence(cause), code


def _sentence(cause: BaseException) -> str:
    match cause:
        case click.UsageError(ctx=context) if context is not None:
            return f"{cause.format_message()} See `{context.command_path} --help`."
        case click.ClickException():
            return cause.format_message()
        case errors.TaskFailed(result=result, task_id=task_id):
            return f"{f'task {task_id}' if task_id else 'the task'} failed: {cause}{_failed_call(result.failed_call)}"
        case errors.ConfigError():  # all its lines are to act on, as those with the SQL that a person would run
            return str(cause)
        case errors.BlockxError():
            sentence, _, more = str(cause).partition("\n")
            return f"{sentence}; --debug shows where" if more else sentence
        case KeyboardInterrupt() | click.Abort():
            return "interrupted"
        case Interrupted():
            return str(cause)
        case OSError(strerror=str(reason), filename=name):
            return f"{name}: {reason}" if name else reason
        case _:
            return f"unexpected {type(cause).__name__}: {cause}; --debug shows where"


def _failed_call(call: FailedCall | None) -> str:
    if call is None:
        return ""
    hint = "; --debug shows its traceback" if call.traceback else ""
    return f" (called as {call.function}({call.arguments}){hint})"
