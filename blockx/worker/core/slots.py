"""The worker's slots: a fixed number, each bound to at most one task."""

from __future__ import annotations

import enum

from attrs import define, frozen

from blockx.model import SlotId, TaskId


class SlotState(enum.Enum):
    """FREE; ALLOCATED: leased to a task id, until its activation is prepared; RUNNING: its task is at work."""

    FREE = "free"
    ALLOCATED = "allocated"
    RUNNING = "running"


_MOVES = {
    SlotState.FREE: {SlotState.ALLOCATED},
    SlotState.ALLOCATED: {SlotState.RUNNING, SlotState.FREE},
    SlotState.RUNNING: {SlotState.FREE},
}


@frozen
class SlotCounts:
    """How many slots are in which state; free + allocated + running = slots."""

    free: int
    allocated: int
    running: int
    slots: int


@define
class _Slot:
    task_id: TaskId
    state: SlotState = SlotState.ALLOCATED


class SlotTable:
    """Bound slots by slot id; a free slot has no id, so that an id of an earlier lease never matches a new one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bound: dict[SlotId, _Slot] = {}
        self._count = {SlotState.FREE: size, SlotState.ALLOCATED: 0, SlotState.RUNNING: 0}

    @property
    def free(self) -> int:
        return self._count[SlotState.FREE]

    @property
    def counts(self) -> SlotCounts:
        count = self._count
        return SlotCounts(count[SlotState.FREE], count[SlotState.ALLOCATED], count[SlotState.RUNNING], self._size)

    def task_of(self, slot_id: SlotId) -> TaskId | None:
        """The task that this slot is bound to, None for an id that is not in use."""
        slot = self._bound.get(slot_id)
        return None if slot is None else slot.task_id

    def allocate(self, slot_id: SlotId, task_id: TaskId) -> None:
        """Bind a free slot. Raises RuntimeError if none is free or the id is in use: the caller has looked before."""
        if not self.free:
            raise RuntimeError(f"no free slot for task {task_id!r}")
        if slot_id in self._bound:
            raise RuntimeError(f"slot id {slot_id!r} is in use; ids must be made anew for each lease")
        self._bound[slot_id] = _Slot(task_id)
        self._recount(SlotState.FREE, SlotState.ALLOCATED)

    def run(self, slot_id: SlotId) -> None:
        """The slot's task is at work from now on."""
        slot = self._bound[slot_id]
        self._recount(slot.state, SlotState.RUNNING)
        slot.state = SlotState.RUNNING

    def release(self, slot_id: SlotId) -> None:
        """Unbind the slot; its id is never valid again."""
        self._recount(self._bound.pop(slot_id).state, SlotState.FREE)

    def _recount(self, old: SlotState, new: SlotState) -> None:
        if new not in _MOVES[old]:
            raise RuntimeError(f"a slot cannot go from {old.value} to {new.value}")
        self._count[old] -= 1
        self._count[new] += 1
