"""Whole connections: broken peers, silent peers, slow readers, loss, and the orderly end of a server."""

from __future__ import annotations

import errno
import math
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from blockx.proto import worker_pb2 as pb
from blockx.rpc import Limits, RpcServer, ServerCall
from tests.adapters.rpc_peers import RawClient, Sleeper, framed, message, request_headers, serve, worker_service

EMPTY = framed(b"")
GOOD = message(pb.RequestTaskSlotRequest(task_id="t"))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


def frame(kind: int, flags: int, stream_id: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + body


BROKEN = {
    "http 1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": bytes(range(256)) * 4,
    "data on an idle stream": PREFACE + SETTINGS + frame(0, 1, 1, b"x"),
    "headers that are no hpack": PREFACE + SETTINGS + frame(1, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
    "a stream id of the server": PREFACE + SETTINGS + frame(1, 5, 2, b"\x82"),
    "settings cut short": PREFACE + frame(4, 0, 0, b"\0\0\0"),
    "a bad setting": PREFACE + frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"),
    "a ping of 3 bytes": PREFACE + SETTINGS + frame(6, 0, 0, b"abc"),
    "a window of zero": PREFACE + SETTINGS + frame(8, 0, 0, bytes(4)),
    "a continuation alone": PREFACE + SETTINGS + frame(9, 4, 1, b"\x82"),
    "an endless frame": PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1",
    "a push": PREFACE + SETTINGS + frame(5, 4, 1, bytes(4) + b"\x82"),
    "priority on itself": PREFACE + SETTINGS + frame(1, 0x25, 1, b"\0\0\0\1\0\x82"),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_bytes_that_are_not_http2_end_their_connection_with_goaway(data: bytes, nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    neighbour = await RawClient.connect(address)
    host, _, port = address.rpartition(":")
    with capture_logs() as logs, trio.fail_after(60):
        async with await trio.open_tcp_stream(host, int(port)) as broken:
            await broken.send_all(data)
            received = b"".join([bytes(part) async for part in broken])
    assert b"\7\0\0\0\0\0" in received, "a GOAWAY frame on stream 0"
    assert [log["event"] for log in logs] == ["connection ended"]
    assert await neighbour.echo("still here") == "still here"
    await neighbour.stream.aclose()


async def test_a_broken_connection_cancels_its_handlers(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary)
    client = await RawClient.connect(address)
    await client.open(request_headers("SubmitTask"), EMPTY)
    await sleeper.begun.wait()
    await client.stream.send_all(bytes(100))
    await sleeper.cancelled.wait()
    await client.until_closed()
    await client.stream.aclose()


@pytest.mark.parametrize("is_abrupt", [False, True])
async def test_losing_the_connection_cancels_its_handlers(is_abrupt: bool, nursery: trio.Nursery) -> None:
    sleeper, other = Sleeper(), Sleeper()
    _, address = await serve(nursery, SubmitTask=sleeper.unary, GetTaskResult=other.unary)
    client, neighbour = await RawClient.connect(address), await RawClient.connect(address)
    await client.open(request_headers("SubmitTask"), EMPTY)
    await neighbour.open(request_headers("GetTaskResult"), EMPTY)
    await sleeper.begun.wait()
    await other.begun.wait()
    if is_abrupt:
        assert isinstance(client.stream, trio.SocketStream)
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends RST
    await client.stream.aclose()
    await sleeper.cancelled.wait()
    assert await neighbour.echo("still here") == "still here"
    assert not other.cancelled.is_set()
    await neighbour.stream.aclose()


async def test_a_handler_may_clean_up_after_its_client_is_gone(nursery: trio.Nursery) -> None:
    begun, cleaned = trio.Event(), trio.Event()

    async def careful(request: Any, call: ServerCall) -> Any:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                cleaned.set()

    _, address = await serve(nursery, SubmitTask=careful)
    client = await RawClient.connect(address)
    await client.open(request_headers("SubmitTask"), EMPTY)
    await begun.wait()
    await client.stream.aclose()
    await cleaned.wait()


async def test_cancelling_the_server_cancels_its_handlers() -> None:
    sleeper = Sleeper()
    async with trio.open_nursery() as nursery:
        _, address = await serve(nursery, SubmitTask=sleeper.unary)
        client = await RawClient.connect(address)
        await client.open(request_headers("SubmitTask"), EMPTY)
        await sleeper.begun.wait()
        nursery.cancel_scope.cancel()
    assert sleeper.cancelled.is_set()
    await client.until_closed()
    await client.stream.aclose()


async def test_the_server_listens_on_the_given_host_only(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    assert address.startswith("127.0.0.1:")
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.2", int(address.rpartition(":")[2]))


async def test_an_address_of_ipv6_is_served(nursery: trio.Nursery) -> None:
    server = RpcServer([worker_service()])
    address: str = await nursery.start(server.serve, "::1", 0)
    assert address.startswith("[::1]:")
    client = RawClient(await trio.open_tcp_stream("::1", int(address.rpartition(":")[2])))
    await client.greet()
    assert await client.echo("six") == "six"
    await client.stream.aclose()


async def test_a_port_that_is_taken_is_an_error(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    port = int(address.rpartition(":")[2])
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
        await RpcServer([worker_service()]).serve("127.0.0.1", port)
    assert caught.value.errno == errno.EADDRINUSE


async def over_memory(
    nursery: trio.Nursery, limits: Limits, **handlers: Callable[..., Awaitable[Any]]
) -> tuple[RawClient, trio.Event]:
    """A client without a network between, so that time may jump; and when its connection has been closed."""
    server = RpcServer([worker_service(**handlers)], limits=limits)
    client_end, server_end = trio.testing.memory_stream_pair()
    closed = trio.Event()

    async def run() -> None:
        await server.serve_connection(server_end, "memory")
        closed.set()

    nursery.start_soon(run)
    return RawClient(client_end), closed


async def test_a_peer_that_never_greets_is_turned_away(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    began = trio.current_time()
    _, closed = await over_memory(nursery, Limits(handshake_timeout_s=7))
    await closed.wait()
    assert trio.current_time() - began == pytest.approx(7)


async def test_a_peer_that_falls_silent_is_given_up_and_its_calls_cancelled(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sleeper = Sleeper()
    client, closed = await over_memory(nursery, Limits(), SubmitTask=sleeper.unary)
    began = trio.current_time()
    await client.greet()
    await client.open(request_headers("SubmitTask"), EMPTY)
    await sleeper.cancelled.wait()
    assert trio.current_time() - began == pytest.approx(30 + 10)
    await closed.wait()


async def test_a_peer_that_answers_pings_is_kept(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    sleeper = Sleeper()
    client, _ = await over_memory(nursery, Limits(), SubmitTask=sleeper.unary)
    await client.greet()
    await client.open(request_headers("SubmitTask"), EMPTY)
    with trio.move_on_after(1000):
        await client.until_closed()
    assert not sleeper.cancelled.is_set()
    assert await client.echo("still here") == "still here"


async def test_the_pings_of_a_client_are_answered(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery)
    client = await RawClient.connect(address)
    for _ in range(3):
        client.h2.ping(b"12345678")
    await client.flush()
    assert await client.echo("still here") == "still here"
    assert client.pings_answered == 3
    await client.stream.aclose()


async def test_a_connection_too_many_is_closed(nursery: trio.Nursery) -> None:
    _, address = await serve(nursery, Limits(max_connections=1))
    first = await RawClient.connect(address)
    assert await first.echo("first") == "first"
    second = await RawClient.connect(address)
    await second.until_closed()
    assert await first.echo("still here") == "still here"
    await first.stream.aclose()
    await second.stream.aclose()


async def test_shutdown_lets_calls_finish_and_takes_no_new_ones(nursery: trio.Nursery) -> None:
    begun, may_end = trio.Event(), trio.Event()

    async def slow(request: Any, call: ServerCall) -> pb.SubmitTaskResponse:
        begun.set()
        await may_end.wait()
        return pb.SubmitTaskResponse()

    server, address = await serve(nursery, SubmitTask=slow)
    client = await RawClient.connect(address)
    running = await client.open(request_headers("SubmitTask"), EMPTY)
    await begun.wait()
    late = client.h2.get_next_available_stream_id()
    nursery.start_soon(server.shutdown, math.inf)
    await trio.testing.wait_all_tasks_blocked()
    # h2 as a client would send nothing after GOAWAY: this request crosses it.
    await client.open(request_headers(), GOOD)
    may_end.set()
    # ... nor read anything, so its answer is looked for in the bytes.
    received = b"".join([bytes(part) async for part in client.stream])
    assert frame(3, 0, late, (7).to_bytes(4, "big")) in received, "the late call is refused unseen"
    assert (running).to_bytes(4, "big") in received
    assert b"\7\0\0\0\0\0" in received, "a GOAWAY frame"
    with pytest.raises(OSError, match="all attempts to connect"):
        await RawClient.connect(address)
    await client.stream.aclose()


async def test_shutdown_cancels_calls_after_the_grace(nursery: trio.Nursery) -> None:
    sleeper = Sleeper()
    server, address = await serve(nursery, SubmitTask=sleeper.unary)
    client = await RawClient.connect(address)
    await client.open(request_headers("SubmitTask"), EMPTY)
    await sleeper.begun.wait()
    nursery.start_soon(client.stream.receive_some)
    await server.shutdown(0)
    assert sleeper.cancelled.is_set()
    await client.stream.aclose()


async def test_a_connection_that_comes_during_shutdown_is_sent_away(nursery: trio.Nursery) -> None:
    server = RpcServer([worker_service()])
    await server.shutdown(0)
    client_end, server_end = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve_connection, server_end, "memory")
    client = RawClient(client_end)
    await client.greet()
    await client.until_closed()
    assert client.go_away == 0
    await client.stream.aclose()


async def test_shutdown_of_an_idle_server_ends_serve() -> None:
    async with trio.open_nursery() as nursery:
        server, address = await serve(nursery)
        client = await RawClient.connect(address)
        assert await client.echo("hello") == "hello"
        nursery.start_soon(client.until_closed)
        await server.shutdown(math.inf)
    assert client.go_away == 0
    await client.stream.aclose()
