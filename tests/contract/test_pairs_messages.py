"""What crosses between any client and any server, and arrives as it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from blockx import errors
from blockx.rpc.status import Metadata
from tests.contract.conftest import Pair
from tests.contract.echo import BOTH, DOWN, MIB, UNARY, UP, Item, item_of_size
from tests.contract.peers import Call, Side, echo

#: How our errors say RESOURCE_EXHAUSTED: only our server marks a message that is too large.
TOO_LARGE = (errors.InvalidArgument, errors.NoSlot)


def items(count: int, body: bytes = b"") -> list[Any]:
    return [Item(number=number, text=f"täsk {number}", body=body) for number in range(count)]


async def test_a_method_of_each_kind_is_answered(pair: Pair) -> None:
    async def triple(call: Call) -> None:
        item = await call.receive()
        for _ in range(3):
            await call.send(item)

    client = await pair.connected(echo)
    assert await client.unary(UNARY, Item(text="täsk")) == Item(text="täsk")
    assert await client.unary(UP, items(3)) == items(3)[-1]
    async with client.stream(BOTH, items(3)) as answers:
        assert [item async for item in answers] == items(3)
    client = await pair.connected(triple)
    async with client.stream(DOWN, Item(text="täsk")) as answers:
        assert [item async for item in answers] == [Item(text="täsk")] * 3


async def test_a_stream_of_no_requests_and_no_answers_is_one(pair: Pair) -> None:
    client = await pair.connected(echo)
    async with client.stream(BOTH, []) as answers:
        assert [item async for item in answers] == []


async def test_messages_keep_their_order_both_ways(pair: Pair) -> None:
    client = await pair.connected(echo)
    async with client.stream(BOTH, items(1000, bytes(3000))) as answers:
        assert [item async for item in answers] == items(1000, bytes(3000))


async def test_requests_and_answers_may_take_turns(pair: Pair) -> None:
    async def ping_pong(side: Side) -> AsyncIterator[Any]:
        for number in range(20):
            yield Item(number=number)
            await side.wait(f"answer {number}")

    client = await pair.connected(echo)
    async with client.stream(BOTH, ping_pong) as answers:
        async for item in answers:
            pair.signals.tell(f"answer {item.number}")
    assert item.number == 19


@pytest.mark.parametrize("size", [0, 1, 4 * MIB - 1, 4 * MIB])
async def test_messages_up_to_the_limit_arrive_whole(size: int, pair: Pair) -> None:
    client = await pair.connected(echo)
    sent = item_of_size(size)
    assert await client.unary(UNARY, sent) == sent
    async with client.stream(BOTH, [sent, Item(text="next")]) as answers:
        assert [item async for item in answers] == [sent, Item(text="next")]


@pytest.mark.parametrize("is_request", [True, False], ids=["request", "answer"])
async def test_a_message_above_the_limit_fails_its_call_only(is_request: bool, pair: Pair) -> None:
    large = item_of_size(4 * MIB + 1)

    async def answer_large(call: Call) -> None:
        item = await call.receive()
        await call.send(large if item.text == "large" else item)

    client = await pair.connected(answer_large)
    with pytest.raises(TOO_LARGE):
        await client.unary(UNARY, large if is_request else Item(text="large"), timeout=20)
    assert await client.unary(UNARY, Item(text="next")) == Item(text="next")


async def test_metadata_goes_both_ways(pair: Pair) -> None:
    seen: list[tuple[str, str | bytes]] = []

    async def handler(call: Call) -> None:
        seen.extend((name, value) for name, value in call.metadata if name in {"text", "bytes-bin", "twice"})
        call.trailing_metadata.extend([("text", "out"), ("bytes-bin", b"\0\xff")])
        await echo(call)

    client = await pair.connected(handler)
    metadata: Metadata = [("text", "in"), ("bytes-bin", b"\xff\0"), ("twice", "1"), ("twice", "2")]
    async with client.stream(BOTH, items(1), metadata=metadata) as answers:
        assert [item async for item in answers] == items(1)
        assert answers.status is not None
        assert dict(answers.status.metadata) == {"text": "out", "bytes-bin": b"\0\xff"}
    assert seen == metadata


async def test_calls_share_a_connection_and_do_not_wait_for_each_other(pair: Pair) -> None:
    peers: list[str] = []

    async def together(call: Call) -> None:
        peers.append(call.peer)
        if len(peers) == 100:
            call.tell("all here")
        await call.wait("all here")
        await echo(call)

    client = await pair.connected(together)
    answers: set[int] = set()

    async def one(number: int) -> None:
        answers.add((await client.unary(UNARY, Item(number=number))).number)

    async with trio.open_nursery() as calls:
        for number in range(100):
            calls.start_soon(one, number)
    assert answers == set(range(100))
    assert len(set(peers)) == 1


async def test_a_thousand_streams_are_held_at_once(pair: Pair) -> None:
    held, most = 0, 0

    async def hold(call: Call) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await call.send(await call.receive())
        await call.wait("go")
        held -= 1

    client = await pair.connected(hold)
    open_streams = 0

    async def one() -> None:
        nonlocal open_streams
        async with client.stream(DOWN, Item()) as answers:
            await anext(answers)
            open_streams += 1
            if open_streams == 1000:
                pair.signals.tell("go")
            assert [item async for item in answers] == []

    async with trio.open_nursery() as streams:
        for _ in range(1000):
            streams.start_soon(one)
    assert most == 1000


async def test_a_reader_that_does_not_read_stops_the_sender(pair: Pair) -> None:
    made = 0

    async def flood(side: Side) -> AsyncIterator[Any]:
        nonlocal made
        while True:
            yield Item(body=bytes(100_000))
            made += 1

    async def reads_late(call: Call) -> None:
        if call.method == "Unary":
            return await echo(call)
        await call.wait("read")
        for _ in range(made + 10):
            assert await call.receive() is not None
        return await call.send(Item(text="read on"))

    client = await pair.connected(reads_late)
    async with client.stream(BOTH, flood) as answers:
        before = -1
        while made != before or made == 0:  # until round trips of another call move it no further
            before = made
            for _ in range(20):
                await client.unary(UNARY, Item())
        assert made * 100_000 < 40_000_000
        pair.signals.tell("read")
        assert await anext(answers) == Item(text="read on")
