"""What an executor asks for: packed lists such as `["table.get_many", table, keys, columns]`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from blockx.errors import ReadError
from blockx.model import nearest
from blockx.shown import shown
from blockx.wire.values import unpack_value


@frozen
class GetMany:
    table: str
    keys: list[Any]
    columns: list[str] | None


@frozen
class Scan:
    table: str
    where: list[Any]
    order: list[str]
    limit: int | None


@frozen
class GetBundle:
    chain_id: int
    block: str | int


Request = GetMany | Scan | GetBundle


@frozen
class _Operation:
    """The class of a request, and for each of its fields which types it takes and how an error calls them."""

    make: Any
    fields: Mapping[str, tuple[tuple[type, ...], str]]


_TEXT = ((str,), "a text")
_LIST = ((list, tuple), "a list")
_LIST_OR_NONE = ((list, tuple, type(None)), "a list or None")

_OPERATIONS: dict[str, _Operation] = {
    "table.get_many": _Operation(GetMany, {"table": _TEXT, "keys": _LIST, "columns": _LIST_OR_NONE}),
    "table.scan": _Operation(
        Scan,
        {"table": _TEXT, "where": _LIST, "order": _LIST, "limit": ((int, type(None)), "a whole number or None")},
    ),
    "bundle.get": _Operation(
        GetBundle, {"chain_id": ((int,), "a whole number"), "block": ((str, int), "a block id or a height")}
    ),
}


def read_request(packed: bytes) -> Request:
    """The request in `packed`. Raises ReadError, naming operation and argument, if it is none."""
    parts = unpack_value(packed)
    if not isinstance(parts, (list, tuple)) or not parts or not isinstance(parts[0], str):
        raise ReadError("a read must be a list that begins with the name of its operation")
    name, *arguments = parts
    operation = _OPERATIONS.get(name)
    if operation is None:
        known = ", ".join(_OPERATIONS)
        raise ReadError(f"{shown(name)} is no read operation{nearest(name, _OPERATIONS)}; known are {known}")
    return _checked(name, operation, arguments)


def _checked(name: str, operation: _Operation, arguments: Sequence[Any]) -> Request:
    if len(arguments) != len(operation.fields):
        raise ReadError(f"{name} takes {', '.join(operation.fields)}, not {len(arguments)} arguments")
    for (field, (types, expected)), value in zip(operation.fields.items(), arguments, strict=True):
        if not isinstance(value, types) or isinstance(value, bool):
            raise ReadError(f"{name}: {field} must be {expected}, not {shown(value)}")
    request: Request = operation.make(*arguments)
    return request
