"""Composes one worker: cores, executors, phases, gRPC service, heartbeat; their nesting is the order of shutdown."""

from __future__ import annotations

import random
import secrets
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
import trio
from attrs import define, field, frozen
from attrs.validators import ge, gt
from trio_util import AsyncValue

from blockx import __version__
from blockx.api import INLINE_RESULT_BYTES
from blockx.config import host_and_port
from blockx.driver import now_ms
from blockx.errors import ConfigError, LoadFailed
from blockx.registry.port import Beat, Registry
from blockx.rpc.health import WHOLE_SERVER, Health
from blockx.rpc.security import ServerSecurity
from blockx.store.bundles import BundleStore
from blockx.store.settings import StoreSettings
from blockx.store.tables import TableStore
from blockx.worker.admin import worker_admin_service
from blockx.worker.builders import load_builders
from blockx.worker.code import directory_view
from blockx.worker.control import Control
from blockx.worker.core import events as ev
from blockx.worker.core.calls import DispatcherCore
from blockx.worker.core.settings import DispatcherSettings, WorkerSettings
from blockx.worker.core.tasks import WorkerCore
from blockx.worker.executors import ExecutorPool, ExecutorSettings, PoolEvents
from blockx.worker.heartbeat import Heartbeat
from blockx.worker.io.admission import Backends
from blockx.worker.io.scope import ScopeLimits, TaskScope
from blockx.worker.listener import Listener
from blockx.worker.phases import Admission, AdmissionSettings, Phases, TaskRun
from blockx.worker.private import private_directory
from blockx.worker.results import ResultStore
from blockx.worker.service import worker_service
from blockx.worker.status import state_name
from blockx.worker.writers import load_writers

log = structlog.get_logger("blockx.worker")

EXECUTOR_EXIT_MS = 2_000
"""How long executors may take to exit once nothing runs any more."""

HEALTH_INTERVAL_S = 0.2
"""How late health may notice that time has passed; of executors and drains it is told at once."""

WILDCARDS = ("0.0.0.0", "::", "")


@frozen(kw_only=True)
class WorkerConfig:
    """All settings of a worker process."""

    functions: str = field(metadata={"env": "BLOCKX_FUNCTIONS"})
    """The directory of the functions: a Python package or modules."""
    listen: str = field(default="127.0.0.1:7071", metadata={"env": "WORKER_LISTEN"})
    """HOST:PORT to serve gRPC on; port 0 takes any free one."""
    advertise: str = field(default="", metadata={"env": "WORKER_ADVERTISE"})
    """HOST:PORT under which clients reach this worker; by default where it listens."""
    worker_id: str = ""
    """Stable name of this worker; by default its advertised address."""
    store: StoreSettings = field(factory=StoreSettings)
    state_dir: str = field(default="", metadata={"env": "WORKER_STATE_DIR"})
    """Where the directory for the socket and large results is made; by default the system's temporary directory."""
    heartbeat_interval_ms: int = field(default=200, validator=gt(0), metadata={"env": "WORKER_HEARTBEAT_INTERVAL"})
    """How often a change is told to the registry."""
    retained_spool_bytes: int = field(default=4 * 1024**3, validator=gt(0))
    """Disk space for results that are too large for one message; when it is used up, tasks are refused."""
    drain_timeout_ms: int = field(default=0, validator=ge(0))
    """How long a drain lets tasks run; 0: as long as their own deadlines allow."""
    security: ServerSecurity = field(factory=ServerSecurity)
    core: WorkerSettings = field(factory=WorkerSettings)
    dispatcher: DispatcherSettings = field(factory=DispatcherSettings)
    pool: ExecutorSettings = field(factory=ExecutorSettings)
    admission: AdmissionSettings = field(factory=AdmissionSettings)
    io: ScopeLimits = field(factory=ScopeLimits)

    def __attrs_post_init__(self) -> None:
        host, _ = host_and_port(self.listen)
        if self.advertise and not all(host_and_port(self.advertise)):
            raise ConfigError(f"advertise {self.advertise!r} needs a host and a port")
        if host in WILDCARDS and not self.advertise:
            raise ConfigError(
                f"listen {self.listen} is no address that clients can reach: set advertise to HOST:PORT too"
            )
        self.security.check(self.listen)


