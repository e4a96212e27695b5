"""Bearer tokens: read from files, sent with each call, compared in constant time."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from blockx.errors import ConfigError, PermissionDenied, Unauthenticated
from blockx.rpc.interceptors import Proceed
from blockx.rpc.status import Status

if TYPE_CHECKING:
    from blockx.rpc.server import ServerCall

AUTHORIZATION = "authorization"
#: Whoever watches over a server need not know its token.
OPEN_SERVICES = ("grpc.health.v1.Health",)
_TOKEN = re.compile(r"[\x21-\x7e]+")


def read_token(path: str) -> str:
    """The token in a file, without the white space around it. Raises ConfigError for a file without one."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"the token file {path} cannot be read: {reason}") from None
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"the token file {path} must hold one token: printable ASCII without spaces")
    return token


def bearer(token: str) -> tuple[str, str]:
    """The metadata that shows a token. Raises ConfigError for one that is no token; the message does not show it."""
    if not _TOKEN.fullmatch(token):
        raise ConfigError("a token must be printable ASCII without spaces")
    return AUTHORIZATION, f"Bearer {token}"


class TokenCheck:
    """An interceptor that lets only calls with the right token through.

    `token` opens every service but those of `admin_services`, which `admin_token` opens, and all others too. Without
    `token` all others are open to everybody; without `admin_token` nobody gets into the admin services. Health is
    always open.
    """

    def __init__(self, token: str | None, admin_token: str | None, admin_services: Collection[str] = ()) -> None:
        self._token = None if token is None else token.encode()
        self._admin_token = None if admin_token is None else admin_token.encode()
        self._admin_services = frozenset(admin_services)

    async def __call__(self, call: ServerCall, proceed: Proceed) -> Status:
        self._check(call)
        return await proceed()

    def _check(self, call: ServerCall) -> None:
        service = call.method.rpartition(".")[0]
        is_admin_service = service in self._admin_services
        if service in OPEN_SERVICES or (self._token is None and not is_admin_service):
            return
        shown = _shown(call)
        is_admin, is_known = _is(shown, self._admin_token), _is(shown, self._token)
        if not (is_admin or is_known):
            raise Unauthenticated("this server wants a token that it knows: send it as `authorization: Bearer TOKEN`")
        if is_admin_service and not is_admin:
            raise PermissionDenied(f"{service} is for administrators: it wants the server's admin token")


def _shown(call: ServerCall) -> bytes:
    """The token that a call shows; empty, which is no token, where there is none or more than one."""
    values = [value for name, value in call.metadata if name == AUTHORIZATION]
    if len(values) != 1 or not isinstance(values[0], str):
        return b""
    scheme, _, token = values[0].partition(" ")
    return token.strip(" ").encode() if scheme.lower() == "bearer" else b""


def _is(shown: bytes, token: bytes | None) -> bool:
    return token is not None and hmac.compare_digest(shown, token)
