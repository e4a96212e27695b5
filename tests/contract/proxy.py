"""Carries connections to a server, and can break them."""

from __future__ import annotations

from functools import partial

import trio


class Proxy:
    """`address` leads to the server until `cut`; then every connection is gone without a word, and none is accepted."""

    address: str

    def __init__(self, target: str) -> None:
        self._target = target
        self._life = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        with self._life:
            await trio.serve_listeners(self._carry, [listener], task_status=task_status)

    def cut(self) -> None:
        self._life.cancel()

    async def _carry(self, near: trio.SocketStream) -> None:
        host, _, port = self._target.rpartition(":")
        far = await trio.open_tcp_stream(host, int(port))
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(partial(_pump, near, far, nursery.cancel_scope))
            nursery.start_soon(partial(_pump, far, near, nursery.cancel_scope))


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    both.cancel()
