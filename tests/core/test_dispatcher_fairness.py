"""DispatcherCore: tasks take turns."""

from __future__ import annotations

import pytest

from blockx.worker.core.fairness import QUANTUM_US
from tests.core.dispatcher_rig import Rig, opened, sent, sent_indices

BIG = 100_000


def test_a_small_task_does_not_wait_for_the_end_of_a_big_one() -> None:
    rig = Rig(first_window=1_024)
    rig.learn(1_000)
    rig.add(1, BIG)
    assert rig.add(2, 3) == []
    assert rig.complete(1, [0, 1, 2, 3, 4], cpu_us=996) == [
        sent(1, [5]),
        opened(2),
        sent(2, [0]),
        sent(1, [6]),
        sent(2, [1]),
        sent(1, [7]),
    ]
    assert rig.complete(1, [5], cpu_us=996) == [sent(2, [2])]


@pytest.mark.parametrize("window", [1, 1_024])
def test_turns_are_counted_in_estimated_work(window: int) -> None:
    rig = Rig(first_window=window, task_max_inflight_calls=window, capacity=1)
    rig.learn(4_000, "slow")
    rig.learn(1_000, "quick")
    rig.add(1, BIG, (0, "slow", None))
    rig.add(2, BIG, (0, "quick", None))
    served = {1: 1, 2: 0}
    last = (1, 0)
    while sum(served.values()) < 900:
        task, index = last
        commands = rig.complete(task, [index], cpu_us=3_996 if task == 1 else 996)
        (last,) = [(task, index) for task in (1, 2) for index in sent_indices(commands, task)]
        served[last[0]] += 1
    assert abs(served[1] * 4_000 - served[2] * 1_000) <= 4_000 + QUANTUM_US


def test_what_a_turn_left_unsent_for_want_of_room_is_sent_next() -> None:
    rig = Rig(first_window=1_024, max_backlog_calls=6)
    rig.learn(100)
    rig.add(1, BIG)
    rig.add(2, BIG)
    assert rig.complete(1, [0, 1], cpu_us=96) == [sent(1, [6, 7])]
    assert rig.complete(1, [2, 3, 4, 5], cpu_us=96) == [sent(1, [8, 9]), opened(2), sent(2, [0, 1])]


def test_a_task_within_its_window_does_not_save_up_turns() -> None:
    rig = Rig(first_window=2, task_max_inflight_calls=2)
    rig.learn(100)
    rig.add(1, BIG)
    assert rig.complete(1, [0, 1], cpu_us=96) == [sent(1, [2, 3])]
    assert rig.complete(1, [2], cpu_us=96) == [sent(1, [4])]


def test_a_very_long_call_is_paid_back_in_a_bounded_number_of_turns() -> None:
    rig = Rig(capacity=1, first_window=64)
    hour_us = 3_600_000_000
    rig.learn(hour_us, "endless")
    rig.learn(1_000, "quick")
    rig.add(2, BIG, (0, "quick", None))
    rig.add(1, 9, (0, "endless", None))
    assert sent_indices(rig.complete(2, [0], cpu_us=996), 2) == [1]
    assert sent_indices(rig.complete(2, [1], cpu_us=996), 1) == [0]
    commands = rig.complete(1, [0], cpu_us=hour_us)
    turns = 0
    while not sent_indices(commands, 1):
        commands = rig.complete(2, sent_indices(commands, 2), cpu_us=996)
        turns += 1
    assert turns == 16
