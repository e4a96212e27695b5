"""A made-up chain with the shapes of a real one, the same for the same seed: for demos, tests and trying functions out.

    chain = SampleChain(blocks=300)
    chain.write("sample.jsonl.gz")                     # for `blockx bundles import`
    expected = list(chain.transfers())                 # what an ERC-20 indexer must find

Blocks hold plain payments, ERC-20 transfers (also to oneself, of zero, of 2^256-1, from and to the zero address),
approvals, swaps, ERC-721 transfers, contract creations and failed transactions; one in twelve is empty, and in one of
eight event numbers start anew with each transaction, as they do in some real data.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

# keccak256 of the event signatures, as every explorer shows them
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
SWAP = "0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822"
ZERO_ADDRESS = "0x" + "00" * 20
MAX_UINT256 = 2**256 - 1

Bundle = dict[str, Any]


@frozen
class Transfer:
    """One ERC-20 transfer, as the tables of the ERC-20 example hold it."""

    height: int
    block_id: str
    tx_id: str
    idx: int
    token: str
    sender: str
    recipient: str
    value: int


@frozen
class SampleBlock:
    """One block's bundle, and the ERC-20 transfers that were put into it."""

    bundle: Bundle
    transfers: tuple[Transfer, ...]


@frozen(kw_only=True)
class SampleChain:
    """`blocks` consecutive blocks from `first_height` on, each the child of the one before."""

    blocks: int = 300
    seed: int = 1
    chain_id: int = 31_337
    first_height: int = 1_000_000

    def __iter__(self) -> Iterator[SampleBlock]:
        for height in self.heights:
            yield _BlockMaker(chain=self, height=height).make()

    @property
    def heights(self) -> range:
        return range(self.first_height, self.first_height + self.blocks)

    def bundles(self) -> Iterator[Bundle]:
        """One dict per block, in the format of the bundle store."""
        return (block.bundle for block in self)

    def transfers(self) -> Iterator[Transfer]:
        """Every ERC-20 transfer that the chain holds, in chain order."""
        return (transfer for block in self for transfer in block.transfers)

    def write(self, path: Path | str) -> None:
        """Write all bundles as JSON Lines, gzip; the same chain gives the same bytes."""
        with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as out:
            for bundle in self.bundles():
                out.write(json.dumps(bundle, separators=(",", ":")).encode() + b"\n")

    def block_id(self, height: int) -> str:
        return self._hex(32, "block", height)

    def token(self, number: int) -> str:
        return self._hex(20, "token", number)

    def account(self, number: int) -> str:
        return self._hex(20, "account", number)

    def _hex(self, size_bytes: int, kind: str, number: int) -> str:
        return "0x" + hashlib.sha256(f"{self.seed}/{kind}/{number}".encode()).digest()[:size_bytes].hex()


def _word(value: int | str) -> str:
    """A number or address as a 32-byte word in hex, without 0x."""
    return f"{value:064x}" if isinstance(value, int) else value.removeprefix("0x").rjust(64, "0")


