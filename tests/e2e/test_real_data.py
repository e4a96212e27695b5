"""Real blocks, one task each, through coordinator, worker, executors and writer: exactly the rows that are known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from blockx import PluginConfig, TaskInput
from blockx.store.bundle_import import import_file
from blockx.store.bundles import BundleStore
from blockx.store.tables import TableStore
from blockx.testing import local_cluster
from tests.e2e.tasks import FUNCTIONS, TABLES

FILES = ("mainnet_19", "mainnet_small", "edge_mainnet_old", "edge_other_chains")


def block_task(chain_id: int, block_id: str) -> TaskInput:
    return TaskInput(
        function_call_config=PluginConfig(
            "BlockBundleCallConfig",
            {"chainId": chain_id, "blocks": [block_id], "source": "events", "function": "transfer_row"},
        ),
        result_handler=PluginConfig("TableUpsertsResultHandler", {"table": "transfers"}),
        task_timeout_ms=120_000,
    )


def digest(rows: list[dict[str, Any]]) -> str:
    """As the expected figures define it: sorted rows as compact JSON, joined by newlines."""
    listed = sorted(
        [row["height"], row["idx"], row["token"], row["sender"], row["recipient"], str(row["value"])] for row in rows
    )
    return hashlib.sha256("\n".join(json.dumps(row, separators=(",", ":")) for row in listed).encode()).hexdigest()


@pytest.mark.parametrize("name", FILES)
async def test_every_transfer_of_real_blocks_becomes_a_row(name: str, real_data: Path, tmp_path: Path) -> None:
    expected = json.loads(await trio.Path(real_data / "EXPECTED.json").read_text())[name]
    bundles = f"file://{tmp_path}/bundles"
    store = BundleStore.open(bundles)
    report = await trio.to_thread.run_sync(import_file, store, real_data / "bundles" / f"{name}.jsonl.gz")
    assert (report.imported, report.refused) == (expected["blocks"], [])
    tasks = [block_task(entry.chain_id, entry.block_id) for entry in store.list()]
    async with local_cluster(FUNCTIONS, tables=TABLES, bundles=bundles, executors=2) as cluster:
        async with cluster.client.run_many(tasks, in_flight=4) as outcomes:
            results = [outcome async for outcome in outcomes]
        assert [result.failure_message for result in results] == [""] * expected["blocks"]
        tables = TableStore.open(cluster.database)
        rows = tables.scan("transfers", [], [], None)
        tables.close()
    assert len(rows) == expected["erc20_transfers"]
    assert len({row["token"] for row in rows}) == expected["tokens"]
    assert sum(row["value"] for row in rows) == int(expected["value_sum"])
    assert digest(rows) == expected["rows_sha256"]
