"""Our channel and our server as peers of the contract's tests."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define

from blockx.rpc import Channel, Limits, RpcServer, ServerCall, Service
from blockx.rpc.status import Metadata
from tests.contract.echo import ECHO
from tests.contract.peers import Answers, Handler, Once, Requests, Signals


@define(eq=False)
class OurSide:
    _signals: Signals

    def tell(self, name: str) -> None:
        self._signals.tell(name)

    async def wait(self, name: str) -> None:
        await self._signals.wait(name)


@define(eq=False)
class OurCall(OurSide):
    _call: ServerCall
    _requests: AsyncIterator[Any]
    _send: Callable[[Any], Any]
    method: str

    @property
    def peer(self) -> str:
        return self._call.peer

    @property
    def metadata(self) -> Metadata:
        return self._call.metadata

    @property
    def trailing_metadata(self) -> list[tuple[str, str | bytes]]:
        return self._call.trailing_metadata

    @property
    def time_left_s(self) -> float | None:
        return None if self._call.deadline == math.inf else self._call.deadline - trio.current_time()

    async def receive(self) -> Any:
        return await anext(self._requests, None)

    async def send(self, item: Any) -> None:
        await self._send(item)


class OurServer:
    """Our server on a free port."""

    address: str

    def __init__(self, handler: Handler, signals: Signals, limits: Limits | None = None) -> None:
        self._handler = handler
        self._signals = signals
        handlers = {method.name: self._made(method) for method in ECHO.methods}
        self._server = RpcServer([Service(ECHO, handlers)], limits=limits)

    async def start(self, nursery: trio.Nursery) -> None:
        self.address = await nursery.start(self._server.serve, "127.0.0.1", 0)

    async def stop(self, grace_s: float) -> None:
        await self._server.shutdown(grace_s)

    def _made(self, method: Any) -> Callable[..., Any]:
        async def stream(request: Any, call: ServerCall, send: Callable[[Any], Any]) -> None:
            requests = request if method.client_streaming else Once(request)
            await self._handler(OurCall(self._signals, call, requests, send, method.name))

        async def unary(request: Any, call: ServerCall) -> Any:
            answers: list[Any] = []

            async def keep(item: Any) -> None:
                answers.append(item)

            await stream(request, call, keep)
            (answer,) = answers
            return answer

        return stream if method.server_streaming else unary


class OurClient:
    """Our channel."""

    def __init__(self, address: str, signals: Signals) -> None:
        self._channel = Channel(address)
        self._side = OurSide(signals)

    async def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._channel.run)

    async def close(self) -> None:
        self._channel.close()

    @asynccontextmanager
    async def stream(
        self, method: Any, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> AsyncIterator[Answers]:
        given = requests(self._side) if callable(requests) else requests
        async with self._channel.stream(method, given, timeout, metadata=metadata) as answers:
            yield answers

    async def unary(
        self, method: Any, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> Any:
        given = requests(self._side) if callable(requests) else requests
        return await self._channel.unary(method, given, timeout, metadata=metadata)
