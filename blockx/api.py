"""The only converter between the values of `blockx.model` and the messages of the protocol, for clients and services.

`…_to_pb` applies the bounds of the protocol, so that no answer outgrows what a stock client accepts (4 MiB).
`…_from_pb` never fails for what a newer server may send: states and codes unknown here become the nearest thing known.
"""

from __future__ import annotations

from typing import cast

from attrs import asdict, evolve, fields

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

INLINE_RESULT_BYTES = 3 * 1024 * 1024
"""Plugin results above this in all are left out of messages: a stock client refuses messages above 4 MiB."""
MAX_MESSAGE_BYTES = 4 * 1024
MAX_TRACEBACK_BYTES = 16 * 1024
MAX_READ_BLOCKS = 1_000


# --------------------------------------------------------------------------------------------------------------------
# States


def state_to_pb(state: TaskState | None) -> worker_pb2.TaskState:
    """None (the state of an unknown task) becomes TASK_STATE_UNSPECIFIED."""
    number = worker_pb2.TaskState.Value("TASK_STATE_UNSPECIFIED" if state is None else state.value)
    return cast("worker_pb2.TaskState", number)  # the stubs call every enum value a plain int


def state_from_pb(state: int) -> TaskState | None:
    """TASK_STATE_UNSPECIFIED becomes None; a state unknown here becomes RUNNING, so that the caller goes on asking."""
    if state == worker_pb2.TASK_STATE_UNSPECIFIED:
        return None
    return _STATES.get(state, TaskState.RUNNING)


_STATES: dict[int, TaskState] = {state_to_pb(state): state for state in TaskState}


# --------------------------------------------------------------------------------------------------------------------
# Requests


def task_input_to_pb(task: TaskInput) -> worker_pb2.TaskInput:
    """Raises InvalidArgument for what no message can hold: a lone surrogate in a text, a number above 64 bits."""
    try:
        return worker_pb2.TaskInput(
            task_id=task.task_id,
            function_call_config=_plugin_config_to_pb(task.function_call_config),
            result_handler=None if task.result_handler is None else _plugin_config_to_pb(task.result_handler),
            task_timeout_ms=task.task_timeout_ms,
        )
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"task {task.task_id!r} cannot be sent: {error}") from None


def task_input_from_pb(task: worker_pb2.TaskInput) -> TaskInput:
    """Checks nothing. A handler not set becomes None, an empty config `{}`, a missing builder the empty type."""
    handler = _plugin_config_from_pb(task.result_handler) if task.HasField("result_handler") else None
    return TaskInput(
        function_call_config=_plugin_config_from_pb(task.function_call_config),
        result_handler=handler,
        task_timeout_ms=task.task_timeout_ms,
        task_id=TaskId(task.task_id),
    )


def _plugin_config_to_pb(config: PluginConfig) -> worker_pb2.PluginConfig:
    return worker_pb2.PluginConfig(type=config.type, config=config.config)


def _plugin_config_from_pb(config: worker_pb2.PluginConfig) -> PluginConfig:
    return PluginConfig(config.type, config.config or "{}")


# --------------------------------------------------------------------------------------------------------------------
# Reservations and submissions


def reservation_to_pb(reservation: Reservation, worker_id: str) -> coordinator_pb2.ReserveWorkerSlotResponse:
    """The coordinator's answer."""
    return coordinator_pb2.ReserveWorkerSlotResponse(
        worker_addr=reservation.worker_addr,
        slot_id=reservation.slot_id or "",
        state=state_to_pb(reservation.state),
        worker_id=worker_id,
        lease_remaining_ms=reservation.lease_remaining_ms,
    )


def reservation_from_pb(answer: coordinator_pb2.ReserveWorkerSlotResponse) -> Reservation:
    """A coordinator's answer; one that tells no state has reserved a slot."""
    return _reservation(answer.worker_addr, answer)


def slot_to_pb(reservation: Reservation) -> worker_pb2.RequestTaskSlotResponse:
    """A worker's answer."""
    return worker_pb2.RequestTaskSlotResponse(
        slot_id=reservation.slot_id or "",
        state=state_to_pb(reservation.state),
        lease_remaining_ms=reservation.lease_remaining_ms,
    )


def slot_from_pb(worker_addr: str, answer: worker_pb2.RequestTaskSlotResponse) -> Reservation:
    """A worker's answer, with the address it came from."""
    return _reservation(worker_addr, answer)


