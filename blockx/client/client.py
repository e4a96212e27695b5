"""Client: what programs use to run tasks on a cluster."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType

import trio
from attrs import evolve, frozen

from blockx.client.addresses import checked_addresses
from blockx.client.peers import Peers
from blockx.client.placement import Placement
from blockx.client.retry import Pauses, RetryPolicy, patiently
from blockx.client.runs import Runs
from blockx.client.stubs import WorkerStub
from blockx.client.watches import Watches
from blockx.errors import DeadlineExceeded, InvalidArgument, NotFinished, NotFound, RequestError, Unavailable
from blockx.model import (
    Reservation,
    Submission,
    TaskId,
    TaskInput,
    TaskResult,
    TaskState,
    TaskUpdate,
    new_task_id,
)
from blockx.rpc import Channel, ClientTls
from blockx.rpc.pool import ChannelPool
from blockx.rpc.security import channel_opener


class Client:
    """Runs tasks on a cluster; to be used as `async with blockx.Client(coordinators=[…]) as client`.

    `coordinators` and `workers` are addresses (HOST:PORT): coordinators are asked in turn, workers where no coordinator
    answers. `timeout` (seconds) is what one request may take, and how long a server that is not there is tried again.
    `tls` encrypts every connection and says whom to trust; `token` is shown with every call. Raises ConfigError for
    files and tokens that cannot be used, InvalidArgument for addresses that are none.

    Methods raise the errors of `blockx.errors`; all of them may be cancelled at any time. It runs under trio.

    `on_wait` is told, each time before a task is offered again, why nobody took it. `jitter` (numbers from 0 to 1) and
    `channel` (from address to channel, in place of `tls` and `token`) are for programs that bring their own chance and
    network.
    """

    def __init__(
        self,
        coordinators: Iterable[str] = (),
        workers: Iterable[str] = (),
        *,
        timeout: float = 10.0,
        tls: ClientTls | None = None,
        token: str | None = None,
        on_wait: Callable[[RequestError], object] = lambda _: None,
        jitter: Callable[[], float] = random.random,
        channel: Callable[[str], Channel] | None = None,
    ) -> None:
        self._coordinators = checked_addresses("coordinators", coordinators)
        self._workers = checked_addresses("workers", workers)
        if not self._coordinators and not self._workers:
            raise InvalidArgument("give the client at least one address, as coordinators=[…] or workers=[…]")
        self._timeout = timeout
        self._on_wait = on_wait
        self._jitter = jitter
        self._channel = channel or channel_opener(tls, token)
        self._parts: _Parts | None = None

    async def __aenter__(self) -> Client:
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError("BlockX's client runs under trio: start your program with trio.run(main)")
        stack = AsyncExitStack()
        nursery = await stack.enter_async_context(trio.open_nursery())
        channels = ChannelPool(nursery, self._channel)
        peers = Peers(self._coordinators, self._workers, channels, self._timeout)
        self._parts = _Parts(
            nursery=nursery,
            stack=stack,
            peers=peers,
            placement=Placement(peers, self._timeout, self._jitter, self._on_wait),
            watches=Watches(peers, nursery, self._timeout, self._jitter),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts, self._parts = self._open, None
        await parts.close()

    # ----------------------------------------------------------------------------------------------------------------
    # One step each

    async def reserve(self, task_id: TaskId) -> Reservation:
        """Lease a slot for a task, or learn where it already is.

        Raises NoSlot when the cluster is full, Unavailable when nobody can take it, InvalidArgument for a bad id.
        """
        return await self._open.peers.reserve(task_id)

    async def submit(self, task: TaskInput, reservation: Reservation | None = None) -> Submission:
        """Have a task accepted: by the worker of `reservation`, or by one that is found now. Idempotent per worker.

        Raises InvalidArgument, InvalidSlot (the lease has run out), NoSlot, Unavailable. DeadlineExceeded and
        ConnectionFailed may leave it unknown whether the task was accepted.
        """
        parts = self._open
        if reservation is None:
            return await parts.placement.place_once(task)
        return await parts.placement.submit_reserved(reservation, task)

    def watch(
        self, task_ids: Sequence[TaskId], *, worker_addr: str
    ) -> AbstractAsyncContextManager[AsyncIterator[TaskUpdate]]:
        """Follow tasks on their worker: a snapshot of each, then the end of each; ends when all have ended.

        `async with client.watch([…], worker_addr=…) as updates: async for update in updates: …`. Leaving the block ends
        the watch. Large results are left out of updates (`is_truncated`); result() has them.
        """
        return self._open.peers.worker(worker_addr).watch(task_ids)

    async def status(self, task_id: TaskId, *, worker_addr: str) -> tuple[TaskState, TaskResult | None]:
        """A task's state and, once it has ended, its whole result. Raises NotFound."""
        stub = self._open.peers.worker(worker_addr)
        status = await stub.status(task_id)
        if status.result is None or not status.is_truncated:
            return status.state, status.result
        return status.state, await _with_bodies(stub, task_id, status.result)

    async def result(self, task_id: TaskId, *, worker_addr: str) -> TaskResult:
        """The whole result of a task that has ended. Raises NotFound, and NotFinished while it runs."""
        state, result = await self.status(task_id, worker_addr=worker_addr)
        if result is None:
            raise NotFinished(f"task {task_id!r} is {state.value} on {worker_addr}; watch it, or ask again later")
        return result

    # ----------------------------------------------------------------------------------------------------------------
    # From submission to result

    async def run(
        self,
        task: TaskInput,
        *,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        on_accepted: Callable[[TaskId, Submission], object] = lambda *_: None,
    ) -> TaskResult:
        """Submit a task, wait for its end, and fetch its whole result. A task that failed is a result, too.

        A full cluster is waited for. `timeout` (seconds) bounds everything: DeadlineExceeded; the task may still run.
        `retry` submits a task anew that failed with `retryable`, or whose worker is gone. Without it a lost worker is
        raised as Unavailable or NotFound: then it is unknown whether the task has written. Raises InvalidArgument.
        `on_accepted` is told where the task (its id, which `retry` changes) was accepted, as soon as it was.
        """
        with trio.move_on_after(math.inf if timeout is None else timeout):
            return await self._run(task, retry or RetryPolicy(attempts=1), on_accepted)
        raise DeadlineExceeded(f"task {task.task_id!r} has not ended within {timeout} s; it may still run")

    def run_many(
        self,
        tasks: Iterable[TaskInput] | AsyncIterable[TaskInput],
        *,
        in_flight: int = 32,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
    ) -> Runs:
        """Run many tasks, `in_flight` at a time; iterate over the results as they end, each with its `task`.

        `async for outcome in client.run_many(tasks)`; see Runs for leaving early. `retry` and `timeout` are per task.
        """

        async def run(task: TaskInput) -> TaskResult:
            return await self.run(task, retry=retry, timeout=timeout)

        return Runs(self._open.nursery, tasks, run, in_flight)

    async def _run(
        self, task: TaskInput, retry: RetryPolicy, on_accepted: Callable[[TaskId, Submission], object]
    ) -> TaskResult:
        pauses = Pauses(self._jitter)
        for _ in range(retry.attempts - 1):
            submission = await self._open.placement.place(task)
            on_accepted(task.task_id, submission)
            try:
                result = await self._end_of(task.task_id, submission.worker_addr)
            except (NotFound, Unavailable) as error:
                await pauses.pause(error)
            else:
                if result.success or not result.retryable:
                    return result
                await pauses.pause()
            task = evolve(task, task_id=new_task_id())
        submission = await self._open.placement.place(task)
        on_accepted(task.task_id, submission)
        return await self._end_of(task.task_id, submission.worker_addr)

    async def _end_of(self, task_id: TaskId, worker_addr: str) -> TaskResult:
        """Wait for the end of an accepted task. Raises NotFound or Unavailable if it was lost with its worker."""
        parts = self._open
        update = await parts.watches.wait(task_id, worker_addr)
        if update.result is None:
            why = update.error or "no result came with its end"
            raise NotFound(f"task {task_id!r} was accepted by worker {worker_addr}, which lost it: {why}")
        if not update.is_truncated:
            return update.result
        stub, bare = parts.peers.worker(worker_addr), update.result
        return await patiently(lambda: _with_bodies(stub, task_id, bare), self._timeout, self._jitter)

    @property
    def _open(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError("the client is not open; use it inside `async with blockx.Client(…) as client`")
        return self._parts


@frozen(kw_only=True)
class _Parts:
    """What an open client consists of."""

    nursery: trio.Nursery
    stack: AsyncExitStack
    peers: Peers
    placement: Placement
    watches: Watches

    async def close(self) -> None:
        """End everything. The nursery does not see the error of the block: users get it as it is, in no group."""
        self.nursery.cancel_scope.cancel()
        await self.stack.aclose()


async def _with_bodies(stub: WorkerStub, task_id: TaskId, result: TaskResult) -> TaskResult:
    """The result with the bodies of its plugin results, which were too large for one message."""
    bodies = [await stub.read_plugin_result(task_id, index) for index in range(len(result.plugin_results))]
    whole = [evolve(plugin, result=body) for plugin, body in zip(result.plugin_results, bodies, strict=True)]
    return evolve(result, plugin_results=tuple(whole))
