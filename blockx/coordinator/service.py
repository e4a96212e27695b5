"""CoordinatorService: asks the workers that the core names, and hands their answers back to it. Decides nothing."""

from __future__ import annotations

import itertools
import math
from typing import assert_never

from blockx import api
from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import (
    AskWorker,
    Command,
    DropConnection,
    Event,
    FinishReserve,
    RefuseReserve,
    ReserveAbandoned,
    ReserveId,
    ReserveRequested,
    Tick,
    WorkerGranted,
    WorkerRejected,
    WorkerUncertain,
    WorkerUnreached,
)
from blockx.driver import Driver
from blockx.errors import ConnectionFailed, DeadlineExceeded, NoSlot, RequestError, Unavailable
from blockx.model import TaskId
from blockx.proto import coordinator_pb2, worker_pb2
from blockx.rpc import ServerCall, Service
from blockx.rpc.pool import ChannelPool

_REQUEST_TASK_SLOT = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].methods_by_name["RequestTaskSlot"]

Step = AskWorker | FinishReserve | RefuseReserve


class Reserver:
    """Runs the reserves of one coordinator: owns its core's driver."""

    def __init__(self, core: CoordinatorCore, channels: ChannelPool) -> None:
        self.driver: Driver[Event, Command] = Driver(core, self._execute, tick=Tick())
        self._channels = channels
        self._ids = map(ReserveId, itertools.count(1))
        self._steps: dict[ReserveId, Step] = {}

    async def reserve(self, task_id: TaskId, deadline: float = math.inf) -> FinishReserve:
        """Reserve a slot until trio's `deadline`. Raises InvalidArgument, NoSlot or Unavailable."""
        reserve_id = next(self._ids)
        deadline_ms = None if deadline == math.inf else math.floor(deadline * 1000)
        self.driver.feed(ReserveRequested(reserve_id, task_id, deadline_ms))
        while True:
            match self._steps.pop(reserve_id):
                case AskWorker() as question:
                    await self._go_on(question)
                case FinishReserve() as finish:
                    return finish
                case RefuseReserve() as refusal:
                    kind = NoSlot if refusal.is_full else Unavailable
                    raise kind(refusal.message, retry_after_ms=refusal.retry_after_ms)
                case _ as never:
                    assert_never(never)

    async def _go_on(self, question: AskWorker) -> None:
        """Ask, and feed exactly one event, also when the caller goes away meanwhile."""
        event: Event = ReserveAbandoned(question.reserve_id)
        try:
            event = await self._ask(question)
        finally:
            self.driver.feed(event)

    async def _ask(self, question: AskWorker) -> Event:
        reserve_id = question.reserve_id
        request = worker_pb2.RequestTaskSlotRequest(task_id=question.task_id, ttl_ms=question.ttl_ms)
        channel = self._channels.get(question.addr)
        try:
            answer = await channel.unary(_REQUEST_TASK_SLOT, request, timeout=question.timeout_ms / 1000)
        except NoSlot as error:
            return WorkerRejected(reserve_id, str(error), is_full=True, retry_after_ms=error.retry_after_ms)
        except DeadlineExceeded:
            return WorkerUncertain(reserve_id, f"no answer from {question.addr} within {question.timeout_ms} ms")
        except ConnectionFailed as error:
            kind = WorkerUncertain if error.may_have_arrived else WorkerUnreached
            return kind(reserve_id, str(error))
        except RequestError as error:
            hint = error.retry_after_ms if isinstance(error, Unavailable) else None
            return WorkerRejected(reserve_id, str(error), is_full=False, retry_after_ms=hint)
        return WorkerGranted(reserve_id, api.slot_from_pb(question.addr, answer))

    def _execute(self, command: Command) -> None:
        match command:
            case DropConnection(addr):
                self._channels.drop(addr)
            case AskWorker() | FinishReserve() | RefuseReserve():
                self._steps[command.reserve_id] = command
            case _:
                assert_never(command)


def coordinator_service(reserver: Reserver) -> Service:
    """The gRPC service over one coordinator."""

    async def reserve_worker_slot(
        request: coordinator_pb2.ReserveWorkerSlotRequest, call: ServerCall
    ) -> coordinator_pb2.ReserveWorkerSlotResponse:
        finish = await reserver.reserve(TaskId(request.task_id), call.deadline)
        return api.reservation_to_pb(finish.reservation, finish.worker_id)

    return Service(
        coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"],
        {"ReserveWorkerSlot": reserve_worker_slot},
    )
