"""When to try again, and how long to wait before."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from attrs import define, field, frozen
from attrs.validators import ge

from blockx.errors import BlockxError, DeadlineExceeded, NoSlot, Unavailable

T = TypeVar("T")

FIRST_PAUSE_MS = 100
MAX_PAUSE_MS = 2_000


@frozen(kw_only=True)
class RetryPolicy:
    """How often a task that failed retryably, or was lost with its worker, is submitted in all.

    Every attempt after the first gets a task id of its own.
    """

    attempts: int = field(default=3, validator=ge(1))


@define
class Pauses:
    """Growing pauses with jitter: a server's hint counts where there is one, up to MAX_PAUSE_MS.

    `jitter` gives numbers from 0 to 1.
    """

    _jitter: Callable[[], float]
    _next_ms: float = FIRST_PAUSE_MS

    async def pause(self, error: BlockxError | None = None, until: float = math.inf) -> None:
        """Wait for a while, but no longer than `until`."""
        hint_ms = error.retry_after_ms if isinstance(error, NoSlot | Unavailable) else None
        pause_ms = self._next_ms if hint_ms is None else min(hint_ms, MAX_PAUSE_MS)
        self._next_ms = min(self._next_ms * 2, MAX_PAUSE_MS)
        await trio.sleep_until(min(until, trio.current_time() + pause_ms * (0.5 + self._jitter()) / 1000))


async def patiently(ask: Callable[[], Awaitable[T]], patience: float, jitter: Callable[[], float]) -> T:
    """Ask until there is an answer; a server that is not there is asked again for `patience` seconds."""
    pauses = Pauses(jitter)
    give_up = trio.current_time() + patience
    while True:
        try:
            return await ask()
        except (Unavailable, DeadlineExceeded) as error:
            if trio.current_time() >= give_up:
                raise
            await pauses.pause(error)
