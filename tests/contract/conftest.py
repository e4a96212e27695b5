"""The pairs that run the tests of the contract: each client with each server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from attrs import define, field

from tests.contract.aio import AioClient, AioServer, AsyncioThread
from tests.contract.ours import OurClient, OurServer
from tests.contract.peers import Client, Handler, Server, Signals

OURS, STOCK = "ours", "stock"


@define(eq=False)
class Pair:
    """Makes clients and servers of two kinds, which end with the test."""

    client_kind: str
    server_kind: str
    _thread: AsyncioThread
    _nursery: trio.Nursery
    signals: Signals = field(init=False)
    _ends: AsyncExitStack = field(factory=AsyncExitStack)

    def __attrs_post_init__(self) -> None:
        self.signals = Signals(self._thread.loop)

    async def serve(self, handler: Handler) -> Server:
        server: Any
        if self.server_kind == OURS:
            server = OurServer(handler, self.signals)
            await server.start(self._nursery)
        else:
            server = AioServer(self._thread, handler, self.signals)
            await server.start()
        self._ends.push_async_callback(server.stop, 0)
        return server  # type: ignore[no-any-return]  # one of the two

    async def client(self, address: str) -> Client:
        client: Any
        if self.client_kind == OURS:
            client = OurClient(address, self.signals)
            await client.start(self._nursery)
        else:
            client = AioClient(self._thread, address, self.signals)
            await client.start()
        self._ends.push_async_callback(client.close)
        return client  # type: ignore[no-any-return]  # one of the two

    async def connected(self, handler: Handler) -> Client:
        """A client of a server with this handler."""
        server = await self.serve(handler)
        return await self.client(server.address)

    async def close(self) -> None:
        await self._ends.aclose()


@pytest.fixture(scope="session")
def asyncio_thread() -> Iterator[AsyncioThread]:
    thread = AsyncioThread()
    yield thread
    thread.close()


@pytest.fixture(params=[(client, server) for client in (OURS, STOCK) for server in (OURS, STOCK)], ids="-".join)
async def pair(
    request: pytest.FixtureRequest, asyncio_thread: AsyncioThread, nursery: trio.Nursery
) -> AsyncIterator[Pair]:
    with trio.fail_after(60):
        client_kind, server_kind = request.param
        pair = Pair(client_kind, server_kind, asyncio_thread, nursery)
        yield pair
        await pair.close()
