"""The heap of deadlines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.worker.core.deadlines import Deadlines


def test_the_earliest_comes_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 20)
    deadlines.set("early", 10)
    assert (deadlines.first(), deadlines.next_ms) == ("early", 10)
    assert deadlines.is_due(10)
    assert not deadlines.is_due(9)


def test_without_keys_nothing_is_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_ms is None
    assert not deadlines.is_due(10**12)
    with pytest.raises(IndexError):
        deadlines.first()


def test_a_key_that_is_set_again_has_only_its_new_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 15)
    deadlines.set("a", 30)
    assert deadlines.first() == "b"
    deadlines.set("a", 5)
    assert (deadlines.first(), deadlines.next_ms) == ("a", 5)


def test_keys_that_end_early_leave_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("stays", 1_000_000)
    for number in range(10_000):
        deadlines.set(f"{number}", 2_000_000 + number)
        deadlines.discard(f"{number}")
    assert deadlines.entries < 100
    assert deadlines.first() == "stays"


STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.integers(0, 20)), max_size=200)


@given(STEPS)
def test_it_agrees_with_a_plain_dictionary(steps: list[tuple[str, int | None]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for key, due_ms in steps:
        if due_ms is None:
            deadlines.discard(key)
            model.pop(key, None)
        else:
            deadlines.set(key, due_ms)
            model[key] = due_ms
        assert deadlines.next_ms == min(model.values(), default=None)
        assert not model or model[deadlines.first()] == deadlines.next_ms
