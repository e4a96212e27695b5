"""Metadata, details and texts of statuses: between every pair of ours and grpcio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from blockx import errors
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Code, ServerCall, open_channel
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, WATCH, RawClient, message, request_headers, serve
from tests.contract.grpcio import call, grpc, in_thread
from tests.contract.test_rpc_stock_server import stock_server

TIMEOUT_S = 10
HELLO = pb.RequestTaskSlotRequest(task_id="hello")
GIVEN: tuple[tuple[str, str | bytes], ...] = (
    ("text", "plain, with a comma"),
    ("again", "first"),
    ("again", "second"),
    ("one-bin", b"\0"),
    ("two-bin", b"\xff\xfe"),
    ("three-bin", b"abc"),
    ("empty-bin", b""),
    ("again-bin", b"1"),
    ("again-bin", b"22"),
    ("empty", ""),
)
TEXTS = ["täsk 日本 🎉", "100 % sure", "two\nlines\r\n\ttab", "%41", "a" * 2000, " spaces around ", "\0"]


def ours(metadata: Any) -> list[tuple[str, str | bytes]]:
    """What was given of some metadata, in its order within each name."""
    names = dict(GIVEN)
    return sorted(((name, value) for name, value in metadata if name in names), key=lambda pair: pair[0])


EXPECTED = ours(GIVEN)


async def mirror(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
    pairs = ours(call.metadata)
    call.initial_metadata += pairs
    call.trailing_metadata += pairs
    return pb.RequestTaskSlotResponse()


def stock_mirror(request: Any, context: Any) -> pb.RequestTaskSlotResponse:
    pairs = ours(context.invocation_metadata())
    context.send_initial_metadata(pairs)
    context.set_trailing_metadata(pairs)
    return pb.RequestTaskSlotResponse()


async def seen_by_us(address: str) -> tuple[list[Any], list[Any]]:
    """The initial and the trailing metadata of an answer."""
    async with open_channel(address) as channel:
        async with channel.stream(REQUEST_SLOT, HELLO, TIMEOUT_S, metadata=GIVEN) as answers:
            assert (answers.initial_metadata, answers.status) == ((), None)
            await answers.only()
            assert answers.status is not None
            return ours(answers.initial_metadata), ours(answers.status.metadata)


def seen_by_grpcio(address: str) -> tuple[list[Any], list[Any]]:
    with grpc.insecure_channel(address) as channel:
        _, rpc = call(channel, REQUEST_SLOT).with_call(HELLO, timeout=TIMEOUT_S, metadata=GIVEN)
        return ours(rpc.initial_metadata()), ours(rpc.trailing_metadata())


async def test_metadata_crosses_between_our_own(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery, RequestTaskSlot=mirror)
    assert await seen_by_us(address) == (EXPECTED, EXPECTED)


async def test_metadata_of_grpcio_crosses_our_server(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery, RequestTaskSlot=mirror)
    assert await in_thread(lambda: seen_by_grpcio(address)) == (EXPECTED, EXPECTED)


async def test_our_metadata_crosses_a_server_of_grpcio() -> None:
    with stock_server(RequestTaskSlot=stock_mirror) as address:
        assert await seen_by_us(address) == (EXPECTED, EXPECTED)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("AA==", [b"\0"]),
        ("AA", [b"\0"]),
        ("//4=", [b"\xff\xfe"]),
        ("//4", [b"\xff\xfe"]),
        ("YWJj", [b"abc"]),
        ("", [b""]),
        ("AA==,AQ", [b"\0", b"\1"]),
        ("AA, AQ==", [b"\0", b"\1"]),
    ],
)
async def test_binary_metadata_is_read_however_it_is_padded_and_joined(
    sent: str, received: list[bytes], nursery: trio.Nursery
) -> None:
    seen: list[Any] = []

    async def note(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
        seen.extend(value for name, value in call.metadata if name == "x-bin")
        return pb.RequestTaskSlotResponse()

    _, address = await serve(nursery, RequestTaskSlot=note)
    client = await RawClient.connect(address)
    answer = await client.call([*request_headers(), ("x-bin", sent)], message(HELLO))
    assert (answer.headers["grpc-status"], seen) == ("0", received)
    await client.stream.aclose()


@pytest.mark.parametrize("sent", ["A", "AA=A", "AA==AA==", "A-_A", "ä"])
async def test_binary_metadata_that_is_no_base64_is_refused(sent: str, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    answer = await client.call([*request_headers(), ("x-bin", sent)], message(HELLO))
    assert answer.headers["grpc-status"] == "13"
    assert await client.echo("next") == "next"
    await client.stream.aclose()


@pytest.mark.parametrize(
    "pair",
    [
        ("Upper", "x"),
        ("grpc-timeout", "1S"),
        ("te", "x"),
        ("content-type", "x"),
        ("connection", "close"),
        (":path", "/"),
        ("", "x"),
        ("text", "ä"),
        ("text", "two\nlines"),
        ("text", b"bytes"),
        ("x-bin", "text"),
    ],
)
async def test_metadata_that_cannot_be_sent_is_refused_at_once(pair: Any, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    async with open_channel(address) as channel:
        with pytest.raises(ValueError, match="metadata"):
            await channel.unary(REQUEST_SLOT, HELLO, metadata=[pair])
        assert (await channel.unary(REQUEST_SLOT, HELLO)).slot_id == "hello"


@pytest.mark.parametrize("attribute", ["initial_metadata", "trailing_metadata"])
@pytest.mark.parametrize("answers", [True, False])
async def test_bad_metadata_of_a_handler_fails_its_call_only(
    attribute: str, answers: bool, nursery: trio.Nursery
) -> None:
    async def careless(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        getattr(call, attribute).append(("text", "ä"))
        if not answers:
            raise errors.NotFound("gone")
        return pb.SubmitTaskResponse()

    _, address = await serve(nursery, SubmitTask=careless)
    async with open_channel(address) as channel:
        with capture_logs() as logs, pytest.raises(errors.Internal, match="logged by the server"):
            await channel.unary(SUBMIT, pb.SubmitTaskRequest())
        assert "call failed" in [log["event"] for log in logs]
        assert (await channel.unary(REQUEST_SLOT, HELLO)).slot_id == "hello"


async def test_initial_metadata_comes_with_the_first_message_of_a_stream(nursery: trio.Nursery) -> None:
    may_end = trio.Event()

    async def slow(request: Any, call: ServerCall, send: Callable[[Any], Any]) -> None:
        call.initial_metadata.append(("early", "1"))
        await send(pb.TaskUpdate(task_id="first"))
        call.initial_metadata.append(("too-late", "1"))
        await may_end.wait()

    _, address = await serve(nursery, WatchTasks=slow)
    async with open_channel(address) as channel, channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
        await anext(updates)
        assert (updates.initial_metadata, updates.status) == ((("early", "1"),), None)
        may_end.set()
        assert [update async for update in updates] == []
        assert updates.status is not None
        assert updates.status.code is Code.OK


async def test_initial_metadata_of_a_refusal_arrives_as_such(nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        call.initial_metadata.append(("early", "1"))
        raise errors.NotFound("gone")

    _, address = await serve(nursery, RequestTaskSlot=refuse)

    def client() -> Any:
        with grpc.insecure_channel(address) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, REQUEST_SLOT)(HELLO, timeout=TIMEOUT_S)
            return caught.value.code(), list(caught.value.initial_metadata())

    assert await in_thread(client) == (grpc.StatusCode.NOT_FOUND, [("early", "1")])


# ---------------------------------------------------------------------------------------------------------------------
# Statuses

DETAILS = bytes(range(256))


async def test_details_of_a_status_reach_grpcio(nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        call.status_details = DETAILS
        raise errors.NotFound("gone")

    _, address = await serve(nursery, RequestTaskSlot=refuse)

    def client() -> Any:
        with grpc.insecure_channel(address) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, REQUEST_SLOT)(HELLO, timeout=TIMEOUT_S)
            return dict(caught.value.trailing_metadata())["grpc-status-details-bin"]

    assert await in_thread(client) == DETAILS


async def test_details_of_a_status_of_grpcio_reach_us() -> None:
    def refuse(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", DETAILS),))
        context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    with stock_server(RequestTaskSlot=refuse) as address:
        async with open_channel(address) as channel, channel.stream(REQUEST_SLOT, HELLO) as answers:
            with pytest.raises(errors.NotFound):
                await answers.only()
            assert answers.status is not None
            assert answers.status.details == DETAILS


@pytest.mark.parametrize("text", TEXTS)
async def test_texts_of_refusals_cross_unchanged(text: str, nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise errors.NotFound(text)

    def stock_refuse(request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.NOT_FOUND, text)

    def client(address: str) -> Any:
        with grpc.insecure_channel(address) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, REQUEST_SLOT)(HELLO, timeout=TIMEOUT_S)
            return caught.value.details()

    async def ours(address: str) -> str:
        async with open_channel(address) as channel:
            with pytest.raises(errors.NotFound) as caught:
                await channel.unary(REQUEST_SLOT, HELLO)
            return str(caught.value)

    _, address = await serve(nursery, RequestTaskSlot=refuse)
    assert await in_thread(lambda: client(address)) == text
    assert await ours(address) == text
    with stock_server(RequestTaskSlot=stock_refuse) as stock_address:
        assert await ours(stock_address) == text
