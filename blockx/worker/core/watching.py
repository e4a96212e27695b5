"""How many watches look at each task, told apart from those that have their terminal update and are about to end."""

from __future__ import annotations

from attrs import define

from blockx.model import TaskId


@define
class _Count:
    open: int = 0
    ended: int = 0


class WatchCounts:
    """Each attach is followed by one detach. A task id may come to life again while watches of its last life still end.

    Which watch a detach is of is not told, so those that were ended are taken first: the counts are right as soon as
    all of those are gone.
    """

    def __init__(self) -> None:
        self._counts: dict[TaskId, _Count] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def attach(self, task_id: TaskId, *, is_live: bool) -> None:
        """A watch of a task that is not live has nothing to wait for: it counts as ended from the start."""
        count = self._counts.setdefault(task_id, _Count())
        if is_live:
            count.open += 1
        else:
            count.ended += 1

    def detach(self, task_id: TaskId) -> bool:
        """True if the last open watch of the task is gone by this."""
        count = self._counts.get(task_id)
        if count is None:
            return False
        was_open = not count.ended
        if was_open:
            count.open -= 1
        else:
            count.ended -= 1
        if not count.open and not count.ended:
            del self._counts[task_id]
        return was_open and not count.open

    def end(self, task_id: TaskId) -> None:
        """The task's open watches get their terminal update now."""
        count = self._counts.get(task_id)
        if count is not None:
            count.ended += count.open
            count.open = 0
