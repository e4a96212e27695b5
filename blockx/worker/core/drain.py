"""The way of a worker out of service: finish what runs, answer a little longer, see that results were fetched."""

from __future__ import annotations

import enum

from blockx.worker.core.settings import WorkerSettings


class DrainStage(enum.Enum):
    """In this order; each is left for the next one only."""

    SERVING = "serving"
    WORKING = "working"
    LINGERING = "lingering"
    AWAITING_DELIVERY = "awaiting delivery"
    FINISHED = "finished"


class Drain:
    def __init__(self, settings: WorkerSettings) -> None:
        self._linger_ms = settings.drain_linger_ms
        self._result_wait_ms = settings.drain_result_wait_ms
        self._stage = DrainStage.SERVING
        self._limit_ms: int | None = None
        self._linger_until_ms = 0
        self._result_wait_until_ms = 0
        self._has_cancelled = False

    @property
    def is_serving(self) -> bool:
        return self._stage is DrainStage.SERVING

    @property
    def exit_code(self) -> int:
        """0, or 1 if a task had to be cancelled."""
        return int(self._has_cancelled)

    @property
    def next_ms(self) -> int | None:
        match self._stage:
            case DrainStage.WORKING:
                return self._limit_ms
            case DrainStage.LINGERING:
                return self._linger_until_ms
            case DrainStage.AWAITING_DELIVERY:
                return self._result_wait_until_ms
            case _:
                return None

    def begin(self) -> None:
        self._stage = DrainStage.WORKING

    def limit(self, until_ms: int) -> None:
        """Running tasks may go on until `until_ms`."""
        self._limit_ms = until_ms

    def hurry(self, now_ms: int) -> None:
        """Results that nobody has fetched are no longer waited for, beyond what is lingered anyhow."""
        self._result_wait_ms = 0
        self._result_wait_until_ms = now_ms

    def note_cancelled(self) -> None:
        self._has_cancelled = True

    def take_limit(self, now_ms: int) -> bool:
        """True once when the time of the running tasks is over."""
        if self._stage is not DrainStage.WORKING or self._limit_ms is None or now_ms < self._limit_ms:
            return False
        self._limit_ms = None
        return True

    def advance(self, now_ms: int, *, running: int, undelivered: int) -> bool:
        """Go on as far as possible; True once, when nothing is left to wait for."""
        if self._stage is DrainStage.WORKING and not running:
            self._stage = DrainStage.LINGERING
            self._linger_until_ms = now_ms + self._linger_ms
            self._result_wait_until_ms = now_ms + self._result_wait_ms
        if self._stage is DrainStage.LINGERING and now_ms >= self._linger_until_ms:
            self._stage = DrainStage.AWAITING_DELIVERY
        if self._stage is not DrainStage.AWAITING_DELIVERY or (undelivered and now_ms < self._result_wait_until_ms):
            return False
        self._stage = DrainStage.FINISHED
        return True
