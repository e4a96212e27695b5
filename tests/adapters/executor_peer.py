"""An executor in this process, and the worker's end of its connection in the hands of a test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio
import trio.testing
from attrs import define, field

from blockx.executor.runtime import converse
from blockx.stream import MessageStream
from blockx.wire import messages as m
from blockx.wire.values import pack_value, unpack_value

FUNCTIONS = Path(__file__).parent / "executor_functions"
T = TypeVar("T")
Streams = tuple[trio.abc.Stream, trio.abc.Stream]


def first_id(task_no: int) -> int:
    return task_no << m.CALL_INDEX_BITS


@define(eq=False)
class Peer:
    """What a worker says and hears. Messages that nobody has waited for stay in `unheard`."""

    stream: MessageStream
    unheard: list[m.Message] = field(factory=list)

    def say(self, *messages: m.Message) -> None:
        self.stream.post(*messages)

    async def hear(self, *kinds: type[T]) -> T:
        """The next message of one of these kinds."""
        while True:
            for index, message in enumerate(self.unheard):
                if isinstance(message, kinds):
                    del self.unheard[index]
                    return message
            batch = await self.stream.receive()
            assert batch, f"the executor closed before it said any of {kinds}"
            self.unheard += batch

    async def greet(self, code_path: Path = FUNCTIONS, **limits: int) -> m.Hello:
        """The greeting from Hello to Ready."""
        hello = await self.hear(m.Hello)
        await self.welcome(code_path, **limits)
        return hello

    async def welcome(self, code_path: Path = FUNCTIONS, **limits: int) -> list[str]:
        """Welcome an executor that has said hello; the names of its functions."""
        limits = {"heartbeat_ms": 3_600_000, **limits}
        self.say(m.Welcome(m.PROTOCOL_VERSION, "worker", limits, str(code_path), "digest"))
        return (await self.hear(m.Ready)).functions

    def open(self, task_no: int = 1) -> None:
        self.say(m.OpenTask(task_no, f"task-{task_no}", 60_000))

    def execute(
        self,
        function: str,
        *calls: list[Any],
        task_no: int = 1,
        first: int = 0,
        attempt: int = 1,
        block: bytes | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Send calls of one function; the first one has the index `first`."""
        ids = [first_id(task_no) + first + n for n in range(len(calls))]
        args = [pack_value([list(call), kwargs or {}]) for call in calls]
        self.say(m.ExecuteCalls(task_no, function, block, 5_000_000, ids, [attempt] * len(ids), args))

    async def values(self, count: int) -> dict[int, Any]:
        """So many results, by call id."""
        found: dict[int, Any] = {}
        while len(found) < count:
            batch = await self.hear(m.CallsCompleted)
            found |= {call: unpack_value(value) for call, value in zip(batch.ids, batch.values, strict=True)}
        return found

    async def value(self) -> Any:
        (value,) = (await self.values(1)).values()
        return value

    async def outcome(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """The value of one call, or the message that it failed."""
        self.execute(function, list(args), kwargs=kwargs)
        ended = await self.hear(m.CallsCompleted, m.CallFailed)
        return unpack_value(ended.values[0]) if isinstance(ended, m.CallsCompleted) else ended

    async def failure(self, function: str, *args: Any, **kwargs: Any) -> m.CallFailed:
        failed = await self.outcome(function, *args, **kwargs)
        assert isinstance(failed, m.CallFailed)
        return failed

    async def asked(self) -> tuple[m.CallsWaiting, list[Any]]:
        """The next reads that calls wait for: the message, and what is asked."""
        waiting = await self.hear(m.CallsWaiting)
        return waiting, [unpack_value(request) for request in waiting.requests]

    def answer(self, waiting: m.CallsWaiting, *values: Any) -> None:
        """Answer reads; a ReadError's fields as a list are an error."""
        packed = [None if isinstance(value, tuple) else pack_value(value) for value in values]
        errors = [list(value) if isinstance(value, tuple) else None for value in values]
        self.say(m.ResumeCalls(waiting.ids, waiting.wait_ids, [0] * len(values), packed, errors))


@asynccontextmanager
async def executor(streams: Callable[[], Streams] = trio.testing.memory_stream_pair) -> AsyncIterator[Peer]:
    """An executor that has said Hello at most; it must have ended by itself, or ends when its connection is closed."""
    near, far = streams()
    peer = Peer(MessageStream(near))
    modules, path = set(sys.modules), list(sys.path)
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.stream.run_writer)
        nursery.start_soon(converse, MessageStream(far), "token")
        yield peer
        await peer.stream.aclose()
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(FUNCTIONS)):
            del sys.modules[name]
