"""Who watches which task: the streams of WatchTasks, and the run credential that they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio
from attrs import define, field

from blockx.model import TaskId, TaskUpdate


@define(eq=False)
class Subscription:
    """One watch stream: the tasks that it still waits for, and the terminal updates that are not yet sent."""

    waiting: set[TaskId] = field(factory=set)
    _updates: deque[TaskUpdate] = field(factory=deque)
    _arrived: trio.Event = field(factory=trio.Event)

    def push(self, update: TaskUpdate) -> None:
        self.waiting.discard(update.task_id)
        self._updates.append(update)
        self._arrived.set()

    async def next(self) -> TaskUpdate | None:
        """The next terminal update; None when nothing is waited for any more."""
        while not self._updates:
            if not self.waiting:
                return None
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._updates.popleft()


@define
class Watches:
    """`on_attached` and `on_detached` are called for each task that a stream begins and ceases to watch."""

    on_attached: Callable[[TaskId], object]
    on_detached: Callable[[TaskId], object]
    _by_task: dict[TaskId, set[Subscription]] = field(factory=dict, init=False)

    def attach(self, subscription: Subscription, task_id: TaskId) -> None:
        subscription.waiting.add(task_id)
        self._by_task.setdefault(task_id, set()).add(subscription)
        self.on_attached(task_id)

    def detach_all(self, subscription: Subscription) -> None:
        """The stream is gone: give up what it still waited for."""
        for task_id in list(subscription.waiting):
            self._forget(subscription, task_id)
            self.on_detached(task_id)
        subscription.waiting.clear()

    def notify(self, update: TaskUpdate) -> None:
        """Push a terminal update to every stream that waits for the task."""
        for subscription in self._by_task.pop(update.task_id, ()):
            subscription.push(update)

    def _forget(self, subscription: Subscription, task_id: TaskId) -> None:
        streams = self._by_task.get(task_id)
        if streams is not None:
            streams.discard(subscription)
            if not streams:
                del self._by_task[task_id]
