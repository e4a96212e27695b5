from __future__ import annotations

import trio
import trio.testing
from attrs import define, evolve, field
from trio.testing import MockClock

from blockx.registry.port import Beat
from blockx.worker.heartbeat import Heartbeat

BEAT = Beat(
    worker_id="w",
    addr="127.0.0.1:1",
    state="READY",
    seq=0,
    slots=4,
    reserved_slots=0,
    running_tasks=0,
    accepting=True,
    executors=1,
    dispatch_age_ms=0,
    code_epoch=1,
    version="0",
    started_ms=0,
    instance="i",
)


@define
class Sent:
    """A registration that keeps what it was told, and when."""

    beats: list[tuple[float, Beat]] = field(factory=list)

    async def beat(self, beat: Beat) -> None:
        self.beats.append((trio.current_time(), beat))
        await trio.lowlevel.checkpoint()


@define
class Worker:
    state: Beat = BEAT

    def now(self) -> Beat:
        return self.state


async def test_an_unchanged_beat_is_written_only_every_two_seconds(autojump_clock: MockClock) -> None:
    sent, worker = Sent(), Worker()
    heartbeat = Heartbeat(worker.now, interval_ms=200)
    assert heartbeat.first().seq == 1
    with trio.move_on_after(4.5):
        await heartbeat.run(sent)
    assert [beat.seq for _, beat in sent.beats] == [2, 3]


async def test_a_changed_beat_leaves_at_the_next_interval(autojump_clock: MockClock) -> None:
    sent, worker = Sent(), Worker()
    heartbeat = Heartbeat(worker.now, interval_ms=200)
    heartbeat.first()
    worker.state = evolve(BEAT, running_tasks=1)
    with trio.move_on_after(0.3):
        await heartbeat.run(sent)
    assert [beat for _, beat in sent.beats] == [evolve(BEAT, running_tasks=1, seq=2)]


async def test_the_age_of_the_last_dispatch_alone_is_no_change(autojump_clock: MockClock) -> None:
    sent, worker = Sent(), Worker()
    heartbeat = Heartbeat(worker.now, interval_ms=200)
    heartbeat.first()
    worker.state = evolve(BEAT, dispatch_age_ms=700)
    with trio.move_on_after(1):
        await heartbeat.run(sent)
    assert sent.beats == []


async def test_an_urgent_beat_does_not_wait_for_the_interval(autojump_clock: MockClock) -> None:
    sent, worker = Sent(), Worker()
    heartbeat = Heartbeat(worker.now, interval_ms=60_000)
    heartbeat.first()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.run, sent)
        await trio.testing.wait_all_tasks_blocked()
        worker.state = evolve(BEAT, state="DRAINING")
        heartbeat.urge()
        await trio.testing.wait_all_tasks_blocked()
        assert [beat.state for _, beat in sent.beats] == ["DRAINING"]
        nursery.cancel_scope.cancel()
