from __future__ import annotations

import pytest
from attrs import evolve

from blockx import api
from blockx.errors import InvalidArgument
from blockx.model import (
    CallErrorCode,
    FailedCall,
    FailureCode,
    PluginConfig,
    PluginResult,
    Receipt,
    Reservation,
    SlotId,
    Submission,
    TaskId,
    TaskInput,
    TaskResult,
    TaskState,
    TaskUpdate,
)
from blockx.proto import coordinator_pb2, worker_pb2

TASK = TaskInput(
    function_call_config=PluginConfig("CallListCallConfig", {"function": "f", "callList": [["é"]]}),
    result_handler=PluginConfig("ReturnValueResultHandler"),
    task_timeout_ms=30_000,
    task_id=TaskId("t"),
)
FAILED_CALL = FailedCall(
    index=3,
    function="f",
    arguments="[1]",
    attempts=2,
    code=CallErrorCode.IO_ERROR,
    error_type="ReadError",
    message="no",
    traceback="Traceback…",
)
FAILED = TaskResult(
    state=TaskState.FAILED,
    failure_code=FailureCode.CALL_FAILED,
    failure_message="call 3 failed",
    retryable=True,
    plugin_results=(PluginResult("p", False, "broken", b"{}"),),
    failed_call=FAILED_CALL,
    receipt=Receipt(1, 2, 3, 4, 5, 6, 7),
    read_blocks=((1, "0xa"), (10, "0xb")),
    read_blocks_truncated=True,
    code_epoch=9,
)
SUCCEEDED = TaskResult(state=TaskState.SUCCEEDED, plugin_results=(PluginResult("p", True, "", b"[1]"),))


def with_body(size: int) -> TaskResult:
    return TaskResult(state=TaskState.SUCCEEDED, plugin_results=(PluginResult("p", True, "", b"x" * size),))


# --------------------------------------------------------------------------------------------------------------------
# States


@pytest.mark.parametrize("state", [*TaskState, None])
def test_states_survive_the_round_trip(state: TaskState | None) -> None:
    assert api.state_from_pb(api.state_to_pb(state)) is state


def test_a_state_of_a_newer_server_is_taken_for_running() -> None:
    assert api.state_from_pb(77) is TaskState.RUNNING


# --------------------------------------------------------------------------------------------------------------------
# Requests


@pytest.mark.parametrize("task", [TASK, evolve(TASK, result_handler=None, task_timeout_ms=0)])
def test_tasks_survive_the_round_trip(task: TaskInput) -> None:
    assert api.task_input_from_pb(api.task_input_to_pb(task)) == task


def test_an_empty_config_is_an_empty_object() -> None:
    message = worker_pb2.TaskInput(task_id="t", function_call_config=worker_pb2.PluginConfig(type="B"))
    assert api.task_input_from_pb(message).function_call_config == PluginConfig("B", "{}")


def test_a_task_without_a_builder_converts_to_one_with_the_empty_type() -> None:
    assert api.task_input_from_pb(worker_pb2.TaskInput(task_id="t")).function_call_config == PluginConfig("", "{}")


@pytest.mark.parametrize(
    "task", [evolve(TASK, task_timeout_ms=2**63), evolve(TASK, function_call_config=PluginConfig("\ud800"))]
)
def test_a_task_that_no_message_can_hold_is_refused(task: TaskInput) -> None:
    with pytest.raises(InvalidArgument, match="task 't' cannot be sent"):
        api.task_input_to_pb(task)


# --------------------------------------------------------------------------------------------------------------------
# Reservations and submissions

RESERVATIONS = [
    Reservation("w:1", SlotId("s"), TaskState.ALLOCATED, 4_000),
    Reservation("w:1", None, TaskState.SUCCEEDED),
]


@pytest.mark.parametrize("reservation", RESERVATIONS)
def test_reservations_survive_the_round_trip_through_a_coordinator(reservation: Reservation) -> None:
    message = api.reservation_to_pb(reservation, "worker-1")
    assert message.worker_id == "worker-1"
    assert api.reservation_from_pb(message) == reservation


