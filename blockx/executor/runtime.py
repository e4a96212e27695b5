"""An executor's conversation with its worker: greet, load the functions, run calls until told to stop."""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Mapping
from itertools import repeat

import trio
from attrs import define, field, frozen

from blockx.errors import LoadFailed, ProtocolError
from blockx.executor.call import Batch, Task, Waits
from blockx.executor.failures import Failure, shortened
from blockx.executor.loader import load_functions
from blockx.executor.outbox import Outbox
from blockx.executor.output import captured_stdout
from blockx.executor.pool import Pool
from blockx.model import BlockContext, CallErrorCode, nearest
from blockx.sdk import Function
from blockx.stream import MessageStream
from blockx.wire import messages as m
from blockx.wire.frames import MAX_FRAME_BYTES, MAX_VALUE_BYTES
from blockx.wire.values import unpack_value

CAPACITY = 5_120
"""Unanswered calls at most: 1 024 in the queue and 4 096 suspended, which is what a dispatcher allows."""

MAX_LOAD_ERROR_BYTES = 64 * 1024

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@frozen
class Limits:
    """What the worker's Welcome asks for."""

    heartbeat_s: float
    max_value_bytes: int

    @classmethod
    def of(cls, welcome: m.Welcome) -> Limits:
        """Raises ProtocolError for limits that cannot be kept."""
        heartbeat_ms = welcome.limits.get("heartbeat_ms", 1_000)
        spare = MAX_FRAME_BYTES - MAX_VALUE_BYTES
        max_value_bytes = min(welcome.limits.get("max_frame_bytes", MAX_FRAME_BYTES), MAX_FRAME_BYTES) - spare
        if heartbeat_ms <= 0 or max_value_bytes <= 0:
            raise ProtocolError(f"the worker's limits cannot be kept: {welcome.limits}")
        return cls(heartbeat_ms / 1000, max_value_bytes)


async def converse(stream: MessageStream, token: str) -> None:
    """Serve one worker over this stream; returns when the worker closes it or after Shutdown.

    Raises ProtocolError if the worker breaks the protocol, LoadFailed (after telling the worker) if the functions
    cannot be loaded.
    """
    async with trio.open_nursery() as nursery:
        await nursery.start(stream.run_writer)
        stream.post(m.Hello(m.PROTOCOL_VERSION, os.getpid(), platform.python_version(), token, CAPACITY))
        first = await stream.receive()
        if first:
            await _serve(stream, _checked(first[0]), first[1:])
        nursery.cancel_scope.cancel()


def _checked(welcome: m.Message) -> m.Welcome:
    if not isinstance(welcome, m.Welcome):
        raise ProtocolError(f"the worker began with {type(welcome).__name__} where Welcome was expected")
    if welcome.protocol != m.PROTOCOL_VERSION:
        raise ProtocolError(f"the worker speaks protocol {welcome.protocol}, this executor {m.PROTOCOL_VERSION}")
    return welcome


async def _serve(stream: MessageStream, welcome: m.Welcome, early: list[m.Message]) -> None:
    limits = Limits.of(welcome)
    outbox = Outbox(stream)
    with captured_stdout(outbox):
        try:
            functions = load_functions(welcome.code_path)
        except LoadFailed as error:
            stream.post(m.LoadFailed(shortened(str(error), MAX_LOAD_ERROR_BYTES)))
            await stream.wait_sent()
            raise
        stream.post(m.Ready(list(functions)))
        await Runtime(stream, outbox, functions, limits).run(early)


