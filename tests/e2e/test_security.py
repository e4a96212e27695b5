"""Clusters that protect themselves, as operators run them and clients reach them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import blockx
from blockx.cli.main import run
from blockx.proto import coordinator_pb2, worker_pb2
from tests.certificates import Authority
from tests.cli_server import server
from tests.conftest import ROOT
from tests.contract.grpcio import call, grpc

HELLO = str(ROOT / "examples" / "hello")
GET_STATUS = worker_pb2.DESCRIPTOR.services_by_name["WorkerAdminService"].methods_by_name["GetStatus"]
LIST_WORKERS = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorAdminService"].methods_by_name["ListWorkers"]
TIMEOUT_S = 30


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with certificates and tokens."""
    authority = Authority(tmp_path)
    for name, issued in (("server", authority.issue()), ("client", authority.issue(common_name="indexer"))):
        Path(issued.cert).rename(tmp_path / f"{name}-cert.pem")
        Path(issued.key).rename(tmp_path / f"{name}-key.pem")
    Path(authority.ca).rename(tmp_path / "ca.pem")
    (tmp_path / "token").write_text("s3cret-of-clients\n")
    (tmp_path / "admin-token").write_text("s3cret-of-admins\n")
    return tmp_path


def admin_code(address: str, method: Any, request: Any, token: str) -> Any:
    with grpc.insecure_channel(address) as channel:
        try:
            call(channel, method)(request, timeout=TIMEOUT_S, metadata=[("authorization", f"Bearer {token}")])
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_a_worker_with_tls_and_a_token_serves_who_has_both(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--tls-cert", "server-cert.pem", "--tls-key", "server-key.pem", "--token-file", "token"]
    monkeypatch.chdir(files)
    with server(
        "worker", "--functions", HELLO, "--listen", "127.0.0.1:0", "--executors", "1", *flags, cwd=files
    ) as worker:
        hello = ["run", "hello_world", "ct2", "--timeout", "10", "--worker", worker.addresses["worker"]]
        assert run([*hello, "--tls-ca", "ca.pem", "--token-file", "token"]) == 0
        assert capsys.readouterr().out == "hello ct2\n"
        assert run([*hello, "--tls-ca", "ca.pem"]) == 2
        assert "--token-file" in capsys.readouterr().err
        assert run([*hello, "--tls-ca", "ca.pem", "--token-file", "admin-token"]) == 2
        assert run([*hello, "--token-file", "token"]) == 3
        assert run([*hello, "--tls-ca", "system", "--token-file", "token"]) == 3
        assert "certificate" in capsys.readouterr().err
        assert worker.stop() == 0
    assert "s3cret" not in (files / "server.log").read_text()


CLUSTER_WITH_TLS = """
[worker]
tls_cert = "server-cert.pem"
tls_key = "server-key.pem"
tls_ca = "ca.pem"
token_file = "token"
[coordinator]
tls_cert = "server-cert.pem"
tls_key = "server-key.pem"
worker_tls_ca = "ca.pem"
worker_tls_cert = "client-cert.pem"
worker_tls_key = "client-key.pem"
worker_token_file = "token"
"""


async def test_a_coordinator_reaches_workers_that_want_its_certificate_and_token(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "blockx.toml").write_text(CLUSTER_WITH_TLS)
    monkeypatch.chdir(files)
    listen = ["--coordinator-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--executors", "1"]
    task = blockx.TaskInput(
        function_call_config=blockx.PluginConfig(
            "CallListCallConfig", {"function": "hello_world", "callList": [["ct2"]]}
        ),
        result_handler=blockx.PluginConfig("ReturnValueResultHandler"),
    )
    tls = blockx.ClientTls(ca="ca.pem", cert="client-cert.pem", key="client-key.pem")
    with server("dev", HELLO, "--config", "blockx.toml", *listen, cwd=files) as dev:
        async with blockx.Client([dev.addresses["coordinator"]], tls=tls, token="s3cret-of-clients") as client:
            result = await client.run(task, timeout=TIMEOUT_S)
        bare = blockx.ClientTls(ca="ca.pem")
        async with blockx.Client(
            workers=[dev.addresses["worker"]], tls=bare, token="s3cret-of-clients", timeout=1
        ) as client:
            with pytest.raises(blockx.errors.Unavailable):
                await client.run(task, timeout=TIMEOUT_S)
    assert result.return_values() == ["hello ct2"]


def test_a_cluster_for_development_may_have_tokens(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listen = ["--coordinator-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--executors", "1"]
    tokens = ["--token-file", "token", "--admin-token-file", "admin-token"]
    with server("dev", HELLO, *listen, *tokens, cwd=files) as dev:
        hello = ["run", "hello_world", "ct2", "--timeout", "10", "--coordinator", dev.addresses["coordinator"]]
        assert run([*hello, "--token-file", str(files / "token")]) == 0
        assert capsys.readouterr().out == "hello ct2\n"
        assert run(hello) == 2
        for address, method, request in (
            (dev.addresses["worker"], GET_STATUS, worker_pb2.GetStatusRequest()),
            (dev.addresses["coordinator"], LIST_WORKERS, coordinator_pb2.ListWorkersRequest()),
        ):
            assert admin_code(address, method, request, "s3cret-of-admins") is grpc.StatusCode.OK
            assert admin_code(address, method, request, "s3cret-of-clients") is grpc.StatusCode.PERMISSION_DENIED
            assert admin_code(address, method, request, "wrong") is grpc.StatusCode.UNAUTHENTICATED


def test_other_machines_are_served_only_when_it_is_said(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coordinator", "--listen", "0.0.0.0:0"]) == 2
    sentence = capsys.readouterr().err
    assert "--insecure" in sentence
    with server("coordinator", "--listen", "0.0.0.0:0", "--insecure", cwd=files) as coordinator:
        assert coordinator.stop() == 0
    assert "served without TLS and without a token" in (files / "server.log").read_text()
    with server("coordinator", "--listen", "0.0.0.0:0", "--token-file", "token", cwd=files) as coordinator:
        host, _, port = coordinator.addresses["coordinator"].rpartition(":")
        assert host == "0.0.0.0"
        socket.create_connection(("127.0.0.1", int(port)), timeout=TIMEOUT_S).close()
        assert coordinator.stop() == 0
    assert "without" not in (files / "server.log").read_text()


def test_a_secret_that_is_missing_ends_the_start_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["coordinator", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "none")]) == 2
    assert "none cannot be read: No such file" in capsys.readouterr().err
