"""A worker as a process of its own: what SIGTERM, a second SIGTERM and SIGKILL do to tasks and executors."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from blockx import Client, FailureCode, TaskInput, errors
from blockx.model import TaskId, TaskUpdate
from blockx.proto import worker_pb2
from blockx.rpc import open_channel
from tests.cli_server import Server, server
from tests.e2e.tasks import FUNCTIONS, Gate, calls, gone

WORKER = ("worker", "--functions", str(FUNCTIONS), "--listen", "127.0.0.1:0", "--executors", "1")


async def running(client: Client, gate: Gate) -> tuple[TaskInput, int]:
    """A task that runs until it may pass the gate, and the process that runs its call."""
    task = calls("waits_at_gate", [gate.path])
    await client.submit(task)
    return task, (await gate.arrival())[1]


async def drained(client: Client, worker: Server) -> None:
    """Signal the worker and wait until it drains; then what is new is refused."""
    worker.process.send_signal(signal.SIGTERM)
    watch = worker_pb2.DESCRIPTOR.services_by_name["WorkerAdminService"].methods_by_name["WatchStatus"]
    request = worker_pb2.WatchStatusRequest(interval_ms=100)
    async with open_channel(worker.addresses["worker"]) as channel, channel.stream(watch, request) as statuses:
        async for status in statuses:
            if status.state == worker_pb2.WORKER_STATE_DRAINING:
                break
    with pytest.raises(errors.Unavailable, match="drain"):
        await client.reserve(TaskId("new"))


async def the_end(client: Client, task: TaskInput, addr: str) -> TaskUpdate:
    async with client.watch([task.task_id], worker_addr=addr) as updates:
        return [update async for update in updates][-1]


async def test_a_draining_worker_refuses_what_is_new_and_finishes_what_runs(tmp_path: Path, gate: Gate) -> None:
    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        addr = worker.addresses["worker"]
        async with Client(workers=[addr]) as client:
            task, executor = await running(client, gate)
            await drained(client, worker)
            assert (await client.submit(task)).state.value == "RUNNING"
            gate.let_one_pass()
            update = await the_end(client, task, addr)
            assert update.result is not None
            assert update.result.success
        assert await trio.to_thread.run_sync(worker.process.wait) == 0
        await gone(executor)


async def test_a_second_signal_cancels_what_runs_and_the_exit_code_says_so(tmp_path: Path, gate: Gate) -> None:
    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        addr = worker.addresses["worker"]
        async with Client(workers=[addr]) as client:
            task, executor = await running(client, gate)
            await drained(client, worker)
            worker.process.send_signal(signal.SIGTERM)
            update = await the_end(client, task, addr)
            assert update.result is not None
            assert (update.result.failure_code, update.result.retryable) == (FailureCode.CANCELLED, True)
        assert await trio.to_thread.run_sync(worker.process.wait) == 1
        await gone(executor)


async def test_executors_end_with_a_worker_that_was_killed(tmp_path: Path, gate: Gate) -> None:
    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        async with Client(workers=[worker.addresses["worker"]]) as client:
            _, executor = await running(client, gate)
            os.kill(worker.process.pid, signal.SIGKILL)
            await gone(executor)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_worker_ends_with_0_and_leaves_nothing(tmp_path: Path, signum: signal.Signals) -> None:
    with server(*WORKER, cwd=tmp_path) as worker:
        assert await trio.to_thread.run_sync(worker.stop, signum) == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"server.log", "blockx.db"} or left == {"server.log", "blockx.db", "blockx-bundles"}
