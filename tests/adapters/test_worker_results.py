from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from blockx.errors import NotFound
from blockx.model import FailureCode, PluginResult, TaskId, TaskResult, TaskState
from blockx.worker.results import CHUNK_BYTES, ResultStore

TASK = TaskId("task/../1")


def store(directory: Path, heard: list[bool], spool_bytes: int = 1_000_000_000) -> ResultStore:
    return ResultStore(directory, inline_bytes=100, spool_bytes=spool_bytes, on_full=heard.append)


def result(*plugins: PluginResult) -> TaskResult:
    return TaskResult(state=TaskState.SUCCEEDED, plugin_results=plugins)


async def body(results: ResultStore, index: int = 0) -> bytes:
    chunks: list[bytes] = []

    async def send(chunk: bytes) -> None:
        chunks.append(chunk)

    await results.copy(TASK, index, send)
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    return b"".join(chunks)


async def test_a_small_result_stays_in_memory(tmp_path: Path) -> None:
    results = store(tmp_path, [])
    await results.put(TASK, (PluginResult("P", True, "", b"[1]"),))
    results.keep(TASK, result(*results.take(TASK)))
    assert list(tmp_path.iterdir()) == []
    assert await body(results) == b"[1]"
    kept = results.get(TASK)
    assert kept is not None
    assert (kept.body_bytes, kept.spooled) == (3, False)


async def test_a_large_result_lies_in_a_file_until_it_is_purged(tmp_path: Path) -> None:
    results = store(tmp_path, [])
    large = b"x" * (2 * CHUNK_BYTES + 5)
    await results.put(TASK, (PluginResult("P", True, "", large), PluginResult("Q", True, "", b"{}")))
    plugins = results.take(TASK)
    assert [plugin.result for plugin in plugins] == [b"", b""]
    results.keep(TASK, result(*plugins))
    assert [results.is_last(TASK, index) for index in (0, 1)] == [False, True]
    assert await body(results) == large
    assert await body(results, 1) == b"{}"
    kept = results.get(TASK)
    assert kept is not None
    assert (kept.body_bytes, kept.spooled) == (len(large) + 2, True)
    results.purge(TASK)
    assert list(tmp_path.iterdir()) == []
    assert results.get(TASK) is None


async def test_a_task_that_failed_after_spooling_leaves_no_file(tmp_path: Path) -> None:
    results = store(tmp_path, [])
    await results.put(TASK, (PluginResult("P", True, "", b"x" * 101),))
    results.keep(TASK, TaskResult(state=TaskState.FAILED, failure_code=FailureCode.TIMED_OUT))
    assert list(tmp_path.iterdir()) == []


async def test_a_full_spool_is_told_once_and_again_when_there_is_room(tmp_path: Path) -> None:
    heard: list[bool] = []
    results = store(tmp_path, heard, spool_bytes=300)
    for number in range(3):
        await results.put(TaskId(f"{number}"), (PluginResult("P", True, "", b"x" * 150),))
    assert heard == [True]
    results.purge(TaskId("0"))
    results.purge(TaskId("1"))
    assert heard == [True, False]


@pytest.mark.parametrize("index", [-1, 1])
async def test_an_unknown_result_is_not_found(tmp_path: Path, index: int) -> None:
    results = store(tmp_path, [])
    results.keep(TASK, result(PluginResult("P", True, "", b"[]")))
    with pytest.raises(NotFound, match=f"no plugin result {index}"):
        await body(results, index)
    with pytest.raises(NotFound):
        await results.copy(TaskId("other"), 0, None)  # type: ignore[arg-type]  # nothing is sent


async def test_a_task_that_ends_while_its_result_is_being_written_leaves_no_file(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    results = store(tmp_path, [])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(results.put, TASK, (PluginResult("P", True, "", b"x" * 50_000_000),))
        await trio.testing.wait_all_tasks_blocked()
        assert results.used_bytes == 50_000_000
        results.keep(TASK, TaskResult(state=TaskState.FAILED, failure_code=FailureCode.TIMED_OUT))
    assert list(tmp_path.iterdir()) == []
    assert results.used_bytes == 0


async def test_a_result_that_is_purged_before_it_is_read_is_not_found(tmp_path: Path) -> None:
    results = store(tmp_path, [])
    await results.put(TASK, (PluginResult("P", True, "", b"x" * 101),))
    results.keep(TASK, result(*results.take(TASK)))
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(NotFound, match="is gone"):
        await body(results)
