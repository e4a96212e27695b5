"""Interceptors around calls: who may call what, and the line that each call leaves in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from blockx import errors
from blockx.proto import coordinator_pb2, health_pb2
from blockx.proto import worker_pb2 as pb
from blockx.rpc import (
    AccessLog,
    Code,
    Interceptor,
    Proceed,
    RpcServer,
    ServerCall,
    Service,
    Status,
    TokenCheck,
    open_channel,
    read_token,
)
from tests.adapters.rpc_peers import REQUEST_SLOT, SUBMIT, WATCH, worker_service
from tests.contract.grpcio import call, grpc, in_thread

TIMEOUT_S = 10
COORDINATOR = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"]
RESERVE = COORDINATOR.methods_by_name["ReserveWorkerSlot"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
CHECK = HEALTH.methods_by_name["Check"]

HELLO = pb.RequestTaskSlotRequest(task_id="hello")


async def reserve(request: Any, call: ServerCall) -> Any:
    return coordinator_pb2.ReserveWorkerSlotResponse(worker_addr="here")


async def check(request: Any, call: ServerCall) -> Any:
    return health_pb2.HealthCheckResponse(status="SERVING")


async def watch(request: Any, call: ServerCall, send: Any = None) -> Any:
    await send(pb.TaskUpdate(task_id="first"))


async def guarded(nursery: trio.Nursery, *interceptors: Interceptor, **handlers: Any) -> str:
    """A server with an ordinary service, one that is used as the admins', and health."""
    services: Sequence[Service] = (
        worker_service(**({"WatchTasks": watch} | handlers)),
        Service(COORDINATOR, {"ReserveWorkerSlot": reserve}),
        Service(HEALTH, {method.name: check for method in HEALTH.methods}),
    )
    server = RpcServer(services, interceptors=interceptors)
    address: str = await nursery.start(server.serve, "127.0.0.1", 0)
    return address


def tokens(token: str | None, admin_token: str | None) -> TokenCheck:
    return TokenCheck(token, admin_token, [COORDINATOR.full_name])


async def outcome(address: str, token: str | None, method: Any, request: Any) -> str:
    """`ok`, or the name of the error."""
    async with open_channel(address, token=token) as channel:
        try:
            await channel.unary(method, request, timeout=TIMEOUT_S)
        except errors.RequestError as error:
            return type(error).__name__
    return "ok"


async def outcomes(address: str, token: str | None) -> tuple[str, str, str]:
    """Of the ordinary service, of the admins', and of health."""
    return (
        await outcome(address, token, REQUEST_SLOT, HELLO),
        await outcome(address, token, RESERVE, coordinator_pb2.ReserveWorkerSlotRequest()),
        await outcome(address, token, CHECK, health_pb2.HealthCheckRequest()),
    )


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("secret", ("ok", "PermissionDenied", "ok")),
        ("admin", ("ok", "ok", "ok")),
        ("wrong", ("Unauthenticated", "Unauthenticated", "ok")),
        ("secre", ("Unauthenticated", "Unauthenticated", "ok")),
        ("secrets", ("Unauthenticated", "Unauthenticated", "ok")),
        (None, ("Unauthenticated", "Unauthenticated", "ok")),
    ],
)
async def test_a_token_opens_what_it_is_for(
    shown: str | None, expected: tuple[str, str, str], nursery: trio.Nursery
) -> None:
    address = await guarded(nursery, tokens("secret", "admin"))
    assert await outcomes(address, shown) == expected


async def test_without_an_admin_token_nobody_is_an_admin(nursery: trio.Nursery) -> None:
    address = await guarded(nursery, tokens("secret", None))
    assert await outcomes(address, "secret") == ("ok", "PermissionDenied", "ok")
    assert await outcomes(address, None) == ("Unauthenticated", "Unauthenticated", "ok")


async def test_an_admin_token_alone_guards_the_admin_services_alone(nursery: trio.Nursery) -> None:
    address = await guarded(nursery, tokens(None, "admin"))
    assert await outcomes(address, "admin") == ("ok", "ok", "ok")
    assert await outcomes(address, None) == ("ok", "Unauthenticated", "ok")


