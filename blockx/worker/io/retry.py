"""Waits between attempts of one read or write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from attrs import frozen

from blockx.errors import PluginError, ReadError

T = TypeVar("T")


@frozen
class Backoff:
    """`base_ms` × 2ⁿ up to `max_ms`, of which `jitter()` (0 to 1) decides the second half."""

    base_ms: int
    max_ms: int
    jitter: Callable[[], float]

    def delay_ms(self, attempt: int) -> float:
        """How long to wait after attempt number `attempt`, counted from 0."""
        full_ms = min(self.base_ms * 2.0**attempt, self.max_ms)
        return full_ms * (1 + self.jitter()) / 2

    async def wait(self, attempt: int) -> bool:
        """Wait before the next attempt. False, at once, where the caller's deadline comes first."""
        seconds = self.delay_ms(attempt) / 1_000
        if trio.current_time() + seconds >= trio.current_effective_deadline():
            return False
        await trio.sleep(seconds)
        return True

    async def repeat(self, attempts: int, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` answers. It is called again, at most `attempts` times in all, while its error is retryable."""
        number = 0
        while True:
            try:
                return await attempt()
            except (ReadError, PluginError) as error:
                number += 1
                if number >= attempts or not error.retryable or not await self.wait(number - 1):
                    raise
