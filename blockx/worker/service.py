"""WorkerService: what clients and coordinators may ask of a worker. Translates; decides nothing."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from blockx import api
from blockx.errors import InvalidArgument, NotFound
from blockx.model import Reservation, SlotId, Submission, TaskId, TaskUpdate
from blockx.proto import worker_pb2 as pb
from blockx.rpc import ServerCall, Service
from blockx.worker.control import Control
from blockx.worker.core import events as ev
from blockx.worker.core.payload import check_payload
from blockx.worker.watches import Subscription

log = structlog.get_logger("blockx.worker.service")

MAX_WATCHED_IDS = 10_000


def worker_service(control: Control) -> Service:
    """The gRPC service over one worker."""
    handlers = _Handlers(control)
    return Service(
        pb.DESCRIPTOR.services_by_name["WorkerService"],
        {
            "RequestTaskSlot": handlers.request_task_slot,
            "SubmitTask": handlers.submit_task,
            "GetTaskResult": handlers.get_task_result,
            "WatchTasks": handlers.watch_tasks,
            "ReadTaskResult": handlers.read_task_result,
        },
    )


class _Handlers:
    def __init__(self, control: Control) -> None:
        self._control = control

    async def request_task_slot(
        self, request: pb.RequestTaskSlotRequest, call: ServerCall
    ) -> pb.RequestTaskSlotResponse:
        task_id = TaskId(request.task_id)
        now = self._control.worker.feed(ev.SlotRequested(task_id, request.ttl_ms, _fresh_slot_id()))
        view = self._control.core.task(task_id, now)
        assert view is not None, "a granted request leaves a lease, a task or a result"
        addr = self._control.addr
        return api.slot_to_pb(Reservation(addr, view.slot_id, view.state, view.lease_remaining_ms))

    async def submit_task(self, request: pb.SubmitTaskRequest, call: ServerCall) -> pb.SubmitTaskResponse:
        if not request.HasField("task"):
            raise InvalidArgument("the request has no task")
        task = api.task_input_from_pb(request.task)
        digest = check_payload(task)
        now = self._control.submit(
            task,
            ev.TaskSubmitted(
                task_id=task.task_id,
                timeout_ms=task.task_timeout_ms,
                payload_digest=digest,
                slot_id=SlotId(request.slot_id) if request.slot_id else None,
                fresh_slot_id=_fresh_slot_id(),
            ),
        )
        mismatch = self._control.core.payload_mismatch(task.task_id, digest)
        if mismatch:
            log.warning("a known task was submitted with another payload, which was ignored", task_id=task.task_id)
        view = self._control.core.task(task.task_id, now)
        assert view is not None, "an accepted task is known"
        return api.submission_to_pb(Submission(self._control.addr, view.state, mismatch))

    async def get_task_result(self, request: pb.GetTaskResultRequest, call: ServerCall) -> pb.GetTaskResultResponse:
        task_id = TaskId(request.task_id)
        update = self._control.update(task_id)
        if update.state is None:
            raise NotFound(f"task {task_id!r} is not known here, or its result is no longer kept")
        self._note_delivery(update)
        return api.task_status_to_pb(
            update.state, update.result, result_bytes=update.result_bytes, is_truncated=update.is_truncated
        )

    async def watch_tasks(
        self, request: pb.WatchTasksRequest, call: ServerCall, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        ids = [TaskId(task_id) for task_id in dict.fromkeys(request.task_ids)]
        if len(ids) > MAX_WATCHED_IDS:
            raise InvalidArgument(f"{len(ids)} task ids in one watch; at most {MAX_WATCHED_IDS} are allowed")
        subscription = Subscription()
        try:
            for update in [self._snapshot(subscription, task_id) for task_id in ids]:
                await self._deliver(update, send)
            while (terminal := await subscription.next()) is not None:
                await self._deliver(terminal, send)
        finally:
            self._control.watches.detach_all(subscription)

    async def read_task_result(
        self, request: pb.ReadTaskResultRequest, call: ServerCall, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        async def send_chunk(chunk: bytes) -> None:
            await send(pb.ReadTaskResultChunk(chunk=chunk))

        task_id = TaskId(request.task_id)
        await self._control.results.copy(task_id, request.plugin_index, send_chunk)
        if self._control.results.is_last(task_id, request.plugin_index):
            self._control.worker.feed(ev.ResultDelivered(task_id))

    def _snapshot(self, subscription: Subscription, task_id: TaskId) -> TaskUpdate:
        """The present state; what still runs is watched from here on."""
        update = self._control.update(task_id)
        if not update.is_terminal:
            self._control.watches.attach(subscription, task_id)
        return update

    async def _deliver(self, update: TaskUpdate, send: Callable[[Any], Awaitable[None]]) -> None:
        await send(api.task_update_to_pb(update))
        self._note_delivery(update)

    def _note_delivery(self, update: TaskUpdate) -> None:
        """A result counts as delivered when it went out whole; a truncated one when its body was read."""
        if update.result is not None and not update.is_truncated:
            self._control.worker.feed(ev.ResultDelivered(update.task_id))


def _fresh_slot_id() -> SlotId:
    return SlotId(secrets.token_urlsafe(18))
