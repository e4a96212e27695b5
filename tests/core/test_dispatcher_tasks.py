"""DispatcherCore: how a task's calls begin and end."""

from __future__ import annotations

import pytest

from blockx.model import CallErrorCode, FailureCode, Receipt
from blockx.worker.core.call_events import (
    INDEX_BITS,
    CallError,
    CallsFailure,
    ConvergeTaskCalls,
    TaskNo,
)
from blockx.worker.core.calls import CallProgress
from tests.core.dispatcher_rig import BROKEN, Rig, argument, closed, converged, ended, opened, sent, sent_indices, value


def failed(task: int, failure: CallsFailure, receipt: Receipt) -> ConvergeTaskCalls:
    return ConvergeTaskCalls(task_no=TaskNo(task), failure=failure, outputs=[], receipt=receipt)


def test_an_empty_call_list_converges_at_once_without_an_executor() -> None:
    rig = Rig(executors=0)
    assert rig.add_args(1, []) == [converged(1, 0)]
    assert rig.progress(1) is None


def test_a_task_is_opened_before_its_first_calls_and_closed_when_the_last_is_answered() -> None:
    rig = Rig()
    rig.learn(10)
    assert rig.add(1, 3) == [opened(1), sent(1, [0, 1, 2])]
    assert rig.complete(1, [0, 1]) == []
    assert rig.complete(1, [2]) == [closed(1), converged(1, 3)]


def test_outputs_are_in_call_order_whatever_order_the_calls_finished_in() -> None:
    rig = Rig()
    rig.learn(10)
    rig.add(1, 4)
    rig.complete(1, [3, 1])
    assert rig.complete(1, [2, 0])[-1] == converged(1, 4)


def test_calls_wait_until_an_executor_joins() -> None:
    rig = Rig(executors=0)
    assert rig.add(1, 2) == []
    assert rig.join(1) == [opened(1), sent(1, [0]), sent(1, [1])]


def test_a_send_carries_at_most_64_calls_of_one_function_and_block() -> None:
    rig = Rig(first_window=1_024)
    rig.learn(4, "f")
    rig.learn(4, "g")
    commands = rig.add(1, 140, (0, "f", None), (70, "f", b"block"), (72, "g", b"block"))
    assert commands == [
        opened(1),
        sent(1, range(64)),
        sent(1, range(64, 70)),
        sent(1, range(70, 72), block=b"block"),
        sent(1, range(72, 136), function="g", block=b"block"),
        sent(1, range(136, 140), function="g", block=b"block"),
    ]


def test_progress_tells_total_done_in_flight_and_window() -> None:
    rig = Rig()
    rig.learn(10)
    rig.add(1, 20)
    rig.complete(1, [0, 1, 2])
    assert rig.progress(1) == CallProgress(total=20, done=3, in_flight=16, window=16)


def test_the_receipt_sums_what_the_calls_cost() -> None:
    rig = Rig(executors=0)
    rig.add(1, 2)
    rig.now_ms = 7
    rig.join(1)
    rig.wait(1, [1])
    rig.answer(1, [1], io_us=300)
    commands = rig.complete(1, [0, 1], cpu_us=50)
    assert commands == [closed(1), converged(1, 2, cpu_us=100, io_us=300, queue_us=14_000, reads=1)]


def test_the_first_terminal_failure_ends_the_task_and_drops_its_outputs() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 3, (0, "f", None), (1, "g", None))
    rig.complete(1, [0], cpu_us=5)
    message = "call 1 of function 'g' failed after 1 attempt: ValueError: bad hex"
    failure = CallsFailure(FailureCode.CALL_FAILED, message, 1, "g", 1, BROKEN)
    receipt = Receipt(cpu_us=12, bytes_in=12, attempts=3)
    assert rig.fail(1, 1, executor=2, cpu_us=7) == [
        closed(1, must_confirm=True),
        closed(1, 2),
        failed(1, failure, receipt),
    ]
    assert rig.progress(1) is None


def test_a_failure_without_an_exception_type_names_its_code() -> None:
    rig = Rig()
    rig.add(1, 1)
    error = CallError(CallErrorCode.CALL_BUDGET_EXCEEDED, message="5 000 ms of CPU and IO are used up")
    failure = ended(rig.fail(1, 0, error)).failure
    assert failure is not None
    expected = "call 0 of function 'f' failed after 1 attempt: CALL_BUDGET_EXCEEDED: 5 000 ms of CPU and IO are used up"
    assert failure.message == expected


def test_a_failed_task_leaves_its_room_to_the_others() -> None:
    rig = Rig(max_backlog_calls=4)
    rig.learn(10)
    rig.add(1, 9)
    assert rig.add(2, 2) == []
    commands = rig.fail(1, 0)
    assert commands[0] == closed(1, must_confirm=True)
    assert isinstance(commands[1], ConvergeTaskCalls)
    assert commands[2:] == []
    assert rig.confirm(1) == [opened(2), sent(2, [0, 1])]


