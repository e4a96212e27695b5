"""SubmitTask: order of checks, idempotency, activation."""

from __future__ import annotations

import pytest

from blockx.errors import InvalidArgument, InvalidSlot, NoSlot, Unavailable
from blockx.model import FailureCode, SlotId, TaskState
from blockx.worker.core import events as ev
from blockx.worker.core.slots import SlotCounts
from tests.core.worker_doubles import DIGEST, A, B, Worker, failures


def test_a_task_with_its_leased_slot_is_accepted_and_prepared() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    assert worker.at(3_000).submit(A, slot_id) == [ev.PrepareTaskActivation(A, 103_000)]
    view = worker.view(A)
    assert (view.state, view.slot_id, view.phase) == (TaskState.RUNNING, slot_id, ev.Phase.PREPARING)
    assert (view.reached_ms, view.deadline_ms, view.payload_digest) == (3_000, 103_000, DIGEST)
    assert worker.core.counts == SlotCounts(free=1, allocated=1, running=0, slots=2)
    assert worker.core.running_tasks == 1


def test_acceptance_renews_the_lease_to_the_activation_timeout() -> None:
    worker = Worker()
    worker.submit(A, worker.request(A, ttl_ms=1))
    assert worker.view(A).lease_remaining_ms == 30_000
    assert worker.core.next_deadline_ms() == 31_000


def test_the_timeout_counts_from_acceptance() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    assert worker.at(2_000).submit(A, slot_id, timeout_ms=7) == [ev.PrepareTaskActivation(A, 2_007)]


def test_without_a_slot_id_the_lease_of_the_task_is_used() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    worker.submit(A)
    assert worker.view(A).slot_id == slot_id
    assert worker.core.counts.free == 1


def test_without_a_lease_a_slot_is_allocated_inline() -> None:
    worker = Worker()
    assert worker.submit(A) == [ev.PrepareTaskActivation(A, 101_000)]
    assert worker.view(A).slot_id == "slot-1"
    assert worker.core.counts.free == 1


def test_without_a_lease_a_full_worker_gives_no_slot() -> None:
    worker = Worker(slots=1)
    worker.request(A)
    with pytest.raises(NoSlot) as caught:
        worker.submit(B)
    assert caught.value.retry_after_ms == 1_000
    assert not worker.is_known(B)


def test_without_a_lease_a_full_spool_gives_no_slot() -> None:
    worker = Worker()
    worker.feed(ev.SpoolChanged(full=True))
    with pytest.raises(NoSlot):
        worker.submit(A)


def test_a_slot_that_was_freed_by_time_is_allocated_inline_even_before_the_tick() -> None:
    worker = Worker(slots=1)
    worker.request(A)
    assert worker.at(6_000).submit(B) == [ev.ExpireLease(A), ev.PrepareTaskActivation(B, 106_000)]


def test_an_unknown_slot_id_is_refused() -> None:
    with pytest.raises(InvalidSlot, match="slot 'made-up' is unknown here or its lease ran out, so task 'a' cannot"):
        Worker().submit(A, SlotId("made-up"))


def test_the_slot_of_another_task_is_refused() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    worker.request(B)
    with pytest.raises(InvalidSlot, match=f"slot '{slot_id}' belongs to another task"):
        worker.submit(B, slot_id)
    assert worker.view(B).state is TaskState.ALLOCATED


def test_a_stale_slot_id_is_refused() -> None:
    worker = Worker()
    stale = worker.request(A)
    worker.tick(6_000)
    fresh = worker.request(A)
    with pytest.raises(InvalidSlot):
        worker.submit(A, stale)
    assert worker.submit(A, fresh) == [ev.PrepareTaskActivation(A, 106_000)]


def test_a_lease_that_ran_out_is_refused_even_before_the_tick() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    with pytest.raises(InvalidSlot, match="ran out"):
        worker.at(6_000).submit(A, slot_id)
    assert worker.tick(6_000) == [ev.ExpireLease(A)]


def test_submitting_again_never_executes_again() -> None:
    worker = Worker()
    worker.submit(A)
    assert worker.submit(A) == []
    assert worker.submit(A, SlotId("whatever")) == []
    assert worker.view(A).state is TaskState.RUNNING
    worker.feed(ev.ActivationFailed(A, ev.Outcome(failure=FailureCode.ACTIVATION_FAILED)))
    assert worker.submit(A) == []
    assert worker.view(A).state is TaskState.FAILED
    assert worker.core.counts.free == 2


def test_a_known_task_is_answered_by_a_worker_that_is_not_ready_or_drains() -> None:
    worker = Worker(ready_grace_ms=0)
    worker.submit(A)
    worker.feed(ev.ExecutorsChanged(0))
    assert worker.submit(A) == []
    worker.feed(ev.DrainRequested())
    assert worker.submit(A) == []


def test_readiness_is_checked_before_the_slot() -> None:
    worker = Worker(ready_grace_ms=0)
    slot_id = worker.request(A)
    worker.feed(ev.ExecutorsChanged(0))
    with pytest.raises(Unavailable):
        worker.submit(A, slot_id)
    with pytest.raises(Unavailable):
        worker.submit(B, SlotId("made-up"))
    assert worker.view(A).state is TaskState.ALLOCATED


@pytest.mark.parametrize(
    ("timeout_ms", "message"),
    [
        (-1, r"task_timeout_ms must be 0 \(the worker's default\) or more, not -1"),
        (28_800_001, "task_timeout_ms 28800001 is above this worker's limit of 28800000"),
    ],
)
def test_a_timeout_out_of_bounds_is_refused_even_for_a_known_task(timeout_ms: int, message: str) -> None:
    worker = Worker()
    worker.submit(A)
    with pytest.raises(InvalidArgument, match=message):
        worker.submit(A, timeout_ms=timeout_ms)


def test_the_longest_timeout_is_allowed() -> None:
    assert Worker().submit(A, timeout_ms=28_800_000) == [ev.PrepareTaskActivation(A, 28_801_000)]


def test_another_payload_for_a_known_task_is_told() -> None:
    worker = Worker()
    assert not worker.core.payload_mismatch(A, b"other")
    worker.request(A)
    assert not worker.core.payload_mismatch(A, b"other")
    worker.submit(A)
    assert worker.core.payload_mismatch(A, b"other")
    assert not worker.core.payload_mismatch(A, DIGEST)
    worker.feed(ev.ActivationFailed(A, ev.Outcome(failure=FailureCode.ACTIVATION_FAILED)))
    assert worker.core.payload_mismatch(A, b"other")
    assert not worker.core.payload_mismatch(A, DIGEST)


def test_a_task_that_is_not_prepared_in_time_loses_its_slot_and_says_so() -> None:
    worker = Worker()
    worker.submit(A)
    assert worker.tick(30_999) == []
    assert failures(worker.tick(31_000)) == [(A, FailureCode.SLOT_LOST, True)]
    assert worker.core.counts.free == 2
    assert "30000 ms" in worker.message(A)


def test_an_activation_that_is_prepared_too_late_is_too_late_even_before_the_tick() -> None:
    worker = Worker()
    worker.submit(A)
    assert failures(worker.at(31_000).feed(ev.ActivationPrepared(A))) == [(A, FailureCode.SLOT_LOST, True)]
    assert worker.core.ignored_events == 1


def test_a_deadline_that_comes_before_the_activation_lease_wins() -> None:
    worker = Worker()
    worker.submit(A, timeout_ms=30_000)
    assert failures(worker.tick(31_000)) == [(A, FailureCode.TIMED_OUT, True)]
