"""CoordinatorAdminService: what operators may ask of a coordinator. Translates; decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, cast

import trio

from blockx.admin import fitting, stream_snapshots
from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import WorkerStatus
from blockx.driver import now_ms
from blockx.proto import coordinator_pb2 as pb
from blockx.proto import worker_pb2
from blockx.rpc import ServerCall, Service


def coordinator_admin_service(core: CoordinatorCore, ended: trio.Event) -> Service:
    """The gRPC service for operators over one coordinator; its watches end when `ended` is set."""

    async def list_workers(request: pb.ListWorkersRequest, call: ServerCall) -> pb.WorkerList:
        return worker_list(core)

    async def watch_workers(
        request: pb.WatchWorkersRequest, call: ServerCall, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        await stream_snapshots(request.interval_ms, lambda: worker_list(core), send, ended)

    return Service(
        pb.DESCRIPTOR.services_by_name["CoordinatorAdminService"],
        {"ListWorkers": list_workers, "WatchWorkers": watch_workers},
    )


def worker_list(core: CoordinatorCore) -> pb.WorkerList:
    """What the coordinator knows of the workers now, by worker id."""
    status = core.status(now_ms())
    rows = [_row(worker) for worker in sorted(status.workers, key=attrgetter("worker_id"))]
    listed = fitting(rows)
    return pb.WorkerList(workers=listed, is_registry_lost=status.is_registry_lost, is_truncated=len(listed) < len(rows))


def _row(worker: WorkerStatus) -> pb.ListedWorker:
    state = worker_pb2.WorkerState.Value(f"WORKER_STATE_{worker.state.value}")
    return pb.ListedWorker(
        worker_id=worker.worker_id,
        addr=worker.addr,
        state=cast("worker_pb2.WorkerState", state),  # the stubs call every enum value a plain int
        why_not=worker.why_not,
        slots=worker.slots,
        free_slots=worker.free,
        beat_age_ms=worker.beat_age_ms,
        is_confirmed=worker.is_confirmed,
        dispatch_age_ms=worker.dispatch_age_ms,
        executors=worker.executors,
        code_epoch=worker.code_epoch,
        version=worker.version,
    )
