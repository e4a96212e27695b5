"""DispatcherCore: which call runs where and when, and how a task's calls end.

The hot path of the worker. One event per frame read, one command per executor, task, function and block; what is known
of calls is kept in columns (columns.py). The parts: windows.py (how many calls of a task at once), fairness.py (which
task is next), placement.py (which executor), retry.py (whether and when again).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import assert_never

from attrs import frozen

from blockx.worker.core.call_events import (
    CallFailed,
    CallId,
    CallsAdded,
    CallsCancelled,
    CallsCompleted,
    CallsFailure,
    CallsWaited,
    CloseTask,
    ConvergeTaskCalls,
    DispatcherCommand,
    DispatcherEvent,
    ExecutorId,
    ExecutorJoined,
    ExecutorLost,
    OpenTask,
    ReadsFinished,
    ResumeCalls,
    RetriesDue,
    SendCalls,
    StartReads,
    TaskClosed,
    TaskNo,
    index_of,
    task_no_of,
)
from blockx.worker.core.call_failures import call_failed, executor_crashed, output_bytes_exceeded
from blockx.worker.core.columns import TaskCalls, by_function, pick
from blockx.worker.core.fairness import DeficitRing, charge_us
from blockx.worker.core.placement import CallCosts, ExecutorBacklog, ExecutorLoad, least_loaded
from blockx.worker.core.retry import CallRetryPolicy
from blockx.worker.core.settings import DispatcherSettings
from blockx.worker.core.windows import CallWindow

MAX_CALLS_PER_SEND = 64
"""What one frame carries; more calls a frame gained nothing that could be measured."""


@frozen
class CallProgress:
    """How far a task's calls are. `window` is how many may be in flight now."""

    total: int
    done: int
    in_flight: int
    window: int


