"""Operating real processes with a stock grpcio client."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from blockx import Client, FailureCode
from blockx.proto import coordinator_pb2, worker_pb2
from blockx.testing import local_cluster
from tests.cli_server import Server, server
from tests.contract.grpcio import call, grpc, in_thread
from tests.e2e.tasks import FUNCTIONS, Gate, gone
from tests.e2e.test_drain import WORKER, running, the_end

WORKER_ADMIN = worker_pb2.DESCRIPTOR.services_by_name["WorkerAdminService"].methods_by_name
COORDINATOR_ADMIN = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorAdminService"].methods_by_name
TIMEOUT_S = 30


@contextmanager
def channel_to(addr: str) -> Iterator[Any]:
    with grpc.insecure_channel(addr, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield channel


def ask(addr: str, method: Any, request: Any) -> Any:
    with channel_to(addr) as channel:
        return call(channel, method)(request, timeout=TIMEOUT_S)


async def drain(addr: str, timeout_ms: int = 0) -> int:
    request = worker_pb2.DrainRequest(timeout_ms=timeout_ms)
    answer = await in_thread(lambda: ask(addr, WORKER_ADMIN["Drain"], request))
    assert isinstance(answer, worker_pb2.DrainResponse)
    return answer.running_tasks


async def logged(directory: Path, word: str) -> None:
    """Wait until the server has said something."""
    while True:
        if word in await trio.Path(directory / "server.log").read_text():
            return
        await trio.sleep(0.01)


def status_with_heartbeats(addr: str) -> worker_pb2.WorkerStatus:
    """Watch until every executor was heard of."""
    with channel_to(addr) as channel:
        stream = call(channel, WORKER_ADMIN["WatchStatus"])(
            worker_pb2.WatchStatusRequest(interval_ms=100), timeout=TIMEOUT_S
        )
        for status in stream:
            assert isinstance(status, worker_pb2.WorkerStatus)
            if all(executor.rss_bytes for executor in status.executors):
                stream.cancel()
                return status
    raise AssertionError("the watch ended by itself")


async def test_a_stock_client_sees_a_worker_with_its_executors_and_functions() -> None:
    async with local_cluster(FUNCTIONS, executors=2, env={"EXECUTOR_HEARTBEAT_MS": "50"}) as cluster:
        status = await in_thread(lambda: status_with_heartbeats(cluster.worker_addrs[0]))
        pids = cluster.parts.workers[0].executor_pids()
    assert status.addr == status.worker_id == cluster.worker_addrs[0]
    assert status.state == worker_pb2.WORKER_STATE_READY
    assert sorted(executor.pid for executor in status.executors) == sorted(pids)
    assert all(executor.is_ready for executor in status.executors)
    assert all(executor.rss_bytes > 1024 * 1024 for executor in status.executors)
    assert "hello_world" in status.code.functions
    assert len(bytes.fromhex(status.code.digest)) == 32


async def test_a_stock_client_sees_the_workers_of_a_coordinator() -> None:
    async with local_cluster(FUNCTIONS, workers=2, executors=1, slots=5) as cluster:
        request = coordinator_pb2.ListWorkersRequest()
        answer = await in_thread(lambda: ask(cluster.coordinator_addr, COORDINATOR_ADMIN["ListWorkers"], request))
    assert {worker.addr for worker in answer.workers} == set(cluster.worker_addrs)
    assert {(worker.slots, worker.free_slots, worker.executors, worker.why_not) for worker in answer.workers} == {
        (5, 5, 1, "")
    }


async def test_a_watch_of_the_workers_ends_well_with_the_coordinator(tmp_path: Path) -> None:
    def watch_to_the_end(coordinator: Server) -> list[coordinator_pb2.WorkerList]:
        with channel_to(coordinator.addresses["coordinator"]) as channel:
            stream = call(channel, COORDINATOR_ADMIN["WatchWorkers"])(
                coordinator_pb2.WatchWorkersRequest(interval_ms=60_000), timeout=TIMEOUT_S
            )
            first = next(stream)
            coordinator.process.send_signal(signal.SIGTERM)
            return [first, *stream]

    with server("coordinator", "--listen", "127.0.0.1:0", cwd=tmp_path) as coordinator, trio.fail_after(60):
        assert await in_thread(lambda: watch_to_the_end(coordinator)) == [coordinator_pb2.WorkerList()]
        assert await trio.to_thread.run_sync(coordinator.process.wait) == 0


async def test_a_watch_of_the_workers_ends_well_with_an_embedded_cluster() -> None:
    seen, lists = trio.Event(), list[coordinator_pb2.WorkerList]()

    def watch_to_the_end(addr: str) -> None:
        with channel_to(addr) as channel:
            watch = call(channel, COORDINATOR_ADMIN["WatchWorkers"])
            for answer in watch(coordinator_pb2.WatchWorkersRequest(), timeout=TIMEOUT_S):
                lists.append(answer)
                trio.from_thread.run_sync(seen.set)

    async with trio.open_nursery() as nursery:
        async with local_cluster(FUNCTIONS, executors=1) as cluster:
            nursery.start_soon(trio.to_thread.run_sync, watch_to_the_end, cluster.coordinator_addr)
            await seen.wait()
    assert [len(answer.workers) for answer in lists[:1]] == [1]


async def test_drain_ends_an_idle_worker_process_with_0_and_its_watches_well(tmp_path: Path) -> None:
    def watch_to_the_end(addr: str) -> list[int]:
        with channel_to(addr) as channel:
            stream = call(channel, WORKER_ADMIN["WatchStatus"])(worker_pb2.WatchStatusRequest(), timeout=TIMEOUT_S)
            assert next(stream).state == worker_pb2.WORKER_STATE_READY
            call(channel, WORKER_ADMIN["Drain"])(worker_pb2.DrainRequest(), timeout=TIMEOUT_S)
            return [status.state for status in stream]

    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        states = await in_thread(lambda: watch_to_the_end(worker.addresses["worker"]))
        assert await trio.to_thread.run_sync(worker.process.wait) == 0
    assert set(states) <= {worker_pb2.WORKER_STATE_DRAINING}


async def test_a_drained_worker_finishes_what_runs_also_when_a_signal_follows(tmp_path: Path, gate: Gate) -> None:
    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        addr = worker.addresses["worker"]
        async with Client(workers=[addr]) as client:
            task, executor = await running(client, gate)
            request = worker_pb2.ListTasksRequest()
            listed = await in_thread(lambda: ask(addr, WORKER_ADMIN["ListTasks"], request))
            assert [(each.task_id, each.phase, each.calls_in_flight) for each in listed.tasks] == [
                (task.task_id, worker_pb2.TASK_PHASE_CALLS, 1)
            ]
            assert await drain(addr) == 1
            worker.process.send_signal(signal.SIGTERM)
            await logged(tmp_path, "stopping")
            gate.let_one_pass()
            update = await the_end(client, task, addr)
            assert update.result is not None
            assert update.result.success
        assert await trio.to_thread.run_sync(worker.process.wait) == 0
        await gone(executor)


async def test_a_drain_that_was_narrowed_cancels_what_is_left_and_the_exit_code_says_so(
    tmp_path: Path, gate: Gate
) -> None:
    with server(*WORKER, cwd=tmp_path) as worker, trio.fail_after(60):
        addr = worker.addresses["worker"]
        async with Client(workers=[addr]) as client:
            task, executor = await running(client, gate)
            assert await drain(addr) == 1
            assert await drain(addr, timeout_ms=1) <= 1
            update = await the_end(client, task, addr)
            assert update.result is not None
            assert update.result.failure_code is FailureCode.CANCELLED
        assert await trio.to_thread.run_sync(worker.process.wait) == 1
        await gone(executor)
