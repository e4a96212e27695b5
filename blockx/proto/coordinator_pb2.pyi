from blockx.proto import worker_pb2 as _worker_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
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