@pytest.mark.parametrize("reservation", RESERVATIONS)
def test_slots_survive_the_round_trip(reservation: Reservation) -> None:
    assert api.slot_from_pb("w:1", api.slot_to_pb(reservation)) == reservation


def test_a_coordinator_that_tells_no_state_has_reserved_a_slot() -> None:
    message = coordinator_pb2.ReserveWorkerSlotResponse(worker_addr="w:1", slot_id="s")
    assert api.reservation_from_pb(message) == Reservation("w:1", SlotId("s"), TaskState.ALLOCATED)


@pytest.mark.parametrize(
    "submission", [Submission("w:1", TaskState.RUNNING), Submission("w:1", TaskState.FAILED, True)]
)
def test_submissions_survive_the_round_trip(submission: Submission) -> None:
    assert api.submission_from_pb("w:1", api.submission_to_pb(submission)) == submission


# --------------------------------------------------------------------------------------------------------------------
# Results


@pytest.mark.parametrize("result", [FAILED, SUCCEEDED])
def test_results_survive_the_round_trip(result: TaskResult) -> None:
    assert api.task_result_from_pb(api.task_result_to_pb(result)) == result


@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_code_survives_the_round_trip(code: FailureCode) -> None:
    result = evolve(FAILED, failure_code=code)
    assert api.task_result_from_pb(api.task_result_to_pb(result)) == result


@pytest.mark.parametrize("code", CallErrorCode)
def test_every_call_error_code_survives_the_round_trip(code: CallErrorCode) -> None:
    result = evolve(FAILED, failed_call=evolve(FAILED_CALL, code=code))
    assert api.task_result_from_pb(api.task_result_to_pb(result)) == result


def test_codes_of_a_newer_server_are_told_in_the_messages() -> None:
    message = api.task_result_to_pb(FAILED)
    message.execute_result.failure_code = "EATEN"
    message.execute_result.failed_call.code = "BITTEN"
    result = api.task_result_from_pb(message)
    assert (result.failure_code, result.failure_message) == (None, "EATEN: call 3 failed")
    assert result.failed_call == evolve(FAILED_CALL, code=CallErrorCode.EXCEPTION, message="BITTEN: no")


def test_a_long_message_keeps_its_beginning() -> None:
    result = api.task_result_from_pb(api.task_result_to_pb(evolve(FAILED, failure_message="begin" + "é" * 5_000)))
    assert result.failure_message.startswith("beginé")
    assert result.failure_message.endswith("é…")
    assert len(result.failure_message.encode()) in (api.MAX_MESSAGE_BYTES, api.MAX_MESSAGE_BYTES - 1)


def test_a_long_traceback_keeps_its_end() -> None:
    call = evolve(FAILED_CALL, traceback="é" * 10_000 + "ValueError: why")
    found = api.task_result_from_pb(api.task_result_to_pb(evolve(FAILED, failed_call=call))).failed_call
    assert found is not None
    assert found.traceback.startswith("…é")
    assert found.traceback.endswith("éValueError: why")
    assert len(found.traceback.encode()) in (api.MAX_TRACEBACK_BYTES, api.MAX_TRACEBACK_BYTES - 1)


def test_texts_at_the_bound_stay_whole() -> None:
    call = evolve(FAILED_CALL, message="m" * api.MAX_MESSAGE_BYTES, traceback="t" * api.MAX_TRACEBACK_BYTES)
    result = evolve(FAILED, failed_call=call)
    assert api.task_result_from_pb(api.task_result_to_pb(result)) == result


def test_lone_surrogates_in_messages_of_user_code_are_escaped() -> None:
    call = evolve(FAILED_CALL, message="\ud800", traceback="\udfff")
    found = api.task_result_from_pb(api.task_result_to_pb(evolve(FAILED, failed_call=call))).failed_call
    assert found is not None
    assert (found.message, found.traceback) == ("\\ud800", "\\udfff")


