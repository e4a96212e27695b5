"""Phases, deadlines, the commit point, convergence and what is kept afterwards."""

from __future__ import annotations

import pytest

from blockx.errors import CommitRefused
from blockx.model import CallErrorCode, FailedCall, FailureCode, TaskState
from blockx.worker.core import events as ev
from blockx.worker.core.slots import SlotCounts
from tests.core.worker_doubles import OK, A, B, Worker, failures

CODES = [
    FailureCode.BUILDER_NOT_FOUND,
    FailureCode.BUILDER_FAILED,
    FailureCode.CALL_FAILED,
    FailureCode.OUTPUT_BYTES_EXCEEDED,
    FailureCode.PLUGIN_FAILED,
    FailureCode.CANCELLED,
]
WORKING = [ev.Phase.BUILDER, ev.Phase.CALLS, ev.Phase.PLUGIN]


def test_a_task_goes_through_all_phases_in_order() -> None:
    worker = Worker()
    worker.submit(A)
    assert worker.feed(ev.ActivationPrepared(A)) == [ev.StartBuilderPhase(A)]
    assert worker.core.counts == SlotCounts(free=1, allocated=0, running=1, slots=2)
    assert worker.finish(A, ev.Phase.BUILDER) == [ev.StartCallPhase(A)]
    assert worker.view(A).phase is ev.Phase.CALLS
    assert worker.finish(A, ev.Phase.CALLS) == [ev.StartWriterPhase(A)]
    assert worker.finish(A, ev.Phase.PLUGIN) == [ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)]
    assert worker.core.counts == SlotCounts(free=2, allocated=0, running=0, slots=2)
    assert worker.core.running_tasks == 0


def test_an_ended_task_is_terminal_and_says_when_it_ended() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.at(2_500).finish(A, ev.Phase.PLUGIN)
    view = worker.view(A)
    assert (view.state, view.phase, view.outcome) == (TaskState.SUCCEEDED, ev.Phase.TERMINAL, OK)
    assert (view.slot_id, view.lease_remaining_ms, view.reached_ms, view.deadline_ms) == (None, 0, 2_500, None)


@pytest.mark.parametrize(
    "code", [FailureCode.ACTIVATION_FAILED, FailureCode.IO_SCOPE_FAILED, FailureCode.PLUGIN_NOT_FOUND]
)
def test_a_failed_activation_ends_the_task(code: FailureCode) -> None:
    worker = Worker()
    worker.submit(A)
    outcome = ev.Outcome(failure=code, message="why", retryable=True)
    assert worker.feed(ev.ActivationFailed(A, outcome)) == [ev.ConvergeTask(A, TaskState.FAILED, outcome)]
    assert worker.core.counts.free == 2


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("phase", WORKING)
def test_a_failed_phase_ends_the_task_with_the_outcome_as_it_was_told(phase: ev.Phase, code: FailureCode) -> None:
    worker = Worker()
    worker.bring_to(A, phase)
    call = FailedCall(index=3, function="f", code=CallErrorCode.EXCEPTION)
    outcome = ev.Outcome(failure=code, message="why", failed_call=call)
    assert worker.finish(A, phase, outcome) == [ev.ConvergeTask(A, TaskState.FAILED, outcome)]
    assert worker.view(A).outcome == outcome
    assert worker.core.counts.free == 2


def test_answers_for_unknown_leased_or_ended_tasks_and_other_phases_are_ignored_and_counted() -> None:
    worker = Worker()
    assert worker.feed(ev.ActivationPrepared(A)) == []
    worker.request(A)
    assert worker.finish(A, ev.Phase.BUILDER) == []
    worker.submit(A)
    assert worker.finish(A, ev.Phase.BUILDER) == []
    assert worker.finish(A, ev.Phase.TERMINAL) == []
    worker.feed(ev.ActivationPrepared(A))
    assert worker.feed(ev.ActivationPrepared(A)) == []
    assert worker.feed(ev.ActivationFailed(A, ev.Outcome(failure=FailureCode.ACTIVATION_FAILED))) == []
    assert worker.finish(A, ev.Phase.PLUGIN) == []
    assert worker.finish(A, ev.Phase.CALLS) == []
    assert worker.view(A).phase is ev.Phase.BUILDER
    worker.finish(A, ev.Phase.BUILDER, ev.Outcome(failure=FailureCode.BUILDER_FAILED))
    assert worker.finish(A, ev.Phase.BUILDER) == []
    assert worker.core.ignored_events == 9
    assert worker.core.retained_results == 1


@pytest.mark.parametrize("phase", [ev.Phase.PREPARING, *WORKING])
def test_a_task_times_out_in_any_phase(phase: ev.Phase) -> None:
    worker = Worker()
    worker.bring_to(A, phase, timeout_ms=700)
    assert worker.core.next_deadline_ms() == 1_700
    assert worker.tick(1_699) == []
    assert failures(worker.tick(1_700)) == [(A, FailureCode.TIMED_OUT, True)]
    assert f"700 ms after it was accepted (phase {phase.value})" in worker.message(A)
    assert worker.core.counts.free == 2


def test_a_scope_that_saw_its_deadline_a_little_early_changes_nothing() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.CALLS, timeout_ms=700)
    assert worker.at(1_699).feed(ev.DeadlineReached(A)) == []
    assert failures(worker.at(1_700).feed(ev.DeadlineReached(A))) == [(A, FailureCode.TIMED_OUT, True)]
    assert worker.feed(ev.DeadlineReached(A)) == []


