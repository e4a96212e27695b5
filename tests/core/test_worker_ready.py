"""Readiness: live executors, the grace after the last one, crash loops."""

from __future__ import annotations

import pytest

from blockx.errors import Unavailable
from blockx.worker.core import events as ev
from tests.core.worker_doubles import A, Worker


def test_a_worker_is_not_ready_before_its_first_executor() -> None:
    worker = Worker(live=0)
    assert not worker.core.ready(0)
    assert worker.core.not_ready_reason(0) == "no executor of the current code epoch is ready"
    worker.feed(ev.ExecutorsChanged(1))
    assert worker.core.ready(worker.now_ms)
    assert worker.core.not_ready_reason(worker.now_ms) == ""


def test_an_executor_that_fails_to_come_up_starts_no_grace() -> None:
    worker = Worker(live=0)
    worker.feed(ev.ExecutorsChanged(0))
    assert not worker.core.ready(worker.now_ms)


def test_a_worker_stays_ready_for_the_grace_after_its_last_executor_went() -> None:
    worker = Worker()
    assert worker.feed(ev.ExecutorsChanged(0)) == []
    assert worker.core.next_deadline_ms() == 3_000
    assert worker.at(2_999).request(A)
    assert not worker.core.ready(3_000)
    assert worker.tick(3_000) == []
    assert worker.core.next_deadline_ms() == 7_999
    assert not worker.core.ready(3_000)


def test_the_grace_is_over_even_before_the_tick() -> None:
    worker = Worker()
    worker.feed(ev.ExecutorsChanged(0))
    with pytest.raises(Unavailable, match="not ready: no executor") as caught:
        worker.at(3_000).request(A)
    assert caught.value.retry_after_ms == 2_000


def test_news_of_no_executor_do_not_prolong_the_grace() -> None:
    worker = Worker()
    worker.feed(ev.ExecutorsChanged(0))
    worker.at(2_500).feed(ev.ExecutorsChanged(0))
    assert worker.core.next_deadline_ms() == 3_000


def test_an_executor_that_comes_back_ends_the_grace() -> None:
    worker = Worker()
    worker.feed(ev.ExecutorsChanged(0))
    worker.at(2_000).feed(ev.ExecutorsChanged(2))
    assert worker.core.next_deadline_ms() is None
    assert worker.core.ready(9_000)


def test_a_crash_loop_is_not_ready_at_once_and_says_why() -> None:
    worker = Worker()
    worker.feed(ev.ExecutorsChanged(1, crash_loop="exit status 3, 5 times in a row"))
    with pytest.raises(Unavailable, match="executors keep dying: exit status 3, 5 times in a row"):
        worker.request(A)
    worker.feed(ev.ExecutorsChanged(1))
    assert worker.request(A)


def test_readiness_says_nothing_about_draining() -> None:
    worker = Worker()
    worker.feed(ev.DrainRequested())
    assert worker.core.ready(worker.now_ms)
