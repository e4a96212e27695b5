"""The gRPC client: one address, one connection at a time, opened when a call needs it."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import trio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from blockx.errors import ConnectionFailed
from blockx.rpc.call import ResponseStream
from blockx.rpc.feeder import Requests
from blockx.rpc.limits import Limits
from blockx.rpc.link import Link, Transport
from blockx.rpc.status import Metadata
from blockx.rpc.tls import ClientTls, HandshakeFailed, client_handshake
from blockx.rpc.tokens import bearer

Connect: TypeAlias = Callable[[], Awaitable[Transport]]


class Channel:
    """Calls to the server at HOST:PORT; `run` must run in some nursery for as long as the channel is used.

    A call opens the connection when there is none. When that fails, the calls that wait for it fail, and further calls
    fail at once for a while that grows with each failure. Every error of a call is a RequestError.

    `token` is shown with each call, as `authorization: Bearer TOKEN`. Raises ConfigError for a bad token, and for files
    of `tls` that cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
        token: str | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.address = address
        self._metadata: Metadata = () if token is None else (bearer(token),)
        self._limits = limits or Limits()
        self._tls = None if tls is None else tls.context()
        self._server_name = (tls and tls.server_name) or address.rpartition(":")[0].strip("[]")
        self._connect = connect or self._connect_tcp
        self._backoff = _Backoff(self._limits)
        self._link: Link | None = None
        self._attempt: _Attempt | None = None
        self._asked = trio.Event()
        self._closing = trio.CancelScope()
        self._is_closed = False

    async def unary(
        self,
        method: MethodDescriptor,
        request: Message | Requests,
        timeout: float | None = None,
        *,
        metadata: Metadata = (),
    ) -> Any:
        """The answer to `request`. `timeout` is in seconds; the server is told it, or the surrounding scope's deadline.

        For a method whose requests are a stream, `request` is an iterable of them, async or not; it is read as fast as
        the server takes them, and no further once the answer is there. An error that it raises is raised here.

        `metadata` are pairs of a name and a text, or bytes under names that end in `-bin`.

        Raises the RequestError that the server raised, DeadlineExceeded after `timeout`, or ConnectionFailed;
        ValueError for metadata that cannot be sent.
        """
        async with self.stream(method, request, timeout, metadata=metadata) as responses:
            return await responses.only()

    def stream(
        self,
        method: MethodDescriptor,
        request: Message | Requests,
        timeout: float | None = None,
        *,
        metadata: Metadata = (),
    ) -> ResponseStream:
        """The answers to `request`, one by one: `async with channel.stream(...) as responses: async for ...`.

        A stream of requests is given as to `unary`, and sent while the answers are read.
        Leaving the block ends the call. Raises the same errors as `unary`, on entry or from the iteration.
        """
        return ResponseStream(self.connected, method, request, timeout, (*self._metadata, *metadata))

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the server is connected, trying as often as need be. Raises ConnectionFailed after `timeout` s."""
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while not self._is_closed:
                try:
                    await self.connected()
                    return
                except ConnectionFailed:
                    await trio.sleep(max(0, self._backoff.remaining_s))
        if self._is_closed:
            raise self._failure("the channel is closed")
        raise self._failure(self._backoff.reason or f"no connection within {timeout:g} s")

    def close(self) -> None:
        """End the channel and `run`; pending calls fail with ConnectionFailed."""
        self._is_closed = True
        self._closing.cancel()

    async def run(self) -> None:
        """Hold the connection, until `close`."""
        try:
            with self._closing:
                async with trio.open_nursery() as links:
                    while True:
                        await self._asked.wait()
                        self._asked = trio.Event()
                        await self._open(links)
        finally:
            self._is_closed = True
            self._settle(None, "the channel is closed")

    async def connected(self) -> Link:
        """The connection, opened if need be. Raises ConnectionFailed."""
        if self._link is not None and self._link.is_usable:
            return self._link
        if self._is_closed:
            raise self._failure("the channel is closed")
        if self._attempt is None:
            self._begin_attempt()
        attempt = self._attempt
        assert attempt is not None
        await attempt.done.wait()
        if attempt.link is None:
            raise self._failure(attempt.error)
        return attempt.link

    def _begin_attempt(self) -> None:
        if self._backoff.remaining_s > 0:
            raise self._failure(self._backoff.reason)
        self._attempt = _Attempt()
        self._asked.set()

    async def _open(self, links: trio.Nursery) -> None:
        try:
            with trio.fail_after(self._limits.connect_timeout_s):
                link = await self._greeted_link(links)
        except OSError as error:
            return self._not_opened(error.strerror or str(error))
        except HandshakeFailed as error:
            return self._not_opened(str(error))
        except trio.TooSlowError:
            return self._not_opened(f"no connection within {self._limits.connect_timeout_s:g} s")
        self._backoff.succeeded()
        self._link = link
        return self._settle(link)

    async def _greeted_link(self, links: trio.Nursery) -> Link:
        """A connection whose server has shown that it speaks HTTP/2: before, no call is sent that might get lost."""
        link = Link(await self._transport(), self._limits, peer=self.address)
        await links.start(link.run)
        try:
            trouble = await link.greeting()
        except trio.Cancelled:
            link.end("the server did not greet in time")
            raise
        if trouble is not None:
            raise HandshakeFailed(f"the server did not greet: {trouble}")
        return link

    async def _transport(self) -> Transport:
        transport = await self._connect()
        if self._tls is None:
            return transport
        try:
            return await client_handshake(transport, self._tls, self._server_name)
        except BaseException:
            await trio.aclose_forcefully(transport)
            raise

    def _not_opened(self, reason: str) -> None:
        self._backoff.failed(reason)
        self._settle(None, reason)

    def _settle(self, link: Link | None, error: str = "") -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.link, attempt.error = link, error
            attempt.done.set()

    def _failure(self, reason: str) -> ConnectionFailed:
        return ConnectionFailed(f"{self.address} cannot be reached: {reason}", may_have_arrived=False)

    async def _connect_tcp(self) -> Transport:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or len(port) > 5:
            raise OSError("the address is not HOST:PORT")
        try:
            return await trio.open_tcp_stream(host.removeprefix("[").removesuffix("]"), int(port))
        except ValueError as error:  # a host that no domain name may have (IDNA)
            raise OSError(f"the address cannot be used: {error}") from error


@asynccontextmanager
async def open_channel(
    address: str, *, limits: Limits | None = None, tls: ClientTls | None = None, token: str | None = None
) -> AsyncIterator[Channel]:
    """A channel that lives as long as the block. Errors raised in the block leave it as they are, not in a group."""
    channel = Channel(address, limits=limits, tls=tls, token=token)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.run)
        try:
            yield channel
        except Exception as error:
            failure = error
        finally:
            channel.close()
    if failure is not None:
        raise failure


@attrs.define
class _Attempt:
    """One try to connect, and the calls that wait for it."""

    done: trio.Event = attrs.field(factory=trio.Event)
    link: Link | None = None
    error: str = ""


class _Backoff:
    """How long to leave a server alone that could not be reached."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pause_s = limits.backoff_min_s
        self._until = -math.inf
        self.reason = ""

    @property
    def remaining_s(self) -> float:
        return self._until - trio.current_time()

    def failed(self, reason: str) -> None:
        self.reason = reason
        # A fifth up or down, so that many clients do not come back in step.
        self._until = trio.current_time() + self._pause_s * random.uniform(0.8, 1.2)
        self._pause_s = min(2 * self._pause_s, self._limits.backoff_max_s)

    def succeeded(self) -> None:
        self._pause_s = self._limits.backoff_min_s
