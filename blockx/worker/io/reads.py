"""The reads of one task: which backend answers each, what is kept of it, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import define, field, frozen

from blockx.errors import ReadError, UnserializableValue
from blockx.model import BlockContext, nearest
from blockx.plugins import Where
from blockx.wire.values import pack_value
from blockx.worker.io.admission import Backends, read_in_thread
from blockx.worker.io.coalesce import Flights, Seat, Source
from blockx.worker.io.limits import MAX_READ_KEYS, ScopeLimits

T = TypeVar("T")

_KEYS_A_PASS = 1_000
"""Keys asked for between two looks at the rest of the worker's work."""


@frozen
class Answered:
    """Packed values in the order of the questions, and the backend time that they cost whoever asked."""

    values: list[bytes]
    io_us: int


@define(eq=False)
class TaskReads:
    """Every read of a task goes through one of these methods. All raise ReadError.

    `attempts` is how often a request is made at most, while its error is retryable.
    """

    backends: Backends
    limits: ScopeLimits
    flights: Flights
    reads: int = field(default=0, init=False)
    """Rows, scans and bundles asked for, those answered from memory included."""
    cached_reads: int = field(default=0, init=False)
    blocks: dict[tuple[int, str], None] = field(factory=dict, init=False)
    """The (chain, block) pairs read so far, in order; one more than `limits.read_blocks` at most."""

    async def rows(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None, attempts: int) -> Answered:
        """One row, or None, for each key."""
        tables = self.backends.need_tables()
        if len(keys) > MAX_READ_KEYS:
            raise ReadError(
                f"table {table!r} is asked for {len(keys)} rows at once, at most {MAX_READ_KEYS} are allowed; "
                "ask in several steps"
            )

        def read(wanted: list[Any]) -> list[bytes]:
            return [pack_value(row) for row in tables.get_many(table, wanted, columns)]

        group = _packed(["get", table, None if columns is None else list(columns)])
        source = Source(group, self.backends.table_readers, read, self.limits.batch_keys, attempts)
        return await self._answered(source, ((group + _packed(key), key) for key in keys))

    async def scan(self, table: str, where: Where, order: Sequence[str], limit: int | None, attempts: int) -> Answered:
        """One value: the list of rows."""
        tables = self.backends.need_tables()

        def read(_: list[Any]) -> list[bytes]:
            return [pack_value(tables.scan(table, where, order, limit))]

        question = _packed(["scan", table, where, list(order), limit])
        source = Source(question, self.backends.table_readers, read, 1, attempts)
        return await self._answered(source, [(question, None)])

    async def table_columns(self, table: str, attempts: int) -> tuple[str, ...]:
        """Not kept: the tables may change at any time."""
        tables = await self._unkept(self.backends.table_readers, self.backends.need_tables().schema, attempts)
        if table not in tables:
            hint = nearest(table, tables)
            raise ReadError(f"there is no table {table!r}{hint}; `blockx tables apply` creates tables")
        return tuple(tables[table].columns)

    async def bundle(self, chain_id: int, block: str | int, attempts: int) -> Answered:
        """One value: the bundle as a dict."""
        bundles = self.backends.need_bundles()

        def read(_: list[Any]) -> list[bytes]:
            bundle = bundles.bundle(chain_id, block)
            self._note_block(chain_id, bundle["block"]["id"])
            return [pack_value(bundle)]

        question = _packed(["bundle", chain_id, block])
        source = Source(question, self.backends.bundle_readers, read, 1, attempts)
        return await self._answered(source, [(question, None)])

    async def bundle_part(
        self, chain_id: int, block_id: str, source: str, attempts: int
    ) -> tuple[BlockContext, list[Any]]:
        """One list of a bundle. Not kept: a builder reads it once, and it would displace what calls read again."""
        bundles = self.backends.need_bundles()
        read = partial(bundles.part, chain_id, block_id, source)
        part = await self._unkept(self.backends.bundle_readers, read, attempts)
        self._note_block(chain_id, part[0].id)
        return part

    async def block_ids(self, chain_id: int, heights: range, attempts: int) -> dict[int, list[str]]:
        """Not kept: a block may be imported at any time."""
        bundles = self.backends.need_bundles()
        return await self._unkept(self.backends.bundle_readers, partial(bundles.ids_at, chain_id, heights), attempts)

    async def _answered(self, source: Source, asked: Iterable[tuple[bytes, Any]]) -> Answered:
        arrived = trio.current_time()
        found: list[bytes | Seat] = []
        for question, key in asked:
            found.append(self.flights.ask(source, question, key))
            if len(found) % _KEYS_A_PASS == 0:
                await trio.lowlevel.checkpoint()
        flights = {seat.flight for seat in found if isinstance(seat, Seat)}
        self.reads += len(found)
        self.cached_reads += sum(isinstance(answer, bytes) for answer in found)
        await trio.lowlevel.checkpoint()
        for flight in flights:
            await flight.landed.wait()
        return Answered([_value(answer) for answer in found], sum(flight.charge_us(arrived) for flight in flights))

    async def _unkept(self, limiter: trio.CapacityLimiter, read: Callable[[], T], attempts: int) -> T:
        self.reads += 1
        attempt = partial(read_in_thread, limiter, _nothing, read)
        return await self.flights.backoff.repeat(attempts, attempt)

    def _note_block(self, chain_id: int, block_id: str) -> None:
        if len(self.blocks) <= self.limits.read_blocks:
            self.blocks[chain_id, block_id] = None


def _nothing() -> None:
    """Nobody waits to hear that an unkept read was admitted."""


def _packed(question: Any) -> bytes:
    """A question as bytes, its identity. Unlike equality of Python values this tells 1, True and 1.0 apart."""
    try:
        return pack_value(question)
    except UnserializableValue as error:
        raise ReadError(f"a read cannot ask for this: {error}") from None


def _value(found: bytes | Seat) -> bytes:
    answer = found if isinstance(found, bytes) else found.answer
    if isinstance(answer, ReadError):
        # Many reads may share this error; each raises one of its own, so that tracebacks do not grow together.
        raise ReadError(str(answer), retryable=answer.retryable) from answer
    return answer
