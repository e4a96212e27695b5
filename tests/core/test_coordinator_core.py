from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import (
    AskWorker,
    BeatSeen,
    Command,
    CoordinatorSettings,
    DropConnection,
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
from blockx.errors import InvalidArgument
from blockx.model import Reservation, SlotId, TaskId, TaskState

R = ReserveId
R1 = ReserveId(1)


def beat(
    worker_id: str,
    *,
    seq: int = 1,
    state: WorkerState = WorkerState.READY,
    slots: int = 4,
    used: int = 0,
    accepting: bool = True,
    dispatch_age_ms: int = 0,
    instance: str = "i",
    addr: str | None = None,
) -> WorkerBeat:
    return WorkerBeat(
        worker_id=worker_id,
        addr=addr or f"{worker_id}:1",
        instance=instance,
        seq=seq,
        state=state,
        slots=slots,
        used=used,
        accepting=accepting,
        dispatch_age_ms=dispatch_age_ms,
    )


def core_with(*beats: WorkerBeat, settings: CoordinatorSettings | None = None) -> CoordinatorCore:
    core = CoordinatorCore(settings or CoordinatorSettings())
    assert core.handle(WorkersListed(beats), 0) == []
    return core


def task_at_home(worker_id: str, *others: str) -> TaskId:
    """A task whose home is this worker among these of four slots each."""
    for number in range(1_000):
        task_id = TaskId(f"task-{number}")
        (command,) = core_with(*map(beat, (worker_id, *others))).handle(ReserveRequested(R1, task_id), 0)
        assert isinstance(command, AskWorker)
        if command.worker_id == worker_id:
            return task_id
    raise AssertionError("no such task")


def ask(worker_id: str, task_id: str, *, reserve_id: int = 1, timeout_ms: int = 500) -> AskWorker:
    return AskWorker(
        reserve_id=R(reserve_id),
        worker_id=worker_id,
        addr=f"{worker_id}:1",
        task_id=TaskId(task_id),
        ttl_ms=5_000,
        timeout_ms=timeout_ms,
    )


def slot(worker_id: str, state: TaskState = TaskState.ALLOCATED) -> Reservation:
    slot_id = None if state.is_terminal else SlotId("s")
    return Reservation(f"{worker_id}:1", slot_id, state, 5_000)


def reserve(core: CoordinatorCore, task_id: str, now_ms: int = 0, *, reserve_id: int = 1) -> Command:
    (command,) = core.handle(ReserveRequested(R(reserve_id), TaskId(task_id)), now_ms)
    return command


def full(core: CoordinatorCore, now_ms: int = 0, *, retry_after_ms: int | None = None) -> Command:
    event = WorkerRejected(R1, "every slot is taken", is_full=True, retry_after_ms=retry_after_ms)
    (command,) = core.handle(event, now_ms)
    return command


def asked_until_refused(core: CoordinatorCore, task_id: str, now_ms: int = 0) -> list[str]:
    """Which workers are asked, one after the other, if every one is full."""
    asked, command = [], reserve(core, task_id, now_ms)
    while isinstance(command, AskWorker):
        asked.append(command.worker_id)
        command = full(core, now_ms)
    return asked


def take_slots(core: CoordinatorCore, worker_id: str, task_id: TaskId, count: int) -> None:
    """Have so many slots leased by a worker through this core, for a task that is at home there."""
    for number in range(1_000, 1_000 + count):
        assert reserve(core, task_id, reserve_id=number) == ask(worker_id, task_id, reserve_id=number)
        core.handle(WorkerGranted(R(number), slot(worker_id)), 0)


def fail_reserves(core: CoordinatorCore, count: int, now_ms: int = 0) -> None:
    """So many reserves in a row that fail at the only worker."""
    for number in range(count):
        assert isinstance(reserve(core, "t", now_ms, reserve_id=100 + number), AskWorker)
        core.handle(WorkerUnreached(R(100 + number), "refused"), now_ms)


# --------------------------------------------------------------------------------------------------------------------
# One reserve


def test_a_reserve_asks_a_worker_and_hands_on_its_slot() -> None:
    core = core_with(beat("w"))
    assert core.handle(ReserveRequested(R1, TaskId("t")), 0) == [ask("w", "t")]
    assert core.handle(WorkerGranted(R1, slot("w")), 1) == [FinishReserve(R1, "w", slot("w"))]


def test_a_task_that_ended_there_is_handed_on_without_a_slot() -> None:
    core = core_with(beat("w"))
    reserve(core, "t")
    ended = slot("w", TaskState.SUCCEEDED)
    assert core.handle(WorkerGranted(R1, ended), 1) == [FinishReserve(R1, "w", ended)]
    assert core.status(1).workers[0].free == 4


@pytest.mark.parametrize("task_id", ["", "a\nb", "x" * 257])
def test_a_bad_task_id_is_refused_and_changes_nothing(task_id: str) -> None:
    core = core_with(beat("w"))
    with pytest.raises(InvalidArgument, match="task_id"):
        reserve(core, task_id)
    assert reserve(core, "t") == ask("w", "t")


def test_a_rejection_leads_to_the_next_worker() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    assert reserve(core, task_id) == ask("a", task_id)
    assert full(core) == ask("b", task_id)
    assert core.handle(WorkerGranted(R1, slot("b")), 1) == [FinishReserve(R1, "b", slot("b"))]


def test_at_most_five_candidates_are_asked() -> None:
    core = core_with(*(beat(f"w{number}") for number in range(8)))
    asked = asked_until_refused(core, "t")
    assert len(asked) == len(set(asked)) == 5


def test_when_all_were_full_the_refusal_says_so_with_the_soonest_hint() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    reserve(core, task_id)
    full(core, retry_after_ms=70)
    assert full(core, retry_after_ms=50) == RefuseReserve(
        R1,
        True,
        f"no worker has a free slot for task {task_id!r}: a: every slot is taken; b: every slot is taken",
        50,
    )


def test_when_one_was_not_full_the_refusal_is_unavailable() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    reserve(core, task_id)
    full(core)
    (command,) = core.handle(WorkerRejected(R1, "draining", is_full=False), 0)
    assert command == RefuseReserve(
        R1, False, f"no worker can take task {task_id!r}: a: every slot is taken; b: draining", 1_000
    )


def test_a_refusal_names_also_the_workers_that_were_not_asked() -> None:
    core = core_with(beat("a", state=WorkerState.STARTING), beat("b", dispatch_age_ms=12_000))
    assert reserve(core, "t") == RefuseReserve(
        R1,
        False,
        "no worker can take task 't': a: starting; b: its executors have answered nothing for 12.0 s",
        1_000,
    )


def test_a_long_refusal_is_shortened() -> None:
    core = core_with(*(beat(f"w{number}", state=WorkerState.STARTING) for number in range(12)))
    command = reserve(core, "t")
    assert isinstance(command, RefuseReserve)
    assert command.message.endswith("w9: starting; and 2 more")


def test_without_workers_the_refusal_says_what_to_check() -> None:
    command = reserve(core_with(), "t")
    assert command == RefuseReserve(
        R1, False, "no worker is registered; start one, or check that it uses the same registry and cluster name", 1_000
    )


def test_without_registry_and_workers_the_refusal_says_so() -> None:
    core = CoordinatorCore(CoordinatorSettings())
    core.handle(RegistryLost(), 0)
    command = reserve(core, "t")
    assert command == RefuseReserve(
        R1, False, "the registry is out of reach and no worker is known; check that it runs", 1_000
    )


# --------------------------------------------------------------------------------------------------------------------
# Uncertain outcomes and time


def test_an_uncertain_worker_is_asked_twice_again_before_the_next() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    asked = [reserve(core, task_id)]
    for now_ms in (100, 200, 300):
        asked += core.handle(WorkerUncertain(R1, "timed out"), now_ms)
    assert asked == [ask("a", task_id), ask("a", task_id), ask("a", task_id), ask("b", task_id)]


def test_each_worker_has_uncertain_retries_of_its_own() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    asked = [reserve(core, task_id)]
    for _ in range(6):
        asked += core.handle(WorkerUncertain(R1, "timed out"), 100)
    assert [command.worker_id for command in asked if isinstance(command, AskWorker)] == ["a"] * 3 + ["b"] * 3
    assert isinstance(asked[-1], RefuseReserve)


def test_a_worker_that_left_is_not_asked_again() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    reserve(core, task_id)
    core.handle(WorkerLeft("a"), 10)
    assert core.handle(WorkerUncertain(R1, "connection lost"), 10) == [ask("b", task_id)]


def test_a_slot_that_may_have_been_leased_counts_until_the_next_beat() -> None:
    core = core_with(beat("w"), settings=CoordinatorSettings(uncertain_retries=0))
    reserve(core, "t")
    core.handle(WorkerUncertain(R1, "timed out"), 1)
    assert core.status(1).workers[0].free == 3
    core.handle(BeatSeen(beat("w", seq=2)), 2)
    assert core.status(2).workers[0].free == 4


def test_an_unreached_worker_is_not_asked_again() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    reserve(core, task_id)
    assert core.handle(WorkerUnreached(R1, "connection refused"), 1) == [ask("b", task_id)]
    assert core.status(1).workers[0].free == 4


def test_a_question_ends_with_the_caller_s_deadline() -> None:
    core = core_with(beat("w"))
    commands = core.handle(ReserveRequested(R1, TaskId("t"), deadline_ms=1_120), 1_000)
    assert commands == [ask("w", "t", timeout_ms=120)]


def test_a_reserve_ends_with_the_caller_s_deadline() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    core.handle(ReserveRequested(R1, task_id, deadline_ms=100), 0)
    (command,) = core.handle(WorkerUncertain(R1, "timed out"), 100)
    assert command == RefuseReserve(R1, False, f"no worker can take task {task_id!r}: a: timed out", 1_000)


def test_a_reserve_takes_at_most_half_the_slot_ttl() -> None:
    core = core_with(beat("w"))
    reserve(core, "t")
    assert core.handle(WorkerUncertain(R1, "timed out"), 2_400) == [ask("w", "t", timeout_ms=100)]
    (command,) = core.handle(WorkerUncertain(R1, "timed out"), 2_500)
    assert isinstance(command, RefuseReserve)


def test_a_reserve_without_any_time_says_so() -> None:
    core = core_with(beat("w"))
    (command,) = core.handle(ReserveRequested(R1, TaskId("t"), deadline_ms=0), 0)
    assert command == RefuseReserve(
        R1, False, "no time was left to ask a worker for task 't'; give the call a longer timeout", 1_000
    )


def test_an_abandoned_reserve_ends_without_a_command_and_its_slot_counts_as_taken() -> None:
    core = core_with(beat("w"))
    reserve(core, "t")
    assert core.handle(ReserveAbandoned(R1), 5) == []
    assert core.status(5).workers[0].free == 3


def test_an_answer_to_an_ended_reserve_is_counted_and_ignored() -> None:
    core = core_with(beat("w"))
    reserve(core, "t")
    core.handle(ReserveAbandoned(R1), 5)
    assert core.handle(WorkerGranted(R1, slot("w")), 6) == []
    assert core.late_events == 1


def test_a_reserve_id_may_not_be_used_twice_at_once() -> None:
    core = core_with(beat("w"))
    reserve(core, "t")
    with pytest.raises(AssertionError, match="under way"):
        reserve(core, "u")


# --------------------------------------------------------------------------------------------------------------------
# Selection


def test_a_task_has_the_same_home_at_every_coordinator() -> None:
    beats = [beat(f"w{number}") for number in range(5)]
    for number in range(20):
        first = reserve(core_with(*beats), f"t{number}")
        assert first == reserve(core_with(*reversed(beats)), f"t{number}")


def test_homes_are_shared_out_by_slots() -> None:
    beats = [beat("small", slots=10), beat("large", slots=30)]
    homes = Counter(asked_until_refused(core_with(*beats), f"t{number}")[0] for number in range(2_000))
    assert 0.70 < homes["large"] / 2_000 < 0.80


def test_a_home_that_joins_or_leaves_moves_only_its_own_tasks() -> None:
    few, more = [beat("a"), beat("b")], [beat("a"), beat("b"), beat("c")]
    for number in range(100):
        before = asked_until_refused(core_with(*few), f"t{number}")[0]
        after = asked_until_refused(core_with(*more), f"t{number}")[0]
        assert after in (before, "c")


def test_a_home_is_asked_first_even_if_full_by_our_count() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), beat("b"))
    take_slots(core, "a", task_id, 4)
    assert core.status(0).workers[0].free == 0
    assert asked_until_refused(core, task_id)[0] == "a"


