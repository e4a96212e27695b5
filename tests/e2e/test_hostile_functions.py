"""What functions do to their executor and to the worker: others go on, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from blockx import FailureCode
from blockx.testing import local_cluster
from blockx.testing.cluster import LocalCluster
from tests.e2e.tasks import calls, gone

FUNCTIONS = """
import os, signal, subprocess
from blockx import Context, function

@function
def add(a: int, b: int) -> int:
    return a + b

@function
def forks() -> int:
    return os.fork()

@function
def starts_a_process() -> int:
    return subprocess.Popen(["sleep", "1000"]).pid

@function
def power_of_two(exponent: int) -> int:
    return 1 << exponent

@function
def refuses(*values: int) -> None:
    raise ValueError(values)

@function
async def reads(ctx: Context, exponent: int) -> None:
    await ctx.bundles.get(1 << exponent, ["no block"])
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "hostile_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path


async def value_of(cluster: LocalCluster, function: str, *args: Any) -> Any:
    with trio.fail_after(60):
        result = await cluster.client.run(calls(function, list(args)))
    (value,) = result.return_values()
    return value


async def test_functions_may_fork_and_return_without_harm_to_others(code: Path) -> None:
    async with local_cluster(code, executors=1) as cluster:
        pids = cluster.parts.workers[0].executor_pids()
        for _ in range(3):
            child = await value_of(cluster, "forks")
            assert child != 0
            with trio.fail_after(60):
                await gone(child)
            many = await cluster.client.run(calls("add", *[[n, 1] for n in range(500)]))
            assert many.return_values() == list(range(1, 501))
        assert cluster.parts.workers[0].executor_pids() == pids


async def test_processes_that_functions_have_started_do_not_outlive_the_worker(code: Path) -> None:
    async with local_cluster(code, executors=1) as cluster:
        pid = await value_of(cluster, "starts_a_process")
    with trio.fail_after(60):
        await gone(pid)


async def test_integers_come_back_as_wide_as_json_may_hold_them(code: Path) -> None:
    async with local_cluster(code, executors=1) as cluster:
        assert await value_of(cluster, "power_of_two", 14_000) == 1 << 14_000
        with trio.fail_after(60):
            result = await cluster.client.run(calls("power_of_two", [1], [4_000_000]))
        assert (result.failure_code, result.retryable) == (FailureCode.PLUGIN_FAILED, False)
        assert "call 1" in result.failure_message
        assert "an integer of 4000001 bits" in result.failure_message
        assert await value_of(cluster, "add", 1, 2) == 3


async def test_wide_integers_in_messages_are_described(code: Path) -> None:
    async with local_cluster(code, executors=1) as cluster:
        with trio.fail_after(60):
            refused = await cluster.client.run(calls("refuses", [10**4_200, 7]))
            unread = await cluster.client.run(calls("reads", [100_000]))
        assert refused.failed_call is not None
        assert refused.failed_call.arguments == "an integer of 13953 bits, 7"
        assert unread.failed_call is not None
        assert "must be a block id or a height, not ['no block']" in unread.failed_call.message
