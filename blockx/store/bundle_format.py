"""One block's bundle as JSON: checked as a whole before it is kept, later parsed only where something is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from blockx.errors import InvalidArgument
from blockx.model import BLOCK_ID, MAX_HEIGHT, BlockContext, nearest
from blockx.shown import shown

__all__ = [
    "MAX_BUNDLE_BYTES",
    "QUANTITIES",
    "SOURCES",
    "BadBundle",
    "block_id_key",
    "bounded",
    "check_bundle",
    "context_of",
    "rows_of",
    "same_content",
    "split",
    "whole",
]

MAX_BUNDLE_BYTES = 256 * 1024 * 1024
"""JSON bytes of one bundle; the largest block of Ethereum's main net with all traces that was met has 2.7 MB."""

Outer = dict[str, msgspec.Raw]
"""A bundle's entries by name, not parsed yet."""

QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "block": ("height", "base_fee_per_gas", "gas_limit", "gas_used", "timestamp"),
    "txs": ("idx", "gas_limit", "gas_price", "gas_used", "nonce", "value"),
    "events": ("idx",),
    "traces": ("value", "gas_used"),
    "error_events": ("idx",),
    "error_traces": ("value", "gas_used"),
}
"""Per source the keys that hold numbers, spelt as integer, decimal string or 0x-hex; they reach functions as int.

Everything else (hashes, addresses, data, types) stays as it stands, and null stays None."""

SOURCES: tuple[str, ...] = tuple(QUANTITIES)
"""What can be read of a bundle on its own; `block` is the header."""

_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class BadBundle(InvalidArgument):
    """The bytes are no bundle; the message says where and why."""


_QUANTITY_PATTERN = r"^(?:[0-9]{1,78}|0x[0-9a-fA-F]{1,64})\Z"
_HEX_PATTERN = r"^0x[0-9a-fA-F]*\Z"
_Quantity = Annotated[int, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern=_QUANTITY_PATTERN)]
_Hex = Annotated[str, msgspec.Meta(pattern=_HEX_PATTERN)]


class _Header(msgspec.Struct, gc=False):
    id: _Hex
    height: _Quantity
    parent_id: _Hex
    timestamp: _Quantity
    base_fee_per_gas: _Quantity | None = None
    miner: str | None = None
    gas_limit: _Quantity | None = None
    gas_used: _Quantity | None = None


class _Tx(msgspec.Struct, gc=False):
    id: _Hex
    idx: _Quantity
    from_addr: str | None
    to_addr: str | None
    input: str | None = None
    gas_limit: _Quantity | None = None
    gas_price: _Quantity | None = None
    gas_used: _Quantity | None = None
    nonce: _Quantity | None = None
    value: _Quantity | None = None


class _Event(msgspec.Struct, gc=False):
    idx: _Quantity
    tx_id: _Hex
    contract_id: str
    topics: list[str]
    data: str
    selector: str | None = None


class _Trace(msgspec.Struct, gc=False):
    tx_id: _Hex | None
    from_addr: str | None
    to_addr: str | None
    value: _Quantity | None = None
    gas_used: _Quantity | None = None
    trace_address: list[int] | None = None


class _Bundle(msgspec.Struct, gc=False):
    chain_id: _Quantity
    block: _Header
    txs: list[_Tx]
    events: list[_Event]
    traces: list[_Trace] | msgspec.UnsetType = msgspec.UNSET
    error_events: list[_Event] | msgspec.UnsetType = msgspec.UNSET
    error_traces: list[_Trace] | msgspec.UnsetType = msgspec.UNSET
    storage_contracts: list[Any] | msgspec.UnsetType = msgspec.UNSET


_WHOLE = msgspec.json.Decoder(_Bundle)
_OUTER = msgspec.json.Decoder(Outer)
_ROWS = msgspec.json.Decoder(list[dict[str, Any]])
_ROW = msgspec.json.Decoder(dict[str, Any])
_ANY = msgspec.json.Decoder()
_HEADER = msgspec.json.Decoder(_Header)
_CHAIN: msgspec.json.Decoder[int | str] = msgspec.json.Decoder(_Quantity)
_QUANTITY = re.compile(_QUANTITY_PATTERN)
_T = TypeVar("_T")


def block_id_key(block_id: object) -> str:
    """A block id as it stands in keys: 0x and lower-case hex digits. Raises BadBundle for anything else."""
    key = block_id.lower() if isinstance(block_id, str) else ""
    if not BLOCK_ID.fullmatch(key):
        raise BadBundle(f"{shown(block_id)} is no block id; it must be 0x and 1 to 128 hex digits")
    return key


