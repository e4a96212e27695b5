"""The backends of a worker and how many threads each may be asked from at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import trio
from attrs import define, field, frozen

from blockx.errors import ReadError
from blockx.worker.io.ports import Bundles, Tables

T = TypeVar("T")

READ_THREADS = 2
"""Threads that read one backend; measured: with 8, one read takes twice as long."""


def _readers() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(READ_THREADS)


@define(eq=False)
class Backends:
    """What all tasks of a worker share: stores (None: not configured) and the limiters of their threads."""

    tables: Tables | None
    bundles: Bundles | None
    table_readers: trio.CapacityLimiter = field(factory=_readers)
    table_writer: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(1))
    bundle_readers: trio.CapacityLimiter = field(factory=_readers)

    def close(self) -> None:
        """Close what there is; afterwards every read and write fails."""
        if self.tables is not None:
            self.tables.close()

    def need_tables(self) -> Tables:
        """The tables. Raises ReadError where there are none."""
        if self.tables is None:
            raise ReadError("this worker has no tables; start it with --database URL")
        return self.tables

    def need_bundles(self) -> Bundles:
        """The bundles. Raises ReadError where there are none."""
        if self.bundles is None:
            raise ReadError("this worker has no bundles; start it with --bundles URL")
        return self.bundles


@frozen
class _Admission:
    """A limiter that tells when it let somebody in, before the thread starts."""

    limiter: trio.CapacityLimiter
    on_admitted: Callable[[], None]

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self.limiter.acquire_on_behalf_of(borrower)
        self.on_admitted()

    def release_on_behalf_of(self, borrower: object) -> None:
        self.limiter.release_on_behalf_of(borrower)


async def read_in_thread(limiter: trio.CapacityLimiter, on_admitted: Callable[[], None], read: Callable[[], T]) -> T:
    """Call `read` in a thread; `on_admitted` is called in this one as soon as the backend has a free permit.

    When cancelled, the thread is left to itself and its answer dropped; its permit stays taken until it ends.
    """
    # Trio takes anything with these two methods, says its documentation; its annotation names the class.
    admission = cast("trio.CapacityLimiter", _Admission(limiter, on_admitted))
    return await trio.to_thread.run_sync(read, limiter=admission, abandon_on_cancel=True)
