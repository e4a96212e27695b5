from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    ALLOCATED: _ClassVar[TaskState]
    RUNNING: _ClassVar[TaskState]
    SUCCEEDED: _ClassVar[TaskState]
    FAILED: _ClassVar[TaskState]

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_STARTING: _ClassVar[WorkerState]
    WORKER_STATE_READY: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]

class TaskPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_PHASE_UNSPECIFIED: _ClassVar[TaskPhase]
    TASK_PHASE_PREPARING: _ClassVar[TaskPhase]
    TASK_PHASE_BUILDER: _ClassVar[TaskPhase]
    TASK_PHASE_CALLS: _ClassVar[TaskPhase]
    TASK_PHASE_PLUGIN: _ClassVar[TaskPhase]
TASK_STATE_UNSPECIFIED: TaskState
ALLOCATED: TaskState
RUNNING: TaskState
SUCCEEDED: TaskState
FAILED: TaskState
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_STARTING: WorkerState
WORKER_STATE_READY: WorkerState
WORKER_STATE_DRAINING: WorkerState
TASK_PHASE_UNSPECIFIED: TaskPhase
TASK_PHASE_PREPARING: TaskPhase
TASK_PHASE_BUILDER: TaskPhase
TASK_PHASE_CALLS: TaskPhase
TASK_PHASE_PLUGIN: TaskPhase

class PluginConfig(_message.Message):
    __slots__ = ("type", "config")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    type: str
    config: str
    def __init__(self, type: _Optional[str] = ..., config: _Optional[str] = ...) -> None: ...

class TaskInput(_message.Message):
    __slots__ = ("task_id", "function_call_config", "result_handler", "task_timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_CALL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    RESULT_HANDLER_FIELD_NUMBER: _ClassVar[int]
    TASK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    function_call_config: PluginConfig
    result_handler: PluginConfig
    task_timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., function_call_config: _Optional[_Union[PluginConfig, _Mapping]] = ..., result_handler: _Optional[_Union[PluginConfig, _Mapping]] = ..., task_timeout_ms: _Optional[int] = ...) -> None: ...