def test_a_home_whose_young_beat_shows_it_full_is_asked_last() -> None:
    task_id = task_at_home("a", "b", "c")
    core = core_with(beat("a", used=4), beat("b"), beat("c"))
    asked = asked_until_refused(core, task_id, now_ms=1_999)
    assert asked[-1] == "a"
    assert len(asked) == 3


def test_a_full_home_is_still_among_the_five_that_are_asked() -> None:
    others = [f"w{number}" for number in range(8)]
    task_id = task_at_home("a", *others)
    core = core_with(beat("a", used=4), *map(beat, others))
    asked = asked_until_refused(core, task_id)
    assert len(asked) == 5
    assert asked[-1] == "a"


def test_a_home_whose_older_beat_shows_it_full_is_asked_first() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a", used=4), beat("b"))
    assert asked_until_refused(core, task_id, now_ms=2_000)[0] == "a"


def test_a_full_home_alone_is_asked_and_the_refusal_is_no_slot() -> None:
    core = core_with(beat("a", used=4))
    assert reserve(core, "t") == ask("a", "t")
    command = full(core)
    assert isinstance(command, RefuseReserve)
    assert command.is_full


def test_a_draining_home_is_asked_because_it_may_know_the_task() -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a", state=WorkerState.DRAINING), beat("b"))
    assert asked_until_refused(core, task_id) == ["a", "b"]


