"""What builders and writers see of their task's IO scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from attrs import frozen

from blockx.model import BlockContext
from blockx.plugins import Row, Transaction, Where
from blockx.wire.values import unpack_value
from blockx.worker.io.reads import TaskReads


@frozen
class ScopeIO:
    """Reads with their own number of attempts; see blockx.plugins.IO. `reads` raises ReadError after the task's end."""

    _reads: Callable[[], TaskReads]
    _attempts: int

    async def get(self, table: str, key: Any, columns: Sequence[str] | None = None) -> Row | None:
        (row,) = await self.get_many(table, [key], columns)
        return row

    async def get_many(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        answered = await self._reads().rows(table, keys, columns, self._attempts)
        return [unpack_value(row) for row in answered.values]

    async def table_columns(self, table: str) -> tuple[str, ...]:
        return await self._reads().table_columns(table, self._attempts)

    async def scan(
        self, table: str, where: Where = (), order: Sequence[str] = (), limit: int | None = None
    ) -> list[Row]:
        answered = await self._reads().scan(table, where, order, limit, self._attempts)
        rows: list[Row] = unpack_value(answered.values[0])
        return rows

    async def bundle(self, chain_id: int, block: str | int) -> dict[str, Any]:
        answered = await self._reads().bundle(chain_id, block, self._attempts)
        bundle: dict[str, Any] = unpack_value(answered.values[0])
        return bundle

    async def block_ids(self, chain_id: int, heights: range) -> dict[int, list[str]]:
        return await self._reads().block_ids(chain_id, heights, self._attempts)

    async def bundle_part(self, chain_id: int, block_id: str, source: str) -> tuple[BlockContext, list[Any]]:
        return await self._reads().bundle_part(chain_id, block_id, source, self._attempts)


@frozen
class ScopeWriterIO(ScopeIO):
    """The same, and the task's one transaction."""

    _transaction: Callable[[], AbstractAsyncContextManager[Transaction]]

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction()
