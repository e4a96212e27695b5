"""CoordinatorCore under random events, beside a simple model of what was told to it."""

from __future__ import annotations

from attrs import define, evolve, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import (
    AskWorker,
    BeatSeen,
    Command,
    CoordinatorSettings,
    DropConnection,
    Event,
    FinishReserve,
    RefuseReserve,
    RegistryLost,
    ReserveAbandoned,
    ReserveId,
    ReserveRequested,
    Tick,
    WorkerBeat,
    WorkerGranted,
    WorkerLeft,
    WorkerRejected,
    WorkersListed,
    WorkerState,
    WorkerUncertain,
    WorkerUnreached,
)
from blockx.model import Reservation, SlotId, TaskId, TaskState

IDS = ["w0", "w1", "w2", "w3", "w4", "w5", "w6"]
SETTINGS = CoordinatorSettings(max_candidates=4, registry_stale_ms=60_000)


@define
class Asked:
    """The model of one reserve under way."""

    task_id: TaskId
    give_up_ms: int
    question: AskWorker
    workers: list[str] = field(factory=list)
    questions: int = 0


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = CoordinatorCore(SETTINGS)
        self.now_ms = 1_000
        self.next_id = 0
        self.seq = 0
        self.reserves: dict[ReserveId, Asked] = {}
        self.listed: dict[str, WorkerBeat] = {}
        self.is_lost = False
        self.open_addrs: set[str] = set()

    def feed(self, event: Event) -> list[Command]:
        commands = self.core.handle(event, self.now_ms)
        for command in commands:
            if isinstance(command, DropConnection):
                assert command.addr not in {worker.addr for worker in self.core.status(self.now_ms).workers}
                self.open_addrs.discard(command.addr)
        return commands

    def new_beat(self, worker_id: str, draw: tuple[WorkerState, int, bool, int, int]) -> WorkerBeat:
        self.seq += 1
        state, used, accepting, dispatch_age_ms, restart = draw
        return WorkerBeat(
            worker_id=worker_id,
            addr=f"{worker_id}:{restart}",
            instance=f"i{restart}",
            seq=self.seq,
            state=state,
            slots=4,
            used=used,
            accepting=accepting,
            dispatch_age_ms=dispatch_age_ms,
        )

    drawn = st.tuples(
        st.sampled_from([WorkerState.READY] * 4 + list(WorkerState)),
        st.integers(0, 4),
        st.sampled_from([True, True, False]),
        st.sampled_from([0, 0, 0, 20_000]),
        st.sampled_from([0, 0, 0, 1]),
    )

    # ----------------------------------------------------------------------------------------------------------------
    # Time and view

    @initialize(draws=st.lists(drawn, min_size=0, max_size=len(IDS)))
    def begin(self, draws: list[tuple[WorkerState, int, bool, int, int]]) -> None:
        self.listed = {worker_id: self.new_beat(worker_id, draw) for worker_id, draw in zip(IDS, draws, strict=False)}
        self.feed(WorkersListed(tuple(self.listed.values())))

    @rule(passed_ms=st.sampled_from([1, 100, 1_000, 9_000, 40_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        due = self.core.next_deadline_ms()
        if due is not None and due <= self.now_ms:
            self.feed(Tick())

    @rule(worker_id=st.sampled_from(IDS), draw=drawn)
    def a_worker_beats(self, worker_id: str, draw: tuple[WorkerState, int, bool, int, int]) -> None:
        beat = self.listed[worker_id] = self.new_beat(worker_id, draw)
        if not self.is_lost:
            self.feed(BeatSeen(beat))

    @rule(worker_id=st.sampled_from(IDS))
    def a_worker_leaves(self, worker_id: str) -> None:
        self.listed.pop(worker_id, None)
        if not self.is_lost:
            self.feed(WorkerLeft(worker_id))
            assert worker_id not in self.known()

    @rule()
    def the_registry_is_lost(self) -> None:
        before = {worker.worker_id: worker.beat_age_ms for worker in self.core.status(self.now_ms).workers}
        self.is_lost = True
        self.feed(RegistryLost())
        after = {worker.worker_id: worker.beat_age_ms for worker in self.core.status(self.now_ms).workers}
        assert after == before

    @rule()
    def the_registry_is_listed(self) -> None:
        known = set(self.known())
        self.is_lost = False
        self.feed(WorkersListed(tuple(self.listed.values())))
        assert known | set(self.listed) == set(self.known())

    def known(self) -> dict[str, WorkerState]:
        return {worker.worker_id: worker.state for worker in self.core.status(self.now_ms).workers}

    # ----------------------------------------------------------------------------------------------------------------
    # Reserves

    @rule(number=st.integers(0, 30), patience_ms=st.sampled_from([None, None, 50, 1_000]))
    def a_reserve_is_requested(self, number: int, patience_ms: int | None) -> None:
        self.next_id += 1
        reserve_id, task_id = ReserveId(self.next_id), TaskId(f"t{number}")
        deadline_ms = None if patience_ms is None else self.now_ms + patience_ms
        half_ttl_ms = self.now_ms + SETTINGS.slot_ttl_ms // 2
        give_up_ms = half_ttl_ms if deadline_ms is None else min(half_ttl_ms, deadline_ms)
        (command,) = self.feed(ReserveRequested(reserve_id, task_id, deadline_ms))
        if isinstance(command, AskWorker):
            self.reserves[reserve_id] = Asked(task_id, give_up_ms, command)
        self.check(reserve_id, command)

    @precondition(lambda self: self.reserves)
    @rule(
        data=st.data(), kind=st.sampled_from(["granted", "known", "full", "draining", "unreached", "uncertain", "gone"])
    )
    def a_question_ends(self, data: st.DataObject, kind: str) -> None:
        reserve_id = data.draw(st.sampled_from(sorted(self.reserves)))
        question = self.reserves[reserve_id].question
        events: dict[str, Event] = {
            "granted": WorkerGranted(reserve_id, Reservation(question.addr, SlotId("s"), TaskState.ALLOCATED)),
            "known": WorkerGranted(reserve_id, Reservation(question.addr, None, TaskState.SUCCEEDED)),
            "full": WorkerRejected(reserve_id, "full", is_full=True),
            "draining": WorkerRejected(reserve_id, "draining", is_full=False, retry_after_ms=5),
            "unreached": WorkerUnreached(reserve_id, "refused"),
            "uncertain": WorkerUncertain(reserve_id, "timed out"),
            "gone": ReserveAbandoned(reserve_id),
        }
        commands = self.feed(events[kind])
        if kind == "gone":
            assert commands == []
            del self.reserves[reserve_id]
            return
        (command,) = commands
        assert isinstance(command, FinishReserve) == (kind in ("granted", "known"))
        if isinstance(command, AskWorker) and command.worker_id == question.worker_id:
            assert kind == "uncertain"
        self.check(reserve_id, command)

    def check(self, reserve_id: ReserveId, command: Command) -> None:
        match command:
            case AskWorker():
                self.check_question(self.reserves[reserve_id], command)
            case FinishReserve():
                assert command.worker_id == self.reserves[reserve_id].question.worker_id
                del self.reserves[reserve_id]
            case RefuseReserve():
                assert command.retry_after_ms > 0
                self.reserves.pop(reserve_id, None)
            case DropConnection():
                raise AssertionError("a reserve drops no connection")

    def check_question(self, reserve: Asked, question: AskWorker) -> None:
        reserve.question = question
        if question.worker_id not in reserve.workers:
            reserve.workers.append(question.worker_id)
            reserve.questions = 0
        assert reserve.workers[-1] == question.worker_id, "nobody is asked again once another was"
        reserve.questions += 1
        assert reserve.questions <= 1 + SETTINGS.uncertain_retries
        assert len(reserve.workers) <= SETTINGS.max_candidates
        assert 0 < question.timeout_ms <= SETTINGS.rpc_timeout_ms
        assert self.now_ms + question.timeout_ms <= reserve.give_up_ms
        known = self.known()
        assert question.worker_id in known
        if not self.is_lost and reserve.questions == 1:
            confirmed = {worker.worker_id for worker in self.core.status(self.now_ms).workers if worker.is_confirmed}
            assert question.worker_id not in confirmed or known[question.worker_id] is not WorkerState.STARTING

    # ----------------------------------------------------------------------------------------------------------------
    # Always

    @invariant()
    def the_view_has_every_listed_worker(self) -> None:
        if not self.is_lost:
            assert set(self.listed) <= set(self.known())

    @invariant()
    def the_next_deadline_is_not_in_the_past(self) -> None:
        due = self.core.next_deadline_ms()
        assert due is None or due > self.now_ms

    @invariant()
    def free_slots_are_within_the_slots(self) -> None:
        for worker in self.core.status(self.now_ms).workers:
            assert 0 <= worker.free <= worker.slots
            assert worker.beat_age_ms >= 0

    @invariant()
    def as_many_reserves_are_under_way_as_were_not_answered(self) -> None:
        assert len(self.core._reserves) == len(self.reserves)
        asking = sum(worker.asking for worker in self.core._fleet)
        assert asking <= len(self.reserves)
        assert all(worker.asking >= 0 for worker in self.core._fleet)

    def teardown(self) -> None:
        """Once everybody is well and idle again, everything is as in the beginning."""
        for reserve_id in list(self.reserves):
            assert self.feed(ReserveAbandoned(reserve_id)) == []
        self.now_ms += 60_000
        well = WorkerBeat(worker_id="w0", addr="w0:9", instance="last", seq=1, slots=4)
        self.feed(WorkersListed((well,)))
        self.now_ms += 1_000
        self.feed(BeatSeen(evolve(well, seq=2)))
        (status,) = [worker for worker in self.core.status(self.now_ms).workers if worker.worker_id == "w0"]
        assert (status.why_not, status.free) == ("", 4)


CoordinatorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCoordinatorMachine = CoordinatorMachine.TestCase
