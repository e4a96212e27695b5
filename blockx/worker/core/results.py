"""Results that are kept for a while after their tasks have ended."""

from __future__ import annotations

from collections import deque

from blockx.model import TaskId, TaskState
from blockx.worker.core.events import (
    Outcome,
)
from blockx.worker.core.records import RetainedResult


class RetainedResults:
    """By task id, and in the order in which they leave: all are kept equally long, so the oldest goes first."""

    def __init__(self, retention_ms: int) -> None:
        self._retention_ms = retention_ms
        self._by_task: dict[TaskId, RetainedResult] = {}
        self._order: deque[tuple[int, TaskId]] = deque()
        self._undelivered = 0

    def __len__(self) -> int:
        return len(self._by_task)

    @property
    def undelivered(self) -> int:
        """How many results no client has received yet."""
        return self._undelivered

    @property
    def next_ms(self) -> int | None:
        """When the next result leaves, None if there is none."""
        return self._order[0][0] if self._order else None

    def get(self, task_id: TaskId, now_ms: int) -> RetainedResult | None:
        """The result of this task if its time is not over."""
        result = self._by_task.get(task_id)
        return None if result is None or result.until_ms <= now_ms else result

    def peek(self, task_id: TaskId) -> RetainedResult | None:
        """The result of this task if it is still there, be its time over or not."""
        return self._by_task.get(task_id)

    def keep(self, task_id: TaskId, state: TaskState, outcome: Outcome, payload_digest: bytes, now_ms: int) -> None:
        """Keep how the task ended."""
        until_ms = now_ms + self._retention_ms
        self._by_task[task_id] = RetainedResult(state, outcome, payload_digest, now_ms, until_ms)
        self._order.append((until_ms, task_id))
        self._undelivered += 1

    def deliver(self, task_id: TaskId) -> None:
        """A client has received the result; unknown ids (purged meanwhile) are of no interest."""
        result = self._by_task.get(task_id)
        if result is not None and not result.delivered:
            result.delivered = True
            self._undelivered -= 1

    def purge(self, now_ms: int) -> list[TaskId]:
        """Forget the results whose time is over; returns whose they were."""
        purged = []
        while self._order and self._order[0][0] <= now_ms:
            task_id = self._order.popleft()[1]
            self._undelivered -= not self._by_task.pop(task_id).delivered
            purged.append(task_id)
        return purged
