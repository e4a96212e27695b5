from blockx.proto import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReserveWorkerSlotRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class ReserveWorkerSlotResponse(_message.Message):
    __slots__ = ("worker_addr", "slot_id", "state", "worker_id", "lease_remaining_ms")
    WORKER_ADDR_FIELD_NUMBER: _ClassVar[int]
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    worker_addr: str
    slot_id: str
    state: _worker_pb2.TaskState
    worker_id: str
    lease_remaining_ms: int
    def __init__(self, worker_addr: _Optional[str] = ..., slot_id: _Optional[str] = ..., state: _Optional[_Union[_worker_pb2.TaskState, str]] = ..., worker_id: _Optional[str] = ..., lease_remaining_ms: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchWorkersRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class WorkerList(_message.Message):
    __slots__ = ("workers", "is_registry_lost", "is_truncated")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    IS_REGISTRY_LOST_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[ListedWorker]
    is_registry_lost: bool
    is_truncated: bool
    def __init__(self, workers: _Optional[_Iterable[_Union[ListedWorker, _Mapping]]] = ..., is_registry_lost: _Optional[bool] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class ListedWorker(_message.Message):
    __slots__ = ("worker_id", "addr", "state", "why_not", "slots", "free_slots", "beat_age_ms", "is_confirmed", "dispatch_age_ms", "executors", "code_epoch", "version")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    BEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    CODE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    addr: str
    state: _worker_pb2.WorkerState
    why_not: str
    slots: int
    free_slots: int
    beat_age_ms: int
    is_confirmed: bool
    dispatch_age_ms: int
    executors: int
    code_epoch: int
    version: str
    def __init__(self, worker_id: _Optional[str] = ..., addr: _Optional[str] = ..., state: _Optional[_Union[_worker_pb2.WorkerState, str]] = ..., why_not: _Optional[str] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ..., beat_age_ms: _Optional[int] = ..., is_confirmed: _Optional[bool] = ..., dispatch_age_ms: _Optional[int] = ..., executors: _Optional[int] = ..., code_epoch: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...