def test_others_are_asked_by_free_share() -> None:
    task_id = task_at_home("home", "x", "y", "z")
    core = core_with(beat("home"), beat("x", used=2), beat("y", used=1), beat("z", slots=8, used=1))
    asked = asked_until_refused(core, task_id)
    assert [each for each in asked if each != "home"] == ["z", "y", "x"]


def test_a_burst_between_two_beats_spreads_over_the_others() -> None:
    task_id = task_at_home("home", "x", "y")
    core = core_with(beat("home", used=4), beat("x"), beat("y"))
    placed = Counter[str]()
    for number in range(1, 9):
        command = reserve(core, task_id, reserve_id=number)
        assert isinstance(command, AskWorker)
        placed[command.worker_id] += 1
        core.handle(WorkerGranted(R(number), slot(command.worker_id)), 0)
    assert placed == {"x": 4, "y": 4}


def test_questions_under_way_count_as_taken() -> None:
    task_id = task_at_home("home", "x", "y")
    core = core_with(beat("home", used=4), beat("x"), beat("y"))
    asked = Counter[str]()
    for number in range(1, 9):
        command = reserve(core, task_id, reserve_id=number)
        assert isinstance(command, AskWorker)
        asked[command.worker_id] += 1
    assert asked == {"x": 4, "y": 4}


