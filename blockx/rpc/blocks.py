"""Header blocks that need not be worked out again: hpack with a memory. Only `http2` uses it.

What a block means, and how headers are written, depends on nothing but the header table of that direction. Calls on one
connection repeat their headers; once these stand in the table, the table rests, and so the same block comes each time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

import attrs
from hpack import Decoder, Encoder
from hpack.struct import NeverIndexedHeaderTuple
from hpack.table import HeaderTable

#: Blocks and bytes of each that one direction of one connection remembers.
MAX_BLOCKS = 16
MAX_BLOCK_BYTES = 256

_K = TypeVar("_K")
_V = TypeVar("_V")


class _Table(HeaderTable):  # type: ignore[misc]  # hpack has no type information
    """Counts what was done to it."""

    changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(HeaderTable.maxsize.fget(self))

    @maxsize.setter
    def maxsize(self, size: int) -> None:
        self.changes += 1
        HeaderTable.maxsize.fset(self, size)


@attrs.define
class _Memory(Generic[_K, _V]):
    """Results that hold for as long as `table` stays as it is."""

    _table: _Table
    _known: dict[_K, _V] = attrs.field(factory=dict)
    _changes: int = 0

    @property
    def keys(self) -> Collection[_K]:
        return self._known.keys()

    def get(self, key: _K) -> _V | None:
        if self._changes != self._table.changes:
            self._changes = self._table.changes
            self._known.clear()
        return self._known.get(key)

    def put(self, key: _K, value: _V) -> None:
        """Remember what came of a `get` without result; the next `get` drops it if working it out changed the table."""
        if len(self._known) >= MAX_BLOCKS:
            self._known.clear()
        self._known[key] = value


class BlockEncoder(Encoder):  # type: ignore[misc]  # hpack has no type information
    """Writes header blocks. What is never indexed is never remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.header_table = _Table()
        self._memory: _Memory[tuple[Any, ...], bytes] = _Memory(self.header_table)

    def encode(self, headers: Any, huffman: bool = True) -> bytes:
        """The block for some headers, a list or tuple."""
        if self.header_table.resized or NeverIndexedHeaderTuple in map(type, headers):
            return bytes(super().encode(headers, huffman))
        key = tuple(headers)
        block = self._memory.get(key)
        if block is None:
            block = bytes(super().encode(headers, huffman))
            if len(block) <= MAX_BLOCK_BYTES:
                self._memory.put(key, block)
        return block


class BlockDecoder(Decoder):  # type: ignore[misc]  # hpack has no type information
    """Reads header blocks."""

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size)
        self.header_table = _Table()
        self._memory: _Memory[bytes, list[Any]] = _Memory(self.header_table)

    @property
    def remembered(self) -> Collection[bytes]:
        """The blocks that are read from memory."""
        return self._memory.keys

    def decode(self, data: bytes, raw: bool = False) -> list[Any]:
        """The headers of a block, as h2 wants them: `raw`. Raises what hpack raises."""
        assert raw, "h2 asks for bytes"
        headers = self._memory.get(data)
        if headers is None:
            headers = super().decode(data, raw=True)
            if len(data) <= MAX_BLOCK_BYTES:
                self._memory.put(data, headers)
        return list(headers)