async def test_streams_are_guarded_too(nursery: trio.Nursery) -> None:
    address = await guarded(nursery, tokens("secret", None))
    for token, expected in (("secret", ["first"]), ("wrong", None)):
        async with open_channel(address, token=token) as channel:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                if expected is not None:
                    assert [update.task_id async for update in updates] == expected
                    continue
                with pytest.raises(errors.Unauthenticated):
                    await anext(updates)


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ([("authorization", "Bearer secret")], grpc.StatusCode.OK),
        ([("authorization", "bearer  secret")], grpc.StatusCode.OK),
        ([("authorization", "Bearer")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "secret")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Basic secret")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer secret secret")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer wrong"), ("authorization", "Bearer secret")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer secret"), ("authorization", "Bearer wrong")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization-bin", b"Bearer secret")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer admin")], grpc.StatusCode.OK),
        ([], grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_grpcio_shows_its_token_as_metadata(metadata: Any, code: Any, nursery: trio.Nursery) -> None:
    address = await guarded(nursery, tokens("secret", "admin"))

    def client() -> Any:
        with grpc.insecure_channel(address) as channel:
            try:
                call(channel, REQUEST_SLOT)(HELLO, timeout=TIMEOUT_S, metadata=metadata)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    assert await in_thread(client) is code


async def test_the_token_is_in_no_log(nursery: trio.Nursery) -> None:
    address = await guarded(nursery, AccessLog(), tokens("secret", None))
    with capture_logs() as logs:
        assert await outcome(address, "other-secret", REQUEST_SLOT, HELLO) == "Unauthenticated"
    assert "secret" not in repr(logs)


def test_a_token_file_holds_one_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret-täken\n")
    with pytest.raises(errors.ConfigError, match=r"token must hold one token") as caught:
        read_token(str(path))
    assert "s3cret" not in str(caught.value)
    path.write_text("  s3cret\n")
    assert read_token(str(path)) == "s3cret"
    for content in (b"", b" \n", b"two words\n", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(errors.ConfigError, match="the token file"):
            read_token(str(path))
    with pytest.raises(errors.ConfigError, match="No such file"):
        read_token(str(tmp_path / "missing"))


async def test_what_cannot_be_a_token_is_refused_without_showing_it(nursery: trio.Nursery) -> None:
    with pytest.raises(errors.ConfigError, match="printable ASCII") as caught:
        async with open_channel("127.0.0.1:1", token="my secret\n"):
            pass
    assert "secret" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# The log


async def test_each_call_leaves_one_line(nursery: trio.Nursery) -> None:
    async def refuse(request: Any, call: ServerCall) -> Any:
        raise errors.InvalidSlot("stale")

    address = await guarded(nursery, AccessLog(), SubmitTask=refuse)
    with capture_logs() as logs:
        async with open_channel(address) as channel:
            await channel.unary(REQUEST_SLOT, HELLO)
            with pytest.raises(errors.InvalidSlot):
                await channel.unary(SUBMIT, pb.SubmitTaskRequest())
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                assert [update.task_id async for update in updates] == ["first"]
    lines = [(log["log_level"], log["method"].rpartition(".")[2], log["code"]) for log in logs]
    assert lines == [
        ("debug", "RequestTaskSlot", "OK"),
        ("info", "SubmitTask", "FAILED_PRECONDITION"),
        ("debug", "WatchTasks", "OK"),
    ]
    assert all(log["event"] == "call" and log["ms"] >= 0 and log["peer"].startswith("127.0.0.1:") for log in logs)


async def test_a_call_that_its_client_leaves_is_logged_as_cancelled(nursery: trio.Nursery) -> None:
    logged = trio.Event()

    async def endless(request: Any, call: ServerCall, send: Any) -> None:
        await send(pb.TaskUpdate(task_id="first"))
        await trio.sleep_forever()

    async def tell(call: ServerCall, proceed: Proceed) -> Status:
        try:
            return await proceed()
        finally:
            logged.set()

    address = await guarded(nursery, tell, AccessLog(), WatchTasks=endless)
    with capture_logs() as logs:
        async with open_channel(address) as channel:
            async with channel.stream(WATCH, pb.WatchTasksRequest()) as updates:
                await anext(updates)
            await logged.wait()
    assert [log["code"] for log in logs] == ["CANCELLED"]


# ---------------------------------------------------------------------------------------------------------------------
# The chain


async def test_interceptors_surround_each_other_in_their_order(nursery: trio.Nursery) -> None:
    steps: list[str] = []

    def named(name: str) -> Interceptor:
        async def interceptor(call: ServerCall, proceed: Proceed) -> Status:
            steps.append(f"{name} begins")
            status = await proceed()
            steps.append(f"{name} sees {status.code.name}")
            return status

        return interceptor

    async def refuse(call: ServerCall, proceed: Proceed) -> Status:
        raise errors.PermissionDenied("not today")

    address = await guarded(nursery, named("outer"), named("inner"), refuse)
    assert await outcome(address, None, REQUEST_SLOT, HELLO) == "PermissionDenied"
    assert steps == ["outer begins", "inner begins", "inner sees PERMISSION_DENIED", "outer sees PERMISSION_DENIED"]


async def test_an_interceptor_may_change_the_status_and_add_metadata(nursery: trio.Nursery) -> None:
    async def interceptor(call: ServerCall, proceed: Proceed) -> Status:
        call.initial_metadata.append(("early", "1"))
        call.trailing_metadata.append(("late", "2"))
        await proceed()
        return Status(Code.NOT_FOUND, "hidden")

    address = await guarded(nursery, interceptor)
    async with open_channel(address) as channel, channel.stream(REQUEST_SLOT, HELLO) as answers:
        with pytest.raises(errors.NotFound, match="hidden"):
            await answers.only()
        assert answers.initial_metadata == (("early", "1"),)
        assert answers.status is not None
        assert answers.status.metadata == (("late", "2"),)


async def test_an_interceptor_that_breaks_is_an_unforeseen_error(nursery: trio.Nursery) -> None:
    async def broken(call: ServerCall, proceed: Proceed) -> Status:
        raise RuntimeError("private")

    address = await guarded(nursery, broken)
    with capture_logs() as logs:
        async with open_channel(address) as channel:
            with pytest.raises(errors.Internal, match="logged by the server") as caught:
                await channel.unary(REQUEST_SLOT, HELLO)
    assert "private" not in str(caught.value)
    assert [log["event"] for log in logs] == ["call failed"]
