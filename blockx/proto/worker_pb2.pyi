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
TASK_STATE_UNSPECIFIED: TaskState
ALLOCATED: TaskState
RUNNING: TaskState
SUCCEEDED: TaskState
FAILED: TaskState

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
