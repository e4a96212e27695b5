"""How the phases of one task are run: activation, builder, calls, writer. The core decides what comes next."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import structlog
import trio
from attrs import define, evolve, field, frozen
from attrs.validators import gt

from blockx.errors import CommitRefused, PluginError, ReadError, UnserializableValue
from blockx.model import CallErrorCode, FailedCall, FailureCode, Receipt, TaskInput, nearest
from blockx.plugins import ActivationCheck, CallBuilder, CallList, Outputs, TaskContext, WriterPlugin
from blockx.shown import shown_arguments
from blockx.wire.frames import MAX_VALUE_BYTES
from blockx.wire.values import unpack_value
from blockx.worker.code import CodeView
from blockx.worker.core import call_events as ce
from blockx.worker.core import events as ev
from blockx.worker.io.scope import TaskScope
from blockx.worker.plugin_registry import PluginRegistry, PluginTypeNotFound
from blockx.worker.results import ResultStore

log = structlog.get_logger("blockx.worker.phases")

MAX_SHOWN_ARGUMENTS = 400
"""Characters of a failed call's arguments in its task's result."""

MAX_LISTED_FUNCTIONS = 20
"""Names in the message about an unknown function."""

Step = ev.StartBuilderPhase | ev.StartCallPhase | ev.StartWriterPhase


@frozen(kw_only=True)
class AdmissionSettings:
    """How many tasks may be in one phase at a time."""

    builder_slots: int = field(default=16, validator=gt(0))
    """Tasks that build their calls at a time."""
    executor_task_slots: int = field(default=32, validator=gt(0))
    """Tasks whose calls run at a time; one without calls takes none."""
    plugin_slots: int = field(default=16, validator=gt(0))
    """Tasks that write at a time."""


class Admission:
    """The phases' limiters; waiting is first come, first served."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self.builder = trio.CapacityLimiter(settings.builder_slots)
        self.calls = trio.CapacityLimiter(settings.executor_task_slots)
        self.writer = trio.CapacityLimiter(settings.plugin_slots)


@define(eq=False)
class TaskRun:
    """One accepted task while it runs. Everything of it lives under `scope`; leaving that ends it all."""

    task: TaskInput
    no: ce.TaskNo
    code: CodeView
    scope: trio.CancelScope
    ctx: TaskContext
    phase: ev.Phase = ev.Phase.PREPARING
    is_waiting: bool = False
    """For the admission of its phase."""
    io: TaskScope | None = None
    nursery: trio.Nursery | None = None
    writer: WriterPlugin | None = None
    calls: CallList = field(factory=CallList)
    outputs: list[bytes] = field(factory=list, repr=False)
    receipt: Receipt = Receipt()
    calls_ended: ce.ConvergeTaskCalls | None = None
    calls_event: trio.Event = field(factory=trio.Event)
    _steps: tuple[trio.MemorySendChannel[Step], trio.MemoryReceiveChannel[Step]] = field(
        factory=lambda: trio.open_memory_channel[Step](1)
    )

    def advance(self, step: Step) -> None:
        """The core has decided on the next phase."""
        self._steps[0].send_nowait(step)

    async def next_step(self) -> Step:
        return await self._steps[1].receive()

    def end_calls(self, command: ce.ConvergeTaskCalls) -> None:
        self.calls_ended = command
        self.calls_event.set()