def test_a_worker_full_by_our_count_is_not_asked_and_named_in_the_refusal() -> None:
    task_id = task_at_home("home", "x")
    core = core_with(beat("home"), beat("x", used=4))
    reserve(core, task_id)
    command = full(core)
    assert command == RefuseReserve(
        R1, True, f"no worker has a free slot for task {task_id!r}: home: every slot is taken; x: full", 200
    )


def test_a_new_beat_replaces_our_own_count() -> None:
    core = core_with(beat("a"))
    take_slots(core, "a", TaskId("t"), 4)
    core.handle(BeatSeen(beat("a", seq=2, used=1)), 10)
    assert core.status(10).workers[0].free == 3


# --------------------------------------------------------------------------------------------------------------------
# Who is not routed to


@pytest.mark.parametrize(
    ("hindered", "why"),
    [
        (beat("b", state=WorkerState.STARTING), "starting"),
        (beat("b", state=WorkerState.DRAINING), "draining"),
        (beat("b", accepting=False), "not accepting tasks"),
        (beat("b", dispatch_age_ms=10_001), "its executors have answered nothing for 10.0 s"),
        (beat("b", used=4), "full"),
    ],
)
def test_a_hindered_worker_gets_no_tasks_but_those_at_home(hindered: WorkerBeat, why: str) -> None:
    task_id = task_at_home("a", "b")
    core = core_with(beat("a"), hindered)
    assert asked_until_refused(core, task_id) == ["a"]
    assert core.status(0).workers[1].why_not == why


