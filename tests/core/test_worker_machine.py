"""WorkerCore against a model that knows only the rules of time and counting, with events in any order."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockx.errors import BlockxError, CommitRefused, InvalidSlot, NoSlot, Unavailable
from blockx.model import FailureCode, SlotId, TaskId, TaskState
from blockx.worker.core import events as ev
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.core.tasks import WorkerCore

SETTINGS = WorkerSettings(
    slots=3,
    default_ttl_ms=5,
    max_slot_ttl_ms=20,
    task_deadline_ms=40,
    max_task_timeout_ms=100,
    result_retention_ms=60,
    watch_disconnect_grace_ms=6,
    activation_timeout_ms=10,
    commit_timeout_ms=12,
    ready_grace_ms=7,
    drain_linger_ms=9,
    drain_result_wait_ms=30,
)
TASKS = st.sampled_from([TaskId(name) for name in "abcde"])
PHASES = st.sampled_from([ev.Phase.BUILDER, ev.Phase.CALLS, ev.Phase.PLUGIN])
CODES = st.none() | st.sampled_from([FailureCode.CALL_FAILED, FailureCode.CANCELLED])
STARTS: dict[type[Any], ev.Phase] = {
    ev.PrepareTaskActivation: ev.Phase.PREPARING,
    ev.StartBuilderPhase: ev.Phase.BUILDER,
    ev.StartCallPhase: ev.Phase.CALLS,
    ev.StartWriterPhase: ev.Phase.PLUGIN,
}
ORDER = [*STARTS.values(), ev.Phase.TERMINAL]


@define
class Known:
    """What an observer of requests and commands knows of a task."""

    phase: ev.Phase | None = None
    slot_id: SlotId | None = None
    lease_until: int = 0
    deadline: int = 0
    committed: bool = False
    watches: int = 0
    grace_until: int | None = None
    ended_at: int = 0

    @property
    def next_end(self) -> int:
        """When time alone takes the task to its next state, as far as an observer knows."""
        if self.phase is None:
            return self.lease_until
        if self.phase is ev.Phase.TERMINAL:
            return self.ended_at + SETTINGS.result_retention_ms
        if self.committed or self.grace_until is None:
            return self.deadline
        return min(self.deadline, self.grace_until)


class WorkerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = WorkerCore(SETTINGS)
        self.now = 0
        self.handled_at = 0
        self.known: dict[TaskId, Known] = {}
        self.slot_ids: set[SlotId] = set()
        self.live = 0
        self.bridged_until = 0
        self.crash_loop: str | None = None
        self.spool_full = False
        self.must_exit_1 = False
        self.finished: int | None = None

    # ------------------------------------------------------------------------------------------------ the model

    @property
    def ready(self) -> bool:
        return self.crash_loop is None and (self.live > 0 or self.now < self.bridged_until)

    def lease(self, task: TaskId) -> Known | None:
        known = self.known.get(task)
        return known if known and known.phase is None and known.lease_until > self.now else None

    def accepted(self, task: TaskId) -> bool:
        known = self.known.get(task)
        if known is None or known.phase is None:
            return False
        return known.phase is not ev.Phase.TERMINAL or known.ended_at + SETTINGS.result_retention_ms > self.now

    def held(self) -> int:
        return sum(known.phase is not ev.Phase.TERMINAL for known in self.known.values())

    def feed(self, event: ev.WorkerEvent) -> list[ev.WorkerCommand]:
        """Hand over the event, with all commands followed in the model. A refusal must leave no trace."""
        before = self.fingerprint()
        try:
            commands = self.core.handle(event, self.now)
        except BlockxError:
            assert self.fingerprint() == before
            raise
        self.handled_at = self.now
        for command in commands:
            self.follow(command)
        return commands

    def fingerprint(self) -> object:
        views = [self.core.task(TaskId(name), self.now) for name in "abcde"]
        return views, self.core.counts, self.core.next_deadline_ms(), self.core.ignored_events, self.core.draining

    def follow(self, command: ev.WorkerCommand) -> None:
        assert self.finished is None or isinstance(command, ev.ExpireLease | ev.PurgeResult)
        match command:
            case ev.FinishDrain():
                self.finished = command.exit_code
                assert not any(k.phase not in (None, ev.Phase.TERMINAL) for k in self.known.values())
                assert command.exit_code == int(self.must_exit_1)
            case ev.AnnounceDraining():
                pass
            case ev.ConvergeTask():
                self.follow_converge(command)
            case ev.ExpireLease():
                known = self.known.pop(command.task_id)
                assert known.phase is None
                assert known.lease_until <= self.now
            case ev.PurgeResult():
                known = self.known.pop(command.task_id)
                assert known.phase is ev.Phase.TERMINAL
                assert known.ended_at + SETTINGS.result_retention_ms <= self.now
            case ev.ExtendDeadline():
                known = self.known[command.task_id]
                assert known.phase is ev.Phase.PLUGIN
                assert not known.committed
                assert command.deadline_ms == self.now + SETTINGS.commit_timeout_ms
                known.committed, known.deadline = True, command.deadline_ms
            case ev.ArmWatchGrace():
                assert self.known[command.task_id].phase in ORDER[:4]
                assert self.known[command.task_id].watches == 0
                assert command.deadline_ms == self.now + SETTINGS.watch_disconnect_grace_ms
                self.known[command.task_id].grace_until = command.deadline_ms
            case _:
                self.follow_start(command)

    def follow_start(
        self, command: ev.PrepareTaskActivation | ev.StartBuilderPhase | ev.StartCallPhase | ev.StartWriterPhase
    ) -> None:
        known = self.known[command.task_id]
        phase = STARTS[type(command)]
        if phase is not ev.Phase.PREPARING:
            assert known.phase is not None
            assert ORDER.index(phase) == ORDER.index(known.phase) + 1
        assert known.deadline > self.now
        known.phase = phase

    def follow_converge(self, command: ev.ConvergeTask) -> None:
        known = self.known[command.task_id]
        assert known.phase in ORDER[:4]
        code = command.outcome.failure
        assert (command.state is TaskState.SUCCEEDED) == (code is None)
        if code is FailureCode.TIMED_OUT:
            assert not known.committed
            assert known.deadline <= self.now
        if code is FailureCode.SLOT_LOST:
            assert known.phase is ev.Phase.PREPARING
        if code is FailureCode.WATCH_DISCONNECTED:
            assert not known.committed
            assert known.grace_until is not None
            assert known.grace_until <= self.now
        if code is FailureCode.CANCELLED and "out of service" in command.outcome.message:
            assert not known.committed
            assert self.core.draining
            self.must_exit_1 = True
        known.phase, known.ended_at = ev.Phase.TERMINAL, self.now

    # ------------------------------------------------------------------------------------------------ the events

    @initialize(live=st.integers(0, 1))
    def start(self, live: int) -> None:
        self.executors(live, None)

    @rule(step=st.integers(1, 8), tick=st.booleans())
    def pass_time(self, step: int, tick: bool) -> None:
        self.now += step
        if tick:
            self.feed(ev.TimersTicked())

    @precondition(lambda self: self.core.next_deadline_ms() is not None)
    @rule()
    def sleep_until_the_next_deadline(self) -> None:
        due = self.core.next_deadline_ms()
        assert due is not None
        self.now = max(self.now, due)
        self.feed(ev.TimersTicked())

    @rule(task=TASKS, ttl=st.integers(1, 20))
    def request_slot(self, task: TaskId, ttl: int) -> None:
        slot_id = self.fresh()
        expected = self.expected_refusal(task, needs_slot=True) if self.lease(task) is None else None
        was_known = self.lease(task) is not None or self.accepted(task)
        if expected is None and not was_known:
            self.feed_expecting_new(task, ev.SlotRequested(task, ttl, slot_id), slot_id, self.now + ttl)
            return
        self.feed_expecting(ev.SlotRequested(task, ttl, slot_id), expected)
        if expected is None:
            view = self.core.task(task, self.now)
            assert view is not None
            assert view.slot_id != slot_id

    @rule(task=TASKS, timeout=st.integers(0, 60), whose=st.none() | TASKS)
    def submit(self, task: TaskId, timeout: int, whose: TaskId | None) -> None:
        slot_id = None if whose is None else self.slot_of(whose)
        fresh = self.fresh()
        event = ev.TaskSubmitted(
            task_id=task, timeout_ms=timeout, payload_digest=b"", slot_id=slot_id, fresh_slot_id=fresh
        )
        lease = self.lease(task)
        if self.accepted(task):
            assert not any(isinstance(command, ev.PrepareTaskActivation) for command in self.feed(event))
            return
        expected = self.expected_refusal(task, needs_slot=slot_id is None and lease is None)
        if expected is None and slot_id is not None and (lease is None or lease.slot_id != slot_id):
            expected = InvalidSlot
        if expected is not None:
            self.feed_expecting(event, expected)
            return
        deadline = self.now + (timeout or SETTINGS.task_deadline_ms)
        if lease is None:
            self.feed_expecting_new(task, event, fresh, self.now + SETTINGS.default_ttl_ms, deadline)
        else:
            lease.deadline = deadline
            assert self.feed(event)[-1] == ev.PrepareTaskActivation(task, deadline)

    @rule(task=TASKS, code=CODES)
    def end_activation(self, task: TaskId, code: FailureCode | None) -> None:
        self.feed(ev.ActivationPrepared(task) if code is None else ev.ActivationFailed(task, ev.Outcome(failure=code)))

    @rule(task=TASKS, phase=PHASES, code=CODES)
    def end_phase(self, task: TaskId, phase: ev.Phase, code: FailureCode | None) -> None:
        self.report(task, phase, code)

    @rule(task=TASKS)
    def end_current_phase_well(self, task: TaskId) -> None:
        known = self.known.get(task)
        if known is not None and known.phase is ev.Phase.PREPARING:
            self.feed(ev.ActivationPrepared(task))
        elif known is not None and known.phase in ORDER[1:4]:
            self.report(task, known.phase, None)

    def report(self, task: TaskId, phase: ev.Phase, code: FailureCode | None) -> None:
        known = self.known.get(task)
        commits = known is not None and known.committed and known.phase is phase is ev.Phase.PLUGIN
        commands = self.feed(ev.PhaseFinished(task, phase, ev.Outcome(failure=code)))
        if commits:
            state = TaskState.SUCCEEDED if code is None else TaskState.FAILED
            assert ev.ConvergeTask(task, state, ev.Outcome(failure=code)) in commands

    @rule(task=TASKS)
    def commit(self, task: TaskId) -> None:
        try:
            self.feed(ev.CommitRequested(task))
        except CommitRefused:
            return
        known = self.known[task]
        assert known.committed
        assert known.deadline > self.now

    @rule(task=TASKS)
    def report_deadline(self, task: TaskId) -> None:
        self.feed(ev.DeadlineReached(task))

    @rule(task=TASKS)
    def attach(self, task: TaskId) -> None:
        self.feed(ev.WatchAttached(task))
        known = self.known.get(task)
        if known is not None and known.phase is not ev.Phase.TERMINAL:
            known.watches += 1
            known.grace_until = None

    @rule(task=TASKS)
    def detach(self, task: TaskId) -> None:
        known = self.known.get(task)
        if known is None or known.phase is ev.Phase.TERMINAL or not known.watches:
            return
        known.watches -= 1
        self.feed(ev.WatchDetached(task))

    @rule(task=TASKS)
    def deliver(self, task: TaskId) -> None:
        self.feed(ev.ResultDelivered(task))

    @rule(live=st.integers(0, 2), crash_loop=st.sampled_from([None, None, None, "exit status 1"]))
    def executors(self, live: int, crash_loop: str | None) -> None:
        if self.live and not live:
            self.bridged_until = self.now + SETTINGS.ready_grace_ms
        elif live:
            self.bridged_until = 0
        self.live, self.crash_loop = live, crash_loop
        self.feed(ev.ExecutorsChanged(live, crash_loop))

    @rule(dice=st.integers(0, 3))
    def spool(self, dice: int) -> None:
        self.spool_full = dice == 0
        self.feed(ev.SpoolChanged(self.spool_full))

    @rule(timeout=st.none() | st.integers(0, 30), dice=st.integers(0, 9))
    def drain(self, timeout: int | None, dice: int) -> None:
        if dice == 0:
            was_draining = self.core.draining
            assert (ev.AnnounceDraining() in self.feed(ev.DrainRequested(timeout))) != was_draining

    @precondition(lambda self: self.core.draining)
    @rule()
    def stop(self) -> None:
        self.feed(ev.StopRequested())
        assert all(k.phase in (None, ev.Phase.TERMINAL) or k.committed for k in self.known.values())

    # ------------------------------------------------------------------------------------------------ expectations

    def fresh(self) -> SlotId:
        slot_id = SlotId(f"slot-{len(self.slot_ids)}")
        self.slot_ids.add(slot_id)
        return slot_id

    def slot_of(self, task: TaskId) -> SlotId:
        known = self.known.get(task)
        return SlotId("made-up") if known is None or known.slot_id is None else known.slot_id

    def expected_refusal(self, task: TaskId, *, needs_slot: bool) -> type[BlockxError] | None:
        if self.accepted(task):
            return None
        if self.core.draining or not self.ready:
            return Unavailable
        due = self.core.next_deadline_ms()
        may_free = due is not None and due <= self.now
        if needs_slot and (self.spool_full or (self.held() == SETTINGS.slots and not may_free)):
            return NoSlot
        return None

    def feed_expecting(self, event: ev.WorkerEvent, expected: type[BlockxError] | None) -> None:
        if expected is None:
            self.feed(event)
            return
        with pytest.raises(expected):
            self.feed(event)

    def feed_expecting_new(
        self, task: TaskId, event: ev.WorkerEvent, slot_id: SlotId, lease_until: int, deadline: int = 0
    ) -> None:
        """Feed a request that gets a slot, unless what is due now frees none of a full table."""
        fingerprint = self.fingerprint()
        try:
            commands = self.core.handle(event, self.now)
        except NoSlot:
            assert self.held() == SETTINGS.slots
            assert self.fingerprint() == fingerprint
            return
        self.handled_at = self.now
        prepare = commands.pop() if deadline else None
        for command in commands:
            self.follow(command)
        assert task not in self.known
        self.known[task] = Known(None, slot_id, lease_until, deadline)
        if prepare is not None:
            assert prepare == ev.PrepareTaskActivation(task, deadline)
            self.follow(prepare)

    # ------------------------------------------------------------------------------------------------ invariants

    @invariant()
    def slots_are_counted_and_bound_to_one_task_each(self) -> None:
        counts = self.core.counts
        assert counts.free + counts.allocated + counts.running == counts.slots == SETTINGS.slots
        assert min(counts.free, counts.allocated, counts.running) >= 0
        holders = [known for known in self.known.values() if known.phase is not ev.Phase.TERMINAL]
        assert counts.allocated + counts.running == len(holders)
        assert counts.running == sum(known.phase in ORDER[1:4] for known in holders)
        assert len({known.slot_id for known in holders}) == len(holders)

    @invariant()
    def every_task_is_seen_as_commands_made_it(self) -> None:
        for task, known in self.known.items():
            view = self.core.task(task, self.now)
            if known.phase is None:
                assert (view is None) == (known.lease_until <= self.now)
                assert view is None or (view.state, view.slot_id) == (TaskState.ALLOCATED, known.slot_id)
            elif known.phase is ev.Phase.TERMINAL:
                assert (view is None) == (known.ended_at + SETTINGS.result_retention_ms <= self.now)
                assert view is None or view.state.is_terminal
            else:
                assert view is not None
                assert (view.state, view.slot_id, view.phase) == (TaskState.RUNNING, known.slot_id, known.phase)
                assert view.deadline_ms == known.deadline
        assert self.core.running_tasks == sum(k.phase in ORDER[:4] for k in self.known.values())
        assert self.core.retained_results == sum(k.phase is ev.Phase.TERMINAL for k in self.known.values())

    @invariant()
    def readiness_is_as_the_executors_are(self) -> None:
        assert self.core.ready(self.now) == self.ready

    @invariant()
    def nothing_was_left_undone_by_the_last_event(self) -> None:
        due = self.core.next_deadline_ms()
        assert due is None or due > self.handled_at
        assert all(known.next_end > self.handled_at for known in self.known.values())
        assert due is not None or not self.known

    def teardown(self) -> None:
        """Whatever happened: time alone brings every task to its end, and a drain to its own."""
        for _ in range(100):
            due = self.core.next_deadline_ms()
            if due is None:
                break
            self.now = max(self.now, due)
            self.feed(ev.TimersTicked())
        assert not self.known
        assert self.core.counts.free == SETTINGS.slots
        assert (self.finished is not None) == self.core.draining


WorkerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWorkerMachine = WorkerMachine.TestCase