def test_outputs_above_the_bound_end_the_task_as_soon_as_they_arrive() -> None:
    rig = Rig(max_collected_output_bytes=10)
    rig.learn(10)
    rig.add(1, 3)
    assert rig.complete(1, [0], values=[b"x" * 10]) == []
    commands = rig.complete(1, [2], values=[b"y"])
    message = (
        "the outputs of 2 of 3 calls take 11 bytes, more than MAX_COLLECTED_OUTPUT_BYTES (10);"
        " return less from each call or split the task"
    )
    failure = CallsFailure(FailureCode.OUTPUT_BYTES_EXCEEDED, message)
    assert commands == [closed(1, must_confirm=True), failed(1, failure, Receipt(bytes_in=12, attempts=3))]


def test_the_last_output_may_be_the_one_that_is_too_much() -> None:
    rig = Rig(max_collected_output_bytes=10)
    rig.add(1, 1)
    failure = ended(rig.complete(1, [0], values=[b"x" * 11])).failure
    assert failure is not None
    assert failure.code is FailureCode.OUTPUT_BYTES_EXCEEDED


def test_cancelled_calls_are_closed_and_nothing_else_is_emitted_for_them() -> None:
    rig = Rig(executors=2)
    rig.learn(1_000)
    rig.add(1, 20)
    rig.fail(1, 0, retryable=True)
    assert rig.cancel(1) == [closed(1, must_confirm=True), closed(1, 2, must_confirm=True)]
    assert rig.core.next_deadline_ms() is None
    assert rig.cancel(1) == []
    assert rig.complete(1, [1, 2]) == []
    assert rig.progress(1) is None


def test_cancelling_a_task_that_waits_for_an_executor_emits_nothing() -> None:
    rig = Rig(executors=0)
    rig.add(1, 2)
    assert rig.cancel(1) == []
    assert rig.join(1) == []


def test_one_frame_may_end_several_tasks() -> None:
    rig = Rig()
    rig.add(1, 1)
    rig.add(2, 1)
    rig.wait(1, [0])
    commands = rig.complete_mixed([(1, 0), (2, 0)])
    assert commands == [closed(1), converged(1, 1, reads=1), closed(2), converged(2, 1)]


def test_one_frame_may_hold_calls_of_several_functions_of_several_tasks() -> None:
    rig = Rig()
    rig.add(1, 3, (0, "f", None), (1, "g", None), (2, "f", None))
    rig.add(2, 2)
    commands = rig.complete_mixed([(1, 2), (2, 1), (1, 1), (2, 0)])
    assert commands == [closed(2), converged(2, 2)]
    assert rig.complete(1, [0]) == [closed(1), converged(1, 3)]


def test_a_task_is_added_only_once() -> None:
    rig = Rig()
    rig.add(1, 2)
    with pytest.raises(ValueError, match="task 1 were added before"):
        rig.add(1, 2)


@pytest.mark.parametrize(
    "runs",
    [
        ((1, "f", None),),
        ((0, "f", None), (3, "g", None)),
        ((0, "f", None), (2, "g", None), (1, "h", None)),
        ((0, "f", None), (0, "g", None)),
    ],
)
def test_runs_that_do_not_cover_the_calls_are_refused(runs: tuple[tuple[int, str, bytes | None], ...]) -> None:
    rig = Rig()
    with pytest.raises(ValueError, match="does not cover 3 calls"):
        rig.add(1, 3, *runs)
    assert rig.progress(1) is None


def test_more_calls_than_ids_have_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="call ids have room for"):
        Rig().add_args(1, [b""] * ((1 << INDEX_BITS) + 1))


def test_the_arguments_are_kept_as_they_came() -> None:
    rig = Rig()
    args = [argument(0), argument(1)]
    rig.add_args(1, args)
    assert sent_indices(rig.lose(1)) == []
    rig.join(2)
    rig.complete(1, [0, 1], executor=2, attempts=[2, 2], values=[value(0), value(1)])
    assert args == [argument(0), argument(1)]


def test_an_executor_that_may_be_stuck_in_a_closed_tasks_call_gets_no_others_until_it_confirms() -> None:
    rig = Rig(executors=2)
    rig.add(1, 1)
    assert rig.cancel(1) == [closed(1, must_confirm=True)]
    assert rig.add(2, 1) == [opened(2, 2), sent(2, [0], executor=2)]
    assert rig.confirm(1) == []
    assert rig.add(3, 1) == [opened(3), sent(3, [0])]


def test_an_executor_whose_closed_calls_only_waited_for_data_need_not_confirm() -> None:
    rig = Rig()
    rig.add(1, 1)
    rig.wait(1, [0])
    assert rig.cancel(1) == [closed(1)]
    assert rig.add(2, 1) == [opened(2), sent(2, [0])]


def test_a_confirmation_of_an_executor_that_is_lost_means_nothing() -> None:
    rig = Rig()
    rig.add(1, 1)
    rig.cancel(1)
    rig.lose(1)
    assert rig.confirm(1) == []
