from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from attrs import define, evolve, field

from blockx.coordinator.events import BeatSeen, Event, RegistryLost, WorkerBeat, WorkerLeft, WorkersListed, WorkerState
from blockx.coordinator.view import RETRY_S, core_event, follow
from blockx.errors import Unavailable
from blockx.registry.local import LocalRegistry
from blockx.registry.port import Beat, Registration, RegistryEvent, ViewReset, WorkerSeen

BEAT = Beat(
    worker_id="w",
    addr="w:1",
    state="READY",
    seq=3,
    slots=8,
    reserved_slots=1,
    running_tasks=2,
    accepting=True,
    executors=1,
    dispatch_age_ms=5,
    code_epoch=1,
    version="0.1.0",
    started_ms=0,
    instance="i",
)
SEEN = WorkerBeat(
    worker_id="w",
    addr="w:1",
    instance="i",
    seq=3,
    slots=8,
    used=3,
    dispatch_age_ms=5,
    executors=1,
    code_epoch=1,
    version="0.1.0",
)


@define(eq=False)
class BrokenRegistry:
    """Out of reach for the first `failures` watches, then an empty view that ends at once."""

    failures: int
    watches: int = 0
    times: list[float] = field(factory=list)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[RegistryEvent]]:
        self.watches += 1
        self.times.append(trio.current_time())
        if self.watches <= self.failures:
            raise Unavailable("no leader")
        yield _only(ViewReset(()))

    def register(self, first: Beat) -> AbstractAsyncContextManager[Registration]:
        raise NotImplementedError


async def _only(event: RegistryEvent) -> AsyncIterator[RegistryEvent]:
    yield event


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("STARTING", WorkerState.STARTING),
        ("READY", WorkerState.READY),
        ("DRAINING", WorkerState.DRAINING),
        ("HIBERNATING", WorkerState.STARTING),
    ],
)
def test_a_state_unknown_here_counts_as_starting(state: str, seen: WorkerState) -> None:
    assert core_event(WorkerSeen(evolve(BEAT, state=state))) == BeatSeen(evolve(SEEN, state=seen))


async def test_what_the_registry_shows_is_told_to_the_core(nursery: trio.Nursery) -> None:
    registry, told = LocalRegistry(), list[Event]()
    async with registry.register(BEAT) as registration:
        await nursery.start(follow, registry, told.append)
        await registration.beat(evolve(BEAT, seq=4))
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert told == [WorkersListed((SEEN,)), BeatSeen(evolve(SEEN, seq=4)), WorkerLeft("w")]
    nursery.cancel_scope.cancel()


async def test_a_lost_registry_is_told_and_tried_again(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    registry, told = BrokenRegistry(failures=2), list[Event]()
    await nursery.start(follow, registry, told.append)
    assert told == [RegistryLost()]
    await trio.sleep(2.5 * RETRY_S)
    assert told == [RegistryLost(), RegistryLost(), WorkersListed(()), RegistryLost()]
    assert registry.times == pytest.approx([0, RETRY_S, 2 * RETRY_S])
    nursery.cancel_scope.cancel()