@frozen
class Outlook:
    """What a drain waits for; for results that nobody has fetched no longer than `result_wait_ms`."""

    running_tasks: int
    unfetched_results: int
    result_wait_ms: int


@define(eq=False)
class WorkerHandle:
    """A running worker. `readiness` is None once tasks are accepted, else why they are not."""

    addr: str
    worker_id: str
    readiness: AsyncValue[str | None]
    _control: Control
    _pool: ExecutorPool
    _result_wait_ms: int
    _is_told_to_drain: bool = False

    async def wait_ready(self) -> None:
        """Wait until tasks are accepted. Raises LoadFailed if the functions cannot be loaded."""
        reason = await self.readiness.wait_value(lambda reason: reason != STARTING)
        if reason is not None:
            raise LoadFailed(reason)

    def drain(self, timeout_ms: int | None = None) -> None:
        """Accept nothing more and end when what runs has finished; a second call cancels what runs.

        The first one cancels nothing that an operator's Drain lets finish.
        """
        if self._is_told_to_drain:
            self._control.worker.feed(ev.StopRequested())
        else:
            self._is_told_to_drain = True
            self._control.drain(timeout_ms)

    def outlook(self) -> Outlook:
        """What a drain that began now would wait for."""
        core = self._control.core
        return Outlook(core.running_tasks, core.unfetched_results, self._result_wait_ms)

    def executor_pids(self) -> list[int]:
        """Process ids of the executors that are Ready."""
        return self._pool.pids()


STARTING = "executors are starting"


async def run_worker(
    config: WorkerConfig,
    registry: Registry,
    *,
    task_status: trio.TaskStatus[WorkerHandle] = trio.TASK_STATUS_IGNORED,
) -> int:
    """Serve until drained (or cancelled); started once the port is open, with a handle. Returns the exit code."""
    with ExitStack() as stack:
        private = Path(stack.enter_context(private_directory(config.state_dir)))
        tables = TableStore.open(config.store.database)
        stack.callback(tables.close)
        worker = _Worker(config, Backends(tables, BundleStore.open(config.store.bundles)), private)
        return await worker.run(registry, task_status)


