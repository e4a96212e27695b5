"""TLS: our server and channel with each other and with grpcio, and peers that get it wrong."""

from __future__ import annotations

import datetime
import math
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from blockx.errors import ConfigError, ConnectionFailed
from blockx.proto import worker_pb2 as pb
from blockx.rpc import ClientTls, Limits, RpcServer, ServerCall, ServerTls, open_channel
from blockx.rpc.tls import ServerHandshakes
from tests.adapters.rpc_peers import REQUEST_SLOT, WATCH, WORKER, RawClient, serve, worker_service
from tests.certificates import Authority, Certificate
from tests.contract.grpcio import call, grpc, in_thread

TIMEOUT_S = 10
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
HELLO = pb.RequestTaskSlotRequest(task_id="hello")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def who(request: Any, call: ServerCall) -> pb.RequestTaskSlotResponse:
    return pb.RequestTaskSlotResponse(slot_id=f"{call.peer_identity} at {call.authority}")


async def numbers(request: Any, call: ServerCall, send: Any) -> None:
    for number in range(500):
        await send(pb.TaskUpdate(timestamp_ms=number, error="x" * 20_000))


def server_tls(identity: Certificate, client_ca: str | None = None) -> ServerTls:
    return ServerTls(cert=identity.cert, key=identity.key, client_ca=client_ca)


async def serve_tls(nursery: trio.Nursery, tls: ServerTls, limits: Limits | None = None) -> tuple[RpcServer, str]:
    server = RpcServer([worker_service(RequestTaskSlot=who, WatchTasks=numbers)], tls=tls, limits=limits)
    address: str = await nursery.start(server.serve, "127.0.0.1", 0)
    return server, address


async def ask(address: str, tls: ClientTls | None) -> str:
    async with open_channel(address, tls=tls) as channel:
        answer = await channel.unary(REQUEST_SLOT, HELLO, timeout=TIMEOUT_S)
        return str(answer.slot_id)


async def refusal(address: str, tls: ClientTls | None) -> str:
    """Why the server cannot be reached; what was to be sent was not."""
    with pytest.raises(ConnectionFailed) as caught:
        await ask(address, tls)
    assert not caught.value.may_have_arrived
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# Our channel, our server


