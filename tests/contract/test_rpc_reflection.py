"""Reflection, asked by grpcio's own descriptor database and, for the newer protocol, by our channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from blockx.proto import coordinator_pb2
from blockx.proto import reflection_pb2 as pb
from blockx.rpc import RpcServer, Service, open_channel
from blockx.rpc.health import Health
from blockx.rpc.reflection import with_reflection
from tests.contract.grpcio import grpc, in_thread

from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # isort: skip  # as grpcio
    ProtoReflectionDescriptorDatabase,
)

T = TypeVar("T")
COORDINATOR = "blockx.coordinator.v1.CoordinatorService"
INFO = pb.DESCRIPTOR.services_by_name["ServerReflection"].methods_by_name["ServerReflectionInfo"]


async def serve(nursery: trio.Nursery) -> str:
    async def not_called(request: Any, call: Any) -> Any:
        raise AssertionError("reflection calls nobody")

    services = [
        Service(coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"], {"ReserveWorkerSlot": not_called}),
        Service(_EXTENDING.services_by_name["Extending"], {}),
        Health([]).service,
    ]
    address: str = await nursery.start(RpcServer(with_reflection(services)).serve, "127.0.0.1", 0)
    return address


def _extending_file() -> Any:
    """A file with all that reflection may be asked for."""
    base = FileDescriptorProto(name="base.proto", package="test.base", syntax="proto2")
    message = base.message_type.add(name="Base")
    message.extension_range.add(start=100, end=200)
    message.nested_type.add(name="Inner").enum_type.add(name="Kind").value.add(name="KIND_UNSPECIFIED", number=0)
    file = FileDescriptorProto(
        name="extending.proto", package="test.extending", syntax="proto2", dependency=["base.proto"]
    )
    for name, number in (("second", 102), ("first", 101)):
        file.extension.add(
            name=name,
            number=number,
            extendee=".test.base.Base",
            type=FieldDescriptorProto.TYPE_INT32,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    file.service.add(name="Extending")
    unrelated = FileDescriptorProto(
        name="unrelated.proto", package="test.unrelated", syntax="proto2", dependency=["base.proto"]
    )
    unrelated.message_type.add(name="Secret")
    extension = unrelated.extension.add(name="third", number=103, extendee=".test.base.Base")
    extension.type, extension.label = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_OPTIONAL
    pool = DescriptorPool()
    for each in (base, file, unrelated):
        pool.AddSerializedFile(each.SerializeToString())
    return pool.FindFileByName("extending.proto")


_EXTENDING = _extending_file()


async def ask(address: str, question: Callable[[Any], T]) -> T:
    """What a stock client finds out."""

    def client() -> T:
        with grpc.insecure_channel(address) as channel:
            return question(ProtoReflectionDescriptorDatabase(channel))

    return await in_thread(client)


async def test_services_are_listed(nursery: trio.Nursery) -> None:
    assert await ask(await serve(nursery), lambda database: list(database.get_services())) == [
        COORDINATOR,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "test.extending.Extending",
    ]


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (COORDINATOR, "coordinator.proto"),
        (f"{COORDINATOR}.ReserveWorkerSlot", "coordinator.proto"),
        ("blockx.coordinator.v1.ReserveWorkerSlotRequest", "coordinator.proto"),
        ("blockx.coordinator.v1.ReserveWorkerSlotRequest.task_id", "coordinator.proto"),
        ("blockx.worker.v1.TaskState", "worker.proto"),
        ("grpc.health.v1.HealthCheckResponse.ServingStatus", "health.proto"),
        ("grpc.reflection.v1.ServerReflection", "reflection.proto"),
        ("grpc.reflection.v1alpha.ServerReflectionRequest.message_request", "reflection_v1alpha.proto"),
        ("test.base.Base.Inner.Kind", "base.proto"),
        ("test.extending.first", "extending.proto"),
    ],
)
async def test_a_symbol_is_found_in_its_file(symbol: str, file: str, nursery: trio.Nursery) -> None:
    found = await ask(await serve(nursery), lambda database: database.FindFileContainingSymbol(symbol))
    assert found.name == file


@pytest.mark.parametrize("symbol", ["", "blockx", "blockx.coordinator.v1.Nothing", "test.unrelated.Secret"])
async def test_what_is_not_served_is_not_told(symbol: str, nursery: trio.Nursery) -> None:
    def question(database: Any) -> None:
        with pytest.raises(KeyError):
            database.FindFileContainingSymbol(symbol)

    await ask(await serve(nursery), question)


async def test_a_file_comes_with_all_that_it_imports(nursery: trio.Nursery) -> None:
    async with open_channel(await serve(nursery)) as channel:
        requests = [pb.ServerReflectionRequest(host="here", file_by_filename="coordinator.proto")]
        async with channel.stream(INFO, requests) as answers:
            (answer,) = [answer async for answer in answers]
    files = map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
    assert [file.name for file in files] == ["coordinator.proto", "worker.proto"]
    assert (answer.valid_host, answer.original_request) == ("here", requests[0])


async def test_extensions_are_told(nursery: trio.Nursery) -> None:
    address = await serve(nursery)
    numbers = await ask(address, lambda database: list(database.FindAllExtensionNumbers("test.base.Base")))
    assert numbers == [101, 102]
    extension = pb.ExtensionRequest(containing_type="test.base.Base", extension_number=102)
    async with open_channel(address) as channel:
        asked = [pb.ServerReflectionRequest(file_containing_extension=extension)]
        async with channel.stream(INFO, asked) as answers:
            (answer,) = [answer async for answer in answers]
    files = map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
    assert [file.name for file in files] == ["extending.proto", "base.proto"]


async def test_errors_are_answers_and_the_conversation_goes_on(nursery: trio.Nursery) -> None:
    not_found, invalid = 5, 3
    extension = pb.ExtensionRequest(containing_type="test.base.Base", extension_number=199)
    requests = {
        not_found: [
            pb.ServerReflectionRequest(file_by_filename="nothing.proto"),
            pb.ServerReflectionRequest(file_by_filename="unrelated.proto"),
            pb.ServerReflectionRequest(file_containing_extension=extension),
            pb.ServerReflectionRequest(all_extension_numbers_of_type="test.base.Nothing"),
            pb.ServerReflectionRequest(all_extension_numbers_of_type=COORDINATOR),
        ],
        invalid: [pb.ServerReflectionRequest(host="here")],
    }
    asked = [request for same in requests.values() for request in same]
    async with open_channel(await serve(nursery)) as channel, channel.stream(INFO, asked) as answers:
        codes = [answer.error_response.error_code async for answer in answers]
    assert codes == [not_found] * 5 + [invalid]
