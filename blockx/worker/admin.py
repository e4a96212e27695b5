"""WorkerAdminService: what operators may ask of a worker. Translates; decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from blockx.admin import stream_snapshots
from blockx.errors import InvalidArgument
from blockx.proto import worker_pb2 as pb
from blockx.rpc import ServerCall, Service
from blockx.worker.control import Control
from blockx.worker.status import list_tasks, phase_from_pb, worker_status

log = structlog.get_logger("blockx.worker.admin")

DEFAULT_LISTED_TASKS = 1_000
MAX_LISTED_TASKS = 5_000


def worker_admin_service(control: Control) -> Service:
    """The gRPC service for operators over one worker."""
    handlers = _Handlers(control)
    return Service(
        pb.DESCRIPTOR.services_by_name["WorkerAdminService"],
        {
            "GetStatus": handlers.get_status,
            "WatchStatus": handlers.watch_status,
            "ListTasks": handlers.list_tasks,
            "Drain": handlers.drain,
        },
    )


class _Handlers:
    def __init__(self, control: Control) -> None:
        self._control = control

    async def get_status(self, request: pb.GetStatusRequest, call: ServerCall) -> pb.WorkerStatus:
        return worker_status(self._control)

    async def watch_status(
        self, request: pb.WatchStatusRequest, call: ServerCall, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        snapshot = partial(worker_status, self._control)
        await stream_snapshots(request.interval_ms, snapshot, send, self._control.finished)

    async def list_tasks(self, request: pb.ListTasksRequest, call: ServerCall) -> pb.ListTasksResponse:
        return list_tasks(self._control, phase_from_pb(request.phase), _checked_limit(request.limit))

    async def drain(self, request: pb.DrainRequest, call: ServerCall) -> pb.DrainResponse:
        if request.timeout_ms < 0:
            raise InvalidArgument(f"timeout_ms must be positive, or 0 for the worker's own; not {request.timeout_ms}")
        log.info("drain requested", peer=call.peer, timeout_ms=request.timeout_ms or None)
        self._control.drain(request.timeout_ms or None)
        return pb.DrainResponse(running_tasks=self._control.core.running_tasks)


def _checked_limit(limit: int) -> int:
    if limit == 0:
        return DEFAULT_LISTED_TASKS
    if not 0 < limit <= MAX_LISTED_TASKS:
        raise InvalidArgument(
            f"limit must be from 1 to {MAX_LISTED_TASKS}, or 0 for {DEFAULT_LISTED_TASKS}; not {limit}"
        )
    return limit
