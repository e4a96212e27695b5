"""Which blocks are stored at which height: one empty object per (height, id), in folders of a thousand heights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import obstore
from attrs import frozen

from blockx.model import BlockContext

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["HeightIndex"]

_ROOT = "heights"
_HEIGHTS_PER_FOLDER = 1_000  # what object stores list in one request
_MAX_DIRECT_FOLDERS = 8
_NAME = re.compile(r"([0-9]{12,})-(0x[0-9a-f]+)")


@frozen
class HeightIndex:
    """Keys `heights/{chain}/{folder}/{height}-{id}`, zero-padded, so that their order is that of the heights."""

    store: ObjectStore

    def add(self, block: BlockContext) -> None:
        """Name a block; naming it again changes nothing."""
        folder = _folder(block.chain_id, block.height // _HEIGHTS_PER_FOLDER)
        obstore.put(self.store, f"{folder}/{block.height:012d}-{block.id}", b"")

    def chains(self) -> list[int]:
        return sorted(int(name) for name in self._subfolders(_ROOT) if name.isdecimal())

    def blocks(self, chain_id: int, heights: range | None = None) -> Iterator[tuple[int, str]]:
        """(height, id) of the blocks at these heights (None: at all), by height and id."""
        for folder in self._folders(chain_id, heights):
            for height, block_id in self._names(folder):
                if heights is None or height in heights:
                    yield height, block_id

    def _folders(self, chain_id: int, heights: range | None) -> list[str]:
        """The folders to look into: named outright for a few, else those that are there."""
        wanted = None if heights is None else _folder_numbers(heights)
        if wanted is not None and len(wanted) <= _MAX_DIRECT_FOLDERS:
            return [_folder(chain_id, number) for number in wanted]
        there = sorted(int(name) for name in self._subfolders(f"{_ROOT}/{chain_id}") if name.isdecimal())
        return [_folder(chain_id, number) for number in there if wanted is None or number in wanted]

    def _subfolders(self, prefix: str) -> list[str]:
        found = obstore.list_with_delimiter(self.store, prefix)["common_prefixes"]
        return [path.rsplit("/", 1)[-1] for path in found]

    def _names(self, folder: str) -> list[tuple[int, str]]:
        objects = [entry for chunk in obstore.list(self.store, folder) for entry in chunk]
        names = [_NAME.fullmatch(entry["path"].rsplit("/", 1)[-1]) for entry in objects]
        return sorted((int(name[1]), name[2]) for name in names if name)


def _folder(chain_id: int, number: int) -> str:
    return f"{_ROOT}/{chain_id}/{number:09d}"


def _folder_numbers(heights: range) -> range:
    if not heights:
        return range(0)
    low, high = sorted((heights[0], heights[-1]))
    return range(max(low, 0) // _HEIGHTS_PER_FOLDER, high // _HEIGHTS_PER_FOLDER + 1)
