"""What WorkerCore refuses, and in which order it looks. Reads the state and never changes it.

Whatever is due by the time of asking counts as over already: a lease that ran out is no lease, and its slot is free.
"""

from __future__ import annotations

from blockx.errors import CommitRefused, InvalidSlot, NoSlot, Unavailable
from blockx.model import TaskId, checked_task_id
from blockx.worker.core.events import (
    CommitRequested,
    Phase,
    SlotRequested,
    TaskSubmitted,
    WorkerEvent,
)
from blockx.worker.core.state import WorkerState
from blockx.worker.core.validation import check_timeout, check_ttl

MAX_HINT_MS = 1_000
"""The longest pause that a refused client is told to make."""


def refuse(event: WorkerEvent, state: WorkerState, now_ms: int) -> None:
    """Return if the event can be taken in.

    Raises InvalidArgument, Unavailable, NoSlot, InvalidSlot (requests) or CommitRefused; nothing else is refused.
    """
    match event:
        case SlotRequested():
            _refuse_slot_request(event, state, now_ms)
        case TaskSubmitted():
            _refuse_submission(event, state, now_ms)
        case CommitRequested():
            _refuse_commit(event.task_id, state, now_ms)
        case _:
            pass


def _refuse_slot_request(event: SlotRequested, state: WorkerState, now_ms: int) -> None:
    checked_task_id(event.task_id)
    check_ttl(event.ttl_ms, state.settings)
    if state.live_lease(event.task_id, now_ms) is None and not state.was_accepted(event.task_id, now_ms):
        _refuse_if_unavailable(state, now_ms)
        _refuse_without_room(state, now_ms)


def _refuse_submission(event: TaskSubmitted, state: WorkerState, now_ms: int) -> None:
    checked_task_id(event.task_id)
    check_timeout(event.timeout_ms, state.settings)
    if state.was_accepted(event.task_id, now_ms):
        return
    _refuse_if_unavailable(state, now_ms)
    lease = state.live_lease(event.task_id, now_ms)
    if event.slot_id is None:
        if lease is None:
            _refuse_without_room(state, now_ms)
    elif lease is None or lease.slot_id != event.slot_id:
        owner = state.slots.task_of(event.slot_id)
        why = "is unknown here or its lease ran out" if owner in (None, event.task_id) else "belongs to another task"
        raise InvalidSlot(
            f"slot {event.slot_id!r} {why}, so task {event.task_id!r} cannot have it; request a slot again"
        )


def _refuse_if_unavailable(state: WorkerState, now_ms: int) -> None:
    if not state.drain.is_serving:
        raise Unavailable("this worker is draining and takes no new tasks; use another worker")
    if reason := state.readiness.not_ready_reason(now_ms):
        raise Unavailable(
            f"this worker is not ready: {reason}; use another worker or try again later",
            retry_after_ms=state.settings.ready_grace_ms,
        )


def _refuse_without_room(state: WorkerState, now_ms: int) -> None:
    if state.spool_full:
        raise NoSlot(
            "the disk space for results (RETAINED_SPOOL_BYTES) is used up; ask again when older results have left, "
            "or use another worker",
            retry_after_ms=_left(state.results.next_ms, now_ms),
        )
    if not state.slots.free and not state.slot_ends.is_due(now_ms):
        raise NoSlot(
            f"all {state.settings.slots} slots are taken; ask again later or use another worker",
            retry_after_ms=_left(state.slot_ends.next_ms, now_ms),
        )


def _left(until_ms: int | None, now_ms: int) -> int | None:
    """When to ask again: what is known is only the latest time, and most slots come free long before it."""
    return None if until_ms is None else min(max(0, until_ms - now_ms), MAX_HINT_MS)


def _refuse_commit(task_id: TaskId, state: WorkerState, now_ms: int) -> None:
    task = state.running.get(task_id)
    if task is None:
        raise CommitRefused(f"task {task_id!r} has ended, so its writer may not commit")
    if task.phase is not Phase.PLUGIN:
        raise CommitRefused(f"task {task_id!r} is in phase {task.phase.value}, in which nothing may be committed")
    due_ms, code = task.ending()
    if due_ms <= now_ms:
        raise CommitRefused(f"task {task_id!r} has ended ({code.value}), so its writer may not commit")
