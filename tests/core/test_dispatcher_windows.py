"""DispatcherCore: how many calls of a task are in flight at once."""

from __future__ import annotations

from blockx.worker.core.calls import CallProgress
from tests.core.dispatcher_rig import BUSY, Rig, sent, sent_indices


def wide(**settings: int) -> Rig:
    """Executors are never the bound: calls are known to be cheap."""
    rig = Rig(**settings)
    rig.learn(4)
    return rig


def test_a_task_starts_with_16_calls_in_flight() -> None:
    assert sent_indices(wide().add(1, 1_000)) == list(range(16))


def test_the_window_moves_with_every_answer() -> None:
    rig = wide()
    rig.add(1, 1_000)
    assert rig.complete(1, [5, 3]) == [sent(1, [16, 17])]
    assert rig.window(1) == 16


def test_a_full_window_without_a_failure_doubles_it() -> None:
    rig = wide()
    rig.add(1, 1_000)
    rig.complete(1, range(15))
    assert rig.window(1) == 16
    assert rig.complete(1, [15]) == [sent(1, range(31, 48))]
    assert rig.progress(1) == CallProgress(total=1_000, done=16, in_flight=32, window=32)


def test_the_next_doubling_takes_a_full_window_again() -> None:
    rig = wide()
    rig.add(1, 1_000)
    rig.complete(1, range(16))
    rig.complete(1, range(16, 47))
    assert rig.window(1) == 32
    rig.complete(1, [47])
    assert rig.window(1) == 64


def test_the_window_stops_at_the_most_calls_in_flight() -> None:
    rig = wide(task_max_inflight_calls=40)
    rig.add(1, 1_000)
    rig.complete(1, range(16))
    assert rig.window(1) == 32
    rig.complete(1, range(16, 48))
    assert rig.window(1) == 40


def test_the_first_window_is_within_the_most_calls_in_flight() -> None:
    assert sent_indices(wide(task_max_inflight_calls=3).add(1, 9)) == [0, 1, 2]


def test_a_retryable_failure_halves_the_window_and_starts_its_count_afresh() -> None:
    rig = wide()
    rig.add(1, 1_000)
    rig.complete(1, range(15))
    assert rig.fail(1, 15, BUSY, retryable=True) == []
    assert rig.progress(1) == CallProgress(total=1_000, done=15, in_flight=15, window=8)
    assert rig.complete(1, range(16, 23)) == []
    assert rig.complete(1, [23]) == [sent(1, range(31, 40))]
    assert rig.window(1) == 16


def test_the_window_never_falls_below_one_call() -> None:
    rig = wide(first_window=2)
    rig.add(1, 10)
    rig.fail(1, 0, BUSY, retryable=True)
    rig.fail(1, 1, BUSY, retryable=True)
    assert rig.progress(1) == CallProgress(total=10, done=0, in_flight=1, window=1)
    assert rig.complete(1, [2]) == [sent(1, [3, 4])]
    assert rig.window(1) == 2


def test_a_lost_executor_does_not_narrow_the_window() -> None:
    rig = wide()
    rig.add(1, 1_000)
    rig.lose(1)
    assert rig.progress(1) == CallProgress(total=1_000, done=0, in_flight=0, window=16)


def test_calls_that_wait_for_reads_count_in_the_window() -> None:
    rig = wide()
    rig.add(1, 1_000)
    assert sent_indices(rig.wait(1, range(16))) == []
