from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import trio

from blockx import BlockContext, Context, ReadError, function
from blockx.errors import UnserializableValue
from blockx.testing import run

TOKENS: dict[str, dict[str, Any]] = {
    "0xa": {"id": "0xa", "symbol": "A", "n": 1},
    "0xb": {"id": "0xb", "symbol": "B", "n": 3},
    "0xc": {"id": "0xc", "symbol": "A", "n": None},
}
BUNDLE = {"chain_id": 1, "block": {"id": "0xab", "height": 7}, "txs": []}


@function
async def get(ctx: Context, key: Any, columns: list[str] | None = None) -> Any:
    return await ctx.tables["tokens"].get(key, columns)


@function
async def scan(ctx: Context, where: Any, order: Any = (), limit: Any = None) -> list[str]:
    return [row["id"] for row in await ctx.tables["tokens"].scan(where, order, limit)]


@function
async def bundle(ctx: Context, chain_id: int, block: Any) -> Any:
    return await ctx.bundles.get(chain_id, block)


@function
def plain(a: int, *, b: int = 2) -> tuple[int, int]:
    return a, b


async def test_a_plain_function_runs_without_anything() -> None:
    assert await run(plain, 1) == (1, 2)
    assert await run(plain, 1, kwargs={"b": 5}) == (1, 5)


async def test_a_function_sees_the_block_and_the_attempt_it_is_given() -> None:
    @function
    def where(ctx: Context) -> list[Any]:
        assert ctx.block is not None
        return [ctx.block.height, ctx.attempt, ctx.call_index, ctx.task_id]

    assert await run(where, block=BlockContext(1, "0xab", 7, "0xaa", 0), attempt=2) == [7, 2, 0, "test"]


async def test_rows_are_read_by_key() -> None:
    assert await run(get, "0xa", tables={"tokens": TOKENS}) == TOKENS["0xa"]
    assert await run(get, "0xz", tables={"tokens": TOKENS}) is None
    assert await run(get, "0xa", ["n"], tables={"tokens": TOKENS}) == {"n": 1}
    assert await run(get, ("0xa", 1), tables={"tokens": {("0xa", 1): {"v": 2}}}) == {"v": 2}


async def test_a_row_that_was_read_can_be_changed_without_harm() -> None:
    @function
    async def change(ctx: Context) -> None:
        row = await ctx.tables["tokens"].get("0xa")
        assert row is not None
        row["n"] = 99

    await run(change, tables={"tokens": TOKENS})
    assert TOKENS["0xa"]["n"] == 1