def _reservation(
    worker_addr: str, answer: coordinator_pb2.ReserveWorkerSlotResponse | worker_pb2.RequestTaskSlotResponse
) -> Reservation:
    return Reservation(
        worker_addr=worker_addr,
        slot_id=SlotId(answer.slot_id) if answer.slot_id else None,
        state=state_from_pb(answer.state) or TaskState.ALLOCATED,
        lease_remaining_ms=answer.lease_remaining_ms,
    )


def submission_to_pb(submission: Submission) -> worker_pb2.SubmitTaskResponse:
    return worker_pb2.SubmitTaskResponse(
        state=state_to_pb(submission.state), payload_mismatch=submission.payload_mismatch
    )


def submission_from_pb(worker_addr: str, answer: worker_pb2.SubmitTaskResponse) -> Submission:
    state = state_from_pb(answer.state) or TaskState.RUNNING
    return Submission(worker_addr, state, payload_mismatch=answer.payload_mismatch)


# --------------------------------------------------------------------------------------------------------------------
# Updates and answers that carry a result


def with_inline_bound(result: TaskResult) -> tuple[TaskResult, int, bool]:
    """The result as one message may carry it, the bytes of its plugin results, and whether they were left out.

    Left out means: every plugin result stays with its name and success, its `result` is empty. ReadTaskResult has them.
    """
    result_bytes = sum(len(plugin.result) for plugin in result.plugin_results)
    if result_bytes <= INLINE_RESULT_BYTES:
        return result, result_bytes, False
    bare = tuple(evolve(plugin, result=b"") for plugin in result.plugin_results)
    return evolve(result, plugin_results=bare), result_bytes, True


def task_update_to_pb(update: TaskUpdate) -> worker_pb2.TaskUpdate:
    """Large plugin results are left out and flagged; an update that is flagged already keeps its figures."""
    message = worker_pb2.TaskUpdate(
        task_id=update.task_id,
        state=state_to_pb(update.state),
        is_terminal=update.is_terminal,
        worker_addr=update.worker_addr,
        timestamp_ms=update.timestamp_ms,
        error=update.error,
    )
    _put_result(message, update.result, update.result_bytes, update.is_truncated)
    return message


def task_update_from_pb(update: worker_pb2.TaskUpdate) -> TaskUpdate:
    """Where an ended task's state is unknown here, the result tells it."""
    state = state_from_pb(update.state)
    result = task_result_from_pb(update.result) if update.HasField("result") else None
    if result is not None and update.is_terminal:
        state = result.state
    return TaskUpdate(
        task_id=TaskId(update.task_id),
        state=state,
        is_terminal=update.is_terminal,
        worker_addr=update.worker_addr,
        timestamp_ms=update.timestamp_ms,
        result=result,
        error=update.error,
        result_bytes=update.result_bytes,
        is_truncated=update.is_truncated,
    )


def task_status_to_pb(
    state: TaskState, result: TaskResult | None, *, result_bytes: int = 0, is_truncated: bool = False
) -> worker_pb2.GetTaskResultResponse:
    """The answer to GetTaskResult. Large plugin results are left out and flagged, as in an update."""
    message = worker_pb2.GetTaskResultResponse(state=state_to_pb(state))
    _put_result(message, result, result_bytes, is_truncated)
    return message


def task_status_from_pb(answer: worker_pb2.GetTaskResultResponse) -> tuple[TaskState, TaskResult | None]:
    """A task's state and, once it ended, its result (`answer.is_truncated` tells whether it is all there)."""
    state = state_from_pb(answer.state) or TaskState.RUNNING
    return state, task_result_from_pb(answer.result) if answer.HasField("result") else None


def _put_result(
    message: worker_pb2.TaskUpdate | worker_pb2.GetTaskResultResponse,
    result: TaskResult | None,
    result_bytes: int,
    is_truncated: bool,
) -> None:
    if result is None:
        return
    if not is_truncated:
        result, result_bytes, is_truncated = with_inline_bound(result)
    message.result.CopyFrom(task_result_to_pb(result))
    message.result_bytes = result_bytes
    message.is_truncated = is_truncated


# --------------------------------------------------------------------------------------------------------------------
# Results


