"""Waits for the ends of many tasks over few watch streams: one a batch of tasks, at most eight a worker.

A stream is ended only once another one covers its tasks: a worker may take the end of a task's last watch for the sign
that nobody wants its result any more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import trio
from attrs import define, field

from blockx.client.peers import Peers
from blockx.client.retry import Pauses
from blockx.client.stubs import WorkerStub
from blockx.errors import DeadlineExceeded, RequestError, Unavailable
from blockx.model import TaskId, TaskUpdate

BATCH_S = 0.003
"""Tasks that come within this time share a stream; the first one after a rest does not wait."""
MAX_STREAMS = 8
MAX_WATCHED_IDS = 10_000
"""What a worker accepts in one watch."""


class Watches:
    """All watches of one client. Its tasks run in the nursery that is given."""

    def __init__(self, peers: Peers, nursery: trio.Nursery, patience: float, jitter: Callable[[], float]) -> None:
        self._peers = peers
        self._nursery = nursery
        self._patience = patience
        self._jitter = jitter
        self._workers: dict[str, _WorkerWatches] = {}

    async def wait(self, task_id: TaskId, worker_addr: str) -> TaskUpdate:
        """The terminal update of a task. Raises Unavailable if its worker is not there for longer than patience."""
        worker = self._workers.get(worker_addr)
        if worker is None:
            stub = self._peers.worker(worker_addr)
            worker = _WorkerWatches(stub, self._nursery, self._patience, self._jitter)
            self._workers[worker_addr] = worker
            self._nursery.start_soon(worker.run)
        return await worker.wait(task_id)


@define(eq=False)
class _Waiter:
    """Those who wait for one task. Its end is an update or an error."""

    users: int = 0
    done: trio.Event = field(factory=trio.Event)
    end: TaskUpdate | RequestError | None = None

    def finish(self, end: TaskUpdate | RequestError) -> None:
        self.end = end
        self.done.set()


@define(eq=False)
class _Stream:
    """One watch stream. `ids` are the tasks it is still needed for, `replaces` the streams it makes superfluous."""

    ids: set[TaskId]
    replaces: list[_Stream]
    has_unwanted: bool = False
    is_heard: bool = False
    scope: trio.CancelScope = field(factory=trio.CancelScope)

    def end(self) -> None:
        self.ids.clear()
        self.scope.cancel()

    def retire_replaced(self) -> None:
        """This stream covers what those watched: now they may end."""
        for stream in self.replaces:
            stream.end()
        self.replaces.clear()


class _WorkerWatches:
    """The watches on one worker."""

    def __init__(self, stub: WorkerStub, nursery: trio.Nursery, patience: float, jitter: Callable[[], float]) -> None:
        self._stub = stub
        self._nursery = nursery
        self._patience = patience
        self._jitter = jitter
        self._waiters: dict[TaskId, _Waiter] = {}
        self._fresh: dict[TaskId, None] = {}
        self._streams: list[_Stream] = []
        self._changed = trio.Event()

    async def wait(self, task_id: TaskId) -> TaskUpdate:
        waiter = self._waiters.setdefault(task_id, _Waiter())
        waiter.users += 1
        if not any(task_id in stream.ids for stream in self._streams):
            self._fresh[task_id] = None
            self._changed.set()
        try:
            await waiter.done.wait()
        finally:
            waiter.users -= 1
            if waiter.users == 0 and waiter.end is None:
                self._forget(task_id)
        if isinstance(waiter.end, RequestError):
            raise waiter.end.copy()  # others wait for the same stream, and each adds notes of its own
        assert waiter.end is not None, "a waiter is done once it has its end"
        return waiter.end

    def _forget(self, task_id: TaskId) -> None:
        """Nobody waits for the task any more: its watch is to end."""
        del self._waiters[task_id]
        self._fresh.pop(task_id, None)
        for stream in self._streams:
            if task_id in stream.ids:
                stream.ids.discard(task_id)
                stream.has_unwanted = True
        self._changed.set()

    # ----------------------------------------------------------------------------------------------------------------
    # Which streams there are

    async def run(self) -> None:
        """Open and merge streams until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            self._rearrange()
            await trio.sleep(BATCH_S)

    def _rearrange(self) -> None:
        for stream in self._streams:
            if not stream.ids:
                stream.end()
        stale = [stream for stream in self._streams if stream.has_unwanted and stream.ids]
        batch = list(itertools.islice(self._fresh, MAX_WATCHED_IDS))
        if not (batch or stale) or len(self._streams) >= MAX_STREAMS:
            return  # the end of a stream brings us back here
        replaced = stale
        if len(self._streams) >= MAX_STREAMS - 1:
            replaced = list(self._streams)
        ids = set(batch).union(*(stream.ids for stream in replaced))
        if len(ids) > MAX_WATCHED_IDS:
            replaced, ids = [], set(batch)
        self._open(ids, replaced)

    def _open(self, ids: set[TaskId], replaced: list[_Stream]) -> None:
        for stream in replaced:
            stream.has_unwanted = False
        for task_id in ids:
            self._fresh.pop(task_id, None)
        if self._fresh:
            self._changed.set()
        stream = _Stream(ids, replaced)
        self._streams.append(stream)
        self._nursery.start_soon(self._follow, stream)

    # ----------------------------------------------------------------------------------------------------------------
    # One stream

    async def _follow(self, stream: _Stream) -> None:
        """Watch until every task of the stream has ended, over as many connections as it takes."""
        pauses, lost_at = Pauses(self._jitter), math.inf
        with stream.scope:
            while stream.ids:
                stream.is_heard = False
                trouble = await self._watch_once(stream)
                if stream.is_heard:
                    pauses, lost_at = Pauses(self._jitter), math.inf
                lost_at = min(lost_at, trio.current_time())
                is_passing = isinstance(trouble, Unavailable | DeadlineExceeded)
                if not is_passing or trio.current_time() - lost_at >= self._patience:
                    self._fail(stream, trouble)
                if stream.ids:
                    await pauses.pause(trouble)
        self._streams.remove(stream)
        self._changed.set()

    async def _watch_once(self, stream: _Stream) -> RequestError:
        """Watch over one connection; returns why it ended, which is no trouble if every task has ended."""
        unseen = set(stream.ids)
        try:
            async with self._stub.watch(sorted(unseen)) as updates:
                async for update in updates:
                    stream.is_heard = True
                    self._heard(update)
                    unseen.discard(update.task_id)
                    if not unseen:
                        stream.retire_replaced()
        except RequestError as error:
            return error
        return Unavailable(f"worker {self._stub.addr} ended a watch before the tasks in it had ended")

    def _heard(self, update: TaskUpdate) -> None:
        if update.is_terminal and update.task_id in self._waiters:
            self._end(update.task_id, update)

    def _fail(self, stream: _Stream, trouble: RequestError) -> None:
        for task_id in list(stream.ids):
            self._end(task_id, trouble)

    def _end(self, task_id: TaskId, end: TaskUpdate | RequestError) -> None:
        for stream in self._streams:
            stream.ids.discard(task_id)
        self._waiters.pop(task_id).finish(end)
