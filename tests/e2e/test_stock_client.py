"""A stock grpcio client, with nothing of BlockX but the protocol's messages."""

from __future__ import annotations

import json
from typing import Any

import grpc
import trio

from blockx.proto import coordinator_pb2, worker_pb2
from blockx.testing import local_cluster
from tests.e2e.tasks import FUNCTIONS, Gate

EXAMPLE = worker_pb2.TaskInput(
    task_id="3f2b1c9e-8a4d-4c1e-9b0a-6f7e5d4c3b2a",
    function_call_config=worker_pb2.PluginConfig(
        type="CallListCallConfig",
        config=json.dumps({"function": "hello_world", "callList": [["ct2"], ["blockx"]]}),
    ),
    result_handler=worker_pb2.PluginConfig(type="ReturnValueResultHandler", config="{}"),
    task_timeout_ms=30_000,
)


class StockWorker:
    """The worker's methods over a plain grpcio channel."""

    def __init__(self, addr: str) -> None:
        self.channel = grpc.insecure_channel(addr, options=[("grpc.enable_http_proxy", 0)])
        self.submit = self._unary("SubmitTask", worker_pb2.SubmitTaskRequest, worker_pb2.SubmitTaskResponse)
        self.result = self._unary("GetTaskResult", worker_pb2.GetTaskResultRequest, worker_pb2.GetTaskResultResponse)
        self.watch = self.channel.unary_stream(
            "/blockx.worker.v1.WorkerService/WatchTasks",
            request_serializer=worker_pb2.WatchTasksRequest.SerializeToString,
            response_deserializer=worker_pb2.TaskUpdate.FromString,
        )

    def _unary(self, name: str, request: Any, response: Any) -> Any:
        return self.channel.unary_unary(
            f"/blockx.worker.v1.WorkerService/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )


def reserve(addr: str, task_id: str) -> Any:
    with grpc.insecure_channel(addr, options=[("grpc.enable_http_proxy", 0)]) as channel:
        method = channel.unary_unary(
            "/blockx.coordinator.v1.CoordinatorService/ReserveWorkerSlot",
            request_serializer=coordinator_pb2.ReserveWorkerSlotRequest.SerializeToString,
            response_deserializer=coordinator_pb2.ReserveWorkerSlotResponse.FromString,
        )
        return method(coordinator_pb2.ReserveWorkerSlotRequest(task_id=task_id), timeout=10)


def run_example(coordinator_addr: str) -> list[str]:
    found = reserve(coordinator_addr, EXAMPLE.task_id)
    worker = StockWorker(found.worker_addr)
    with worker.channel:
        worker.submit(worker_pb2.SubmitTaskRequest(task=EXAMPLE, slot_id=found.slot_id), timeout=10)
        updates = list(worker.watch(worker_pb2.WatchTasksRequest(task_ids=[EXAMPLE.task_id]), timeout=30))
    assert updates[-1].is_terminal
    assert updates[-1].state == worker_pb2.SUCCEEDED
    values: list[str] = json.loads(updates[-1].result.execute_result.plugin_results[0].result)
    return values


async def test_a_stock_client_runs_the_example_of_the_protocol() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        values = await trio.to_thread.run_sync(run_example, cluster.coordinator_addr)
    assert values == ["hello ct2", "hello blockx"]


SLEEPER = worker_pb2.TaskInput(
    task_id="sleeper",
    function_call_config=worker_pb2.PluginConfig(
        type="CallListCallConfig", config=json.dumps({"function": "sleeps_for_ever", "callList": [[]]})
    ),
)


def watch_then_leave(addr: str) -> Any:
    """Watch a running task, cancel the watch, and ask for the result until it is there."""
    worker = StockWorker(addr)
    with worker.channel:
        worker.submit(worker_pb2.SubmitTaskRequest(task=SLEEPER), timeout=10)
        stream = worker.watch(worker_pb2.WatchTasksRequest(task_ids=["sleeper"]), timeout=30)
        assert next(stream).state == worker_pb2.RUNNING
        stream.cancel()
        return ended(worker, "sleeper")


def ended(worker: StockWorker, task_id: str) -> Any:
    """The result of a task, asked for until it is there."""
    while True:
        answer = worker.result(worker_pb2.GetTaskResultRequest(task_id=task_id), timeout=10)
        if answer.state != worker_pb2.RUNNING:
            return answer


async def test_a_task_whose_watch_was_cancelled_ends_after_the_grace() -> None:
    async with local_cluster(FUNCTIONS, executors=1, env={"WATCH_DISCONNECT_GRACE_MS": "300"}) as cluster:
        with trio.fail_after(30):
            answer = await trio.to_thread.run_sync(watch_then_leave, cluster.worker_addrs[0])
    assert answer.state == worker_pb2.FAILED
    assert answer.result.execute_result.failure_code == "WATCH_DISCONNECTED"
    assert not answer.result.execute_result.retryable


def watch_twice(addr: str, gate: Gate) -> list[Any]:
    """The last states of a task that was watched twice, when one watch went, and ended a task that only it watched."""
    held = worker_pb2.TaskInput(
        task_id="held",
        function_call_config=worker_pb2.PluginConfig(
            type="CallListCallConfig", config=json.dumps({"function": "waits_at_gate", "callList": [[gate.path]]})
        ),
    )
    worker = StockWorker(addr)
    with worker.channel:
        for task in (held, SLEEPER):
            worker.submit(worker_pb2.SubmitTaskRequest(task=task), timeout=10)
        first = worker.watch(worker_pb2.WatchTasksRequest(task_ids=["held", "sleeper"]), timeout=30)
        second = worker.watch(worker_pb2.WatchTasksRequest(task_ids=["held"]), timeout=30)
        assert [next(stream).state for stream in (first, first, second)] == [worker_pb2.RUNNING] * 3
        first.cancel()
        assert ended(worker, "sleeper").result.execute_result.failure_code == "WATCH_DISCONNECTED"
        gate.let_one_pass()
        return [update.state for update in second]


async def test_a_task_is_not_ended_while_it_is_watched_again_or_was_never_watched(gate: Gate) -> None:
    async with local_cluster(FUNCTIONS, executors=2, env={"WATCH_DISCONNECT_GRACE_MS": "1"}) as cluster:
        with trio.fail_after(30):
            states = await trio.to_thread.run_sync(watch_twice, cluster.worker_addrs[0], gate)
    assert states == [worker_pb2.SUCCEEDED]
