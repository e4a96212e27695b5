"""Results as people and programs read them."""

from __future__ import annotations

import json
from typing import Any

import attrs

from blockx.model import PluginResult, TaskResult, TaskUpdate, camel_case
from blockx.wire.values import to_json


def result_json(task_id: str, result: TaskResult) -> dict[str, Any]:
    """A result in the JSON spelling of tasks: `task_id`, `state`, `success` and `executeResult` in camelCase."""
    outcome: dict[str, Any] = {
        "failureCode": result.failure_code.value if result.failure_code else "",
        "failureMessage": result.failure_message,
        "retryable": result.retryable,
        "pluginResults": [_plugin_json(plugin) for plugin in result.plugin_results],
        "receipt": camel_keys(attrs.asdict(result.receipt)),
        "readBlocks": [{"chainId": chain_id, "blockId": block_id} for chain_id, block_id in result.read_blocks],
        "isReadBlocksTruncated": result.read_blocks_truncated,
        "codeEpoch": result.code_epoch,
    }
    if result.failed_call is not None:
        call = attrs.asdict(result.failed_call)
        outcome["failedCall"] = camel_keys(call | {"code": result.failed_call.code.value})
    return {"task_id": task_id, "state": result.state.value, "success": result.success, "executeResult": outcome}


def update_json(update: TaskUpdate) -> dict[str, Any]:
    """One message of a watch."""
    state = update.state.value if update.state else ""
    out: dict[str, Any] = {"task_id": update.task_id, "state": state, "isTerminal": update.is_terminal}
    if update.result is not None:
        out |= result_json(update.task_id, update.result)
    return out | {"error": update.error, "workerAddr": update.worker_addr, "timestampMs": update.timestamp_ms}


def update_line(update: TaskUpdate) -> str:
    """One message of a watch: the task, its state, and why it failed."""
    words = [update.task_id, update.error or (update.state.value if update.state else "")]
    result = update.result
    if result is not None and result.failure_code is not None:
        words.append(f"{result.failure_code.value}: {result.failure_message}")
    return " ".join(words)


def plugin_lines(result: TaskResult) -> list[str]:
    """What the result handlers returned, one JSON text each."""
    return [plugin.result.decode() for plugin in result.plugin_results if plugin.result]


def camel_keys(data: dict[str, Any]) -> dict[str, Any]:
    """With keys as in the JSON of tasks: `block_id` becomes `blockId`."""
    return {camel_case(key): value for key, value in data.items()}


def value_text(value: Any) -> str:
    """One return value for a person: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()


def _plugin_json(plugin: PluginResult) -> dict[str, Any]:
    return {
        "pluginName": plugin.plugin_name,
        "success": plugin.success,
        "failureCode": plugin.failure_code,
        "result": json.loads(plugin.result) if plugin.result else None,
    }
