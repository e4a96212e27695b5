"""The main path in figures: calls/s, tasks/s, latency of one task, memory at rest. `python -m benchmarks.main_path`.

Everything runs on this machine: coordinator and worker in this process, one executor beside it, this process's client
too; so tasks/s and latency include the client's own work.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import trio
from rich.console import Console
from rich.table import Table

from blockx import PluginConfig, TaskInput
from blockx.telemetry.logs import setup_logs
from blockx.testing import local_cluster
from blockx.testing.cluster import LocalCluster

FUNCTIONS = Path(__file__).parent / "functions"
CALLS = 10_000
TASKS = 1_000
IN_FLIGHT = 32
LATENCY_TASKS = 200
REPEATS = 5


def task(function: str, calls: int) -> TaskInput:
    """A task without a handler, so that the figures are those of the calls."""
    config = {"function": function, "callList": [[index] for index in range(calls)]}
    return TaskInput(function_call_config=PluginConfig("CallListCallConfig", config))


async def timed(cluster: LocalCluster, work: TaskInput) -> float:
    start = trio.current_time()
    result = await cluster.client.run(work)
    assert result.success, result.failure_message
    return trio.current_time() - start


async def calls_per_second(cluster: LocalCluster, function: str) -> float:
    """Median over repeats of one task of many no-op calls, from submission to its result."""
    await timed(cluster, task(function, CALLS))
    return CALLS / statistics.median([await timed(cluster, task(function, CALLS)) for _ in range(REPEATS)])


async def tasks_per_second(cluster: LocalCluster) -> float:
    tasks = [task("noop", 1) for _ in range(TASKS)]
    start = trio.current_time()
    async with cluster.client.run_many(tasks, in_flight=IN_FLIGHT) as outcomes:
        ended = [outcome.success async for outcome in outcomes]
    assert ended == [True] * TASKS
    return TASKS / (trio.current_time() - start)


async def latency_ms(cluster: LocalCluster) -> float:
    return 1000 * statistics.median([await timed(cluster, task("noop", 1)) for _ in range(LATENCY_TASKS)])


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure() -> list[tuple[str, str]]:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        (executor,) = cluster.parts.workers[0].executor_pids()
        rows = [
            ("worker, coordinator and client, at rest", f"{resident_mb(os.getpid()):.0f} MB"),
            ("executor, at rest", f"{resident_mb(executor):.0f} MB"),
        ]
        for function in ("noop", "noop_async"):
            rows.append(
                (f"{function}: calls/s, {CALLS} calls a task", f"{await calls_per_second(cluster, function):.0f}")
            )
        rows.append((f"tasks/s, 1 call each, {IN_FLIGHT} in flight", f"{await tasks_per_second(cluster):.0f}"))
        rows.append(("submit to terminal, one at a time, median", f"{await latency_ms(cluster):.1f} ms"))
    return rows


def main() -> int:
    setup_logs(level="warning")
    table = Table("what", "figure", title="BlockX, main path, one executor")
    for what, figure in trio.run(measure):
        table.add_row(what, figure)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
