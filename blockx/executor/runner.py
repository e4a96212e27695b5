"""One runner task: takes calls from the pool's queue, one after the other, and sees each to its end."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen

from blockx.errors import ProtocolError
from blockx.executor.call import Port, QueuedCall, current_call
from blockx.executor.failures import BadArguments, ValueTooLarge, cancellation_in, failure_of
from blockx.executor.forks import leave, lineage
from blockx.wire.values import pack_value, unpack_value

if TYPE_CHECKING:
    import contextvars

    from blockx.executor.pool import Pool

    Coro = Coroutine[Any, Any, Any]


@frozen(eq=False)
class _Suspended:
    """A call that did not end at its first step: its coroutine, its context, and what it yielded to the loop."""

    coro: Coro
    isolated: contextvars.Context
    message: Any


class Runner:
    """The state of one runner: the call that it steps, what that has cost, and the scope to cancel it by."""

    def __init__(self, pool: Pool) -> None:
        self.scope = trio.CancelScope()
        self._pool = pool
        self._task: trio.lowlevel.Task | None = None
        self._call: QueuedCall | None = None
        self._port: Port | None = None
        self._cpu_ns = 0
        self._is_disordered = False
        self._is_coming = True
        self._is_fresh = True

    def is_running(self, call_id: int, attempt: int) -> bool:
        return self._call is not None and self._call[1:3] == (call_id, attempt)

    @property
    def task_is_closed(self) -> bool:
        return self._call is not None and self._call[0].task.closed

    def spent_ns(self) -> int:
        """What the current call has cost so far, its running step included."""
        return self._cpu_ns + perf_counter_ns() - self._pool.mark_ns

    def woken(self, task: trio.lowlevel.Task) -> None:
        """This task's wait was answered: if it is the runner's own, the runner is on its way to the queue."""
        if task is self._task:
            self._expect()

    def rouse(self) -> None:
        """Let the runner, which rests, look into the queue."""
        assert self._task is not None
        self._expect()
        trio.lowlevel.reschedule(self._task)

    def _expect(self) -> None:
        if not self._is_coming:
            self._is_coming = True
            self._pool.coming += 1

    def _arrive(self) -> None:
        if self._is_coming:
            self._is_coming = False
            self._pool.coming -= 1
        self._is_fresh = True
        self._pool.start_clock()

    async def run(self) -> None:
        """Serve the queue. A cancel scope serves many calls, until one was cancelled or left scopes of its own open."""
        self._task = trio.lowlevel.current_task()
        self._arrive()
        goes_on = True
        while goes_on:
            self._is_disordered = False
            try:
                with trio.CancelScope() as self.scope:
                    goes_on = await self._serve()
            except RuntimeError:
                if not self._is_disordered:
                    raise
                disown_nurseries(self._task)

    async def _serve(self) -> bool:
        """Take calls while the scope is good. False if the pool has runners enough without this one."""
        pool = self._pool
        while not self.scope.cancel_called and not self._is_disordered:
            call = pool.take(is_first=self._is_fresh)
            self._is_fresh = False
            if call is None:
                if pool.has_runners_enough():
                    return False
                await pool.rest(self)
                self._arrive()
                continue
            self._call, self._port, self._cpu_ns = call, None, 0
            suspended = self._begin(call)
            if suspended is not None:
                await self._see_through(call, suspended)
            self._call = None
            if pool.slice_is_over:
                await pool.turn()
        return True

    def _begin(self, call: QueuedCall) -> _Suspended | None:
        """Run a call, if it ends at once to its end. Whatever the function does becomes a result or a failure."""
        try:
            value = self._first_step(call)
            if type(value) is _Suspended:
                return value
            self._conclude(call, value)
        except BaseException as error:
            self._end_badly(call, error)
        return None

    async def _see_through(self, call: QueuedCall, suspended: _Suspended) -> None:
        self._charge()
        self._pool.suspend(self)
        try:
            value = await self._drive(suspended.coro, suspended.isolated, suspended.message)
            self._conclude(call, value)
        except BaseException as error:
            self._end_badly(call, error)
        finally:
            self._pool.resume(self)

    def _first_step(self, call: QueuedCall) -> Any:
        """The function's value, or _Suspended."""
        function = call[0].function
        args, kwargs = _arguments(call[3])
        mismatch = function.mismatch(args, kwargs)
        if mismatch is not None:
            raise BadArguments(mismatch)
        if function.takes_ctx:
            self._port = Port(call, self._pool.waits, self._pool.outbox, self)
            args = [self._port.context(), *args]
        isolated = self._pool.fresh_context.copy()
        if not function.is_async:
            return isolated.run(_call_plain, call, function.call, args, kwargs)
        coro = function.call(*args, **kwargs)
        try:
            return _Suspended(coro, isolated, isolated.run(_start_coroutine, call, coro))
        except StopIteration as stop:
            return stop.value

    @types.coroutine
    def _drive(self, coro: Coro, isolated: contextvars.Context, message: Any) -> Generator[Any, Any, Any]:
        """Pass on to the loop what the function yields, and back what the loop answers; charge each step."""
        while True:
            resume: Callable[[Any], Any] = coro.send
            try:
                answer = yield message
            except BaseException as error:
                resume, answer = coro.throw, error
            self._arrive()
            try:
                message = isolated.run(resume, answer)
            except StopIteration as stop:
                return stop.value
            self._charge()
            self._pool.wake()  # this runner had been counted on to look into the queue

    def _charge(self) -> None:
        """A step of the function is over, and paid for."""
        if lineage.is_child:
            leave()
        now_ns = perf_counter_ns()
        self._cpu_ns += now_ns - self._pool.mark_ns
        self._pool.mark_ns = now_ns

    def _conclude(self, call: QueuedCall, value: Any) -> None:
        """The function has returned. Raises what makes its call a failure after all."""
        if self._task is not None and has_open_scopes(self._task, self.scope):
            raise RuntimeError(
                "the function left a cancel scope or nursery open; close async generators with contextlib.aclosing"
            )
        packed = pack_value(value)
        if len(packed) > self._pool.max_value_bytes:
            raise ValueTooLarge(f"the value has {len(packed)} bytes; at most {self._pool.max_value_bytes} can be sent")
        if self._end():
            self._pool.outbox.completed(call[1], call[2], self._cpu_ns // 1000, packed)
        else:
            self._pool.outbox.end_line(call[1])

    def _end_badly(self, call: QueuedCall, error: BaseException) -> None:
        """The function has raised, or its value cannot be sent."""
        if lineage.is_child:
            leave(error)
        if self._task is not None and has_open_scopes(self._task, self.scope):
            self._is_disordered = True
        if not self.scope.cancel_called and is_cancelled_from_outside(self.scope):
            cancellation = cancellation_in(error)
            if cancellation is not None:
                raise cancellation
        if self._end():
            self._pool.outbox.failed(call[1], call[2], self._cpu_ns // 1000, failure_of(error))
        else:
            self._pool.outbox.end_line(call[1])

    def _end(self) -> bool:
        """The call is over and paid for. False if it was cancelled: then nobody waits for its answer."""
        self._charge()
        if self._port is not None:
            self._port.is_over = True
        return not self.scope.cancel_called


def _arguments(packed: bytes) -> tuple[list[Any], dict[str, Any]]:
    unpacked = unpack_value(packed)
    if not isinstance(unpacked, list) or [type(part) for part in unpacked] != [list, dict]:
        raise ProtocolError("the arguments of a call must be packed as [args, kwargs]")
    args, kwargs = unpacked
    return args, kwargs


def _call_plain(call: QueuedCall, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    current_call.set(call)
    return function(*args, **kwargs)


def _start_coroutine(call: QueuedCall, coro: Coro) -> Any:
    current_call.set(call)
    return coro.send(None)


def is_cancelled_from_outside(scope: trio.CancelScope) -> bool:
    """Whether a scope around this one was cancelled. Trio tells it only of the scope that a task is in."""
    status = scope._cancel_status
    return status is not None and status.effectively_cancelled


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
