"""What WorkerCore keeps of a task at each stage of its life: a lease, then a running task, then a retained result."""

from __future__ import annotations

from operator import itemgetter

from attrs import define, frozen

from blockx.model import FailureCode, SlotId, TaskId, TaskState
from blockx.worker.core.events import (
    Outcome,
    Phase,
)


@frozen
class TaskView:
    """What is known of one task at the time of asking. Times are monotonic milliseconds.

    `slot_id` is None once the task has ended; `lease_remaining_ms` is 0 once its activation is prepared; `phase`,
    `payload_digest` and `deadline_ms` are None before the task is submitted, `deadline_ms` also after it has ended;
    `outcome` is there once it has, without plugin results: ConvergeTask handed those over, to be kept elsewhere until
    PurgeResult. `reached_ms` says when `state` was reached.
    """

    state: TaskState
    slot_id: SlotId | None
    lease_remaining_ms: int
    payload_digest: bytes | None
    outcome: Outcome | None
    reached_ms: int
    deadline_ms: int | None
    phase: Phase | None


@define
class Lease:
    """A slot reserved for a task that is not submitted yet."""

    slot_id: SlotId
    since_ms: int
    until_ms: int
    watches: int = 0

    def view(self, now_ms: int) -> TaskView:
        left_ms = self.until_ms - now_ms
        return TaskView(TaskState.ALLOCATED, self.slot_id, left_ms, None, None, self.since_ms, None, None)


@define(kw_only=True)
class RunningTask:
    """A task from acceptance to convergence. `lease_until_ms` is set in Preparing only."""

    task_id: TaskId
    slot_id: SlotId
    payload_digest: bytes
    accepted_ms: int
    deadline_ms: int
    lease_until_ms: int | None
    watches: int
    phase: Phase = Phase.PREPARING
    grace_until_ms: int | None = None
    commit_until_ms: int | None = None

    @property
    def is_committing(self) -> bool:
        """A commit was granted: only its outcome, or its own timeout, ends the task now."""
        return self.commit_until_ms is not None

    @property
    def last_ms(self) -> int:
        """When the task has ended at the latest."""
        return self.deadline_ms if self.commit_until_ms is None else self.commit_until_ms

    def ending(self) -> tuple[int, FailureCode]:
        """When time alone ends the task, and as what."""
        if self.commit_until_ms is not None:
            return self.commit_until_ms, FailureCode.PLUGIN_FAILED
        endings = [(self.deadline_ms, FailureCode.TIMED_OUT)]
        if self.lease_until_ms is not None:
            endings.append((self.lease_until_ms, FailureCode.SLOT_LOST))
        if self.grace_until_ms is not None:
            endings.append((self.grace_until_ms, FailureCode.WATCH_DISCONNECTED))
        return min(endings, key=itemgetter(0))

    def view(self, now_ms: int) -> TaskView:
        left_ms = 0 if self.lease_until_ms is None else max(0, self.lease_until_ms - now_ms)
        return TaskView(
            TaskState.RUNNING,
            self.slot_id,
            left_ms,
            self.payload_digest,
            None,
            self.accepted_ms,
            self.last_ms,
            self.phase,
        )


@define
class RetainedResult:
    """How a task ended, kept until `until_ms`."""

    state: TaskState
    outcome: Outcome
    payload_digest: bytes
    reached_ms: int
    until_ms: int
    delivered: bool = False

    def view(self) -> TaskView:
        return TaskView(self.state, None, 0, self.payload_digest, self.outcome, self.reached_ms, None, Phase.TERMINAL)
