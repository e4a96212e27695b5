"""A client that knows BlockX only by its protos: stock grpcio, and code that stock protoc generated beside this file.

    python examples/grpcio_client/client.py 127.0.0.1:7070 examples/hello.json

reserves a slot through the coordinator, submits the task to the worker that has it, watches it to its end, and prints
what the result handler returned. Any language does the same. The generated code is renewed with

    python -m grpc_tools.protoc -Iprotos --python_out=examples/grpcio_client \
        --grpc_python_out=examples/grpcio_client protos/worker.proto protos/coordinator.proto
"""

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import coordinator_pb2
import coordinator_pb2_grpc
import grpc
import worker_pb2
import worker_pb2_grpc

RPC_TIMEOUT_S = 5
WATCH_TIMEOUT_S = 60


def read_task(path: str) -> Any:
    """The task of a JSON file as a message: the plugins' configs travel as JSON text."""
    task = json.loads(Path(path).read_text(encoding="utf-8"))
    return worker_pb2.TaskInput(
        task_id=task.get("task_id") or str(uuid.uuid4()),
        function_call_config=plugin_config(task["functionCallConfig"]),
        result_handler=plugin_config(task["resultHandler"]) if "resultHandler" in task else None,
        task_timeout_ms=task.get("taskTimeoutMs", 0),
    )


def plugin_config(plugin: dict[str, Any]) -> Any:
    return worker_pb2.PluginConfig(type=plugin["type"], config=json.dumps(plugin.get("config", {})))


def reserve(coordinator_addr: str, task_id: str) -> Any:
    with grpc.insecure_channel(coordinator_addr) as channel:
        coordinator = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        request = coordinator_pb2.ReserveWorkerSlotRequest(task_id=task_id)
        return coordinator.ReserveWorkerSlot(request, timeout=RPC_TIMEOUT_S)


def submit_and_watch(worker_addr: str, task: Any, slot_id: str) -> Any:
    """The last update of the task, which carries its result."""
    with grpc.insecure_channel(worker_addr) as channel:
        worker = worker_pb2_grpc.WorkerServiceStub(channel)
        worker.SubmitTask(worker_pb2.SubmitTaskRequest(task=task, slot_id=slot_id), timeout=RPC_TIMEOUT_S)
        request = worker_pb2.WatchTasksRequest(task_ids=[task.task_id])
        for update in worker.WatchTasks(request, timeout=WATCH_TIMEOUT_S):
            if update.is_terminal:
                return update
        raise RuntimeError("the watch ended before the task did")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: client.py COORDINATOR_HOST:PORT TASK.json", file=sys.stderr)
        return 2
    try:
        return run(*arguments)
    except (OSError, ValueError, KeyError) as error:
        print(f"{arguments[1]} is no task that can be read: {error!r}", file=sys.stderr)
        return 2
    except grpc.RpcError as error:
        print(f"{arguments[0]}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 3


def run(coordinator_addr: str, path: str) -> int:
    task = read_task(path)
    reservation = reserve(coordinator_addr, task.task_id)
    update = submit_and_watch(reservation.worker_addr, task, reservation.slot_id)
    outcome = update.result.execute_result
    if not update.result.success:
        print(f"{update.error or outcome.failure_code}: {outcome.failure_message}", file=sys.stderr)
        return 1
    for plugin in outcome.plugin_results:
        print(plugin.result.decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
