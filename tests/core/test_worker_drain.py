"""Draining and stopping."""

from __future__ import annotations

import pytest

from blockx.errors import CommitRefused, Unavailable
from blockx.model import FailureCode, SlotId, TaskState
from blockx.worker.core import events as ev
from tests.core.worker_doubles import OK, A, B, C, Worker, failures


def ended(worker: Worker) -> None:
    worker.finish(A, ev.Phase.PLUGIN)
    worker.feed(ev.ResultDelivered(A))


def test_an_idle_worker_announces_lingers_and_ends() -> None:
    worker = Worker()
    assert worker.feed(ev.DrainRequested()) == [ev.AnnounceDraining()]
    assert worker.core.draining
    assert worker.core.next_deadline_ms() == 3_000
    assert worker.tick(2_999) == []
    assert worker.tick(3_000) == [ev.FinishDrain(0)]
    assert worker.core.next_deadline_ms() is None
    assert worker.tick(9_000) == []


def test_an_idle_worker_without_linger_ends_at_once() -> None:
    worker = Worker(drain_linger_ms=0)
    assert worker.feed(ev.DrainRequested()) == [ev.AnnounceDraining(), ev.FinishDrain(0)]


def test_nothing_new_is_admitted_but_known_tasks_are_answered() -> None:
    worker = Worker()
    slot_id = worker.request(A)
    worker.submit(B)
    worker.feed(ev.DrainRequested())
    with pytest.raises(Unavailable, match="draining") as caught:
        worker.request(C)
    assert caught.value.retry_after_ms is None
    with pytest.raises(Unavailable):
        worker.submit(A, slot_id)
    assert worker.request(A) == slot_id
    assert worker.submit(B) == []
    assert worker.view(B).state is TaskState.RUNNING


def test_leases_are_not_waited_for() -> None:
    worker = Worker()
    worker.request(A)
    worker.feed(ev.DrainRequested())
    assert worker.tick(3_000) == [ev.FinishDrain(0)]


def test_a_result_is_unfetched_until_somebody_has_seen_it() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    assert worker.core.unfetched_results == 1
    worker.feed(ev.ResultDelivered(A))
    assert worker.core.unfetched_results == 0


def test_running_tasks_finish_first() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    assert worker.feed(ev.DrainRequested()) == [ev.AnnounceDraining()]
    worker.at(20_000)
    assert worker.finish(A, ev.Phase.PLUGIN) == [ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)]
    worker.feed(ev.ResultDelivered(A))
    assert worker.tick(21_999) == []
    assert worker.tick(22_000) == [ev.FinishDrain(0)]


def test_a_task_in_preparing_goes_on_through_its_phases() -> None:
    worker = Worker()
    worker.submit(A)
    worker.feed(ev.DrainRequested())
    assert worker.feed(ev.ActivationPrepared(A)) == [ev.StartBuilderPhase(A)]
    assert worker.finish(A, ev.Phase.BUILDER) == [ev.StartCallPhase(A)]


def test_what_is_left_when_the_time_is_over_is_cancelled_and_told_by_the_exit_code() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    worker.submit(B)
    assert worker.feed(ev.DrainRequested(timeout_ms=500)) == [ev.AnnounceDraining()]
    assert worker.core.next_deadline_ms() == 1_500
    cancelled = [(A, FailureCode.CANCELLED, True), (B, FailureCode.CANCELLED, True)]
    assert failures(worker.tick(1_500)) == cancelled
    assert "phase calls" in worker.message(A)
    for task_id in (A, B):
        worker.feed(ev.ResultDelivered(task_id))
    assert worker.tick(3_500) == [ev.FinishDrain(1)]


def test_a_timeout_of_zero_cancels_at_once() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    announce, converge = worker.feed(ev.DrainRequested(timeout_ms=0))
    assert announce == ev.AnnounceDraining()
    assert failures([converge]) == [(A, FailureCode.CANCELLED, True)]


def test_by_default_the_drain_lasts_as_long_as_the_longest_deadline() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS, timeout_ms=500)
    worker.bring_to(B, ev.Phase.CALLS, timeout_ms=900)
    worker.feed(ev.DrainRequested())
    assert failures(worker.tick(1_500)) == [(A, FailureCode.TIMED_OUT, True)]
    assert failures(worker.tick(1_900)) == [(B, FailureCode.TIMED_OUT, True)]
    for task_id in (A, B):
        worker.feed(ev.ResultDelivered(task_id))
    assert worker.tick(3_900) == [ev.FinishDrain(0)]


def test_the_default_includes_a_commit_that_was_granted() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN, timeout_ms=500)
    worker.bring_to(B, ev.Phase.CALLS, timeout_ms=30_000)
    worker.feed(ev.CommitRequested(A))
    worker.feed(ev.DrainRequested())
    assert failures(worker.tick(31_000)) == [(B, FailureCode.TIMED_OUT, True)]
    assert worker.core.next_deadline_ms() == 41_000


