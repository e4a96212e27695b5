"""CoordinatorCore: which worker is asked for a slot, and what follows from its answer. Pure."""

from __future__ import annotations

import hashlib
import math
from typing import assert_never

from attrs import define, field

from blockx.coordinator.events import (
    AskWorker,
    BeatSeen,
    Command,
    CoordinatorSettings,
    CoordinatorStatus,
    DropConnection,
    Event,
    FinishReserve,
    RefuseReserve,
    RegistryLost,
    ReserveAbandoned,
    ReserveId,
    ReserveRequested,
    Tick,
    WorkerGranted,
    WorkerLeft,
    WorkerRejected,
    WorkersListed,
    WorkerStatus,
    WorkerUncertain,
    WorkerUnreached,
)
from blockx.coordinator.fleet import Fleet, Worker
from blockx.model import TaskId, TaskState, checked_task_id

HOME_TRUST_MS = 2_000
"""A home whose beat is younger and shows it full is asked last: unchanged beats are written this often."""
RETRY_AFTER_FULL_MS = 200
RETRY_AFTER_UNAVAILABLE_MS = 1_000
MAX_REASONS = 10
MAX_REASON_CHARS = 200
"""Refusals travel in a header, and servers bound the size of those."""


@define(eq=False)
class _Reserve:
    """One ReserveWorkerSlot under way. `worker` is the one being asked."""

    reserve_id: ReserveId
    task_id: TaskId
    give_up_ms: int
    worker: Worker | None = None
    is_probe: bool = False
    retries: int = 0
    reasons: dict[str, str] = field(factory=dict)
    hints_ms: list[int] = field(factory=list)
    full: int = 0
    failed: int = 0


