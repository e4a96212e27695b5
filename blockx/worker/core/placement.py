"""Where calls run: what each executor has to do, how long that will take, and which one has the least.

An executor works off its calls in the order they came, so fairness ends where its backlog begins. The backlog is
therefore bounded in time: a small task never waits behind more than a few milliseconds of somebody else's calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from attrs import define, field, frozen

from blockx.worker.core.call_events import (
    CallId,
    ExecutorId,
    TaskNo,
)
from blockx.worker.core.settings import DispatcherSettings

UNSEEN_CALL_US = 1_000.0
"""What a call of a function is taken to cost before one has completed."""

CALL_OVERHEAD_US = 4.0
"""What an executor spends on a call beside the function itself (measured: 2.6 to 4.2 µs)."""

MEMORY_CALLS = 15
"""Calls that weigh as much as the estimate so far: one call moves it by a sixteenth, a frame of 64 by four fifths."""

MIN_BACKLOG_CALLS = 2
"""One that runs and one that is there when it ends, however long they take."""


@define
class CallCosts:
    """Estimated work of one call, by function: a moving average of what completed calls took."""

    _estimates_us: dict[str, float] = field(factory=dict)

    def estimate_us(self, function: str) -> float:
        return self._estimates_us.get(function, UNSEEN_CALL_US)

    def observe(self, function: str, calls: int, cpu_us: int) -> None:
        """That many calls of the function completed and took that much CPU together."""
        mean_us = cpu_us / calls + CALL_OVERHEAD_US
        known_us = self._estimates_us.get(function, mean_us)
        self._estimates_us[function] = known_us + (mean_us - known_us) * calls / (calls + MEMORY_CALLS)


@frozen
class ExecutorBacklog:
    """What one executor has to do: calls that it may run, calls that wait for reads, bytes and estimated work."""

    running: int
    waiting: int
    argument_bytes: int
    estimated_us: int


@define(eq=False)
class ExecutorLoad:
    """The calls that one executor owns. One that waits holds no capacity until its last read is answered."""

    executor: ExecutorId
    capacity: int
    _settings: DispatcherSettings
    _costs: CallCosts
    owned: dict[CallId, int] = field(factory=dict)
    """The attempt number of every call sent and not answered: one look-up tells ownership and attempt."""
    waiting: dict[CallId, int] = field(factory=dict)
    """How many reads are outstanding, for each of the owned calls that wait."""
    argument_bytes: int = 0
    unconfirmed: set[TaskNo] = field(factory=set)
    """Tasks that were closed while calls of theirs ran here, and that it has not confirmed: it may be stuck in one."""
    _functions: dict[str, int] = field(factory=dict)
    """How many calls hold capacity, by function."""
    _most_running: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._most_running = min(self._settings.max_backlog_calls, self.capacity)

    def running(self) -> int:
        return len(self.owned) - len(self.waiting)

    def estimated_us(self) -> float:
        """Work that is there. Computed afresh, so that it follows the estimates."""
        return sum([calls * self._costs.estimate_us(function) for function, calls in self._functions.items()])

    def free_bytes(self) -> int:
        return self._settings.max_backlog_bytes - self.argument_bytes

    def is_open(self) -> bool:
        """Whether there is room for a call, of whatever cost.

        The last call may cross the bound in time or bytes: a call must not have to wait for ever because cheaper ones
        always fit before it. The bound on waiting calls counts running ones too, since all of them may come to wait.
        """
        running = self.running()
        return (
            not self.unconfirmed
            and running < self._most_running
            and len(self.owned) < self._settings.max_suspended_calls
            and self.argument_bytes < self._settings.max_backlog_bytes
            and (running < MIN_BACKLOG_CALLS or self.estimated_us() < self._settings.backlog_us)
        )

    def room(self, cost_us: float) -> int:
        """How many calls of this cost may be sent to an executor that is open: at least 1."""
        running = self.running()
        in_time = math.ceil((self._settings.backlog_us - self.estimated_us()) / cost_us)
        return min(
            max(in_time, 1),
            self._most_running - running,
            self._settings.max_suspended_calls - len(self.owned),
        )

    def send(self, function: str, ids: list[CallId], attempts: list[int], argument_bytes: int) -> None:
        self.owned.update(zip(ids, attempts, strict=True))
        self.hold(function, len(ids), argument_bytes)

    def hold(self, function: str, calls: int, argument_bytes: int) -> None:
        """Calls take capacity: they were sent, or resumed."""
        self._functions[function] = self._functions.get(function, 0) + calls
        self.argument_bytes += argument_bytes

    def release(self, function: str, calls: int, argument_bytes: int) -> None:
        """Calls give capacity back: they were answered, taken away, or wait."""
        left = self._functions.pop(function) - calls
        if left:
            self._functions[function] = left
        self.argument_bytes -= argument_bytes

    def claim(self, ids: Sequence[CallId], attempts: list[int]) -> list[int] | None:
        """Take the answered calls away; None if all were current, else the positions of those that were.

        An answer is current if this executor owns the call, in this attempt.
        """
        owned = self.owned
        taken = [owned.pop(call, None) for call in ids]
        if taken == attempts:
            return None
        owned.update({call: attempt for call, attempt in zip(ids, taken, strict=True) if attempt is not None})
        current = []
        for position, (call, attempt) in enumerate(zip(ids, attempts, strict=True)):
            if owned.get(call) == attempt:
                del owned[call]
                current.append(position)
        return current

    def current(self, ids: Sequence[CallId], attempts: list[int]) -> list[int] | None:
        """As `claim`, but the executor keeps the calls."""
        held = [self.owned.get(call) for call in ids]
        if held == attempts:
            return None
        return [position for position, attempt in enumerate(attempts) if held[position] == attempt]

    def wait(self, ids: Iterable[CallId]) -> list[CallId]:
        """One read more is outstanding for each; returns the calls that did not wait before."""
        waiting = self.waiting
        fresh = []
        for call in ids:
            reads = waiting.get(call, 0)
            waiting[call] = reads + 1
            if not reads:
                fresh.append(call)
        return fresh

    def resume(self, ids: Sequence[CallId], attempts: list[int]) -> tuple[list[int], list[CallId]]:
        """Reads were answered: the positions of the current answers, and the calls that wait for no more reads."""
        positions, resumed = [], []
        for position, (call, attempt) in enumerate(zip(ids, attempts, strict=True)):
            reads = self.waiting.get(call, 0) if self.owned.get(call) == attempt else 0
            if reads:
                positions.append(position)
                self.waiting[call] = reads - 1
            if reads == 1:
                del self.waiting[call]
                resumed.append(call)
        return positions, resumed

    def stop_waiting(self, ids: list[CallId]) -> list[CallId]:
        """The calls are over, also those that still waited; returns those that held capacity."""
        waiting = self.waiting
        return [call for call in ids if waiting.pop(call, None) is None] if waiting else ids

    def backlog(self) -> ExecutorBacklog:
        return ExecutorBacklog(self.running(), len(self.waiting), self.argument_bytes, round(self.estimated_us()))


def least_loaded(loads: list[ExecutorLoad]) -> ExecutorLoad:
    """The one with the least estimated work; of equals the one with the fewest calls, then the oldest."""
    if len(loads) == 1:
        return loads[0]
    return min(loads, key=lambda load: (load.estimated_us(), len(load.owned)))
