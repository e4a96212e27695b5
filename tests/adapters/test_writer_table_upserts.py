"""TableUpsertsResultHandler: the outputs are rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blockx.errors import CommitRefused, PluginError, ReadError
from blockx.plugins import ActivationCheck
from blockx.worker.io.scope import TaskScope
from blockx.worker.writers import load_writers
from tests.cancelling import cancel_at_every_checkpoint
from tests.doubles_io import WatchedTables, make_context, make_scope, make_tables, outputs_of

ANN, BOB = {"owner": "ann", "amount": 1}, {"owner": "bob", "amount": 2}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[WatchedTables]:
    watched = WatchedTables(make_tables(tmp_path))
    yield watched
    watched.close()


def transfer(idx: int, block_id: str = "0x1") -> dict[str, Any]:
    return {"block_id": block_id, "idx": idx, "value": idx}


async def run(scope: TaskScope, config: dict[str, Any], *values: Any) -> dict[str, Any]:
    """The result JSON of the writer."""
    writer = load_writers().create("TableUpsertsResultHandler", json.dumps(config))
    async with scope:
        (result,) = await writer.execute(make_context(), outputs_of(*values), scope.writer_io)
    assert (result.plugin_name, result.success, result.failure_code) == ("TableUpsertsResultHandler", True, "")
    report: dict[str, Any] = json.loads(result.result)
    return report


def counts(**given: int) -> dict[str, int]:
    return {"written": 0, "unchanged": 0, "deleted": 0, "duplicates": 0, **given}


async def test_outputs_are_rows_lists_of_rows_or_null(tables: WatchedTables) -> None:
    report = await run(make_scope(tables), {"table": "balances"}, ANN, [BOB, {"owner": "eve"}], None, [])
    assert report == {**counts(written=3), "skipped": 1, "tables": {"balances": counts(written=3)}}
    assert tables.rows("balances") == [ANN, BOB, {"owner": "eve", "amount": None}]


async def test_the_same_rows_again_are_unchanged(tables: WatchedTables) -> None:
    await run(make_scope(tables), {"table": "balances"}, ANN, BOB)
    report = await run(make_scope(tables), {"table": "balances"}, ANN, {**BOB, "amount": 3})
    assert report["tables"]["balances"] == counts(written=1, unchanged=1)


async def test_of_rows_with_one_key_the_last_in_call_order_wins_and_is_counted(tables: WatchedTables) -> None:
    outputs = [ANN, [{**ANN, "amount": 5}, {**ANN, "amount": "6"}], BOB]
    report = await run(make_scope(tables), {"table": "balances"}, *outputs)
    assert report["tables"]["balances"] == counts(written=2, duplicates=2)
    assert tables.rows("balances") == [{**ANN, "amount": 6}, BOB]


async def test_several_tables_are_written_together(tables: WatchedTables) -> None:
    outputs = [{"balances": ANN, "transfers": [transfer(0), transfer(1)]}, {"balances": [BOB]}, None, {}]
    report = await run(make_scope(tables), {"tables": ["transfers", "balances"]}, *outputs)
    assert report["written"] == 4
    assert report["tables"] == {"transfers": counts(written=2), "balances": counts(written=2)}
    assert report["skipped"] == 1


@pytest.mark.parametrize("outputs", [[], [None, None]])
async def test_without_rows_nothing_is_written(tables: WatchedTables, outputs: list[Any]) -> None:
    report = await run(make_scope(tables), {"table": "balances"}, *outputs)
    assert report == {**counts(), "skipped": len(outputs), "tables": {"balances": counts()}}
    assert tables.writes == 0


async def test_replace_leaves_no_tail_of_a_longer_block(tables: WatchedTables) -> None:
    tables.put("transfers", *map(transfer, range(4)), transfer(0, "0x2"))
    config = {"table": "transfers", "replace": {"block_id": "0x1"}}
    report = await run(make_scope(tables), config, transfer(0), transfer(9))
    assert report["tables"]["transfers"] == counts(written=1, unchanged=1, deleted=3)
    assert tables.rows("transfers") == [transfer(0), transfer(9), transfer(0, "0x2")]


async def test_replace_without_any_row_empties_the_scope(tables: WatchedTables) -> None:
    tables.put("transfers", transfer(0), transfer(0, "0x2"))
    report = await run(make_scope(tables), {"table": "transfers", "replace": {"block_id": "0x1"}}, None)
    assert report["deleted"] == 1
    assert tables.rows("transfers") == [transfer(0, "0x2")]


@pytest.mark.parametrize("block_id", ["0x2", "0x1 "])
async def test_a_row_outside_of_the_scope_fails_the_task_and_nothing_is_written(
    tables: WatchedTables, block_id: str
) -> None:
    tables.put("transfers", transfer(5))
    outputs = [transfer(0), [transfer(1), transfer(2, block_id)]]
    message = (
        f"^the output of call 1 does not fit: row 1 for table 'transfers': column 'block_id' must be '0x1', "
        f"as in replace, not '{block_id}'$"
    )
    with pytest.raises(PluginError, match=message) as caught:
        await run(make_scope(tables), {"table": "transfers", "replace": {"block_id": "0x1"}}, *outputs)
    assert not caught.value.retryable
    assert tables.rows("transfers") == [transfer(5)]


async def test_a_scope_and_its_rows_may_spell_a_value_differently(tables: WatchedTables) -> None:
    tables.put("balances", {"owner": "old", "amount": 16}, {"owner": "none", "amount": None})
    report = await run(make_scope(tables), {"table": "balances", "replace": {"amount": "0x10"}}, {**ANN, "amount": 16})
    assert report["tables"]["balances"] == counts(written=1, deleted=1)
    await run(make_scope(tables), {"table": "balances", "replace": {"amount": None}}, {"owner": "bob"})
    assert tables.rows("balances") == [{**ANN, "amount": 16}, {"owner": "bob", "amount": None}]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            {"owner": "eve", "amount": -1},
            "the output of call 1 does not fit: row 0 for table 'balances': column 'amount'",
        ),
        ({"owner": "eve", "amont": 1}, r"call 1 does not fit: .* unknown column 'amont' \(did you mean 'amount'\?\)"),
        ([BOB, {"amount": 1}], "call 1 does not fit: row 1 .* column 'owner' is required"),
        pytest.param(1 << 40_000_000, r"not an integer of 40000001 bits \(int\)", id="huge"),
        ("hello", r"the output of call 1 must be a row, a list of rows or null, not 'hello' \(str\)"),
        ([ANN, None], r"the output of call 1 has None \(NoneType\) at place 1, where a row must be"),
    ],
)
async def test_a_row_that_does_not_fit_fails_the_task_and_nothing_is_written(
    tables: WatchedTables, bad: Any, message: str
) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        await run(make_scope(tables), {"table": "balances"}, ANN, bad, BOB)
    assert not caught.value.retryable
    assert tables.rows("balances") == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([ANN], r"call 0 must be \{table: rows\} or null, not \[\{'owner': 'ann'"),
        ({"balance": ANN}, r"call 0 names 'balance', which is none of tables \(did you mean 'balances'\?\)"),
        ({"balances": 3}, r"call 0 must be a row, a list of rows or null, not 3 \(int\)"),
    ],
)
async def test_with_tables_an_output_names_its_tables(tables: WatchedTables, bad: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        await run(make_scope(tables), {"tables": ["balances"]}, bad)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "name either table .* or tables"),
        ({"table": "a", "tables": ["a"]}, "name either table .* or tables"),
        ({"tables": []}, "tables must name at least one table"),
        ({"tables": ["a", "a"]}, "none twice"),
        ({"table": "a", "replace": {}}, "replace must name at least one column"),
        ({"table": "a", "publish": {"topic": "t"}}, "publish is not supported by this version"),
        ({"tabel": "a"}, r"unknown key 'tabel' \(did you mean 'table'\?\)"),
        ({"table": ["a"]}, r"config.table: expected a text or null, got \['a'\]"),
    ],
)
def test_a_bad_config_is_refused_before_anything_runs(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        load_writers().create("TableUpsertsResultHandler", json.dumps(config))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"table": "balance"}, r"there is no table 'balance' \(did you mean 'balances'\?\)"),
        ({"tables": ["balances", "x"]}, "there is no table 'x'"),
        ({"table": "transfers", "replace": {"block": 1}}, r"table 'transfers' has no column 'block' \(did you mean"),
    ],
)
async def test_the_check_at_activation_finds_missing_tables_and_columns(
    tables: WatchedTables, config: dict[str, Any], message: str
) -> None:
    writer = load_writers().create("TableUpsertsResultHandler", json.dumps(config))
    assert isinstance(writer, ActivationCheck)
    async with make_scope(tables) as scope:
        with pytest.raises((PluginError, ReadError), match=message):
            await writer.check(scope.writer_io)


async def test_the_check_passes_what_can_be_written(tables: WatchedTables) -> None:
    config = {"tables": ["transfers"], "replace": {"block_id": "0x1"}}
    writer = load_writers().create("TableUpsertsResultHandler", json.dumps(config))
    assert isinstance(writer, ActivationCheck)
    async with make_scope(tables) as scope:
        await writer.check(scope.writer_io)


async def test_a_refused_commit_is_told_as_such_and_nothing_is_written(tables: WatchedTables) -> None:
    def refuse() -> None:
        raise CommitRefused("the task has timed out")

    with pytest.raises(CommitRefused):
        await run(make_scope(tables, begin_commit=refuse), {"table": "balances"}, ANN)
    assert tables.rows("balances") == []


async def test_cancelled_at_any_checkpoint_all_rows_are_there_or_none(tables: WatchedTables) -> None:
    scopes: list[TaskScope] = []

    async def work(step: int) -> None:
        scopes.append(make_scope(tables))
        await run(scopes[-1], {"table": "transfers"}, *(transfer(idx, f"0x{step}") for idx in range(1_200)))

    def check(step: int) -> None:
        written = [row for row in tables.rows("transfers") if row["block_id"] == f"0x{step}"]
        assert len(written) == (1_200 if scopes[-1].committed else 0)

    assert await cancel_at_every_checkpoint(work, check) > 3
