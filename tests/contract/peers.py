"""What the tests of the contract know of a client and a server, whichever library they are made of."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import trio
from google.protobuf.descriptor import MethodDescriptor

from blockx.rpc.status import Metadata, Status


class Signals:
    """Events by name, between a test and code that runs under trio here or under asyncio in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._token = trio.lowlevel.current_trio_token()
        self._trio: dict[str, trio.Event] = defaultdict(trio.Event)
        self._asyncio: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def tell(self, name: str) -> None:
        """From any thread."""
        self._token.run_sync_soon(self._tell_trio, name)
        self._loop.call_soon_threadsafe(self._tell_asyncio, name)

    def was_told(self, name: str) -> bool:
        """Under trio."""
        return self._trio[name].is_set()

    async def wait(self, name: str) -> None:
        """Under trio."""
        await self._trio[name].wait()

    async def wait_in_asyncio(self, name: str) -> None:
        await self._asyncio[name].wait()

    def _tell_trio(self, name: str) -> None:
        self._trio[name].set()

    def _tell_asyncio(self, name: str) -> None:
        self._asyncio[name].set()


class Side(Protocol):
    """What a test's code may do in the library that it runs in."""

    def tell(self, name: str) -> None: ...
    async def wait(self, name: str) -> None: ...


class Call(Side, Protocol):
    """A call, as its handler sees it; unary handlers send exactly one item."""

    method: str

    @property
    def peer(self) -> str: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def trailing_metadata(self) -> list[tuple[str, str | bytes]]: ...
    @property
    def time_left_s(self) -> float | None:
        """None without a deadline."""

    async def receive(self) -> Any:
        """The next request, None after the last."""

    async def send(self, item: Any) -> None: ...


#: Serves all methods; refuses with a RequestError.
Handler: TypeAlias = Callable[[Call], Awaitable[None]]
#: One request, requests, or a function that makes them.
Requests: TypeAlias = Any | Iterable[Any] | Callable[[Side], AsyncIterator[Any]]


class Answers(Protocol):
    """The answers of one call; its status once they are over."""

    def __aiter__(self) -> AsyncIterator[Any]: ...
    async def __anext__(self) -> Any: ...
    @property
    def status(self) -> Status | None: ...


class Client(Protocol):
    """Calls on one connection; errors are RequestErrors."""

    def stream(
        self, method: MethodDescriptor, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> AbstractAsyncContextManager[Answers]: ...

    async def unary(
        self, method: MethodDescriptor, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> Any: ...


class Server(Protocol):
    """A running server."""

    address: str

    async def stop(self, grace_s: float) -> None: ...


class Once:
    """The stream of one item."""

    def __init__(self, item: Any) -> None:
        self._items = [item]

    def __aiter__(self) -> Once:
        return self

    async def __anext__(self) -> Any:
        if not self._items:
            raise StopAsyncIteration
        return self._items.pop()


async def echo(call: Call) -> None:
    """Sends back every request, or the last one where only one answer may be."""
    last = None
    while (item := await call.receive()) is not None:
        if call.method in ("Down", "Both"):
            await call.send(item)
        last = item
    if call.method in ("Unary", "Up"):
        await call.send(last)