async def test_calls_are_encrypted(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    assert await ask(address, ClientTls(ca=authority.ca)) == f"None at {address}"


async def test_a_stream_crosses_whole(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    async with open_channel(address, tls=ClientTls(ca=authority.ca)) as channel:
        async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            assert [update.timestamp_ms async for update in updates] == list(range(500))


async def test_a_client_with_a_certificate_is_known_by_its_name(nursery: trio.Nursery, authority: Authority) -> None:
    client = authority.issue("client.example", common_name="indexer")
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    tls = ClientTls(ca=authority.ca, cert=client.cert, key=client.key)
    assert await ask(address, tls) == f"indexer at {address}"


async def test_a_certificate_without_a_common_name_has_its_first_other_name(
    nursery: trio.Nursery, authority: Authority
) -> None:
    client = authority.issue("client.example")
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    tls = ClientTls(ca=authority.ca, cert=client.cert, key=client.key)
    assert await ask(address, tls) == f"client.example at {address}"


async def test_the_server_may_have_another_name_than_its_address(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue("worker.example")))
    assert "certificate is not accepted" in await refusal(address, ClientTls(ca=authority.ca))
    assert await ask(address, ClientTls(ca=authority.ca, server_name="worker.example")) == f"None at {address}"


async def test_a_server_of_another_authority_is_not_trusted(
    nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    other = Authority(tmp_path, "other")
    assert "certificate is not accepted" in await refusal(address, ClientTls(ca=other.ca))
    assert "certificate is not accepted" in await refusal(address, ClientTls())


async def test_an_expired_certificate_is_not_accepted(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue(not_after=LONG_AGO)))
    assert "expired" in await refusal(address, ClientTls(ca=authority.ca))


async def test_a_client_without_a_certificate_is_turned_away(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    with capture_logs() as logs:
        await refusal(address, ClientTls(ca=authority.ca))
    assert [log["reason"] for log in logs] == ["the TLS handshake failed: peer did not return a certificate"]


async def test_a_client_of_another_authority_is_turned_away(
    nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").issue("client.example")
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    with capture_logs() as logs:
        await refusal(address, ClientTls(ca=authority.ca, cert=stranger.cert, key=stranger.key))
    (log,) = logs
    assert "the peer's certificate is not accepted" in log["reason"]


async def test_the_end_of_an_encrypted_server_lets_calls_finish(nursery: trio.Nursery, authority: Authority) -> None:
    server, address = await serve_tls(nursery, server_tls(authority.issue()))
    async with open_channel(address, tls=ClientTls(ca=authority.ca)) as channel:
        async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
            await anext(updates)
            nursery.start_soon(server.shutdown, math.inf)
            assert len([update async for update in updates]) == 499


# ---------------------------------------------------------------------------------------------------------------------
# Peers that get it wrong


async def test_a_client_in_plain_text_is_turned_away_by_a_server_with_tls(
    nursery: trio.Nursery, authority: Authority
) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    with capture_logs() as logs:
        await refusal(address, None)
    assert [log["event"] for log in logs] == ["connection ended"]
    assert await ask(address, ClientTls(ca=authority.ca)) == f"None at {address}"


async def test_a_client_with_tls_cannot_reach_a_server_without(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve(nursery)
    assert "TLS handshake failed" in await refusal(address, ClientTls(ca=authority.ca))
    assert await ask(address, None) == "hello"


async def shaken(address: str, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    host, _, port = address.rpartition(":")
    stream = trio.SSLStream(
        await trio.open_tcp_stream(host, int(port)), context, server_hostname=host, https_compatible=True
    )
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def test_tls_1_1_is_refused(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with capture_logs() as logs:
        with pytest.raises(trio.BrokenResourceError):
            await shaken(address, context)
        await trio.testing.wait_all_tasks_blocked()
    assert [log["reason"] for log in logs] == ["the TLS handshake failed: unsupported protocol"]


async def test_tls_1_2_is_served(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    context = ClientTls(ca=authority.ca).context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    stream = await shaken(address, context)
    client = RawClient(stream)  # type: ignore[arg-type]  # it half closes nothing
    await client.greet()
    assert await client.echo("x") == "None at test"
    await stream.aclose()


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
async def test_who_does_not_offer_http2_is_turned_away(
    protocols: tuple[str, ...], nursery: trio.Nursery, authority: Authority
) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    context = ssl.create_default_context(cafile=authority.ca)
    if protocols:
        context.set_alpn_protocols(protocols)
    with capture_logs() as logs:
        async with await shaken(address, context) as stream:
            assert await stream.receive_some() == b""
    (log,) = logs
    assert "ALPN" in log["reason"]


async def test_a_server_that_does_not_agree_on_http2_is_not_called(nursery: trio.Nursery, authority: Authority) -> None:
    identity = authority.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def answer(stream: trio.SocketStream) -> None:
        await trio.SSLStream(stream, context, server_side=True).do_handshake()

    nursery.start_soon(trio.serve_listeners, answer, [listener])
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    assert "ALPN" in await refusal(address, ClientTls(ca=authority.ca))


async def test_requests_over_tls_say_https(nursery: trio.Nursery, authority: Authority) -> None:
    context = server_tls(authority.issue()).context()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    headers: dict[str, str] = {}

    async def answer(transport: trio.SocketStream) -> None:
        stream = trio.SSLStream(transport, context, server_side=True, https_compatible=True)
        http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        http2.initiate_connection()
        await stream.send_all(http2.data_to_send())
        while not headers:
            for event in http2.receive_data(bytes(await stream.receive_some())):
                if isinstance(event, h2.events.RequestReceived):
                    headers.update(event.headers)

    nursery.start_soon(trio.serve_listeners, answer, [listener])
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    with pytest.raises(ConnectionFailed):
        await ask(address, ClientTls(ca=authority.ca))
    assert (headers[":scheme"], headers[":authority"]) == ("https", address)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)), b"\x16\x03\x01\x00\x05hello"])
async def test_noise_costs_its_own_connection_only(noise: bytes, nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    host, _, port = address.rpartition(":")
    async with open_channel(address, tls=ClientTls(ca=authority.ca)) as neighbour:
        await neighbour.wait_ready(TIMEOUT_S)
        with capture_logs() as logs, trio.fail_after(TIMEOUT_S):
            async with await trio.open_tcp_stream(host, int(port)) as broken:
                await broken.send_all(noise)
                with pytest.raises((StopAsyncIteration, trio.BrokenResourceError)):
                    await anext(broken)
        assert [log["event"] for log in logs] == ["connection ended"]
        await neighbour.unary(REQUEST_SLOT, HELLO, timeout=TIMEOUT_S)


async def test_a_handshake_that_stalls_ends_in_time(
    authority: Authority, autojump_clock: trio.testing.MockClock
) -> None:
    handshakes = ServerHandshakes(server_tls(authority.issue()).context(), 7)
    client_end, server_end = trio.testing.memory_stream_pair()
    began = trio.current_time()
    with capture_logs() as logs:
        assert await handshakes.perform(server_end, "memory") is None
    assert trio.current_time() - began == pytest.approx(7)
    assert [log["reason"] for log in logs] == ["no TLS handshake within 7 s"]
    assert await client_end.receive_some() == b""
    assert len(handshakes) == 0


async def test_handshakes_count_as_connections_and_end_with_the_server(
    nursery: trio.Nursery, authority: Authority
) -> None:
    limits = Limits(max_connections=1, handshake_timeout_s=3600)
    server, address = await serve_tls(nursery, server_tls(authority.issue()), limits)
    host, _, port = address.rpartition(":")
    silent = await trio.open_tcp_stream(host, int(port))
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(60):  # a handshake may take far longer
        async with await trio.open_tcp_stream(host, int(port)) as second:
            assert await second.receive_some() == b""
        await server.shutdown(math.inf)
    assert await silent.receive_some() == b""
    await silent.aclose()


# ---------------------------------------------------------------------------------------------------------------------
# grpcio


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def credentials(authority: Authority, client: Certificate | None = None) -> Any:
    key, cert = (read(client.key), read(client.cert)) if client else (None, None)
    return grpc.ssl_channel_credentials(read(authority.ca), key, cert)


def ask_by_grpcio(address: str, credentials: Any) -> str:
    with grpc.secure_channel(address, credentials) as channel:
        return str(call(channel, REQUEST_SLOT)(HELLO, timeout=TIMEOUT_S).slot_id)


async def test_grpcio_reaches_our_server(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    assert await in_thread(lambda: ask_by_grpcio(address, credentials(authority))) == f"None at {address}"


async def test_grpcio_shows_its_certificate(nursery: trio.Nursery, authority: Authority) -> None:
    client = authority.issue("client.example", common_name="indexer")
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    assert await in_thread(lambda: ask_by_grpcio(address, credentials(authority, client))) == f"indexer at {address}"


async def test_grpcio_without_a_certificate_is_turned_away(nursery: trio.Nursery, authority: Authority) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue(), client_ca=authority.ca))
    with pytest.raises(grpc.RpcError) as caught:
        await in_thread(lambda: ask_by_grpcio(address, credentials(authority)))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_grpcio_does_not_trust_a_server_of_another_authority(
    nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    _, address = await serve_tls(nursery, server_tls(authority.issue()))
    other = Authority(tmp_path, "other")
    with pytest.raises(grpc.RpcError) as caught:
        await in_thread(lambda: ask_by_grpcio(address, credentials(other)))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@contextmanager
def stock_server(server_credentials: Any) -> Iterator[str]:
    """The address of a grpcio server that answers with the client's common name."""

    def answer(request: Any, context: Any) -> pb.RequestTaskSlotResponse:
        names = context.auth_context().get("x509_common_name", [b"nobody"])
        return pb.RequestTaskSlotResponse(slot_id=names[0].decode())

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        handler = grpc.unary_unary_rpc_method_handler(
            answer, pb.RequestTaskSlotRequest.FromString, pb.RequestTaskSlotResponse.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(WORKER.full_name, {"RequestTaskSlot": handler})
        server.add_generic_rpc_handlers([service])
        port = server.add_secure_port("127.0.0.1:0", server_credentials)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


async def test_our_channel_reaches_grpcio(authority: Authority) -> None:
    identity = authority.issue()
    with stock_server(grpc.ssl_server_credentials([(read(identity.key), read(identity.cert))])) as address:
        assert await ask(address, ClientTls(ca=authority.ca)) == "nobody"
        assert "certificate is not accepted" in await refusal(address, ClientTls())
        await refusal(address, None)


async def test_our_channel_shows_its_certificate_to_grpcio(authority: Authority) -> None:
    identity, client = authority.issue(), authority.issue("client.example", common_name="indexer")
    pair = (read(identity.key), read(identity.cert))
    with stock_server(grpc.ssl_server_credentials([pair], read(authority.ca), True)) as address:
        tls = ClientTls(ca=authority.ca, cert=client.cert, key=client.key)
        assert await ask(address, tls) == "indexer"
        await refusal(address, ClientTls(ca=authority.ca))


# ---------------------------------------------------------------------------------------------------------------------
# Files


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    identity, other = authority.issue(), authority.issue("other.example")
    missing, empty = str(tmp_path / "missing.pem"), tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(ConfigError, match=r"missing\.pem .* cannot be used: No such file"):
        ServerTls(cert=missing, key=identity.key).context()
    with pytest.raises(ConfigError, match="key values mismatch"):
        ServerTls(cert=identity.cert, key=other.key).context()
    with pytest.raises(ConfigError, match=r"authority .*empty\.pem cannot be used"):
        ServerTls(cert=identity.cert, key=identity.key, client_ca=str(empty)).context()
    with pytest.raises(ConfigError, match=r"authority .*missing\.pem cannot be used"):
        ClientTls(ca=missing).context()


def test_a_key_without_its_certificate_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        ClientTls(key=authority.issue().key)