@pytest.mark.parametrize("phase", WORKING)
def test_a_phase_that_ends_at_the_deadline_is_too_late_even_before_the_tick(phase: ev.Phase) -> None:
    worker = Worker()
    worker.bring_to(A, phase, timeout_ms=700)
    assert failures(worker.at(1_700).finish(A, phase)) == [(A, FailureCode.TIMED_OUT, True)]
    assert worker.core.ignored_events == 1


def test_calls_are_not_started_past_the_deadline() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.BUILDER, timeout_ms=700)
    assert failures(worker.at(5_000).finish(A, ev.Phase.BUILDER)) == [(A, FailureCode.TIMED_OUT, True)]


def test_all_that_is_due_ends_in_order_of_time() -> None:
    worker = Worker(slots=3)
    worker.bring_to(A, ev.Phase.CALLS, timeout_ms=900)
    worker.bring_to(B, ev.Phase.CALLS, timeout_ms=800)
    assert [code for code, _, _ in failures(worker.tick(5_000))] == [B, A]


def test_a_granted_commit_moves_the_deadline() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN, timeout_ms=700)
    assert worker.at(1_699).feed(ev.CommitRequested(A)) == [ev.ExtendDeadline(A, 41_699)]
    assert worker.view(A).deadline_ms == 41_699
    assert worker.tick(1_700) == []
    assert worker.at(3_000).finish(A, ev.Phase.PLUGIN) == [ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)]


def test_a_granted_commit_also_shortens_a_deadline_that_is_far_away() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    assert worker.feed(ev.CommitRequested(A)) == [ev.ExtendDeadline(A, 41_000)]
    assert worker.core.next_deadline_ms() == 41_000


def test_a_commit_that_fails_ends_the_task_with_its_own_outcome() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    outcome = ev.Outcome(failure=FailureCode.PLUGIN_FAILED, message="connection lost", retryable=True)
    assert worker.finish(A, ev.Phase.PLUGIN, outcome) == [ev.ConvergeTask(A, TaskState.FAILED, outcome)]


def test_a_commit_of_unknown_outcome_fails_retryable_when_its_time_is_over() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    assert worker.tick(40_999) == []
    assert failures(worker.tick(41_000)) == [(A, FailureCode.PLUGIN_FAILED, True)]
    assert "still unknown 40000 ms after it was granted" in worker.message(A)


def test_the_outcome_of_a_commit_counts_though_it_comes_late_as_long_as_no_tick_came_first() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.bring_to(B, ev.Phase.CALLS, timeout_ms=500)
    worker.feed(ev.CommitRequested(A))
    first, second = worker.at(41_000).finish(A, ev.Phase.PLUGIN)
    assert first == ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)
    assert failures([second]) == [(B, FailureCode.TIMED_OUT, True)]


def test_a_commit_that_is_run_again_stays_under_the_first_grant() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    assert worker.at(30_000).feed(ev.CommitRequested(A)) == []
    assert worker.view(A).deadline_ms == 41_000
    with pytest.raises(CommitRefused):
        worker.at(41_000).feed(ev.CommitRequested(A))


def test_a_commit_at_the_deadline_is_refused_and_changes_nothing() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN, timeout_ms=700)
    with pytest.raises(CommitRefused, match="task 'a' has ended \\(TIMED_OUT\\), so its writer may not commit"):
        worker.at(1_700).feed(ev.CommitRequested(A))
    assert worker.view(A).state is TaskState.RUNNING
    assert failures(worker.tick(1_700)) == [(A, FailureCode.TIMED_OUT, True)]


def test_a_commit_of_an_ended_or_unknown_task_is_refused() -> None:
    worker = Worker()
    with pytest.raises(CommitRefused, match="task 'a' has ended"):
        worker.feed(ev.CommitRequested(A))
    worker.bring_to(A, ev.Phase.PLUGIN, timeout_ms=700)
    worker.tick(1_700)
    with pytest.raises(CommitRefused, match="task 'a' has ended"):
        worker.feed(ev.CommitRequested(A))


@pytest.mark.parametrize("phase", [ev.Phase.PREPARING, ev.Phase.BUILDER, ev.Phase.CALLS])
def test_a_commit_outside_the_plugin_phase_is_refused(phase: ev.Phase) -> None:
    worker = Worker()
    worker.bring_to(A, phase)
    with pytest.raises(CommitRefused, match=f"in phase {phase.value}"):
        worker.feed(ev.CommitRequested(A))


def test_a_result_is_kept_for_its_time_and_then_forgotten() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    assert worker.core.next_deadline_ms() == 301_000
    assert worker.tick(300_999) == []
    assert worker.view(A).state is TaskState.SUCCEEDED
    assert worker.tick(301_000) == [ev.PurgeResult(A)]
    assert not worker.is_known(A)
    assert worker.core.next_deadline_ms() is None


def test_a_result_whose_time_is_over_is_unknown_even_before_the_tick() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    worker.at(301_000)
    assert not worker.is_known(A)
    assert worker.submit(A) == [ev.PurgeResult(A), ev.PrepareTaskActivation(A, 401_000)]


def test_results_leave_in_the_order_in_which_they_came() -> None:
    worker = Worker()
    for task_id, now_ms in ((B, 2_000), (A, 3_000)):
        worker.bring_to(task_id, ev.Phase.PLUGIN)
        worker.at(now_ms).finish(task_id, ev.Phase.PLUGIN)
    assert worker.tick(900_000) == [ev.PurgeResult(B), ev.PurgeResult(A)]


def test_delivery_does_not_shorten_retention() -> None:
    worker = Worker()
    worker.bring_to(A, ev.Phase.PLUGIN)
    worker.finish(A, ev.Phase.PLUGIN)
    assert worker.feed(ev.ResultDelivered(A)) == []
    assert worker.tick(300_999) == []
    assert worker.is_known(A)
