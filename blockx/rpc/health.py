"""grpc.health.v1: whether the server, and each of its services, is of use now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import trio

from blockx.errors import NotFound
from blockx.proto import health_pb2 as pb
from blockx.rpc.server import ServerCall, Service

WHOLE_SERVER = ""
"""The name under which the server as a whole is asked for."""

_Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Health:
    """The statuses of the services with these full names, and of the whole server; none serves until it is `set`.

    `service` answers Check, List and Watch. A watch holds nothing back: a slow reader gets the latest status only.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._serving = dict.fromkeys((WHOLE_SERVER, *names), False)
        self._is_ended = False
        self._changed = trio.lowlevel.ParkingLot()
        self.service = Service(
            pb.DESCRIPTOR.services_by_name["Health"],
            {"Check": self._check, "List": self._list, "Watch": self._watch},
        )

    def set(self, name: str, is_serving: bool) -> None:
        """What is answered from now on for a service, or for WHOLE_SERVER. Raises KeyError for another name."""
        if self._serving[name] != is_serving:
            self._serving[name] = is_serving
            self._changed.unpark_all()

    def set_all(self, is_serving: bool) -> None:
        """The same for all services and for WHOLE_SERVER."""
        for name in self._serving:
            self.set(name, is_serving)

    def end(self) -> None:
        """Nothing serves any more, whatever is set later: the watches tell so and end."""
        self._is_ended = True
        self._changed.unpark_all()

    def _status(self, name: str) -> pb.HealthCheckResponse.ServingStatus | None:
        if name not in self._serving:
            return None
        is_serving = self._serving[name] and not self._is_ended
        return pb.HealthCheckResponse.SERVING if is_serving else pb.HealthCheckResponse.NOT_SERVING

    async def _check(self, request: pb.HealthCheckRequest, call: ServerCall) -> pb.HealthCheckResponse:
        status = self._status(request.service)
        if status is None:
            raise NotFound(f"this server has no service {request.service!r}")
        return pb.HealthCheckResponse(status=status)

    async def _list(self, request: pb.HealthListRequest, call: ServerCall) -> pb.HealthListResponse:
        return pb.HealthListResponse(
            statuses={name: pb.HealthCheckResponse(status=self._status(name)) for name in self._serving}
        )

    async def _watch(self, request: pb.HealthCheckRequest, call: ServerCall, send: _Send) -> None:
        told = None
        while True:
            status = self._status(request.service) or pb.HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                await send(pb.HealthCheckResponse(status=status))
                told = status
            elif self._is_ended:
                return
            else:
                await self._changed.park()
