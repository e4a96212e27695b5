"""When a failed call is attempted again, and after how long."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class CallRetryPolicy:
    """At most `attempts` attempts of a call; the wait before each doubles from `base_ms` up to `max_ms`."""

    attempts: int
    base_ms: int
    max_ms: int

    def allows_after(self, attempt: int) -> bool:
        """Whether a call whose attempt number `attempt` (from 1) has failed may be attempted again."""
        return attempt < self.attempts

    def delay_ms(self, attempt: int, jitter: float) -> int:
        """How long to wait after the failure of attempt number `attempt`.

        `jitter` in [0, 1) spreads the wait between half and all of it, so that calls that failed together do not come
        back together.
        """
        whole_ms = min(self.base_ms << (attempt - 1), self.max_ms)
        return int(whole_ms * (0.5 + jitter / 2))
