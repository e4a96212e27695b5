"""How much senseless traffic a peer may send on one connection before it is told to calm down. Pure."""

from __future__ import annotations

import attrs

from blockx.errors import ProtocolError
from blockx.rpc.limits import Limits

#: The share of a bucket that flows back each second.
REFILL_PER_S = 0.1
#: A peer answers what we send with window updates and measuring PINGs: at most so many frames for one of ours.
FRAMES_PER_SENT_FRAME = 4


class TooMuch(ProtocolError):
    """The peer sends senseless traffic, faster than anything that means well."""


@attrs.define
class TokenBucket:
    """So many at once; in the long run `REFILL_PER_S` of that each second, and what is given back."""

    capacity: float
    _tokens: float = attrs.field(init=False)
    _filled_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._tokens = self.capacity

    def take(self, amount: float, now: float) -> bool:
        """Take tokens; False, and none taken, when there are too few. `now` is in seconds."""
        elapsed, self._filled_at = now - self._filled_at, now
        self.give(elapsed * self.capacity * REFILL_PER_S)
        if amount > self._tokens:
            return False
        self._tokens -= amount
        return True

    def give(self, amount: float) -> None:
        self._tokens = min(self.capacity, self._tokens + amount)


class Patience:
    """The buckets of one connection. Useful traffic refills them, so that a busy peer is never taken for a flood."""

    def __init__(self, limits: Limits) -> None:
        self._idle_frames = TokenBucket(limits.max_idle_frames)
        self._dropped_calls = TokenBucket(limits.max_dropped_calls)

    def idle_frames(self, count: int, now: float) -> None:
        """Note frames that carry nothing of a call. Raises TooMuch."""
        if count and not self._idle_frames.take(count, now):
            raise TooMuch(f"more than {self._idle_frames.capacity} frames came that carry nothing of a call")

    def call_dropped(self, now: float) -> None:
        """Note a call that was refused, or reset before its answer began. Raises TooMuch."""
        if not self._dropped_calls.take(1, now):
            raise TooMuch(f"more than {self._dropped_calls.capacity} calls came to nothing")

    def frame_sent(self) -> None:
        """Note a frame of an answer or request of ours."""
        self._idle_frames.give(FRAMES_PER_SENT_FRAME)

    def call_answered(self) -> None:
        """Note a call that came to its end."""
        self._dropped_calls.give(1)
