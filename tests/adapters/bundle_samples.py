"""A small made-up bundle, changed as a test needs it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

BLOCK_ID = "0x" + "ab" * 32
PARENT_ID = "0x" + "cd" * 32
TX_ID = "0x" + "01" * 32


def bundle(height: int = 17, block_id: str = BLOCK_ID, chain_id: Any = 1, **entries: Any) -> dict[str, Any]:
    """One transaction, one event, two traces; quantities in all three spellings. `entries` replace whole entries."""
    return {
        "chain_id": chain_id,
        "block": {
            "id": block_id,
            "height": height,
            "parent_id": PARENT_ID,
            "base_fee_per_gas": None,
            "miner": "0x" + "22" * 20,
            "gas_limit": "0x1c9c380",
            "gas_used": 21000,
            "timestamp": "1689270071",
        },
        "txs": [
            {
                "id": TX_ID,
                "idx": 0,
                "from_addr": "0x" + "33" * 20,
                "to_addr": None,
                "gas_limit": 30000,
                "gas_price": "65732251887",
                "gas_used": None,
                "status": None,
                "nonce": "0x3",
                "value": "115792089237316195423570985008687907853269984665640564039457584007913129639935",
                "input": "0x6080",
            }
        ],
        "events": [
            {
                "idx": "0x5",
                "tx_id": TX_ID,
                "contract_id": "0x" + "44" * 20,
                "selector": "0x" + "dd" * 32,
                "topics": ["0x" + "dd" * 32, "0x" + "00" * 31 + "07"],
                "data": "0x" + "00" * 32,
            }
        ],
        "traces": [_trace(value="0", gas_used="0x10", error=None), _trace(value=10**30, gas_used=None, error=None)],
        "error_events": [],
        "error_traces": [_trace(value="7", gas_used=1, error="out of gas")],
        "storage_contracts": [],
        **entries,
    }


def _trace(**values: Any) -> dict[str, Any]:
    fixed = {"tx_id": TX_ID, "from_addr": "0x" + "33" * 20, "to_addr": "0x" + "44" * 20, "trace_address": [0, 1]}
    return {**fixed, "type": "call", "call_type": "staticcall", "input": "0x", "output": "0x", **values}


def lines(*bundles: dict[str, Any] | str) -> bytes:
    """JSON Lines of bundles; a text stands as it is."""
    return b"".join((one if isinstance(one, str) else json.dumps(one)).encode() + b"\n" for one in bundles)


def gzipped(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data))
    return path
