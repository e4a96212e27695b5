"""What a worker tells the cluster and what a coordinator hears: the same for every registry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from attrs import field, frozen


@frozen(kw_only=True)
class Beat:
    """One heartbeat of a worker. `seq` grows by one each; `state` is STARTING, READY or DRAINING; times in ms."""

    worker_id: str
    addr: str
    state: str
    seq: int
    slots: int
    reserved_slots: int
    running_tasks: int
    accepting: bool
    executors: int
    dispatch_age_ms: int
    code_epoch: int
    version: str
    started_ms: int
    instance: str
    labels: dict[str, str] = field(factory=dict)


@frozen
class ViewReset:
    """Replaces everything known: the workers that are registered now."""

    beats: tuple[Beat, ...]


@frozen
class WorkerSeen:
    beat: Beat


@frozen
class WorkerGone:
    """The registration was removed: the worker left, or its lease ran out."""

    worker_id: str


RegistryEvent = ViewReset | WorkerSeen | WorkerGone


class Registration(Protocol):
    """A worker's place in the registry; it is gone once its context manager is left."""

    async def beat(self, beat: Beat) -> None: ...


class Registry(Protocol):
    def register(self, first: Beat) -> AbstractAsyncContextManager[Registration]:
        """Register a worker. Raises Unavailable if another live instance holds its worker id."""
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[RegistryEvent]]:
        """First a ViewReset, then what changes."""
        ...
