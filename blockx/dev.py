"""A whole cluster in one process: coordinator, workers and a registry in memory; executors are child processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field

from blockx.coordinator.app import CoordinatorConfig, CoordinatorHandle, run_coordinator
from blockx.errors import ungrouped
from blockx.registry.local import LocalRegistry
from blockx.store.tables import TableStore, load_schema
from blockx.worker.app import WorkerConfig, WorkerHandle, run_worker

SHUTDOWN_S = 1.0
"""What the coordinator's calls and watches are given to end in good order."""


@define(eq=False)
class DevCluster:
    """A running cluster. `exit_codes` fills as workers end."""

    coordinator: CoordinatorHandle
    workers: list[WorkerHandle]
    exit_codes: list[int] = field(factory=list)
    ended: trio.Event = field(factory=trio.Event)

    def drain(self) -> None:
        """Drain every worker; a second call cancels what runs."""
        for worker in self.workers:
            worker.drain()


@asynccontextmanager
async def dev_cluster(coordinator: CoordinatorConfig, workers: Sequence[WorkerConfig]) -> AsyncIterator[DevCluster]:
    """Start everything, wait until every worker accepts tasks; all of it ends with the block.

    Raises LoadFailed if the functions cannot be loaded.
    """
    registry = LocalRegistry()
    with ungrouped():
        async with trio.open_nursery() as nursery:
            cluster = await _start(nursery, registry, coordinator, workers)
            yield cluster
            cluster.coordinator.shutdown()
            with trio.move_on_after(SHUTDOWN_S):
                await cluster.coordinator.ended.wait()
            nursery.cancel_scope.cancel()


async def _start(
    nursery: trio.Nursery, registry: LocalRegistry, coordinator: CoordinatorConfig, workers: Sequence[WorkerConfig]
) -> DevCluster:
    handles: list[WorkerHandle] = []
    cluster = DevCluster(await nursery.start(run_coordinator, coordinator, registry), handles)

    async def one_worker(config: WorkerConfig, *, task_status: trio.TaskStatus[WorkerHandle]) -> None:
        cluster.exit_codes.append(await run_worker(config, registry, task_status=task_status))
        if len(cluster.exit_codes) == len(workers):
            cluster.ended.set()

    for config in workers:
        handles.append(await nursery.start(one_worker, config))
    for handle in handles:
        await handle.wait_ready()
    await cluster.coordinator.wait_routable(len(handles))
    return cluster


def apply_tables(database: str, schema_file: Path) -> None:
    """Create or extend the tables that a schema file declares. Raises ConfigError for what cannot be applied."""
    store = TableStore.open(database)
    try:
        store.apply(load_schema(schema_file.read_text(encoding="utf-8")))
    finally:
        store.close()
