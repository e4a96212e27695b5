"""Streams of requests: what becomes of their errors, of generators that are not read to the end, of odd peers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from blockx import errors
from blockx.rpc import RpcServer, ServerCall, Service, open_channel
from tests.adapters.rpc_peers import RawClient, framed, message, request_headers
from tests.contract.echo import BOTH, ECHO, UP, Item
from tests.contract.grpcio import grpc, in_thread

Handler = Callable[..., Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Echo:
    """Serves Up with the first request, Both with all of them; tells when a handler is cancelled."""

    def __init__(self) -> None:
        self.cancelled = trio.Event()

    async def serve(self, nursery: trio.Nursery) -> str:
        handlers: dict[str, Handler] = {"Unary": self.first, "Down": self.all, "Up": self.first, "Both": self.all}
        bound: str = await nursery.start(RpcServer([Service(ECHO, handlers)]).serve, "127.0.0.1", 0)
        return bound

    async def first(self, requests: AsyncIterator[Any], call: ServerCall) -> Any:
        return await anext(requests)

    async def all(self, requests: AsyncIterator[Any], call: ServerCall, send: Send) -> None:
        try:
            async for item in requests:
                await send(item)
        except trio.Cancelled:
            self.cancelled.set()
            raise


class Fault(Exception):
    """The requests' own."""


async def one_then_fault() -> AsyncIterator[Any]:
    yield Item(number=1)
    raise Fault("mine")


async def test_an_error_of_the_requests_ends_the_call_and_is_raised_where_answers_are_read(
    nursery: trio.Nursery,
) -> None:
    echo = Echo()
    address = await echo.serve(nursery)
    async with open_channel(address) as channel:
        async with channel.stream(BOTH, one_then_fault()) as answers:
            with pytest.raises(Fault, match="mine"):
                async for _ in answers:
                    pass
            with pytest.raises(errors.Unavailable, match="its requests have failed"):
                await anext(answers)
        await echo.cancelled.wait()


async def test_an_error_of_the_requests_that_nobody_reads_is_raised_by_the_block(nursery: trio.Nursery) -> None:
    echo = Echo()
    address = await echo.serve(nursery)
    async with open_channel(address) as channel:
        with pytest.raises(Fault, match="mine"):
            async with channel.stream(BOTH, one_then_fault()):
                await echo.cancelled.wait()


async def test_an_error_of_the_requests_is_noted_on_an_error_of_the_block(nursery: trio.Nursery) -> None:
    echo = Echo()
    address = await echo.serve(nursery)

    async def both_fail() -> None:
        async with channel.stream(BOTH, one_then_fault()):
            await echo.cancelled.wait()
            raise KeyError("the block's")

    async with open_channel(address) as channel:
        with pytest.raises(KeyError, match="the block's") as caught:
            await both_fail()
    assert caught.value.__notes__ == ["The requests of the call have failed too: Fault('mine')"]


async def test_an_endless_iterable_is_read_no_further_once_the_answer_is_there(nursery: trio.Nursery) -> None:
    address = await Echo().serve(nursery)
    made = itertools.count()
    async with open_channel(address) as channel:
        for _ in range(5):  # each sends ahead a quarter of the connection's window
            endless = (Item(number=next(made), body=bytes(10_000)) for _ in itertools.repeat(None))
            before = next(made)
            assert (await channel.unary(UP, endless)).number == before + 1
            after = next(made)
            await channel.unary(UP, [Item()])
            assert next(made) == after + 1


async def test_a_generator_of_requests_is_closed_when_the_call_is_over(nursery: trio.Nursery) -> None:
    address = await Echo().serve(nursery)
    closed: list[str] = []

    async def endless(name: str) -> AsyncIterator[Any]:
        try:
            while True:
                yield Item(text=name, body=bytes(10_000))
        finally:
            closed.append(name)

    async def waiting(name: str) -> AsyncIterator[Any]:
        try:
            yield Item(text=name)
            await trio.sleep_forever()
        finally:
            closed.append(name)

    async with open_channel(address) as channel:
        assert (await channel.unary(UP, endless("answered"))).text == "answered"
        assert (await channel.unary(UP, waiting("answered while it waits"))).text == "answered while it waits"
        async with channel.stream(BOTH, waiting("left")) as answers:
            await anext(answers)
        async with trio.open_nursery() as calls:
            async with channel.stream(BOTH, endless("cancelled")) as answers:
                await anext(answers)
                calls.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()
    assert closed == ["answered", "answered while it waits", "left", "cancelled"]


async def test_a_memory_channel_may_be_the_requests(nursery: trio.Nursery) -> None:
    address = await Echo().serve(nursery)
    send, receive = trio.open_memory_channel[Any](0)
    async with open_channel(address) as channel, channel.stream(BOTH, receive) as answers:
        for number in range(3):
            await send.send(Item(number=number))
            assert (await anext(answers)).number == number
        await send.aclose()
        assert [item async for item in answers] == []


async def test_requests_that_are_malformed_end_the_call_after_those_before_them(nursery: trio.Nursery) -> None:
    address = await Echo().serve(nursery)
    client = await RawClient.connect(address)
    path = f"/{ECHO.full_name}/Both"
    answer = await client.call(request_headers(path=path), message(Item(number=1)) + framed(b"\xff\xff\xff"))
    assert answer.data == message(Item(number=1))
    assert answer.headers["grpc-status"] == "13"
    assert "not a valid blockx.test.v1.Item" in answer.headers["grpc-message"]
    await client.stream.aclose()


async def test_a_stock_client_that_still_sends_gets_the_early_answer(nursery: trio.Nursery) -> None:
    address = await Echo().serve(nursery)

    def client() -> list[str]:
        with grpc.insecure_channel(address) as channel:
            up = channel.stream_unary(f"/{ECHO.full_name}/Up", Item.SerializeToString, Item.FromString)
            return [str(up(endless(), timeout=20).text) for _ in range(20)]

    def endless() -> Iterator[Any]:
        while True:
            yield Item(text="one of many", body=bytes(100_000))

    assert await in_thread(client) == ["one of many"] * 20
