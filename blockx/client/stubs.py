"""One method a remote call: model values in, model values out, `timeout` seconds each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

from blockx import api
from blockx.model import Reservation, SlotId, Submission, TaskId, TaskInput, TaskResult, TaskState, TaskUpdate
from blockx.proto import coordinator_pb2, worker_pb2
from blockx.rpc import Channel

_COORDINATOR = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"].methods_by_name
_WORKER = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].methods_by_name


@frozen
class TaskStatus:
    """What a worker knows of a task. `is_truncated`: the bodies of the plugin results have to be read one by one."""

    state: TaskState
    result: TaskResult | None
    is_truncated: bool


@frozen
class CoordinatorStub:
    _channel: Channel
    _timeout: float

    async def reserve(self, task_id: TaskId) -> Reservation:
        request = coordinator_pb2.ReserveWorkerSlotRequest(task_id=task_id)
        return api.reservation_from_pb(
            await self._channel.unary(_COORDINATOR["ReserveWorkerSlot"], request, timeout=self._timeout)
        )


@frozen
class WorkerStub:
    addr: str
    _channel: Channel
    _timeout: float

    async def request_slot(self, task_id: TaskId, ttl_ms: int) -> Reservation:
        request = worker_pb2.RequestTaskSlotRequest(task_id=task_id, ttl_ms=ttl_ms)
        return api.slot_from_pb(self.addr, await self._unary("RequestTaskSlot", request))

    async def submit(self, task: TaskInput, slot_id: SlotId | None) -> Submission:
        request = worker_pb2.SubmitTaskRequest(task=api.task_input_to_pb(task), slot_id=slot_id or "")
        return api.submission_from_pb(self.addr, await self._unary("SubmitTask", request))

    async def status(self, task_id: TaskId) -> TaskStatus:
        answer = await self._unary("GetTaskResult", worker_pb2.GetTaskResultRequest(task_id=task_id))
        state, result = api.task_status_from_pb(answer)
        return TaskStatus(state, result, answer.is_truncated)

    async def read_plugin_result(self, task_id: TaskId, plugin_index: int) -> bytes:
        request = worker_pb2.ReadTaskResultRequest(task_id=task_id, plugin_index=plugin_index)
        async with self._channel.stream(_WORKER["ReadTaskResult"], request) as chunks:
            return b"".join([message.chunk async for message in chunks])

    @asynccontextmanager
    async def watch(self, task_ids: Sequence[TaskId]) -> AsyncIterator[AsyncIterator[TaskUpdate]]:
        request = worker_pb2.WatchTasksRequest(task_ids=task_ids)
        async with self._channel.stream(_WORKER["WatchTasks"], request) as messages:
            yield _Updates(messages)

    async def _unary(self, method: str, request: Any) -> Any:
        return await self._channel.unary(_WORKER[method], request, timeout=self._timeout)


@frozen
class _Updates:
    """No generator, so that leaving it half read leaves nothing behind."""

    _messages: AsyncIterator[Any]

    def __aiter__(self) -> _Updates:
        return self

    async def __anext__(self) -> TaskUpdate:
        return api.task_update_from_pb(await anext(self._messages))
