"""Watches as run credential: the grace after the last one is gone."""

from __future__ import annotations

import pytest

from blockx.errors import CommitRefused
from blockx.model import FailureCode, TaskState
from blockx.worker.core import events as ev
from tests.core.worker_doubles import OK, A, Worker, failures

GRACE_MS = 300


def watched(phase: ev.Phase) -> Worker:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    worker.bring_to(A, phase)
    assert worker.feed(ev.WatchAttached(A)) == []
    return worker


@pytest.mark.parametrize("phase", [ev.Phase.PREPARING, ev.Phase.BUILDER, ev.Phase.CALLS, ev.Phase.PLUGIN])
def test_the_end_of_the_last_watch_starts_the_grace_and_its_end_the_failure(phase: ev.Phase) -> None:
    worker = watched(phase)
    assert worker.at(2_000).feed(ev.WatchDetached(A)) == [ev.ArmWatchGrace(A, 2_300)]
    assert worker.core.next_deadline_ms() == 2_300
    assert worker.tick(2_299) == []
    assert failures(worker.tick(2_300)) == [(A, FailureCode.WATCH_DISCONNECTED, False)]
    assert "nobody watched the task for 300 ms" in worker.message(A)


def test_a_new_watch_within_the_grace_clears_it() -> None:
    worker = watched(ev.Phase.CALLS)
    worker.feed(ev.WatchDetached(A))
    assert worker.at(1_299).feed(ev.WatchAttached(A)) == []
    assert worker.tick(50_000) == []
    assert worker.feed(ev.WatchDetached(A)) == [ev.ArmWatchGrace(A, 50_300)]


def test_a_new_watch_at_the_end_of_the_grace_is_too_late_even_before_the_tick() -> None:
    worker = watched(ev.Phase.CALLS)
    worker.feed(ev.WatchDetached(A))
    assert failures(worker.at(1_300).feed(ev.WatchAttached(A))) == [(A, FailureCode.WATCH_DISCONNECTED, False)]


def test_only_the_end_of_the_last_of_several_watches_counts() -> None:
    worker = watched(ev.Phase.CALLS)
    worker.feed(ev.WatchAttached(A))
    assert worker.feed(ev.WatchDetached(A)) == []
    assert worker.feed(ev.WatchDetached(A)) == [ev.ArmWatchGrace(A, 1_300)]


def test_a_phase_may_end_within_the_grace_and_the_grace_goes_on() -> None:
    worker = watched(ev.Phase.BUILDER)
    worker.feed(ev.WatchDetached(A))
    assert worker.at(1_200).finish(A, ev.Phase.BUILDER) == [ev.StartCallPhase(A)]
    assert failures(worker.tick(1_300)) == [(A, FailureCode.WATCH_DISCONNECTED, False)]


def test_a_deadline_within_the_grace_still_counts() -> None:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    worker.bring_to(A, ev.Phase.CALLS, timeout_ms=200)
    worker.feed(ev.WatchAttached(A))
    worker.feed(ev.WatchDetached(A))
    assert failures(worker.tick(1_200)) == [(A, FailureCode.TIMED_OUT, True)]


def test_a_watch_that_was_opened_before_acceptance_counts_if_it_is_still_open() -> None:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    worker.request(A)
    worker.feed(ev.WatchAttached(A))
    worker.submit(A)
    assert worker.feed(ev.WatchDetached(A)) == [ev.ArmWatchGrace(A, 1_300)]


def test_a_watch_that_ended_before_acceptance_does_not_count() -> None:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    worker.request(A)
    worker.feed(ev.WatchAttached(A))
    assert worker.feed(ev.WatchDetached(A)) == []
    worker.submit(A)
    assert worker.tick(30_000) == []
    assert worker.view(A).state is TaskState.RUNNING


def test_a_grace_of_zero_is_off() -> None:
    worker = Worker(watch_disconnect_grace_ms=0)
    worker.bring_to(A, ev.Phase.CALLS)
    worker.feed(ev.WatchAttached(A))
    assert worker.feed(ev.WatchDetached(A)) == []
    assert worker.core.next_deadline_ms() == 101_000


def test_a_granted_commit_is_not_ended_by_a_grace_that_ran_before() -> None:
    worker = watched(ev.Phase.PLUGIN)
    worker.feed(ev.WatchDetached(A))
    worker.feed(ev.CommitRequested(A))
    assert worker.tick(1_300) == []
    assert worker.finish(A, ev.Phase.PLUGIN) == [ev.ConvergeTask(A, TaskState.SUCCEEDED, OK)]


def test_a_granted_commit_is_not_ended_by_a_watch_that_ends_afterwards() -> None:
    worker = watched(ev.Phase.PLUGIN)
    worker.feed(ev.CommitRequested(A))
    assert worker.feed(ev.WatchDetached(A)) == []
    assert worker.core.next_deadline_ms() == 41_000


def test_a_commit_after_the_grace_is_refused() -> None:
    worker = watched(ev.Phase.PLUGIN)
    worker.feed(ev.WatchDetached(A))
    with pytest.raises(CommitRefused, match="WATCH_DISCONNECTED"):
        worker.at(1_300).feed(ev.CommitRequested(A))


def test_the_end_of_a_lease_ends_its_watches() -> None:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    worker.request(A)
    worker.feed(ev.WatchAttached(A))
    worker.tick(6_000)
    worker.submit(A)
    worker.feed(ev.WatchAttached(A))
    assert worker.feed(ev.WatchDetached(A)) == [ev.ArmWatchGrace(A, 6_300)]


def test_a_watch_of_an_unknown_or_ended_task_has_no_effect() -> None:
    worker = Worker(watch_disconnect_grace_ms=GRACE_MS)
    assert worker.feed(ev.WatchAttached(A)) == []
    assert worker.feed(ev.WatchDetached(A)) == []
    worker.bring_to(A, ev.Phase.BUILDER)
    worker.finish(A, ev.Phase.BUILDER, ev.Outcome(failure=FailureCode.BUILDER_FAILED))
    assert worker.feed(ev.WatchAttached(A)) == []
    assert worker.feed(ev.WatchDetached(A)) == []
    assert worker.core.ignored_events == 0
