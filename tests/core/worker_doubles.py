"""A WorkerCore with a clock of its own and short ways to say what happens to it."""

from __future__ import annotations

from blockx.model import FailureCode, SlotId, TaskId
from blockx.worker.core import events as ev
from blockx.worker.core.records import TaskView
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.core.tasks import WorkerCore

A, B, C = TaskId("a"), TaskId("b"), TaskId("c")
DIGEST = b"digest"
OK = ev.Outcome()


class Worker:
    """Time stands still until `at` moves it; the settings are small round numbers."""

    def __init__(self, *, live: int = 1, **changes: int) -> None:
        times = {
            "slots": 2,
            "default_ttl_ms": 5_000,
            "task_deadline_ms": 100_000,
            "result_retention_ms": 300_000,
            "activation_timeout_ms": 30_000,
            "commit_timeout_ms": 40_000,
        }
        self.settings = WorkerSettings(**{**times, **changes})
        self.core = WorkerCore(self.settings)
        self.now_ms = 1_000
        self.slot_ids = 0
        if live:
            assert self.feed(ev.ExecutorsChanged(live)) == []

    def feed(self, event: ev.WorkerEvent) -> list[ev.WorkerCommand]:
        commands = self.core.handle(event, self.now_ms)
        due_ms = self.core.next_deadline_ms()
        assert due_ms is None or due_ms > self.now_ms
        return commands

    def at(self, now_ms: int) -> Worker:
        self.now_ms = now_ms
        return self

    def tick(self, now_ms: int) -> list[ev.WorkerCommand]:
        return self.at(now_ms).feed(ev.TimersTicked())

    def request(self, task_id: TaskId, ttl_ms: int = 5_000) -> SlotId:
        """Ask for a slot; returns the slot id that the answer would have."""
        assert self.feed(ev.SlotRequested(task_id, ttl_ms, self.fresh_slot_id())) == []
        slot_id = self.view(task_id).slot_id
        assert slot_id is not None
        return slot_id

    def submit(self, task_id: TaskId, slot_id: SlotId | None = None, timeout_ms: int = 0) -> list[ev.WorkerCommand]:
        return self.feed(
            ev.TaskSubmitted(
                task_id=task_id,
                timeout_ms=timeout_ms,
                payload_digest=DIGEST,
                slot_id=slot_id,
                fresh_slot_id=self.fresh_slot_id(),
            )
        )

    def fresh_slot_id(self) -> SlotId:
        self.slot_ids += 1
        return SlotId(f"slot-{self.slot_ids}")

    def finish(self, task_id: TaskId, phase: ev.Phase, outcome: ev.Outcome = OK) -> list[ev.WorkerCommand]:
        return self.feed(ev.PhaseFinished(task_id, phase, outcome))

    def bring_to(self, task_id: TaskId, phase: ev.Phase, timeout_ms: int = 0) -> None:
        """Submit the task and let it succeed up to the phase."""
        self.submit(task_id, timeout_ms=timeout_ms)
        if phase is ev.Phase.PREPARING:
            return
        self.feed(ev.ActivationPrepared(task_id))
        for passed in (ev.Phase.BUILDER, ev.Phase.CALLS, ev.Phase.PLUGIN):
            if passed is phase:
                return
            self.finish(task_id, passed)

    def view(self, task_id: TaskId) -> TaskView:
        view = self.core.task(task_id, self.now_ms)
        assert view is not None
        return view

    def message(self, task_id: TaskId) -> str:
        """What the ended task says about its failure."""
        outcome = self.view(task_id).outcome
        assert outcome is not None
        return outcome.message

    def is_known(self, task_id: TaskId) -> bool:
        return self.core.task(task_id, self.now_ms) is not None


def failures(commands: list[ev.WorkerCommand]) -> list[tuple[TaskId, FailureCode | None, bool]]:
    """Task, failure code and retryable of each convergence; fails if there is any other command."""
    found = []
    for command in commands:
        assert isinstance(command, ev.ConvergeTask), command
        found.append((command.task_id, command.outcome.failure, command.outcome.retryable))
    return found
