"""How the failure of a task's calls is told: what failed, where, and why."""

from __future__ import annotations

from blockx.model import CallErrorCode, FailureCode
from blockx.worker.core.call_events import (
    CallError,
    CallsFailure,
)
from blockx.worker.core.columns import TaskCalls


def executor_crashed(reason: str) -> CallError:
    """`reason` names the exit status or signal."""
    message = f"the executor process that ran it was lost: {reason}"
    return CallError(CallErrorCode.EXECUTOR_CRASHED, message=message)


def call_failed(task: TaskCalls, index: int, attempts: int, error: CallError) -> CallsFailure:
    """The call has used up its attempts, or failed in a way that another attempt cannot mend."""
    function = task.run_of(index).function
    cause = f"{error.error_type or error.code.value}: {error.message}"
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    message = f"call {index} of function {function!r} failed after {times}: {cause}"
    return CallsFailure(FailureCode.CALL_FAILED, message, index, function, attempts, error)


def output_bytes_exceeded(task: TaskCalls, bound_bytes: int) -> CallsFailure:
    """No single call is to blame, so none is named."""
    message = (
        f"the outputs of {task.done} of {len(task.args)} calls take {task.output_bytes} bytes, more than"
        f" MAX_COLLECTED_OUTPUT_BYTES ({bound_bytes}); return less from each call or split the task"
    )
    return CallsFailure(FailureCode.OUTPUT_BYTES_EXCEEDED, message)
