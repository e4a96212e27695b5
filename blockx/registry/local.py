"""The registry of a cluster that lives in one process: for `blockx dev`, for tests, for a worker without a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from blockx.errors import Unavailable
from blockx.registry.port import Beat, RegistryEvent, ViewReset, WorkerGone, WorkerSeen


class LocalRegistry:
    """Implements `blockx.registry.port.Registry` in memory. All of its users share one trio loop."""

    def __init__(self) -> None:
        self._beats: dict[str, Beat] = {}
        self._watchers: list[_Watcher] = []

    @asynccontextmanager
    async def register(self, first: Beat) -> AsyncIterator[LocalRegistration]:
        """Register a worker for as long as the block runs. Raises Unavailable if its worker id is taken."""
        if first.worker_id in self._beats:
            holder = self._beats[first.worker_id]
            raise Unavailable(
                f"worker id {first.worker_id!r} is held by instance {holder.instance!r} at {holder.addr}; "
                "stop that worker or give this one another id"
            )
        registration = LocalRegistration(self, first)
        self._publish(first)
        try:
            yield registration
        finally:
            registration.is_open = False
            del self._beats[first.worker_id]
            self._tell(first.worker_id, WorkerGone(first.worker_id))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[RegistryEvent]]:
        """First a ViewReset, then what changes; a slow reader gets only the newest event of each worker."""
        watcher = _Watcher(ViewReset(tuple(self._beats.values())))
        self._watchers.append(watcher)
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)

    def _publish(self, beat: Beat) -> None:
        self._beats[beat.worker_id] = beat
        self._tell(beat.worker_id, WorkerSeen(beat))

    def _tell(self, worker_id: str, event: RegistryEvent) -> None:
        for watcher in self._watchers:
            watcher.put(worker_id, event)


@define
class LocalRegistration:
    """A worker's place in a LocalRegistry."""

    _registry: LocalRegistry
    _first: Beat
    is_open: bool = True

    async def beat(self, beat: Beat) -> None:
        """Publish a heartbeat. Raises Unavailable once the registration has ended."""
        await trio.lowlevel.checkpoint()
        if not self.is_open:
            raise Unavailable(f"worker {self._first.worker_id!r} is no longer registered; register it again")
        self._registry._publish(beat)


@define(eq=False)
class _Watcher:
    """Holds at most one event a worker, so that a reader which never comes back cannot fill the memory."""

    _reset: ViewReset | None
    _pending: dict[str, RegistryEvent] = field(factory=dict)
    _wake: trio.Event = field(factory=trio.Event)

    def put(self, worker_id: str, event: RegistryEvent) -> None:
        self._pending.pop(worker_id, None)
        self._pending[worker_id] = event
        self._wake.set()

    def __aiter__(self) -> _Watcher:
        return self

    async def __anext__(self) -> RegistryEvent:
        if self._reset is not None:
            await trio.lowlevel.checkpoint()
            reset, self._reset = self._reset, None
            return reset
        await self._wake.wait()
        worker_id = next(iter(self._pending))
        event = self._pending.pop(worker_id)
        if not self._pending:
            self._wake = trio.Event()
        return event
