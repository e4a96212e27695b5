"""BlockBundleCallConfig: one call, or one batch, for each item of one list of the named bundles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import trio
from attrs import Attribute, field, frozen

from blockx.model import BLOCK_ID, MAX_HEIGHT, BlockContext, nearest
from blockx.plugins import IO, CallList, PluginError, TaskContext
from blockx.worker.builders.item_filter import read_item_filters

MAX_BLOCKS = 100_000
"""Blocks that one task may scan: their ids are looked up before any bundle is read, and are held together."""

_BLOCKS_A_LOOKUP = 1_000
_ITEMS_A_PASS = 1_000
"""Items filtered, or passed to calls, between two looks at the rest of the worker's work."""


@frozen
class BlockRange:
    """The blocks at heights `from` to `to`, both included."""

    from_: int
    to: int

    def __attrs_post_init__(self) -> None:
        for name, height in (("from", self.from_), ("to", self.to)):
            if not 0 <= height <= MAX_HEIGHT:
                raise ValueError(f"{name} must be a height, 0 to {MAX_HEIGHT}, not {height!r:.80}")
        if self.to < self.from_:
            raise ValueError(f"to ({self.to}) is below from ({self.from_})")
        _check_count(self.to - self.from_ + 1)

    def lookups(self) -> Iterator[range]:
        """The heights, in portions that are looked up at once."""
        for start in range(self.from_, self.to + 1, _BLOCKS_A_LOOKUP):
            yield range(start, min(start + _BLOCKS_A_LOOKUP, self.to + 1))


def _check_count(count: int) -> None:
    if count > MAX_BLOCKS:
        raise ValueError(f"{count} blocks are named, at most {MAX_BLOCKS} may be scanned by one task; split it")


def _check_block(index: int, block: Any) -> None:
    if type(block) is str and BLOCK_ID.fullmatch(block.lower()):
        return
    if type(block) is not int or not 0 <= block <= MAX_HEIGHT:
        raise ValueError(
            f"blocks[{index}] must be a block id (0x and 1 to 128 hex digits) or a height (0 to {MAX_HEIGHT}), "
            f"not {block!r:.80}"
        )


@frozen
class StreamBuild:
    enabled: bool = False


@frozen
class BlockBundleCallConfig:
    """`function` is called with each item of `source` that passes `where`; with a list of items if `batch_size` > 1."""

    chain_id: int = field()
    blocks: list[Any] | BlockRange = field()
    """Ids and heights in a list are checked here: each entry of a typed list costs 8 µs, and it may be long."""
    source: Literal["events", "txs", "traces", "block", "error_events", "error_traces"]
    function: str
    where: list[Any] = field(factory=list)
    batch_size: int = field(default=1)
    stream_build: StreamBuild = field(factory=StreamBuild)

    @chain_id.validator
    def _check_chain_id(self, _: Attribute[Any], chain_id: int) -> None:
        if not 0 <= chain_id <= MAX_HEIGHT:
            raise ValueError(f"chainId must be 0 to {MAX_HEIGHT}, not {chain_id!r:.80}")

    @blocks.validator
    def _check_blocks(self, _: Attribute[Any], blocks: list[Any] | BlockRange) -> None:
        if isinstance(blocks, list):
            _check_count(len(blocks))
            for index, block in enumerate(blocks):
                _check_block(index, block)

    @batch_size.validator
    def _check_batch_size(self, _: Attribute[Any], batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batchSize must be 1 or more, not {batch_size}")

    @where.validator
    def _check_where(self, _: Attribute[Any], where: list[Any]) -> None:
        read_item_filters(where)

    @stream_build.validator
    def _check_stream_build(self, _: Attribute[Any], stream_build: StreamBuild) -> None:
        if stream_build.enabled:
            raise ValueError("streamBuild is not supported by this version; leave it out or set enabled to false")


class BlockBundleBuilder:
    config_type: ClassVar[type[BlockBundleCallConfig]] = BlockBundleCallConfig

    def __init__(self, config: BlockBundleCallConfig) -> None:
        self.config = config
        self._filters = read_item_filters(config.where)

    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        """Calls in the order of blocks and items, each as of its block.

        Raises PluginError for a height that is missing (retryable) or has several blocks, and for a bad filter; what
        the bundle store cannot answer is a ReadError.
        """
        calls = CallList()
        fields: set[str] = set()
        for block_id in await self._block_ids(io):
            context, items = await io.bundle_part(self.config.chain_id, block_id, self.config.source)
            ctx.scanned_blocks.append(context)
            fields.update(*items[:1])
            await self._add_calls(calls, context, items)
        self._check_fields(fields)
        return calls

    async def _add_calls(self, calls: CallList, context: BlockContext, items: Sequence[Any]) -> None:
        passed: list[Any] = []
        for start in range(0, len(items), _ITEMS_A_PASS):
            part = items[start : start + _ITEMS_A_PASS]
            passed += [item for item in part if all(one.passes(item) for one in self._filters)]
            await trio.lowlevel.checkpoint()
        size = self.config.batch_size
        for start in range(0, len(passed), size):
            argument = passed[start] if size == 1 else passed[start : start + size]
            calls.add(self.config.function, [argument], block=context)
            if (start + size) // _ITEMS_A_PASS > start // _ITEMS_A_PASS:
                await trio.lowlevel.checkpoint()

    async def _block_ids(self, io: IO) -> list[str]:
        """The ids of the blocks to scan, in order. All heights are looked up before any bundle is read.

        The first height without a block ends it.
        """
        ids: list[str] = []
        for blocks in self._lookups():
            ids += await self._ids_at(io, blocks) if isinstance(blocks, range) else blocks
            await trio.lowlevel.checkpoint()
        return ids

    def _lookups(self) -> Iterator[range | list[str]]:
        """Ranges of heights, each to be looked up at once, and lists of ids."""
        blocks = self.config.blocks
        if isinstance(blocks, BlockRange):
            yield from blocks.lookups()
            return
        for start in range(0, len(blocks), _BLOCKS_A_LOOKUP):
            yield from _stretches(blocks[start : start + _BLOCKS_A_LOOKUP])

    async def _ids_at(self, io: IO, heights: range) -> list[str]:
        found = await io.block_ids(self.config.chain_id, heights)
        return [self._only(height, found.get(height, [])) for height in heights]

    def _only(self, height: int, ids: Sequence[str]) -> str:
        where = f"of height {height} on chain {self.config.chain_id}"
        if not ids:
            raise PluginError(f"there is no bundle {where}; import it first, or try again later", retryable=True)
        if len(ids) > 1:
            raise PluginError(f"there are several bundles {where}; name one by its id: {', '.join(sorted(ids))}")
        return ids[0]

    def _check_fields(self, fields: set[str]) -> None:
        """A filter by a field that no item has would drop everything in silence."""
        for one in self._filters if fields else ():
            if one.path[0] not in fields:
                hint = nearest(one.path[0], fields)
                raise PluginError(f"where: no item of {self.config.source} has a field {one.path[0]!r}{hint}")


def _stretches(blocks: Sequence[Any]) -> Iterator[range | list[str]]:
    """Heights that follow each other as one range, ids that do as one list."""

    def stretch(place: tuple[int, Any]) -> int | None:
        index, block = place
        return None if isinstance(block, str) else block - index

    for _, members in itertools.groupby(enumerate(blocks), key=stretch):
        found = [block for _, block in members]
        yield found if isinstance(found[0], str) else range(found[0], found[-1] + 1)
