"""A worker's heart without executors and gRPC: cores, phases and stores, under a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import trio
from attrs import define, field, frozen

from blockx.model import PluginConfig, PluginResult, SlotId, TaskId, TaskInput, TaskUpdate
from blockx.plugins import IO, CallBuilder, CallList, Outputs, TaskContext, WriterIO, WriterPlugin
from blockx.store.tables import WriteCounts
from blockx.worker.code import CodeView
from blockx.worker.control import Control
from blockx.worker.core import events as ev
from blockx.worker.core.calls import DispatcherCore
from blockx.worker.core.payload import check_payload
from blockx.worker.core.settings import DispatcherSettings, WorkerSettings
from blockx.worker.core.tasks import WorkerCore
from blockx.worker.executors import ExecutorPool, ExecutorSettings, PoolEvents
from blockx.worker.io.admission import Backends
from blockx.worker.io.limits import ScopeLimits
from blockx.worker.io.scope import TaskScope
from blockx.worker.listener import Listener
from blockx.worker.phases import Admission, AdmissionSettings, Phases, TaskRun
from blockx.worker.plugin_registry import PluginRegistry
from blockx.worker.results import ResultStore
from blockx.worker.watches import Subscription
from tests.doubles_io import WatchedTables, make_tables

ROW = {"owner": "0xa", "amount": 1}
FUNCTION = "f"
"""The one function that the worker has."""
INLINE_BYTES = 1_000
SPOOL_BYTES = 1_000_000


@define(eq=False)
class StoppedTables(WatchedTables):
    """Holds a write right before it asks for its commit, and again right after it was granted, until told to go on."""

    asking: threading.Event = field(factory=threading.Event)
    may_ask: threading.Event = field(factory=threading.Event)
    granted: threading.Event = field(factory=threading.Event)
    may_commit: threading.Event = field(factory=threading.Event)

    def write(self, writes: Any, before_commit: Callable[[], None]) -> dict[str, WriteCounts]:
        def commit() -> None:
            self.asking.set()
            self.may_ask.wait()
            before_commit()
            self.granted.set()
            self.may_commit.wait()

        return super().write(writes, commit)

    def go_on(self) -> None:
        self.may_ask.set()
        self.may_commit.set()


@frozen
class NoConfig:
    pass


class OneRowWriter:
    """Writes one row and reports it."""

    config_type: ClassVar[type[Any]] = NoConfig

    def __init__(self, config: NoConfig) -> None: ...

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        async with io.transaction() as transaction:
            transaction.upsert("balances", [ROW])
        return [PluginResult("OneRow", True, "", b"{}")]


class RaisingWriter(OneRowWriter):
    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        raise ZeroDivisionError("a writer's own defect")


class LargeWriter(OneRowWriter):
    """Reports more than is kept in memory."""

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        await trio.lowlevel.checkpoint()
        return [PluginResult("Large", True, "", b"x" * 2 * INLINE_BYTES)]


class LateWriter(OneRowWriter):
    """Goes on to wait after its rows are committed."""

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        await super().execute(ctx, outputs, io)
        await trio.sleep_forever()


class SlowToActivate(OneRowWriter):
    async def check(self, io: IO) -> None:
        await trio.sleep_forever()


class NoCalls:
    config_type: ClassVar[type[Any]] = NoConfig

    def __init__(self, config: NoConfig) -> None: ...

    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        await trio.lowlevel.checkpoint()
        return CallList()


class RaisingBuilder(NoCalls):
    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        raise ZeroDivisionError("a builder's own defect")


class HoldingBuilder(NoCalls):
    """Builds only when all of its kind may."""

    building: ClassVar[list[TaskId]] = []
    release: ClassVar[trio.Event]

    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        self.building.append(ctx.task.task_id)
        await self.release.wait()
        return CallList()


class ThreeCalls(NoCalls):
    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        calls = await super().build(ctx, io)
        for index in range(3):
            calls.add(FUNCTION, [index])
        return calls


BUILDERS: dict[str, type[CallBuilder]] = {
    "None": NoCalls,
    "Raising": RaisingBuilder,
    "Holding": HoldingBuilder,
    "ThreeCalls": ThreeCalls,
}
WRITERS: dict[str, type[WriterPlugin]] = {
    "OneRow": OneRowWriter,
    "Raising": RaisingWriter,
    "Large": LargeWriter,
    "Late": LateWriter,
    "SlowToActivate": SlowToActivate,
}


@frozen
class Rig:
    control: Control
    tables: StoppedTables

    def submit(self, task_id: str, *, builder: str = "None", writer: str | None = None, timeout_ms: int = 0) -> None:
        task = TaskInput(
            task_id=TaskId(task_id),
            function_call_config=PluginConfig(builder),
            result_handler=None if writer is None else PluginConfig(writer),
            task_timeout_ms=timeout_ms,
        )
        event = ev.TaskSubmitted(
            task_id=task.task_id,
            timeout_ms=timeout_ms,
            payload_digest=check_payload(task),
            slot_id=None,
            fresh_slot_id=SlotId(f"slot of {task_id}"),
        )
        self.control.submit(task, event)

    def now(self, task_id: str) -> TaskUpdate:
        return self.control.update(TaskId(task_id))

    async def end(self, task_id: str) -> TaskUpdate:
        """The task's terminal update."""
        now = self.now(task_id)
        if now.is_terminal:
            return now
        subscription = Subscription()
        self.control.watches.attach(subscription, TaskId(task_id))
        update = await subscription.next()
        assert update is not None
        return update


