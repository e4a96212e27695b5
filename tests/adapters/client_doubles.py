"""A client's world in memory: fake workers and fake coordinators on one network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field

from blockx import api
from blockx.client import Client
from blockx.errors import NoSlot, RequestError, Unavailable
from blockx.model import PluginConfig, Reservation, TaskId, TaskInput, TaskState
from blockx.proto import coordinator_pb2
from blockx.rpc import ServerCall, Service
from tests.adapters.fake_worker import FakeWorker
from tests.adapters.network import Host, Network


def task(task_id: str) -> TaskInput:
    return TaskInput(function_call_config=PluginConfig("CallListCallConfig"), task_id=TaskId(task_id))


@define(eq=False)
class FakeCoordinator:
    """Leases from the first of its workers that is up; `refusals` are what the next reserves meet."""

    world: World
    workers: list[str]
    refusals: list[RequestError] = field(factory=list)
    reserves: list[str] = field(factory=list)

    def service(self) -> Service:
        descriptor = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"]
        return Service(descriptor, {"ReserveWorkerSlot": self._reserve_worker_slot})

    async def _reserve_worker_slot(self, request: coordinator_pb2.ReserveWorkerSlotRequest, call: ServerCall) -> Any:
        self.reserves.append(request.task_id)
        if self.refusals:
            raise self.refusals.pop(0)
        for addr in self.workers:
            if self.world.hosts[addr].is_up:
                known = self.world.workers[addr].state_of_known(TaskId(request.task_id))
                if known is not None:
                    return api.reservation_to_pb(Reservation(addr, None, known), addr)
                lease = self.world.workers[addr].lease(TaskId(request.task_id))
                return api.reservation_to_pb(Reservation(addr, lease, TaskState.ALLOCATED, 5_000), addr)
        raise Unavailable("no worker is registered")


@define(eq=False)
class World:
    """Workers at a:1 and b:1, coordinators at c:1 and d:1 that prefer a:1, all of them on one network."""

    network: Network
    workers: dict[str, FakeWorker] = field(factory=dict)
    coordinators: dict[str, FakeCoordinator] = field(factory=dict)
    hosts: dict[str, Host] = field(factory=dict)

    @property
    def a(self) -> FakeWorker:
        return self.workers["a:1"]

    @property
    def b(self) -> FakeWorker:
        return self.workers["b:1"]

    @property
    def c(self) -> FakeCoordinator:
        return self.coordinators["c:1"]

    @property
    def d(self) -> FakeCoordinator:
        return self.coordinators["d:1"]

    @asynccontextmanager
    async def client(self, *coordinators: str, workers: tuple[str, ...] = ()) -> AsyncIterator[Client]:
        """Of the coordinators given, of c:1 if neither coordinators nor workers are; jitter makes no difference."""
        if not coordinators and not workers:
            coordinators = ("c:1",)
        client = Client(coordinators, workers, jitter=lambda: 0.5, channel=self.network.channel)
        async with client:
            yield client


def make_world(nursery: trio.Nursery) -> World:
    world = World(Network(nursery))
    for addr in ("a:1", "b:1"):
        worker = world.workers[addr] = FakeWorker(addr)
        world.hosts[addr] = world.network.serve(addr, worker.service())
    for addr in ("c:1", "d:1"):
        coordinator = world.coordinators[addr] = FakeCoordinator(world, ["a:1", "b:1"])
        world.hosts[addr] = world.network.serve(addr, coordinator.service())
    return world


FULL = NoSlot("every slot is taken", retry_after_ms=50)
