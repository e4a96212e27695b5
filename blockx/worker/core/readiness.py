"""Whether the worker has executors to run calls."""

from __future__ import annotations


class Readiness:
    """Ready with a live executor, and for a grace after the last one went, so that a restart does not make it flap."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._live = 0
        self._crash_loop: str | None = None
        self._bridged_until_ms: int | None = None

    @property
    def next_ms(self) -> int | None:
        """When the grace of a worker without executors ends, None if none runs."""
        return self._bridged_until_ms

    def executors_changed(self, live: int, crash_loop: str | None, now_ms: int) -> None:
        if live:
            self._bridged_until_ms = None
        elif self._live and self._grace_ms:
            self._bridged_until_ms = now_ms + self._grace_ms
        self._live, self._crash_loop = live, crash_loop

    def pass_time(self, now_ms: int) -> None:
        if self._bridged_until_ms is not None and self._bridged_until_ms <= now_ms:
            self._bridged_until_ms = None

    def not_ready_reason(self, now_ms: int) -> str:
        """Why nothing can be admitted, in words for the caller; empty if ready."""
        if self._crash_loop is not None:
            return f"its executors keep dying: {self._crash_loop}"
        if self._live or (self._bridged_until_ms is not None and now_ms < self._bridged_until_ms):
            return ""
        return "no executor of the current code epoch is ready"
