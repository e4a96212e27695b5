"""DispatcherCore: calls that are attempted again."""

from __future__ import annotations

import pytest

from blockx.model import CallErrorCode, FailureCode, Receipt
from blockx.worker.core.call_events import (
    CallError,
    CallsFailure,
    ConvergeTaskCalls,
    TaskNo,
)
from blockx.worker.core.calls import CallProgress
from blockx.worker.core.retry import CallRetryPolicy
from tests.core.dispatcher_rig import BROKEN, BUSY, Rig, closed, converged, ended, opened, sent

POLICY = CallRetryPolicy(attempts=3, base_ms=50, max_ms=2_000)


@pytest.mark.parametrize(("attempt", "delay_ms"), [(1, 50), (2, 100), (3, 200), (6, 1_600), (7, 2_000), (60, 2_000)])
def test_the_wait_doubles_up_to_two_seconds(attempt: int, delay_ms: int) -> None:
    assert POLICY.delay_ms(attempt, 0.0) == delay_ms // 2
    assert delay_ms - 1 <= POLICY.delay_ms(attempt, 0.9999999) <= delay_ms


def test_three_attempts_are_allowed() -> None:
    assert [POLICY.allows_after(attempt) for attempt in (1, 2, 3)] == [True, True, False]


def test_a_retryable_failure_is_sent_again_when_its_wait_is_over() -> None:
    rig = Rig(jitter=0.5)
    rig.learn(10)
    rig.add(1, 2)
    rig.now_ms = 1_000
    assert rig.fail(1, 1, BUSY, retryable=True, cpu_us=30) == []
    assert rig.core.next_deadline_ms() == 1_037
    assert rig.due(1_036) == []
    assert rig.due(1_037) == [sent(1, [1], attempts=[2])]
    assert rig.core.next_deadline_ms() is None
    rig.complete(1, [0])
    end = converged(1, 2, attempts=3, bytes_in=12, cpu_us=30)
    assert rig.complete(1, [1], attempts=[2]) == [closed(1), end]


def test_a_call_that_waits_for_its_retry_is_not_in_flight_and_not_sent() -> None:
    rig = Rig()
    rig.learn(10)
    rig.add(1, 2)
    rig.fail(1, 0, BUSY, retryable=True)
    assert rig.progress(1) == CallProgress(total=2, done=0, in_flight=1, window=8)
    assert rig.complete(1, [1]) == []


def test_retries_leave_in_the_order_they_fall_due() -> None:
    rig = Rig()
    rig.learn(10)
    rig.add(1, 3)
    rig.fail(1, 2, BUSY, retryable=True)
    rig.now_ms = 5
    rig.fail(1, 0, BUSY, retryable=True)
    assert rig.core.next_deadline_ms() == 25
    assert rig.due(60) == [sent(1, [2, 0], attempts=[2, 2])]


def test_calls_sent_again_come_before_those_never_sent() -> None:
    rig = Rig(first_window=4)
    rig.learn(10)
    rig.add(1, 9)
    rig.fail(1, 0, BUSY, retryable=True)
    assert rig.due(25) == []
    assert rig.complete(1, [1, 2]) == [sent(1, [0], attempts=[2]), sent(1, [4, 5])]


def test_calls_sent_again_are_grouped_by_function_and_block() -> None:
    rig = Rig()
    rig.learn(10, "f")
    rig.learn(10, "g")
    rig.add(1, 4, (0, "f", None), (2, "g", b"block"))
    assert rig.lose(1) == []
    assert rig.join(2) == [
        opened(1, 2),
        sent(1, [0, 1], executor=2, attempts=[2, 2]),
        sent(1, [2, 3], executor=2, function="g", block=b"block", attempts=[2, 2]),
    ]


def test_calls_sent_again_obey_the_bound_on_bytes() -> None:
    rig = Rig(executors=2, max_backlog_bytes=8)
    rig.learn(10)
    rig.add(1, 9)
    assert rig.lose(1) == []
    assert rig.lose(2) == []
    assert rig.join(3) == [opened(1, 3), sent(1, [0, 1], executor=3, attempts=[2, 2])]
    assert rig.complete(1, [0], executor=3, attempts=[2]) == [sent(1, [2], executor=3, attempts=[2])]


