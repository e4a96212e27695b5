"""The one loop that runs any core: feeds it events, executes its commands, wakes it when a deadline is due."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import structlog
import trio

from blockx.errors import BlockxError

log = structlog.get_logger("blockx.driver")

E = TypeVar("E")
C = TypeVar("C")
E_contra = TypeVar("E_contra", contravariant=True)

MAX_TIMER_SLEEP_MS = 500
"""A deadline that the driver was not told of fires at most this late."""

LOGGED_EVENTS = 50
MAX_LOGGED_CHARS = 400
"""How much of the event log a broken core leaves behind."""


class Core(Protocol[E_contra, C]):
    """A pure state machine: events in, commands out; time is an argument."""

    def handle(self, event: E_contra, now_ms: int) -> list[C]: ...

    def next_deadline_ms(self) -> int | None: ...


def now_ms() -> int:
    """Monotonic milliseconds of the running trio loop."""
    return math.floor(trio.current_time() * 1000)


class Driver(Generic[E, C]):
    """Owns one core. `execute` turns a command into an effect; it must not await, and may feed further events.

    `log_size` bounds the log of (now_ms, event, commands), from which a bug can be replayed; 0 keeps none.
    """

    def __init__(self, core: Core[E, C], execute: Callable[[C], None], *, tick: E, log_size: int = 0) -> None:
        self._core = core
        self._execute = execute
        self._tick = tick
        self._pending: deque[C] = deque()
        self._executing = False
        self._sleeping_until_ms = 0
        self._wake = trio.Event()
        self._defect: Exception | None = None
        self.log: deque[tuple[int, E, list[C]]] = deque(maxlen=log_size)

    def feed(self, event: E) -> int:
        """Let the core handle an event now and execute what it asks for; returns that time in monotonic ms.

        Raises what the core refuses with.
        """
        now = now_ms()
        try:
            commands = self._core.handle(event, now)
        except BlockxError:
            raise  # a refusal: nothing has changed
        except Exception as error:
            self._break(error)
            raise
        if self.log.maxlen:
            self.log.append((now, event, commands))
        self._pending.extend(commands)
        if not self._executing:
            self._drain()
        self._wake_timer_if_earlier()
        return now

    def _drain(self) -> None:
        self._executing = True
        try:
            while self._pending:
                self._execute(self._pending.popleft())
        except Exception as error:
            self._break(error)
            raise
        finally:
            self._executing = False

    def _break(self, error: Exception) -> None:
        """A defect: what the core knows is not to be trusted any more, so `run_timers` ends the program over it."""
        self._defect = self._defect or error
        self._wake.set()
        history = [f"{now} {event!r} -> {commands!r}"[:MAX_LOGGED_CHARS] for now, event, commands in self.log]
        log.critical("a core is broken", error=repr(error), history=history[-LOGGED_EVENTS:])

    def _wake_timer_if_earlier(self) -> None:
        due = self._core.next_deadline_ms()
        if due is not None and due < self._sleeping_until_ms:
            self._wake.set()

    async def run_timers(self) -> None:
        """Tell the core when its next deadline is due; runs until cancelled. Raises what broke the core."""
        while True:
            if self._defect is not None:
                raise self._defect
            now = now_ms()
            due = self._core.next_deadline_ms()
            latest = now + MAX_TIMER_SLEEP_MS
            self._sleeping_until_ms = latest if due is None else min(latest, due)
            # Half a millisecond later: a float just below the deadline would be rounded down to the one before.
            with trio.move_on_at((self._sleeping_until_ms + 0.5) / 1000):
                await self._wake.wait()
            self._wake = trio.Event()
            due = self._core.next_deadline_ms()
            if due is not None and due <= now_ms():
                self.feed(self._tick)
