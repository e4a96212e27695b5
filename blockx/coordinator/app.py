"""Composes one coordinator: core, view of the registry, channels to workers, gRPC service."""

from __future__ import annotations

import structlog
import trio
from attrs import define, field, frozen

from blockx.config import host_and_port
from blockx.coordinator.admin import coordinator_admin_service
from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import CoordinatorSettings, CoordinatorStatus, Event
from blockx.coordinator.service import Reserver, coordinator_service
from blockx.coordinator.view import follow
from blockx.driver import now_ms
from blockx.registry.port import Registry
from blockx.rpc.health import Health
from blockx.rpc.pool import ChannelPool
from blockx.rpc.security import ServerSecurity, WorkerAccess

log = structlog.get_logger("blockx.coordinator")


@frozen(kw_only=True)
class CoordinatorConfig:
    """All settings of a coordinator process."""

    listen: str = field(default="127.0.0.1:7070", metadata={"env": "COORDINATOR_LISTEN"})
    """HOST:PORT to serve gRPC on; port 0 takes any free one."""
    security: ServerSecurity = field(factory=ServerSecurity)
    workers: WorkerAccess = field(factory=WorkerAccess)
    settings: CoordinatorSettings = field(factory=CoordinatorSettings)

    def __attrs_post_init__(self) -> None:
        self.security.check(self.listen)


@define(eq=False)
class CoordinatorHandle:
    """A running coordinator."""

    addr: str
    _core: CoordinatorCore
    _stopping: trio.Event
    _changed: trio.lowlevel.ParkingLot
    ended: trio.Event = field(factory=trio.Event)

    def status(self) -> CoordinatorStatus:
        """What it knows of the workers now."""
        return self._core.status(now_ms())

    async def wait_routable(self, workers: int) -> None:
        """Wait until at least so many workers can be given tasks."""
        while sum(not worker.why_not for worker in self.status().workers) < workers:
            await self._changed.park()

    def shutdown(self) -> None:
        """Accept nothing more, let the reserves under way finish, end."""
        self._stopping.set()


async def run_coordinator(
    config: CoordinatorConfig,
    registry: Registry,
    *,
    task_status: trio.TaskStatus[CoordinatorHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until shut down (or cancelled); started once the port is open and the registry's view is known.

    Raises OSError if the port cannot be had, ConfigError for files of keys and tokens that cannot be used.
    """
    open_worker = config.workers.opener()
    core = CoordinatorCore(config.settings)
    stopping, changed = trio.Event(), trio.lowlevel.ParkingLot()

    def feed(event: Event) -> None:
        reserver.driver.feed(event)
        changed.unpark_all()

    async with trio.open_nursery() as nursery:
        reserver = Reserver(core, ChannelPool(nursery, open_worker))
        await nursery.start(follow, registry, feed)
        nursery.start_soon(reserver.driver.run_timers)
        service, admin_service = coordinator_service(reserver), coordinator_admin_service(core, stopping)
        health = Health([service.name, admin_service.name])
        server = config.security.server(config.listen, [service, health.service], [admin_service])
        addr = await nursery.start(server.serve, *host_and_port(config.listen))
        health.set_all(True)
        log.info("coordinator serves", addr=addr)
        handle = CoordinatorHandle(addr, core, stopping, changed)
        task_status.started(handle)
        await stopping.wait()
        health.end()
        await server.shutdown(config.settings.slot_ttl_ms / 2000)  # a reserve takes half the slot TTL at most
        handle.ended.set()
        nursery.cancel_scope.cancel()
