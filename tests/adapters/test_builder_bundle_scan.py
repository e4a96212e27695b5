"""BlockBundleCallConfig: one call for each item of the named bundles."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from blockx.errors import PluginError, ReadError
from blockx.model import BlockContext
from blockx.plugins import IO, CallList, TaskContext
from blockx.store.bundles import BundleStore
from blockx.worker.builders import load_builders
from tests.doubles_io import calls_of, make_context, make_scope

TOKEN, OTHER = "0x" + "aa" * 20, "0x" + "bb" * 20
TRANSFER, APPROVAL = "0xdd", "0x8c"


def context(height: int, branch: str = "a") -> BlockContext:
    return BlockContext(
        1, f"0x{branch}{height}", height, f"0x{branch}{height - 1:x}" if height else "0x0", 1_000 + height
    )


def event(idx: int, token: str = TOKEN, *topics: str) -> dict[str, Any]:
    return {"idx": idx, "tx_id": "0x1", "contract_id": token, "topics": [TRANSFER, *topics], "data": "0x"}


def put(
    store: BundleStore, height: int, *events: dict[str, Any], branch: str = "a", chain_id: int = 1, **more: Any
) -> None:
    block = context(height, branch)
    header = {"id": block.id, "height": height, "parent_id": block.parent_id, "timestamp": hex(block.timestamp)}
    store.put({"chain_id": chain_id, "block": header, "txs": [], "events": list(events), **more})


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    bundles = BundleStore.open(str(tmp_path / "bundles"))
    put(bundles, 1, event(0), event(1, OTHER, "0xF00"), event(2, TOKEN, "0xf00"))
    put(bundles, 2)
    put(bundles, 3, event(7))
    return bundles


async def build(store: BundleStore, ctx: TaskContext | None = None, **config: Any) -> CallList:
    full = {"chainId": 1, "source": "events", "function": "f", **config}
    builder = load_builders().create("BlockBundleCallConfig", json.dumps(full))
    async with make_scope(bundles=store) as scope:
        return await builder.build(ctx or make_context(), scope.builder_io)


async def items(store: BundleStore, **config: Any) -> list[Any]:
    return [args[0] for _, args, _, _ in calls_of(await build(store, **config))]


async def idxs(store: BundleStore, *where: Any) -> list[int]:
    return [item["idx"] for item in await items(store, blocks=[1, 3], where=list(where))]


async def test_each_item_is_a_call_as_of_its_block(store: BundleStore) -> None:
    calls = list(calls_of(await build(store, blocks={"from": 1, "to": 3})))
    assert calls == [
        ("f", [event(0)], {}, context(1)),
        ("f", [event(1, OTHER, "0xF00")], {}, context(1)),
        ("f", [event(2, TOKEN, "0xf00")], {}, context(1)),
        ("f", [event(7)], {}, context(3)),
    ]


async def test_blocks_are_named_by_id_or_height_in_the_order_given(store: BundleStore) -> None:
    calls = await build(store, blocks=["0xA3", 1])
    assert [block and block.height for _, _, _, block in calls_of(calls)] == [3, 1, 1, 1]


async def test_every_scanned_block_is_noted_also_one_without_calls(store: BundleStore) -> None:
    ctx = make_context()
    await build(store, ctx, blocks={"from": 1, "to": 3}, where=[["idx", "=", 7]])
    assert ctx.scanned_blocks == [context(1), context(2), context(3)]


async def test_no_blocks_are_no_calls(store: BundleStore) -> None:
    assert len(await build(store, blocks=[])) == 0


async def test_a_batch_is_one_list_of_items_of_one_block(store: BundleStore) -> None:
    batches = await items(store, blocks=[1, 2, 3], batchSize=2)
    assert [[item["idx"] for item in batch] for batch in batches] == [[0, 1], [2], [7]]


async def test_the_header_is_one_item_with_numbers_as_int(store: BundleStore) -> None:
    (header,) = await items(store, blocks=[3], source="block")
    assert header == {"id": "0xa3", "height": 3, "parent_id": "0xa2", "timestamp": 1_003}


async def test_traces_and_failed_ones_can_be_scanned(store: BundleStore) -> None:
    trace = {"tx_id": "0x1", "from_addr": TOKEN, "to_addr": None, "value": str(2**200), "error": None}
    put(store, 4, traces=[trace], error_traces=[{**trace, "error": "reverted"}], error_events=[event(3)])
    assert await items(store, blocks=[4], source="traces") == [{**trace, "value": 2**200}]
    assert [item["error"] for item in await items(store, blocks=[4], source="error_traces")] == ["reverted"]
    assert await items(store, blocks=[4], source="error_events") == [event(3)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([], [0, 1, 2, 7]),
        ([["contract_id", "=", OTHER]], [1]),
        ([["contract_id", "=", OTHER.upper().replace("X", "x")]], [1]),
        ([["contract_id", "!=", OTHER]], [0, 2, 7]),
        ([["contract_id", "in", [OTHER.upper(), "0x00"]]], [1]),
        ([["contract_id", "not_in", [OTHER]]], [0, 2, 7]),
        ([["idx", ">", 1]], [2, 7]),
        ([["idx", ">=", "2"]], [2, 7]),
        ([["idx", "<", "0x2"]], [0, 1]),
        ([["idx", "<=", 1], ["contract_id", "=", TOKEN]], [0]),
        ([["idx", "in", ["7", 0]]], [0, 7]),
        ([["idx", "in", []]], []),
        ([["topics.1", "=", "0xf00"]], [1, 2]),
        ([["topics.1", "!=", "0xf00"]], []),
        ([["topics.1", "is_null"]], [0, 7]),
        ([["topics.1", "is_null", False]], [1, 2]),
        ([["topics." + "1" * 5_000, "is_null"]], [0, 1, 2, 7]),
        ([["topics.1" + ".1" * 14, "is_null"]], [0, 1, 2, 7]),
        ([["idx", "in", [*range(2, 10_001)]]], [2, 7]),
    ],
)
async def test_filters_choose_items_as_a_table_scan_would(
    store: BundleStore, where: list[Any], expected: list[int]
) -> None:
    assert await idxs(store, *where) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["idx"], r"where\[0\] must be \[name, operator, value\], not 'idx'"),
        ([["idx", "=", 1], ["idx", "==", 1]], r"where\[1\] has an unknown operator '==' \(did you mean '='\?\)"),
        ([["idx", "="]], r"where\[0\]: = needs a value; for null use is_null"),
        ([["idx", "=", None]], r"where\[0\]: = needs a value"),
        ([["idx", "in", 1]], r"where\[0\]: in takes a list of values, not 1"),
        ([["idx", "is_null", 1]], r"where\[0\]: is_null takes true or false, not 1"),
        (
            [["contract", "=", TOKEN]],
            r"where: no item of events has a field 'contract' \(did you mean 'contract_id'\?\)",
        ),
        ([["idx", "=", "one"]], "where: idx is a whole number and cannot be compared with 'one'"),
        ([["idx", "=", True]], "where: idx is a whole number and cannot be compared with True"),
        ([["contract_id", "=", 5]], "where: contract_id is a text and cannot be compared with 5"),
        ([["idx", "=", "9" * 201]], "where: idx is a whole number and cannot be compared with '999"),
        ([["idx", "=", 1]] * 101, "where has 101 filters, at most 100 are allowed"),
        ([["idx", "in", [1] * 6_000]] * 2, "where has 12002 values, at most 10000 are allowed"),
        ([["a" + ".b" * 16, "=", 1]], r"where\[0\]: 'a.b.b.* has more than 16 steps"),
        ([["topics", "=", "0x1"]], r"where: topics is \['0xdd'\]; filter by a part of it \(topics\.…\)"),
    ],
)
async def test_a_bad_filter_says_which_and_why(store: BundleStore, where: list[Any], message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        await idxs(store, *where)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"blocks": [1], "source": "event"},
            r"config.source: expected one of .*, got 'event' \(did you mean 'events'\?\)",
        ),
        ({"blocks": {"from": 3, "to": 1}}, r"config.blocks: to \(1\) is below from \(3\)"),
        ({"blocks": {"from": -1, "to": 1}}, "config.blocks: from must be a height, 0 to 9223372036854775807, not -1"),
        ({"blocks": {"from": 0, "to": 10**30}}, "config.blocks: to must be a height, 0 to 9223372036854775807, not 10"),
        (
            {"blocks": {"from": 0, "to": 10**12}},
            "1000000000001 blocks are named, at most 100000 may be scanned by one task; split it",
        ),
        ({"blocks": [1] * 100_001}, "100001 blocks are named, at most 100000 may be scanned by one task; split it"),
        ({"blocks": [-1]}, r"blocks\[0\] must be a block id \(0x and .*\) or a height \(0 to 9.*\), not -1"),
        ({"blocks": [1, 10**30]}, r"blocks\[1\] must be a block id .*, not 1000"),
        ({"blocks": [1, True]}, r"blocks\[1\] must be a block id .*, not True"),
        ({"blocks": ["0xa1", "a1"]}, r"blocks\[1\] must be a block id .*, not 'a1'"),
        ({"blocks": [1], "chainId": -1}, "chainId must be 0 to 9223372036854775807, not -1"),
        ({"blocks": [1], "chainId": 10**30}, "chainId must be 0 to 9223372036854775807, not 1000"),
        ({"blocks": [1], "batchSize": 0}, "batchSize must be 1 or more, not 0"),
        ({"blocks": [1], "streamBuild": {"enabled": True}}, "streamBuild is not supported by this version"),
        ({}, "config.blocks is missing"),
    ],
)
async def test_a_bad_declaration_names_the_key(store: BundleStore, config: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        await build(store, **config)
    assert not caught.value.retryable


async def test_a_height_with_several_blocks_names_the_candidates(store: BundleStore) -> None:
    put(store, 1, branch="b")
    with pytest.raises(PluginError, match=r"several bundles of height 1 on chain 1; .*: 0xa1, 0xb1") as caught:
        await build(store, blocks=[1])
    assert not caught.value.retryable
    assert len(await build(store, blocks=["0xb1", "0xa1"])) == 3


@pytest.mark.parametrize(
    ("blocks", "missing", "error"),
    [
        ([9], "height 9", PluginError),
        ([1, 3, 4, 9], "height 4", PluginError),
        ({"from": 3, "to": 9}, "height 4", PluginError),
        (["0xff"], "block 0xff", ReadError),
    ],
)
async def test_a_missing_block_may_be_tried_later_and_is_told_alike(
    store: BundleStore, autojump_clock: MockClock, blocks: Any, missing: str, error: Any
) -> None:
    message = f"^there is no bundle of {missing} on chain 1; import it first, or try again later$"
    with pytest.raises(error, match=message) as caught:
        await build(store, blocks=blocks)
    assert caught.value.retryable


@define(eq=False)
class AllHeights:
    """Reads of a chain that has one block without events at each height below `end`."""

    end: int
    lookups: list[range] = field(factory=list)

    async def block_ids(self, chain_id: int, heights: range) -> dict[int, list[str]]:
        self.lookups.append(heights)
        return {height: [hex(height)] for height in heights if height < self.end}

    async def bundle_part(self, chain_id: int, block_id: str, source: str) -> tuple[BlockContext, list[Any]]:
        return BlockContext(chain_id, block_id, int(block_id, 16), "0x0", 0), []


async def scanned(io: AllHeights, blocks: Any) -> list[int]:
    """The heights that were scanned."""
    config = json.dumps({"chainId": 1, "source": "events", "function": "f", "blocks": blocks})
    ctx = make_context()
    await load_builders().create("BlockBundleCallConfig", config).build(ctx, cast("IO", io))
    return [block.height for block in ctx.scanned_blocks]


@pytest.mark.parametrize("blocks", [{"from": 0, "to": 99_999}, list(range(100_000))])
async def test_as_many_blocks_as_are_allowed_are_looked_up_in_portions(blocks: Any) -> None:
    io = AllHeights(end=100_000)
    assert await scanned(io, blocks) == list(range(100_000))
    assert [len(heights) for heights in io.lookups] == [1_000] * 100


@pytest.mark.parametrize("blocks", [{"from": 0, "to": 99_999}, list(range(100_000)), [5_000] * 100_000])
async def test_the_first_missing_height_ends_the_search(blocks: Any) -> None:
    io = AllHeights(end=1_500)
    with pytest.raises(PluginError, match=r"no bundle of height (1500|5000) on chain 1"):
        await scanned(io, blocks)
    assert len(io.lookups) <= 2


async def test_heights_in_any_order_are_looked_up_and_scanned_in_it() -> None:
    io = AllHeights(end=100)
    assert await scanned(io, [7, 8, 9, "0x3", 4, 4, 3]) == [7, 8, 9, 3, 4, 4, 3]
    assert io.lookups == [range(7, 10), range(4, 5), range(4, 5), range(3, 4)]


async def test_the_highest_height_can_be_named() -> None:
    assert await scanned(AllHeights(end=2**63), [2**63 - 1]) == [2**63 - 1]
    assert await scanned(AllHeights(end=2**63), {"from": 2**63 - 2, "to": 2**63 - 1}) == [2**63 - 2, 2**63 - 1]


async def test_a_broken_bundle_is_named_and_not_tried_again(store: BundleStore, tmp_path: Path) -> None:
    (tmp_path / "bundles" / "1" / "0xa3").write_bytes(b"no gzip")
    with pytest.raises(ReadError, match=r"0xa3.* is broken") as caught:
        await build(store, blocks=[3])
    assert not caught.value.retryable


async def test_a_bundle_of_another_chain_is_refused(store: BundleStore, tmp_path: Path) -> None:
    put(store, 5, chain_id=25)
    other = tmp_path / "bundles" / "25" / "0xa5"
    assert json.loads(gzip.decompress(other.read_bytes()))["chain_id"] == 25
    (tmp_path / "bundles" / "1" / "0xa5").write_bytes(other.read_bytes())
    with pytest.raises(ReadError, match="chain 25") as caught:
        await build(store, blocks=["0xa5"])
    assert not caught.value.retryable


async def test_others_get_their_turn_while_many_items_go_into_few_calls(store: BundleStore) -> None:
    put(store, 6, *(event(number) for number in range(20_000)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        calls = await build(store, blocks=[6], batchSize=500)
        nursery.cancel_scope.cancel()
    assert len(calls) == 40
    assert turns >= 2 * 20_000 / 1_000  # items are filtered, then passed to calls