def test_a_granted_commit_is_awaited_though_the_time_is_over() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.bring_to(B, ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    worker.feed(ev.DrainRequested(timeout_ms=500))
    assert failures(worker.tick(1_500)) == [(B, FailureCode.CANCELLED, True)]
    assert worker.at(2_000).finish(A, ev.Phase.PLUGIN) == [ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)]


def test_a_commit_may_be_granted_while_draining() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.DrainRequested())
    assert worker.feed(ev.CommitRequested(A)) == [ev.ExtendDeadline(A, 41_000)]


def test_a_further_timeout_replaces_the_limit_and_none_keeps_it() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    worker.feed(ev.DrainRequested(timeout_ms=50_000))
    assert worker.feed(ev.DrainRequested()) == []
    assert worker.core.next_deadline_ms() == 51_000
    assert worker.feed(ev.DrainRequested(timeout_ms=700)) == []
    assert failures(worker.tick(1_700)) == [(A, FailureCode.CANCELLED, True)]


def test_a_stop_cancels_running_tasks_at_once() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    worker.feed(ev.DrainRequested())
    assert failures(worker.feed(ev.StopRequested())) == [(A, FailureCode.CANCELLED, True)]
    worker.feed(ev.ResultDelivered(A))
    assert worker.tick(3_000) == [ev.FinishDrain(1)]


def test_a_stop_without_a_drain_announces_first() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    announce, converge = worker.feed(ev.StopRequested())
    assert announce == ev.AnnounceDraining()
    assert failures([converge]) == [(A, FailureCode.CANCELLED, True)]


def test_a_stop_awaits_granted_commits_and_exits_well_if_nothing_was_cancelled() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    worker.feed(ev.DrainRequested())
    assert worker.feed(ev.StopRequested()) == []
    assert worker.core.next_deadline_ms() == 41_000
    ended(worker)
    assert worker.tick(3_000) == [ev.FinishDrain(0)]


def test_a_stop_while_lingering_changes_nothing() -> None:
    worker = Worker()
    worker.feed(ev.DrainRequested())
    assert worker.feed(ev.StopRequested()) == []
    assert worker.tick(3_000) == [ev.FinishDrain(0)]
    assert worker.feed(ev.StopRequested()) == []


def test_a_cancelled_task_may_not_commit() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.StopRequested())
    with pytest.raises(CommitRefused):
        worker.feed(ev.CommitRequested(A))
    assert worker.finish(A, ev.Phase.PLUGIN) == []
    assert worker.core.ignored_events == 1


def test_results_that_nobody_has_received_are_waited_for() -> None:
    worker = Worker()
    for task_id in (A, B):
        worker.bring_to(task_id, ev.Phase.PLUGIN)
        worker.finish(task_id, ev.Phase.PLUGIN)
    worker.feed(ev.DrainRequested())
    assert worker.tick(3_000) == []
    assert worker.core.next_deadline_ms() == 31_000
    worker.at(4_000)
    assert worker.feed(ev.ResultDelivered(A)) == []
    assert worker.feed(ev.ResultDelivered(A)) == []
    assert worker.feed(ev.ResultDelivered(C)) == []
    assert worker.feed(ev.ResultDelivered(B)) == [ev.FinishDrain(0)]


def test_results_are_not_waited_for_longer_than_the_limit() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    worker.feed(ev.DrainRequested())
    assert worker.tick(30_999) == []
    assert worker.tick(31_000) == [ev.FinishDrain(0)]


def test_a_result_that_leaves_meanwhile_is_not_waited_for() -> None:
    worker = Worker(result_retention_ms=10_000)
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    worker.feed(ev.DrainRequested())
    assert worker.tick(11_000) == [ev.PurgeResult(A), ev.FinishDrain(0)]


def test_delivered_results_that_leave_are_counted_once() -> None:
    worker = Worker(result_retention_ms=10_000)
    worker.bring_to(A, ev.Phase.PLUGIN)
    ended(worker)
    worker.tick(11_000)
    worker.bring_to(B, ev.Phase.PLUGIN)
    worker.finish(B, ev.Phase.PLUGIN)
    worker.feed(ev.DrainRequested())
    assert worker.tick(13_000) == []
    assert worker.feed(ev.ResultDelivered(B)) == [ev.FinishDrain(0)]


def test_the_cancelled_wait_of_a_task_that_the_drain_ended_is_ignored() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS)
    worker.feed(ev.StopRequested())
    assert worker.finish(A, ev.Phase.CALLS, ev.Outcome(failure=FailureCode.CANCELLED)) == []
    assert worker.feed(ev.SlotRequested(A, 1_000, SlotId("x"))) == []
    assert worker.view(A).state is TaskState.FAILED