class _Worker:
    """The parts of one worker process, wired."""

    def __init__(self, config: WorkerConfig, backends: Backends, private: Path) -> None:
        self._config = config
        self._backends = backends
        self._readiness: AsyncValue[str | None] = AsyncValue(STARTING)
        self._instance = secrets.token_hex(8)
        self._started_ms = round(time.time() * 1000)
        self._listener = Listener(private)
        self._heartbeat = Heartbeat(self._beat, config.heartbeat_interval_ms)
        self._control = Control(
            WorkerCore(config.core),
            DispatcherCore(config.dispatcher, random.random),
            directory_view(config.functions),
            self._result_store(private),
            call_budget_us=config.pool.call_deadline_ms * 1000,
            drain_timeout_ms=config.drain_timeout_ms or None,
            on_draining=self._draining,
        )
        self._service, self._admin_service = worker_service(self._control), worker_admin_service(self._control)
        self._health = Health([self._service.name, self._admin_service.name])
        self._pool = ExecutorPool(
            config.pool, config.worker_id or config.listen, self._control.code, self._listener, self._pool_events()
        )
        self._control.pool = self._pool
        self._control.phases = self._phases()

    async def run(self, registry: Registry, task_status: trio.TaskStatus[WorkerHandle]) -> int:
        control = self._control
        async with trio.open_nursery() as infrastructure:
            await infrastructure.start(self._listener.serve)
            infrastructure.start_soon(control.run_timers)
            pool_ended = trio.Event()

            async def run_pool() -> None:
                await self._pool.run()
                pool_ended.set()

            infrastructure.start_soon(run_pool)
            async with trio.open_nursery() as control.tasks:
                await self._serve(registry, task_status)
            self._pool.stop(EXECUTOR_EXIT_MS)
            with trio.move_on_after(EXECUTOR_EXIT_MS / 1000 + 1):
                await pool_ended.wait()
            infrastructure.cancel_scope.cancel()
        return control.exit_code

    async def _serve(self, registry: Registry, task_status: trio.TaskStatus[WorkerHandle]) -> None:
        """Open the port, register, and stay until the core says that the drain has finished."""
        listen, services = self._config.listen, [self._service, self._health.service]
        server = self._config.security.server(listen, services, [self._admin_service])
        async with trio.open_nursery() as front:
            front.start_soon(self._follow_health)
            bound = await front.start(server.serve, *host_and_port(listen))
            self._control.addr = self._config.advertise or bound
            self._control.worker_id = self._config.worker_id or self._control.addr
            async with registry.register(self._heartbeat.first()) as registration, trio.open_nursery() as beats:
                beats.start_soon(self._heartbeat.run, registration)
                handle = self._handle(bound)
                task_status.started(handle)
                log.info("worker serves", addr=bound, worker_id=handle.worker_id)
                await self._control.finished.wait()
                beats.cancel_scope.cancel()
            self._health.end()
            await server.shutdown(1.0)
            front.cancel_scope.cancel()

    def _handle(self, bound: str) -> WorkerHandle:
        result_wait_ms = self._config.core.drain_result_wait_ms
        worker_id = self._control.worker_id
        return WorkerHandle(bound, worker_id, self._readiness, self._control, self._pool, result_wait_ms)

    def _result_store(self, private: Path) -> ResultStore:
        directory = private / "results"
        directory.mkdir(mode=0o700)
        return ResultStore(
            directory,
            INLINE_RESULT_BYTES,
            self._config.retained_spool_bytes,
            lambda full: self._control.worker.feed(ev.SpoolChanged(full)),
        )

    def _pool_events(self) -> PoolEvents:
        return PoolEvents(
            feed=self._control.calls.feed,
            changed=self._executors_changed,
            loaded=self._control.functions_loaded,
            logged=self._control.user_log,
        )

    def _executors_changed(self, live: int, trouble: str | None) -> None:
        self._control.worker.feed(ev.ExecutorsChanged(live, trouble))
        was = self._readiness.value
        if trouble is not None:
            self._readiness.value = trouble
        elif live:
            self._readiness.value = None
        if self._readiness.value != was:
            self._heartbeat.urge()
        self._tell_health()

    def _draining(self) -> None:
        self._heartbeat.urge()
        self._tell_health()

    def _tell_health(self) -> None:
        """The admin service answers as long as there is a process; the rest is of use when tasks are accepted."""
        is_accepting = self._control.core.ready(now_ms()) and not self._control.core.draining
        self._health.set(WHOLE_SERVER, is_accepting)
        self._health.set(self._service.name, is_accepting)
        self._health.set(self._admin_service.name, True)

    async def _follow_health(self) -> None:
        """See too what comes with time alone: the grace of a worker without executors runs out."""
        while True:
            self._tell_health()
            await trio.sleep(HEALTH_INTERVAL_S)

    def _phases(self) -> Phases:
        return Phases(
            feed=self._control.worker.feed,
            dispatch=self._control.calls.feed,
            open_scope=self._open_scope,
            builders=load_builders(),
            writers=load_writers(),
            admission=Admission(self._config.admission),
            results=self._control.results,
        )

    def _open_scope(self, run: TaskRun) -> TaskScope:
        def begin_commit() -> None:
            self._control.worker.feed(ev.CommitRequested(run.task.task_id))

        return TaskScope(self._backends, self._config.io, begin_commit, random.random)

    def _beat(self) -> Beat:
        core, now = self._control.core, now_ms()
        counts = core.counts
        return Beat(
            worker_id=self._control.worker_id,
            addr=self._control.addr,
            state=state_name(core, now),
            seq=0,
            slots=counts.slots,
            reserved_slots=counts.allocated,
            running_tasks=counts.running,
            accepting=core.ready(now) and not core.draining,
            executors=self._pool.live,
            dispatch_age_ms=self._pool.silent_ms(),
            code_epoch=self._control.code.epoch,
            version=__version__,
            started_ms=self._started_ms,
            instance=self._instance,
        )
