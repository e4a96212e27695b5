"""Runs calls: a few runner tasks take them from one queue and step their coroutines inside of themselves.

A call that ends at its first step costs no task, no cancel scope and no switch. One that suspends keeps its runner, and
another runner takes over the queue. Only one runner at a time takes calls that end at once: whoever has used up a time
slice lets the loop turn, and all others leave the queue to it meanwhile.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Iterable
from time import perf_counter_ns

import trio

from blockx.executor.call import QueuedCall, Waits
from blockx.executor.outbox import Outbox
from blockx.executor.runner import Runner

SLICE_NS = 2_000_000
"""How long calls run before the loop turns, so that the socket is served."""

MAX_BURST = 64
"""Runners on their way to the queue at most: waking one at a time costs twice as much for each call that suspends."""

MAX_IDLE_RUNNERS = 64


class Pool:
    """The queue, the runners, and the clock that charges calls. `max_value_bytes` bounds what a call may return."""

    def __init__(self, outbox: Outbox, waits: Waits, max_value_bytes: int, max_runners: int) -> None:
        self.outbox = outbox
        self.waits = waits
        self.max_value_bytes = max_value_bytes
        self.queue: deque[QueuedCall] = deque()
        self.suspended: set[Runner] = set()
        self.fresh_context = contextvars.copy_context()
        self.mark_ns = 0
        """Up to when time is accounted for: each step is charged from here to its end."""
        self._max_runners = max_runners
        self._runners = 0
        self._cancelled: set[tuple[int, int]] = set()
        self._slice_end_ns = 0
        self._paused = False
        self._burst = 1
        self.coming = 0
        """Runners that will look into the queue in this scheduler pass: woken for it, or by an answer to their call."""
        self._idle: list[Runner] = []
        self._drained = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run calls until cancelled; calls that are suspended then are cancelled with it."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()
        raise RuntimeError("a function has cancelled the executor's own tasks")

    def add(self, calls: Iterable[QueuedCall]) -> None:
        self.queue.extend(calls)
        self.wake()

    def cancel(self, call_id: int, attempt: int) -> None:
        """Take back one attempt of a call, whether it is queued or suspended; it is not answered."""
        self._cancelled.add((call_id, attempt))
        for runner in self.suspended:
            if runner.is_running(call_id, attempt):
                self._cancelled.discard((call_id, attempt))
                runner.scope.cancel()

    def cancel_closed(self) -> None:
        """Take back the calls of all tasks that have been closed; queued ones are passed over as their turn comes."""
        for runner in self.suspended:
            if runner.task_is_closed:
                runner.scope.cancel()

    async def wait_drained(self) -> None:
        """Wait until no call is queued or running."""
        while self.queue or self.suspended:
            await self._drained.park()

    # ----------------------------------------------------------------------------------------------------------------
    # For runners

    def take(self, *, is_first: bool) -> QueuedCall | None:
        """The next call to begin; None if there is none, or another runner has the queue.

        The first call after its runner has arrived may begin while the queue is paused: there are no more of these than
        runners in this pass, and where calls suspend, sending every other runner to rest would double the switches.
        """
        if self._paused and not is_first:
            return None
        while self.queue:
            call = self.queue.popleft()
            if not call[0].task.closed and not (self._cancelled and self._was_cancelled(call)):
                return call
        self._cancelled.clear()
        return None

    def _was_cancelled(self, call: QueuedCall) -> bool:
        attempt = call[1], call[2]
        found = attempt in self._cancelled
        self._cancelled.discard(attempt)
        return found

    def wake(self) -> None:
        """See to it that the queue has a runner; after a call has suspended, that it has several."""
        if self._paused or not self.queue:
            return
        wanted = min(self._burst, len(self.queue)) - self.coming
        for _ in range(wanted):
            if not self._wake_one():
                return

    def _wake_one(self) -> bool:
        if self._idle:
            self._idle.pop().rouse()
        elif self._runners < self._max_runners and self._nursery is not None:
            self._runners += 1
            self.coming += 1
            self._nursery.start_soon(Runner(self).run)
        else:
            return False
        return True

    def suspend(self, runner: Runner) -> None:
        """The runner's call waits for something: others are to take the queue."""
        self.suspended.add(runner)
        self._burst = min(2 * self._burst, MAX_BURST)
        self.wake()

    def resume(self, runner: Runner) -> None:
        """The runner's call, once suspended, has ended."""
        self.suspended.discard(runner)
        if not self.suspended and not self.queue:
            self._drained.unpark_all()

    def start_clock(self) -> None:
        """Something else ran before: charge from here on. Where the last slice was used up, it was by idling."""
        self.mark_ns = perf_counter_ns()
        if self.slice_is_over and not self._paused:
            self._slice_end_ns = self.mark_ns + SLICE_NS

    def has_runners_enough(self) -> bool:
        """Whether a runner that has nothing to do should end; it is no longer counted then."""
        if len(self._idle) < MAX_IDLE_RUNNERS:
            return False
        self._runners -= 1
        return True

    async def rest(self, runner: Runner) -> None:
        """Wait for work: until the runner is roused."""
        if not self.queue:
            self._burst = 1
            if not self.suspended:
                self._drained.unpark_all()
        self._idle.append(runner)

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._idle.remove(runner)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    @property
    def slice_is_over(self) -> bool:
        return self.mark_ns >= self._slice_end_ns

    async def turn(self) -> None:
        """Let the loop turn, longer while the worker does not take what there is; then a new time slice begins."""
        if self._paused:
            return
        self._paused = True
        try:
            await self.outbox.wait_not_full()
        finally:
            self._paused = False
        self.start_clock()
