"""One call of a client, from its request to its end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

import trio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from blockx.errors import ConnectionFailed, DeadlineExceeded, Internal
from blockx.rpc.feeder import Feeder, Requests
from blockx.rpc.link import Link
from blockx.rpc.status import ConnectionLost, Metadata, Status, StatusError, error_of
from blockx.rpc.stream import ClientStream

_Received = TypeVar("_Received", bytes, bytes | None)

#: How often a call is made anew that servers have turned away unseen. With the pauses between, for about a second.
MAX_REPEATS = 12
#: Seconds before the first repeat; doubled with each further one, up to the longest. A server that counts an ended call
#: as still open turns several away in a row.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.2


class ResponseStream:
    """One call, from its request to its end; made by `Channel.stream`."""

    def __init__(
        self,
        connected: Callable[[], Awaitable[Link]],
        method: MethodDescriptor,
        request: Message | Requests,
        timeout: float | None,
        metadata: Metadata,
    ) -> None:
        self._connected = connected
        self._method = method
        self._request = request
        self._metadata = metadata
        self._feeder: Feeder | None = None
        self._repeats = 0
        self._has_answer = False
        self._timeout_s = math.inf if timeout is None else timeout
        self._response_class = GetMessageClass(method.output_type)
        self._stream: ClientStream | None = None

    async def __aenter__(self) -> ResponseStream:
        self._deadline = trio.current_time() + self._timeout_s
        with self._bounded():
            stream = await self._open()
        if not isinstance(self._request, Message):
            self._feeder = await Feeder(stream, self._request).__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.release()
        if self._feeder is not None:
            await self._feeder.__aexit__(kind, error, traceback)

    async def _open(self) -> ClientStream:
        """Begin the call; a single request is sent before the answer is waited for."""
        stream = self._stream = await self._open_stream()
        if isinstance(self._request, Message):
            try:
                await stream.send(self._request.SerializeToString(), is_last=True)
            except BaseException:
                stream.release()
                raise
        return stream

    async def _open_stream(self) -> ClientStream:
        path = f"/{self._method.containing_service.full_name}/{self._method.name}"
        while True:
            link = await self._connected()
            try:
                return await link.open_stream(path, trio.current_effective_deadline(), self._metadata)
            except ConnectionFailed:  # it began to close while the call waited for its place
                if self._repeats == MAX_REPEATS:
                    raise
            await self._pause()

    async def _pause(self) -> None:
        pause_s = min(FIRST_PAUSE_S * 2**self._repeats, LONGEST_PAUSE_S)
        self._repeats += 1
        await trio.sleep(pause_s)

    @property
    def initial_metadata(self) -> Metadata:
        """What came ahead of the first answer; empty until then, and of a call that failed without any answer."""
        return () if self._stream is None else self._stream.initial_metadata

    @property
    def status(self) -> Status | None:
        """How the server ended the call, with `metadata` (trailing) and `details`; None while it goes on."""
        return None if self._stream is None else self._stream.status

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> Any:
        with self._bounded():
            data = await self._receive(ClientStream.receive)
        if data is None:
            raise StopAsyncIteration
        return self._parse(data)

    async def only(self) -> Any:
        """The single answer of a unary call."""
        with self._bounded():
            data = await self._receive(ClientStream.receive_only)
        return self._parse(data)

    async def _receive(self, receive: Callable[[ClientStream], Awaitable[_Received]]) -> _Received:
        assert self._stream is not None, "a call is read inside its `async with` block"
        while True:
            try:
                data = await receive(self._stream)
                self._has_answer = True
                return data
            except StatusError as error:
                if not self._may_repeat(error.status):
                    raise
            self._stream.release()
            await self._pause()
            await self._open()

    def _may_repeat(self, status: Status) -> bool:
        """Servers turn calls away unseen when they stop, or count an ended call as still open: once more, then."""
        is_unseen = isinstance(status, ConnectionLost) and not status.may_have_arrived and not self._has_answer
        return is_unseen and isinstance(self._request, Message) and self._repeats < MAX_REPEATS

    def _parse(self, data: bytes) -> Message:
        try:
            return self._response_class.FromString(data)
        except DecodeError as error:
            raise Internal(f"the answer to {self._method.full_name} is not a valid message") from error

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        with trio.CancelScope(deadline=self._deadline) as scope:
            try:
                yield
            except StatusError as error:
                failure = None if self._feeder is None else self._feeder.take_failure()
                raise failure or error_of(error.status) from None
        if scope.cancelled_caught:
            raise DeadlineExceeded(f"{self._method.full_name} did not end within {self._timeout_s:g} s")
