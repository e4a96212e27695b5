"""A cluster for one test: coordinator, workers and executors on ports of their own, gone when the block ends."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import frozen

from blockx import config
from blockx.client import Client
from blockx.coordinator.app import CoordinatorConfig
from blockx.dev import DevCluster, apply_tables, dev_cluster
from blockx.worker.app import WorkerConfig


@frozen(kw_only=True)
class LocalCluster:
    """`database` and `bundles` are URLs that the command line takes; `parts` gives at the processes behind it."""

    client: Client
    coordinator_addr: str
    worker_addrs: list[str]
    database: str
    bundles: str
    parts: DevCluster


@asynccontextmanager
async def local_cluster(
    functions: str | Path,
    *,
    tables: str | Path | None = None,
    workers: int = 1,
    executors: int = 2,
    slots: int | None = None,
    database: str | None = None,
    bundles: str | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[LocalCluster]:
    """A cluster over the functions of a directory, ready for tasks when the block is entered.

    `tables` is a schema file to apply first; `database` and `bundles` are temporary unless given; `env` holds settings
    by their variables. Raises ConfigError for a bad setting and LoadFailed for functions that cannot be loaded.
    """
    with tempfile.TemporaryDirectory(prefix="blockx-cluster-") as directory:
        database = database or f"sqlite:///{directory}/blockx.db"
        bundles = bundles or f"file://{directory}/bundles"
        if tables is not None:
            apply_tables(database, Path(tables))
        environ = dict(env or {})
        flags = {
            "functions": str(functions),
            "listen": "127.0.0.1:0",
            "database": database,
            "bundles": bundles,
            "executors": executors,
            "slots": slots,
        }
        worker = config.load(WorkerConfig, file={}, environ=environ, flags=flags, section="worker")
        coordinator = config.load(
            CoordinatorConfig, file={}, environ=environ, flags={"listen": "127.0.0.1:0"}, section="coordinator"
        )
        async with (
            dev_cluster(coordinator, [worker] * workers) as parts,
            Client(coordinators=[parts.coordinator.addr]) as client,
        ):
            yield LocalCluster(
                client=client,
                coordinator_addr=parts.coordinator.addr,
                worker_addrs=[handle.addr for handle in parts.workers],
                database=database,
                bundles=bundles,
                parts=parts,
            )
