"""A network in memory: servers by address, connections that can be refused, cut and delayed. The gRPC on it is real."""

from __future__ import annotations

from functools import partial

import trio
import trio.testing
from attrs import define, field

from blockx.rpc import Channel, RpcServer, Service
from blockx.rpc.link import Transport


@define(eq=False)
class Host:
    """One server. `is_up` False: connecting is refused. `cut` breaks the connections that exist."""

    server: RpcServer
    is_up: bool = True
    connected: int = 0
    scopes: list[trio.CancelScope] = field(factory=list)

    def cut(self) -> None:
        for scope in self.scopes:
            scope.cancel()
        self.scopes.clear()

    def crash(self) -> None:
        self.is_up = False
        self.cut()


@define(eq=False)
class Network:
    """Channels made by channel() reach the servers added by serve()."""

    _nursery: trio.Nursery
    _hosts: dict[str, Host] = field(factory=dict)

    def serve(self, addr: str, *services: Service) -> Host:
        host = self._hosts[addr] = Host(RpcServer(services))
        return host

    def channel(self, addr: str) -> Channel:
        return Channel(addr, connect=partial(self._connect, addr))

    async def _connect(self, addr: str) -> Transport:
        await trio.lowlevel.checkpoint()
        host = self._hosts.get(addr)
        if host is None or not host.is_up:
            raise OSError("connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._carry, host, theirs)
        host.connected += 1
        return ours

    async def _carry(self, host: Host, stream: Transport) -> None:
        with trio.CancelScope() as scope:
            host.scopes.append(scope)
            await host.server.serve_connection(stream, "client")