def task_result_to_pb(result: TaskResult) -> worker_pb2.TaskResult:
    """Long texts are shortened, read blocks cut to the first 1 000 (and flagged); plugin results stay whole."""
    blocks = result.read_blocks[:MAX_READ_BLOCKS]
    return worker_pb2.TaskResult(
        success=result.success,
        execute_result=worker_pb2.ExecuteResult(
            failure_code="" if result.failure_code is None else result.failure_code.value,
            retryable=result.retryable,
            plugin_results=[_plugin_result_to_pb(plugin) for plugin in result.plugin_results],
            failure_message=_head(result.failure_message),
            failed_call=None if result.failed_call is None else _failed_call_to_pb(result.failed_call),
            receipt=_receipt_to_pb(result.receipt),
            read_blocks=[worker_pb2.BlockRef(chain_id=chain_id, block_id=block_id) for chain_id, block_id in blocks],
            is_read_blocks_truncated=result.read_blocks_truncated or len(blocks) < len(result.read_blocks),
            code_epoch=result.code_epoch,
        ),
    )


def task_result_from_pb(result: worker_pb2.TaskResult) -> TaskResult:
    """`success` tells the state. A failure code unknown here becomes None, and the message begins with its name."""
    inner = result.execute_result
    failure_code, message = _failure_from_pb(inner.failure_code, inner.failure_message)
    return TaskResult(
        state=TaskState.SUCCEEDED if result.success else TaskState.FAILED,
        failure_code=failure_code,
        failure_message=message,
        retryable=inner.retryable,
        plugin_results=tuple(_plugin_result_from_pb(plugin) for plugin in inner.plugin_results),
        failed_call=_failed_call_from_pb(inner.failed_call) if inner.HasField("failed_call") else None,
        receipt=_receipt_from_pb(inner.receipt),
        read_blocks=tuple((block.chain_id, block.block_id) for block in inner.read_blocks),
        read_blocks_truncated=inner.is_read_blocks_truncated,
        code_epoch=inner.code_epoch,
    )


def _failure_from_pb(code: str, message: str) -> tuple[FailureCode | None, str]:
    if not code:
        return None, message
    if code in FailureCode.__members__:
        return FailureCode[code], message
    return None, f"{code}: {message}"


def _plugin_result_to_pb(plugin: PluginResult) -> worker_pb2.PluginResult:
    return worker_pb2.PluginResult(
        plugin_name=plugin.plugin_name,
        success=plugin.success,
        failure_code=_head(plugin.failure_code),
        result=plugin.result,
    )


def _plugin_result_from_pb(plugin: worker_pb2.PluginResult) -> PluginResult:
    return PluginResult(plugin.plugin_name, plugin.success, plugin.failure_code, plugin.result)


def _failed_call_to_pb(call: FailedCall) -> worker_pb2.FailedCall:
    return worker_pb2.FailedCall(
        index=call.index,
        function=_head(call.function),
        arguments=_head(call.arguments),
        attempts=call.attempts,
        code=call.code.value,
        error_type=_head(call.error_type),
        message=_head(call.message),
        traceback=_tail(call.traceback),
    )


def _failed_call_from_pb(call: worker_pb2.FailedCall) -> FailedCall:
    known = call.code in CallErrorCode.__members__
    return FailedCall(
        index=call.index,
        function=call.function,
        arguments=call.arguments,
        attempts=call.attempts,
        code=CallErrorCode[call.code] if known else CallErrorCode.EXCEPTION,
        error_type=call.error_type,
        message=call.message if known else f"{call.code}: {call.message}",
        traceback=call.traceback,
    )


def _receipt_to_pb(receipt: Receipt) -> worker_pb2.Receipt:
    return worker_pb2.Receipt(**asdict(receipt))


def _receipt_from_pb(receipt: worker_pb2.Receipt) -> Receipt:
    return Receipt(**{each.name: getattr(receipt, each.name) for each in fields(Receipt)})


def _head(text: str) -> str:
    """The beginning of a text. Lone surrogates, which user code may put there but no message can hold, are escaped."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_MESSAGE_BYTES:
        return data.decode()
    mark = "…"
    return data[: MAX_MESSAGE_BYTES - len(mark.encode())].decode("utf-8", "ignore") + mark


def _tail(text: str) -> str:
    """The end of a traceback: that is where the error stands."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_TRACEBACK_BYTES:
        return data.decode()
    mark = "…"
    return mark + data[len(data) - MAX_TRACEBACK_BYTES + len(mark.encode()) :].decode("utf-8", "ignore")
