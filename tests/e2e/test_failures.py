"""Bad input and bad functions: the code that the contract names, a message to act on, and a worker that goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from blockx import FailureCode, PluginConfig, TaskInput, errors
from blockx.model import CallErrorCode, SlotId, TaskId, TaskResult
from blockx.store.tables import TableStore
from blockx.testing import local_cluster
from blockx.testing.cluster import LocalCluster
from tests.e2e.tasks import FUNCTIONS, TABLES, Gate, calls

RETURN = PluginConfig("ReturnValueResultHandler")


@frozen
class Bad:
    """A task that fails: with which code, with what in its message, and whether trying again could help."""

    task: TaskInput
    code: FailureCode
    message: str
    call: CallErrorCode | None = None
    retryable: bool = False


def task(builder: str, config: Any, handler: PluginConfig | None = RETURN) -> TaskInput:
    return TaskInput(function_call_config=PluginConfig(builder, config), result_handler=handler)


ONE_CALL = {"function": "hello_world", "callList": [["you"]]}
C = CallErrorCode
CASES = {
    "unknown builder": Bad(
        task("CallListConfig", ONE_CALL), FailureCode.BUILDER_NOT_FOUND, "did you mean 'CallListCallConfig'"
    ),
    "unknown writer": Bad(
        task("CallListCallConfig", ONE_CALL, PluginConfig("ReturnValueHandler")),
        FailureCode.PLUGIN_NOT_FOUND,
        "did you mean 'ReturnValueResultHandler'",
    ),
    "wrong key of a builder": Bad(
        task("CallListCallConfig", {"function": "hello_world", "callLst": []}), FailureCode.BUILDER_FAILED, "callList"
    ),
    "wrong type in a builder": Bad(
        task("CallListCallConfig", {"function": 5, "callList": []}), FailureCode.BUILDER_FAILED, "function"
    ),
    "wrong key of a writer": Bad(
        task("CallListCallConfig", ONE_CALL, PluginConfig("TableUpsertsResultHandler", {"tabel": "x"})),
        FailureCode.PLUGIN_FAILED,
        "table",
    ),
    "unknown table": Bad(
        task("CallListCallConfig", ONE_CALL, PluginConfig("TableUpsertsResultHandler", {"table": "token"})),
        FailureCode.PLUGIN_FAILED,
        "did you mean 'tokens'",
    ),
    "unknown function": Bad(calls("hello_wrld", []), FailureCode.CALL_FAILED, "hello_world", C.FUNCTION_NOT_FOUND),
    "too few arguments": Bad(calls("hello_world", []), FailureCode.CALL_FAILED, "name", C.BAD_ARGUMENTS),
    "too many arguments": Bad(calls("hello_world", ["a", "b"]), FailureCode.CALL_FAILED, "name", C.BAD_ARGUMENTS),
    "a function that raises": Bad(calls("raises", ["ouch"]), FailureCode.CALL_FAILED, "ouch", C.EXCEPTION),
    "a function that returns a lock": Bad(
        calls("returns_a_lock", []), FailureCode.CALL_FAILED, "lock", C.UNSERIALIZABLE
    ),
    "a function that exits": Bad(calls("exits", []), FailureCode.CALL_FAILED, "exit", C.EXCEPTION),
    "a function that kills its process": Bad(
        calls("kills_its_process", []), FailureCode.CALL_FAILED, "SIGKILL", C.EXECUTOR_CRASHED
    ),
    "a row that does not fit": Bad(
        calls(
            "token_row",
            ["0xok", 1],
            ["0xbad", -1],
            handler=PluginConfig("TableUpsertsResultHandler", {"table": "tokens"}),
        ),
        FailureCode.PLUGIN_FAILED,
        "supply",
    ),
    "a missing bundle": Bad(
        task(
            "BlockBundleCallConfig",
            {"chainId": 1, "blocks": [f"0x{1:064x}"], "source": "events", "function": "transfer_row"},
        ),
        FailureCode.BUILDER_FAILED,
        f"0x{1:064x}",
        retryable=True,
    ),
}


async def outcome(cluster: LocalCluster, submitted: TaskInput) -> TaskResult:
    with trio.fail_after(60):
        return await cluster.client.run(submitted)


async def still_serves(cluster: LocalCluster) -> None:
    result = await outcome(cluster, calls("hello_world", ["again"]))
    assert result.return_values() == ["hello again"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_bad_task_fails_with_its_code_and_the_worker_goes_on(case: Bad) -> None:
    async with local_cluster(FUNCTIONS, tables=TABLES, executors=1) as cluster:
        result = await outcome(cluster, case.task)
        assert (result.failure_code, result.retryable) == (case.code, case.retryable)
        assert case.message in result.failure_message
        assert (result.failed_call and result.failed_call.code) == case.call
        await still_serves(cluster)
        store = TableStore.open(cluster.database)
        assert store.show("tokens", 10) == []
        store.close()


async def test_a_failed_call_tells_what_its_author_needs() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await outcome(cluster, calls("raises", ["first"], ["second"]))
        failed = result.failed_call
        assert failed is not None
        assert (failed.function, failed.error_type, failed.attempts) == ("raises", "ValueError", 1)
        assert failed.arguments in ("'first'", "'second'")
        assert "sample.py" in failed.traceback
        assert result.plugin_results == ()


async def test_a_plugin_that_failed_leaves_one_plugin_result() -> None:
    async with local_cluster(FUNCTIONS, tables=TABLES, executors=1) as cluster:
        upsert = PluginConfig("TableUpsertsResultHandler", {"table": "tokens"})
        result = await outcome(cluster, calls("hello_world", ["no row"], handler=upsert))
        (plugin,) = result.plugin_results
        assert (plugin.plugin_name, plugin.success) == ("TableUpsertsResultHandler", False)
        assert plugin.failure_code == "PLUGIN_FAILED"


async def test_what_a_function_prints_goes_to_the_log_not_to_the_wire() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await outcome(cluster, calls("prints", *[["\x00\x01 printed\n"] for _ in range(50)]))
        assert result.return_values() == ["\x00\x01 printed\n"] * 50
        await still_serves(cluster)


REFUSED = {
    "bad JSON": (task("CallListCallConfig", "{"), "JSON"),
    "a config that is no object": (task("CallListCallConfig", "[]"), "object"),
    "a handler with bad JSON": (task("CallListCallConfig", ONE_CALL, PluginConfig("X", "nope")), "JSON"),
    "a negative timeout": (calls("noop", [1], task_timeout_ms=-1), "-1"),
    "a timeout above the cap": (calls("noop", [1], task_timeout_ms=8 * 3_600_000 + 1), "28800000"),
    "an empty id": (calls("noop", [1], task_id=TaskId("")), "empty"),
    "an id too long": (calls("noop", [1], task_id=TaskId("x" * 257)), "256"),
    "an id with a control character": (calls("noop", [1], task_id=TaskId("a\nb")), "control"),
    "no builder type": (task("", {}), "type"),
}


@pytest.mark.parametrize(("refused", "message"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_bad_request_is_refused_before_anything_starts(refused: TaskInput, message: str) -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        client = type(cluster.client)(workers=cluster.worker_addrs)
        async with client:
            with pytest.raises(errors.InvalidArgument, match=message):
                await client.submit(refused)
        await still_serves(cluster)


async def test_a_stale_slot_id_is_refused() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        client = cluster.client
        reservation = await client.reserve(TaskId("a"))
        stale = type(reservation)(reservation.worker_addr, SlotId("stale"))
        with pytest.raises(errors.InvalidSlot):
            await client.submit(calls("noop", [1], task_id=TaskId("a")), stale)
        with pytest.raises(errors.InvalidSlot):
            await client.submit(calls("noop", [1], task_id=TaskId("b")), reservation)
        assert (await client.submit(calls("noop", [1], task_id=TaskId("a")), reservation)).state.value == "RUNNING"
        await still_serves(cluster)


async def test_functions_that_do_not_import_are_told_at_the_start(tmp_path: Path) -> None:
    await trio.Path(tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(errors.LoadFailed, match="no_such_module_anywhere"):
        async with local_cluster(tmp_path, executors=1):
            raise AssertionError("the cluster came up")


# --------------------------------------------------------------------------------------------------------------------
# Executors that are killed from outside


@pytest.mark.parametrize("executors", [1, 2])
async def test_a_task_survives_kill_9_of_its_executor(gate: Gate, executors: int) -> None:
    async with local_cluster(FUNCTIONS, executors=executors) as cluster:
        waiting = calls("waits_at_gate", [gate.path])
        results: list[TaskResult] = []

        async def run() -> None:
            results.append(await outcome(cluster, waiting))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            attempt, pid = await gate.arrival()
            os.kill(pid, signal.SIGKILL)
            assert (attempt, (await gate.arrival())[0]) == (1, 2)
            gate.let_one_pass()
        assert results[0].return_values() == [{"attempt": 2, "task": waiting.task_id, "index": 0}]
        await still_serves(cluster)


async def test_a_call_that_kills_its_process_once_succeeds_at_the_second_attempt() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await outcome(cluster, calls("kills_its_process_once", []))
        assert result.return_values() == [2]


async def test_an_executor_that_is_stuck_in_a_call_of_an_ended_task_gets_no_other_calls() -> None:
    async with local_cluster(FUNCTIONS, executors=2, env={"EXECUTOR_SILENCE_MS": "600000"}) as cluster:
        stuck = await outcome(cluster, calls("spins_for_ever", [], task_timeout_ms=300))
        assert stuck.failure_code is FailureCode.TIMED_OUT
        for _ in range(20):
            await still_serves(cluster)


async def test_an_executor_that_is_stuck_in_a_call_is_replaced() -> None:
    env = {"EXECUTOR_SILENCE_MS": "500", "EXECUTOR_HEARTBEAT_MS": "100"}
    async with local_cluster(FUNCTIONS, executors=1, env=env) as cluster:
        result = await outcome(cluster, calls("spins_for_ever", []))
        assert result.failed_call is not None
        assert result.failed_call.code is CallErrorCode.EXECUTOR_CRASHED
        assert "killed by the worker after 500 ms of silence" in result.failure_message
        await still_serves(cluster)
