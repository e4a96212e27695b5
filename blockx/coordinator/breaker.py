"""A circuit breaker per worker: after repeated failures the worker is left alone for a while, then tried once."""

from __future__ import annotations

from attrs import define

FAILURES_TO_OPEN = 3
FIRST_OPEN_MS = 2_000
MAX_OPEN_MS = 30_000


@define
class Breaker:
    """Closed: calls pass. Open: none pass until `open_until_ms`. Then half-open: one call, the probe, passes."""

    failures: int = 0
    open_until_ms: int | None = None
    open_for_ms: int = 0
    is_probing: bool = False

    def allows(self, now_ms: int) -> bool:
        return self.open_until_ms is None or (now_ms >= self.open_until_ms and not self.is_probing)

    def begin(self) -> bool:
        """A call that allows() let through begins; True if it is the probe."""
        if self.open_until_ms is None:
            return False
        self.is_probing = True
        return True

    def succeed(self) -> None:
        """A call was answered, whatever the answer: the worker lives."""
        self.failures = 0
        self.open_until_ms = None
        self.open_for_ms = 0
        self.is_probing = False

    def fail(self, now_ms: int, *, is_probe: bool) -> None:
        """A call failed. Calls that began before the breaker opened change nothing any more."""
        if self.open_until_ms is not None and not is_probe:
            return
        self.failures += 1
        self.is_probing = False
        if self.failures >= FAILURES_TO_OPEN:
            self.open_for_ms = min(self.open_for_ms * 2, MAX_OPEN_MS) if self.open_for_ms else FIRST_OPEN_MS
            self.open_until_ms = now_ms + self.open_for_ms

    def release(self, *, is_probe: bool) -> None:
        """A call ended without telling anything; the next one may be the probe."""
        if is_probe:
            self.is_probing = False
