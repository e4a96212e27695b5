"""Many tasks at once: a bounded number in flight, results as they end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from types import TracebackType

import trio
from attrs import asdict, frozen

from blockx.errors import BlockxError
from blockx.model import TaskInput, TaskResult


@frozen(kw_only=True)
class TaskOutcome(TaskResult):
    """A TaskResult that knows its task."""

    task: TaskInput

    @classmethod
    def of(cls, task: TaskInput, result: TaskResult) -> TaskOutcome:
        return cls(task=task, **asdict(result, recurse=False))


class Runs:
    """What `Client.run_many` gives: an async iterator of TaskOutcome, in the order in which the tasks end.

    As `async with client.run_many(…) as outcomes: async for outcome in outcomes: …` leaving the block ends what still
    runs. A plain `async for` does as well where it is read to its end; left early, it stops with the client. At most
    `in_flight` tasks are neither ended nor unread, so a slow reader slows the submissions down.

    An error that no worker can cure (a refused task, nobody there) is raised by the iterator, with a note that names
    the task, and ends it.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        tasks: Iterable[TaskInput] | AsyncIterable[TaskInput],
        run: Callable[[TaskInput], Awaitable[TaskResult]],
        in_flight: int,
    ) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, not {in_flight}")
        self._nursery = nursery
        self._tasks = tasks
        self._run = run
        self._slots = trio.Semaphore(in_flight)
        self._scope = trio.CancelScope()
        self._is_started = False
        self._send, self._receive = trio.open_memory_channel[TaskOutcome | Exception](0)

    async def __aenter__(self) -> Runs:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Wait for nothing more: no further task is submitted, and the watches of those that run end."""
        self._scope.cancel()
        self._receive.close()

    def __aiter__(self) -> Runs:
        return self

    async def __anext__(self) -> TaskOutcome:
        if not self._is_started:
            self._is_started = True
            self._nursery.start_soon(self._run_all)
        try:
            outcome = await self._receive.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise StopAsyncIteration from None
        if isinstance(outcome, Exception):
            self.cancel()
            raise outcome
        return outcome

    async def _run_all(self) -> None:
        with self._scope:
            async with self._send, trio.open_nursery() as running:
                try:
                    async with aclosing(_each(self._tasks)) as tasks:
                        async for task in tasks:
                            await self._slots.acquire()
                            running.start_soon(self._run_one, task)
                except Exception as error:  # the caller's own iterable failed: that is for the caller to see
                    await self._send.send(error)

    async def _run_one(self, task: TaskInput) -> None:
        try:
            outcome: TaskOutcome | Exception = TaskOutcome.of(task, await self._run(task))
        except BlockxError as error:
            error.add_note(f"while running task {task.task_id!r}")
            outcome = error
        await self._send.send(outcome)
        self._slots.release()


async def _each(tasks: Iterable[TaskInput] | AsyncIterable[TaskInput]) -> AsyncGenerator[TaskInput, None]:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
        return
    for task in tasks:
        yield task
