"""How many calls of one task may be in flight at once."""

from __future__ import annotations

from attrs import define

MIN_WINDOW = 1
"""A backend that stands one call at a time is still served; growing back costs only as many calls as the window had."""


@define
class CallWindow:
    """A task's calls in flight (sent and not yet answered, waiting for IO included) and the bound on them.

    The bound doubles up to `most` whenever a full window completed without a failure; a retryable failure halves it.
    """

    size: int
    most: int
    in_flight: int = 0
    _completed: int = 0

    @property
    def free(self) -> int:
        """How many more may be sent; negative after the bound was halved under calls in flight."""
        return self.size - self.in_flight

    def sent(self, calls: int) -> None:
        self.in_flight += calls

    def completed(self, calls: int) -> None:
        self.in_flight -= calls
        self._completed += calls
        if self._completed >= self.size:
            self._completed = 0
            self.size = min(self.size * 2, self.most)

    def taken_back(self, calls: int) -> None:
        """The calls will be sent again through no fault of a backend: their executor is gone."""
        self.in_flight -= calls

    def failed(self) -> None:
        """One call failed and will be attempted again."""
        self.in_flight -= 1
        self._completed = 0
        self.size = max(self.size // 2, MIN_WINDOW)
