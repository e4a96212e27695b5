"""grpc.reflection.v1 and v1alpha: what the server serves, told to tools that do not have its proto files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import attrs
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from blockx.proto import reflection_pb2, reflection_v1alpha_pb2
from blockx.rpc.server import ServerCall, Service
from blockx.rpc.status import Code

_Send: TypeAlias = Callable[[Any], Awaitable[None]]


def with_reflection(services: Sequence[Service]) -> list[Service]:
    """The services, and the two reflection services that tell of all of them and of themselves."""
    protocols = (reflection_pb2, reflection_v1alpha_pb2)
    described = [service.descriptor for service in services]
    described += [protocol.DESCRIPTOR.services_by_name["ServerReflection"] for protocol in protocols]
    catalog = _Catalog(
        sorted(descriptor.full_name for descriptor in described),
        _with_imports(descriptor.file for descriptor in described),
    )
    return [*services, *(_reflection_service(protocol, catalog) for protocol in protocols)]


def _reflection_service(protocol: ModuleType, catalog: _Catalog) -> Service:
    """The two versions of the protocol differ in nothing but their package."""

    async def info(requests: AsyncIterator[Any], call: ServerCall, send: _Send) -> None:
        async for request in requests:
            answer = _answer(protocol, catalog, request)
            answer.valid_host = request.host
            answer.original_request.CopyFrom(request)
            await send(answer)

    return Service(protocol.DESCRIPTOR.services_by_name["ServerReflection"], {"ServerReflectionInfo": info})


def _answer(protocol: ModuleType, catalog: _Catalog, request: Any) -> Any:
    kind = request.WhichOneof("message_request")
    try:
        match kind:
            case "list_services":
                return _services(protocol, catalog)
            case "file_by_filename":
                return _files(protocol, catalog.files[request.file_by_filename])
            case "file_containing_symbol":
                return _files(protocol, catalog.file_of_symbol(request.file_containing_symbol))
            case "file_containing_extension":
                wanted = request.file_containing_extension
                return _files(protocol, catalog.extensions_of(wanted.containing_type)[wanted.extension_number])
            case "all_extension_numbers_of_type":
                return _extension_numbers(protocol, catalog, request.all_extension_numbers_of_type)
    except KeyError:
        return _error(protocol, Code.NOT_FOUND, f"this server has nothing for {kind}: {getattr(request, kind)}")
    return _error(
        protocol, Code.INVALID_ARGUMENT, "the request asks for nothing, or for something this server does not know"
    )


def _services(protocol: ModuleType, catalog: _Catalog) -> Any:
    answer = protocol.ServerReflectionResponse()
    answer.list_services_response.service.extend(protocol.ServiceResponse(name=name) for name in catalog.services)
    return answer


def _files(protocol: ModuleType, file: FileDescriptor) -> Any:
    """The file and all that it imports, so that the client need not ask again."""
    answer = protocol.ServerReflectionResponse()
    answer.file_descriptor_response.file_descriptor_proto.extend(map(_serialized, _with_imports([file]).values()))
    return answer


def _extension_numbers(protocol: ModuleType, catalog: _Catalog, name: str) -> Any:
    answer = protocol.ServerReflectionResponse()
    answer.all_extension_numbers_response.base_type_name = name
    answer.all_extension_numbers_response.extension_number.extend(sorted(catalog.extensions_of(name)))
    return answer


def _error(protocol: ModuleType, code: Code, message: str) -> Any:
    error = protocol.ErrorResponse(error_code=code, error_message=message)
    return protocol.ServerReflectionResponse(error_response=error)


@attrs.frozen
class _Catalog:
    """The served services and their files; of the descriptor pools nothing is told that is not in those files."""

    services: Sequence[str]
    files: dict[str, FileDescriptor]

    def file_of_symbol(self, name: str) -> FileDescriptor:
        """The file that declares it. Raises KeyError."""
        for pool in self._pools():
            for find in (pool.FindFileContainingSymbol, partial(_file_of_method, pool)):
                try:
                    return self.files[find(name).name]
                except KeyError:
                    continue
        raise KeyError(name)

    def extensions_of(self, name: str) -> dict[int, FileDescriptor]:
        """The files that declare extensions of a message, by number. Raises KeyError when there is no such message."""
        file = self.file_of_symbol(name)
        message = file.pool.FindMessageTypeByName(name)
        found: list[Any] = file.pool.FindAllExtensions(message)  # the stubs do not know that a field has a file
        return {extension.number: extension.file for extension in found if extension.file.name in self.files}

    def _pools(self) -> list[DescriptorPool]:
        return list({id(file.pool): file.pool for file in self.files.values()}.values())


def _file_of_method(pool: DescriptorPool, name: str) -> FileDescriptor:
    """Where protobuf does not know methods as symbols. Raises KeyError."""
    return pool.FindMethodByName(name).containing_service.file


def _with_imports(files: Iterable[FileDescriptor]) -> dict[str, FileDescriptor]:
    """These files and all that they import, directly or not, by name; first the files themselves."""
    found: dict[str, FileDescriptor] = {}
    waiting = list(files)
    for file in waiting:  # grows while it is walked
        if file.name not in found:
            found[file.name] = file
            waiting += file.dependencies
    return found


def _serialized(file: FileDescriptor) -> bytes:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto.SerializeToString()
