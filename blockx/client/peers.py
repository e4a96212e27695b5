"""The servers that a client knows: coordinators in order of preference, workers given by address."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from blockx.client.stubs import CoordinatorStub, WorkerStub
from blockx.errors import ConnectionFailed, DeadlineExceeded, NoSlot, RequestError, Unavailable
from blockx.model import Reservation, TaskId
from blockx.rpc.pool import ChannelPool

T = TypeVar("T")

DIRECT_SLOT_TTL_MS = 5_000
"""Lease asked of a worker where no coordinator does it: the same as a coordinator's default."""


class Peers:
    """Fails over from one server to the next."""

    def __init__(
        self, coordinators: Iterable[str], workers: Iterable[str], channels: ChannelPool, timeout: float
    ) -> None:
        self._coordinators = tuple(coordinators)
        self._workers = tuple(workers)
        self._channels = channels
        self._timeout = timeout

    @property
    def has_coordinators(self) -> bool:
        return bool(self._coordinators)

    @property
    def has_workers(self) -> bool:
        return bool(self._workers)

    def worker(self, addr: str) -> WorkerStub:
        return WorkerStub(addr, self._channels.get(addr), self._timeout)

    def workers_for(self, task_id: TaskId) -> list[WorkerStub]:
        """The workers given by address, in an order that is always the same for a task: the first may know it."""

        def rank(addr: str) -> bytes:
            return hashlib.blake2b(f"{task_id}\0{addr}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

        return [self.worker(addr) for addr in sorted(self._workers, key=rank)]

    async def reserve(self, task_id: TaskId) -> Reservation:
        """A slot through a coordinator, or else directly. Raises NoSlot, Unavailable, InvalidArgument."""
        if self.has_coordinators:
            try:
                return await self.reserve_by_coordinator(task_id)
            except Unavailable:
                if not self.has_workers:
                    raise
        stubs = self.workers_for(task_id)
        return await first_answer(stubs, lambda stub: stub.request_slot(task_id, DIRECT_SLOT_TTL_MS), "worker")

    async def reserve_by_coordinator(self, task_id: TaskId) -> Reservation:
        """A full cluster is what every coordinator sees: only for other reasons the next one is asked."""
        troubles: list[RequestError] = []
        for addr in self._coordinators:
            try:
                reservation = await CoordinatorStub(self._channels.get(addr), self._timeout).reserve(task_id)
            except (Unavailable, DeadlineExceeded) as error:
                troubles.append(error)
            else:
                self._prefer(addr)
                return reservation
        raise summary(troubles, "coordinator")

    def _prefer(self, addr: str) -> None:
        """A coordinator that answered is asked first from now on; reserves under way keep to their order."""
        if self._coordinators[0] != addr:
            self._coordinators = (addr, *(each for each in self._coordinators if each != addr))


async def first_answer(stubs: Iterable[WorkerStub], ask: Callable[[WorkerStub], Awaitable[T]], what: str) -> T:
    """Ask one after the other until one does not refuse for want of a slot or of being there."""
    troubles: list[RequestError] = []
    for stub in stubs:
        try:
            return await ask(stub)
        except (NoSlot, Unavailable, DeadlineExceeded) as error:
            troubles.append(error)
    raise summary(troubles, what)


def summary(troubles: list[RequestError], what: str) -> NoSlot | Unavailable:
    """One error for many. Answers say more than lost connections; NoSlot if all who answered are full."""
    answers = [error for error in troubles if not isinstance(error, ConnectionFailed | DeadlineExceeded)]
    hints = [each.retry_after_ms for each in troubles if isinstance(each, NoSlot | Unavailable) and each.retry_after_ms]
    text = "; ".join(str(error) for error in answers or troubles)
    if answers and all(isinstance(error, NoSlot) for error in answers):
        return NoSlot(text, retry_after_ms=min(hints, default=None))
    if not answers:
        text = f"no {what} answers: {text}" if troubles else f"the client was given no {what}"
    return Unavailable(text, retry_after_ms=min(hints, default=None))
