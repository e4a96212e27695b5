"""grpc.aio, client and server, as peers of the contract's tests: one asyncio loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from attrs import define, field

from blockx.errors import RequestError
from blockx.rpc.status import Code, Metadata, Status, error_of, status_of
from tests.contract.echo import ECHO, Item
from tests.contract.grpcio import grpc
from tests.contract.peers import Handler, Once, Requests, Signals

T = TypeVar("T")

# A connection of its own for each channel, and for each server a port of its own.
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.so_reuseport", 0), ("grpc.enable_http_proxy", 0)]


class AsyncioThread:
    """A running asyncio loop. grpc.aio bears only one in a process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="asyncio")
        self._thread.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, from trio; cancelling the caller cancels it."""
        token, done = trio.lowlevel.current_trio_token(), trio.Event()
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        future.add_done_callback(lambda _: token.run_sync_soon(done.set))
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        return future.result()


async def _cancel_all() -> None:
    """grpc.aio leaves tasks behind that wait for requests of calls that are over."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@define(eq=False)
class AioSide:
    _signals: Signals

    def tell(self, name: str) -> None:
        self._signals.tell(name)

    async def wait(self, name: str) -> None:
        await self._signals.wait_in_asyncio(name)


@define(eq=False)
class AioCall(AioSide):
    _context: Any
    _requests: AsyncIterator[Any]
    _answers: list[Any] | None
    method: str
    trailing_metadata: list[tuple[str, str | bytes]] = field(factory=list)

    @property
    def peer(self) -> str:
        return str(self._context.peer())

    @property
    def metadata(self) -> Metadata:
        return tuple(self._context.invocation_metadata())

    @property
    def time_left_s(self) -> float | None:
        left: float | None = self._context.time_remaining()
        return left

    async def receive(self) -> Any:
        return await anext(self._requests, None)

    async def send(self, item: Any) -> None:
        if self._answers is None:
            await self._context.write(item)
        else:
            self._answers.append(item)


class AioServer:
    """A grpc.aio server on a free port."""

    address: str

    def __init__(self, thread: AsyncioThread, handler: Handler, signals: Signals, options: Any = ()) -> None:
        self._thread = thread
        self._handler = handler
        self._signals = signals
        self._options = [*OPTIONS, *options]

    async def start(self) -> None:
        self.address = await self._thread.run(self._start())

    async def stop(self, grace_s: float) -> None:
        await self._thread.run(self._server.stop(grace_s))

    async def _start(self) -> str:
        self._server = grpc.aio.server(options=self._options)
        made = {method.name: self._made(method) for method in ECHO.methods}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(ECHO.full_name, made)])
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    def _made(self, method: Any) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            requests = request if method.client_streaming else Once(request)
            answers: list[Any] | None = None if method.server_streaming else []
            call = AioCall(self._signals, context, aiter(requests), answers, method.name)
            try:
                await self._handler(call)
            except RequestError as error:
                status = status_of(error)
                metadata = (*status.metadata, *call.trailing_metadata)
                await context.abort(_CODES[status.code], status.message, metadata)
            context.set_trailing_metadata(tuple(call.trailing_metadata))
            return answers[0] if answers else None

        return _maker(method)(handle, Item.FromString, Item.SerializeToString)


def _maker(method: Any) -> Any:
    kinds = {False: "unary", True: "stream"}
    return getattr(grpc, f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}_rpc_method_handler")


_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _status(error: grpc.aio.AioRpcError) -> Status:
    return Status(Code(error.code().value[0]), error.details() or "", tuple(error.trailing_metadata() or ()))


class AioClient:
    """A grpc.aio channel."""

    def __init__(self, thread: AsyncioThread, address: str, signals: Signals) -> None:
        self._thread = thread
        self._address = address
        self._side = AioSide(signals)

    async def start(self) -> None:
        async def make() -> Any:
            return grpc.aio.insecure_channel(self._address, options=OPTIONS)

        self._channel = await self._thread.run(make())

    async def close(self) -> None:
        await self._thread.run(self._channel.close())

    @asynccontextmanager
    async def stream(
        self, method: Any, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> AsyncIterator[_AioAnswers]:
        call = await self._thread.run(self._begin(method, requests, timeout, metadata))
        answers = _AioAnswers(self._thread, call)
        try:
            yield answers
        finally:
            self._thread.loop.call_soon_threadsafe(call.cancel)

    async def unary(
        self, method: Any, requests: Requests, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> Any:
        async def call() -> Any:
            try:
                return await (await self._begin(method, requests, timeout, metadata))
            except grpc.aio.AioRpcError as error:
                raise error_of(_status(error)) from None

        return await self._thread.run(call())

    async def _begin(self, method: Any, requests: Requests, timeout: float | None, metadata: Metadata) -> Any:
        kinds = {False: "unary", True: "stream"}
        make = getattr(self._channel, f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}")
        path = f"/{method.containing_service.full_name}/{method.name}"
        given = requests(self._side) if callable(requests) else requests
        return make(path, Item.SerializeToString, Item.FromString)(given, timeout=timeout, metadata=tuple(metadata))


@define(eq=False)
class _AioAnswers:
    _thread: AsyncioThread
    _call: Any
    status: Status | None = None

    def __aiter__(self) -> _AioAnswers:
        return self

    async def __anext__(self) -> Any:
        item = await self._thread.run(self._read())
        if item is grpc.aio.EOF:
            raise StopAsyncIteration
        return item

    async def _read(self) -> Any:
        try:
            item = await self._call.read()
            if item is grpc.aio.EOF:
                self.status = Status(Code.OK, "", tuple(await self._call.trailing_metadata()))
        except grpc.aio.AioRpcError as error:
            self.status = _status(error)
            raise error_of(self.status) from None
        else:
            return item
