"""What DispatcherCore hears (events, past tense) and what it asks for (commands, imperative): which call runs where.

Everything is batched: one event for each frame read, one command for the calls of one task, function and block.
"""

from __future__ import annotations

from typing import NewType

from attrs import field, frozen

from blockx.model import CallErrorCode, FailureCode, Receipt

TaskNo = NewType("TaskNo", int)
CallId = NewType("CallId", int)
ExecutorId = NewType("ExecutorId", int)

INDEX_BITS = 20
"""A call id is `task_no << INDEX_BITS | index`: no table is needed to find a call. Bounds MAX_CALLS_PER_TASK."""


def call_id(task_no: TaskNo, index: int) -> CallId:
    return CallId(task_no << INDEX_BITS | index)


def task_no_of(call: CallId) -> TaskNo:
    return TaskNo(call >> INDEX_BITS)


def index_of(call: CallId) -> int:
    return call & ((1 << INDEX_BITS) - 1)


@frozen
class CallRun:
    """A run of consecutive calls with one function and one block: from index `start` up to the next run's start."""

    start: int
    function: str
    block: bytes | None


@frozen
class CallError:
    """Why one attempt of a call failed, as the executor tells it."""

    code: CallErrorCode
    error_type: str = ""
    message: str = ""
    traceback: str = ""


@frozen
class CallsFailure:
    """Why a task's calls failed as a whole. `index` -1: no single call is to blame."""

    code: FailureCode
    message: str
    index: int = -1
    function: str = ""
    attempts: int = 0
    error: CallError | None = None


@frozen(kw_only=True)
class CallsAdded:
    """A task's root calls: `args[i]` is the packed `[args, kwargs]` of call i; `runs` say function and block."""

    task_no: TaskNo
    runs: tuple[CallRun, ...]
    args: list[bytes] = field(repr=False)


@frozen
class ExecutorJoined:
    """An executor is Ready for calls; it takes at most `capacity` unanswered ones."""

    executor: ExecutorId
    capacity: int


@frozen
class ExecutorLost:
    """The executor's process or connection is gone; `reason` names its exit status or signal."""

    executor: ExecutorId
    reason: str


@frozen(kw_only=True)
class CallsCompleted:
    """`cpu_us[i]` is what the whole attempt took, all its steps together."""

    executor: ExecutorId
    ids: list[CallId]
    attempts: list[int]
    cpu_us: list[int]
    values: list[bytes] = field(repr=False)


@frozen(kw_only=True)
class CallFailed:
    """`cpu_us` is what the whole attempt took, all its steps together."""

    executor: ExecutorId
    id: CallId
    attempt: int
    error: CallError
    retryable: bool
    cpu_us: int


@frozen(kw_only=True)
class CallsWaited:
    """Calls suspended on reads. Answered by StartReads for current attempts; the rest is dropped, counted.

    A call may have several reads outstanding and waits until the last is answered. `cpu_us[i]` is that of the attempt
    so far; the answer that ends it brings the whole.
    """

    executor: ExecutorId
    ids: list[CallId]
    attempts: list[int]
    wait_ids: list[int]
    cpu_us: list[int]
    requests: list[bytes] = field(repr=False)


@frozen(kw_only=True)
class ReadsFinished:
    """Answers to StartReads, in any grouping. `values[i]` is None where `errors[i]` says (type, message, retryable)."""

    executor: ExecutorId
    ids: list[CallId]
    attempts: list[int]
    wait_ids: list[int]
    io_us: list[int]
    values: list[bytes | None] = field(repr=False)
    errors: list[tuple[str, str, bool] | None]


@frozen
class TaskClosed:
    """The executor has come to a CloseTask that it must confirm: it is not stuck in one of the task's calls."""

    executor: ExecutorId
    task_no: TaskNo


@frozen
class CallsCancelled:
    """The task ended otherwise (deadline, watch gone): forget its calls. Nothing is emitted for it afterwards."""

    task_no: TaskNo


@frozen
class RetriesDue:
    """Time has passed; next_deadline_ms() says when a retry is due."""


DispatcherEvent = (
    CallsAdded
    | ExecutorJoined
    | ExecutorLost
    | CallsCompleted
    | CallFailed
    | CallsWaited
    | ReadsFinished
    | CallsCancelled
    | TaskClosed
    | RetriesDue
)


@frozen(kw_only=True)
class SendCalls:
    """At most 64 calls of one task, function and block for one executor; opens the task there on its first call."""

    executor: ExecutorId
    task_no: TaskNo
    function: str
    block: bytes | None
    ids: list[CallId]
    attempts: list[int]
    args: list[bytes] = field(repr=False)


@frozen(kw_only=True)
class StartReads:
    """Answered by ReadsFinished, once for each wait id."""

    executor: ExecutorId
    task_no: TaskNo
    ids: list[CallId]
    attempts: list[int]
    wait_ids: list[int]
    requests: list[bytes] = field(repr=False)


@frozen(kw_only=True)
class ResumeCalls:
    executor: ExecutorId
    ids: list[CallId]
    wait_ids: list[int]
    io_us: list[int]
    values: list[bytes | None] = field(repr=False)
    errors: list[tuple[str, str, bool] | None]


@frozen
class OpenTask:
    """Comes before the first SendCalls of a task to an executor."""

    executor: ExecutorId
    task_no: TaskNo


@frozen
class CloseTask:
    """The executor cancels what it still runs of the task and forgets it.

    `must_confirm`: calls were running there, so it gets no others until TaskClosed says that it has let go of them.
    """

    executor: ExecutorId
    task_no: TaskNo
    must_confirm: bool = False


@frozen(kw_only=True)
class ConvergeTaskCalls:
    """The Calls phase has ended: all outputs in call order, or the failure (then no outputs)."""

    task_no: TaskNo
    failure: CallsFailure | None
    outputs: list[bytes] = field(repr=False)
    receipt: Receipt


DispatcherCommand = SendCalls | StartReads | ResumeCalls | OpenTask | CloseTask | ConvergeTaskCalls
