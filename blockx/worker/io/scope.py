"""The door to data of one task: every read of its builder, calls and writer, and its one write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType

import trio
from attrs import define, field

from blockx.errors import PluginError, ReadError
from blockx.model import BlockContext
from blockx.plugins import IO, Transaction, WriterIO
from blockx.wire.values import pack_list
from blockx.worker.io.admission import Backends
from blockx.worker.io.cache import ReadCache
from blockx.worker.io.coalesce import Flights, task_ended
from blockx.worker.io.face import ScopeIO, ScopeWriterIO
from blockx.worker.io.limits import ScopeLimits as ScopeLimits
from blockx.worker.io.reads import Answered, TaskReads
from blockx.worker.io.requests import GetBundle, GetMany, Scan, read_request
from blockx.worker.io.retry import Backoff
from blockx.worker.io.transaction import TableTransaction


@define(eq=False)
class TaskScope:
    """One task's reads and its write, usable inside of `async with scope`; nothing starts after it was left.

    `begin_commit` is called in the trio thread right before COMMIT and raises CommitRefused if the task has ended;
    `jitter` gives numbers from 0 to 1. A foreign exception of a backend leaves the block as an ExceptionGroup.
    """

    backends: Backends
    limits: ScopeLimits
    begin_commit: Callable[[], None]
    jitter: Callable[[], float]
    committed: bool = field(default=False, init=False)
    """Whether the writer's rows are in the database; right even where the task was cancelled during the commit."""
    _backoff: Backoff = field(init=False)
    _reads: TaskReads | None = field(default=None, init=False)
    _is_open: bool = field(default=False, init=False)
    _has_written: bool = field(default=False, init=False)
    _nursery: trio.Nursery = field(init=False)
    _nursery_manager: AbstractAsyncContextManager[trio.Nursery] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff(self.limits.io_retry_base_ms, self.limits.io_retry_max_ms, self.jitter)

    async def __aenter__(self) -> TaskScope:
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        flights = Flights(self._nursery, ReadCache(self.limits.read_cache_bytes), self._backoff)
        self._reads = TaskReads(self.backends, self.limits, flights)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._is_open = False
        self._nursery.cancel_scope.cancel()
        if isinstance(error, Exception):
            # The nursery would wrap the caller's own exception into a group; it has no business with it.
            await self._nursery_manager.__aexit__(None, None, None)
            return None
        return await self._nursery_manager.__aexit__(kind, error, trace)

    @property
    def builder_io(self) -> IO:
        return ScopeIO(self._open_reads, self.limits.io_builder_attempts)

    @property
    def writer_io(self) -> WriterIO:
        return ScopeWriterIO(self._open_reads, self.limits.io_result_attempts, self.transaction)

    @property
    def reads(self) -> int:
        """Rows, scans and bundles asked for so far, those answered from memory included."""
        return 0 if self._reads is None else self._reads.reads

    @property
    def cached_reads(self) -> int:
        return 0 if self._reads is None else self._reads.cached_reads

    @property
    def read_blocks(self) -> tuple[tuple[int, str], ...]:
        """The (chain id, block id) pairs that the task read, by their first read, at most `limits.read_blocks`."""
        return () if self._reads is None else tuple(self._reads.blocks)[: self.limits.read_blocks]

    @property
    def read_blocks_truncated(self) -> bool:
        return self._reads is not None and len(self._reads.blocks) > self.limits.read_blocks

    def _open_reads(self) -> TaskReads:
        """Where reads go. Raises ReadError once the task has ended."""
        if self._reads is None or not self._is_open:
            raise task_ended()
        return self._reads

    async def answer(self, block: BlockContext | None, request: bytes) -> tuple[bytes, int]:
        """A call's read: the packed value, and the microseconds of backend time to charge to the call.

        `request` is a packed `["table.get_many", table, keys, columns]`, `["table.scan", table, where, order, limit]`
        or `["bundle.get", chain_id, block]`. `block` is the call's; online tables and bundles do not depend on it.
        Raises ReadError.
        """
        reads, attempts = self._open_reads(), self.limits.io_call_attempts
        match read_request(request):
            case GetMany(table, keys, columns):
                rows = await reads.rows(table, keys, columns, attempts)
                return self._bounded(pack_list(rows.values), f"get_many on table {table!r}"), rows.io_us
            case Scan(table, where, order, limit):
                return self._one(await reads.scan(table, where, order, limit, attempts), f"scan of table {table!r}")
            case GetBundle(chain_id, block_ref):
                return self._one(await reads.bundle(chain_id, block_ref, attempts), f"bundle {block_ref}")

    def _one(self, answered: Answered, what: str) -> tuple[bytes, int]:
        return self._bounded(answered.values[0], what), answered.io_us

    def _bounded(self, value: bytes, what: str) -> bytes:
        if len(value) > self.limits.answer_bytes:
            raise ReadError(
                f"{what} answers {len(value)} bytes, but a call can be sent at most {self.limits.answer_bytes}; "
                "ask for fewer rows or columns"
            )
        return value

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """The task's one transaction; see blockx.plugins.WriterIO."""
        if self._has_written:
            raise PluginError("a task has one transaction, and this is its second")
        self._has_written = True
        transaction = TableTransaction()
        yield transaction
        if transaction.seal():
            await self._backoff.repeat(self.limits.io_result_attempts, partial(self._commit, transaction))

    async def _commit(self, transaction: TableTransaction) -> None:
        """One attempt. Cancellation ends the wait for the writer's turn; a thread that runs is always waited for."""
        try:
            self._open_reads()  # raises where the task has ended
            tables = self.backends.need_tables()
        except ReadError as error:
            raise PluginError(str(error)) from None

        def write() -> None:
            transaction.run(tables, self._before_commit)
            self.committed = True  # here, in the thread: the next checkpoint of a cancelled task raises

        await trio.to_thread.run_sync(write, limiter=self.backends.table_writer)

    def _before_commit(self) -> None:
        """Called in the writer's thread, in each attempt: the time that a grant gives may be over by the next."""
        trio.from_thread.run_sync(self.begin_commit)
