"""The addresses that a client is given, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable

from blockx.config import host_and_port
from blockx.errors import ConfigError, InvalidArgument


def checked_addresses(name: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """The addresses as a tuple. Raises InvalidArgument unless each is HOST:PORT; `name` is the parameter's."""
    if isinstance(addresses, str):
        raise InvalidArgument(f"{name} must be a list of addresses: write {name}=[{addresses!r}]")
    return tuple(_checked(name, address) for address in addresses)


def _checked(name: str, address: str) -> str:
    if not isinstance(address, str):
        raise InvalidArgument(f"{name} must be texts such as '127.0.0.1:7070', not {address!r}")
    try:
        host, port = host_and_port(address)
    except ConfigError:
        host, port = "", 0
    if not host or not port:
        raise InvalidArgument(f"{name} has {address!r}, which is no HOST:PORT such as '127.0.0.1:7070'")
    return address
