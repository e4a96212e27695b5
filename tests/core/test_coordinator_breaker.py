from __future__ import annotations

from blockx.coordinator.breaker import Breaker


def failed(breaker: Breaker, times: int, now_ms: int = 0) -> Breaker:
    for _ in range(times):
        breaker.fail(now_ms, is_probe=breaker.begin())
    return breaker


def test_a_breaker_stays_closed_below_three_failures_in_a_row() -> None:
    assert failed(Breaker(), 2).allows(0)


def test_the_third_failure_in_a_row_opens_it_for_two_seconds() -> None:
    breaker = failed(Breaker(), 3, now_ms=1_000)
    assert not breaker.allows(2_999)
    assert breaker.allows(3_000)


def test_an_answer_between_failures_starts_the_count_anew() -> None:
    breaker = failed(Breaker(), 2)
    breaker.succeed()
    assert failed(breaker, 2).allows(0)


def test_half_open_lets_one_call_through() -> None:
    breaker = failed(Breaker(), 3)
    assert breaker.begin()
    assert not breaker.allows(2_000)


def test_a_failed_probe_doubles_the_time_up_to_thirty_seconds() -> None:
    breaker, now_ms, opened_for = failed(Breaker(), 3), 0, []
    for _ in range(6):
        assert breaker.open_until_ms is not None
        opened_for.append(breaker.open_until_ms - now_ms)
        now_ms = breaker.open_until_ms
        failed(breaker, 1, now_ms)
    assert opened_for == [2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_a_successful_probe_closes_it_and_forgets_the_past() -> None:
    breaker = failed(Breaker(), 4)
    assert breaker.begin()
    breaker.succeed()
    assert breaker == Breaker()


def test_a_probe_without_outcome_makes_room_for_the_next() -> None:
    breaker = failed(Breaker(), 3)
    breaker.release(is_probe=breaker.begin())
    assert breaker.allows(2_000)


def test_failures_of_calls_from_before_it_opened_change_nothing() -> None:
    breaker = Breaker()
    early = breaker.begin()
    failed(breaker, 3)
    probe = breaker.begin()
    breaker.fail(500, is_probe=early)
    assert breaker.open_until_ms == 2_000
    assert probe
    assert breaker.is_probing


def test_an_ordinary_call_without_outcome_leaves_the_probe_alone() -> None:
    breaker = Breaker()
    early = breaker.begin()
    failed(breaker, 3)
    breaker.begin()
    breaker.release(is_probe=early)
    assert not breaker.allows(2_000)