@pytest.mark.parametrize("hindered", [beat("b", state=WorkerState.STARTING), beat("b", dispatch_age_ms=10_001)])
def test_a_starting_or_dead_home_is_not_asked(hindered: WorkerBeat) -> None:
    task_id = task_at_home("b", "a")
    assert asked_until_refused(core_with(beat("a"), hindered), task_id) == ["a"]


def test_a_home_that_accepts_nothing_is_asked_because_it_may_know_the_task() -> None:
    task_id = task_at_home("b", "a")
    assert asked_until_refused(core_with(beat("a"), beat("b", accepting=False)), task_id) == ["b", "a"]


def test_a_dispatch_age_of_ten_seconds_is_still_routed_to() -> None:
    assert reserve(core_with(beat("w", dispatch_age_ms=10_000)), "t") == ask("w", "t")


def test_a_worker_without_beats_for_the_timeout_is_not_routed_to() -> None:
    core = core_with(beat("w"))
    assert core.status(9_999).workers[0].why_not == ""
    assert core.status(10_000).workers[0].why_not == "no heartbeat for 10.0 s"
    assert isinstance(reserve(core, "t", 10_000), RefuseReserve)


def test_only_a_changed_seq_makes_a_beat_fresh() -> None:
    core = core_with(beat("w"))
    core.handle(BeatSeen(beat("w", seq=1)), 9_000)
    assert core.status(9_000).workers[0].beat_age_ms == 9_000
    core.handle(BeatSeen(beat("w", seq=2)), 9_500)
    assert core.status(9_600).workers[0].beat_age_ms == 100


# --------------------------------------------------------------------------------------------------------------------
# Breaker


def test_three_failed_reserves_in_a_row_open_the_breaker_for_two_seconds() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 3)
    assert core.status(500).workers[0].why_not == "left alone for another 1.5 s after 3 failed reserves in a row"
    assert isinstance(reserve(core, "t", 1_999), RefuseReserve)
    assert reserve(core, "t", 2_000) == ask("w", "t")


def test_retries_within_one_reserve_count_as_one_failure() -> None:
    core = core_with(beat("w"))
    for number in (1, 2):
        reserve(core, "t", reserve_id=number)
        for _ in range(3):
            core.handle(WorkerUncertain(R(number), "timed out"), 0)
    assert core.status(0).workers[0].why_not == ""


def test_a_rejection_shows_that_the_worker_lives() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 2)
    reserve(core, "t")
    full(core)
    fail_reserves(core, 2)
    assert core.status(0).workers[0].why_not == ""


def test_half_open_lets_one_reserve_through() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 3)
    assert reserve(core, "t", 2_000) == ask("w", "t")
    command = reserve(core, "u", 2_000, reserve_id=2)
    assert command == RefuseReserve(
        R(2), False, "no worker can take task 'u': w: being tried again after 3 failed reserves in a row", 1_000
    )
    core.handle(WorkerGranted(R1, slot("w")), 2_001)
    assert reserve(core, "u", 2_002, reserve_id=2) == ask("w", "u", reserve_id=2)


def test_a_probe_that_fails_doubles_the_time() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 3)
    fail_reserves(core, 1, now_ms=2_000)
    assert isinstance(reserve(core, "t", 5_999), RefuseReserve)


def test_an_abandoned_probe_lets_the_next_one_through() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 3)
    reserve(core, "t", 2_000)
    core.handle(ReserveAbandoned(R1), 2_001)
    assert reserve(core, "u", 2_002, reserve_id=2) == ask("w", "u", reserve_id=2)


