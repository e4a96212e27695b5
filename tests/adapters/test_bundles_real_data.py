"""Real blocks: every file is imported whole, and holds what was counted when it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blockx.store.bundle_import import import_file
from blockx.store.bundles import BundleStore

SOURCES = ("txs", "events", "traces", "error_traces")


@pytest.mark.parametrize("name", ["mainnet_small", "mainnet_19", "edge_mainnet_old", "edge_other_chains"])
def test_a_real_file_is_imported_whole(name: str, real_data: Path, tmp_path: Path) -> None:
    expected: dict[str, Any] = json.loads((real_data / "EXPECTED.json").read_text())[name]
    store = BundleStore.open(str(tmp_path))
    report = import_file(store, real_data / "bundles" / f"{name}.jsonl.gz", chain_id=expected["chain_id"])
    assert (report.imported, report.refused, report.by_chain) == (
        expected["blocks"],
        [],
        {expected["chain_id"]: expected["blocks"]},
    )
    entries = list(store.list())
    assert (entries[0].height, entries[-1].height) == (expected["from"], expected["to"])
    for source in SOURCES:
        found = [len(store.part(entry.chain_id, entry.block_id, source)[1]) for entry in entries]
        assert sum(found) == expected[source], source


def test_real_numbers_are_int_or_none_and_real_hashes_are_text(real_data: Path, tmp_path: Path) -> None:
    store = BundleStore.open(str(tmp_path))
    import_file(store, real_data / "bundles" / "edge_other_chains.jsonl.gz")
    for entry in store.list(25):
        context, (header,) = store.part(25, entry.block_id, "block")
        assert (context.height, context.id, header["id"]) == (entry.height, entry.block_id, entry.block_id)
        assert isinstance(header["base_fee_per_gas"], int | None)
        for tx in store.part(25, entry.block_id, "txs")[1]:
            assert isinstance(tx["value"], int)
            assert isinstance(tx["gas_used"], int | None)
            assert isinstance(tx["status"], bool | None)
            assert isinstance(tx["input"], str)
