"""A DispatcherCore with short spellings of the events it hears and the commands it is to answer with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blockx.model import CallErrorCode, Receipt
from blockx.worker.core.call_events import (
    CallError,
    CallFailed,
    CallId,
    CallRun,
    CallsAdded,
    CallsCancelled,
    CallsCompleted,
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
    call_id,
)
from blockx.worker.core.calls import CallProgress, DispatcherCore
from blockx.worker.core.columns import FIRST_ATTEMPT
from blockx.worker.core.placement import CALL_OVERHEAD_US
from blockx.worker.core.settings import DispatcherSettings

BROKEN = CallError(CallErrorCode.EXCEPTION, "ValueError", "bad hex", "Traceback …")
BUSY = CallError(CallErrorCode.EXCEPTION, "RetryableError", "try later")


def ids(task: int, indices: Iterable[int]) -> list[CallId]:
    return [call_id(TaskNo(task), index) for index in indices]


def argument(index: int) -> bytes:
    return b"arg%d" % index


def value(index: int) -> bytes:
    return b"value%d" % index


def opened(task: int, executor: int = 1) -> OpenTask:
    return OpenTask(ExecutorId(executor), TaskNo(task))


def closed(task: int, executor: int = 1, *, must_confirm: bool = False) -> CloseTask:
    return CloseTask(ExecutorId(executor), TaskNo(task), must_confirm)


def sent(
    task: int,
    indices: Sequence[int],
    *,
    executor: int = 1,
    function: str = "f",
    block: bytes | None = None,
    attempts: list[int] | None = None,
) -> SendCalls:
    return SendCalls(
        executor=ExecutorId(executor),
        task_no=TaskNo(task),
        function=function,
        block=block,
        ids=ids(task, indices),
        attempts=attempts or [FIRST_ATTEMPT] * len(indices),
        args=[argument(index) for index in indices],
    )


def sent_indices(commands: Iterable[DispatcherCommand], task: int = 1) -> list[int]:
    first = call_id(TaskNo(task), 0)
    return [call - first for c in commands if isinstance(c, SendCalls) and c.task_no == task for call in c.ids]


def ended(commands: Sequence[DispatcherCommand]) -> ConvergeTaskCalls:
    """The one end of a task among the commands."""
    (end,) = [command for command in commands if isinstance(command, ConvergeTaskCalls)]
    return end


def converged(task: int, calls: int, **totals: int) -> ConvergeTaskCalls:
    """The end of a task that went well; `attempts` and `bytes_in` are those of calls that were each sent once."""
    bytes_in = sum(len(argument(index)) for index in range(calls))
    receipt = Receipt(**{"attempts": calls, "bytes_in": bytes_in, **totals})
    outputs = [value(index) for index in range(calls)]
    return ConvergeTaskCalls(task_no=TaskNo(task), failure=None, outputs=outputs, receipt=receipt)


class Rig:
    """`settings` are those of DispatcherSettings; `executors` join first, numbered from 1."""

    def __init__(self, *, executors: int = 1, capacity: int = 4_096, jitter: float = 0.0, **settings: int) -> None:
        self.core = DispatcherCore(DispatcherSettings(**settings), lambda: jitter)
        self.now_ms = 0
        self._lesson = 900
        for executor in range(1, executors + 1):
            assert self.join(executor, capacity) == []

    def feed(self, event: DispatcherEvent) -> list[DispatcherCommand]:
        return self.core.handle(event, self.now_ms)

    def join(self, executor: int, capacity: int = 4_096) -> list[DispatcherCommand]:
        return self.feed(ExecutorJoined(ExecutorId(executor), capacity))

    def lose(self, executor: int, reason: str = "killed by SIGKILL") -> list[DispatcherCommand]:
        return self.feed(ExecutorLost(ExecutorId(executor), reason))

    def add(self, task: int, calls: int, *runs: tuple[int, str, bytes | None]) -> list[DispatcherCommand]:
        args = [argument(index) for index in range(calls)]
        return self.add_args(task, args, *runs)

    def add_args(self, task: int, args: list[bytes], *runs: tuple[int, str, bytes | None]) -> list[DispatcherCommand]:
        default = ((0, "f", None),) if args else ()
        shape = tuple(CallRun(*run) for run in runs or default)
        return self.feed(CallsAdded(task_no=TaskNo(task), runs=shape, args=args))

    def confirm(self, task: int, executor: int = 1) -> list[DispatcherCommand]:
        return self.feed(TaskClosed(ExecutorId(executor), TaskNo(task)))

    def cancel(self, task: int) -> list[DispatcherCommand]:
        return self.feed(CallsCancelled(TaskNo(task)))

    def complete(
        self,
        task: int,
        indices: Sequence[int],
        *,
        executor: int = 1,
        attempts: list[int] | None = None,
        cpu_us: int = 0,
        values: list[bytes] | None = None,
    ) -> list[DispatcherCommand]:
        calls = len(indices)
        return self.feed(
            CallsCompleted(
                executor=ExecutorId(executor),
                ids=ids(task, indices),
                attempts=attempts or [FIRST_ATTEMPT] * calls,
                cpu_us=[cpu_us] * calls,
                values=values or [value(index) for index in indices],
            )
        )

    def complete_mixed(self, calls: Sequence[tuple[int, int]]) -> list[DispatcherCommand]:
        """One frame of the first executor with (task, index) of calls of any tasks, in their first attempt."""
        return self.feed(
            CallsCompleted(
                executor=ExecutorId(1),
                ids=[call_id(TaskNo(task), index) for task, index in calls],
                attempts=[FIRST_ATTEMPT] * len(calls),
                cpu_us=[0] * len(calls),
                values=[value(index) for _, index in calls],
            )
        )

    def fail(
        self,
        task: int,
        index: int,
        error: CallError = BROKEN,
        *,
        executor: int = 1,
        attempt: int = 1,
        retryable: bool = False,
        cpu_us: int = 0,
    ) -> list[DispatcherCommand]:
        call = call_id(TaskNo(task), index)
        return self.feed(
            CallFailed(
                executor=ExecutorId(executor),
                id=call,
                attempt=attempt,
                error=error,
                retryable=retryable,
                cpu_us=cpu_us,
            )
        )

    def wait(
        self, task: int, indices: Sequence[int], *, executor: int = 1, attempts: list[int] | None = None
    ) -> list[DispatcherCommand]:
        """Each call asks for one read, under its index as wait id."""
        return self.feed(
            CallsWaited(
                executor=ExecutorId(executor),
                ids=ids(task, indices),
                attempts=attempts or [FIRST_ATTEMPT] * len(indices),
                wait_ids=list(indices),
                cpu_us=[0] * len(indices),
                requests=[b"read%d" % index for index in indices],
            )
        )

    def wait_mixed(self, calls: Sequence[tuple[int, int]]) -> list[DispatcherCommand]:
        """One frame of the first executor in which (task, index) of calls of any tasks ask for a read."""
        indices = [index for _, index in calls]
        return self.feed(
            CallsWaited(
                executor=ExecutorId(1),
                ids=[call_id(TaskNo(task), index) for task, index in calls],
                attempts=[FIRST_ATTEMPT] * len(calls),
                wait_ids=indices,
                cpu_us=[0] * len(calls),
                requests=[b"read%d" % index for index in indices],
            )
        )

    def answer(
        self,
        task: int,
        indices: Sequence[int],
        *,
        executor: int = 1,
        attempts: list[int] | None = None,
        io_us: int = 0,
    ) -> list[DispatcherCommand]:
        return self.feed(
            ReadsFinished(
                executor=ExecutorId(executor),
                ids=ids(task, indices),
                attempts=attempts or [FIRST_ATTEMPT] * len(indices),
                wait_ids=list(indices),
                io_us=[io_us] * len(indices),
                values=[b"row%d" % index for index in indices],
                errors=[None] * len(indices),
            )
        )

    def due(self, now_ms: int) -> list[DispatcherCommand]:
        """Time has passed to `now_ms`."""
        self.now_ms = now_ms
        return self.feed(RetriesDue())

    def learn(self, cost_us: int, function: str = "f") -> None:
        """Complete one call of the function, so that its calls are known to cost `cost_us` each."""
        self._lesson += 1
        task = self._lesson
        assert sent_indices(self.add(task, 1, (0, function, None)), task) == [0]
        self.complete(task, [0], cpu_us=cost_us - int(CALL_OVERHEAD_US))

    def progress(self, task: int) -> CallProgress | None:
        return self.core.task_progress(TaskNo(task))

    def window(self, task: int) -> int:
        progress = self.progress(task)
        assert progress is not None
        return progress.window


def started(task: int, indices: Sequence[int], *, executor: int = 1, attempts: list[int] | None = None) -> StartReads:
    return StartReads(
        executor=ExecutorId(executor),
        task_no=TaskNo(task),
        ids=ids(task, indices),
        attempts=attempts or [FIRST_ATTEMPT] * len(indices),
        wait_ids=list(indices),
        requests=[b"read%d" % index for index in indices],
    )


def resumed(task: int, indices: Sequence[int], *, executor: int = 1, io_us: int = 0) -> ResumeCalls:
    return ResumeCalls(
        executor=ExecutorId(executor),
        ids=ids(task, indices),
        wait_ids=list(indices),
        io_us=[io_us] * len(indices),
        values=[b"row%d" % index for index in indices],
        errors=[None] * len(indices),
    )
