"""All that WorkerCore knows, with the questions that its refusals and its decisions share."""

from __future__ import annotations

from attrs import define, field

from blockx.model import TaskId
from blockx.worker.core.deadlines import Deadlines
from blockx.worker.core.drain import Drain
from blockx.worker.core.readiness import Readiness
from blockx.worker.core.records import Lease, RunningTask
from blockx.worker.core.results import RetainedResults
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.core.slots import SlotTable


@define
class WorkerState:
    """A task id is in at most one of `leases`, `running` and `results`; `slot_ends` says when the first two end."""

    settings: WorkerSettings
    slots: SlotTable = field(init=False)
    results: RetainedResults = field(init=False)
    readiness: Readiness = field(init=False)
    drain: Drain = field(init=False)
    leases: dict[TaskId, Lease] = field(init=False, factory=dict)
    running: dict[TaskId, RunningTask] = field(init=False, factory=dict)
    slot_ends: Deadlines[TaskId] = field(init=False, factory=Deadlines)
    spool_full: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.slots = SlotTable(self.settings.slots)
        self.results = RetainedResults(self.settings.result_retention_ms)
        self.readiness = Readiness(self.settings.ready_grace_ms)
        self.drain = Drain(self.settings)

    def live_lease(self, task_id: TaskId, now_ms: int) -> Lease | None:
        """The task's lease, None if it has none or it ran out."""
        lease = self.leases.get(task_id)
        return None if lease is None or lease.until_ms <= now_ms else lease

    def was_accepted(self, task_id: TaskId, now_ms: int) -> bool:
        """Whether the task runs, or its result is retained: then it must not be executed again."""
        return task_id in self.running or self.results.get(task_id, now_ms) is not None

    def next_deadline_ms(self) -> int | None:
        times = (self.slot_ends.next_ms, self.results.next_ms, self.readiness.next_ms, self.drain.next_ms)
        return min((time for time in times if time is not None), default=None)