@frozen(kw_only=True)
class Phases:
    """What every task's phases share. `feed` takes worker events, `dispatch` dispatcher events."""

    feed: Callable[[ev.WorkerEvent], object]
    dispatch: Callable[[ce.DispatcherEvent], object]
    open_scope: Callable[[TaskRun], TaskScope]
    builders: PluginRegistry[CallBuilder]
    writers: PluginRegistry[WriterPlugin]
    admission: Admission
    results: ResultStore

    async def run(self, run: TaskRun) -> None:
        """Take a task from acceptance to its end. What is foreign in it converges this task, never the worker."""
        try:
            with run.scope:
                await self._live(run)
        except (Exception, SystemExit) as error:  # the boundary between one task and all others
            self._report(run, _unforeseen(run, error))
        if run.scope.cancelled_caught:
            self._report_cut(run)

    async def _live(self, run: TaskRun) -> None:
        try:
            scope = self.open_scope(run)
        except Exception as error:  # the backends' own errors: the task alone fails, and may be tried again
            self._report(run, evolve(_unforeseen(run, error), failure=FailureCode.IO_SCOPE_FAILED))
            return
        async with scope as io, trio.open_nursery() as nursery:
            run.io, run.nursery = io, nursery
            outcome = await self._outcome(run, self._prepare)
            if outcome.failure is not None:
                self._report(run, outcome)
                return
            self.feed(ev.ActivationPrepared(run.task.task_id))
            while True:  # convergence cancels the scope
                await self._step(run, await run.next_step())

    async def _step(self, run: TaskRun, step: Step) -> None:
        match step:
            case ev.StartBuilderPhase():
                run.phase, run.ctx.stage, work = ev.Phase.BUILDER, "builder", self._build
            case ev.StartCallPhase():
                run.phase, run.ctx.stage, work = ev.Phase.CALLS, "executor", self._call
            case ev.StartWriterPhase():
                run.phase, run.ctx.stage, work = ev.Phase.PLUGIN, "plugin", self._write
        self._report(run, await self._outcome(run, work))

    def _report_cut(self, run: TaskRun) -> None:
        """The scope was cancelled: by convergence, then the core ignores this; or by the deadline."""
        if run.io is not None and run.io.committed:
            message = "the rows are committed, but the writer was cut off before it had reported them"
            self._report(run, _failed(run, message, retryable=True))
        else:
            self.feed(ev.DeadlineReached(run.task.task_id))

    def _report(self, run: TaskRun, outcome: ev.Outcome) -> None:
        if run.phase is ev.Phase.PREPARING:
            self.feed(ev.ActivationFailed(run.task.task_id, outcome))
        else:
            self.feed(ev.PhaseFinished(run.task.task_id, run.phase, outcome))

    async def _outcome(self, run: TaskRun, work: Callable[[TaskRun], Awaitable[ev.Outcome]]) -> ev.Outcome:
        try:
            return await work(run)
        except PluginTypeNotFound as error:
            return _failed(run, str(error), retryable=False, not_found=True)
        except (PluginError, ReadError) as error:
            return _failed(run, str(error), retryable=error.retryable)
        except (UnserializableValue, CommitRefused) as error:
            return _failed(run, str(error), retryable=False)
        except (Exception, SystemExit) as error:  # a plug-in is foreign code; its task alone fails
            return _unforeseen(run, error)

    async def _prepare(self, run: TaskRun) -> ev.Outcome:
        """Check the handler before anything runs."""
        handler = run.task.result_handler
        if handler is None:
            return ev.Outcome()
        run.writer = writer = self.writers.create(handler.type, handler.config)
        if isinstance(writer, ActivationCheck):
            await writer.check(_io(run).writer_io)
        return ev.Outcome()

    async def _build(self, run: TaskRun) -> ev.Outcome:
        config = run.task.function_call_config
        async with _admitted(run, self.admission.builder):
            builder = self.builders.create(config.type, config.config)
            run.calls = await builder.build(run.ctx, _io(run).builder_io)
        return ev.Outcome()

    async def _call(self, run: TaskRun) -> ev.Outcome:
        if not run.calls:
            return ev.Outcome()
        impossible = _unknown_function(run) or _too_large(run)
        if impossible is not None:
            return _call_failed(run, impossible)
        async with _admitted(run, self.admission.calls):
            ended = await self._dispatched(run)
        run.receipt = ended.receipt
        if ended.failure is not None:
            return _calls_outcome(run, ended.failure)
        run.outputs = ended.outputs
        return ev.Outcome()

    async def _dispatched(self, run: TaskRun) -> ce.ConvergeTaskCalls:
        runs = tuple(ce.CallRun(*stretch) for stretch in run.calls.runs)
        self.dispatch(ce.CallsAdded(task_no=run.no, runs=runs, args=run.calls.args))
        await run.calls_event.wait()  # where the task ends otherwise, its convergence cancels the calls
        assert run.calls_ended is not None
        return run.calls_ended

    async def _write(self, run: TaskRun) -> ev.Outcome:
        async with _admitted(run, self.admission.writer):
            if run.writer is None:
                return ev.Outcome()
            outputs = Outputs(run.outputs, run.calls.runs)
            results = tuple(await run.writer.execute(run.ctx, outputs, _io(run).writer_io))
        failed = next((plugin for plugin in results if not plugin.success), None)
        if failed is not None:
            message = f"{failed.plugin_name} reported {failed.failure_code or 'a failure'}"
            return _failed(run, message, retryable=True)
        with trio.CancelScope(shield=True):  # what is written is reported, also at the deadline
            await self.results.put(run.task.task_id, results)
        return ev.Outcome()


