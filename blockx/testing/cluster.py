"""A cluster for one test: coordinator, workers and executors on ports of their own, gone when the block ends."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog
from attrs import frozen

from blockx import config
from blockx.client import Client
from blockx.coordinator.app import CoordinatorConfig
from blockx.dev import DevCluster, apply_tables, dev_cluster
from blockx.errors import ConfigError
from blockx.telemetry.logs import setup_logs
from blockx.worker.app import WorkerConfig

ALIKE = 0.8
"""From this similarity on (of difflib, 0 to 1) an unknown variable is taken for a setting that was misspelt."""


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
    by their variables; other variables may be among them, unless they look like a misspelt setting. Warnings and errors
    are logged to stderr; a program that has configured structlog gets everything its own way.

    Raises ConfigError for a bad setting and LoadFailed for functions that cannot be loaded.
    """
    _refuse_misspelt(env or {})
    with _quiet_logs(), tempfile.TemporaryDirectory(prefix="blockx-cluster-") as directory:
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


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Where the program has not said what to do with log lines: warnings and errors, to stderr."""
    if structlog.is_configured():
        yield
        return
    setup_logs(level="warning")
    try:
        yield
    finally:
        structlog.reset_defaults()


def _refuse_misspelt(env: Mapping[str, str]) -> None:
    settings = [*config.describe(WorkerConfig), *config.describe(CoordinatorConfig)]
    known = sorted({setting.env for setting in settings if setting.env})
    for key in env:
        word = key.upper()
        alike = [name for name in known if name.endswith(f"_{word}")] or difflib.get_close_matches(
            word, known, n=1, cutoff=ALIKE
        )
        if key not in known and alike:
            raise ConfigError(f"env has {key!r}, which is no setting (did you mean {alike[0]!r}?)")