@pytest.mark.parametrize(
    ("where", "order", "limit", "ids"),
    [
        ([], [], None, ["0xa", "0xb", "0xc"]),
        ([["symbol", "=", "A"]], [], None, ["0xa", "0xc"]),
        ([["symbol", "!=", "A"]], [], None, ["0xb"]),
        ([["n", ">", 1]], [], None, ["0xb"]),
        ([["n", ">=", 1], ["n", "<", 3]], [], None, ["0xa"]),
        ([["n", "<=", 3]], ["-n"], None, ["0xb", "0xa"]),
        ([["n", "in", [1, 2]]], [], None, ["0xa"]),
        ([["n", "not_in", [1, 2]]], [], None, ["0xb"]),
        ([["n", "is_null"]], [], None, ["0xc"]),
        ([["n", "is_null", False]], [], None, ["0xa", "0xb"]),
        ([], ["symbol", "-id"], None, ["0xc", "0xa", "0xb"]),
        ([], ["-n"], 1, ["0xb"]),
        (None, None, None, ["0xa", "0xb", "0xc"]),
    ],
)
async def test_rows_are_found_by_filters(where: Any, order: Any, limit: Any, ids: list[str]) -> None:
    assert await run(scan, where, order, limit, tables={"tokens": TOKENS}) == ids


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ([["symbl", "=", "A"]], "has no column 'symbl' \\(did you mean 'symbol'\\?\\)"),
        ([["n", "==", 1]], r"where\[0\] has an unknown operator '=='"),
        ([["n", "=", None]], "needs a value; for null use is_null"),
        ([["n", "="]], "needs a value"),
        ([["n"]], r"where\[0\] must be \[name, operator, value\]"),
    ],
)
async def test_a_filter_that_is_wrong_is_told(where: Any, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        await run(scan, where, tables={"tokens": TOKENS})


async def test_rows_may_be_given_as_a_list_whose_first_columns_are_the_keys() -> None:
    tokens = [{"id": "0xa", "symbol": "A"}, {"id": "0xb", "symbol": "B"}]
    assert await run(get, "0xb", tables={"tokens": tokens}) == {"id": "0xb", "symbol": "B"}
    assert await run(get, "0xc", tables={"tokens": tokens}) is None
    assert await run(get, ("0xa", "A"), tables={"tokens": tokens}) == {"id": "0xa", "symbol": "A"}
    assert await run(scan, [["symbol", "=", "B"]], tables={"tokens": tokens}) == ["0xb"]


@pytest.mark.parametrize(
    ("column", "sign", "value", "found"),
    [
        ("amount", ">", "0", True),
        ("amount", "=", "0xa", True),
        ("amount", "in", ["7", 10], True),
        ("exact", "<", "1.6", True),
        ("exact", ">", 2, False),
        ("owner", "=", "0xab", True),
        ("moment", "<=", "2024-01-01T01:00:00+01:00", True),
        ("note", "=", "0XAB", False),
    ],
)
async def test_a_filters_value_may_be_a_text_as_for_a_table(column: str, sign: str, value: Any, found: bool) -> None:
    row = {
        "id": 1,
        "amount": 10,
        "exact": Decimal("1.5"),
        "owner": b"\xab",
        "moment": datetime(2024, 1, 1, tzinfo=UTC),
        "note": "0xab",
    }
    assert await run(scan, [[column, sign, value]], tables={"tokens": {1: row}}) == ([1] if found else [])


@pytest.mark.parametrize(("column", "value"), [("n", "many"), ("n", True), ("symbol", 5), ("id", ["0xa"])])
async def test_a_filters_value_that_cannot_be_compared_is_told(column: str, value: Any) -> None:
    with pytest.raises(ReadError, match=f"table 'tokens', column '{column}' is .* and cannot be compared with"):
        await run(scan, [[column, "=", value]], tables={"tokens": TOKENS})


async def test_an_order_by_an_unknown_column_is_told() -> None:
    with pytest.raises(ReadError, match="has no column 'm'"):
        await run(scan, [], ["m"], tables={"tokens": TOKENS})


async def test_bundles_are_read_by_id_and_by_height() -> None:
    assert await run(bundle, 1, "0xab", bundles=[BUNDLE]) == BUNDLE
    assert await run(bundle, 1, 7, bundles=[BUNDLE]) == BUNDLE
    with pytest.raises(ReadError, match="no bundle of block 7 of chain 2"):
        await run(bundle, 2, 7, bundles=[BUNDLE])


async def test_a_table_that_was_not_given_is_told() -> None:
    with pytest.raises(ReadError, match="there is no table 'tokens'; give it to run"):
        await run(get, "0xa")


async def test_what_cannot_cross_processes_is_found() -> None:
    @function
    def lock() -> Any:
        return [threading.Lock()]

    with pytest.raises(UnserializableValue, match=r"value\[0\]\[0\]: a _thread.lock"):
        await run(plain, threading.Lock())
    with pytest.raises(UnserializableValue, match=r"value\[0\]: a _thread.lock"):
        await run(lock)


async def test_arguments_that_do_not_fit_and_functions_that_are_not_marked_are_refused() -> None:
    with pytest.raises(TypeError, match="the signature is plain"):
        await run(plain)
    with pytest.raises(TypeError, match="not marked with @function"):
        await run(len, [])


async def test_an_exception_of_the_function_comes_through() -> None:
    @function
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await run(fail)


async def test_what_a_function_logs_goes_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    @function
    def tell(ctx: Context) -> None:
        ctx.log.warning("%d%%", 5)
        ctx.log.error("seen", height=7, message="m", note="two words")

    with caplog.at_level(logging.WARNING):
        await run(tell)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "5%"),
        ("ERROR", "seen height=7 message=m note='two words'"),
    ]
