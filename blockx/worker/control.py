"""The heart of a worker: its two cores, their drivers, and what each command of theirs sets in motion."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import assert_never

import structlog
import trio
from attrs import evolve

from blockx.driver import Driver, now_ms
from blockx.model import FailureCode, PluginResult, TaskId, TaskInput, TaskResult, TaskUpdate
from blockx.plugins import TaskContext
from blockx.wire import messages as m
from blockx.worker.code import CodeView
from blockx.worker.core import call_events as ce
from blockx.worker.core import events as ev
from blockx.worker.core.calls import DispatcherCore
from blockx.worker.core.tasks import WorkerCore
from blockx.worker.executors import ExecutorPool
from blockx.worker.outgoing import execute_calls, resume_calls
from blockx.worker.phases import Phases, TaskRun
from blockx.worker.reads import CallReads
from blockx.worker.results import ResultStore
from blockx.worker.watches import Watches

log = structlog.get_logger("blockx.worker")

EVENT_LOG_SIZE = 1_000


class Control:
    """Owns the cores. Parts that need it as a callback are given later (`phases`, `pool`), before anything is fed."""

    phases: Phases
    pool: ExecutorPool
    tasks: trio.Nursery
    addr: str = ""
    worker_id: str = ""

    def __init__(
        self,
        core: WorkerCore,
        dispatcher: DispatcherCore,
        code: CodeView,
        results: ResultStore,
        *,
        call_budget_us: int,
        drain_timeout_ms: int | None,
        on_draining: Callable[[], None],
    ) -> None:
        self.core = core
        self.dispatcher = dispatcher
        self.code = code
        self.results = results
        self.watches = Watches(
            lambda task_id: self.worker.feed(ev.WatchAttached(task_id)),
            lambda task_id: self.worker.feed(ev.WatchDetached(task_id)),
        )
        self.worker = Driver[ev.WorkerEvent, ev.WorkerCommand](
            core, self._execute, tick=ev.TimersTicked(), log_size=EVENT_LOG_SIZE
        )
        self.calls = Driver[ce.DispatcherEvent, ce.DispatcherCommand](
            dispatcher, self._execute_call_command, tick=ce.RetriesDue()
        )
        self.reads = CallReads(self.calls.feed)
        self.finished = trio.Event()
        self.exit_code = 0
        self.started_ms = now_ms()
        self._call_budget_us = call_budget_us
        self._drain_timeout_ms = drain_timeout_ms
        self._on_draining = on_draining
        self._inputs: dict[TaskId, TaskInput] = {}
        self._runs: dict[TaskId, TaskRun] = {}
        self._runs_by_no: dict[ce.TaskNo, TaskRun] = {}
        self._next_no = 0

    async def run_timers(self) -> None:
        """Wake both cores when their deadlines are due; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.worker.run_timers)
            nursery.start_soon(self.calls.run_timers)

    def submit(self, task: TaskInput, event: ev.TaskSubmitted) -> int:
        """Feed a submission, the task at hand if it is accepted; returns when. Raises what the core refuses with."""
        self._inputs[task.task_id] = task
        try:
            return self.worker.feed(event)
        finally:
            self._inputs.pop(task.task_id, None)

    def drain(self, timeout_ms: int | None = None) -> None:
        """Go out of service.

        Without a timeout the first call takes the configured one, and a further call changes nothing.
        """
        if timeout_ms is None and not self.core.draining:
            timeout_ms = self._drain_timeout_ms
        self.worker.feed(ev.DrainRequested(timeout_ms))

    def update(self, task_id: TaskId) -> TaskUpdate:
        """What is to be said of a task now; an unknown one is terminal with the error `not_found`."""
        now = now_ms()
        view = self.core.task(task_id, now)
        if view is None:
            return self._unknown(task_id, "not_found")
        kept = self.results.get(task_id) if view.state.is_terminal else None
        return TaskUpdate(
            task_id=task_id,
            state=view.state,
            is_terminal=view.state.is_terminal,
            worker_addr=self.addr,
            timestamp_ms=_wall_ms() - (now - view.reached_ms),
            result=None if kept is None else kept.result,
            result_bytes=0 if kept is None else kept.body_bytes,
            is_truncated=kept is not None and kept.spooled,
        )

    @property
    def runs(self) -> Collection[TaskRun]:
        """The tasks that were accepted and have not ended, oldest first."""
        return self._runs.values()

    def _unknown(self, task_id: TaskId, error: str) -> TaskUpdate:
        return TaskUpdate(
            task_id=task_id,
            state=None,
            is_terminal=True,
            worker_addr=self.addr,
            timestamp_ms=_wall_ms(),
            error=error,
        )

    def functions_loaded(self, names: list[str]) -> None:
        self.code = self.code.with_functions(names)

    def user_log(self, line: m.CallLog) -> None:
        """A line that user code has logged or printed, under its task's and call's ids."""
        run = self._runs_by_no.get(ce.task_no_of(ce.CallId(line.call_id)))
        task_id = None if run is None else run.task.task_id
        level = line.level if line.level in ("debug", "info", "warning", "error", "critical") else "info"
        getattr(log, level)(line.message, task_id=task_id, call_id=line.call_id, source="function")

    def _execute(self, command: ev.WorkerCommand) -> None:
        match command:
            case ev.PrepareTaskActivation():
                self._start(command)
            case ev.StartBuilderPhase() | ev.StartCallPhase() | ev.StartWriterPhase():
                self._runs[command.task_id].advance(command)
            case ev.ExtendDeadline(task_id, deadline_ms):
                self._runs[task_id].scope.deadline = _just_after(deadline_ms)
            case ev.ArmWatchGrace(task_id, deadline_ms):
                log.info("the last watch is gone", task_id=task_id, ends_in_ms=deadline_ms - now_ms())
            case ev.ConvergeTask():
                self._converge(command)
            case ev.ExpireLease(task_id):
                self.watches.notify(self._unknown(task_id, "lease_expired"))
            case ev.PurgeResult(task_id):
                self.results.purge(task_id)
            case ev.AnnounceDraining():
                log.info("draining", running_tasks=len(self._runs))
                self._on_draining()
            case ev.FinishDrain(exit_code):
                self.exit_code = exit_code
                self.finished.set()
            case _:
                assert_never(command)

    def _start(self, command: ev.PrepareTaskActivation) -> None:
        task = self._inputs[command.task_id]
        self._next_no += 1
        deadline = _just_after(command.deadline_ms)
        run = TaskRun(
            task=task,
            no=ce.TaskNo(self._next_no),
            code=self.code,
            scope=trio.CancelScope(deadline=deadline),
            ctx=TaskContext(task, deadline, code_epoch=self.code.epoch),
        )
        self._runs[task.task_id] = self._runs_by_no[run.no] = run
        self.tasks.start_soon(self.phases.run, run)

    def _converge(self, command: ev.ConvergeTask) -> None:
        run = self._runs.pop(command.task_id)
        # Before the run is forgotten: what executors still say of its calls means nothing from here on.
        self.calls.feed(ce.CallsCancelled(run.no))
        del self._runs_by_no[run.no]
        run.scope.cancel()
        plugin_results = _plugin_results(run, command.outcome, self.results.take(command.task_id))
        self.results.keep(command.task_id, _result(run, command, plugin_results))
        failure = command.outcome.failure
        log.info(
            "task ended",
            task_id=command.task_id,
            state=command.state.value,
            failure=None if failure is None else failure.value,
            message=command.outcome.message or None,
        )
        self.watches.notify(self.update(command.task_id))

    def _execute_call_command(self, command: ce.DispatcherCommand) -> None:
        match command:
            case ce.SendCalls():
                self.pool.send(command.executor, *execute_calls(command, self._call_budget_us))
            case ce.ResumeCalls():
                self.pool.send(command.executor, *resume_calls(command))
            case ce.StartReads(task_no=task_no):
                self.reads.start(self._runs_by_no[task_no], command)
            case ce.OpenTask(executor, task_no):
                run = self._runs_by_no[task_no]
                left_ms = max(0, round((run.ctx.deadline - trio.current_time()) * 1000))
                self.pool.send(executor, m.OpenTask(task_no, run.task.task_id, left_ms))
            case ce.CloseTask(executor, task_no, must_confirm):
                self.pool.send(executor, m.CloseTask(task_no))
                if must_confirm:
                    self.pool.send(executor, m.Ping(task_no))  # answered in order, so after the close
            case ce.ConvergeTaskCalls(task_no=task_no):
                self._runs_by_no[task_no].end_calls(command)
            case _:
                assert_never(command)


