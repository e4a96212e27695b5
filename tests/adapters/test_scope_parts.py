"""The parts of the IO scope that can be looked at alone: cache, waits, charges."""

from __future__ import annotations

import pytest

from blockx.worker.io.cache import ENTRY_OVERHEAD_BYTES, ReadCache
from blockx.worker.io.coalesce import Flight
from blockx.worker.io.retry import Backoff


def test_the_least_recently_used_answer_leaves_first() -> None:
    cache = ReadCache(max_bytes=2 * (ENTRY_OVERHEAD_BYTES + 2))
    cache.put(b"a", b"1")
    cache.put(b"b", b"2")
    assert cache.get(b"a") == b"1"
    cache.put(b"c", b"3")
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (b"1", None, b"3")
    assert (len(cache), cache.used_bytes) == (2, 2 * (ENTRY_OVERHEAD_BYTES + 2))


def test_an_answer_larger_than_the_cache_displaces_nothing() -> None:
    cache = ReadCache(max_bytes=ENTRY_OVERHEAD_BYTES + 10)
    cache.put(b"a", b"1")
    cache.put(b"b", b"2" * 100)
    assert (cache.get(b"a"), cache.get(b"b")) == (b"1", None)


def test_an_answer_put_twice_is_counted_once() -> None:
    cache = ReadCache(max_bytes=10_000)
    cache.put(b"a", b"1")
    cache.put(b"a", b"22")
    assert (cache.get(b"a"), cache.used_bytes) == (b"22", ENTRY_OVERHEAD_BYTES + 3)


@pytest.mark.parametrize(("jitter", "delays"), [(1.0, [100, 200, 400, 5_000]), (0.0, [50, 100, 200, 2_500])])
def test_waits_double_up_to_a_bound_and_half_of_them_is_chance(jitter: float, delays: list[float]) -> None:
    backoff = Backoff(base_ms=100, max_ms=5_000, jitter=lambda: jitter)
    assert [backoff.delay_ms(attempt) for attempt in (0, 1, 2, 9)] == delays


@pytest.mark.parametrize(("arrived", "charged_us"), [(0.0, 3_000_000), (1.0, 3_000_000), (1.5, 2_500_000), (9.0, 0)])
async def test_a_read_is_charged_backend_time_from_its_own_arrival(arrived: float, charged_us: int) -> None:
    flight = Flight(spans=[(1.0, 2.0), (5.0, 7.0)])
    assert flight.charge_us(arrived) == charged_us
