from __future__ import annotations

import pytest
import trio
import trio.testing
from attrs import evolve

from blockx.errors import Unavailable
from blockx.registry.local import LocalRegistry
from blockx.registry.port import Beat, Registry, RegistryEvent, ViewReset, WorkerGone, WorkerSeen

BEAT = Beat(
    worker_id="w1",
    addr="127.0.0.1:7071",
    state="READY",
    seq=1,
    slots=4,
    reserved_slots=0,
    running_tasks=0,
    accepting=True,
    executors=1,
    dispatch_age_ms=0,
    code_epoch=1,
    version="0.1.0",
    started_ms=0,
    instance="a",
)


def test_the_local_registry_implements_the_port() -> None:
    registry: Registry = LocalRegistry()
    assert registry is not None


async def test_a_watch_begins_with_the_workers_that_are_registered() -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT), registry.watch() as events:
        assert await anext(events) == ViewReset((BEAT,))


async def test_a_watch_of_an_empty_registry_begins_with_an_empty_view() -> None:
    async with LocalRegistry().watch() as events:
        assert await anext(events) == ViewReset(())


async def test_a_watch_follows_registration_beats_and_departure() -> None:
    registry = LocalRegistry()
    async with registry.watch() as events:
        assert await anext(events) == ViewReset(())
        async with registry.register(BEAT) as registration:
            assert await anext(events) == WorkerSeen(BEAT)
            await registration.beat(evolve(BEAT, seq=2))
            assert await anext(events) == WorkerSeen(evolve(BEAT, seq=2))
        assert await anext(events) == WorkerGone("w1")


async def test_the_view_of_a_later_watch_holds_the_last_beat() -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT) as registration:
        await registration.beat(evolve(BEAT, seq=7))
        async with registry.watch() as events:
            assert await anext(events) == ViewReset((evolve(BEAT, seq=7),))


async def test_a_slow_reader_gets_the_newest_event_of_each_worker_in_their_order() -> None:
    registry = LocalRegistry()
    other = evolve(BEAT, worker_id="w2", addr="127.0.0.1:7072")
    async with registry.watch() as events, registry.register(BEAT) as registration, registry.register(other):
        await registration.beat(evolve(BEAT, seq=2))
        await registration.beat(evolve(BEAT, seq=3))
        seen = [await anext(events) for _ in range(3)]
        assert seen == [ViewReset(()), WorkerSeen(other), WorkerSeen(evolve(BEAT, seq=3))]


async def test_a_waiting_reader_is_woken_by_a_beat(nursery: trio.Nursery) -> None:
    registry = LocalRegistry()
    seen: list[RegistryEvent] = []

    async def read() -> None:
        async with registry.watch() as events:
            async for event in events:
                seen.append(event)

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    async with registry.register(BEAT):
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [ViewReset(()), WorkerSeen(BEAT)]
    nursery.cancel_scope.cancel()


async def test_a_taken_worker_id_is_refused_and_its_holder_stays() -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT):
        with pytest.raises(Unavailable, match="'w1' is held by instance 'a' at 127"):
            async with registry.register(evolve(BEAT, instance="b", addr="127.0.0.1:9")):
                pass
        async with registry.watch() as events:
            assert await anext(events) == ViewReset((BEAT,))


async def test_a_worker_id_is_free_again_after_its_holder_left() -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT):
        pass
    async with registry.register(evolve(BEAT, instance="b")), registry.watch() as events:
        assert await anext(events) == ViewReset((evolve(BEAT, instance="b"),))


async def test_a_beat_after_the_registration_ended_is_refused() -> None:
    registry = LocalRegistry()
    async with registry.register(BEAT) as registration:
        pass
    with pytest.raises(Unavailable, match="no longer registered"):
        await registration.beat(evolve(BEAT, seq=2))
    async with registry.watch() as events:
        assert await anext(events) == ViewReset(())
