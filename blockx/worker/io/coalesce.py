"""Turns many reads into few requests: answers are kept, identical reads share one, point reads travel together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from blockx.errors import ReadError
from blockx.worker.io.admission import read_in_thread
from blockx.worker.io.cache import ReadCache
from blockx.worker.io.retry import Backoff

Answer = bytes | ReadError
"""The packed value, or why there is none."""


@frozen
class Source:
    """Where reads of one kind go: `group` names the kind (packed), `read` answers a list of keys in a thread.

    Reads of one group may share a request, up to `max_keys`; a read whose backend takes one key only says 1.
    """

    group: bytes
    limiter: trio.CapacityLimiter
    read: Callable[[list[Any]], list[bytes]]
    max_keys: int
    attempts: int


@define(eq=False)
class Flight:
    """One backend request: joined by reads until its backend lets it in, answered once."""

    questions: list[bytes] = field(factory=list)
    keys: list[Any] = field(factory=list)
    answers: Sequence[Answer] = ()
    spans: list[tuple[float, float]] = field(factory=list)
    """When the backend worked on it (trio time), one pair for each attempt."""
    landed: trio.Event = field(factory=trio.Event)

    def charge_us(self, arrived: float) -> int:
        """Microseconds of backend time for a read that arrived at `arrived`."""
        return round(sum(max(0.0, end - max(start, arrived)) for start, end in self.spans) * 1_000_000)


@frozen
class Seat:
    """A read's place in a flight."""

    flight: Flight
    index: int

    @property
    def answer(self) -> Answer:
        return self.flight.answers[self.index]


@define(eq=False)
class Flights:
    """All reads of one task. Flights run in `nursery`; cancelling it answers their reads with an error."""

    nursery: trio.Nursery
    cache: ReadCache
    backoff: Backoff
    _seats: dict[bytes, Seat] = field(factory=dict, init=False)
    _boarding: dict[bytes, Flight] = field(factory=dict, init=False)
    """By group, the flight that can still be joined."""

    def ask(self, source: Source, question: bytes, key: Any) -> bytes | Seat:
        """The answer from memory, or a seat in a flight that will bring it. `question` identifies the read."""
        known = self.cache.get(question)
        if known is not None:
            return known
        seat = self._seats.get(question)
        if seat is None:
            seat = self._seats[question] = self._board(source, question, key)
        return seat

    def _board(self, source: Source, question: bytes, key: Any) -> Seat:
        flight = self._boarding.get(source.group)
        if flight is None or len(flight.keys) >= source.max_keys:
            flight = self._boarding[source.group] = Flight()
            self.nursery.start_soon(self._fly, source, flight)
        flight.questions.append(question)
        flight.keys.append(key)
        return Seat(flight, len(flight.keys) - 1)

    async def _fly(self, source: Source, flight: Flight) -> None:
        answers: Sequence[Answer] | None = None
        try:
            answers = await self._answers(source, flight)
        finally:
            self._close_boarding(source, flight)
            self._land(flight, answers or [task_ended()] * len(flight.keys))

    async def _answers(self, source: Source, flight: Flight) -> Sequence[Answer]:
        try:
            return await self.backoff.repeat(source.attempts, partial(self._attempt, source, flight))
        except ReadError as error:
            return [error] * len(flight.keys)

    async def _attempt(self, source: Source, flight: Flight) -> list[Answer]:
        started: list[float] = []

        def on_admitted() -> None:
            started.append(trio.current_time())
            self._close_boarding(source, flight)

        try:
            return await read_in_thread(source.limiter, on_admitted, partial(_read_or_split, source, flight.keys))
        finally:
            flight.spans += [(start, trio.current_time()) for start in started]

    def _close_boarding(self, source: Source, flight: Flight) -> None:
        if self._boarding.get(source.group) is flight:
            del self._boarding[source.group]

    def _land(self, flight: Flight, answers: Sequence[Answer]) -> None:
        flight.answers = answers
        for question, answer in zip(flight.questions, answers, strict=True):
            del self._seats[question]
            if isinstance(answer, bytes):
                self.cache.put(question, answer)
        flight.landed.set()


def task_ended() -> ReadError:
    return ReadError("the task has ended, so nothing more is read for it")


def _read_or_split(source: Source, keys: list[Any]) -> list[Answer]:
    """One request for all keys; if it is refused for what it asks, one each, so that a bad key fails alone."""
    try:
        return [*source.read(keys)]
    except ReadError as error:
        if error.retryable or len(keys) == 1:
            raise
    return [_read_alone(source, key) for key in keys]


def _read_alone(source: Source, key: Any) -> Answer:
    try:
        return source.read([key])[0]
    except ReadError as error:
        return error
