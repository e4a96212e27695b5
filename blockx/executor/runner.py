"""One runner task: takes calls from the pool's queue, one after the other, and sees each to its end."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import trio

from blockx.errors import ProtocolError
from blockx.executor.call import Port, QueuedCall, current_call
from blockx.executor.failures import BadArguments, Failure, failure_of, is_cancellation
from blockx.model import CallErrorCode
from blockx.wire.values import pack_value, unpack_value

if TYPE_CHECKING:
    import contextvars

    from blockx.executor.pool import Pool

    Coro = Coroutine[Any, Any, Any]


class Runner:
    """The state of one runner: the call that it steps, what that has cost, and the scope to cancel it by."""

    def __init__(self, pool: Pool) -> None:
        self.scope = trio.CancelScope()
        self._pool = pool
        self._call: QueuedCall | None = None
        self._port: Port | None = None
        self._cpu_ns = 0

    def is_running(self, call_id: int, attempt: int) -> bool:
        return self._call is not None and self._call[1:3] == (call_id, attempt)

    @property
    def task_is_closed(self) -> bool:
        return self._call is not None and self._call[0].task.closed

    def spent_ns(self) -> int:
        """What the current call has cost so far, its running step included."""
        return self._cpu_ns + perf_counter_ns() - self._pool.mark_ns

    async def run(self) -> None:
        """Serve the queue. A cancel scope serves many calls, until one was cancelled or left scopes of its own open."""
        self._pool.arrived()
        task = trio.lowlevel.current_task()
        goes_on = True
        while goes_on:
            left_open = False
            try:
                with trio.CancelScope() as self.scope:
                    goes_on = await self._serve(task)
                    left_open = has_open_scopes(task, self.scope)
            except RuntimeError:
                if not left_open:
                    raise
                disown_nurseries(task)

    async def _serve(self, task: trio.lowlevel.Task) -> bool:
        """Take calls while the scope is good. False if the pool has runners enough without this one."""
        pool = self._pool
        while not self.scope.cancel_called and not has_open_scopes(task, self.scope):
            call = pool.take()
            if call is None:
                if not await pool.rest():
                    return False
                continue
            self._call, self._port, self._cpu_ns = call, None, 0
            await self._run_call(call, task)
            self._call = None
            if pool.slice_is_over:
                await pool.turn()
        return True

    async def _run_call(self, call: QueuedCall, task: trio.lowlevel.Task) -> None:
        """Everything that the function may do ends here, in a result or a failure."""
        try:
            value = await self._evaluate(call)
            if has_open_scopes(task, self.scope):
                raise RuntimeError(
                    "the function left a cancel scope or nursery open; close async generators with contextlib.aclosing"
                )
            packed = pack_value(value)
        except BaseException as error:
            if is_cancellation(error) and not self.scope.cancel_called:
                raise
            self._fail(call, failure_of(error))
        else:
            self._complete(call, packed)

    async def _evaluate(self, call: QueuedCall) -> Any:
        batch, _, _, packed_args = call
        function = batch.function
        args, kwargs = _arguments(packed_args)
        mismatch = function.mismatch(args, kwargs)
        if mismatch is not None:
            raise BadArguments(mismatch)
        if function.takes_ctx:
            self._port = Port(call, self._pool.waits, self._pool.outbox, self)
            args = [self._port.context(), *args]
        isolated = self._pool.fresh_context.copy()
        if not function.is_async:
            return isolated.run(_call_plain, call, function.call, args, kwargs)
        return await self._step(call, function.call(*args, **kwargs), isolated)

    async def _step(self, call: QueuedCall, coro: Coro, isolated: contextvars.Context) -> Any:
        try:
            message = isolated.run(_first_step, call, coro)
        except StopIteration as stop:
            return stop.value
        self._charge()
        self._pool.suspend(self)
        try:
            return await self._drive(coro, isolated, message)
        finally:
            self._pool.resume(self)

    @types.coroutine
    def _drive(self, coro: Coro, isolated: contextvars.Context, message: Any) -> Generator[Any, Any, Any]:
        """Pass on to the loop what the function yields, and back what the loop answers; charge each step."""
        while True:
            resume: Callable[[Any], Any] = coro.send
            try:
                answer = yield message
            except BaseException as error:
                resume, answer = coro.throw, error
            self._pool.start_clock()
            try:
                message = isolated.run(resume, answer)
            except StopIteration as stop:
                return stop.value
            self._charge()

    def _charge(self) -> None:
        now_ns = perf_counter_ns()
        self._cpu_ns += now_ns - self._pool.mark_ns
        self._pool.mark_ns = now_ns

    def _end(self) -> bool:
        """The call is over and paid for. False if it was cancelled: then nobody waits for its answer."""
        self._charge()
        if self._port is not None:
            self._port.is_over = True
        return not self.scope.cancel_called

    def _complete(self, call: QueuedCall, packed: bytes) -> None:
        _, call_id, attempt, _ = call
        limit = self._pool.max_value_bytes
        if len(packed) > limit:
            self._fail(
                call,
                Failure(
                    CallErrorCode.VALUE_TOO_LARGE, "", f"the value has {len(packed)} bytes, at most {limit} can be sent"
                ),
            )
        elif self._end():
            self._pool.outbox.completed(call_id, attempt, self._cpu_ns // 1000, packed)
        else:
            self._pool.outbox.end_line(call_id)

    def _fail(self, call: QueuedCall, failure: Failure) -> None:
        _, call_id, attempt, _ = call
        if self._end():
            self._pool.outbox.failed(call_id, attempt, self._cpu_ns // 1000, failure)
        else:
            self._pool.outbox.end_line(call_id)


def _arguments(packed: bytes) -> tuple[list[Any], dict[str, Any]]:
    unpacked = unpack_value(packed)
    if not isinstance(unpacked, list) or [type(part) for part in unpacked] != [list, dict]:
        raise ProtocolError("the arguments of a call must be packed as [args, kwargs]")
    args, kwargs = unpacked
    return args, kwargs


def _call_plain(call: QueuedCall, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    current_call.set(call)
    return function(*args, **kwargs)


def _first_step(call: QueuedCall, coro: Coro) -> Any:
    current_call.set(call)
    return coro.send(None)


def has_open_scopes(task: trio.lowlevel.Task, scope: trio.CancelScope) -> bool:
    """Whether user code has opened a cancel scope in this task, inside of `scope`, and not closed it.

    Trio has no public way to ask; an async generator that is dropped inside of `fail_after` or a nursery does this.
    """
    return task._cancel_status is not scope._cancel_status


def disown_nurseries(task: trio.lowlevel.Task) -> None:
    """Cancel the nurseries that user code has left open in this task; trio would fail the task for them at its end."""
    for nursery in task.child_nurseries:
        nursery.cancel_scope.cancel()
    task._child_nurseries.clear()