def test_while_the_breaker_of_a_home_is_open_the_next_in_rank_is_the_home() -> None:
    task_id = task_at_home("a", "b", "c")
    rank = asked_until_refused(core_with(beat("b"), beat("c")), task_id)
    core = core_with(beat("a"), beat("b"), beat("c"))
    for number in (11, 12, 13):
        assert reserve(core, task_id, reserve_id=number) == ask("a", task_id, reserve_id=number)
        core.handle(WorkerUnreached(R(number), "refused"), 0)
        core.handle(ReserveAbandoned(R(number)), 0)
    core.handle(BeatSeen(beat("b", seq=2)), 0)
    core.handle(BeatSeen(beat("c", seq=2)), 0)
    assert reserve(core, task_id) == ask(rank[0], task_id)


# --------------------------------------------------------------------------------------------------------------------
# The view


def test_a_worker_that_left_is_forgotten_and_its_connection_dropped() -> None:
    core = core_with(beat("a"), beat("b"))
    assert core.handle(WorkerLeft("a"), 1) == [DropConnection("a:1")]
    assert [worker.worker_id for worker in core.status(1).workers] == ["b"]


def test_the_departure_of_an_unknown_worker_changes_nothing() -> None:
    assert core_with(beat("a")).handle(WorkerLeft("b"), 1) == []


def test_the_connection_stays_while_another_worker_has_the_address() -> None:
    core = core_with(beat("old", addr="x:1"), beat("new", addr="x:1"))
    assert core.handle(WorkerLeft("old"), 1) == []


def test_a_worker_that_moved_has_its_old_connection_dropped() -> None:
    core = core_with(beat("a"))
    assert core.handle(BeatSeen(beat("a", seq=2, addr="moved:1")), 1) == [DropConnection("a:1")]


def test_a_restarted_worker_starts_with_a_clean_record() -> None:
    core = core_with(beat("w"))
    fail_reserves(core, 3)
    assert core.handle(BeatSeen(beat("w", instance="j")), 1) == []
    assert reserve(core, "t", 1) == ask("w", "t")


def test_a_worker_restarted_elsewhere_has_its_old_connection_dropped() -> None:
    core = core_with(beat("w"))
    assert core.handle(BeatSeen(beat("w", instance="j", addr="y:1")), 1) == [DropConnection("w:1")]


def test_a_worker_missing_from_a_re_list_stays_for_one_lease_ttl() -> None:
    core = core_with(beat("a"), beat("b"))
    assert core.handle(WorkersListed((beat("b", seq=2),)), 1_000) == []
    assert core.next_deadline_ms() == 16_000
    assert core.handle(Tick(), 15_999) == []
    status = core.status(15_999)
    assert [(worker.worker_id, worker.is_confirmed, worker.why_not) for worker in status.workers] == [
        ("a", False, ""),
        ("b", True, "no heartbeat for 15.0 s"),
    ]
    assert core.handle(Tick(), 16_000) == [DropConnection("a:1")]
    assert core.next_deadline_ms() is None


def test_a_missing_worker_is_judged_by_its_breaker_alone() -> None:
    core = core_with(beat("a", accepting=False, used=4))
    core.handle(WorkersListed(()), 1_000)
    assert core.status(1_000).workers[0].why_not == ""
    fail_reserves(core, 3, now_ms=1_000)
    assert core.status(1_000).workers[0].why_not.startswith("left alone")


def test_a_second_re_list_does_not_give_a_missing_worker_more_time() -> None:
    core = core_with(beat("a"))
    core.handle(WorkersListed(()), 1_000)
    core.handle(WorkersListed(()), 5_000)
    assert core.next_deadline_ms() == 16_000


def test_a_missing_worker_that_is_seen_again_is_confirmed() -> None:
    core = core_with(beat("a"))
    core.handle(WorkersListed(()), 1_000)
    core.handle(BeatSeen(beat("a", seq=2)), 2_000)
    assert core.status(2_000).workers[0].is_confirmed
    assert core.handle(Tick(), 20_000) == []


