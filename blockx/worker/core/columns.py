"""The calls of one task, in columns: what is queued, what came back, what it cost. There is no object per call.

A call that was never sent costs the place of its output in a list, beside its packed arguments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar, cast

from attrs import define, field

from blockx.model import Receipt
from blockx.worker.core.call_events import (
    INDEX_BITS,
    CallId,
    CallRun,
    ExecutorId,
    TaskNo,
    index_of,
    task_no_of,
)
from blockx.worker.core.windows import CallWindow

FIRST_ATTEMPT = 1

T = TypeVar("T")


@define
class CallTotals:
    """What the calls of a task cost so far; see Receipt for the units."""

    cpu_us: int = 0
    io_us: int = 0
    queue_us: int = 0
    reads: int = 0
    bytes_in: int = 0
    attempts: int = 0

    def receipt(self) -> Receipt:
        return Receipt(
            cpu_us=self.cpu_us,
            io_us=self.io_us,
            queue_us=self.queue_us,
            reads=self.reads,
            bytes_in=self.bytes_in,
            attempts=self.attempts,
        )


@define
class Batch:
    """Calls of one run that leave together."""

    run: CallRun
    ids: list[CallId]
    attempts: list[int]
    args: list[bytes]
    argument_bytes: int


@define(eq=False)
class TaskCalls:
    """One task's root calls. Every call is unsent, in `again`, delayed (by the retry heap), in flight or done."""

    task_no: TaskNo
    runs: tuple[CallRun, ...]
    args: list[bytes]
    window: CallWindow
    added_ms: int
    totals: CallTotals = field(factory=CallTotals)
    outputs: list[bytes] = field(init=False)
    output_bytes: int = 0
    done: int = 0
    delayed: int = 0
    executors: dict[ExecutorId, None] = field(factory=dict)
    """Those on which the task is open, in the order in which they got it."""
    deficit_us: float = 0
    in_ring: bool = False
    only_function: str | None = field(init=False)
    """The function of all calls, if they have but one."""
    _first_id: int = field(init=False)
    _next: int = 0
    _next_run: int = 0
    _again: deque[int] = field(factory=deque)
    _attempts: dict[int, int] = field(factory=dict)
    """The attempt number that a call has now, of those that are beyond their first."""
    _starts: list[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._starts = [run.start for run in self.runs]
        self._check_runs()
        functions = {run.function for run in self.runs}
        self.only_function = functions.pop() if len(functions) == 1 else None
        self.outputs = [b""] * len(self.args)
        self._first_id = self.task_no << INDEX_BITS

    def _check_runs(self) -> None:
        """Runs without calls, or calls without a run, would be dispatched for ever or not at all."""
        calls = len(self.args)
        if calls > 1 << INDEX_BITS:
            raise ValueError(f"task {self.task_no} has {calls} calls; call ids have room for {1 << INDEX_BITS}")
        bounds = [*self._starts, calls]
        if bounds[0] != 0 or any(start >= stop for start, stop in pairwise(bounds)):
            raise ValueError(
                f"the runs of task {self.task_no} start at {self._starts}, which does not cover {calls} calls"
            )

    def sendable(self) -> bool:
        return self.window.in_flight < self.window.size and (self._next < len(self.args) or bool(self._again))

    def run_of(self, index: int) -> CallRun:
        return self.runs[bisect_right(self._starts, index) - 1]

    def next_function(self) -> str:
        """The function of the call that `take` would send first."""
        return self.run_of(self._again[0]).function if self._again else self.runs[self._next_run].function

    def argument_bytes(self, ids: list[CallId]) -> int:
        args, first = self.args, self._first_id
        return sum([len(args[call - first]) for call in ids])

    def take(self, limit: int, free_bytes: int, now_ms: int) -> Batch:
        """The next calls to send: at most `limit` (at least 1) of one run; the last may cross `free_bytes` (above 0).

        Calls that are sent again come first.
        """
        batch = self._take_again(limit, free_bytes) if self._again else self._take_fresh(limit, free_bytes, now_ms)
        calls = len(batch.ids)
        self.window.sent(calls)
        self.totals.attempts += calls
        self.totals.bytes_in += batch.argument_bytes
        return batch

    def _take_fresh(self, limit: int, free_bytes: int, now_ms: int) -> Batch:
        run, start = self.runs[self._next_run], self._next
        args = self.args[start : min(start + limit, self._end_of(self._next_run))]
        total = sum(map(len, args))
        if total > free_bytes:
            sums = list(accumulate(map(len, args)))
            calls = bisect_right(sums, free_bytes - 1) + 1
            args, total = args[:calls], sums[calls - 1]
        calls = len(args)
        self._next += calls
        if self._next == self._end_of(self._next_run):
            self._next_run += 1
        self.totals.queue_us += (now_ms - self.added_ms) * 1_000 * calls
        first = self._first_id + start
        ids = cast("list[CallId]", list(range(first, first + calls)))
        return Batch(run, ids, [FIRST_ATTEMPT] * calls, args, total)

    def _take_again(self, limit: int, free_bytes: int) -> Batch:
        again = self._again
        run = self.run_of(again[0])
        indices: list[int] = []
        total = 0
        while again and len(indices) < limit and total < free_bytes and self.run_of(again[0]) is run:
            index = again.popleft()
            indices.append(index)
            total += len(self.args[index])
        ids = [CallId(self._first_id + index) for index in indices]
        return Batch(run, ids, [self._attempts[i] for i in indices], [self.args[i] for i in indices], total)

    def _end_of(self, run_no: int) -> int:
        return self._starts[run_no + 1] if run_no + 1 < len(self._starts) else len(self.args)

    def complete(self, ids: list[CallId], values: list[bytes]) -> None:
        outputs, first = self.outputs, self._first_id
        for call, value in zip(ids, values, strict=True):
            outputs[call - first] = value
        self.done += len(ids)
        self.output_bytes += sum(map(len, values))
        self.window.completed(len(ids))

    def raise_attempt(self, call: CallId, attempt: int) -> None:
        """The call's attempt is over; answers to it are late from now on."""
        self._attempts[index_of(call)] = attempt + 1

    def send_again(self, call: CallId) -> None:
        self._again.append(index_of(call))


def by_function(
    tasks: Mapping[TaskNo, TaskCalls], ids: Sequence[CallId]
) -> list[tuple[TaskCalls, str, list[int] | None]]:
    """The calls by task and function: the positions of each group, or None for all (the common case; see `pick`)."""
    if not ids:
        return []
    task = tasks[task_no_of(min(ids))]
    if task.only_function is not None and task_no_of(max(ids)) == task.task_no:
        return [(task, task.only_function, None)]
    groups: dict[tuple[TaskNo, str], list[int]] = {}
    for position, call in enumerate(ids):
        task = tasks[task_no_of(call)]
        function = task.only_function or task.run_of(index_of(call)).function
        groups.setdefault((task.task_no, function), []).append(position)
    return [(tasks[task_no], function, at) for (task_no, function), at in groups.items()]


def pick(column: list[T], positions: Sequence[int] | None) -> list[T]:
    """The entries at these positions; None takes the column as it is."""
    return column if positions is None else [column[position] for position in positions]
