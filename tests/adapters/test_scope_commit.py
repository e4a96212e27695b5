"""The one write of a task, and the point at which it may happen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from blockx.errors import CommitRefused, PluginError
from blockx.plugins import WriterIO
from blockx.worker.io.scope import TaskScope
from tests.cancelling import cancel_at_every_checkpoint
from tests.doubles_io import WatchedTables, make_scope, make_tables

ROW = {"owner": "ann", "amount": 1}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[WatchedTables]:
    watched = WatchedTables(make_tables(tmp_path))
    yield watched
    watched.close()


async def write(io: WriterIO, *rows: dict[str, Any], call: int | None = None) -> dict[str, dict[str, int]]:
    async with io.transaction() as transaction:
        transaction.upsert("balances", rows, call=call)
    return transaction.counts


async def fail_in_the_middle(io: WriterIO) -> None:
    async with io.transaction() as transaction:
        transaction.upsert("balances", [ROW])
        raise LookupError


async def test_rows_are_there_after_the_block_and_counted(tables: WatchedTables) -> None:
    tables.put("balances", ROW, {"owner": "old", "amount": 9})
    async with make_scope(tables) as scope:
        async with scope.writer_io.transaction() as transaction:
            transaction.upsert("balances", [ROW, {"owner": "bob", "amount": 1}])
            transaction.upsert("balances", [{"owner": "bob", "amount": 2}])
            transaction.delete("balances", ["old"])
            assert tables.rows("balances") == [ROW, {"owner": "old", "amount": 9}]
        assert transaction.counts == {"balances": {"written": 1, "unchanged": 1, "deleted": 1, "duplicates": 1}}
        assert scope.committed
    assert tables.rows("balances") == [ROW, {"owner": "bob", "amount": 2}]


async def test_an_exception_inside_of_the_block_writes_nothing(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        with pytest.raises(LookupError):
            await fail_in_the_middle(scope.writer_io)
        assert not scope.committed
    assert tables.writes == 0


async def test_a_refused_commit_writes_nothing(tables: WatchedTables) -> None:
    def refuse() -> None:
        raise CommitRefused("the task has timed out")

    async with make_scope(tables, begin_commit=refuse) as scope:
        with pytest.raises(CommitRefused, match="timed out"):
            await write(scope.writer_io, ROW)
        assert not scope.committed
    assert tables.rows("balances") == []


async def test_a_task_cancelled_while_its_commit_is_granted_is_known_as_committed(tables: WatchedTables) -> None:
    with trio.CancelScope() as task:
        async with make_scope(tables, begin_commit=task.cancel) as scope:
            counts = await write(scope.writer_io, ROW)
            assert counts["balances"]["written"] == 1  # no checkpoint since the commit, so the writer can still report
            await trio.lowlevel.checkpoint()
    assert task.cancelled_caught
    assert scope.committed
    assert tables.rows("balances") == [ROW]


async def test_the_commit_is_asked_for_in_the_trio_thread(tables: WatchedTables) -> None:
    tasks: list[str] = []
    async with make_scope(tables, begin_commit=lambda: tasks.append(str(trio.current_time()))) as scope:
        await write(scope.writer_io, ROW)
    assert len(tasks) == 1


async def test_a_second_transaction_is_refused(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        await write(scope.writer_io, ROW)
        with pytest.raises(PluginError, match="one transaction"):
            await write(scope.writer_io, ROW)
    assert tables.writes == 1


async def test_nothing_can_be_added_after_the_block(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        async with scope.writer_io.transaction() as transaction:
            transaction.upsert("balances", [ROW])
        with pytest.raises(PluginError, match="the transaction is over"):
            transaction.upsert("balances", [ROW])
        with pytest.raises(PluginError, match="the transaction is over"):
            transaction.delete("balances", ["ann"])


async def test_an_empty_transaction_asks_for_no_commit(tables: WatchedTables) -> None:
    asked: list[int] = []
    async with make_scope(tables, begin_commit=lambda: asked.append(1)) as scope:
        async with scope.writer_io.transaction() as transaction:
            pass
    assert (asked, tables.writes, scope.committed, transaction.counts) == ([], 0, False, {})


async def test_a_transaction_left_after_the_task_ended_writes_nothing(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        transaction = scope.writer_io.transaction()
        (await transaction.__aenter__()).upsert("balances", [ROW])
    with pytest.raises(PluginError, match="the task has ended"):
        await transaction.__aexit__(None, None, None)
    assert tables.writes == 0


async def test_a_worker_without_tables_says_so() -> None:
    async with make_scope() as scope:
        with pytest.raises(PluginError, match="--database URL") as caught:
            await write(scope.writer_io, ROW)
    assert not caught.value.retryable


async def test_a_write_that_may_succeed_later_is_tried_again_under_one_grant(
    tables: WatchedTables, autojump_clock: MockClock
) -> None:
    asked: list[int] = []
    tables.errors = [PluginError("database is locked", retryable=True)] * 4
    async with make_scope(tables, begin_commit=lambda: asked.append(1)) as scope:
        await write(scope.writer_io, ROW)
    assert (tables.writes, asked, tables.rows("balances")) == (5, [1], [ROW])


async def test_a_write_that_keeps_failing_is_a_retryable_plugin_error(
    tables: WatchedTables, autojump_clock: MockClock
) -> None:
    tables.errors = [PluginError("database is locked", retryable=True)] * 5
    async with make_scope(tables) as scope:
        with pytest.raises(PluginError, match="locked") as caught:
            await write(scope.writer_io, ROW)
    assert caught.value.retryable
    assert not scope.committed


async def test_a_commit_that_failed_after_its_grant_is_asked_for_again(
    tables: WatchedTables, autojump_clock: MockClock
) -> None:
    asked: list[int] = []
    tables.commit_errors = [PluginError("the commit was aborted", retryable=True)]
    async with make_scope(tables, begin_commit=lambda: asked.append(1)) as scope:
        await write(scope.writer_io, ROW)
    assert (asked, tables.writes, scope.committed) == ([1, 1], 2, True)


async def test_a_commit_that_is_refused_when_asked_for_again_ends_the_attempts_with_nothing_written(
    tables: WatchedTables, autojump_clock: MockClock
) -> None:
    asked: list[int] = []

    def grant_once() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise CommitRefused("the task has timed out")

    tables.commit_errors = [PluginError("the commit was aborted", retryable=True)]
    async with make_scope(tables, begin_commit=grant_once) as scope:
        with pytest.raises(CommitRefused, match="timed out"):
            await write(scope.writer_io, ROW)
        assert not scope.committed
    assert (asked, tables.writes, tables.rows("balances")) == ([1, 1], 2, [])


async def test_a_row_that_does_not_fit_names_its_call_and_nothing_is_written(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        transaction = scope.writer_io.transaction()
        collected = await transaction.__aenter__()
        collected.upsert("transfers", [{"block_id": "0x1", "idx": 0, "value": 1}], call=0)
        collected.upsert("balances", [ROW], call=3)
        collected.upsert("balances", [{"owner": "bob"}, {"owner": "eve", "amount": -1}], call=4)
        collected.upsert("balances", [ROW], call=5)
        with pytest.raises(PluginError) as caught:
            await transaction.__aexit__(None, None, None)
    assert str(caught.value).startswith(
        "the output of call 4 does not fit: row 1 for table 'balances': column 'amount'"
    )
    assert "-1" in str(caught.value)
    assert not caught.value.retryable
    assert tables.rows("transfers") == tables.rows("balances") == []


async def test_a_row_that_came_from_no_call_is_named_by_its_place(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        with pytest.raises(PluginError, match=r"^row 1 for table 'balances': column 'owner' is required"):
            await write(scope.writer_io, ROW, {"amount": 1})


async def test_an_unknown_table_is_named_with_the_nearest(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        with pytest.raises(PluginError, match=r"no table 'balanses' \(did you mean 'balances'"):
            async with scope.writer_io.transaction() as transaction:
                transaction.upsert("balanses", [ROW])


async def test_two_replace_scopes_for_one_table_are_refused(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        async with scope.writer_io.transaction() as transaction:
            transaction.upsert("transfers", [], {"block_id": "0x1"})
            with pytest.raises(PluginError, match="two different replace scopes"):
                transaction.upsert("transfers", [], {"block_id": "0x2"})


async def test_one_task_writes_at_a_time(tables: WatchedTables) -> None:
    async with make_scope(tables) as first:
        second = TaskScope(first.backends, first.limits, lambda: None, lambda: 1.0)
        running: list[int] = []
        first.begin_commit = second.begin_commit = lambda: running.append(first.backends.table_writer.borrowed_tokens)
        async with second, trio.open_nursery() as nursery:
            nursery.start_soon(write, first.writer_io, ROW)
            nursery.start_soon(write, second.writer_io, {"owner": "bob", "amount": 2})
    assert running == [1, 1]
    assert len(tables.rows("balances")) == 2


async def test_a_task_cancelled_at_any_checkpoint_knows_whether_it_has_written(tables: WatchedTables) -> None:
    scopes: list[TaskScope] = []
    outcomes: set[bool] = set()

    async def work(step: int) -> None:
        scope = make_scope(tables)
        scopes.append(scope)
        async with scope:
            await scope.writer_io.get("balances", f"o{step}")
            await write(scope.writer_io, {"owner": f"o{step}", "amount": step})
            await trio.lowlevel.checkpoint()

    def check(step: int) -> None:
        written = any(row["owner"] == f"o{step}" for row in tables.rows("balances"))
        assert scopes[-1].committed is written
        outcomes.add(written)

    await cancel_at_every_checkpoint(work, check)
    assert outcomes == {False, True}
