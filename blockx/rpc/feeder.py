"""The requests of a call that are a stream: sent by a task beside the one that reads the answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import TypeAlias

import trio
from google.protobuf.message import Message

from blockx.rpc.status import Code, Status
from blockx.rpc.stream import ClientStream

Requests: TypeAlias = Iterable[Message] | AsyncIterable[Message]


class Feeder:
    """Sends `requests` on a stream until the last one, or until the call is over; `async with` is its life.

    An error that the requests raise ends the call. Whoever reads the answers takes it, else the block raises it.
    """

    def __init__(self, stream: ClientStream, requests: Requests) -> None:
        self._failure: Exception | None = None
        self._stream = stream
        self._requests = requests
        self._life: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Feeder:
        self._nursery = await self._life.__aenter__()
        self._nursery.start_soon(self._feed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._nursery is not None, "it was entered"
        self._nursery.cancel_scope.cancel()
        # What the block raised goes its own way: the nursery would wrap it in a group.
        await self._life.__aexit__(None, None, None)
        failure = self.take_failure()
        if failure is not None and error is None:
            raise failure
        if failure is not None and error is not None:
            error.add_note(f"The requests of the call have failed too: {failure!r}")

    def take_failure(self) -> Exception | None:
        """The error that the requests have raised; None the second time."""
        failure, self._failure = self._failure, None
        return failure

    async def _feed(self) -> None:
        try:
            await self._send_all()
        except Exception as error:
            self._failure = error
            self._stream.failed(Status(Code.CANCELLED, "its requests have failed"))
            self._stream.release()

    async def _send_all(self) -> None:
        async with aclosing(_iterate(self._requests)) as requests:
            async for request in requests:
                await self._stream.send(request.SerializeToString())
                if self._stream.is_closed:
                    return
        self._stream.send_end()


async def _iterate(requests: Requests) -> AsyncGenerator[Message, None]:
    """One kind of iteration for all; ends a generator that is not read to its end."""
    if isinstance(requests, Iterable):
        for request in requests:
            yield request
        return
    try:
        async for request in requests:
            yield request
    finally:
        if isinstance(requests, AsyncGenerator):
            await requests.aclose()