def test_the_third_failure_ends_the_task_and_names_what_failed() -> None:
    rig = Rig()
    rig.add(1, 1)
    rig.fail(1, 0, BUSY, retryable=True)
    rig.due(25)
    rig.fail(1, 0, BUSY, attempt=2, retryable=True)
    assert rig.core.next_deadline_ms() == 75
    assert rig.due(75) == [sent(1, [0], attempts=[3])]
    message = "call 0 of function 'f' failed after 3 attempts: RetryableError: try later"
    failure = CallsFailure(FailureCode.CALL_FAILED, message, 0, "f", 3, BUSY)
    receipt = Receipt(bytes_in=12, attempts=3)
    end = ConvergeTaskCalls(task_no=TaskNo(1), failure=failure, outputs=[], receipt=receipt)
    assert rig.fail(1, 0, BUSY, attempt=3, retryable=True) == [closed(1), end]


def test_a_failure_that_another_attempt_cannot_mend_is_not_retried() -> None:
    rig = Rig()
    rig.add(1, 1)
    assert ended(rig.fail(1, 0, BROKEN)).failure is not None


def test_a_task_that_ends_takes_its_retries_along_and_leaves_those_of_others() -> None:
    rig = Rig()
    rig.add(1, 2)
    rig.add(2, 2)
    rig.fail(1, 0, BUSY, retryable=True)
    rig.now_ms = 3
    rig.fail(2, 0, BUSY, retryable=True)
    assert rig.core.next_deadline_ms() == 25
    rig.fail(1, 1)
    assert rig.core.next_deadline_ms() == 28
    assert rig.due(28) == [sent(2, [0], attempts=[2])]


def test_the_calls_of_a_lost_executor_go_to_another_at_once() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 4)
    rig.wait(1, [2])
    assert rig.lose(1) == [sent(1, [0], executor=2, attempts=[2]), sent(1, [2], executor=2, attempts=[2])]
    assert rig.core.next_deadline_ms() is None
    rig.complete(1, [1, 3, 0, 2], executor=2, attempts=[1, 1, 2, 2])
    assert rig.progress(1) is None


def test_the_calls_of_the_only_executor_wait_for_the_next_one() -> None:
    rig = Rig()
    rig.add(1, 1)
    assert rig.lose(1) == []
    assert rig.join(2) == [opened(1, 2), sent(1, [0], executor=2, attempts=[2])]
    end = converged(1, 1, attempts=2, bytes_in=8)
    assert rig.complete(1, [0], executor=2, attempts=[2]) == [closed(1, 2), end]


def test_a_call_whose_last_attempt_dies_with_its_executor_fails_with_the_reason() -> None:
    rig = Rig(executors=0)
    rig.add(1, 2)
    rig.add(2, 1)
    for executor in (1, 2):
        rig.join(executor)
        assert rig.lose(executor) == []
    rig.join(3)
    rig.complete(2, [0], executor=3, attempts=[3])
    error = CallError(
        CallErrorCode.EXECUTOR_CRASHED, message="the executor process that ran it was lost: killed by SIGSEGV"
    )
    message = f"call 0 of function 'f' failed after 3 attempts: EXECUTOR_CRASHED: {error.message}"
    failure = CallsFailure(FailureCode.CALL_FAILED, message, 0, "f", 3, error)
    receipt = Receipt(bytes_in=24, attempts=6)
    end = ConvergeTaskCalls(task_no=TaskNo(1), failure=failure, outputs=[], receipt=receipt)
    assert rig.lose(3, "killed by SIGSEGV") == [end]


def test_a_lost_executor_is_not_told_to_close_tasks() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 2)
    rig.complete(1, [0])
    rig.lose(1)
    assert rig.complete(1, [1], executor=2) == [closed(1, 2), converged(1, 2)]


def test_the_loss_of_an_executor_that_never_joined_is_nothing() -> None:
    assert Rig().lose(9) == []
