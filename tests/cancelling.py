"""Cancels a piece of work at its first checkpoint, then at its second, and so on, until it gets through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

MAX_CHECKPOINTS = 500


@define(eq=False)
class _CancelAtStep(trio.abc.Instrument):
    """Cancels `scope` when the tasks below `root` have come to their `step`-th checkpoint together."""

    scope: trio.CancelScope
    root: trio.lowlevel.Task
    step: int
    steps: int = field(default=0, init=False)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self._is_below_root(task):
            return
        self.steps += 1
        if self.steps == self.step:
            self.scope.cancel()

    def _is_below_root(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None and task is not self.root:
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        return task is self.root


async def cancel_at_every_checkpoint(work: Callable[[int], Awaitable[None]], check: Callable[[int], None]) -> int:
    """Call `work(n)` cancelled at checkpoint n = 1, 2, …, then `check(n)`; answers the n of the run that got through.

    Steps of tasks that the work starts count too.
    """
    for step in range(1, MAX_CHECKPOINTS):
        if not await _cancelled_at(step, work):
            check(step)
            return step
        check(step)
    raise AssertionError(f"the work has more than {MAX_CHECKPOINTS} checkpoints")


async def _cancelled_at(step: int, work: Callable[[int], Awaitable[None]]) -> bool:
    """Whether the work was cancelled before its end."""
    finished = False
    with trio.CancelScope() as scope:
        canceller = _CancelAtStep(scope, trio.lowlevel.current_task(), step)
        trio.lowlevel.add_instrument(canceller)
        try:
            await work(step)
            finished = True
        finally:
            trio.lowlevel.remove_instrument(canceller)
    return not finished