@define
class _BlockMaker:
    chain: SampleChain
    height: int
    random: random.Random = field(init=False)
    restarts_idx: bool = field(init=False)
    block_id: str = field(init=False)
    txs: list[dict[str, Any]] = field(factory=list)
    events: list[dict[str, Any]] = field(factory=list)
    traces: list[dict[str, Any]] = field(factory=list)
    error_events: list[dict[str, Any]] = field(factory=list)
    error_traces: list[dict[str, Any]] = field(factory=list)
    transfers: list[Transfer] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.random = random.Random(f"{self.chain.seed}/{self.height}")
        self.restarts_idx = self.random.random() < 1 / 8
        self.block_id = self.chain.block_id(self.height)

    def make(self) -> SampleBlock:
        is_empty = self.random.random() < 1 / 12
        kinds = list(_KINDS)
        for kind in self.random.choices(kinds, [_KINDS[kind] for kind in kinds], k=0 if is_empty else self._count()):
            getattr(self, f"_{kind}")()
        bundle = {
            "chain_id": self.chain.chain_id,
            "block": self._header(),
            "txs": self.txs,
            "events": self.events,
            "traces": self.traces,
            "error_events": self.error_events,
            "error_traces": self.error_traces,
            "storage_contracts": [],
        }
        return SampleBlock(bundle, tuple(self.transfers))

    def _count(self) -> int:
        return self.random.randint(3, 30)

    def _header(self) -> dict[str, Any]:
        return {
            "id": self.block_id,
            "height": self.height,
            "parent_id": self.chain.block_id(self.height - 1),
            "base_fee_per_gas": str(self.random.randint(7, 90_000_000_000)),
            "miner": self._account(),
            "gas_limit": 30_000_000,
            "gas_used": sum(tx["gas_used"] for tx in self.txs),
            "timestamp": 1_700_000_000 + 12 * (self.height - self.chain.first_height),
        }

    # Kinds of transactions, named in _KINDS

    def _payment(self) -> None:
        self._tx(self._account(), value=self.random.randint(0, 10**20))

    def _transfer(self) -> None:
        token, sender, recipient = self._token(), self._account(), self._account()
        value = self._amount()
        call_data = "0xa9059cbb" + _word(recipient) + _word(value)
        self._transfer_event(self._tx(token, call_data, sender=sender), token, sender, recipient, value)

    def _self_transfer(self) -> None:
        sender = self._account()
        token = self._token()
        self._transfer_event(self._tx(token, "0xa9059cbb", sender=sender), token, sender, sender, self._amount())

    def _mint_and_burn(self) -> None:
        token, account = self._token(), self._account()
        tx_id = self._tx(token, "0x40c10f19" + _word(account), sender=account)
        self._transfer_event(tx_id, token, ZERO_ADDRESS, account, self._amount())
        self._transfer_event(tx_id, token, account, ZERO_ADDRESS, 0)

    def _approval(self) -> None:
        token, owner, spender = self._token(), self._account(), self._account()
        tx_id = self._tx(token, "0x095ea7b3" + _word(spender) + _word(MAX_UINT256), sender=owner)
        self._event(tx_id, token, [APPROVAL, "0x" + _word(owner), "0x" + _word(spender)], "0x" + _word(MAX_UINT256))

    def _swap(self) -> None:
        trader, pool = self._account(), self.chain.account(0)
        tx_id = self._tx(pool, "0x38ed1739" + _word(self._amount()), sender=trader)
        for sender, recipient in ((trader, pool), (pool, trader)):
            token, value = self._token(), self._amount()
            self._transfer_event(tx_id, token, sender, recipient, value)
            self._inner_trace(tx_id, pool, token, "0x23b872dd" + _word(sender) + _word(recipient) + _word(value))
        amounts = "".join(_word(self._amount()) for _ in range(4))
        self._event(tx_id, pool, [SWAP, "0x" + _word(trader), "0x" + _word(pool)], "0x" + amounts)

    def _nft_transfer(self) -> None:
        collection, owner, buyer = self.chain.token(-1), self._account(), self._account()
        tx_id = self._tx(collection, "0x42842e0e" + _word(owner) + _word(buyer), sender=owner)
        number = self.random.randrange(10_000)
        topics = [TRANSFER, "0x" + _word(owner), "0x" + _word(buyer), "0x" + _word(number)]
        self._event(tx_id, collection, topics, "0x")

    def _creation(self) -> None:
        self._tx(None, "0x6080604052" + self.random.randbytes(400).hex())

    def _failed(self) -> None:
        """A transfer that was rolled back: its event must be found nowhere but among the failed ones."""
        token, sender, recipient = self._token(), self._account(), self._account()
        tx_id = self._tx(token, "0xa9059cbb" + _word(recipient), sender=sender, status=False)
        topics = [TRANSFER, "0x" + _word(sender), "0x" + _word(recipient)]
        event = _event(tx_id, 0, token, topics, "0x" + _word(self._amount()))
        self.error_events.append(event)

    # Parts

    def _account(self) -> str:
        return self.chain.account(self.random.randint(1, 400))

    def _token(self) -> str:
        return self.chain.token(min(self.random.randrange(40), self.random.randrange(40)))

    def _amount(self) -> int:
        if self.random.random() < 0.02:
            return self.random.choice([0, 1, MAX_UINT256])
        return self.random.randrange(10 ** self.random.randint(1, 27))

    def _tx(
        self, to: str | None, call_data: str = "0x", *, sender: str | None = None, value: int = 0, status: bool = True
    ) -> str:
        idx = len(self.txs)
        tx_id = "0x" + hashlib.sha256(f"{self.block_id}/{idx}".encode()).hexdigest()
        tx = {
            "id": tx_id,
            "idx": idx,
            "from_addr": sender or self._account(),
            "to_addr": to,
            "gas_limit": 300_000,
            "gas_price": str(self.random.randint(10**9, 10**11)),
            "gas_used": self.random.randint(21_000, 300_000),
            "status": status,
            "nonce": self.random.randrange(5_000),
            "value": str(value),
            "input": call_data,
        }
        self.txs.append(tx)
        (self.traces if status else self.error_traces).append(_trace(tx, error=None if status else "Reverted"))
        return tx_id

    def _inner_trace(self, tx_id: str, caller: str, to: str, call_data: str) -> None:
        trace_address = [sum(trace["tx_id"] == tx_id for trace in self.traces) - 1]
        inner = {"id": tx_id, "from_addr": caller, "to_addr": to, "value": "0", "input": call_data, "gas_used": 30_000}
        self.traces.append(_trace(inner, trace_address=trace_address))

    def _event(self, tx_id: str, contract: str, topics: list[str], data: str) -> int:
        earlier = [event for event in self.events if event["tx_id"] == tx_id] if self.restarts_idx else self.events
        idx = len(earlier)
        self.events.append(_event(tx_id, idx, contract, topics, data))
        return idx

    def _transfer_event(self, tx_id: str, token: str, sender: str, recipient: str, value: int) -> None:
        topics = [TRANSFER, "0x" + _word(sender), "0x" + _word(recipient)]
        idx = self._event(tx_id, token, topics, "0x" + _word(value))
        self.transfers.append(Transfer(self.height, self.block_id, tx_id, idx, token, sender, recipient, value))


_KINDS = {  # kind of transaction: weight, roughly as on Ethereum
    "payment": 25,
    "transfer": 30,
    "self_transfer": 1,
    "mint_and_burn": 2,
    "approval": 8,
    "swap": 18,
    "nft_transfer": 6,
    "creation": 1,
    "failed": 5,
}


def _event(tx_id: str, idx: int, contract: str, topics: list[str], data: str) -> dict[str, Any]:
    return {"idx": idx, "tx_id": tx_id, "contract_id": contract, "selector": topics[0], "topics": topics, "data": data}


def _trace(tx: dict[str, Any], *, trace_address: list[int] | None = None, error: str | None = None) -> dict[str, Any]:
    is_creation = tx["to_addr"] is None
    return {
        "tx_id": tx["id"],
        "from_addr": tx["from_addr"],
        "to_addr": tx["to_addr"],
        "value": tx["value"],
        "type": "create" if is_creation else "call",
        "call_type": None if is_creation else "call",
        "trace_address": trace_address or [],
        "input": tx["input"],
        "output": "0x",
        "gas_used": tx["gas_used"],
        "error": error,
    }