@asynccontextmanager
async def rig(
    folder: Path,
    *,
    settings: WorkerSettings | None = None,
    admission: AdmissionSettings | None = None,
    drain_timeout_ms: int | None = None,
    open_scope: Callable[[TaskRun], TaskScope] | None = None,
) -> AsyncIterator[Rig]:
    tables = StoppedTables(make_tables(folder))
    backends = Backends(tables, None)
    control = Control(
        WorkerCore(settings or WorkerSettings()),
        DispatcherCore(DispatcherSettings(), lambda: 0.5),
        CodeView(1, str(folder), "digest", frozenset({FUNCTION})),
        ResultStore(folder, INLINE_BYTES, SPOOL_BYTES, lambda full: None),
        call_budget_us=5_000_000,
        drain_timeout_ms=drain_timeout_ms,
        on_draining=lambda: None,
    )
    control.worker_id, control.addr = "w", "127.0.0.1:7071"
    control.pool = _no_executors(control, folder)

    def task_scope(run: TaskRun) -> TaskScope:
        def begin_commit() -> None:
            control.worker.feed(ev.CommitRequested(run.task.task_id))

        return TaskScope(backends, ScopeLimits(), begin_commit, lambda: 0.5)

    control.phases = Phases(
        feed=control.worker.feed,
        dispatch=control.calls.feed,
        open_scope=open_scope or task_scope,
        builders=PluginRegistry.load("call builder", BUILDERS, "", added=()),
        writers=PluginRegistry.load("writer plugin", WRITERS, "", added=()),
        admission=Admission(admission or AdmissionSettings()),
        results=control.results,
    )
    try:
        async with trio.open_nursery() as timers, trio.open_nursery() as control.tasks:
            timers.start_soon(control.run_timers)
            control.worker.feed(ev.ExecutorsChanged(1))
            try:
                yield Rig(control, tables)
            finally:
                tables.go_on()  # the task's nursery waits for the thread that writes
            control.tasks.cancel_scope.cancel()
            timers.cancel_scope.cancel()
    finally:
        backends.close()


def _no_executors(control: Control, folder: Path) -> ExecutorPool:
    """The pool of a worker that is never told to start its executors."""
    events = PoolEvents(
        feed=control.calls.feed,
        changed=lambda live, trouble: None,
        loaded=control.functions_loaded,
        logged=control.user_log,
    )
    return ExecutorPool(ExecutorSettings(executors=1), control.worker_id, control.code, Listener(folder), events)


def rows(tables: StoppedTables) -> list[dict[str, Any]]:
    return tables.store.scan("balances")