class DispatcherCore:
    """Dispatches the calls of all tasks over all executors; see the module for the rules' places.

    `jitter` gives numbers in [0, 1) that spread retries. State changes only in `handle`.
    """

    def __init__(self, settings: DispatcherSettings, jitter: Callable[[], float]) -> None:
        self._settings = settings
        self._jitter = jitter
        self._policy = CallRetryPolicy(
            attempts=settings.call_attempts, base_ms=settings.retry_base_ms, max_ms=settings.retry_max_ms
        )
        self._tasks: dict[TaskNo, TaskCalls] = {}
        self._loads: dict[ExecutorId, ExecutorLoad] = {}
        self._ring: DeficitRing[TaskCalls] = DeficitRing()
        self._costs = CallCosts()
        self._retries: list[tuple[int, CallId]] = []
        self._dropped_answers = 0

    @property
    def dropped_answers(self) -> int:
        """Answers that came too late: of a task that had ended, or of an attempt or executor that no longer counts."""
        return self._dropped_answers

    def next_deadline_ms(self) -> int | None:
        """When RetriesDue is to be reported next; None: nothing waits for time to pass."""
        return self._retries[0][0] if self._retries else None

    def task_progress(self, task_no: TaskNo) -> CallProgress | None:
        """None once the task's calls have ended."""
        task = self._tasks.get(task_no)
        if task is None:
            return None
        return CallProgress(len(task.args), task.done, task.window.in_flight, task.window.size)

    def backlog(self, executor: ExecutorId) -> ExecutorBacklog | None:
        """None for an executor that has not joined or is lost."""
        load = self._loads.get(executor)
        return None if load is None else load.backlog()

    def handle(self, event: DispatcherEvent, now_ms: int) -> list[DispatcherCommand]:
        """Take one event and say what is to be done, in this order.

        Raises ValueError for a task or executor that is already there and for runs that do not cover the calls.
        """
        commands: list[DispatcherCommand] = []
        match event:
            case CallsCompleted():
                self._calls_completed(event, commands)
            case CallsWaited():
                self._calls_waited(event, commands)
            case ReadsFinished():
                self._reads_finished(event, commands)
            case CallFailed():
                self._call_failed(event, commands, now_ms)
            case CallsAdded():
                self._calls_added(event, commands, now_ms)
            case CallsCancelled():
                self._calls_cancelled(event, commands)
            case TaskClosed():
                self._task_closed(event)
            case ExecutorJoined():
                self._executor_joined(event)
            case ExecutorLost():
                self._executor_lost(event, commands)
            case RetriesDue():
                self._retries_due(now_ms)
            case _:
                assert_never(event)
        self._dispatch(commands, now_ms)
        return commands

    # Tasks come and go

    def _calls_added(self, event: CallsAdded, commands: list[DispatcherCommand], now_ms: int) -> None:
        if event.task_no in self._tasks:
            raise ValueError(f"the calls of task {event.task_no} were added before")
        first_window = min(self._settings.first_window, self._settings.task_max_inflight_calls)
        window = CallWindow(first_window, self._settings.task_max_inflight_calls)
        task = TaskCalls(event.task_no, event.runs, event.args, window, now_ms)
        self._tasks[event.task_no] = task
        self._settle(task, commands)

    def _calls_cancelled(self, event: CallsCancelled, commands: list[DispatcherCommand]) -> None:
        task = self._tasks.get(event.task_no)
        if task is not None:
            self._close(task, commands)

    def _settle(self, task: TaskCalls, commands: list[DispatcherCommand]) -> None:
        """Calls were added or completed: end the task if it is over, else let it send."""
        bound_bytes = self._settings.max_collected_output_bytes
        if task.output_bytes > bound_bytes:
            self._converge(task, output_bytes_exceeded(task, bound_bytes), commands)
        elif task.done == len(task.args):
            self._converge(task, None, commands)
        else:
            self._queue(task)

    def _queue(self, task: TaskCalls) -> None:
        if task.sendable():
            self._ring.add(task)
        else:
            self._ring.remove(task)

    def _converge(self, task: TaskCalls, failure: CallsFailure | None, commands: list[DispatcherCommand]) -> None:
        self._close(task, commands)
        outputs = task.outputs if failure is None else []
        receipt = task.totals.receipt()
        commands.append(ConvergeTaskCalls(task_no=task.task_no, failure=failure, outputs=outputs, receipt=receipt))

    def _close(self, task: TaskCalls, commands: list[DispatcherCommand]) -> None:
        """Forget the task everywhere; from here on its answers are late."""
        self._ring.remove(task)
        if task.delayed:
            self._retries = [entry for entry in self._retries if task_no_of(entry[1]) != task.task_no]
            heapq.heapify(self._retries)
        for executor in task.executors:
            load = self._loads[executor]
            ran_there = self._take_back(load, task)
            if ran_there:
                load.unconfirmed.add(task.task_no)
            commands.append(CloseTask(executor, task.task_no, must_confirm=ran_there))
        del self._tasks[task.task_no]

    def _take_back(self, load: ExecutorLoad, task: TaskCalls) -> bool:
        """Take the task's calls away from an executor; True if any of them was running, not just waiting for data."""
        if not task.window.in_flight:
            return False
        ids = [call for call in load.owned if task_no_of(call) == task.task_no]
        ran_there = any(call not in load.waiting for call in ids)
        for call in ids:
            del load.owned[call]
        for _, function, at in by_function(self._tasks, ids):
            _let_go(load, task, function, pick(ids, at))
        return ran_there

    def _task_closed(self, event: TaskClosed) -> None:
        load = self._loads.get(event.executor)
        if load is not None:
            load.unconfirmed.discard(event.task_no)

    # Executors come and go

    def _executor_joined(self, event: ExecutorJoined) -> None:
        if event.executor in self._loads:
            raise ValueError(f"executor {event.executor} joined before")
        self._loads[event.executor] = ExecutorLoad(event.executor, event.capacity, self._settings, self._costs)

    def _executor_lost(self, event: ExecutorLost, commands: list[DispatcherCommand]) -> None:
        load = self._loads.pop(event.executor, None)
        if load is None:
            return
        for task in self._tasks.values():
            task.executors.pop(event.executor, None)
        lost: dict[TaskNo, list[CallId]] = {}
        for call in load.owned:
            lost.setdefault(task_no_of(call), []).append(call)
        for task_no, ids in lost.items():
            self._calls_lost(self._tasks[task_no], ids, load, event.reason, commands)

    def _calls_lost(
        self, task: TaskCalls, ids: list[CallId], load: ExecutorLoad, reason: str, commands: list[DispatcherCommand]
    ) -> None:
        """Send the calls again at once, unless this was the last attempt of one of them."""
        worn = [call for call in ids if not self._policy.allows_after(load.owned[call])]
        if worn:
            failure = call_failed(task, index_of(worn[0]), load.owned[worn[0]], executor_crashed(reason))
            self._converge(task, failure, commands)
            return
        for call in ids:
            task.raise_attempt(call, load.owned[call])
            task.send_again(call)
        task.window.taken_back(len(ids))
        self._queue(task)

    # Answers

    def _calls_completed(self, event: CallsCompleted, commands: list[DispatcherCommand]) -> None:
        load = self._loads.get(event.executor)
        current = [] if load is None else load.claim(event.ids, event.attempts)
        ids = self._current(event.ids, current)
        if load is None or not ids:
            return
        cpu_us, values = pick(event.cpu_us, current), pick(event.values, current)
        groups = by_function(self._tasks, ids)
        for task, function, at in groups:
            self._complete(load, task, function, pick(ids, at), pick(cpu_us, at))
            task.complete(pick(ids, at), pick(values, at))
        for task in {task.task_no: task for task, _, _ in groups}.values():
            self._settle(task, commands)

    def _complete(
        self, load: ExecutorLoad, task: TaskCalls, function: str, ids: list[CallId], cpu_us: list[int]
    ) -> None:
        _let_go(load, task, function, ids)
        total_us = sum(cpu_us)
        self._costs.observe(function, len(ids), total_us)
        task.totals.cpu_us += total_us

    def _call_failed(self, event: CallFailed, commands: list[DispatcherCommand], now_ms: int) -> None:
        load = self._loads.get(event.executor)
        if load is None or load.claim([event.id], [event.attempt]) is not None:
            self._dropped_answers += 1
            return
        task, index = self._tasks[task_no_of(event.id)], index_of(event.id)
        _let_go(load, task, task.run_of(index).function, [event.id])
        task.totals.cpu_us += event.cpu_us
        if event.retryable and self._policy.allows_after(event.attempt):
            self._delay(task, event.id, event.attempt, now_ms)
        else:
            self._converge(task, call_failed(task, index, event.attempt, event.error), commands)

    def _calls_waited(self, event: CallsWaited, commands: list[DispatcherCommand]) -> None:
        load = self._loads.get(event.executor)
        current = [] if load is None else load.current(event.ids, event.attempts)
        ids = self._current(event.ids, current)
        if load is None:
            return
        attempts, wait_ids = pick(event.attempts, current), pick(event.wait_ids, current)
        requests = pick(event.requests, current)
        for task, function, at in by_function(self._tasks, ids):
            waiting = pick(ids, at)
            fresh = load.wait(waiting)
            if fresh:
                load.release(function, len(fresh), task.argument_bytes(fresh))
            task.totals.reads += len(waiting)
            commands.append(
                StartReads(
                    executor=event.executor,
                    task_no=task.task_no,
                    ids=waiting,
                    attempts=pick(attempts, at),
                    wait_ids=pick(wait_ids, at),
                    requests=pick(requests, at),
                )
            )

    def _reads_finished(self, event: ReadsFinished, commands: list[DispatcherCommand]) -> None:
        load = self._loads.get(event.executor)
        current, resumed = ([], []) if load is None else load.resume(event.ids, event.attempts)
        ids = self._current(event.ids, current)
        if load is None or not ids:
            return
        for task, function, at in by_function(self._tasks, resumed):
            running = pick(resumed, at)
            load.hold(function, len(running), task.argument_bytes(running))
        io_us = pick(event.io_us, current)
        for call, spent_us in zip(ids, io_us, strict=True):
            self._tasks[task_no_of(call)].totals.io_us += spent_us
        commands.append(
            ResumeCalls(
                executor=event.executor,
                ids=ids,
                wait_ids=pick(event.wait_ids, current),
                io_us=io_us,
                values=pick(event.values, current),
                errors=pick(event.errors, current),
            )
        )

    def _current(self, ids: list[CallId], current: Sequence[int] | None) -> list[CallId]:
        """The ids at the current positions; the others' answers are dropped and counted."""
        kept = pick(ids, current)
        self._dropped_answers += len(ids) - len(kept)
        return kept

    # Retries

    def _delay(self, task: TaskCalls, call: CallId, attempt: int, now_ms: int) -> None:
        task.raise_attempt(call, attempt)
        task.delayed += 1
        task.window.failed()
        heapq.heappush(self._retries, (now_ms + self._policy.delay_ms(attempt, self._jitter()), call))
        self._queue(task)

    def _retries_due(self, now_ms: int) -> None:
        while self._retries and self._retries[0][0] <= now_ms:
            _, call = heapq.heappop(self._retries)
            task = self._tasks[task_no_of(call)]
            task.delayed -= 1
            task.send_again(call)
            self._queue(task)

    # Sending

    def _dispatch(self, commands: list[DispatcherCommand], now_ms: int) -> None:
        """Send as long as a task may send and an executor has room."""
        if not self._ring:
            return
        loads = [load for load in self._loads.values() if load.is_open()]
        while loads and self._ring:
            load = least_loaded(loads)
            self._send(self._ring.head(), load, commands, now_ms)
            if not load.is_open():
                loads.remove(load)

    def _send(self, task: TaskCalls, load: ExecutorLoad, commands: list[DispatcherCommand], now_ms: int) -> None:
        cost_us = self._costs.estimate_us(task.next_function())
        turn = math.ceil(task.deficit_us / charge_us(cost_us))
        limit = min(turn, load.room(cost_us), task.window.free, MAX_CALLS_PER_SEND)
        batch = task.take(limit, load.free_bytes(), now_ms)
        load.send(batch.run.function, batch.ids, batch.attempts, batch.argument_bytes)
        if load.executor not in task.executors:
            task.executors[load.executor] = None
            commands.append(OpenTask(load.executor, task.task_no))
        commands.append(
            SendCalls(
                executor=load.executor,
                task_no=task.task_no,
                function=batch.run.function,
                block=batch.run.block,
                ids=batch.ids,
                attempts=batch.attempts,
                args=batch.args,
            )
        )
        self._ring.charge(task, charge_us(cost_us) * len(batch.ids))
        self._queue(task)


def _let_go(load: ExecutorLoad, task: TaskCalls, function: str, ids: list[CallId]) -> None:
    """The calls (of one task and function) have left the executor: free what they held."""
    running = load.stop_waiting(ids)
    if running:
        load.release(function, len(running), task.argument_bytes(running))
