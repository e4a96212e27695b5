"""What a dispatcher must do, told naively: one object per call, and a check of every command against the rules.

The model does not say which call is sent where and when. It says what may be sent, what must come of each event, and
that nobody waits who need not.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from blockx.model import FailureCode
from blockx.worker.core.call_events import (
    CallId,
    CallRun,
    CallsFailure,
    CloseTask,
    ConvergeTaskCalls,
    DispatcherCommand,
    DispatcherEvent,
    ExecutorId,
    OpenTask,
    ResumeCalls,
    SendCalls,
    StartReads,
    TaskNo,
    index_of,
    task_no_of,
)
from blockx.worker.core.calls import MAX_CALLS_PER_SEND, DispatcherCore
from blockx.worker.core.settings import DispatcherSettings

SETTINGS = DispatcherSettings(
    first_window=4,
    task_max_inflight_calls=16,
    max_backlog_calls=6,
    max_suspended_calls=8,
    max_backlog_bytes=120,
    max_collected_output_bytes=600,
    call_attempts=2,
)


Ends = dict[TaskNo, FailureCode | None]
"""Tasks that end, and how; None: well."""


@define(eq=False)
class ModelCall:
    """One call. It is in flight while `executor` is set; `reads` are the wait ids that are outstanding then."""

    task: TaskNo
    index: int
    run: CallRun
    args: bytes
    attempt: int = 1
    executor: ExecutorId | None = None
    reads: list[int] = field(factory=list)
    due_ms: int | None = None
    output: bytes | None = None

    def waits_to_be_sent(self) -> bool:
        return self.executor is None and self.due_ms is None and self.output is None


@define(eq=False)
class ModelTask:
    calls: list[ModelCall]
    open_on: set[ExecutorId] = field(factory=set)
    sends: int = 0

    def in_flight(self) -> list[ModelCall]:
        return [call for call in self.calls if call.executor is not None]

    def output_bytes(self) -> int:
        return sum(len(call.output) for call in self.calls if call.output is not None)


class Model:
    """Feeds the core and checks what it answers. `expected` are the ends that the event at hand must bring."""

    def __init__(self) -> None:
        self.core = DispatcherCore(SETTINGS, lambda: 0.5)
        self.now_ms = 0
        self.capacities: dict[ExecutorId, int] = {}
        self.tasks: dict[TaskNo, ModelTask] = {}
        self.ended: set[TaskNo] = set()
        self.dropped = 0
        self._ends: Ends = {}
        self._cancelled: ModelTask | None = None
        self.unconfirmed: set[tuple[ExecutorId, TaskNo]] = set()
        self._closing: set[tuple[TaskNo | None, ExecutorId]] = set()

    # What the rules of the machine look at

    def call(self, call_id: CallId) -> ModelCall | None:
        task = self.tasks.get(task_no_of(call_id))
        return None if task is None else task.calls[index_of(call_id)]

    def owned(self, executor: ExecutorId) -> list[ModelCall]:
        return [call for task in self.tasks.values() for call in task.calls if call.executor == executor]

    def waits(self, call_id: CallId) -> bool:
        call = self.call(call_id)
        return call is not None and bool(call.reads)

    def is_current(self, call_id: CallId, attempt: int, executor: ExecutorId) -> bool:
        call = self.call(call_id)
        return call is not None and call.executor == executor and call.attempt == attempt

    def fail(self, call: ModelCall) -> None:
        """The call is to be attempted again, after three quarters of the wait (the jitter is fixed at one half)."""
        wait_ms = min(SETTINGS.retry_base_ms * 2 ** (call.attempt - 1), SETTINGS.retry_max_ms)
        call.due_ms = self.now_ms + wait_ms * 3 // 4
        call.executor, call.reads = None, []
        call.attempt += 1

    def release_due(self) -> int:
        """Retries are due: how many."""
        due = [c for t in self.tasks.values() for c in t.calls if c.due_ms is not None and c.due_ms <= self.now_ms]
        for call in due:
            call.due_ms = None
        return len(due)

    # Feeding

    def feed(
        self, event: DispatcherEvent, *, ends: Ends | None = None, cancels: TaskNo | None = None
    ) -> list[DispatcherCommand]:
        """`ends`: the tasks that this event must end, and how. `cancels`: the task that it must close and no more."""
        self._ends = dict(ends or {})
        self._cancelled = cancelled = None if cancels is None else self.tasks.pop(cancels, None)
        self._closing = {(cancels, executor) for executor in cancelled.open_on} if cancelled else set()
        commands = self.core.handle(event, self.now_ms)
        for command in commands:
            self._check(command)
        assert not self._ends, f"not ended: {self._ends}"
        assert not self._closing, f"not closed: {self._closing}"
        self._check_bounds(commands)
        self._check_nobody_waits_in_vain()
        self._check_clock()
        return commands

    def _check(self, command: DispatcherCommand) -> None:
        match command:
            case SendCalls():
                self._check_sent(command)
            case OpenTask():
                assert command.executor in self.capacities
                assert command.executor not in self.tasks[command.task_no].open_on
                self.tasks[command.task_no].open_on.add(command.executor)
            case CloseTask() if command.task_no in self._ends:
                task = self.tasks[command.task_no]
                task.open_on.remove(command.executor)
                self._check_confirmation(command, task)
            case CloseTask():
                assert self._cancelled is not None
                self._closing.remove((command.task_no, command.executor))
                self._check_confirmation(command, self._cancelled)
            case ConvergeTaskCalls():
                self._check_end(command, self._ends.pop(command.task_no))
            case StartReads():
                assert {task_no_of(call) for call in command.ids} == {command.task_no}
                assert command.task_no in self.tasks
            case ResumeCalls():
                assert {task_no_of(call) for call in command.ids} <= self.tasks.keys()

    def _check_confirmation(self, command: CloseTask, task: ModelTask) -> None:
        ran_there = any(call.executor == command.executor and not call.reads for call in task.calls)
        assert command.must_confirm == ran_there
        if ran_there:
            self.unconfirmed.add((command.executor, command.task_no))

    def is_unconfirmed(self, executor: ExecutorId) -> bool:
        return any(owing == executor for owing, _ in self.unconfirmed)

    def _check_sent(self, command: SendCalls) -> None:
        assert not self.is_unconfirmed(command.executor)
        task = self.tasks[command.task_no]
        assert command.executor in task.open_on
        assert command.executor in self.capacities
        assert 1 <= len(command.ids) <= MAX_CALLS_PER_SEND
        for call_id, attempt, args in zip(command.ids, command.attempts, command.args, strict=True):
            assert task_no_of(call_id) == command.task_no
            call = task.calls[index_of(call_id)]
            assert call.waits_to_be_sent()
            assert (call.attempt, call.args) == (attempt, args)
            assert (call.run.function, call.run.block) == (command.function, command.block)
            call.executor = command.executor
            task.sends += 1

    def _check_end(self, command: ConvergeTaskCalls, failure: FailureCode | None) -> None:
        assert command.task_no not in self.ended
        task = self.tasks.pop(command.task_no)
        self.ended.add(command.task_no)
        assert not task.open_on, "an executor was not told that the task is over"
        assert command.receipt.attempts == task.sends
        if failure is None:
            assert command.failure is None
            assert command.outputs == [call.output for call in task.calls]
        else:
            assert isinstance(command.failure, CallsFailure)
            assert command.failure.code is failure
            assert command.outputs == []

    def _check_bounds(self, commands: Sequence[DispatcherCommand]) -> None:
        sends = [command for command in commands if isinstance(command, SendCalls)]
        for executor in {send.executor for send in sends}:
            owned = self.owned(executor)
            running = [call for call in owned if not call.reads]
            assert len(running) <= min(SETTINGS.max_backlog_calls, self.capacities[executor])
            assert len(owned) <= SETTINGS.max_suspended_calls
            sizes = [len(call.args) for call in running]
            assert sum(sizes) < SETTINGS.max_backlog_bytes + max(sizes)
        for task_no, task in self.tasks.items():
            progress = self.core.task_progress(task_no)
            assert progress is not None
            assert 1 <= progress.window <= SETTINGS.task_max_inflight_calls
            assert progress.in_flight == len(task.in_flight())
            assert progress.done == sum(call.output is not None for call in task.calls)
            if any(send.task_no == task_no for send in sends):
                assert progress.in_flight <= progress.window

    def _check_nobody_waits_in_vain(self) -> None:
        """A call stays unsent only if its task's window is used up, or every executor is full or has two to run."""
        for task_no, task in self.tasks.items():
            progress = self.core.task_progress(task_no)
            assert progress is not None
            if progress.in_flight < progress.window and any(call.waits_to_be_sent() for call in task.calls):
                assert all(self._is_busy(executor) for executor in self.capacities)

    def _check_clock(self) -> None:
        assert self.core.dropped_answers == self.dropped
        dues = [call.due_ms for task in self.tasks.values() for call in task.calls if call.due_ms is not None]
        assert self.core.next_deadline_ms() == min(dues, default=None)

    def _is_busy(self, executor: ExecutorId) -> bool:
        owned = self.owned(executor)
        running = [call for call in owned if not call.reads]
        return (
            self.is_unconfirmed(executor)
            or len(running) >= min(2, self.capacities[executor])
            or len(owned) >= SETTINGS.max_suspended_calls
            or sum(len(call.args) for call in running) >= SETTINGS.max_backlog_bytes
        )
