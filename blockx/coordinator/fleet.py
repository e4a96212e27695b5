"""What a coordinator knows of the workers: last heartbeats, their ages, and which workers may be routed to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field

from blockx.coordinator.breaker import Breaker
from blockx.coordinator.events import CoordinatorSettings, WorkerBeat, WorkerState

MAX_DISPATCH_AGE_MS = 10_000
"""Beyond this a worker whose heartbeats arrive no longer runs calls: canaries go round at least every 2 s."""


@define(eq=False)
class Worker:
    """One worker. `granted` counts own reservations since the last beat, `asking` the questions under way."""

    beat: WorkerBeat
    seen_ms: int
    unconfirmed_until_ms: int | None = None
    granted: int = 0
    asking: int = 0
    breaker: Breaker = field(factory=Breaker)

    @property
    def worker_id(self) -> str:
        return self.beat.worker_id

    @property
    def free(self) -> int:
        """Free slots by our count; below zero where reservations go on without beats."""
        return self.beat.slots - self.beat.used - self.granted - self.asking

    @property
    def free_share(self) -> float:
        return self.free / max(1, self.beat.slots)


class Fleet:
    """The workers by id. Methods that remove an address from the view return it, so that its connection can go."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        self._workers: dict[str, Worker] = {}
        self._lost_at_ms: int | None = None

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __contains__(self, worker: Worker) -> bool:
        return self._workers.get(worker.worker_id) is worker

    @property
    def is_registry_lost(self) -> bool:
        return self._lost_at_ms is not None

    # ----------------------------------------------------------------------------------------------------------------
    # What is heard

    def list_all(self, beats: Iterable[WorkerBeat], now_ms: int) -> list[str]:
        """The registry as it is: workers that it no longer shows stay, unconfirmed, for one lease TTL."""
        self._thaw(now_ms)
        dropped: list[str] = []
        listed = set()
        for beat in beats:
            dropped += self.see(beat, now_ms)
            listed.add(beat.worker_id)
        for worker in self:
            if worker.worker_id not in listed and worker.unconfirmed_until_ms is None:
                worker.unconfirmed_until_ms = now_ms + self._settings.registry_lease_ttl_ms
        return dropped

    def see(self, beat: WorkerBeat, now_ms: int) -> list[str]:
        """A heartbeat; only one with a new `seq` is news, since a registry may show an old one again."""
        known = self._workers.get(beat.worker_id)
        if known is None or known.beat.instance != beat.instance:
            self._workers[beat.worker_id] = Worker(beat, now_ms)
            return [] if known is None else self._unless_used([known.beat.addr])
        known.unconfirmed_until_ms = None
        if known.beat.seq == beat.seq:
            return []
        old, known.beat = known.beat, beat
        known.seen_ms, known.granted = now_ms, 0
        return self._unless_used([old.addr])

    def leave(self, worker_id: str) -> list[str]:
        worker = self._workers.pop(worker_id, None)
        return [] if worker is None else self._unless_used([worker.beat.addr])

    def lose_registry(self, now_ms: int) -> None:
        if self._lost_at_ms is None:
            self._lost_at_ms = now_ms

    def expire(self, now_ms: int) -> list[str]:
        """Forget the workers that nobody confirmed in time."""
        due = self.next_deadline_ms()
        if due is None or now_ms < due:
            return []
        gone = [each for each in self if each.unconfirmed_until_ms is not None and each.unconfirmed_until_ms <= now_ms]
        for worker in gone:
            del self._workers[worker.worker_id]
        return self._unless_used([worker.beat.addr for worker in gone])

    def next_deadline_ms(self) -> int | None:
        """When expire() has something to do; nothing expires while nothing can be confirmed."""
        if self._lost_at_ms is not None:
            return None
        return min((each.unconfirmed_until_ms for each in self if each.unconfirmed_until_ms is not None), default=None)

    def _thaw(self, now_ms: int) -> None:
        if self._lost_at_ms is None:
            return
        for worker in self:
            worker.seen_ms = now_ms - self.beat_age_ms(worker, now_ms)
            worker.unconfirmed_until_ms = None
        self._lost_at_ms = None

    def _unless_used(self, addrs: list[str]) -> list[str]:
        used = {worker.beat.addr for worker in self}
        return [addr for addr in dict.fromkeys(addrs) if addr not in used]

    # ----------------------------------------------------------------------------------------------------------------
    # What follows from it

    def beat_age_ms(self, worker: Worker, now_ms: int) -> int:
        """How long ago the worker's `seq` was last seen to change; stands still while the registry is out of reach."""
        stood_still_ms = 0
        if self._lost_at_ms is not None:
            stood_still_ms = min(now_ms - self._lost_at_ms, self._settings.registry_stale_ms)
        return max(0, now_ms - worker.seen_ms - stood_still_ms)

    def why_not_home(self, worker: Worker, now_ms: int) -> str:
        """Why not even a task that the worker may know already is asked for there; empty: it is.

        Where no heartbeats can be heard the last one is history: then only its age and the breaker judge.
        """
        if not worker.breaker.allows(now_ms):
            return _why_breaker(worker.breaker, now_ms)
        age_ms = self.beat_age_ms(worker, now_ms)
        if worker.unconfirmed_until_ms is None and age_ms >= self._settings.heartbeat_timeout_ms:
            return f"no heartbeat for {age_ms / 1000:.1f} s"
        if not self._is_heard(worker):
            return ""
        if worker.beat.state is WorkerState.STARTING:
            return "starting"
        if worker.beat.dispatch_age_ms > MAX_DISPATCH_AGE_MS:
            return f"its executors have answered nothing for {worker.beat.dispatch_age_ms / 1000:.1f} s"
        return ""

    def why_not(self, worker: Worker, now_ms: int) -> str:
        """Why no new task is placed there; empty: it is."""
        reason = self.why_not_home(worker, now_ms)
        if reason:
            return reason
        if worker.beat.state is WorkerState.DRAINING:
            return "draining"
        if not self._is_heard(worker):
            return ""
        if not worker.beat.accepting:
            return "not accepting tasks"
        return "full" if worker.free <= 0 else ""

    def _is_heard(self, worker: Worker) -> bool:
        return self._lost_at_ms is None and worker.unconfirmed_until_ms is None


def _why_breaker(breaker: Breaker, now_ms: int) -> str:
    left_ms = (breaker.open_until_ms or now_ms) - now_ms
    if left_ms <= 0:
        return f"being tried again after {breaker.failures} failed reserves in a row"
    return f"left alone for another {left_ms / 1000:.1f} s after {breaker.failures} failed reserves in a row"
