"""Tells the registry how the worker is: at the interval when something changed, every 2 s when nothing did."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import evolve

from blockx.registry.port import Beat, Registration

IDLE_MS = 2_000
"""A beat that differs from the last only in `seq` and `dispatch_age_ms` is written this often: each is a revision."""


class Heartbeat:
    """`now` makes a beat of the present state; its `seq` is filled in here."""

    def __init__(self, now: Callable[[], Beat], interval_ms: int) -> None:
        self._now = now
        self._interval_ms = interval_ms
        self._seq = 0
        self._last: Beat | None = None
        self._last_at = 0.0
        self._urgent = trio.Event()

    def first(self) -> Beat:
        """The beat to register with."""
        return self._next(self._now())

    def urge(self) -> None:
        """Beat at once: what changed must not wait (draining)."""
        self._urgent.set()

    async def run(self, registration: Registration) -> None:
        """Beat until cancelled."""
        while True:
            with trio.move_on_after(self._interval_ms / 1000):
                await self._urgent.wait()
            self._urgent = trio.Event()
            beat = self._now()
            if self._is_due(beat):
                await registration.beat(self._next(beat))

    def _is_due(self, beat: Beat) -> bool:
        if self._last is None or trio.current_time() - self._last_at >= IDLE_MS / 1000:
            return True
        return evolve(beat, seq=self._last.seq, dispatch_age_ms=self._last.dispatch_age_ms) != self._last

    def _next(self, beat: Beat) -> Beat:
        self._seq += 1
        self._last = evolve(beat, seq=self._seq)
        self._last_at = trio.current_time()
        return self._last
