"""DispatcherCore under any order of events, against the naive model."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from blockx.model import CallErrorCode, FailureCode
from blockx.worker.core.call_events import (
    CallError,
    CallFailed,
    CallId,
    CallRun,
    CallsAdded,
    CallsCancelled,
    CallsCompleted,
    CallsWaited,
    DispatcherCommand,
    ExecutorId,
    ExecutorJoined,
    ExecutorLost,
    ReadsFinished,
    ResumeCalls,
    RetriesDue,
    SendCalls,
    StartReads,
    TaskClosed,
    TaskNo,
    task_no_of,
)
from tests.core.dispatcher_model import SETTINGS, Ends, Model, ModelCall, ModelTask

ERROR = CallError(CallErrorCode.EXCEPTION, "ValueError", "no")
CPU_US = st.sampled_from([0, 60, 900, 20_000])

Sent = tuple[ExecutorId, CallId, int]
"""A call as it was sent: to which executor, in which attempt."""

Read = tuple[CallId, int, int]
"""A read that was started: for which call, in which attempt, under which wait id."""


class DispatcherMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.next_task = 1
        self.next_executor = 1
        self.next_wait = 1
        self.sent: list[Sent] = []
        """Everything that executors may answer, now or too late."""

    def remember(self, commands: Sequence[DispatcherCommand]) -> None:
        for command in commands:
            if isinstance(command, SendCalls):
                pairs = zip(command.ids, command.attempts, strict=True)
                self.sent += [(command.executor, call, attempt) for call, attempt in pairs]

    def current(self) -> list[Sent]:
        return [sent for sent in self.sent if self.model.is_current(sent[1], sent[2], sent[0])]

    def known(self, call: CallId) -> ModelCall:
        found = self.model.call(call)
        assert found is not None
        return found

    def lost_calls(self, executor: ExecutorId) -> Ends:
        """The executor's calls go back; the tasks that end with it."""
        ends: Ends = {}
        for call in self.model.owned(executor):
            if call.attempt == SETTINGS.call_attempts:
                ends[call.task] = FailureCode.CALL_FAILED
            call.executor = None
            call.reads = []
            call.attempt += 1
        for task in self.model.tasks.values():
            task.open_on.discard(executor)
        return ends

    # Executors

    @initialize(capacities=st.lists(st.integers(1, 8), min_size=1, max_size=3))
    def start(self, capacities: list[int]) -> None:
        for capacity in capacities:
            self.executor_joins(capacity)

    @rule(capacity=st.integers(1, 8))
    def executor_joins(self, capacity: int) -> None:
        executor = ExecutorId(self.next_executor)
        self.next_executor += 1
        self.model.capacities[executor] = capacity
        self.remember(self.model.feed(ExecutorJoined(executor, capacity)))

    @precondition(lambda self: len(self.model.capacities) > 0)
    @rule(data=st.data())
    def executor_is_lost(self, data: st.DataObject) -> None:
        executor = data.draw(st.sampled_from(sorted(self.model.capacities)))
        del self.model.capacities[executor]
        self.model.unconfirmed = {owing for owing in self.model.unconfirmed if owing[0] != executor}
        ends = self.lost_calls(executor)
        self.remember(self.model.feed(ExecutorLost(executor, "exit status 1"), ends=ends))

    # Tasks

    @rule(data=st.data(), calls=st.integers(0, 40), sizes=st.sampled_from([(1,), (5, 0, 9), (150, 30)]))
    def task_is_added(self, data: st.DataObject, calls: int, sizes: tuple[int, ...]) -> None:
        task_no = TaskNo(self.next_task)
        self.next_task += 1
        starts = sorted({0, *data.draw(st.lists(st.integers(0, calls - 1), max_size=4))} if calls else ())
        runs = tuple(CallRun(start, f"f{n % 2}", b"b" if n > 1 else None) for n, start in enumerate(starts))
        args = [bytes(sizes[index % len(sizes)]) for index in range(calls)]
        owners = [max((run for run in runs if run.start <= index), key=lambda run: run.start) for index in range(calls)]
        model_calls = [ModelCall(task_no, index, owners[index], args[index]) for index in range(calls)]
        self.model.tasks[task_no] = ModelTask(model_calls)
        ends: Ends = {} if calls else {task_no: None}
        self.remember(self.model.feed(CallsAdded(task_no=task_no, runs=runs, args=args), ends=ends))

    @precondition(lambda self: self.next_task > 1)
    @rule(data=st.data())
    def task_is_cancelled(self, data: st.DataObject) -> None:
        task_no = TaskNo(data.draw(st.integers(1, self.next_task - 1)))
        self.model.ended.add(task_no)
        self.remember(self.model.feed(CallsCancelled(task_no), cancels=task_no))

    @precondition(lambda self: self.model.unconfirmed)
    @rule(data=st.data())
    def close_is_confirmed(self, data: st.DataObject) -> None:
        self.confirm(data.draw(st.sampled_from(sorted(self.model.unconfirmed))))

    def confirm(self, owing: tuple[ExecutorId, TaskNo]) -> None:
        self.model.unconfirmed.remove(owing)
        self.remember(self.model.feed(TaskClosed(*owing)))

    # Answers; those of calls that no longer count are among them

    def one_executors(self, data: st.DataObject, *, waiting: bool = False) -> list[Sent]:
        """What one executor answers in one frame: mostly current calls (that wait for reads), some that are not."""
        likely = [sent for sent in self.current() if self.model.waits(sent[1]) or not waiting]
        executor = data.draw(st.sampled_from(likely or self.sent))[0]
        candidates = [sent for sent in self.sent if sent[0] == executor]
        fresh = [sent for sent in likely if sent[0] == executor] or candidates
        pool = st.sampled_from(fresh) if data.draw(st.integers(0, 3)) else st.sampled_from(candidates)
        return data.draw(st.lists(pool, min_size=1, max_size=8))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), cpu_us=CPU_US, size=st.sampled_from([0, 3, 3, 250]))
    def calls_complete(self, data: st.DataObject, cpu_us: int, size: int) -> None:
        answers = self.one_executors(data)
        self.complete(answers, cpu_us, [b"%d" % n + bytes(size) for n in range(len(answers))])

    def complete(self, answers: list[Sent], cpu_us: int, values: list[bytes]) -> None:
        touched: set[TaskNo] = set()
        for (executor, call, attempt), value in zip(answers, values, strict=True):
            if not self.model.is_current(call, attempt, executor):
                self.model.dropped += 1
                continue
            found = self.known(call)
            found.executor, found.reads, found.output = None, [], value
            touched.add(found.task)
        ends: Ends = {}
        for task_no in touched:
            task = self.model.tasks[task_no]
            if task.output_bytes() > SETTINGS.max_collected_output_bytes:
                ends[task_no] = FailureCode.OUTPUT_BYTES_EXCEEDED
            elif all(call.output is not None for call in task.calls):
                ends[task_no] = None
        event = CallsCompleted(
            executor=answers[0][0],
            ids=[call for _, call, _ in answers],
            attempts=[attempt for _, _, attempt in answers],
            cpu_us=[cpu_us] * len(answers),
            values=values,
        )
        self.remember(self.model.feed(event, ends=ends))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), retryable=st.sampled_from([True, True, True, False]))
    def call_fails(self, data: st.DataObject, retryable: bool) -> None:
        executor, call, attempt = self.one_executors(data)[0]
        ends: Ends = {}
        if not self.model.is_current(call, attempt, executor):
            self.model.dropped += 1
        elif retryable and attempt < SETTINGS.call_attempts:
            self.model.fail(self.known(call))
        else:
            ends[task_no_of(call)] = FailureCode.CALL_FAILED
            self.known(call).executor = None  # it has answered, so it does not run there any more
        event = CallFailed(executor=executor, id=call, attempt=attempt, error=ERROR, retryable=retryable, cpu_us=5)
        self.remember(self.model.feed(event, ends=ends))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def calls_wait(self, data: st.DataObject) -> None:
        answers = self.one_executors(data)
        wait_ids = list(range(self.next_wait, self.next_wait + len(answers)))
        self.next_wait += len(answers)
        expected: list[Read] = []
        for (executor, call, attempt), wait_id in zip(answers, wait_ids, strict=True):
            if self.model.is_current(call, attempt, executor):
                self.known(call).reads.append(wait_id)
                expected.append((call, attempt, wait_id))
            else:
                self.model.dropped += 1
        event = CallsWaited(
            executor=answers[0][0],
            ids=[call for _, call, _ in answers],
            attempts=[attempt for _, _, attempt in answers],
            wait_ids=wait_ids,
            cpu_us=[0] * len(answers),
            requests=[b""] * len(answers),
        )
        commands = self.model.feed(event)
        self.remember(commands)
        starts = [command for command in commands if isinstance(command, StartReads)]
        assert sorted(expected) == sorted(
            read for start in starts for read in zip(start.ids, start.attempts, start.wait_ids, strict=True)
        )

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def reads_finish(self, data: st.DataObject) -> None:
        answers = self.one_executors(data, waiting=True)
        wait_ids, expected = [], []
        for executor, call, attempt in answers:
            found = self.model.call(call)
            if found is not None and self.model.is_current(call, attempt, executor) and found.reads:
                wait_ids.append(found.reads.pop(0))
                expected.append((call, wait_ids[-1]))
            else:
                wait_ids.append(0)
                self.model.dropped += 1
        event = ReadsFinished(
            executor=answers[0][0],
            ids=[call for _, call, _ in answers],
            attempts=[attempt for _, _, attempt in answers],
            wait_ids=wait_ids,
            io_us=[7] * len(answers),
            values=[b""] * len(answers),
            errors=[None] * len(answers),
        )
        commands = self.model.feed(event)
        self.remember(commands)
        resumes = [command for command in commands if isinstance(command, ResumeCalls)]
        assert expected == [pair for resume in resumes for pair in zip(resume.ids, resume.wait_ids, strict=True)]

    # Time

    @rule(pass_ms=st.sampled_from([1, 20, 60, 500]))
    def time_passes(self, pass_ms: int) -> None:
        self.model.now_ms += pass_ms
        due = self.model.core.next_deadline_ms()
        if due is not None and due <= self.model.now_ms:
            self.retries_fall_due()

    @precondition(lambda self: self.model.core.next_deadline_ms() is not None)
    @rule()
    def retries_fall_due(self) -> None:
        due = self.model.core.next_deadline_ms()
        assert due is not None
        self.model.now_ms = max(self.model.now_ms, due)
        assert self.model.release_due() > 0
        self.remember(self.model.feed(RetriesDue()))

    # At the end everything is answered, and every task ends

    def teardown(self) -> None:
        self.executor_joins(4)
        while self.model.tasks or self.model.unconfirmed:
            for owing in sorted(self.model.unconfirmed):
                self.confirm(owing)
            answers = self.current()
            if answers:
                same = [sent for sent in answers if sent[0] == answers[0][0]]
                self.complete(same, 50, [b""] * len(same))
            elif self.model.tasks:
                self.retries_fall_due()
        assert self.model.core.next_deadline_ms() is None
        assert self.model.ended == set(range(1, self.next_task))
        for executor in self.model.capacities:
            backlog = self.model.core.backlog(executor)
            assert backlog is not None
            assert (backlog.running, backlog.waiting, backlog.argument_bytes, backlog.estimated_us) == (0, 0, 0, 0)
        assert all(self.model.core.task_progress(TaskNo(no)) is None for no in range(1, self.next_task))


DispatcherMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestDispatcherMachine = DispatcherMachine.TestCase
