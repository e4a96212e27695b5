"""Whose turn it is: deficit round robin between the tasks that have calls to send.

Turns are counted in estimated work, not in calls, so that a task of slow calls gets as much of the executors as one of
quick calls. A task may overdraw its turn by its last call and pays that back in its next ones.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from attrs import define, field

QUANTUM_US = 1_000
"""Work sent in one turn: a fifth of an executor's backlog, so that several tasks fit into what waits there."""

MAX_CHARGE_US = 16 * QUANTUM_US
"""What one call is charged at most. Bounds the turns that pass before a task with very long calls is served again."""


class Flow(Protocol):
    """What the ring keeps at each member."""

    deficit_us: float
    in_ring: bool


FlowT = TypeVar("FlowT", bound=Flow)


def charge_us(cost_us: float) -> float:
    """What a call of this estimated cost takes from the turn."""
    return min(cost_us, MAX_CHARGE_US)


@define
class DeficitRing(Generic[FlowT]):
    """The flows that have something to send, in the order of their turns."""

    _ring: deque[FlowT] = field(factory=deque)

    def add(self, flow: FlowT) -> None:
        """The flow has something to send. Its first turn comes after those of all others; adding twice does nothing."""
        if not flow.in_ring:
            flow.in_ring = True
            self._ring.append(flow)

    def remove(self, flow: FlowT) -> None:
        """The flow has nothing to send for now. It keeps what is left of its turn, and what it has overdrawn."""
        if flow.in_ring:
            flow.in_ring = False
            self._ring.remove(flow)

    def __bool__(self) -> bool:
        return bool(self._ring)

    def head(self) -> FlowT:
        """Whose turn it is, with a deficit above 0.

        To be asked only if the ring is not empty and something can be sent: it passes the turns of those that have
        overdrawn, and without room nobody else would make use of that.
        """
        while True:
            flow = self._ring[0]
            if flow.deficit_us <= 0:
                flow.deficit_us += QUANTUM_US
            if flow.deficit_us > 0:
                return flow
            self._ring.rotate(-1)

    def charge(self, flow: FlowT, sent_us: float) -> None:
        """The head has sent this much work; if that used up its turn the next one is the head."""
        flow.deficit_us -= sent_us
        if flow.deficit_us <= 0:
            self._ring.rotate(-1)