@define(eq=False)
class Runtime:
    """Calls, and the messages about them, after Ready."""

    _stream: MessageStream
    _outbox: Outbox
    _functions: Mapping[str, Function]
    _limits: Limits
    _tasks: dict[int, Task] = field(factory=dict, init=False)
    _waits: Waits = field(init=False)
    _pool: Pool = field(init=False)
    _shutdown: trio.Event = field(factory=trio.Event, init=False)
    _grace_s: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._waits = Waits(self._outbox, self._limits.max_value_bytes)
        self._pool = Pool(self._outbox, self._waits, self._limits.max_value_bytes, CAPACITY)

    async def run(self, early: list[m.Message]) -> None:
        """Until the worker closes or a shutdown is complete. `early` are messages that came with the greeting."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._pool.run)
            nursery.start_soon(self._outbox.run)
            nursery.start_soon(self._beat)
            nursery.start_soon(self._shut_down_when_told, nursery.cancel_scope)
            batch = early
            while True:
                for message in batch:
                    self._hear(message)
                batch = await self._stream.receive()
                if not batch:
                    break
            nursery.cancel_scope.cancel()

    def _hear(self, message: m.Message) -> None:
        match message:
            case m.ExecuteCalls():
                self._execute(message)
            case m.ResumeCalls():
                self._waits.resume(message)
            case m.OpenTask(task_no, task_id):
                self._tasks[task_no] = Task(task_no, task_id)
            case m.CloseTask(task_no):
                self._close(task_no)
            case m.CancelCall(call_id, attempt):
                self._pool.cancel(call_id, attempt)
            case m.Ping(n):
                self._stream.post(m.Pong(n))
            case m.Shutdown(grace_ms):
                self._grace_s = grace_ms / 1000
                self._shutdown.set()
            case _:
                raise ProtocolError(f"the worker sent {type(message).__name__}, which only an executor may send")

    def _execute(self, calls: m.ExecuteCalls) -> None:
        task = self._tasks.get(calls.task_no)
        if task is None:
            raise ProtocolError(f"calls of task {calls.task_no} came before OpenTask")
        function = self._functions.get(calls.function)
        if function is None:
            self._refuse(calls)
            return
        batch = Batch(task, function, _block(calls.block))
        self._pool.add(zip(repeat(batch), calls.ids, calls.attempts, calls.args, strict=False))

    def _refuse(self, calls: m.ExecuteCalls) -> None:
        hint = nearest(calls.function, self._functions)
        failure = Failure(CallErrorCode.FUNCTION_NOT_FOUND, "", f"there is no function {calls.function!r}{hint}")
        for call_id, attempt in zip(calls.ids, calls.attempts, strict=True):
            self._outbox.failed(call_id, attempt, 0, failure)

    def _close(self, task_no: int) -> None:
        task = self._tasks.pop(task_no, None)
        if task is not None:
            task.closed = True
            self._pool.cancel_closed()

    async def _beat(self) -> None:
        """Say regularly that the loop turns, and how late it did."""
        with _opened_statm() as statm:  # open throughout: functions may use up all descriptors
            due = trio.current_time()
            while True:
                due += self._limits.heartbeat_s
                await trio.sleep_until(due)
                lag_us = round((trio.current_time() - due) * 1_000_000)
                due = max(due, trio.current_time())
                waiting = len(self._waits)
                running = max(0, len(self._pool.queue) + len(self._pool.suspended) - waiting)
                self._stream.post(m.Heartbeat(running, waiting, _rss_bytes(statm.fileno()), lag_us))

    async def _shut_down_when_told(self, scope: trio.CancelScope) -> None:
        """Let what was sent here finish within the grace, tell its results, end."""
        await self._shutdown.wait()
        with trio.move_on_after(self._grace_s):
            await self._pool.wait_drained()
            self._outbox.send_collected()
            await self._stream.wait_sent()
        scope.cancel()


def _block(packed: bytes | None) -> BlockContext | None:
    if packed is None:
        return None
    fields = unpack_value(packed)
    if not isinstance(fields, list) or [type(part) for part in fields] != [int, str, int, str, int]:
        raise ProtocolError("a block must be packed as [chain_id, id, height, parent_id, timestamp]")
    return BlockContext(*fields)


def _opened_statm() -> io.FileIO:
    return open("/proc/self/statm", "rb", buffering=0)


def _rss_bytes(statm_fd: int) -> int:
    """Resident memory of this process, as Linux tells it."""
    return int(os.pread(statm_fd, 128, 0).split()[1]) * _PAGE_BYTES
