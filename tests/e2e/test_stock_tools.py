"""What a stock gRPC tool can do with a cluster of which it has no files: find services, call them, ask for health."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from blockx.testing import local_cluster
from tests.contract.grpcio import call, grpc, in_thread
from tests.e2e.tasks import FUNCTIONS

# Behind the settings that grpcio needs when it is first imported.
from grpc_health.v1 import health_pb2, health_pb2_grpc  # isort: skip
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # isort: skip
    ProtoReflectionDescriptorDatabase,
)

STANDARD = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
]
OPTIONS = [("grpc.enable_http_proxy", 0)]
TIMEOUT_S = 30
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Tool:
    """Knows an address, and learns the rest by reflection."""

    def __init__(self, addr: str) -> None:
        self.channel = grpc.insecure_channel(addr, options=OPTIONS)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = DescriptorPool(self.database)

    def services(self) -> list[str]:
        return list(self.database.get_services())

    def call(self, service: str, method: str, **fields: Any) -> Any:
        """Call a unary method; a message among the fields is given as a dict."""
        found = self._pool.FindServiceByName(service).FindMethodByName(method)
        return call(self.channel, found)(GetMessageClass(found.input_type)(**fields), timeout=TIMEOUT_S)

    def result(self, task_id: str) -> Any:
        """The result of a task, once there is one."""
        while True:
            answer = self.call("blockx.worker.v1.WorkerService", "GetTaskResult", task_id=task_id)
            if answer.result.HasField("execute_result"):
                return answer.result


def run_a_task(coordinator: str, worker: str) -> tuple[list[str], list[str], Any]:
    """The services of both, and the result of a task that went from one to the other."""
    config = json.dumps({"function": "hello_world", "callList": [["tool"]]})
    task = {
        "task_id": "by-tool",
        "function_call_config": {"type": "CallListCallConfig", "config": config},
        "result_handler": {"type": "ReturnValueResultHandler", "config": "{}"},
    }
    to_coordinator, to_worker = Tool(coordinator), Tool(worker)
    with to_coordinator.channel, to_worker.channel:
        slot = to_coordinator.call("blockx.coordinator.v1.CoordinatorService", "ReserveWorkerSlot", task_id="by-tool")
        to_worker.call("blockx.worker.v1.WorkerService", "SubmitTask", task=task, slot_id=slot.slot_id)
        result = to_worker.result("by-tool")
        return to_coordinator.services(), to_worker.services(), result


async def test_a_tool_without_our_files_lists_and_calls() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        of_coordinator, of_worker, result = await in_thread(
            lambda: run_a_task(cluster.coordinator_addr, cluster.worker_addrs[0])
        )
    assert of_coordinator == [
        "blockx.coordinator.v1.CoordinatorAdminService",
        "blockx.coordinator.v1.CoordinatorService",
        *STANDARD,
    ]
    assert of_worker == ["blockx.worker.v1.WorkerAdminService", "blockx.worker.v1.WorkerService", *STANDARD]
    assert result.success
    assert json.loads(result.execute_result.plugin_results[0].result) == ["hello tool"]


def health_of(addr: str) -> dict[str, int]:
    with grpc.insecure_channel(addr, options=OPTIONS) as channel:
        answer = health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=TIMEOUT_S)
        return {name: status.status for name, status in answer.statuses.items()}


async def test_a_ready_worker_and_its_coordinator_serve() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        of_coordinator = await in_thread(lambda: health_of(cluster.coordinator_addr))
        of_worker = await in_thread(lambda: health_of(cluster.worker_addrs[0]))
    assert of_coordinator == {
        "": SERVING,
        "blockx.coordinator.v1.CoordinatorService": SERVING,
        "blockx.coordinator.v1.CoordinatorAdminService": SERVING,
    }
    assert of_worker == {
        "": SERVING,
        "blockx.worker.v1.WorkerService": SERVING,
        "blockx.worker.v1.WorkerAdminService": SERVING,
    }


def watch_while_it_drains(addr: str) -> tuple[dict[str, list[int]], dict[str, int]]:
    """What watches see from readiness to the end of a drain, and the health while it drains."""
    tool = Tool(addr)
    with tool.channel:
        stub = health_pb2_grpc.HealthStub(tool.channel)
        names = ["", "blockx.worker.v1.WorkerService", "blockx.worker.v1.WorkerAdminService"]
        watches = {name: stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S) for name in names}
        seen = {name: [next(watch).status] for name, watch in watches.items()}
        config = json.dumps({"function": "sleeps_for_ever", "callList": [[]]})
        task = {"task_id": "t", "function_call_config": {"type": "CallListCallConfig", "config": config}}
        tool.call("blockx.worker.v1.WorkerService", "SubmitTask", task=task)
        tool.call("blockx.worker.v1.WorkerAdminService", "Drain", timeout_ms=1000)
        while_draining = health_of(addr)
        tool.result("t")  # which a drain waits for
        for name, watch in watches.items():
            seen[name] += [answer.status for answer in watch]
    return seen, while_draining


async def test_a_draining_worker_does_not_serve_and_watches_see_it_end() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        seen, while_draining = await in_thread(lambda: watch_while_it_drains(cluster.worker_addrs[0]))
    assert seen == {
        "": [SERVING, NOT_SERVING],
        "blockx.worker.v1.WorkerService": [SERVING, NOT_SERVING],
        "blockx.worker.v1.WorkerAdminService": [SERVING, NOT_SERVING],
    }
    assert while_draining == {
        "": NOT_SERVING,
        "blockx.worker.v1.WorkerService": NOT_SERVING,
        "blockx.worker.v1.WorkerAdminService": SERVING,
    }
