"""What the two cores of a worker hear (events, past tense) and what they ask for (commands, imperative).

WorkerCore decides a task's life; DispatcherCore decides which call runs where. Both are pure: the adapters turn
commands into effects and answer each effect with exactly one event. Times are integer monotonic milliseconds.
"""

from __future__ import annotations

import enum
from typing import NewType

from attrs import field, frozen

from blockx.model import CallErrorCode, FailedCall, FailureCode, Receipt, SlotId, TaskId, TaskState

# --------------------------------------------------------------------------------------------------------------------
# WorkerCore


class Phase(enum.Enum):
    """Inner phases of an accepted task; from outside all but TERMINAL are RUNNING."""

    PREPARING = "preparing"
    BUILDER = "builder"
    CALLS = "calls"
    PLUGIN = "plugin"
    TERMINAL = "terminal"


@frozen(kw_only=True)
class Outcome:
    """How a phase, or a whole task, ended: `failure` None means well. What a writer reports stays with the adapter."""

    failure: FailureCode | None = None
    message: str = ""
    retryable: bool = False
    failed_call: FailedCall | None = None


@frozen
class SlotRequested:
    """RequestTaskSlot. `fresh_slot_id` is a new unguessable id, used only if a slot is leased now.

    Refusals raised by handle(): InvalidArgument, Unavailable, NoSlot.
    """

    task_id: TaskId
    ttl_ms: int
    fresh_slot_id: SlotId


@frozen(kw_only=True)
class TaskSubmitted:
    """SubmitTask. `payload_digest` is the digest of builder and handler as canonical JSON.

    Refusals raised by handle(): InvalidArgument, Unavailable, NoSlot, InvalidSlot.
    """

    task_id: TaskId
    timeout_ms: int
    payload_digest: bytes
    slot_id: SlotId | None
    fresh_slot_id: SlotId


@frozen
class ActivationPrepared:
    task_id: TaskId


@frozen
class ActivationFailed:
    task_id: TaskId
    outcome: Outcome


@frozen
class PhaseFinished:
    task_id: TaskId
    phase: Phase
    outcome: Outcome


@frozen
class CommitRequested:
    """The writer is about to COMMIT. handle() raises CommitRefused if it may not; returning is the grant."""

    task_id: TaskId


@frozen
class DeadlineReached:
    """The task's scope saw its deadline pass; the core checks with its own clock."""

    task_id: TaskId


@frozen
class WatchAttached:
    """A watch stream waits for the end of a task that is ALLOCATED or RUNNING; without effect on any other.

    Followed by one WatchDetached, or by the ConvergeTask or ExpireLease that ends all watches of the task.
    """

    task_id: TaskId


@frozen
class WatchDetached:
    """A watch stream has ended before the task did. Not to be told of watches that a command has ended."""

    task_id: TaskId


@frozen
class ExecutorsChanged:
    """How many executors of the current code epoch are Ready.

    `crash_loop` says why they keep dying (None: they do not); while it is set nothing is admitted, be any live or not.
    """

    live: int
    crash_loop: str | None = None


@frozen
class SpoolChanged:
    """Whether the disk space for results is used up."""

    full: bool


@frozen
class DrainRequested:
    """SIGTERM or Drain. `timeout_ms` None: as long as the running tasks' deadlines allow.

    While the worker drains, a further one with a timeout replaces the limit, and one without changes nothing.
    """

    timeout_ms: int | None = None


@frozen
class StopRequested:
    """A second SIGTERM: running tasks are cancelled now (granted commits are still awaited).

    Without a DrainRequested before, it begins the drain too.
    """


@frozen
class ResultDelivered:
    """A client has received the task's terminal result (by watch or by query)."""

    task_id: TaskId


@frozen
class TimersTicked:
    """Time has passed; next_deadline_ms() says when this is due."""


WorkerEvent = (
    SlotRequested
    | TaskSubmitted
    | ActivationPrepared
    | ActivationFailed
    | PhaseFinished
    | CommitRequested
    | DeadlineReached
    | WatchAttached
    | WatchDetached
    | ExecutorsChanged
    | SpoolChanged
    | DrainRequested
    | StopRequested
    | ResultDelivered
    | TimersTicked
)


@frozen
class PrepareTaskActivation:
    """Pin the code, check the handler, open the IO scope. Answered by ActivationPrepared or ActivationFailed."""

    task_id: TaskId
    deadline_ms: int


@frozen
class StartBuilderPhase:
    """Answered by PhaseFinished(BUILDER)."""

    task_id: TaskId


@frozen
class StartCallPhase:
    """Answered by PhaseFinished(CALLS)."""

    task_id: TaskId


@frozen
class StartWriterPhase:
    """Answered by PhaseFinished(PLUGIN)."""

    task_id: TaskId


@frozen
class ExtendDeadline:
    """A commit was granted: the task's scope may now last until `deadline_ms`."""

    task_id: TaskId
    deadline_ms: int


@frozen
class ArmWatchGrace:
    """The last watch is gone: report TimersTicked at `deadline_ms`; the task converges then if no watch came back."""

    task_id: TaskId
    deadline_ms: int


@frozen
class ConvergeTask:
    """The task has ended, once and for all: cancel what still runs, close the scope, keep the result, tell watchers."""

    task_id: TaskId
    state: TaskState
    outcome: Outcome


@frozen
class ExpireLease:
    """A lease ran out before anything was submitted: watchers of the task end with `lease_expired`."""

    task_id: TaskId


@frozen
class PurgeResult:
    """The result's retention is over: forget its body."""

    task_id: TaskId


@frozen
class AnnounceDraining:
    """Say DRAINING in the next heartbeat, before anything else happens."""


@frozen
class FinishDrain:
    """Nothing runs any more and results were delivered (or waited for long enough): shut down with this exit code."""

    exit_code: int


WorkerCommand = (
    PrepareTaskActivation
    | StartBuilderPhase
    | StartCallPhase
    | StartWriterPhase
    | ExtendDeadline
    | ArmWatchGrace
    | ConvergeTask
    | ExpireLease
    | PurgeResult
    | AnnounceDraining
    | FinishDrain
)

# --------------------------------------------------------------------------------------------------------------------
# DispatcherCore

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
