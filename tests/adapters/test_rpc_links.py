"""A client's connection in moments that only two sides together bring about."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import pytest
import trio
import trio.testing
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame
from trio.testing import MockClock, wait_all_tasks_blocked

from blockx.rpc.limits import Limits
from blockx.rpc.link import Link
from blockx.rpc.status import StatusError
from blockx.rpc.stream import ClientStream


class Server:
    """The other end in plain h2: it answers what HTTP/2 wants answered, until it vanishes."""

    def __init__(self, settings: dict[SettingCodes, int]) -> None:
        near, self._far = trio.testing.memory_stream_pair()
        self.link = Link(near, Limits(), peer="server:1")
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._h2.initiate_connection()
        self._h2.update_settings(settings)
        self.reading = trio.CancelScope()

    async def serve(self) -> None:
        await self._far.send_all(self._h2.data_to_send())
        with self.reading:
            while data := await self._far.receive_some():
                self._h2.receive_data(bytes(data))
                await self._far.send_all(self._h2.data_to_send())

    async def send(self, frame: Any) -> None:
        await self._far.send_all(frame.serialize())


@asynccontextmanager
async def connected(settings: dict[SettingCodes, int] | None = None) -> AsyncIterator[Server]:
    server = Server(settings or {})
    async with trio.open_nursery() as nursery:
        await nursery.start(server.link.run)
        nursery.start_soon(server.serve)
        assert await server.link.greeting() is None
        yield server
        nursery.cancel_scope.cancel()


async def test_a_server_that_vanished_is_given_up_though_every_call_is_over_when_it_is_looked_for(
    autojump_clock: MockClock,
) -> None:
    async with connected() as server:
        server.reading.cancel()
        for _ in range(20):
            await trio.sleep(7)
            if not server.link.is_usable:
                break
            stream = await server.link.open_stream("/s/m", trio.current_time() + 2)
            with trio.move_on_after(2):
                await stream.receive()
            stream.release()
            await trio.sleep(6)
        assert not server.link.is_usable


async def test_a_caller_with_bad_metadata_takes_nobodys_place(autojump_clock: MockClock) -> None:
    async with connected({SettingCodes.MAX_CONCURRENT_STREAMS: 1}) as server:
        first = await server.link.open_stream("/s/m", math.inf)
        opened: list[str] = []
        with trio.fail_after(60):
            await _compete(server, first, opened)
        assert opened == ["good"]


async def _compete(server: Server, first: ClientStream, opened: list[str]) -> None:
    async with trio.open_nursery() as callers:

        async def bad() -> None:
            with pytest.raises(ValueError, match="Ä"):
                await server.link.open_stream("/s/m", math.inf, (("Ä", "x"),))

        async def good() -> None:
            await server.link.open_stream("/s/m", math.inf)
            opened.append("good")

        callers.start_soon(bad)
        await wait_all_tasks_blocked()
        callers.start_soon(good)
        await wait_all_tasks_blocked()
        first.release()


async def test_a_sender_that_waits_for_the_connections_window_hears_of_goaway(autojump_clock: MockClock) -> None:
    async with connected({SettingCodes.INITIAL_WINDOW_SIZE: 10_000_000}) as server:
        await wait_all_tasks_blocked()
        stream = await server.link.open_stream("/s/m", math.inf)
        began = trio.current_time()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_much, stream)
                await wait_all_tasks_blocked()
                await server.send(GoAwayFrame(0, last_stream_id=0, error_code=0))
        assert trio.current_time() == began
        with pytest.raises(StatusError, match="takes no new calls"):
            await stream.receive()


async def _send_much(stream: Any) -> None:
    await stream.send(bytes(200_000), is_last=True)
