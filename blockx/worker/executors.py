"""The executor processes of a worker: started, greeted, watched, restarted; their messages become dispatcher events."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from typing import cast

import structlog
import trio
from attrs import define, field, frozen
from attrs.validators import gt

from blockx.errors import ConfigError, ProtocolError
from blockx.model import CallErrorCode
from blockx.stream import MessageStream
from blockx.wire import messages as m
from blockx.wire.frames import MAX_FRAME_BYTES
from blockx.worker.code import CodeView
from blockx.worker.core import call_events as ce
from blockx.worker.listener import Listener, Seat

log = structlog.get_logger("blockx.worker.executors")

ENVIRONMENT_ALLOWED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
"""What an executor inherits of the worker's environment: no credentials."""

STEADY_S = 10.0
"""An executor that lived longer than this is replaced at once; the next starts after shorter lives wait longer each."""

EXIT_GRACE_S = 0.25
"""How long a process whose connection has ended may take to exit by itself, so that its own status is seen."""


@frozen(kw_only=True)
class ExecutorSettings:
    """How executors are run. Times in milliseconds."""

    executors: int = field(
        factory=lambda: os.cpu_count() or 1,
        validator=gt(0),
        metadata={"env": "EXECUTOR_PROCESSES", "default": "number of CPUs"},
    )
    """Executor processes."""
    heartbeat_ms: int = field(default=1_000, validator=gt(0), metadata={"env": "EXECUTOR_HEARTBEAT_MS"})
    """How often an executor says that it is alive."""
    silence_ms: int = field(default=15_000, validator=gt(0), metadata={"env": "EXECUTOR_SILENCE_MS"})
    """An executor that says nothing for this long is stuck in one call; it is killed and replaced."""
    load_timeout_ms: int = field(default=30_000, validator=gt(0))
    """How long an executor may take to start and import the functions."""
    call_deadline_ms: int = field(default=5_000, validator=gt(0))
    """Budget of CPU and backend time that executors are told for each call."""
    restart_base_ms: int = field(default=100, validator=gt(0), metadata={"env": "EXECUTOR_RESTART_BASE_MS"})
    """Pause before an executor that never got ready is started again; doubled with each further one."""
    restart_max_ms: int = field(default=5_000, validator=gt(0), metadata={"env": "EXECUTOR_RESTART_MAX_MS"})
    """Longest pause between starts of an executor."""

    def __attrs_post_init__(self) -> None:
        if self.silence_ms <= 2 * self.heartbeat_ms:
            raise ConfigError(f"silence_ms {self.silence_ms} must be above two heartbeat_ms of {self.heartbeat_ms}")


@frozen(kw_only=True)
class PoolEvents:
    """Where the pool reports to. `changed(live, trouble)`: trouble says why no executor gets as far as Ready."""

    feed: Callable[[ce.DispatcherEvent], object]
    changed: Callable[[int, str | None], None]
    loaded: Callable[[list[str]], None]
    logged: Callable[[m.CallLog], None]


@define(eq=False)
class Executor:
    """One connected executor, after its handshake. `death` says what the worker knows of its end beside the status."""

    id: ce.ExecutorId
    stream: MessageStream
    pid: int
    capacity: int
    ready: bool = False
    last_heard: float = field(factory=trio.current_time)
    heartbeat: m.Heartbeat | None = None
    load_error: str | None = None
    death: str = ""

    def silent_ms(self) -> int:
        """How long it has said nothing."""
        return max(0, round((trio.current_time() - self.last_heard) * 1000))


