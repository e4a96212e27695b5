"""RequestTaskSlot, and the table of slots."""

from __future__ import annotations

import pytest

from blockx.errors import InvalidArgument, NoSlot, Unavailable
from blockx.model import SlotId, TaskId, TaskState
from blockx.worker.core import events as ev
from blockx.worker.core.slots import SlotCounts, SlotTable
from tests.core.worker_doubles import OK, A, B, C, Worker


def test_a_free_slot_is_leased_for_the_ttl() -> None:
    worker = Worker()
    assert not worker.core.draining
    assert worker.feed(ev.SlotRequested(A, 5_000, SlotId("mine"))) == []
    view = worker.view(A)
    assert (view.state, view.slot_id, view.lease_remaining_ms) == (TaskState.ALLOCATED, "mine", 5_000)
    assert (view.phase, view.payload_digest, view.outcome, view.deadline_ms) == (None, None, None, None)
    assert view.reached_ms == 1_000
    assert worker.core.counts == SlotCounts(free=1, allocated=1, running=0, slots=2)
    assert worker.core.next_deadline_ms() == 6_000


def test_asking_again_gives_the_same_slot_and_does_not_extend_the_lease() -> None:
    worker = Worker()
    first = worker.request(A)
    worker.at(4_000)
    assert worker.request(A, ttl_ms=60_000) == first
    assert worker.view(A).lease_remaining_ms == 2_000
    assert worker.tick(6_000) == [ev.ExpireLease(A)]


def test_a_task_in_preparing_is_answered_running_with_its_slot_and_the_rest_of_its_activation_lease() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    worker.submit(A, slot_id)
    worker.at(11_000)
    assert worker.request(A) == slot_id
    view = worker.view(A)
    assert (view.state, view.lease_remaining_ms) == (TaskState.RUNNING, 20_000)


def test_a_task_at_work_is_answered_running_with_its_slot_and_no_lease() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.BUILDER)
    slot_id = worker.request(A)
    view = worker.view(A)
    assert (view.state, view.slot_id, view.lease_remaining_ms) == (TaskState.RUNNING, slot_id, 0)


def test_a_task_with_a_retained_result_is_answered_with_it_and_gets_no_slot() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    assert worker.feed(ev.SlotRequested(A, 5_000, SlotId("new"))) == []
    view = worker.view(A)
    assert (view.state, view.slot_id, view.outcome) == (TaskState.SUCCEEDED, None, OK)
    assert worker.core.counts.free == 2


def test_no_slot_is_given_when_all_are_taken_and_the_hint_is_never_long() -> None:
    worker = Worker()
    worker.request(A, ttl_ms=9_000)
    worker.request(B, ttl_ms=7_000)
    with pytest.raises(NoSlot, match="all 2 slots are taken") as caught:
        worker.at(2_000).request(C)
    assert caught.value.retry_after_ms == 1_000
    assert not worker.is_known(C)


def test_the_hint_of_a_full_worker_counts_running_tasks_by_their_deadlines() -> None:
    worker = Worker(slots=1)
    worker.bring_to(A, ev.Phase.CALLS, timeout_ms=700)
    with pytest.raises(NoSlot) as caught:
        worker.request(B)
    assert caught.value.retry_after_ms == 700


def test_known_tasks_are_answered_by_a_full_worker() -> None:
    worker = Worker(slots=1)
    slot_id = worker.request(A)
    assert worker.request(A) == slot_id


def test_a_full_spool_gives_no_slot_though_slots_are_free() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    worker.feed(ev.SpoolChanged(full=True))
    with pytest.raises(NoSlot, match="RETAINED_SPOOL_BYTES") as caught:
        worker.at(101_000).request(B)
    assert caught.value.retry_after_ms == 1_000
    worker.feed(ev.SpoolChanged(full=False))
    assert worker.request(B)


def test_a_full_spool_without_results_has_no_hint() -> None:
    worker = Worker()
    worker.feed(ev.SpoolChanged(full=True))
    with pytest.raises(NoSlot) as caught:
        worker.request(A)
    assert caught.value.retry_after_ms is None


def test_a_lease_already_given_is_honoured_when_the_spool_fills_up() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    worker.feed(ev.SpoolChanged(full=True))
    assert worker.request(A) == slot_id
    assert worker.submit(A, slot_id) == [ev.PrepareTaskActivation(A, 101_000)]


