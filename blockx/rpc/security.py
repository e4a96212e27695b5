"""Who may connect to whom: settings that name files, and the servers and channels that follow from them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

import structlog
from attrs import field, frozen

from blockx.config import host_and_port
from blockx.errors import ConfigError
from blockx.rpc.channel import Channel
from blockx.rpc.interceptors import AccessLog, Interceptor
from blockx.rpc.reflection import with_reflection
from blockx.rpc.server import RpcServer, Service
from blockx.rpc.tls import ClientTls, ServerTls
from blockx.rpc.tokens import TokenCheck, read_token

log = structlog.get_logger("blockx.rpc")

SYSTEM_CA = "system"
"""In place of a file: the authorities that the system trusts."""


@frozen(kw_only=True)
class ServerSecurity:
    """How a server protects itself. Everything secret is in files; settings hold their paths."""

    tls_cert: str = field(default="", metadata={"env": "BLOCKX_TLS_CERT"})
    """PEM file with the certificate chain of the server; given with tls_key, every connection is encrypted."""
    tls_key: str = field(default="", metadata={"env": "BLOCKX_TLS_KEY"})
    """PEM file with the key of tls_cert."""
    tls_ca: str = field(default="", metadata={"env": "BLOCKX_TLS_CA"})
    """PEM file with an authority: only clients with a certificate that it signed are let in."""
    token_file: str = field(default="", metadata={"env": "BLOCKX_TOKEN_FILE"})
    """File with the token that every call must show."""
    admin_token_file: str = field(default="", metadata={"env": "BLOCKX_ADMIN_TOKEN_FILE"})
    """File with the token for the admin services, which may do everything else too."""
    insecure: bool = field(default=False, metadata={"env": "BLOCKX_INSECURE"})
    """Serve other machines even without TLS and without a token: whoever reaches the port may do anything."""

    def __attrs_post_init__(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("tls_cert and tls_key belong together: set both, or neither")
        if self.tls_ca and not self.tls_cert:
            raise ConfigError("tls_ca asks clients for certificates, which takes TLS: set tls_cert and tls_key too")

    def check(self, listen: str) -> None:
        """Raises ConfigError where the address is open to other machines and nothing protects it."""
        if self._is_exposed(listen) and not self.insecure:
            raise ConfigError(
                f"listen {listen} lets other machines in, with neither TLS nor a token: set tls_cert and tls_key, or "
                "token_file; --insecure serves them all the same"
            )

    def server(self, listen: str, services: Sequence[Service], admin_services: Sequence[Service]) -> RpcServer:
        """A server of all these services, and of reflection. Raises ConfigError for files that cannot be used."""
        if self._is_exposed(listen):
            log.warning("other machines are served without TLS and without a token", listen=listen)
        tls = ServerTls(cert=self.tls_cert, key=self.tls_key, client_ca=self.tls_ca or None) if self.tls_cert else None
        interceptors: list[Interceptor] = [AccessLog()]
        if self.token_file or self.admin_token_file:
            interceptors.append(self._token_check([service.name for service in admin_services]))
        return RpcServer(with_reflection([*services, *admin_services]), tls=tls, interceptors=interceptors)

    def _token_check(self, admin_services: Sequence[str]) -> TokenCheck:
        return TokenCheck(_token(self.token_file), _token(self.admin_token_file), admin_services)

    def _is_exposed(self, listen: str) -> bool:
        return not (_is_loopback(host_and_port(listen)[0]) or self.tls_cert or self.token_file)


@frozen(kw_only=True)
class WorkerAccess:
    """How a coordinator reaches workers that protect themselves."""

    worker_tls_ca: str = field(default="", metadata={"env": "BLOCKX_WORKER_TLS_CA"})
    """PEM file with the authority of the workers' certificates, or `system`; given, workers are reached by TLS."""
    worker_tls_cert: str = field(default="", metadata={"env": "BLOCKX_WORKER_TLS_CERT"})
    """PEM file with the certificate that is shown to workers that ask for one."""
    worker_tls_key: str = field(default="", metadata={"env": "BLOCKX_WORKER_TLS_KEY"})
    """PEM file with the key of worker_tls_cert."""
    worker_token_file: str = field(default="", metadata={"env": "BLOCKX_WORKER_TOKEN_FILE"})
    """File with the token that workers want."""

    def opener(self) -> Callable[[str], Channel]:
        """What makes the channel to an address. Raises ConfigError for files that cannot be used."""
        tls = client_tls(self.worker_tls_ca, self.worker_tls_cert, self.worker_tls_key)
        token = _token(self.worker_token_file)
        return channel_opener(tls, token)


def channel_opener(tls: ClientTls | None, token: str | None) -> Callable[[str], Channel]:
    """What makes the channel to an address. Raises ConfigError at once for what no channel could use."""

    def open_one(address: str) -> Channel:
        return Channel(address, tls=tls, token=token)

    open_one("127.0.0.1:1")
    return open_one


def client_tls(ca: str, cert: str, key: str) -> ClientTls | None:
    """TLS for a client, from what its settings say; None when they say nothing."""
    if not (ca or cert or key):
        return None
    return ClientTls(ca=None if ca in ("", SYSTEM_CA) else ca, cert=cert or None, key=key or None)


def _token(path: str) -> str | None:
    return read_token(path) if path else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
