"""Which of many keys is due next, at amortised logarithmic cost however often deadlines move."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=str)

_COMPACT_ABOVE = 64
"""Stale entries of a heap this small are not worth a rebuild."""


class Deadlines(Generic[Key]):
    """One deadline for each key. The heap's head is always live, so looking at it changes nothing."""

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    @property
    def entries(self) -> int:
        """How many entries are held, stale ones included: what the keys cost in memory."""
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """The earliest deadline, None if there is none."""
        return self._heap[0][0] if self._heap else None

    def is_due(self, now_ms: int) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def first(self) -> Key:
        """The key that is due next. Raises IndexError if there is none."""
        return self._heap[0][1]

    def set(self, key: Key, due_ms: int) -> None:
        """Make `key` due at `due_ms`, in place of any time that it had."""
        if self._due.get(key) == due_ms:
            return
        self._due[key] = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        self._tidy()

    def discard(self, key: Key) -> None:
        self._due.pop(key, None)
        self._tidy()

    def _tidy(self) -> None:
        heap, due = self._heap, self._due
        if len(heap) > 2 * len(due) + _COMPACT_ABOVE:
            # Most tasks end long before their deadline: their entries would pile up for hours.
            self._heap = [(due_ms, key) for key, due_ms in due.items()]
            heapq.heapify(self._heap)
            return
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
