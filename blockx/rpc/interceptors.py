"""What surrounds every call of a server: a chain of interceptors, each around the next, the handler innermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import structlog
import trio

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


async def access_log(call: ServerCall, proceed: Proceed) -> Status:
    """Log one line for each call: at debug level when it went well, at info level otherwise."""
    began = trio.current_time()
    status = await proceed()
    log = logger.debug if status.code is Code.OK else logger.info
    took_ms = round((trio.current_time() - began) * 1000, 1)
    who = {} if call.peer_identity is None else {"identity": call.peer_identity}
    log("call", method=call.method, code=status.code.name, ms=took_ms, peer=call.peer, **who)
    return status
