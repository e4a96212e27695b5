"""TLS for either end of a connection: contexts from PEM files, and handshakes that end in time, well or not."""

from __future__ import annotations

import ssl
from typing import Any

import attrs
import structlog
import trio

from blockx.errors import ConfigError

logger = structlog.get_logger(__name__)

_ALPN = "h2"
# Of TLS 1.2 only what RFC 9113 (appendix A) leaves: forward secrecy and authenticated encryption.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: Attributes of a certificate's subject or alternative names, as ssl gives them.
_Names = tuple[tuple[str, str], ...]


class HandshakeFailed(Exception):
    """The connection did not come to speak HTTP/2 over TLS; the message says why, for the log or the caller."""


@attrs.frozen(kw_only=True)
class ServerTls:
    """A server's certificate; with `client_ca` only clients with a certificate of that authority are served.

    All are paths of PEM files; `cert` holds the whole chain, the server's own certificate first.
    """

    cert: str
    key: str
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ConfigError for one that is missing or wrong."""
        context = _context(ssl.PROTOCOL_TLS_SERVER)
        _load_identity(context, self.cert, self.key)
        if self.client_ca is not None:
            _load_authority(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@attrs.frozen(kw_only=True)
class ClientTls:
    """Whom a client trusts, and its own certificate where the server asks for one.

    `ca`, `cert` and `key` are paths of PEM files; without `ca` the authorities of the system are trusted. The
    certificate must be for `server_name`; by default, for the host that the client connects to.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("a TLS certificate and its key belong together: give both files, or neither")

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ConfigError for one that is missing or wrong."""
        context = _context(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_authority(context, self.ca)
        if self.cert is not None and self.key is not None:
            _load_identity(context, self.cert, self.key)
        return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([_ALPN])
    return context


def _load_identity(context: ssl.SSLContext, cert: str, key: str) -> None:
    def refuse_password() -> str:
        raise ValueError("it is encrypted, and there is nobody to ask for its password")

    try:
        context.load_cert_chain(cert, key, refuse_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the TLS certificate {cert} with the key {key} cannot be used: {_reason(error)}") from error


def _load_authority(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise ConfigError(f"the TLS authority {ca} cannot be used: {_reason(error)}") from error


class ServerHandshakes:
    """The handshakes that go on at a server: each costs its own connection at most, for a bounded time."""

    def __init__(self, context: ssl.SSLContext, timeout_s: float) -> None:
        self._context = context
        self._timeout_s = timeout_s
        self._scopes: set[trio.CancelScope] = set()
        self._is_cancelled = False

    def __len__(self) -> int:
        return len(self._scopes)

    async def perform(self, transport: trio.abc.HalfCloseableStream, peer: str) -> TlsStream | None:
        """Do the server's part. A connection that does not come to speak HTTP/2 over TLS is logged and closed: None."""
        with trio.move_on_after(self._timeout_s) as scope:
            self._scopes.add(scope)
            if self._is_cancelled:  # accepted in the moment of the shutdown
                scope.cancel()
            try:
                return await _handshake(transport, self._context, server_side=True)
            except HandshakeFailed as error:
                reason = str(error)
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            is_late = not self._is_cancelled
            reason = f"no TLS handshake within {self._timeout_s:g} s" if is_late else "the server is shutting down"
        logger.warning("connection ended", peer=peer, reason=reason)
        await trio.aclose_forcefully(transport)
        return None

    def cancel(self) -> None:
        """End those that go on, as the server takes no new connections."""
        self._is_cancelled = True
        for scope in self._scopes:
            scope.cancel()


async def client_handshake(
    transport: trio.abc.HalfCloseableStream, context: ssl.SSLContext, server_name: str
) -> TlsStream:
    """Check that the server is `server_name`. Raises HandshakeFailed; the transport is the caller's to close then."""
    return await _handshake(transport, context, server_hostname=server_name)


async def _handshake(transport: trio.abc.HalfCloseableStream, context: ssl.SSLContext, **side: Any) -> TlsStream:
    # https_compatible: peers of gRPC end connections without TLS's own farewell; HTTP/2 has its own.
    try:
        stream = trio.SSLStream(transport, context, https_compatible=True, **side)
        await stream.do_handshake()
    except (ValueError, TypeError) as error:  # a server name that none can have
        raise HandshakeFailed(f"the TLS handshake cannot begin: {error}") from error
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise HandshakeFailed(f"the TLS handshake failed: {_reason(error.__cause__ or error)}") from error
    if stream.selected_alpn_protocol() != _ALPN:
        raise HandshakeFailed("the peer does not agree to speak HTTP/2 over TLS (ALPN h2)")
    return TlsStream(stream)


class TlsStream(trio.abc.HalfCloseableStream):
    """An encrypted connection that can be half closed, as plain ones can."""

    def __init__(self, stream: trio.SSLStream[trio.abc.HalfCloseableStream]) -> None:
        self._stream = stream

    @property
    def peer_identity(self) -> str | None:
        """The name in the certificate that the peer proved to own; None without one."""
        return _identity(self._stream.getpeercert())

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise trio.BrokenResourceError(_reason(error.__cause__ or error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            raise trio.BrokenResourceError(_reason(error.__cause__ or error)) from error

    async def send_eof(self) -> None:
        """End the connection below TLS. Nothing can be cut off unseen: HTTP/2 tells where each answer ends."""
        await self._stream.transport_stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _identity(certificate: Any) -> str | None:
    """The common name, or else the first alternative name, of a certificate as ssl describes it."""
    if not certificate:
        return None
    subject: tuple[_Names, ...] = certificate.get("subject", ())
    common = [value for part in subject for name, value in part if name == "commonName"]
    others: _Names = certificate.get("subjectAltName", ())
    return next(iter((*common, *(value for _, value in others))), None)


def _reason(error: BaseException) -> str:
    """What OpenSSL or the system says, without its numbers and places in source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or "the peer closed the connection"
