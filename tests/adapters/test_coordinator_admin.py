"""What operators see of a coordinator, over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from attrs import define, evolve
from trio.testing import MockClock

from blockx.admin import MAX_LIST_BYTES
from blockx.coordinator.admin import coordinator_admin_service
from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import (
    BeatSeen,
    CoordinatorSettings,
    Event,
    RegistryLost,
    WorkerBeat,
    WorkersListed,
    WorkerState,
)
from blockx.driver import now_ms
from blockx.errors import InvalidArgument
from blockx.proto import coordinator_pb2 as pb
from blockx.proto import worker_pb2
from blockx.rpc import Channel
from tests.adapters.network import Network

METHODS = pb.DESCRIPTOR.services_by_name["CoordinatorAdminService"].methods_by_name
BEAT = WorkerBeat(
    worker_id="a",
    addr="a:1",
    instance="i",
    seq=1,
    slots=8,
    used=3,
    dispatch_age_ms=5,
    executors=2,
    code_epoch=4,
    version="0.1.0",
)


@define(eq=False)
class Operator:
    """One who asks a coordinator over gRPC."""

    core: CoordinatorCore
    ended: trio.Event
    channel: Channel

    def hears(self, event: Event) -> None:
        self.core.handle(event, now_ms())

    async def workers(self) -> pb.WorkerList:
        answer = await self.channel.unary(METHODS["ListWorkers"], pb.ListWorkersRequest())
        assert isinstance(answer, pb.WorkerList)
        return answer

    def watch(self, interval_ms: int = 0) -> Any:
        return self.channel.stream(METHODS["WatchWorkers"], pb.WatchWorkersRequest(interval_ms=interval_ms))


@pytest.fixture
async def operator(mock_clock: MockClock, nursery: trio.Nursery) -> AsyncIterator[Operator]:
    network, core, ended = Network(nursery), CoordinatorCore(CoordinatorSettings()), trio.Event()
    network.serve("c:1", coordinator_admin_service(core, ended))
    channel = network.channel("c:1")
    nursery.start_soon(channel.run)
    yield Operator(core, ended, channel)
    nursery.cancel_scope.cancel()


async def test_without_workers_the_list_is_empty(operator: Operator) -> None:
    assert await operator.workers() == pb.WorkerList()


async def test_workers_are_listed_by_id_with_what_is_known_of_them(operator: Operator, mock_clock: MockClock) -> None:
    other = evolve(BEAT, worker_id="b", addr="b:1", state=WorkerState.DRAINING)
    operator.hears(WorkersListed((other, BEAT)))
    mock_clock.jump(2)
    row = pb.ListedWorker(
        worker_id="a",
        addr="a:1",
        state=worker_pb2.WORKER_STATE_READY,
        slots=8,
        free_slots=5,
        beat_age_ms=2_000,
        is_confirmed=True,
        dispatch_age_ms=5,
        executors=2,
        code_epoch=4,
        version="0.1.0",
    )
    draining = pb.ListedWorker()
    draining.CopyFrom(row)
    draining.worker_id, draining.addr, draining.why_not = "b", "b:1", "draining"
    draining.state = worker_pb2.WORKER_STATE_DRAINING
    assert await operator.workers() == pb.WorkerList(workers=[row, draining])


async def test_a_worker_that_starts_is_listed_as_such(operator: Operator) -> None:
    operator.hears(BeatSeen(evolve(BEAT, state=WorkerState.STARTING, accepting=False)))
    (worker,) = (await operator.workers()).workers
    assert (worker.state, worker.why_not) == (worker_pb2.WORKER_STATE_STARTING, "starting")


async def test_a_lost_registry_and_unconfirmed_workers_show(operator: Operator) -> None:
    operator.hears(WorkersListed((BEAT,)))
    operator.hears(RegistryLost())
    lost = await operator.workers()
    assert (lost.is_registry_lost, lost.workers[0].is_confirmed) == (True, True)
    operator.hears(WorkersListed(()))
    back = await operator.workers()
    assert (back.is_registry_lost, back.workers[0].is_confirmed) == (False, False)


async def test_more_workers_than_fit_one_message_are_cut_off_and_that_is_said(operator: Operator) -> None:
    for number in range(4):
        operator.hears(BeatSeen(evolve(BEAT, worker_id=f"{number}" * (MAX_LIST_BYTES // 3))))
    answer = await operator.workers()
    assert [worker.worker_id[0] for worker in answer.workers] == ["0", "1"]
    assert answer.is_truncated
    assert answer.ByteSize() < 4 * 1024 * 1024


async def test_a_watch_sends_the_workers_now_and_after_each_interval(operator: Operator, mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    async with operator.watch(250) as lists:
        assert await anext(lists) == pb.WorkerList()
        operator.hears(WorkersListed((BEAT,)))
        seen = [(await anext(lists)).workers[0] for _ in range(2)]
    assert [worker.beat_age_ms for worker in seen] == [250, 500]


async def test_a_watch_ends_with_the_coordinator(operator: Operator) -> None:
    async with operator.watch() as lists:
        await anext(lists)
        operator.ended.set()
        assert [each async for each in lists] == []


@pytest.mark.parametrize("interval_ms", [-1, 99, 60_001])
async def test_an_interval_out_of_bounds_is_an_invalid_argument(operator: Operator, interval_ms: int) -> None:
    async with operator.watch(interval_ms) as lists:
        with pytest.raises(InvalidArgument, match=f"interval_ms must be from 100 to 60000.*not {interval_ms}"):
            await anext(lists)