class ExecutorPool:
    """Keeps `settings.executors` executors alive until cancelled or stopped."""

    def __init__(
        self, settings: ExecutorSettings, worker_id: str, code: CodeView, listener: Listener, events: PoolEvents
    ) -> None:
        self._settings = settings
        self._worker_id = worker_id
        self._code = code
        self._listener = listener
        self._events = events
        self._executors: dict[ce.ExecutorId, Executor] = {}
        self._next_id = 0
        self._failed_starts = 0
        self._stopping = trio.Event()

    @property
    def live(self) -> int:
        """How many executors are Ready."""
        return len(self._ready())

    def pids(self) -> list[int]:
        """Process ids of the executors that are Ready."""
        return [executor.pid for executor in self._ready()]

    @property
    def connected(self) -> Collection[Executor]:
        """The executors that are Ready or import their functions, oldest first."""
        return self._executors.values()

    def silent_ms(self) -> int:
        """How long the executor that was heard last has said nothing; 0 without executors."""
        return min((executor.silent_ms() for executor in self._ready()), default=0)

    def send(self, executor: ce.ExecutorId, *messages: m.Message) -> None:
        """Queue messages; dropped if the executor has gone (the dispatcher hears of that by ExecutorLost)."""
        found = self._executors.get(executor)
        if found is not None:
            found.stream.post(*messages)

    async def run(self) -> None:
        """Keep every seat filled. Cancelled: processes are killed. After stop(): returns when all have exited."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._settings.executors):
                nursery.start_soon(self._keep_filled)

    def stop(self, grace_ms: int) -> None:
        """Let the executors finish within `grace_ms` and exit; none is started any more."""
        self._stopping.set()
        for executor in self._executors.values():
            executor.stream.post(m.Shutdown(grace_ms))
            executor.death = "shut down with its worker"

    def _ready(self) -> list[Executor]:
        return [executor for executor in self._executors.values() if executor.ready]

    async def _keep_filled(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            failures = 0 if await self._one_life() else failures + 1
            if failures:
                doubled_ms = self._settings.restart_base_ms * 2 ** min(failures - 1, 16)
                with trio.move_on_after(min(doubled_ms, self._settings.restart_max_ms) / 1000):
                    await self._stopping.wait()

    async def _one_life(self) -> bool:
        """One process from start to end; True if it was Ready and lived for a while."""
        began = trio.current_time()
        seat = self._listener.expect()
        executor: Executor | None = None
        try:
            process = await self._start(seat.token)
        except OSError as error:  # no memory, no descriptors: other executors go on, and this one is tried again
            self._listener.dismiss(seat)
            self._bury(None, 0, f"could not be started: {error}")
            return False
        try:
            executor = await self._greet(seat, process)
            if executor is not None:
                await self._converse(executor)
        finally:
            self._listener.dismiss(seat)
            with trio.CancelScope(shield=True):
                if executor is not None:
                    await executor.stream.aclose()  # an executor exits when its connection ends
                status = await _end(process, at_once=self._is_condemned(executor))
            self._bury(executor, process.pid, status)
        return executor is not None and executor.ready and trio.current_time() - began > STEADY_S

    def _is_condemned(self, executor: Executor | None) -> bool:
        """Killed at once: it broke the rules. One that ends by itself, or was asked to, gets a moment for that."""
        return executor is not None and bool(executor.death) and not self._stopping.is_set()

    async def _start(self, token: str) -> trio.Process:
        environment = {**scrubbed(os.environ), "BLOCKX_EXECUTOR_TOKEN": token}
        command = [sys.executable, "-m", "blockx.executor", "--socket", str(self._listener.path)]
        return await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True
        )

    async def _greet(self, seat: Seat, process: trio.Process) -> Executor | None:
        """Wait until the process has connected; None if it ended or took too long."""
        async with trio.open_nursery() as nursery:

            async def give_up_when_it_ends() -> None:
                await process.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up_when_it_ends)
            nursery.cancel_scope.deadline = trio.current_time() + self._settings.load_timeout_ms / 1000
            await seat.arrived.wait()
            nursery.cancel_scope.cancel()
        if seat.stream is None or seat.hello is None or self._stopping.is_set():
            return None
        self._next_id += 1
        executor = Executor(ce.ExecutorId(self._next_id), seat.stream, process.pid, seat.hello.capacity)
        self._executors[executor.id] = executor
        return executor

    async def _converse(self, executor: Executor) -> None:
        """Read what the executor says until its connection ends, it breaks the protocol, or it falls silent."""
        executor.stream.post(self._greeting())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.stream.run_writer)
            nursery.start_soon(self._watch_silence, executor, nursery.cancel_scope)
            try:
                await self._listen(executor)
            except trio.BrokenResourceError:
                pass  # it was killed while something was on its way; its exit status says more
            except ProtocolError as error:
                executor.death = f"it broke the protocol: {error}"
            nursery.cancel_scope.cancel()

    async def _listen(self, executor: Executor) -> None:
        while batch := await executor.stream.receive():
            executor.last_heard = trio.current_time()
            for message in batch:
                self._hear(executor, message)

    def _greeting(self) -> m.Welcome:
        limits = {
            "call_budget_us": self._settings.call_deadline_ms * 1000,
            "max_frame_bytes": MAX_FRAME_BYTES,
            "heartbeat_ms": self._settings.heartbeat_ms,
        }
        return m.Welcome(m.PROTOCOL_VERSION, self._worker_id, limits, self._code.path, self._code.digest)

    async def _watch_silence(self, executor: Executor, scope: trio.CancelScope) -> None:
        """Before Ready the import has its own, longer bound."""
        while True:
            bound_ms = self._settings.silence_ms if executor.ready else self._settings.load_timeout_ms
            wait_s = executor.last_heard + bound_ms / 1000 - trio.current_time()
            if wait_s <= 0:
                doing = "one call did not let go of it" if executor.ready else "its functions were still being imported"
                executor.death = f"killed by the worker after {bound_ms} ms of silence: {doing}"
                scope.cancel()
                return
            await trio.sleep(min(wait_s, self._settings.heartbeat_ms / 1000))  # the bound changes with Ready

    def _hear(self, executor: Executor, message: m.Message) -> None:
        """Translate one message; anything that only a worker may say ends the connection."""
        match message:
            case m.Heartbeat():
                executor.heartbeat = message
            case m.Pong(task_no):
                self._events.feed(ce.TaskClosed(executor.id, ce.TaskNo(task_no)))
            case m.CallLog():
                self._events.logged(message)
            case m.Ready(functions):
                self._seat_taken(executor, functions)
            case m.LoadFailed(error):
                executor.load_error = error
            case m.CallsCompleted() | m.CallsWaiting() | m.CallFailed():
                self._events.feed(as_event(executor.id, message))
            case _:
                raise ProtocolError(f"an executor sent {type(message).__name__}, which only a worker may send")

    def _seat_taken(self, executor: Executor, functions: list[str]) -> None:
        if executor.ready:
            raise ProtocolError("an executor said Ready twice")
        executor.ready = True
        self._failed_starts = 0
        self._events.loaded(functions)
        self._events.feed(ce.ExecutorJoined(executor.id, executor.capacity))
        self._events.changed(self.live, None)
        log.info("executor ready", pid=executor.pid, functions=len(functions))

    def _bury(self, executor: Executor | None, pid: int, status: str) -> None:
        was_ready = executor is not None and executor.ready
        reason = status if executor is None or not executor.death else f"{status} ({executor.death})"
        if executor is not None:
            del self._executors[executor.id]
        if self._stopping.is_set() or trio.current_effective_deadline() == -math.inf:
            return  # the worker itself ends
        log.warning("executor ended", pid=pid, reason=reason)
        if was_ready and executor is not None:
            self._events.feed(ce.ExecutorLost(executor.id, reason))
        else:
            self._failed_starts += 1
        self._events.changed(self.live, self._trouble(executor, reason))

    def _trouble(self, executor: Executor | None, reason: str) -> str | None:
        """Why the worker cannot become ready by waiting; None while it still may."""
        if executor is not None and executor.load_error is not None:
            return f"the functions could not be loaded: {executor.load_error}"
        if self._failed_starts >= 3 * self._settings.executors:
            return f"executors keep ending before they have loaded the functions; the last one {reason}"
        return None


def as_event(
    executor: ce.ExecutorId, message: m.CallsCompleted | m.CallsWaiting | m.CallFailed
) -> ce.CallsCompleted | ce.CallsWaited | ce.CallFailed:
    """The dispatcher's event for an executor's message. Raises ProtocolError for an unknown error code."""
    match message:
        case m.CallsCompleted():
            return ce.CallsCompleted(
                executor=executor,
                ids=cast("list[ce.CallId]", message.ids),
                attempts=message.attempts,
                cpu_us=message.cpu_us,
                values=message.values,
            )
        case m.CallsWaiting():
            return ce.CallsWaited(
                executor=executor,
                ids=cast("list[ce.CallId]", message.ids),
                attempts=message.attempts,
                wait_ids=message.wait_ids,
                cpu_us=message.cpu_us,
                requests=message.requests,
            )
        case m.CallFailed():
            code, error_type, text, traceback = message.error
            if code not in CallErrorCode.__members__:
                raise ProtocolError(f"an executor sent the unknown error code {code!r}")
            return ce.CallFailed(
                executor=executor,
                id=ce.CallId(message.call_id),
                attempt=message.attempt,
                error=ce.CallError(CallErrorCode[code], error_type, text, traceback),
                retryable=message.retryable,
                cpu_us=message.cpu_us,
            )


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that an executor may see."""
    return {name: environment[name] for name in ENVIRONMENT_ALLOWED if name in environment}


async def _end(process: trio.Process, *, at_once: bool) -> str:
    """Kill the process, unless it exits shortly by itself; says how it ended."""
    with trio.move_on_after(0 if at_once else EXIT_GRACE_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left, or only those of another user
        os.killpg(process.pid, signal.SIGKILL)  # what functions have started does not outlive their executor
    code = process.returncode or 0
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was ended by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
