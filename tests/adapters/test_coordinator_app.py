from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from blockx.client import Client
from blockx.config import describe, load
from blockx.coordinator.app import CoordinatorConfig, CoordinatorHandle, run_coordinator
from blockx.errors import ConfigError, Unavailable
from blockx.model import TaskId, TaskState
from blockx.registry.local import LocalRegistry
from blockx.registry.port import Beat, Registration, RegistryEvent, ViewReset
from blockx.rpc import RpcServer
from tests.adapters.fake_worker import FakeWorker
from tests.adapters.test_coordinator_view import BEAT

ANY_PORT = CoordinatorConfig(listen="127.0.0.1:0")


async def started(nursery: trio.Nursery, registry: LocalRegistry) -> CoordinatorHandle:
    handle = await nursery.start(run_coordinator, ANY_PORT, registry)
    assert isinstance(handle, CoordinatorHandle)
    return handle


async def test_a_coordinator_finds_a_registered_worker_over_tcp(nursery: trio.Nursery) -> None:
    registry, worker = LocalRegistry(), FakeWorker("")
    server = RpcServer([worker.service()])
    worker.addr = await nursery.start(server.serve, "127.0.0.1", 0)
    handle = await started(nursery, registry)
    async with registry.register(evolve(BEAT, addr=worker.addr)):
        async with Client(coordinators=[handle.addr]) as client:
            await trio.testing.wait_all_tasks_blocked()
            reservation = await client.reserve(TaskId("t"))
    assert (reservation.worker_addr, reservation.state) == (worker.addr, TaskState.ALLOCATED)
    nursery.cancel_scope.cancel()


async def test_its_status_shows_the_workers(nursery: trio.Nursery) -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT):
        handle = await started(nursery, registry)
        (worker,) = handle.status().workers
    assert (worker.worker_id, worker.free, worker.why_not) == ("w", 5, "")
    nursery.cancel_scope.cancel()


@define(eq=False)
class ForgetfulRegistry:
    """Shows a worker, is lost, and comes back without it."""

    views: list[tuple[Beat, ...]] = field(factory=lambda: [(BEAT,), ()])

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[RegistryEvent]]:
        yield self._view(self.views.pop(0))

    async def _view(self, beats: tuple[Beat, ...]) -> AsyncIterator[RegistryEvent]:
        yield ViewReset(beats)
        if not self.views:
            await trio.sleep_forever()

    def register(self, first: Beat) -> AbstractAsyncContextManager[Registration]:
        raise NotImplementedError


async def test_a_worker_that_nobody_confirms_is_forgotten_after_a_lease_ttl(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    handle = await nursery.start(run_coordinator, ANY_PORT, ForgetfulRegistry())
    await trio.sleep(10)
    assert [worker.is_confirmed for worker in handle.status().workers] == [False]
    await trio.sleep(10)
    assert handle.status().workers == ()
    nursery.cancel_scope.cancel()


async def test_shutdown_ends_it_and_frees_the_port() -> None:
    async with trio.open_nursery() as nursery:
        handle = await started(nursery, LocalRegistry())
        handle.shutdown()
    async with Client(coordinators=[handle.addr]) as client:
        with pytest.raises(Unavailable, match="no coordinator answers"):
            await client.reserve(TaskId("t"))


async def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = CoordinatorConfig(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            await run_coordinator(config, LocalRegistry())


def test_a_bad_listen_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nowhere' is no HOST:PORT"):
        CoordinatorConfig(listen="nowhere")


def test_settings_have_the_documented_variables() -> None:
    assert {setting.env: setting.default for setting in describe(CoordinatorConfig)} == {
        "COORDINATOR_LISTEN": "127.0.0.1:7070",
        "COORDINATOR_SLOT_TTL_MS": 5_000,
        "COORDINATOR_RPC_TIMEOUT_MS": 500,
        "COORDINATOR_MAX_CANDIDATES": 5,
        "COORDINATOR_UNCERTAIN_RETRIES": 2,
        "COORDINATOR_HEARTBEAT_TIMEOUT_MS": 10_000,
        "REGISTRY_STALE_MS": 300_000,
        "REGISTRY_LEASE_TTL_MS": 15_000,
        "BLOCKX_TLS_CERT": "",
        "BLOCKX_TLS_KEY": "",
        "BLOCKX_TLS_CA": "",
        "BLOCKX_TOKEN_FILE": "",
        "BLOCKX_ADMIN_TOKEN_FILE": "",
        "BLOCKX_INSECURE": False,
        "BLOCKX_WORKER_TLS_CA": "",
        "BLOCKX_WORKER_TLS_CERT": "",
        "BLOCKX_WORKER_TLS_KEY": "",
        "BLOCKX_WORKER_TOKEN_FILE": "",
    }


def test_every_setting_is_documented() -> None:
    assert [setting.name for setting in describe(CoordinatorConfig) if not setting.doc] == []


def test_settings_come_from_the_environment() -> None:
    config = load(
        CoordinatorConfig, file={}, environ={"COORDINATOR_SLOT_TTL_MS": "9000"}, flags={}, section="coordinator"
    )
    assert config.settings.slot_ttl_ms == 9_000
