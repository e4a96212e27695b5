"""Requests that break the rules: each ends its own stream with the right status, and its neighbours notice nothing."""

from __future__ import annotations

import gzip
import zlib

import pytest
import trio
import trio.testing

from blockx.proto import worker_pb2 as pb
from blockx.rpc import Limits, RpcServer
from tests.adapters.rpc_peers import (
    Headers,
    RawClient,
    Sleeper,
    framed,
    message,
    request_headers,
    serve,
    worker_service,
)

GOOD = message(pb.RequestTaskSlotRequest(task_id="t"))
EMPTY = framed(b"")
OK, CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = (
    "0",
    "1",
    "2",
    "4",
    "8",
    "12",
    "13",
)


async def status_of(client: RawClient, headers: Headers, data: bytes = GOOD) -> str | None:
    """The gRPC status of an odd request that was sent while a good neighbour's call was open."""
    neighbour = await client.open(request_headers(), GOOD[:3], is_last=False)
    answer = await client.call(headers, data)
    client.h2.send_data(neighbour, GOOD[3:], end_stream=True)
    await client.flush()
    assert (await client.answer(neighbour)).headers["grpc-status"] == OK
    assert await client.echo("still here") == "still here"
    return answer.headers.get("grpc-status")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"path": "/blockx.worker.v1.WorkerService/Nothing"}, UNIMPLEMENTED),
        ({"path": "/Nowhere/SubmitTask"}, UNIMPLEMENTED),
        ({"path": "/a/b/c"}, UNIMPLEMENTED),
        ({"path": "no-slash"}, UNIMPLEMENTED),
        ({"path": None}, INTERNAL),
        ({"scheme": None}, INTERNAL),
        ({"te": None}, INTERNAL),
        ({"te": "gzip"}, INTERNAL),
        ({"grpc_timeout": "5"}, INTERNAL),
        ({"grpc_timeout": "-5S"}, INTERNAL),
        ({"grpc_timeout": "123456789S"}, INTERNAL),
        ({"grpc_timeout": "5x"}, INTERNAL),
        ({"grpc_timeout": "٥S"}, INTERNAL),
        ({"grpc_timeout": "0m"}, DEADLINE_EXCEEDED),
        ({"grpc_timeout": "99999999H"}, OK),
        ({"grpc_encoding": "snappy"}, UNIMPLEMENTED),
        ({"grpc_encoding": "identity"}, OK),
        ({"content_type": "application/grpc+proto"}, OK),
        ({"content_type": "application/grpc;charset=utf-8"}, OK),
        ({"authority": None}, OK),
        ({"connection": "close"}, INTERNAL),
        ({"Upper_Case": "x"}, INTERNAL),
        ({"some_bin": "!"}, INTERNAL),
        ({"some_text": "a\x00b"}, INTERNAL),
    ],
    ids=str,
)
async def test_odd_headers_end_only_their_stream(
    changes: dict[str, str | None], status: str, nursery: trio.Nursery
) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    assert await status_of(client, request_headers(**changes)) == status
    await client.stream.aclose()


