"""The sample chain is deterministic, linked, and as varied as real blocks."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

from blockx.testing.sample_chain import APPROVAL, MAX_UINT256, TRANSFER, ZERO_ADDRESS, Bundle, SampleChain, Transfer

CHAIN = SampleChain(blocks=200, seed=3)
BUNDLES = list(CHAIN.bundles())
TRANSFERS = list(CHAIN.transfers())


def decoded(bundle: Bundle) -> list[Transfer]:
    """The ERC-20 transfers of a bundle by the rule of the standard: this selector, 3 topics, 32 bytes of data."""
    block = bundle["block"]
    return [
        Transfer(
            height=block["height"],
            block_id=block["id"],
            tx_id=event["tx_id"],
            idx=event["idx"],
            token=event["contract_id"],
            sender="0x" + event["topics"][1][-40:],
            recipient="0x" + event["topics"][2][-40:],
            value=int(event["data"], 16),
        )
        for event in bundle["events"]
        if event["selector"] == TRANSFER and len(event["topics"]) == 3 and len(event["data"]) == 66
    ]


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    chain = SampleChain(blocks=5)
    for name in ("a", "b"):
        chain.write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with gzip.open(tmp_path / "a") as lines:
        assert [json.loads(line) for line in lines] == list(chain.bundles())


def test_another_seed_gives_another_chain() -> None:
    assert next(SampleChain(seed=1).bundles()) != next(SampleChain(seed=2).bundles())


def test_a_block_does_not_depend_on_the_length_of_the_chain() -> None:
    assert list(SampleChain(blocks=3, seed=3).bundles()) == BUNDLES[:3]


def test_each_block_is_the_child_of_the_one_before() -> None:
    headers = [bundle["block"] for bundle in BUNDLES]
    assert [header["height"] for header in headers] == list(CHAIN.heights)
    assert [header["parent_id"] for header in headers[1:]] == [header["id"] for header in headers[:-1]]
    assert len({header["id"] for header in headers}) == CHAIN.blocks
    assert all(later["timestamp"] > earlier["timestamp"] for earlier, later in itertools.pairwise(headers))


def test_the_known_transfers_are_those_that_a_decoder_finds() -> None:
    assert [transfer for bundle in BUNDLES for transfer in decoded(bundle)] == TRANSFERS
    assert len(TRANSFERS) > 1_000


def test_a_row_key_of_block_transaction_and_event_is_unique() -> None:
    keys = {(transfer.block_id, transfer.tx_id, transfer.idx) for transfer in TRANSFERS}
    assert len(keys) == len(TRANSFERS)


def test_event_numbers_alone_repeat_within_some_blocks() -> None:
    def repeats(bundle: Bundle) -> bool:
        numbers = [event["idx"] for event in bundle["events"]]
        return len(set(numbers)) < len(numbers)

    assert 0 < sum(map(repeats, BUNDLES)) < CHAIN.blocks


def test_every_shape_occurs() -> None:
    events = [event for bundle in BUNDLES for event in bundle["events"]]
    txs = [tx for bundle in BUNDLES for tx in bundle["txs"]]
    assert any(not bundle["txs"] for bundle in BUNDLES)
    assert any(event["selector"] == APPROVAL for event in events)
    assert any(event["selector"] == TRANSFER and len(event["topics"]) == 4 for event in events)
    assert any(tx["to_addr"] is None for tx in txs)
    assert any(transfer.sender == transfer.recipient for transfer in TRANSFERS)
    assert {ZERO_ADDRESS} < {transfer.sender for transfer in TRANSFERS}
    assert {ZERO_ADDRESS} < {transfer.recipient for transfer in TRANSFERS}
    assert {0, MAX_UINT256} < {transfer.value for transfer in TRANSFERS}


def test_a_failed_transaction_leaves_only_failed_events_and_traces() -> None:
    for bundle in BUNDLES:
        failed = {tx["id"] for tx in bundle["txs"] if not tx["status"]}
        assert {event["tx_id"] for event in bundle["error_events"]} == failed
        assert {trace["tx_id"] for trace in bundle["error_traces"]} == failed
        assert failed.isdisjoint(event["tx_id"] for event in bundle["events"])
        assert failed.isdisjoint(trace["tx_id"] for trace in bundle["traces"])
    assert any(bundle["error_events"] for bundle in BUNDLES)


def test_nested_calls_have_distinct_addresses_in_the_call_tree() -> None:
    for bundle in BUNDLES:
        places = [(trace["tx_id"], tuple(trace["trace_address"])) for trace in bundle["traces"]]
        assert len(set(places)) == len(places)
    assert any(trace["trace_address"] for bundle in BUNDLES for trace in bundle["traces"])