def test_a_lease_ends_when_its_time_is_over_and_its_slot_is_free_again() -> None:
    worker = Worker()
    worker.request(A)
    assert worker.tick(5_999) == []
    assert worker.tick(6_000) == [ev.ExpireLease(A)]
    assert not worker.is_known(A)
    assert worker.core.counts == SlotCounts(free=2, allocated=0, running=0, slots=2)
    assert worker.core.next_deadline_ms() is None


def test_a_lease_that_ran_out_is_no_lease_even_before_the_tick() -> None:
    worker = Worker(slots=1)
    worker.request(A)
    worker.at(6_000)
    assert not worker.is_known(A)
    assert worker.feed(ev.SlotRequested(B, 1_000, SlotId("b"))) == [ev.ExpireLease(A)]
    assert worker.view(B).slot_id == "b"


def test_a_task_whose_lease_ran_out_gets_a_new_slot_id() -> None:
    worker = Worker()
    worker.request(A)
    worker.at(6_000)
    assert worker.feed(ev.SlotRequested(A, 1_000, SlotId("second"))) == [ev.ExpireLease(A)]
    assert worker.view(A).slot_id == "second"


def test_a_worker_that_is_not_ready_leases_nothing() -> None:
    worker = Worker(live=0)
    with pytest.raises(Unavailable, match="not ready: no executor of the current code epoch is ready"):
        worker.request(A)
    assert not worker.is_known(A)


@pytest.mark.parametrize(
    ("task_id", "message"),
    [
        ("", "task_id is empty"),
        ("a\nb", r"task_id has the character '\\n' at position 1"),
        ("\x7f", r"task_id has the character '\\x7f'"),
        ("a\x85", r"task_id has the character '\\x85'"),
        ("\ud800", "lone surrogates are not allowed"),
        ("x" * 257, "task_id has 257 bytes of UTF-8; at most 256 are allowed"),
        ("é" * 129, "task_id has 258 bytes"),
    ],
)
def test_a_bad_task_id_is_refused(task_id: str, message: str) -> None:
    worker = Worker()
    with pytest.raises(InvalidArgument, match=message):
        worker.request(TaskId(task_id))
    with pytest.raises(InvalidArgument, match=message):
        worker.submit(TaskId(task_id))
    assert worker.core.counts.free == 2


@pytest.mark.parametrize("task_id", ["x", "x" * 256, "é" * 128, "with space", "名前"])
def test_a_task_id_may_be_any_printable_text_of_up_to_256_bytes(task_id: str) -> None:
    assert Worker().request(TaskId(task_id)) == "slot-1"


@pytest.mark.parametrize(
    ("ttl_ms", "message"),
    [(0, "at least 1, not 0"), (-1, "at least 1, not -1"), (60_001, "60001 is above this worker's limit of 60000")],
)
def test_a_ttl_out_of_bounds_is_refused_even_for_a_known_task(ttl_ms: int, message: str) -> None:
    worker = Worker()
    worker.request(A)
    with pytest.raises(InvalidArgument, match=message):
        worker.request(A, ttl_ms=ttl_ms)


@pytest.mark.parametrize("ttl_ms", [1, 60_000])
def test_a_ttl_may_be_anything_up_to_the_cap(ttl_ms: int) -> None:
    worker = Worker()
    worker.request(A, ttl_ms=ttl_ms)
    assert worker.view(A).lease_remaining_ms == ttl_ms


def test_a_slot_is_bound_from_allocation_to_release() -> None:
    table = SlotTable(2)
    table.allocate(SlotId("s"), A)
    assert table.task_of(SlotId("s")) == A
    table.run(SlotId("s"))
    assert table.counts == SlotCounts(free=1, allocated=0, running=1, slots=2)
    table.release(SlotId("s"))
    assert table.task_of(SlotId("s")) is None
    assert table.counts == SlotCounts(free=2, allocated=0, running=0, slots=2)


def test_the_slot_table_refuses_moves_that_would_break_it() -> None:
    table = SlotTable(2)
    table.allocate(SlotId("s"), A)
    with pytest.raises(RuntimeError, match="in use"):
        table.allocate(SlotId("s"), B)
    table.allocate(SlotId("t"), B)
    with pytest.raises(RuntimeError, match="no free slot"):
        table.allocate(SlotId("u"), C)
    table.run(SlotId("t"))
    with pytest.raises(RuntimeError, match="cannot go from running to running"):
        table.run(SlotId("t"))
    assert table.counts == SlotCounts(free=0, allocated=1, running=1, slots=2)