@pytest.mark.parametrize(
    ("changes", "http_status"),
    [
        ({"content_type": None}, "415"),
        ({"content_type": "application/json"}, "415"),
        ({"content_type": "application/grpc-web"}, "415"),
        ({"method_": "GET"}, "405"),
        ({"path": None}, "400"),
        ({"large": "x" * 17_000}, "431"),
    ],
    ids=str,
)
async def test_requests_that_are_not_grpc_get_an_http_status(
    changes: dict[str, str | None], http_status: str, nursery: trio.Nursery
) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    answer = await client.call(request_headers(**changes), GOOD)
    assert answer.headers[":status"] == http_status
    assert await client.echo("still here") == "still here"
    await client.stream.aclose()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", INTERNAL),  # END_STREAM on the headers: no message
        (GOOD + GOOD, INTERNAL),
        (GOOD[:-1], INTERNAL),  # cut off
        (GOOD[:4], INTERNAL),
        (framed(b"\xff\xff\xff"), INTERNAL),  # no protobuf
        (framed(b"", flag=2), INTERNAL),
        (framed(gzip.compress(b""), flag=1), INTERNAL),  # marked compressed, but no encoding named
        (framed(b""), OK),  # a message without fields
        (bytes([0]) + (4 * 1024 * 1024 + 1).to_bytes(4, "big"), RESOURCE_EXHAUSTED),
    ],
    ids=["none", "two", "cut", "cut prefix", "garbage", "flag 2", "compressed", "empty", "too large"],
)
async def test_odd_bodies_end_only_their_stream(data: bytes, status: str, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    assert await status_of(client, request_headers(), data) == status
    await client.stream.aclose()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (gzip.compress(GOOD[5:]), OK),
        (zlib.compress(GOOD[5:]), OK),
        (b"not gzip", INTERNAL),
        (gzip.compress(GOOD[5:])[:-4], INTERNAL),
        (gzip.compress(GOOD[5:]) + b"more", INTERNAL),
        (gzip.compress(bytes(5_000_000)), RESOURCE_EXHAUSTED),
    ],
    ids=["gzip", "deflate", "garbage", "cut", "tail", "bomb"],
)
async def test_compressed_messages_are_read_within_bounds(data: bytes, status: str, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    headers = request_headers(grpc_encoding="gzip")
    assert await status_of(client, headers, framed(data, flag=1)) == status
    await client.stream.aclose()


@pytest.mark.parametrize(("size", "status"), [(999, OK), (1000, OK), (1001, RESOURCE_EXHAUSTED)])
async def test_the_limit_on_messages_is_exact(size: int, status: str, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery, Limits(max_message_bytes=1000))
    client = await RawClient.connect(address)
    request = pb.RequestTaskSlotRequest(task_id="x" * (size - 3))
    assert request.ByteSize() == size
    answer = await client.call(request_headers(), message(request))
    assert answer.headers["grpc-status"] == status
    await client.stream.aclose()


async def test_a_request_that_is_cut_off_is_told_so(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    answer = await client.call(request_headers(), GOOD[:-1])
    assert "in the middle of a message" in answer.headers["grpc-message"]
    await client.stream.aclose()


async def test_trailers_of_a_request_end_it(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    stream_id = await client.open(request_headers(), GOOD, is_last=False)
    client.h2.send_headers(stream_id, [("some", "trailer")], end_stream=True)
    await client.flush()
    assert (await client.answer(stream_id)).headers["grpc-status"] == OK
    await client.stream.aclose()


async def test_a_refused_upload_is_told_to_stop_and_may_still_send(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    stream_id = await client.open(request_headers(content_type="text/html"), GOOD, is_last=False)
    client.h2.send_data(stream_id, bytes(10_000))  # crosses the refusal
    await client.flush()
    assert (await client.answer(stream_id)).headers[":status"] == "415"
    assert await client.echo("still here") == "still here"
    assert client.answers[stream_id].reset == 0
    await client.stream.aclose()


async def test_a_reset_cancels_only_its_own_handler(nursery: trio.Nursery) -> None:
    first, second = Sleeper(), Sleeper()
    _, address = await serve(nursery, SubmitTask=first.unary, GetTaskResult=second.unary)
    client = await RawClient.connect(address)
    reset = await client.open(request_headers("SubmitTask"), EMPTY)
    await client.open(request_headers("GetTaskResult"), EMPTY)
    await second.begun.wait()
    client.h2.reset_stream(reset, 8)
    await client.flush()
    await first.cancelled.wait()
    assert await client.echo("still here") == "still here"
    assert not second.cancelled.is_set()
    await client.stream.aclose()


async def test_a_request_that_never_ends_is_ended_by_its_deadline(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    answer = await client.call(request_headers(grpc_timeout="50m"), GOOD[:-1], is_last=False)
    assert answer.headers["grpc-status"] == DEADLINE_EXCEEDED
    await client.stream.aclose()


async def test_a_deadline_cancels_the_handler(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    sleeper = Sleeper()
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(RpcServer([worker_service(SubmitTask=sleeper.unary)]).serve_connection, far, "memory")
    client = RawClient(near)
    await client.greet()
    answer = await client.call(request_headers("SubmitTask", grpc_timeout="500m"), EMPTY)
    assert answer.headers["grpc-status"] == DEADLINE_EXCEEDED
    assert sleeper.cancelled.is_set()
    await client.stream.aclose()


async def test_one_call_too_many_is_refused_and_may_be_tried_again(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, Limits(max_concurrent_streams=2), SubmitTask=sleeper.unary)
    client = await RawClient.connect(address)
    client.h2.remote_settings.max_concurrent_streams = 100  # this client ignores what it was told
    client.h2.remote_settings.acknowledge()
    held = [await client.open(request_headers("SubmitTask"), EMPTY) for _ in range(2)]
    refused = await client.call(request_headers(), GOOD)
    assert refused.reset == 7
    client.h2.reset_stream(held[0], 8)
    await client.flush()
    await sleeper.cancelled.wait()
    assert await client.echo("room again") == "room again"
    await client.stream.aclose()


async def test_a_window_update_for_a_call_that_is_over_is_harmless(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    await client.echo("first")
    await client.stream.send_all(b"\x00\x00\x04\x08\x00" + (1).to_bytes(4, "big") + (100).to_bytes(4, "big"))
    assert await client.echo("second") == "second"
    await client.stream.aclose()


async def test_bytes_that_nobody_reads_are_bounded(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery, Limits(max_message_bytes=1000, max_buffered_bytes=1500))
    client = await RawClient.connect(address)
    half = framed(bytes(1000))[:900]
    first = await client.open(request_headers(), half, is_last=False)
    second = await client.call(request_headers(), half, is_last=False)
    assert second.headers["grpc-status"] == "14"
    client.h2.send_data(first, framed(bytes(1000))[900:], end_stream=True)
    await client.flush()
    assert (await client.answer(first)).headers["grpc-status"] == INTERNAL  # zeros are no protobuf, but all were read
    await client.stream.aclose()
