"""BlockBundleCallConfig: one call, or one batch, for each item of one list of the named bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import trio
from attrs import Attribute, field, frozen

from blockx.model import BlockContext, nearest
from blockx.plugins import IO, CallList, PluginError, TaskContext
from blockx.worker.builders.item_filter import read_filters

_HEIGHTS_A_LOOKUP = 1_000
_ITEMS_A_PASS = 1_000
"""Items filtered, or calls made, between two looks at the rest of the worker's work."""


@frozen
class BlockRange:
    """The blocks at heights `from` to `to`, both included."""

    from_: int
    to: int

    def __attrs_post_init__(self) -> None:
        if self.from_ < 0:
            raise ValueError(f"from must be a height, 0 or more, not {self.from_}")
        if self.to < self.from_:
            raise ValueError(f"to ({self.to}) is below from ({self.from_})")

    @property
    def heights(self) -> range:
        return range(self.from_, self.to + 1)


@frozen
class StreamBuild:
    enabled: bool = False


@frozen
class BlockBundleCallConfig:
    """`function` is called with each item of `source` that passes `where`; with a list of items if `batch_size` > 1."""

    chain_id: int
    blocks: list[str | int] | BlockRange
    source: Literal["events", "txs", "traces", "block", "error_events", "error_traces"]
    function: str
    where: list[Any] = field(factory=list)
    batch_size: int = field(default=1)
    stream_build: StreamBuild = field(factory=StreamBuild)

    @batch_size.validator
    def _check_batch_size(self, _: Attribute[Any], batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batchSize must be 1 or more, not {batch_size}")

    @where.validator
    def _check_where(self, _: Attribute[Any], where: list[Any]) -> None:
        read_filters(where)

    @stream_build.validator
    def _check_stream_build(self, _: Attribute[Any], stream_build: StreamBuild) -> None:
        if stream_build.enabled:
            raise ValueError("streamBuild is not supported by this version; leave it out or set enabled to false")


class BlockBundleBuilder:
    config_type: ClassVar[type[BlockBundleCallConfig]] = BlockBundleCallConfig

    def __init__(self, config: BlockBundleCallConfig) -> None:
        self.config = config
        self._filters = read_filters(config.where)

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
            if len(calls) % _ITEMS_A_PASS == 0:
                await trio.lowlevel.checkpoint()

    async def _block_ids(self, io: IO) -> list[str]:
        """The ids of the blocks to scan, in order. All heights are looked up before any bundle is read."""
        blocks = self.config.blocks
        if isinstance(blocks, BlockRange):
            heights = blocks.heights
            parts = [heights[at : at + _HEIGHTS_A_LOOKUP] for at in range(0, len(heights), _HEIGHTS_A_LOOKUP)]
            return [block_id for part in parts for block_id in await self._ids_at(io, part)]
        return [
            block if isinstance(block, str) else (await self._ids_at(io, range(block, block + 1)))[0]
            for block in blocks
        ]

    async def _ids_at(self, io: IO, heights: range) -> list[str]:
        found = await io.block_ids(self.config.chain_id, heights)
        return [self._only(height, found.get(height, [])) for height in heights]

    def _only(self, height: int, ids: Sequence[str]) -> str:
        where = f"height {height} of chain {self.config.chain_id}"
        if not ids:
            raise PluginError(f"there is no bundle at {where}; import it, or try again later", retryable=True)
        if len(ids) > 1:
            raise PluginError(f"{where} has several blocks; name one by its id: {', '.join(sorted(ids))}")
        return ids[0]

    def _check_fields(self, fields: set[str]) -> None:
        """A filter by a field that no item has would drop everything in silence."""
        for one in self._filters if fields else ():
            if one.path[0] not in fields:
                hint = nearest(one.path[0], fields)
                raise PluginError(f"where: no item of {self.config.source} has a field {one.path[0]!r}{hint}")
