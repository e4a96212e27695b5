"""DispatcherCore: answers that no longer count are dropped and counted; waits and reads."""

from __future__ import annotations

from blockx.worker.core.call_events import (
    ExecutorId,
)
from blockx.worker.core.calls import CallProgress
from blockx.worker.core.placement import ExecutorBacklog
from tests.core.dispatcher_rig import BUSY, Rig, closed, converged, resumed, sent, started


def test_reads_are_started_and_their_answers_resume_the_calls() -> None:
    rig = Rig()
    rig.add(1, 2)
    assert rig.wait(1, [0, 1]) == [started(1, [0, 1])]
    assert rig.answer(1, [1, 0], io_us=9) == [resumed(1, [1, 0], io_us=9)]
    assert rig.complete(1, [0, 1]) == [closed(1), converged(1, 2, reads=2, io_us=18)]
    assert rig.core.dropped_answers == 0


def test_waits_of_several_tasks_start_reads_for_each() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.add(2, 1)
    assert rig.wait_mixed([(1, 0), (2, 0), (1, 1)]) == [started(1, [0, 1]), started(2, [0])]


def test_a_call_with_several_reads_runs_again_when_the_last_is_answered() -> None:
    rig = Rig()
    rig.add(1, 1)
    assert rig.wait(1, [0, 0]) == [started(1, [0, 0])]
    assert rig.wait(1, [0]) == [started(1, [0])]
    assert rig.answer(1, [0]) == [resumed(1, [0])]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(0, 1, 0, 0)
    assert rig.answer(1, [0]) == [resumed(1, [0])]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(0, 1, 0, 0)
    assert rig.answer(1, [0]) == [resumed(1, [0])]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(1, 0, 4, 1_000)


def test_a_call_may_end_while_it_still_has_a_read_outstanding() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.wait(1, [0])
    assert rig.complete(1, [0, 1]) == [closed(1), converged(1, 2, reads=1)]
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(0, 0, 0, 0)
    assert rig.answer(1, [0]) == []
    assert rig.core.dropped_answers == 1


def test_a_call_that_waits_may_fail() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.wait(1, [0])
    assert rig.fail(1, 0, BUSY, retryable=True) == []
    assert rig.core.backlog(ExecutorId(1)) == ExecutorBacklog(1, 0, 4, 1_000)


def test_answers_for_an_ended_task_are_dropped_and_counted() -> None:
    rig = Rig()
    rig.add(1, 4)
    rig.wait(1, [3])
    rig.cancel(1)
    assert rig.complete(1, [0, 1]) == []
    assert rig.fail(1, 2) == []
    assert rig.answer(1, [3]) == []
    assert rig.wait(1, [2]) == []
    assert rig.core.dropped_answers == 5


def test_a_second_answer_to_the_same_call_is_dropped() -> None:
    rig = Rig()
    rig.add(1, 3)
    assert rig.complete(1, [0, 0]) == []
    assert rig.complete(1, [0, 1]) == []
    assert rig.progress(1) == CallProgress(total=3, done=2, in_flight=1, window=16)
    assert rig.core.dropped_answers == 2


def test_an_answer_of_a_superseded_attempt_is_dropped_even_beside_the_current_one() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.fail(1, 0, BUSY, retryable=True)
    rig.due(25)
    late, current = b"late", b"value0"
    assert rig.complete(1, [0, 0, 1], attempts=[1, 2, 1], values=[late, current, b"value1"]) == [
        closed(1),
        converged(1, 2, attempts=3, bytes_in=12),
    ]
    assert rig.core.dropped_answers == 1


def test_failures_and_waits_of_a_superseded_attempt_are_dropped() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.fail(1, 0, BUSY, retryable=True)
    rig.due(25)
    assert rig.fail(1, 0) == []
    assert rig.wait(1, [0, 1]) == [started(1, [1])]
    assert rig.wait(1, [0], attempts=[2]) == [started(1, [0], attempts=[2])]
    assert rig.answer(1, [0, 1]) == [resumed(1, [1])]
    assert rig.core.dropped_answers == 3


def test_an_answer_to_more_reads_than_are_outstanding_is_dropped() -> None:
    rig = Rig()
    rig.add(1, 1)
    rig.wait(1, [0])
    assert rig.answer(1, [0, 0]) == [resumed(1, [0])]
    assert rig.core.dropped_answers == 1


def test_an_executor_cannot_answer_for_another_one() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 2)
    assert rig.complete(1, [1], executor=1) == []
    assert rig.fail(1, 1, executor=1) == []
    assert rig.wait(1, [1], executor=1) == []
    assert rig.core.dropped_answers == 3


def test_answers_of_a_lost_executor_are_dropped() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 2)
    assert rig.lose(1) == [sent(1, [0], executor=2, attempts=[2])]
    assert rig.complete(1, [0]) == []
    assert rig.fail(1, 0) == []
    assert rig.wait(1, [0]) == []
    assert rig.answer(1, [0]) == []
    assert rig.core.dropped_answers == 4