def test_read_blocks_are_cut_to_a_thousand_and_flagged() -> None:
    blocks = tuple((1, f"0x{number}") for number in range(1_001))
    whole = api.task_result_from_pb(api.task_result_to_pb(evolve(SUCCEEDED, read_blocks=blocks[:1_000])))
    assert (whole.read_blocks, whole.read_blocks_truncated) == (blocks[:1_000], False)
    cut = api.task_result_from_pb(api.task_result_to_pb(evolve(SUCCEEDED, read_blocks=blocks)))
    assert (cut.read_blocks, cut.read_blocks_truncated) == (blocks[:1_000], True)


# --------------------------------------------------------------------------------------------------------------------
# Updates, answers, large results

UPDATE = TaskUpdate(
    task_id=TaskId("t"),
    state=TaskState.FAILED,
    is_terminal=True,
    worker_addr="w:1",
    timestamp_ms=5,
    result=FAILED,
    result_bytes=2,
)


@pytest.mark.parametrize(
    "update",
    [
        UPDATE,
        TaskUpdate(task_id=TaskId("t"), state=TaskState.RUNNING, is_terminal=False, worker_addr="w:1"),
        TaskUpdate(task_id=TaskId("t"), state=None, is_terminal=True, error="not_found"),
    ],
)
def test_updates_survive_the_round_trip(update: TaskUpdate) -> None:
    assert api.task_update_from_pb(api.task_update_to_pb(update)) == update


@pytest.mark.parametrize(("result", "state"), [(SUCCEEDED, TaskState.SUCCEEDED), (FAILED, TaskState.FAILED)])
def test_the_result_tells_the_end_where_the_state_is_of_a_newer_server(result: TaskResult, state: TaskState) -> None:
    message = api.task_update_to_pb(evolve(UPDATE, result=result))
    message.state = 77  # type: ignore[assignment]  # what an open enum may hold
    assert api.task_update_from_pb(message).state is state


def test_a_result_at_the_bound_stays_inline() -> None:
    result = with_body(api.INLINE_RESULT_BYTES)
    assert api.with_inline_bound(result) == (result, api.INLINE_RESULT_BYTES, False)


def test_a_result_above_the_bound_keeps_all_but_the_bodies() -> None:
    result = with_body(api.INLINE_RESULT_BYTES + 1)
    bare = evolve(result, plugin_results=(PluginResult("p", True, "", b""),))
    assert api.with_inline_bound(result) == (bare, api.INLINE_RESULT_BYTES + 1, True)


def test_the_bound_counts_all_plugin_results_together() -> None:
    half = with_body(api.INLINE_RESULT_BYTES // 2 + 1)
    _, size, is_truncated = api.with_inline_bound(evolve(half, plugin_results=half.plugin_results * 2))
    assert (size, is_truncated) == (api.INLINE_RESULT_BYTES + 2, True)


def test_large_updates_and_answers_fit_the_message_of_a_stock_client() -> None:
    result = with_body(api.INLINE_RESULT_BYTES + 1)
    update = api.task_update_to_pb(evolve(UPDATE, result=result, state=TaskState.SUCCEEDED))
    status = api.task_status_to_pb(TaskState.SUCCEEDED, result)
    for message in (update, status):
        assert message.is_truncated
        assert message.result_bytes == api.INLINE_RESULT_BYTES + 1
        assert len(message.SerializeToString()) < 1_000


def test_figures_of_a_result_that_was_truncated_before_are_kept() -> None:
    status = api.task_status_to_pb(TaskState.SUCCEEDED, with_body(0), result_bytes=5_000_000, is_truncated=True)
    assert (status.result_bytes, status.is_truncated) == (5_000_000, True)


@pytest.mark.parametrize(("state", "result"), [(TaskState.RUNNING, None), (TaskState.FAILED, FAILED)])
def test_answers_survive_the_round_trip(state: TaskState, result: TaskResult | None) -> None:
    assert api.task_status_from_pb(api.task_status_to_pb(state, result)) == (state, result)
