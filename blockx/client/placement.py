"""Gets a task accepted by exactly one worker, as far as that can be known."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio
from attrs import evolve

from blockx.client.peers import Peers, first_answer
from blockx.client.retry import Pauses
from blockx.client.stubs import WorkerStub
from blockx.errors import ConnectionFailed, DeadlineExceeded, InvalidSlot, NoSlot, RequestError, Unavailable
from blockx.model import Reservation, SlotId, Submission, TaskInput, TaskState

MAX_SUBMITS = 4
"""How often a submission is sent to one worker while it stays unknown whether it was accepted."""


class Placement:
    """`patience` is how many seconds in a row nobody may be there; a full cluster is waited for without end.

    `on_wait` is told why, each time before something is tried again.
    """

    def __init__(
        self,
        peers: Peers,
        patience: float,
        jitter: Callable[[], float],
        on_wait: Callable[[RequestError], object] = lambda _: None,
    ) -> None:
        self._peers = peers
        self._patience = patience
        self._jitter = jitter
        self._on_wait = on_wait

    async def place(self, task: TaskInput) -> Submission:
        """Have the task accepted. Raises InvalidArgument, or Unavailable or DeadlineExceeded once patience ends."""
        pauses = Pauses(self._jitter)
        give_up = math.inf
        trouble: RequestError
        while True:
            asked_at = trio.current_time()
            try:
                return await self.place_once(task)
            except NoSlot as error:
                give_up, trouble = math.inf, error
            except (Unavailable, DeadlineExceeded, InvalidSlot) as error:
                give_up, trouble = min(give_up, asked_at + self._patience), error
                if trio.current_time() >= give_up:
                    raise
            self._on_wait(trouble)
            await pauses.pause(trouble, give_up)

    async def place_once(self, task: TaskInput) -> Submission:
        """One round: the coordinators, then the workers given by address. Raises NoSlot, InvalidSlot, Unavailable."""
        if self._peers.has_coordinators:
            try:
                return await self._by_coordinator(task)
            except (Unavailable, DeadlineExceeded):
                if not self._peers.has_workers:
                    raise
        stubs = self._peers.workers_for(task.task_id)
        return await first_answer(stubs, lambda stub: self.submit_surely(stub, task, None), "worker")

    async def _by_coordinator(self, task: TaskInput) -> Submission:
        return await self.submit_reserved(await self._peers.reserve_by_coordinator(task.task_id), task)

    async def submit_reserved(self, reservation: Reservation, task: TaskInput) -> Submission:
        """Submit to the worker of a reservation, which may have said that the task is known there."""
        stub = self._peers.worker(reservation.worker_addr)
        submission = await self.submit_surely(stub, task, reservation.slot_id)
        return submission if reservation.state is TaskState.ALLOCATED else evolve(submission, is_known=True)

    async def submit_surely(self, stub: WorkerStub, task: TaskInput, slot_id: SlotId | None) -> Submission:
        """Where the answer was lost the worker is asked again: it knows the task if it had accepted it.

        So a refusal means "not accepted here". Raises ConnectionFailed or DeadlineExceeded if it stays unknown.
        """
        pauses = Pauses(self._jitter)
        for attempt in range(MAX_SUBMITS):
            try:
                submission = await stub.submit(task, slot_id)
                is_known = submission.payload_mismatch or (attempt == 0 and submission.state.is_terminal)
                return evolve(submission, is_known=is_known)
            except (ConnectionFailed, DeadlineExceeded) as error:
                is_refused = isinstance(error, ConnectionFailed) and not error.may_have_arrived
                if is_refused or attempt == MAX_SUBMITS - 1:
                    raise
                await pauses.pause()
        raise AssertionError("the last attempt returns or raises")
