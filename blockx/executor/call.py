"""One call as the executor holds it, and the reads that calls wait for."""

from __future__ import annotations

import contextvars
from typing import Any, Protocol

import outcome
import trio
from attrs import define, field, frozen

from blockx.errors import ReadError
from blockx.executor.outbox import Outbox
from blockx.model import BlockContext
from blockx.sdk import Context, Function
from blockx.wire.messages import CALL_INDEX_BITS, ResumeCalls
from blockx.wire.values import pack_value, unpack_value


@define(eq=False)
class Task:
    """A task that has calls here; `closed` once the worker has taken it back."""

    number: int
    id: str
    closed: bool = False


@frozen(eq=False)
class Batch:
    """What the calls of one ExecuteCalls frame have in common."""

    task: Task
    function: Function
    block: BlockContext | None


QueuedCall = tuple[Batch, int, int, bytes]
"""Batch, call id, attempt, packed arguments. Calls that wait have no object of their own."""

current_call: contextvars.ContextVar[QueuedCall | None] = contextvars.ContextVar("current_call", default=None)
"""The call that code belongs to, also in tasks that it has started: to whom a printed line is attributed."""


class Meter(Protocol):
    """Whoever runs a call and knows what it has cost."""

    def spent_ns(self) -> int: ...

    def woken(self, task: trio.lowlevel.Task) -> None:
        """A wait of this task, which belongs to the call, was answered; the task goes on in the next pass."""
        ...


class Waits:
    """Calls that are suspended on a read, by the number under which its answer will come."""

    def __init__(self, outbox: Outbox, max_request_bytes: int) -> None:
        self._outbox = outbox
        self._max_request_bytes = max_request_bytes
        self._last_id = 0
        self._sleepers: dict[int, tuple[trio.lowlevel.Task, Meter]] = {}

    def __len__(self) -> int:
        return len(self._sleepers)

    async def read(self, call_id: int, attempt: int, meter: Meter, request: list[Any]) -> Any:
        """Ask the worker and wait for its answer. Raises ReadError."""
        packed = pack_value(request)
        if len(packed) > self._max_request_bytes:
            raise ReadError(f"a {request[0]} of {len(packed)} bytes does not fit a frame; ask for less at a time")
        self._last_id += 1
        wait_id = self._last_id
        self._sleepers[wait_id] = trio.lowlevel.current_task(), meter
        self._outbox.waits(call_id, attempt, wait_id, meter.spent_ns() // 1000, packed)

        def give_up(_: object) -> trio.lowlevel.Abort:
            del self._sleepers[wait_id]
            return trio.lowlevel.Abort.SUCCEEDED

        return unpack_value(await trio.lowlevel.wait_task_rescheduled(give_up))

    def resume(self, answers: ResumeCalls) -> None:
        """Wake whoever waits for these answers; those who gave up are gone."""
        for wait_id, value, error in zip(answers.wait_ids, answers.values, answers.errors, strict=True):
            sleeper = self._sleepers.pop(wait_id, None)
            if sleeper is None:
                continue
            task, meter = sleeper
            meter.woken(task)
            if error is None:
                trio.lowlevel.reschedule(task, outcome.Value(value))
            else:
                trio.lowlevel.reschedule(task, outcome.Error(ReadError(error[1], retryable=error[2])))


@define(eq=False)
class Port:
    """What a Context asks of the executor."""

    _call: QueuedCall
    _waits: Waits
    _outbox: Outbox
    _meter: Meter
    is_over: bool = field(default=False, init=False)

    async def read(self, request: list[Any]) -> Any:
        if self.is_over:
            raise RuntimeError("this Context belongs to a call that has ended; use the one that the call was given")
        _, call_id, attempt, _ = self._call
        return await self._waits.read(call_id, attempt, self._meter, request)

    def log(self, level: str, message: str) -> None:
        self._outbox.log(self._call[1], level, message)

    def context(self) -> Context:
        batch, call_id, attempt, _ = self._call
        return Context(batch.block, batch.task.id, call_id & ((1 << CALL_INDEX_BITS) - 1), attempt, self)