def _result(run: TaskRun, command: ev.ConvergeTask, plugin_results: tuple[PluginResult, ...]) -> TaskResult:
    outcome = command.outcome
    read_blocks: tuple[tuple[int, str], ...] = ()
    truncated = False
    receipt = run.receipt
    if run.io is not None:
        read_blocks, truncated = run.io.read_blocks, run.io.read_blocks_truncated
        receipt = evolve(receipt, reads=run.io.reads, cached_reads=run.io.cached_reads)
    return TaskResult(
        state=command.state,
        failure_code=outcome.failure,
        failure_message=outcome.message,
        retryable=outcome.retryable,
        plugin_results=plugin_results,
        failed_call=outcome.failed_call,
        receipt=receipt,
        read_blocks=read_blocks,
        read_blocks_truncated=truncated,
        code_epoch=run.code.epoch,
    )


def _plugin_results(run: TaskRun, outcome: ev.Outcome, reported: tuple[PluginResult, ...]) -> tuple[PluginResult, ...]:
    """What the writer reported; after PLUGIN_FAILED one that says so; after any other failure none."""
    handler = run.task.result_handler
    if outcome.failure is None:
        return reported
    if outcome.failure is not FailureCode.PLUGIN_FAILED or handler is None:
        return ()
    return (PluginResult(handler.type, success=False, failure_code=outcome.failure.value),)


def _just_after(deadline_ms: int) -> float:
    """Seconds for a cancel scope: late enough that the core's millisecond clock has passed the deadline too."""
    return (deadline_ms + 1) / 1000


def _wall_ms() -> int:
    return round(time.time() * 1000)
