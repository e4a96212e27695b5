"""Calls that a server turns away unseen: made anew by the channel, a few times, and only where that is safe."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from blockx import errors
from blockx.rpc import Channel
from blockx.rpc.call import FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_REPEATS
from tests.adapters.rpc_peers import framed
from tests.contract.echo import DOWN, UNARY, UP, Item

ANSWER = [(":status", "200"), ("content-type", "application/grpc")]


class RefusingServer:
    """Resets so many calls with `error_code`, and answers the next ones with an empty item.

    With `answers_before_reset` it answers each call so often, then resets it.
    """

    def __init__(
        self,
        refusals: int,
        error_code: ErrorCodes = ErrorCodes.REFUSED_STREAM,
        *,
        answers_before_reset: int = 0,
    ) -> None:
        self.seen = 0
        self._answers_before_reset = answers_before_reset
        self._refusals = refusals
        self._error_code = error_code
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._h2.initiate_connection()
        while True:
            await stream.send_all(self._h2.data_to_send())
            data = await stream.receive_some()
            if not data:
                return
            for event in self._h2.receive_data(bytes(data)):
                self._react(event)

    def _react(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self.seen += 1
            if self._answers_before_reset:
                self._h2.send_headers(event.stream_id, ANSWER)
                for _ in range(self._answers_before_reset):
                    self._h2.send_data(event.stream_id, framed(b""))
                self._h2.reset_stream(event.stream_id, self._error_code)
            elif self.seen <= self._refusals:
                self._h2.reset_stream(event.stream_id, self._error_code)
            else:
                self._h2.send_headers(event.stream_id, ANSWER)
                self._h2.send_data(event.stream_id, framed(b""))
                self._h2.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)


async def channel_to(server: RefusingServer, nursery: trio.Nursery) -> Channel:
    near, far = trio.testing.memory_stream_pair()

    async def connect() -> trio.abc.HalfCloseableStream:
        await trio.lowlevel.checkpoint()
        return near

    nursery.start_soon(server.serve, far)
    channel = Channel("test:1", connect=connect)
    nursery.start_soon(channel.run)
    return channel


async def test_a_call_that_is_refused_is_made_again_after_growing_pauses(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    server = RefusingServer(MAX_REPEATS)
    began = trio.current_time()
    channel = await channel_to(server, nursery)
    assert await channel.unary(UNARY, Item(text="again")) == Item()
    assert server.seen == MAX_REPEATS + 1
    pauses = [min(FIRST_PAUSE_S * 2**repeat, LONGEST_PAUSE_S) for repeat in range(MAX_REPEATS)]
    assert trio.current_time() - began == pytest.approx(sum(pauses))


async def test_a_call_that_is_refused_once_more_fails_and_has_not_arrived(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    server = RefusingServer(MAX_REPEATS + 1)
    channel = await channel_to(server, nursery)
    with pytest.raises(errors.ConnectionFailed, match="takes no more calls") as caught:
        await channel.unary(UNARY, Item(text="again"))
    assert caught.value.may_have_arrived is False
    assert server.seen == MAX_REPEATS + 1


async def test_requests_that_are_a_stream_are_not_sent_again(nursery: trio.Nursery) -> None:
    server = RefusingServer(1)
    channel = await channel_to(server, nursery)
    with pytest.raises(errors.ConnectionFailed) as caught:
        await channel.unary(UP, [Item()])
    assert caught.value.may_have_arrived is False
    assert server.seen == 1


async def test_a_call_that_the_server_may_have_seen_is_not_made_anew(nursery: trio.Nursery) -> None:
    server = RefusingServer(1, ErrorCodes.INTERNAL_ERROR)
    channel = await channel_to(server, nursery)
    with pytest.raises(errors.Internal):
        await channel.unary(UNARY, Item())
    assert server.seen == 1


async def test_a_call_that_was_answered_in_part_is_not_made_anew(nursery: trio.Nursery) -> None:
    server = RefusingServer(0, answers_before_reset=2)
    channel = await channel_to(server, nursery)
    async with channel.stream(DOWN, Item()) as answers:
        assert [await anext(answers), await anext(answers)] == [Item(), Item()]
        with pytest.raises(errors.ConnectionFailed):
            await anext(answers)
    assert server.seen == 1