class RequestTaskSlotRequest(_message.Message):
    __slots__ = ("task_id", "ttl_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    ttl_ms: int
    def __init__(self, task_id: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RequestTaskSlotResponse(_message.Message):
    __slots__ = ("slot_id", "state", "lease_remaining_ms")
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    slot_id: str
    state: TaskState
    lease_remaining_ms: int
    def __init__(self, slot_id: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., lease_remaining_ms: _Optional[int] = ...) -> None: ...

class SubmitTaskRequest(_message.Message):
    __slots__ = ("task", "slot_id")
    TASK_FIELD_NUMBER: _ClassVar[int]
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    task: TaskInput
    slot_id: str
    def __init__(self, task: _Optional[_Union[TaskInput, _Mapping]] = ..., slot_id: _Optional[str] = ...) -> None: ...

class SubmitTaskResponse(_message.Message):
    __slots__ = ("state", "payload_mismatch")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    state: TaskState
    payload_mismatch: bool
    def __init__(self, state: _Optional[_Union[TaskState, str]] = ..., payload_mismatch: _Optional[bool] = ...) -> None: ...

class GetTaskResultRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class GetTaskResultResponse(_message.Message):
    __slots__ = ("state", "result", "result_bytes", "is_truncated")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    state: TaskState
    result: TaskResult
    result_bytes: int
    is_truncated: bool
    def __init__(self, state: _Optional[_Union[TaskState, str]] = ..., result: _Optional[_Union[TaskResult, _Mapping]] = ..., result_bytes: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class WatchTasksRequest(_message.Message):
    __slots__ = ("task_ids",)
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class TaskUpdate(_message.Message):
    __slots__ = ("task_id", "state", "is_terminal", "worker_addr", "timestamp_ms", "result", "error", "result_bytes", "is_truncated")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_TERMINAL_FIELD_NUMBER: _ClassVar[int]
    WORKER_ADDR_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    state: TaskState
    is_terminal: bool
    worker_addr: str
    timestamp_ms: int
    result: TaskResult
    error: str
    result_bytes: int
    is_truncated: bool
    def __init__(self, task_id: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., is_terminal: _Optional[bool] = ..., worker_addr: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., result: _Optional[_Union[TaskResult, _Mapping]] = ..., error: _Optional[str] = ..., result_bytes: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class TaskResult(_message.Message):
    __slots__ = ("success", "execute_result")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_RESULT_FIELD_NUMBER: _ClassVar[int]
    success: bool
    execute_result: ExecuteResult
    def __init__(self, success: _Optional[bool] = ..., execute_result: _Optional[_Union[ExecuteResult, _Mapping]] = ...) -> None: ...

class ExecuteResult(_message.Message):
    __slots__ = ("failure_code", "retryable", "plugin_results", "failure_message", "failed_call", "receipt", "read_blocks", "is_read_blocks_truncated", "code_epoch")
    FAILURE_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_RESULTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_CALL_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    READ_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    IS_READ_BLOCKS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    CODE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    failure_code: str
    retryable: bool
    plugin_results: _containers.RepeatedCompositeFieldContainer[PluginResult]
    failure_message: str
    failed_call: FailedCall
    receipt: Receipt
    read_blocks: _containers.RepeatedCompositeFieldContainer[BlockRef]
    is_read_blocks_truncated: bool
    code_epoch: int
    def __init__(self, failure_code: _Optional[str] = ..., retryable: _Optional[bool] = ..., plugin_results: _Optional[_Iterable[_Union[PluginResult, _Mapping]]] = ..., failure_message: _Optional[str] = ..., failed_call: _Optional[_Union[FailedCall, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., read_blocks: _Optional[_Iterable[_Union[BlockRef, _Mapping]]] = ..., is_read_blocks_truncated: _Optional[bool] = ..., code_epoch: _Optional[int] = ...) -> None: ...

class PluginResult(_message.Message):
    __slots__ = ("plugin_name", "success", "failure_code", "result")
    PLUGIN_NAME_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CODE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    plugin_name: str
    success: bool
    failure_code: str
    result: bytes
    def __init__(self, plugin_name: _Optional[str] = ..., success: _Optional[bool] = ..., failure_code: _Optional[str] = ..., result: _Optional[bytes] = ...) -> None: ...

class FailedCall(_message.Message):
    __slots__ = ("index", "function", "arguments", "attempts", "code", "error_type", "message", "traceback")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    index: int
    function: str
    arguments: str
    attempts: int
    code: str
    error_type: str
    message: str
    traceback: str
    def __init__(self, index: _Optional[int] = ..., function: _Optional[str] = ..., arguments: _Optional[str] = ..., attempts: _Optional[int] = ..., code: _Optional[str] = ..., error_type: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("cpu_us", "io_us", "queue_us", "reads", "cached_reads", "bytes_in", "attempts")
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    IO_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    CACHED_READS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    cpu_us: int
    io_us: int
    queue_us: int
    reads: int
    cached_reads: int
    bytes_in: int
    attempts: int
    def __init__(self, cpu_us: _Optional[int] = ..., io_us: _Optional[int] = ..., queue_us: _Optional[int] = ..., reads: _Optional[int] = ..., cached_reads: _Optional[int] = ..., bytes_in: _Optional[int] = ..., attempts: _Optional[int] = ...) -> None: ...

class BlockRef(_message.Message):
    __slots__ = ("chain_id", "block_id")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    block_id: str
    def __init__(self, chain_id: _Optional[int] = ..., block_id: _Optional[str] = ...) -> None: ...

class ReadTaskResultRequest(_message.Message):
    __slots__ = ("task_id", "plugin_index")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_INDEX_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    plugin_index: int
    def __init__(self, task_id: _Optional[str] = ..., plugin_index: _Optional[int] = ...) -> None: ...

class ReadTaskResultChunk(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    def __init__(self, chunk: _Optional[bytes] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchStatusRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "addr", "version", "uptime_ms", "state", "not_ready_reason", "slots", "phases", "executors", "code", "results", "dropped_answers", "ignored_events")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_REASON_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    IGNORED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    addr: str
    version: str
    uptime_ms: int
    state: WorkerState
    not_ready_reason: str
    slots: SlotCounts
    phases: _containers.RepeatedCompositeFieldContainer[PhaseStatus]
    executors: _containers.RepeatedCompositeFieldContainer[ExecutorStatus]
    code: CodeStatus
    results: ResultsStatus
    dropped_answers: int
    ignored_events: int
    def __init__(self, worker_id: _Optional[str] = ..., addr: _Optional[str] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., state: _Optional[_Union[WorkerState, str]] = ..., not_ready_reason: _Optional[str] = ..., slots: _Optional[_Union[SlotCounts, _Mapping]] = ..., phases: _Optional[_Iterable[_Union[PhaseStatus, _Mapping]]] = ..., executors: _Optional[_Iterable[_Union[ExecutorStatus, _Mapping]]] = ..., code: _Optional[_Union[CodeStatus, _Mapping]] = ..., results: _Optional[_Union[ResultsStatus, _Mapping]] = ..., dropped_answers: _Optional[int] = ..., ignored_events: _Optional[int] = ...) -> None: ...

class SlotCounts(_message.Message):
    __slots__ = ("total", "free", "allocated", "running")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    total: int
    free: int
    allocated: int
    running: int
    def __init__(self, total: _Optional[int] = ..., free: _Optional[int] = ..., allocated: _Optional[int] = ..., running: _Optional[int] = ...) -> None: ...

class PhaseStatus(_message.Message):
    __slots__ = ("phase", "tasks", "admitted", "waiting", "limit")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    phase: TaskPhase
    tasks: int
    admitted: int
    waiting: int
    limit: int
    def __init__(self, phase: _Optional[_Union[TaskPhase, str]] = ..., tasks: _Optional[int] = ..., admitted: _Optional[int] = ..., waiting: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ExecutorStatus(_message.Message):
    __slots__ = ("pid", "is_ready", "silent_ms", "running_calls", "waiting_calls", "backlog_bytes", "backlog_us", "rss_bytes", "loop_lag_us")
    PID_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_CALLS_FIELD_NUMBER: _ClassVar[int]
    WAITING_CALLS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_US_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_US_FIELD_NUMBER: _ClassVar[int]
    pid: int
    is_ready: bool
    silent_ms: int
    running_calls: int
    waiting_calls: int
    backlog_bytes: int
    backlog_us: int
    rss_bytes: int
    loop_lag_us: int
    def __init__(self, pid: _Optional[int] = ..., is_ready: _Optional[bool] = ..., silent_ms: _Optional[int] = ..., running_calls: _Optional[int] = ..., waiting_calls: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., backlog_us: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., loop_lag_us: _Optional[int] = ...) -> None: ...

class CodeStatus(_message.Message):
    __slots__ = ("epoch", "digest", "function_count", "functions")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    digest: str
    function_count: int
    functions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., digest: _Optional[str] = ..., function_count: _Optional[int] = ..., functions: _Optional[_Iterable[str]] = ...) -> None: ...

class ResultsStatus(_message.Message):
    __slots__ = ("kept", "spool_bytes", "spool_limit_bytes")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    SPOOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPOOL_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    kept: int
    spool_bytes: int
    spool_limit_bytes: int
    def __init__(self, kept: _Optional[int] = ..., spool_bytes: _Optional[int] = ..., spool_limit_bytes: _Optional[int] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("phase", "limit")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    phase: TaskPhase
    limit: int
    def __init__(self, phase: _Optional[_Union[TaskPhase, str]] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "matching", "is_truncated")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    matching: int
    is_truncated: bool
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., matching: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ("task_id", "phase", "is_waiting", "age_ms", "deadline_left_ms", "calls_total", "calls_done", "calls_in_flight", "call_window")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    IS_WAITING_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    CALLS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CALLS_DONE_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CALL_WINDOW_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    phase: TaskPhase
    is_waiting: bool
    age_ms: int
    deadline_left_ms: int
    calls_total: int
    calls_done: int
    calls_in_flight: int
    call_window: int
    def __init__(self, task_id: _Optional[str] = ..., phase: _Optional[_Union[TaskPhase, str]] = ..., is_waiting: _Optional[bool] = ..., age_ms: _Optional[int] = ..., deadline_left_ms: _Optional[int] = ..., calls_total: _Optional[int] = ..., calls_done: _Optional[int] = ..., calls_in_flight: _Optional[int] = ..., call_window: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("running_tasks",)
    RUNNING_TASKS_FIELD_NUMBER: _ClassVar[int]
    running_tasks: int
    def __init__(self, running_tasks: _Optional[int] = ...) -> None: ...
