"""What a task has read: answers by the identity of the read, bounded in bytes, least recently used first out."""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field

ENTRY_OVERHEAD_BYTES = 250
"""What one entry costs beside its bytes (two bytes objects and a place in the dictionary), on CPython 3.11."""


@define
class ReadCache:
    """Packed answers by packed question. An answer larger than the whole cache is not kept."""

    max_bytes: int
    used_bytes: int = field(default=0, init=False)
    _entries: OrderedDict[bytes, bytes] = field(factory=OrderedDict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, question: bytes) -> bytes | None:
        answer = self._entries.get(question)
        if answer is not None:
            self._entries.move_to_end(question)
        return answer

    def put(self, question: bytes, answer: bytes) -> None:
        cost = _cost(question, answer)
        if cost > self.max_bytes:
            return
        self._forget(question)
        while self.used_bytes + cost > self.max_bytes:
            self._forget(next(iter(self._entries)))
        self._entries[question] = answer
        self.used_bytes += cost

    def _forget(self, question: bytes) -> None:
        answer = self._entries.pop(question, None)
        if answer is not None:
            self.used_bytes -= _cost(question, answer)


def _cost(question: bytes, answer: bytes) -> int:
    return len(question) + len(answer) + ENTRY_OVERHEAD_BYTES
