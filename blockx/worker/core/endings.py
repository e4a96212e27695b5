"""The outcomes that WorkerCore itself decides on: time ran out, or the worker goes out of service."""

from __future__ import annotations

from blockx.model import FailureCode
from blockx.worker.core.events import (
    Outcome,
)
from blockx.worker.core.records import RunningTask
from blockx.worker.core.settings import WorkerSettings

_RETRYABLE = {
    FailureCode.TIMED_OUT: True,
    FailureCode.SLOT_LOST: True,
    FailureCode.WATCH_DISCONNECTED: False,
    FailureCode.PLUGIN_FAILED: True,
    FailureCode.CANCELLED: True,
}
_MESSAGES = {
    FailureCode.TIMED_OUT: "the task had not ended {timeout_ms} ms after it was accepted (phase {phase}); "
    "raise taskTimeoutMs, give the task less to do, or submit it again if the worker was just busy",
    FailureCode.SLOT_LOST: "the task's activation took longer than {activation_ms} ms, so its slot was reclaimed; "
    "submit it again",
    FailureCode.WATCH_DISCONNECTED: "nobody watched the task for {grace_ms} ms after its last watch had ended, "
    "so it was given up",
    FailureCode.PLUGIN_FAILED: "the outcome of the commit was still unknown {commit_ms} ms after it was granted; "
    "submit the task again: what it writes is idempotent",
    FailureCode.CANCELLED: "the worker went out of service before the task had ended (phase {phase}); submit it again",
}


def ending(code: FailureCode, task: RunningTask, settings: WorkerSettings) -> Outcome:
    """The outcome of a task that ends with `code` without its own doing."""
    message = _MESSAGES[code].format(
        timeout_ms=task.deadline_ms - task.accepted_ms,
        phase=task.phase.value,
        activation_ms=settings.activation_timeout_ms,
        grace_ms=settings.watch_disconnect_grace_ms,
        commit_ms=settings.commit_timeout_ms,
    )
    return Outcome(failure=code, message=message, retryable=_RETRYABLE[code])
