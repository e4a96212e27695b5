"""DispatcherCore: which executor gets a call, and how much may wait there."""

from __future__ import annotations

import pytest

from blockx.worker.core.call_events import (
    ExecutorId,
)
from blockx.worker.core.placement import ExecutorBacklog
from tests.core.dispatcher_rig import Rig, opened, sent, sent_indices, started

MANY = 1_024


def test_a_function_not_seen_yet_is_taken_to_cost_a_millisecond() -> None:
    rig = Rig()
    assert sent_indices(rig.add(1, 100)) == [0, 1, 2, 3, 4]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(5, 0, 20, 5_000)


@pytest.mark.parametrize(("cost_us", "calls"), [(4, 1_024), (10, 500), (100, 50), (1_000, 5), (2_600, 2), (60_000, 2)])
def test_an_executor_gets_about_five_milliseconds_of_estimated_work(cost_us: int, calls: int) -> None:
    rig = Rig(first_window=MANY)
    rig.learn(cost_us)
    assert len(sent_indices(rig.add(1, 2_000))) == calls


def test_the_estimate_follows_what_calls_took() -> None:
    rig = Rig(first_window=MANY)
    rig.learn(1_000)
    rig.add(1, 2_000)
    rig.complete(1, [0, 1, 2, 3, 4], cpu_us=196)
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(7, 0, 30, 5_600)


def test_estimates_are_kept_by_function() -> None:
    rig = Rig(first_window=MANY)
    rig.learn(2_500, "slow")
    rig.learn(100, "quick")
    assert len(sent_indices(rig.add(1, 100, (0, "slow", None), (1, "quick", None)))) == 1 + 25


def test_an_executor_never_holds_more_calls_than_it_takes() -> None:
    rig = Rig(executors=0)
    rig.join(1, capacity=3)
    rig.add(1, 100)
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(3, 0, 12, 3_000)


def test_an_executor_that_takes_one_call_is_given_one() -> None:
    rig = Rig(executors=0)
    rig.join(1, capacity=1)
    assert sent_indices(rig.add(1, 100)) == [0]
    assert rig.complete(1, [0]) == [sent(1, [1])]


def test_calls_go_to_the_executor_with_the_least_estimated_work_then_the_fewest_calls() -> None:
    rig = Rig(executors=2)
    rig.learn(2_000, "slow")
    rig.learn(1_000, "quick")
    commands = rig.add(1, 4, (0, "slow", None), (1, "quick", None))
    assert commands == [
        opened(1),
        sent(1, [0], function="slow"),
        opened(1, 2),
        sent(1, [1], executor=2, function="quick"),
        sent(1, [2], executor=2, function="quick"),
        sent(1, [3], executor=1, function="quick"),
    ]


def test_of_equally_loaded_executors_the_one_with_fewer_waiting_calls_is_taken() -> None:
    rig = Rig(executors=2)
    rig.add(1, 1)
    rig.wait(1, [0])
    assert rig.add(2, 1) == [opened(2, 2), sent(2, [0], executor=2)]


def test_an_executor_that_is_full_leaves_calls_to_the_next() -> None:
    rig = Rig(executors=2, max_backlog_calls=2)
    rig.learn(100)
    assert rig.add(1, 9) == [opened(1), sent(1, [0, 1]), opened(1, 2), sent(1, [2, 3], executor=2)]


def test_unanswered_argument_bytes_are_bounded() -> None:
    rig = Rig(max_backlog_bytes=10)
    rig.learn(10)
    big = [b"x" * 4] * 6
    assert sent_indices(rig.add_args(1, big)) == [0, 1, 2]
    assert sent_indices(rig.complete(1, [1])) == [3]


def test_one_argument_above_the_bound_in_bytes_is_sent_alone() -> None:
    rig = Rig(max_backlog_bytes=10)
    rig.learn(10)
    assert sent_indices(rig.add_args(1, [b"x" * 99, b"x"])) == [0]
    assert sent_indices(rig.complete(1, [0])) == [1]


def test_calls_that_wait_for_reads_hold_no_capacity() -> None:
    rig = Rig(max_backlog_calls=2, max_backlog_bytes=8)
    rig.learn(10)
    rig.add(1, 9)
    assert rig.wait(1, [0, 1]) == [started(1, [0, 1]), sent(1, [2, 3])]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(2, 2, 8, 20)


def test_resumed_calls_take_their_capacity_back() -> None:
    rig = Rig(max_backlog_calls=2)
    rig.learn(10)
    rig.add(1, 9)
    rig.wait(1, [0, 1])
    rig.answer(1, [0, 1])
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(4, 0, 16, 40)
    assert sent_indices(rig.complete(1, [2, 3])) == []
    assert sent_indices(rig.complete(1, [0])) == [4]


def test_calls_that_wait_are_bounded_by_what_is_sent() -> None:
    rig = Rig(max_backlog_calls=2, max_suspended_calls=3)
    rig.learn(10)
    rig.add(1, 9)
    assert sent_indices(rig.wait(1, [0, 1])) == [2]
    assert sent_indices(rig.wait(1, [2])) == []
    rig.answer(1, [1])
    assert sent_indices(rig.complete(1, [1])) == [3]


def test_the_backlog_of_an_unknown_executor_is_none() -> None:
    assert Rig().core.backlog(ExecutorId(7)) is None


def test_an_executor_joins_only_once() -> None:
    with pytest.raises(ValueError, match="executor 1 joined before"):
        Rig().join(1)
