"""Settings that protect servers and clients: which are refused, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from blockx import Client, ClientTls
from blockx.coordinator.app import CoordinatorConfig
from blockx.errors import ConfigError
from blockx.rpc.security import ServerSecurity, WorkerAccess, client_tls
from blockx.worker.app import WorkerConfig
from tests.adapters.rpc_peers import worker_service

BEYOND = ["0.0.0.0:7070", ":7070", "[::]:7070", "10.1.2.3:7070", "worker.example:7070"]


@pytest.mark.parametrize("listen", ["127.0.0.1:7070", "127.8.8.8:0", "localhost:7070", "[::1]:7070"])
def test_this_machine_is_served_without_protection(listen: str) -> None:
    CoordinatorConfig(listen=listen)
    with capture_logs() as logs:
        ServerSecurity().server(listen, [worker_service()], [])
    assert logs == []


@pytest.mark.parametrize("listen", BEYOND)
def test_other_machines_are_not_served_without_protection(listen: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        CoordinatorConfig(listen=listen)
    with pytest.raises(ConfigError, match="--insecure"):
        WorkerConfig(functions=".", listen=listen, advertise="worker.example:7071")


@pytest.mark.parametrize("listen", BEYOND)
def test_other_machines_are_served_when_it_is_said_with_a_warning(listen: str) -> None:
    security = ServerSecurity(insecure=True)
    CoordinatorConfig(listen=listen, security=security)
    with capture_logs() as logs:
        security.server(listen, [worker_service()], [])
    assert [log["log_level"] for log in logs] == ["warning"]


@pytest.mark.parametrize(
    "security", [ServerSecurity(token_file="token"), ServerSecurity(tls_cert="cert.pem", tls_key="key.pem")]
)
def test_a_token_or_tls_lets_other_machines_in(security: ServerSecurity) -> None:
    for listen in BEYOND:
        CoordinatorConfig(listen=listen, security=security)


def test_an_admin_token_alone_protects_too_little() -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        CoordinatorConfig(listen="0.0.0.0:7070", security=ServerSecurity(admin_token_file="token"))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="tls_cert and tls_key belong together"):
        ServerSecurity(tls_cert="cert.pem")
    with pytest.raises(ConfigError, match="tls_cert and tls_key belong together"):
        ServerSecurity(tls_key="key.pem")
    with pytest.raises(ConfigError, match="tls_ca asks clients"):
        ServerSecurity(tls_ca="ca.pem")


def test_files_that_are_missing_are_named_at_the_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for security in (
        ServerSecurity(tls_cert=missing, tls_key=missing),
        ServerSecurity(token_file=missing),
        ServerSecurity(admin_token_file=missing),
    ):
        with pytest.raises(ConfigError, match="missing"):
            security.server("127.0.0.1:0", [worker_service()], [])
    for access in (WorkerAccess(worker_tls_ca=missing), WorkerAccess(worker_token_file=missing)):
        with pytest.raises(ConfigError, match="missing"):
            access.opener()
    with pytest.raises(ConfigError, match="missing"):
        Client(workers=["127.0.0.1:1"], tls=ClientTls(ca=missing))
    with pytest.raises(ConfigError, match="printable ASCII"):
        Client(workers=["127.0.0.1:1"], token="two words")


def test_a_client_that_is_told_nothing_uses_no_tls() -> None:
    assert client_tls("", "", "") is None
    assert client_tls("system", "", "") == ClientTls()
    assert client_tls("ca.pem", "", "") == ClientTls(ca="ca.pem")
    assert client_tls("", "cert.pem", "key.pem") == ClientTls(cert="cert.pem", key="key.pem")
    with pytest.raises(ConfigError, match="belong together"):
        client_tls("ca.pem", "cert.pem", "")
