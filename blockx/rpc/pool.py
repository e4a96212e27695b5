"""Channels by address: opened when first asked for, kept, closed when dropped."""

from __future__ import annotations

from collections.abc import Callable

import trio

from blockx.rpc.channel import Channel


class ChannelPool:
    """The channels run in the nursery that is given; all end when it is cancelled.

    `make` opens the channel to an address; other networks than TCP bring their own.
    """

    def __init__(self, nursery: trio.Nursery, make: Callable[[str], Channel] = Channel) -> None:
        self._nursery = nursery
        self._make = make
        self._channels: dict[str, Channel] = {}

    def get(self, addr: str) -> Channel:
        """The channel to HOST:PORT; one that cannot connect fails its calls, not this."""
        channel = self._channels.get(addr)
        if channel is None:
            channel = self._channels[addr] = self._make(addr)
            self._nursery.start_soon(channel.run)
        return channel

    def drop(self, addr: str) -> None:
        """Close the channel to an address that is no longer wanted; its pending calls fail with ConnectionFailed."""
        channel = self._channels.pop(addr, None)
        if channel is not None:
            channel.close()