def bounded(what: str, number: int) -> int:
    """A chain id or height as it is. Raises BadBundle unless it is 0 to MAX_HEIGHT."""
    if not 0 <= number <= MAX_HEIGHT:
        raise BadBundle(f"{shown(number)} is no {what}; it must be 0 to {MAX_HEIGHT}")
    return number


def check_bundle(data: bytes) -> BlockContext:
    """Check a whole bundle, as before it is kept, and answer its block context.

    `txs` and `events` must be there; `traces`, `error_events`, `error_traces` and `storage_contracts` may be left out.
    Raises BadBundle for malformed JSON, a missing key, and a value of the wrong kind, naming its path.
    """
    bundle = _parsed(_WHOLE, data)
    block = bundle.block
    return _context(bundle.chain_id, block.id, block.height, block.parent_id, block.timestamp)


def split(data: bytes) -> Outer:
    """The entries of a bundle, not parsed yet. Raises BadBundle."""
    return _parsed(_OUTER, data)


def context_of(outer: Outer) -> BlockContext:
    """The block that a bundle is about. Raises BadBundle."""
    for name in ("chain_id", "block"):
        if name not in outer:
            raise BadBundle(f"it has no {name!r}")
    chain_id, block = _parsed(_CHAIN, outer["chain_id"], "$.chain_id"), _parsed(_HEADER, outer["block"], "$.block")
    return _context(chain_id, block.id, block.height, block.parent_id, block.timestamp)


def rows_of(outer: Outer, source: str) -> list[dict[str, Any]]:
    """One list of a bundle (`block`: the header alone), quantities as int.

    Raises BadBundle, also for an unknown source and for one that the bundle was stored without.
    """
    if source not in QUANTITIES:
        hint = nearest(str(source), SOURCES)
        raise BadBundle(f"there is no source {source!r}{hint}; sources: {', '.join(SOURCES)}")
    if source not in outer:
        raise BadBundle(f"it was stored without {source!r}; import it again from a file that has them")
    at = f"$.{source}"
    rows = [_parsed(_ROW, outer[source], at)] if source == "block" else _parsed(_ROWS, outer[source], at)
    _read_quantities(rows, source)
    return rows


def whole(outer: Outer) -> dict[str, Any]:
    """Everything of a bundle, quantities as int, unknown keys as they stand. Raises BadBundle."""
    out: dict[str, Any] = {"chain_id": context_of(outer).chain_id}
    for name, raw in outer.items():
        if name in QUANTITIES:
            rows = rows_of(outer, name)
            out[name] = rows[0] if name == "block" else rows
        elif name != "chain_id":
            out[name] = _parsed(_ANY, raw, f"$.{name}")
    return out


def same_content(one: bytes, other: bytes) -> bool:
    """Whether two checked bundles say the same: in whatever order of keys, spelling of quantities and case of ids.

    Raises BadBundle for one that is none.
    """
    return one == other or _normal(one) == _normal(other)


def _normal(data: bytes) -> bytes:
    outer = split(data)
    context, bundle = context_of(outer), whole(outer)
    bundle["block"] |= {"id": context.id, "parent_id": context.parent_id}
    return msgspec.json.encode(bundle, order="deterministic")


def int_of(value: int | str) -> int:
    """The number that an integer, decimal string or 0x-hex string means. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _QUANTITY.match(value):
        return int(value, 16 if value.startswith("0x") else 10)
    raise ValueError(f"{shown(value)} is no quantity")


def _read_quantities(rows: list[dict[str, Any]], source: str) -> None:
    names = QUANTITIES[source]
    for index, row in enumerate(rows):
        for name in names:
            value = row.get(name)
            if value is not None:
                try:
                    row[name] = int_of(value)
                except ValueError as error:
                    raise BadBundle(f"{error} - at `$.{source}[{index}].{name}`") from None


def _context(
    chain_id: int | str, block_id: str, height: int | str, parent_id: str, timestamp: int | str
) -> BlockContext:
    return BlockContext(
        chain_id=bounded("chain id", int_of(chain_id)),
        id=block_id_key(block_id),
        height=bounded("height", int_of(height)),
        parent_id=block_id_key(parent_id),
        timestamp=int_of(timestamp),
    )


def _parsed(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw, at: str = "$") -> _T:
    """Parse the part of a bundle that is `at` a path."""
    try:
        return decoder.decode(data)
    except _PARSE_ERRORS as error:
        raise BadBundle(_plain(str(error)).replace("`$", f"`{at}")) from None


def _plain(message: str) -> str:
    """msgspec's message without the patterns that only a program would read."""
    quantity = "a quantity (integer, decimal string or 0x-hex)"
    for pattern, meaning in ((_QUANTITY_PATTERN, quantity), (_HEX_PATTERN, "0x-hex")):
        message = message.replace(f"`str` matching regex {pattern!r}", meaning)
    return message
