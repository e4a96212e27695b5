"""A service with a method of each kind, known to no generated file, and messages of any size."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

MIB = 1024 * 1024
PACKAGE = "blockx.test.v1"
_OVERHEAD_BYTES = 5  # tag and length of a `body` of 2 to 256 MiB


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="echo.proto", package=PACKAGE, syntax="proto3")
    item = file.message_type.add(name="Item")
    types: dict[str, FieldDescriptorProto.Type.ValueType] = {
        "number": FieldDescriptorProto.TYPE_INT32,
        "text": FieldDescriptorProto.TYPE_STRING,
        "body": FieldDescriptorProto.TYPE_BYTES,
    }
    for number, (name, kind) in enumerate(types.items(), 1):
        item.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    for service in ("Echo", "NotServed"):
        made = file.service.add(name=service)
        for name, up, down in (
            ("Unary", False, False),
            ("Down", False, True),
            ("Up", True, False),
            ("Both", True, True),
        ):
            type_name = f".{PACKAGE}.Item"
            made.method.add(
                name=name, input_type=type_name, output_type=type_name, client_streaming=up, server_streaming=down
            )
    return file


_descriptor = DescriptorPool().AddSerializedFile(_file().SerializeToString())

ECHO = _descriptor.services_by_name["Echo"]
NOT_SERVED = _descriptor.services_by_name["NotServed"]
UNARY, DOWN, UP, BOTH = (ECHO.methods_by_name[name] for name in ("Unary", "Down", "Up", "Both"))
Item: Any = GetMessageClass(_descriptor.message_types_by_name["Item"])


def item_of_size(size: int) -> Any:
    """A message that takes exactly so many bytes, 0 or from 2 MiB on; of 1 it is the body that does."""
    item = Item(body=bytes(size if size < MIB else size - _OVERHEAD_BYTES))
    assert size < MIB or item.ByteSize() == size
    return item
