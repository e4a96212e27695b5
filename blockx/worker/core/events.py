"""What WorkerCore hears (events, past tense) and what it asks for (commands, imperative): a task's life.

The core is pure: the adapters turn commands into effects and answer each effect with exactly one event. Times are
integer monotonic milliseconds.
"""

from __future__ import annotations

import enum

from attrs import frozen

from blockx.model import FailedCall, FailureCode, SlotId, TaskId, TaskState


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
