"""Health, asked by grpcio's own stubs and by our channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from google.protobuf.descriptor import MethodDescriptor

from blockx import errors
from blockx.proto import health_pb2 as pb
from blockx.rpc import RpcServer, open_channel
from blockx.rpc.health import WHOLE_SERVER, Health
from tests.contract.grpcio import grpc, in_thread

from grpc_health.v1 import health_pb2, health_pb2_grpc  # isort: skip  # after the settings that grpcio needs

T = TypeVar("T")
NAME = "blockx.worker.v1.WorkerService"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = (
    pb.HealthCheckResponse.SERVING,
    pb.HealthCheckResponse.NOT_SERVING,
    pb.HealthCheckResponse.SERVICE_UNKNOWN,
)


def method(name: str) -> MethodDescriptor:
    return pb.DESCRIPTOR.services_by_name["Health"].methods_by_name[name]


async def serve(nursery: trio.Nursery, health: Health) -> str:
    address: str = await nursery.start(RpcServer([health.service]).serve, "127.0.0.1", 0)
    return address


async def ask(address: str, question: Callable[[Any], T]) -> T:
    """What a stock client's stub answers."""

    def client() -> T:
        with grpc.insecure_channel(address) as channel:
            return question(health_pb2_grpc.HealthStub(channel))

    return await in_thread(client)


async def check(address: str, name: str) -> int:
    request = health_pb2.HealthCheckRequest(service=name)
    return await ask(address, lambda stub: int(stub.Check(request, timeout=10).status))


async def test_nothing_serves_until_it_is_said_so(nursery: trio.Nursery) -> None:
    health = Health([NAME])
    address = await serve(nursery, health)
    assert [await check(address, name) for name in (WHOLE_SERVER, NAME)] == [NOT_SERVING, NOT_SERVING]
    health.set(NAME, True)
    assert [await check(address, name) for name in (WHOLE_SERVER, NAME)] == [NOT_SERVING, SERVING]
    health.set_all(True)
    health.set(NAME, False)
    assert [await check(address, name) for name in (WHOLE_SERVER, NAME)] == [SERVING, NOT_SERVING]
    health.set(NAME, True)
    health.end()
    assert [await check(address, name) for name in (WHOLE_SERVER, NAME)] == [NOT_SERVING, NOT_SERVING]


async def test_all_services_are_listed(nursery: trio.Nursery) -> None:
    health = Health([NAME, "other"])
    health.set(NAME, True)
    answer = await ask(await serve(nursery, health), lambda stub: stub.List(health_pb2.HealthListRequest(), timeout=10))
    assert {name: status.status for name, status in answer.statuses.items()} == {
        WHOLE_SERVER: NOT_SERVING,
        NAME: SERVING,
        "other": NOT_SERVING,
    }


async def test_a_service_that_there_is_not_is_not_found(nursery: trio.Nursery) -> None:
    health = Health([NAME])
    with pytest.raises(KeyError):
        health.set("nothing", True)
    address = await serve(nursery, health)

    def client() -> Any:
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=10)
        return caught.value.code()

    assert await in_thread(client) is grpc.StatusCode.NOT_FOUND
    async with open_channel(address) as channel:
        with pytest.raises(errors.NotFound, match="nothing"):
            await channel.unary(method("Check"), pb.HealthCheckRequest(service="nothing"))


async def test_a_watch_tells_each_change_and_ends_with_the_health(nursery: trio.Nursery) -> None:
    health = Health([NAME])
    address = await serve(nursery, health)
    token = trio.lowlevel.current_trio_token()

    def client() -> list[int]:
        with grpc.insecure_channel(address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=20)
            seen = [next(watch).status]
            for is_serving in (True, False, True):
                token.run_sync_soon(health.set, NAME, is_serving)
                seen.append(next(watch).status)
            token.run_sync_soon(health.end)
            return seen + [answer.status for answer in watch]

    assert await in_thread(client) == [NOT_SERVING, SERVING, NOT_SERVING, SERVING, NOT_SERVING]


async def test_a_watch_of_a_service_that_there_is_not_says_so_and_stays(nursery: trio.Nursery) -> None:
    health = Health([NAME])
    async with open_channel(await serve(nursery, health)) as channel:
        async with channel.stream(method("Watch"), pb.HealthCheckRequest(service="nothing")) as watch:
            assert (await anext(watch)).status == SERVICE_UNKNOWN
            health.set(NAME, True)  # none of its business
            await trio.testing.wait_all_tasks_blocked(0.01)
            health.end()
            assert [answer.status async for answer in watch] == []


async def test_a_watch_that_is_slow_gets_the_latest_status_only() -> None:
    health = Health([NAME])
    sent: list[int] = []
    may_send = trio.Semaphore(0)

    async def send(answer: Any) -> None:
        sent.append(answer.status)
        await may_send.acquire()

    watch: Any = health.service.methods["/grpc.health.v1.Health/Watch"].handler
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, pb.HealthCheckRequest(service=NAME), None, send)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(1000):
            health.set(NAME, True)
            health.set(NAME, False)
        health.set(NAME, True)
        may_send.release()
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [NOT_SERVING, SERVING]
        health.set(NAME, False)
        health.set(NAME, True)
        may_send.release()
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [NOT_SERVING, SERVING]  # nothing new to be told
        nursery.cancel_scope.cancel()
