"""WorkerCore: the life of every task of a worker, from lease to retained result, decided without IO or clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from blockx.model import FailureCode, SlotId, TaskId, TaskState
from blockx.worker.core.endings import ending
from blockx.worker.core.events import (
    ActivationFailed,
    ActivationPrepared,
    AnnounceDraining,
    ArmWatchGrace,
    CommitRequested,
    ConvergeTask,
    DeadlineReached,
    DrainRequested,
    ExecutorsChanged,
    ExpireLease,
    ExtendDeadline,
    FinishDrain,
    Outcome,
    Phase,
    PhaseFinished,
    PrepareTaskActivation,
    PurgeResult,
    ResultDelivered,
    SlotRequested,
    SpoolChanged,
    StartBuilderPhase,
    StartCallPhase,
    StartWriterPhase,
    StopRequested,
    TaskSubmitted,
    TimersTicked,
    WatchAttached,
    WatchDetached,
    WorkerCommand,
    WorkerEvent,
)
from blockx.worker.core.records import Lease, RunningTask, TaskView
from blockx.worker.core.refusals import refuse
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.core.slots import SlotCounts
from blockx.worker.core.state import WorkerState

_NEXT_PHASE = {
    Phase.PREPARING: Phase.BUILDER,
    Phase.BUILDER: Phase.CALLS,
    Phase.CALLS: Phase.PLUGIN,
    Phase.PLUGIN: Phase.TERMINAL,
}
_START: dict[Phase, Callable[[TaskId], WorkerCommand]] = {
    Phase.BUILDER: StartBuilderPhase,
    Phase.CALLS: StartCallPhase,
    Phase.PLUGIN: StartWriterPhase,
}


class WorkerCore:
    """Decides about leases, phases, deadlines, watches, results and the drain of one worker.

    The only door to its state is `handle`; everything else only looks. What is due at `now_ms` takes effect before
    the event does, so a late tick never lengthens a lease or a deadline; only the outcome of a granted commit counts
    however late it comes. Times are monotonic milliseconds that never go back.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._state = WorkerState(settings)
        self._ignored_events = 0
        self._commands: list[WorkerCommand] = []

    def handle(self, event: WorkerEvent, now_ms: int) -> list[WorkerCommand]:
        """Take in one event; returns what is to be done now, in this order.

        Raises InvalidArgument, Unavailable, NoSlot, InvalidSlot (requests) or CommitRefused, before anything changed.
        """
        refuse(event, self._state, now_ms)
        if self._ends_commit(event):
            self._apply(event, now_ms)
            self._pass_time(now_ms)
        else:
            self._pass_time(now_ms)
            self._apply(event, now_ms)
        if not self._state.drain.is_serving:
            self._go_on_draining(now_ms)
        commands, self._commands = self._commands, []
        return commands

    # ---------------------------------------------------------------------------------------------------- questions

    def next_deadline_ms(self) -> int | None:
        """When TimersTicked is due next; None if nothing waits for time. After `handle` it is always in the future."""
        return self._state.next_deadline_ms()

    def task(self, task_id: TaskId, now_ms: int) -> TaskView | None:
        """What is known of a task, None for one that is not known (any more).

        Right after `handle` of a request, and with the same `now_ms`, this is the answer to it.
        """
        if (running := self._state.running.get(task_id)) is not None:
            return running.view(now_ms)
        if (lease := self._state.live_lease(task_id, now_ms)) is not None:
            return lease.view(now_ms)
        result = self._state.results.get(task_id, now_ms)
        return None if result is None else result.view()

    def payload_mismatch(self, task_id: TaskId, payload_digest: bytes) -> bool:
        """Whether the task runs, or has ended, with another builder or handler than this digest is of."""
        known = self._state.running.get(task_id) or self._state.results.peek(task_id)
        return known is not None and known.payload_digest != payload_digest

    @property
    def counts(self) -> SlotCounts:
        return self._state.slots.counts

    @property
    def running_tasks(self) -> int:
        """Tasks that were accepted and have not ended; those in Preparing, whose slot is ALLOCATED, are among them."""
        return len(self._state.running)

    @property
    def retained_results(self) -> int:
        return len(self._state.results)

    @property
    def unfetched_results(self) -> int:
        """Those of the retained results that nobody has seen."""
        return self._state.results.undelivered

    def ready(self, now_ms: int) -> bool:
        """Whether calls could run; says nothing about draining."""
        return not self.not_ready_reason(now_ms)

    def not_ready_reason(self, now_ms: int) -> str:
        """Why the worker is not ready, in words for the caller; empty if it is."""
        return self._state.readiness.not_ready_reason(now_ms)

    @property
    def draining(self) -> bool:
        return not self._state.drain.is_serving

    @property
    def ignored_events(self) -> int:
        """How many answers came for a task that was unknown, had ended, or was in another phase."""
        return self._ignored_events

    # ------------------------------------------------------------------------------------------------------- events

    def _apply(self, event: WorkerEvent, now_ms: int) -> None:
        match event:
            case PhaseFinished():
                self._finish_phase(event.task_id, event.phase, event.outcome, now_ms)
            case ActivationPrepared():
                self._finish_phase(event.task_id, Phase.PREPARING, Outcome(), now_ms)
            case ActivationFailed():
                self._finish_phase(event.task_id, Phase.PREPARING, event.outcome, now_ms)
            case SlotRequested():
                self._lease_slot(event, now_ms)
            case TaskSubmitted():
                self._accept(event, now_ms)
            case CommitRequested():
                self._grant_commit(self._state.running[event.task_id], now_ms)
            case WatchAttached():
                self._attach_watch(event.task_id)
            case WatchDetached():
                self._detach_watch(event.task_id, now_ms)
            case ResultDelivered():
                self._state.results.deliver(event.task_id)
            case TimersTicked() | DeadlineReached():
                pass  # time has passed, and that was seen to already
            case ExecutorsChanged():
                self._state.readiness.executors_changed(event.live, event.crash_loop, now_ms)
            case SpoolChanged():
                self._state.spool_full = event.full
            case DrainRequested():
                self._begin_drain(event.timeout_ms, now_ms)
            case StopRequested():
                self._begin_drain(0, now_ms)
                self._state.drain.hurry(now_ms)
            case _:
                assert_never(event)

    def _lease_slot(self, event: SlotRequested, now_ms: int) -> None:
        if event.task_id not in self._state.leases and not self._state.was_accepted(event.task_id, now_ms):
            self._state.slots.allocate(event.fresh_slot_id, event.task_id)
            until_ms = now_ms + event.ttl_ms
            self._state.leases[event.task_id] = Lease(event.fresh_slot_id, now_ms, until_ms)
            self._state.slot_ends.set(event.task_id, until_ms)

    def _accept(self, event: TaskSubmitted, now_ms: int) -> None:
        task_id = event.task_id
        if self._state.was_accepted(task_id, now_ms):
            return
        if task_id not in self._state.leases:
            self._lease_slot(SlotRequested(task_id, self._settings.default_ttl_ms, event.fresh_slot_id), now_ms)
        lease = self._state.leases.pop(task_id)
        task = RunningTask(
            task_id=task_id,
            slot_id=lease.slot_id,
            payload_digest=event.payload_digest,
            accepted_ms=now_ms,
            deadline_ms=now_ms + (event.timeout_ms or self._settings.task_deadline_ms),
            lease_until_ms=now_ms + self._settings.activation_timeout_ms,
            watches=lease.watches,
        )
        self._state.running[task_id] = task
        self._reschedule(task)
        self._commands.append(PrepareTaskActivation(task_id, task.deadline_ms))

    def _finish_phase(self, task_id: TaskId, phase: Phase, outcome: Outcome, now_ms: int) -> None:
        task = self._state.running.get(task_id)
        if task is None or task.phase is not phase:
            self._ignored_events += 1
            return
        following = _NEXT_PHASE[phase] if outcome.failure is None else Phase.TERMINAL
        if following is Phase.TERMINAL:
            self._converge(task, outcome, now_ms)
        else:
            self._start_phase(task, following)

    def _start_phase(self, task: RunningTask, phase: Phase) -> None:
        task.phase = phase
        if phase is Phase.BUILDER:
            task.lease_until_ms = None
            self._state.slots.run(task.slot_id)
            self._reschedule(task)
        self._commands.append(_START[phase](task.task_id))

    def _grant_commit(self, task: RunningTask, now_ms: int) -> None:
        if task.is_committing:
            return  # run again after a known abort, under the same grant
        task.commit_until_ms = now_ms + self._settings.commit_timeout_ms
        self._reschedule(task)
        self._commands.append(ExtendDeadline(task.task_id, task.commit_until_ms))

    def _ends_commit(self, event: WorkerEvent) -> bool:
        if not isinstance(event, PhaseFinished):
            return False
        task = self._state.running.get(event.task_id)
        return task is not None and task.is_committing

    def _attach_watch(self, task_id: TaskId) -> None:
        if (lease := self._state.leases.get(task_id)) is not None:
            lease.watches += 1
        elif (task := self._state.running.get(task_id)) is not None:
            task.watches += 1
            task.grace_until_ms = None
            self._reschedule(task)

    def _detach_watch(self, task_id: TaskId, now_ms: int) -> None:
        if (lease := self._state.leases.get(task_id)) is not None:
            lease.watches -= 1
        elif (task := self._state.running.get(task_id)) is not None:
            task.watches -= 1
            if not task.watches:
                self._start_watch_grace(task, now_ms)

    def _start_watch_grace(self, task: RunningTask, now_ms: int) -> None:
        grace_ms = self._settings.watch_disconnect_grace_ms
        if grace_ms and not task.is_committing:
            task.grace_until_ms = now_ms + grace_ms
            self._reschedule(task)
            self._commands.append(ArmWatchGrace(task.task_id, task.grace_until_ms))

    # -------------------------------------------------------------------------------------------------------- time

    def _reschedule(self, task: RunningTask) -> None:
        self._state.slot_ends.set(task.task_id, task.ending()[0])

    def _pass_time(self, now_ms: int) -> None:
        """Let everything take effect that is due by now."""
        state = self._state
        while state.slot_ends.is_due(now_ms):
            self._end_by_time(state.slot_ends.first(), now_ms)
        for task_id in state.results.purge(now_ms):
            self._commands.append(PurgeResult(task_id))
        state.readiness.pass_time(now_ms)

    def _end_by_time(self, task_id: TaskId, now_ms: int) -> None:
        task = self._state.running.get(task_id)
        if task is not None:
            self._converge(task, ending(task.ending()[1], task, self._settings), now_ms)
            return
        self._free_slot(task_id, self._state.leases.pop(task_id).slot_id)
        self._commands.append(ExpireLease(task_id))

    def _converge(self, task: RunningTask, outcome: Outcome, now_ms: int) -> None:
        """End the task, once and in one step."""
        state = TaskState.SUCCEEDED if outcome.failure is None else TaskState.FAILED
        del self._state.running[task.task_id]
        self._free_slot(task.task_id, task.slot_id)
        self._state.results.keep(task.task_id, state, outcome, task.payload_digest, now_ms)
        self._commands.append(ConvergeTask(task.task_id, state, outcome))

    def _free_slot(self, task_id: TaskId, slot_id: SlotId) -> None:
        self._state.slots.release(slot_id)
        self._state.slot_ends.discard(task_id)

    # ------------------------------------------------------------------------------------------------------- drain

    def _begin_drain(self, timeout_ms: int | None, now_ms: int) -> None:
        """Go out of service. Asked for again, a timeout that is given replaces the earlier one."""
        if not self.draining:
            self._commands.append(AnnounceDraining())
            self._state.drain.begin()
            last_ms = max((task.last_ms for task in self._state.running.values()), default=now_ms)
            self._state.drain.limit(last_ms)
        if timeout_ms is not None:
            self._state.drain.limit(now_ms + timeout_ms)

    def _go_on_draining(self, now_ms: int) -> None:
        if self._state.drain.take_limit(now_ms):
            self._cancel_running(now_ms)
        running, undelivered = len(self._state.running), self._state.results.undelivered
        if self._state.drain.advance(now_ms, running=running, undelivered=undelivered):
            self._commands.append(FinishDrain(self._state.drain.exit_code))

    def _cancel_running(self, now_ms: int) -> None:
        """Cancel what still runs, granted commits excepted: they may have written already."""
        for task in [task for task in self._state.running.values() if not task.is_committing]:
            self._state.drain.note_cancelled()
            self._converge(task, ending(FailureCode.CANCELLED, task, self._settings), now_ms)
