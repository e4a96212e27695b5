"""How much senseless traffic is borne: bursts, what flows back with time, and what useful traffic gives back."""

from __future__ import annotations

import pytest

from blockx.rpc import Limits
from blockx.rpc.floods import FRAMES_PER_SENT_FRAME, Patience, TokenBucket, TooMuch

LIMITS = Limits(max_idle_frames=100, max_dropped_calls=10)


def test_a_bucket_gives_what_it_holds_and_no_more() -> None:
    bucket = TokenBucket(10)
    assert [bucket.take(4, now=5.0) for _ in range(3)] == [True, True, False]
    assert bucket.take(2, now=5.0)
    assert not bucket.take(1, now=5.0)


def test_a_bucket_fills_by_a_tenth_each_second_and_not_above_its_size() -> None:
    bucket = TokenBucket(10)
    assert bucket.take(10, now=5.0)
    assert not bucket.take(1, now=5.9)
    assert bucket.take(1, now=6.0)
    assert not bucket.take(11, now=1000.0)
    assert bucket.take(10, now=1000.0)


def test_frames_that_answer_ours_are_borne_without_end() -> None:
    patience = Patience(LIMITS)
    for _ in range(1000):
        patience.idle_frames(FRAMES_PER_SENT_FRAME, now=0.0)
        patience.frame_sent()
    patience.idle_frames(100, now=0.0)
    with pytest.raises(TooMuch, match="more than 100 frames"):
        patience.idle_frames(1, now=0.0)


def test_calls_that_are_answered_make_up_for_as_many_that_come_to_nothing() -> None:
    patience = Patience(LIMITS)
    for _ in range(1000):
        patience.call_dropped(now=0.0)
        patience.call_answered()
    for _ in range(10):
        patience.call_dropped(now=0.0)
    with pytest.raises(TooMuch, match="more than 10 calls"):
        patience.call_dropped(now=0.0)


def test_no_frames_at_all_are_never_too_much() -> None:
    patience = Patience(LIMITS)
    patience.idle_frames(100, now=0.0)
    patience.idle_frames(0, now=0.0)
