"""What surrounds every call of a server: a chain of interceptors, each around the next, the handler innermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import structlog
import trio

from blockx.rpc.floods import TokenBucket
from blockx.rpc.status import Code, Status

if TYPE_CHECKING:
    from blockx.rpc.server import ServerCall

logger = structlog.get_logger(__name__)

#: Runs the rest of the chain and the handler; what comes of the call is always a status.
Proceed: TypeAlias = Callable[[], Awaitable[Status]]
#: `async def interceptor(call, proceed) -> Status`: looks at the call, then returns what `await proceed()` gave, or
#: refuses by raising a RequestError instead. It runs outside the call's cancel scope, so that it sees the status of a
#: call that was cancelled or ran out of time; it should not wait for anything but `proceed`.
Interceptor: TypeAlias = Callable[["ServerCall", Proceed], Awaitable[Status]]


#: Lines about calls that went wrong, at once; then a tenth of that each second. More would let a peer fill the disk.
LINES_LOGGED = 1000


class AccessLog:
    """Logs one line for each call: at debug level when it went well, at info level otherwise.

    Of very many calls that go wrong only some are logged; how many were left out is told by the next line.
    """

    def __init__(self) -> None:
        self._lines = TokenBucket(LINES_LOGGED)
        self._left_out = 0

    async def __call__(self, call: ServerCall, proceed: Proceed) -> Status:
        began = trio.current_time()
        status = await proceed()
        self._log(call, status, began)
        return status

    def _log(self, call: ServerCall, status: Status, began: float) -> None:
        now = trio.current_time()
        if status.code is not Code.OK and not self._lines.take(1, now):
            self._left_out += 1
            return
        more = {} if call.peer_identity is None else {"identity": call.peer_identity}
        if self._left_out and status.code is not Code.OK:
            more["calls_left_out"], self._left_out = str(self._left_out), 0
        log = logger.debug if status.code is Code.OK else logger.info
        took_ms = round((now - began) * 1000, 1)
        log("call", method=call.method, code=status.code.name, ms=took_ms, peer=call.peer, **more)