@asynccontextmanager
async def _admitted(run: TaskRun, limiter: trio.CapacityLimiter) -> AsyncIterator[None]:
    run.is_waiting = True
    async with limiter:
        run.is_waiting = False
        yield


def _io(run: TaskRun) -> TaskScope:
    assert run.io is not None, "a phase runs inside its task's IO scope"
    return run.io


def _failed(run: TaskRun, message: str, *, retryable: bool, not_found: bool = False) -> ev.Outcome:
    """The failure of the phase that the task is in."""
    match run.phase:
        case ev.Phase.BUILDER:
            code = FailureCode.BUILDER_NOT_FOUND if not_found else FailureCode.BUILDER_FAILED
            return ev.Outcome(failure=code, message=message, retryable=retryable)
        case ev.Phase.CALLS:
            return ev.Outcome(failure=FailureCode.CALL_FAILED, message=message)
        case _:
            code = FailureCode.PLUGIN_NOT_FOUND if not_found else FailureCode.PLUGIN_FAILED
            return ev.Outcome(failure=code, message=message, retryable=retryable)


def _unforeseen(run: TaskRun, error: BaseException) -> ev.Outcome:
    """A defect in a plug-in or in BlockX: logged whole under an id, told in one line."""
    error_id = secrets.token_hex(4)
    log.error("a phase failed unexpectedly", task_id=run.task.task_id, error_id=error_id, exc_info=error)
    message = f"{type(error).__name__}: {error} (logged by the worker as {error_id})"
    if run.phase is ev.Phase.PREPARING:
        return ev.Outcome(failure=FailureCode.ACTIVATION_FAILED, message=message, retryable=True)
    return _failed(run, message, retryable=run.phase is ev.Phase.PLUGIN)


def _unknown_function(run: TaskRun) -> FailedCall | None:
    """The first call whose function the pinned code does not have."""
    known: Collection[str] = run.code.functions or ()
    for start, function, _ in run.calls.runs:
        if function not in known:
            message = f"there is no function {function!r}{nearest(function, known)}; deployed are: {_listed(known)}"
            return FailedCall(index=start, function=function, code=CallErrorCode.FUNCTION_NOT_FOUND, message=message)
    return None


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:MAX_LISTED_FUNCTIONS]) or "none"
    unlisted = len(names) - MAX_LISTED_FUNCTIONS
    return f"{shown} … and {unlisted} more" if unlisted > 0 else shown


def _too_large(run: TaskRun) -> FailedCall | None:
    """The first call whose arguments do not fit a frame."""
    for index, args in enumerate(run.calls.args):
        if len(args) > MAX_VALUE_BYTES:
            message = f"its arguments take {len(args)} bytes packed; at most {MAX_VALUE_BYTES} can be sent"
            function = run.calls.function_of(index)
            return FailedCall(index=index, function=function, code=CallErrorCode.VALUE_TOO_LARGE, message=message)
    return None


def _calls_outcome(run: TaskRun, failure: ce.CallsFailure) -> ev.Outcome:
    if failure.error is None:
        return ev.Outcome(failure=failure.code, message=failure.message)
    call = FailedCall(
        index=failure.index,
        function=failure.function,
        attempts=failure.attempts,
        code=failure.error.code,
        error_type=failure.error.error_type,
        message=failure.error.message,
        traceback=failure.error.traceback,
    )
    return evolve(_call_failed(run, call), message=failure.message)


def _call_failed(run: TaskRun, call: FailedCall) -> ev.Outcome:
    call = evolve(call, arguments=_shown_arguments(run.calls.args[call.index]))
    message = f"call {call.index} of {call.function!r} failed: {call.message}"
    return ev.Outcome(failure=FailureCode.CALL_FAILED, message=message, failed_call=call)


def _shown_arguments(packed: bytes) -> str:
    args, kwargs = unpack_value(packed)
    return shown_arguments(args, kwargs, MAX_SHOWN_ARGUMENTS)
