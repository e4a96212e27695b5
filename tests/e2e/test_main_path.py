from __future__ import annotations

import json
from pathlib import Path

import trio

import blockx
from blockx.model import TaskState
from blockx.store.tables import TableStore
from blockx.testing import local_cluster
from tests.e2e.tasks import FUNCTIONS, TABLES, calls


async def test_a_task_comes_back_with_its_outputs_in_call_order() -> None:
    async with local_cluster(FUNCTIONS, executors=2) as cluster:
        result = await cluster.client.run(calls("hello_world", ["ct2"], ["blockx"]))
        assert result.success
        assert result.return_values() == ["hello ct2", "hello blockx"]
        assert result.receipt.attempts == 2
        assert result.code_epoch == 1


async def test_many_calls_of_async_functions_keep_their_order() -> None:
    async with local_cluster(FUNCTIONS, executors=2) as cluster:
        result = await cluster.client.run(calls("hello_later", *[[f"{n}"] for n in range(5_000)]))
        assert result.return_values() == [f"hello {n}" for n in range(5_000)]


async def test_values_come_back_exactly() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("power_of_two", [256], [64], [0]))
        assert result.return_values() == [2**256, 2**64, 1]
        result = await cluster.client.run(calls("echo", [{"ключ": [None, True, -(2**255), "é"]}]))
        assert result.return_values() == [{"ключ": [None, True, -(2**255), "é"]}]


async def test_keyword_arguments_reach_the_function() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("hello_world", {"args": [], "kwargs": {"name": "you"}}))
        assert result.return_values() == ["hello you"]


async def test_an_empty_call_list_succeeds_with_no_outputs() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("hello_world"))
        assert result.return_values() == []


async def test_a_task_without_a_handler_succeeds_without_plugin_results() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        task = blockx.TaskInput(
            function_call_config=blockx.PluginConfig("CallListCallConfig", {"function": "noop", "callList": [[1]]})
        )
        result = await cluster.client.run(task)
        assert (result.state, result.plugin_results) == (TaskState.SUCCEEDED, ())


async def test_a_retryable_error_is_attempted_again() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("fails_at_first", []))
        assert result.return_values() == [3]
        assert result.receipt.attempts == 3


async def test_a_task_submitted_twice_runs_once_and_a_different_payload_is_told() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        task = calls("hello_world", ["once"], task_id=blockx.model.TaskId("the-same"))
        first = await cluster.client.run(task)
        again = await cluster.client.submit(task)
        other = calls("hello_world", ["twice"], task_id=blockx.model.TaskId("the-same"))
        mismatch = await cluster.client.submit(other)
        assert (again.state, again.payload_mismatch) == (TaskState.SUCCEEDED, False)
        assert (mismatch.state, mismatch.payload_mismatch) == (TaskState.SUCCEEDED, True)
        kept = await cluster.client.result(task.task_id, worker_addr=again.worker_addr)
        assert kept.return_values() == first.return_values() == ["hello once"]


async def test_rows_are_written_once_and_unchanged_rows_are_counted() -> None:
    upsert = blockx.PluginConfig("TableUpsertsResultHandler", {"table": "tokens"})
    async with local_cluster(FUNCTIONS, tables=TABLES, executors=1) as cluster:
        rows = [["0xa", 2**256 - 1], ["0xb", 0]]
        first = await cluster.client.run(calls("token_row", *rows, handler=upsert))
        again = await cluster.client.run(calls("token_row", *rows, handler=upsert))
        assert json.loads(first.plugin_results[0].result)["written"] == 2
        assert json.loads(again.plugin_results[0].result)["written"] == 0
        assert json.loads(again.plugin_results[0].result)["unchanged"] == 2
        store = TableStore.open(cluster.database)
        assert store.show("tokens", 10) == [{"id": "0xa", "supply": 2**256 - 1}, {"id": "0xb", "supply": 0}]
        store.close()


async def test_functions_read_tables_and_calls_made_together_make_few_reads() -> None:
    upsert = blockx.PluginConfig("TableUpsertsResultHandler", {"table": "tokens"})
    async with local_cluster(FUNCTIONS, tables=TABLES, executors=2) as cluster:
        await cluster.client.run(calls("token_row", *[[f"0x{n}", n] for n in range(100)], handler=upsert))
        result = await cluster.client.run(calls("read_token", *[[f"0x{n}"] for n in range(100)], ["0xnone"]))
        assert result.return_values() == [*({"id": f"0x{n}", "supply": n} for n in range(100)), None]
        assert result.receipt.reads == 101


async def test_a_result_larger_than_a_message_arrives_whole() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("repeat", *[[letter, 1_000_000] for letter in "abcdef"]))
        assert result.return_values() == [letter * 1_000_000 for letter in "abcdef"]


async def test_the_time_of_a_task_is_bounded() -> None:
    async with local_cluster(FUNCTIONS, executors=1) as cluster:
        result = await cluster.client.run(calls("sleeps_for_ever", [], task_timeout_ms=300))
        assert result.failure_code is blockx.FailureCode.TIMED_OUT
        assert result.retryable
        assert (await cluster.client.run(calls("hello_world", ["you"]))).success


async def test_a_worker_that_drains_with_a_watch_open_ends_well() -> None:
    """A lease ends, which changes what the worker would tell the registry, while the watch on another is waited for."""
    env = {"DRAIN_LINGER_MS": "50", "COORDINATOR_SLOT_TTL_MS": "400", "WORKER_HEARTBEAT_INTERVAL": "10"}
    async with (
        local_cluster(FUNCTIONS, executors=1, env=env) as cluster,
        blockx.Client(workers=cluster.worker_addrs) as direct,
    ):
        addr, watched = cluster.worker_addrs[0], blockx.model.TaskId("watched")
        await direct.reserve(watched)
        await cluster.client.reserve(blockx.model.TaskId("short"))
        async with direct.watch([watched], worker_addr=addr) as updates:
            assert (await anext(updates)).state is TaskState.ALLOCATED
            cluster.parts.drain()
            await cluster.parts.ended.wait()
        assert cluster.parts.exit_codes == [0]


async def test_everything_of_a_cluster_ends_with_its_block() -> None:
    async with local_cluster(FUNCTIONS, executors=2) as cluster:
        pids = cluster.parts.workers[0].executor_pids()
        assert len(pids) >= 1
        directory = Path(cluster.database.removeprefix("sqlite:///")).parent
        assert await trio.Path(directory).exists()
    assert not await trio.Path(directory).exists()
    for pid in pids:
        assert not await trio.Path(f"/proc/{pid}").exists()