def test_a_tick_without_anything_due_changes_nothing() -> None:
    assert core_with(beat("a")).handle(Tick(), 100_000) == []


def test_while_the_registry_is_lost_beat_ages_stand_still() -> None:
    core = core_with(beat("w"))
    core.handle(RegistryLost(), 4_000)
    status = core.status(304_000)
    assert status.is_registry_lost
    assert status.workers[0].beat_age_ms == 4_000
    assert reserve(core, "t", 304_000) == ask("w", "t")


def test_beat_ages_go_on_once_the_registry_was_lost_for_too_long() -> None:
    core = core_with(beat("w"))
    core.handle(RegistryLost(), 4_000)
    assert core.status(309_999).workers[0].why_not == ""
    assert core.status(310_000).workers[0].why_not == "no heartbeat for 10.0 s"


def test_a_repeated_loss_does_not_begin_anew() -> None:
    core = core_with(beat("w"))
    core.handle(RegistryLost(), 4_000)
    core.handle(RegistryLost(), 200_000)
    assert core.status(310_000).workers[0].why_not == "no heartbeat for 10.0 s"


def test_ages_go_on_where_they_stood_when_the_registry_is_back() -> None:
    core = core_with(beat("w"))
    core.handle(RegistryLost(), 4_000)
    core.handle(WorkersListed((beat("w"),)), 100_000)
    status = core.status(101_000)
    assert not status.is_registry_lost
    assert status.workers[0].beat_age_ms == 5_000


@pytest.mark.parametrize(
    "last",
    [
        beat("w", state=WorkerState.STARTING),
        beat("w", used=4),
        beat("w", accepting=False),
        beat("w", dispatch_age_ms=20_000),
    ],
)
def test_while_the_registry_is_lost_only_the_breaker_judges(last: WorkerBeat) -> None:
    core = core_with(last)
    core.handle(RegistryLost(), 1)
    assert core.status(1).workers[0].why_not == ""
    fail_reserves(core, 3, now_ms=2)
    assert core.status(2).workers[0].why_not.startswith("left alone")


def test_a_draining_worker_is_not_routed_to_even_while_the_registry_is_lost() -> None:
    core = core_with(beat("w", state=WorkerState.DRAINING))
    core.handle(RegistryLost(), 1)
    assert core.status(1).workers[0].why_not == "draining"


def test_without_beats_the_least_loaded_by_our_count_goes_first() -> None:
    task_id = task_at_home("home", "x", "y")
    core = core_with(beat("home", used=4), beat("x"), beat("y"))
    core.handle(RegistryLost(), 0)
    placed = Counter[str]()
    for number in range(1, 21):
        command = reserve(core, task_id, reserve_id=number)
        assert isinstance(command, AskWorker)
        placed[command.worker_id] += 1
        core.handle(WorkerGranted(R(number), slot(command.worker_id)), 0)
    assert placed == {"x": 10, "y": 10}


def test_nothing_expires_while_the_registry_is_lost() -> None:
    core = core_with(beat("w"))
    core.handle(WorkersListed(()), 1_000)
    core.handle(RegistryLost(), 2_000)
    assert core.next_deadline_ms() is None
    assert core.handle(Tick(), 100_000) == []
    core.handle(WorkersListed(()), 100_000)
    assert core.next_deadline_ms() == 115_000


# --------------------------------------------------------------------------------------------------------------------
# Settings


@pytest.mark.parametrize("name", ["slot_ttl_ms", "rpc_timeout_ms", "max_candidates", "heartbeat_timeout_ms"])
def test_a_setting_that_must_be_positive_is_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' must be > 0: 0"):
        evolve(CoordinatorSettings(), **{name: 0})


@pytest.mark.parametrize("name", ["uncertain_retries", "registry_stale_ms", "registry_lease_ttl_ms"])
def test_a_setting_may_be_zero_but_not_negative(name: str) -> None:
    evolve(CoordinatorSettings(), **{name: 0})
    with pytest.raises(ValueError, match=f"'{name}' must be >= 0: -1"):
        evolve(CoordinatorSettings(), **{name: -1})