class CoordinatorCore:
    """The only door for changes is handle(); everything else is a query."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        self._fleet = Fleet(settings)
        self._reserves: dict[ReserveId, _Reserve] = {}
        self.late_events = 0

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """Raises InvalidArgument for a reserve with a bad task id; nothing has changed then."""
        match event:
            case WorkersListed(beats):
                return _drop(self._fleet.list_all(beats, now_ms))
            case BeatSeen(beat):
                return _drop(self._fleet.see(beat, now_ms))
            case WorkerLeft(worker_id):
                return _drop(self._fleet.leave(worker_id))
            case RegistryLost():
                self._fleet.lose_registry(now_ms)
                return []
            case Tick():
                return _drop(self._fleet.expire(now_ms))
            case ReserveRequested():
                return [self._begin(event, now_ms)]
            case WorkerGranted() | WorkerRejected() | WorkerUnreached() | WorkerUncertain() | ReserveAbandoned():
                return self._go_on(event, now_ms)
            case _:
                assert_never(event)

    def next_deadline_ms(self) -> int | None:
        return self._fleet.next_deadline_ms()

    def status(self, now_ms: int) -> CoordinatorStatus:
        """The view as people and metrics see it."""
        workers = tuple(self._worker_status(worker, now_ms) for worker in self._fleet)
        return CoordinatorStatus(self._fleet.is_registry_lost, workers)

    def _worker_status(self, worker: Worker, now_ms: int) -> WorkerStatus:
        return WorkerStatus(
            worker_id=worker.worker_id,
            addr=worker.beat.addr,
            state=worker.beat.state,
            slots=worker.beat.slots,
            free=max(0, worker.free),
            beat_age_ms=self._fleet.beat_age_ms(worker, now_ms),
            is_confirmed=worker.unconfirmed_until_ms is None,
            why_not=self._fleet.why_not(worker, now_ms),
            dispatch_age_ms=worker.beat.dispatch_age_ms,
            executors=worker.beat.executors,
            code_epoch=worker.beat.code_epoch,
            version=worker.beat.version,
        )

    # ----------------------------------------------------------------------------------------------------------------
    # One reserve

    def _begin(self, event: ReserveRequested, now_ms: int) -> Command:
        assert event.reserve_id not in self._reserves, f"reserve {event.reserve_id} is under way already"
        checked_task_id(event.task_id)
        give_up_ms = now_ms + self._settings.slot_ttl_ms // 2
        if event.deadline_ms is not None:
            give_up_ms = min(give_up_ms, event.deadline_ms)
        reserve = _Reserve(event.reserve_id, event.task_id, give_up_ms)
        self._reserves[event.reserve_id] = reserve
        return self._ask_next(reserve, now_ms)

    def _go_on(
        self,
        event: WorkerGranted | WorkerRejected | WorkerUnreached | WorkerUncertain | ReserveAbandoned,
        now_ms: int,
    ) -> list[Command]:
        reserve = self._reserves.get(event.reserve_id)
        if reserve is None or reserve.worker is None:
            self.late_events += 1
            return []
        worker = reserve.worker
        match event:
            case WorkerGranted():
                return [self._granted(reserve, worker, event)]
            case WorkerRejected():
                return [self._rejected(reserve, worker, event, now_ms)]
            case WorkerUnreached():
                return [self._unreached(reserve, worker, event.reason, now_ms)]
            case WorkerUncertain():
                return [self._uncertain(reserve, worker, event.reason, now_ms)]
            case ReserveAbandoned():
                self._abandoned(reserve, worker)
                return []
            case _:
                assert_never(event)

    def _granted(self, reserve: _Reserve, worker: Worker, event: WorkerGranted) -> Command:
        self._stop_asking(reserve, worker)
        worker.breaker.succeed()
        if event.reservation.state is TaskState.ALLOCATED:
            worker.granted += 1
        del self._reserves[reserve.reserve_id]
        return FinishReserve(reserve.reserve_id, worker.worker_id, event.reservation)

    def _rejected(self, reserve: _Reserve, worker: Worker, event: WorkerRejected, now_ms: int) -> Command:
        self._stop_asking(reserve, worker)
        worker.breaker.succeed()
        reserve.reasons[worker.worker_id] = event.reason
        reserve.full += event.is_full
        reserve.failed += not event.is_full
        if event.retry_after_ms is not None:
            reserve.hints_ms.append(event.retry_after_ms)
        return self._ask_next(reserve, now_ms)

    def _unreached(self, reserve: _Reserve, worker: Worker, reason: str, now_ms: int) -> Command:
        worker.breaker.fail(now_ms, is_probe=reserve.is_probe)
        self._stop_asking(reserve, worker)
        reserve.reasons[worker.worker_id] = reason
        reserve.failed += 1
        return self._ask_next(reserve, now_ms)

    def _uncertain(self, reserve: _Reserve, worker: Worker, reason: str, now_ms: int) -> Command:
        may_retry = reserve.retries < self._settings.uncertain_retries and worker in self._fleet
        if may_retry and now_ms < reserve.give_up_ms:
            reserve.retries += 1
            return self._ask(reserve, worker, now_ms)
        worker.granted += 1  # it may have leased a slot after all; its next beat tells
        return self._unreached(reserve, worker, reason, now_ms)

    def _abandoned(self, reserve: _Reserve, worker: Worker) -> None:
        worker.breaker.release(is_probe=reserve.is_probe)
        worker.granted += 1  # as above
        self._stop_asking(reserve, worker)
        del self._reserves[reserve.reserve_id]

    def _stop_asking(self, reserve: _Reserve, worker: Worker) -> None:
        worker.asking -= 1
        reserve.worker = None

    # ----------------------------------------------------------------------------------------------------------------
    # Whom to ask

    def _ask_next(self, reserve: _Reserve, now_ms: int) -> Command:
        worker = self._select_candidate(reserve, now_ms)
        if worker is None or now_ms >= reserve.give_up_ms:
            return self._refuse(reserve, now_ms)
        reserve.worker, reserve.retries = worker, 0
        reserve.is_probe = worker.breaker.begin()
        worker.asking += 1
        reserve.reasons[worker.worker_id] = "asked"
        return self._ask(reserve, worker, now_ms)

    def _ask(self, reserve: _Reserve, worker: Worker, now_ms: int) -> Command:
        return AskWorker(
            reserve_id=reserve.reserve_id,
            worker_id=worker.worker_id,
            addr=worker.beat.addr,
            task_id=reserve.task_id,
            ttl_ms=self._settings.slot_ttl_ms,
            timeout_ms=min(self._settings.rpc_timeout_ms, reserve.give_up_ms - now_ms),
        )

    def _select_candidate(self, reserve: _Reserve, now_ms: int) -> Worker | None:
        """The task's home first, since it may know the task; then whoever has the largest free share."""
        chances = self._settings.max_candidates - len(reserve.reasons)
        if chances <= 0:
            return None
        home = self._home(reserve.task_id, now_ms)
        others = [
            worker
            for worker in self._fleet
            if worker is not home
            and worker.worker_id not in reserve.reasons
            and not self._fleet.why_not(worker, now_ms)
        ]
        if home is not None and home.worker_id not in reserve.reasons:
            is_put_last = self._shows_full(home, now_ms)
            if not is_put_last or not others or chances == 1:
                return home
        return max(others, key=lambda each: (each.free_share, _score(reserve.task_id, each)), default=None)

    def _home(self, task_id: TaskId, now_ms: int) -> Worker | None:
        reachable = [worker for worker in self._fleet if not self._fleet.why_not_home(worker, now_ms)]
        return max(reachable, key=lambda each: _score(task_id, each), default=None)

    def _shows_full(self, worker: Worker, now_ms: int) -> bool:
        is_recent = self._fleet.beat_age_ms(worker, now_ms) < HOME_TRUST_MS
        return is_recent and worker.beat.used >= worker.beat.slots

    # ----------------------------------------------------------------------------------------------------------------
    # Refusals

    def _refuse(self, reserve: _Reserve, now_ms: int) -> Command:
        del self._reserves[reserve.reserve_id]
        reasons = dict(reserve.reasons)
        for worker in self._fleet:
            reason = self._fleet.why_not(worker, now_ms)
            if reason and worker.worker_id not in reasons:
                reasons[worker.worker_id] = reason
        is_full = reserve.full > 0 and reserve.failed == 0
        default_ms = RETRY_AFTER_FULL_MS if is_full else RETRY_AFTER_UNAVAILABLE_MS
        retry_after_ms = min(reserve.hints_ms, default=default_ms)
        return RefuseReserve(reserve.reserve_id, is_full, self._message(reserve, reasons, is_full), retry_after_ms)

    def _message(self, reserve: _Reserve, reasons: dict[str, str], is_full: bool) -> str:
        if not reasons:
            return self._why_nobody(reserve)
        what = "no worker has a free slot for" if is_full else "no worker can take"
        shown = [f"{worker_id}: {reason[:MAX_REASON_CHARS]}" for worker_id, reason in reasons.items()][:MAX_REASONS]
        if len(reasons) > len(shown):
            shown.append(f"and {len(reasons) - len(shown)} more")
        return f"{what} task {reserve.task_id!r}: {'; '.join(shown)}"

    def _why_nobody(self, reserve: _Reserve) -> str:
        if any(True for _ in self._fleet):
            return f"no time was left to ask a worker for task {reserve.task_id!r}; give the call a longer timeout"
        if self._fleet.is_registry_lost:
            return "the registry is out of reach and no worker is known; check that it runs"
        return "no worker is registered; start one, or check that it uses the same registry and cluster name"


def _drop(addrs: list[str]) -> list[Command]:
    return [DropConnection(addr) for addr in addrs]


def _score(task_id: TaskId, worker: Worker) -> float:
    """Weighted rendezvous hash: every coordinator ranks the same workers alike, and a worker gets work by its slots."""
    digest = hashlib.blake2b(f"{task_id}\0{worker.worker_id}".encode(), digest_size=8).digest()
    uniform = ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52  # exact in a float, so never 0 or 1
    return -max(1, worker.beat.slots) / math.log(uniform)
