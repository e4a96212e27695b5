"""What a user function sees of the call that it is in: data to read, a log, and which call it is."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

from blockx.filters import Row, Where
from blockx.model import BlockContext


class CallPort(Protocol):
    """What a context needs of whoever runs the call."""

    async def read(self, request: list[Any]) -> Any:
        """The answer to `[operation, *arguments]`. Raises ReadError."""
        ...

    def log(self, level: str, message: str) -> None: ...


@frozen(eq=False)
class Table:
    """One table, to read from. Every method raises ReadError for what could not be read."""

    name: str
    _port: CallPort

    async def get(self, key: Any, columns: Sequence[str] | None = None) -> Row | None:
        """The row with this key, or None. A key of several columns is a tuple in key order; `columns` None: all."""
        rows = await self.get_many([key], columns)
        return rows[0]

    async def get_many(self, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        """One row or None for each key, in their order."""
        wanted = [list(key) if isinstance(key, tuple) else key for key in keys]
        request = ["table.get_many", self.name, wanted, None if columns is None else list(columns)]
        rows: list[Row | None] = await self._port.read(request)
        return rows

    async def scan(
        self, where: Where | None = None, order: Sequence[str] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Rows that pass every filter `[column, operator, value]`; `order` names columns, `-name` descending.

        None means all rows, in the order of their keys, and no limit.

        Operators: `= != < <= > >= in not_in is_null`.
        """
        rows: list[Row] = await self._port.read(["table.scan", self.name, list(where or ()), list(order or ()), limit])
        return rows


@frozen(eq=False)
class Tables:
    """`ctx.tables[name]`."""

    _port: CallPort

    def __getitem__(self, name: str) -> Table:
        return Table(name, self._port)


@frozen(eq=False)
class Bundles:
    """Whole blocks, to read from."""

    _port: CallPort

    async def get(self, chain_id: int, block: str | int) -> dict[str, Any]:
        """Everything of one block, by id (0x-hex hash) or height. Raises ReadError if it is not stored."""
        bundle: dict[str, Any] = await self._port.read(["bundle.get", chain_id, block])
        return bundle


@frozen(eq=False)
class CallLogger:
    """Lines for the worker's log, marked with task and call.

    Messages take `%` arguments, as in `logging`; keyword arguments are appended: `block seen height=7`.
    """

    _port: CallPort

    def debug(self, message: object, /, *args: object, **fields: object) -> None:
        self._line("debug", message, args, fields)

    def info(self, message: object, /, *args: object, **fields: object) -> None:
        self._line("info", message, args, fields)

    def warning(self, message: object, /, *args: object, **fields: object) -> None:
        self._line("warning", message, args, fields)

    def error(self, message: object, /, *args: object, **fields: object) -> None:
        self._line("error", message, args, fields)

    def critical(self, message: object, /, *args: object, **fields: object) -> None:
        self._line("critical", message, args, fields)

    def exception(self, message: object, /, *args: object, **fields: object) -> None:
        """An error with the traceback of the exception being handled."""
        self._port.log("error", f"{_formatted(message, args, fields)}\n{traceback.format_exc().rstrip()}")

    def _line(self, level: str, message: object, args: tuple[object, ...], fields: dict[str, object]) -> None:
        self._port.log(level, _formatted(message, args, fields))


def _formatted(message: object, args: tuple[object, ...], fields: dict[str, object]) -> str:
    text = str(message) % args if args else str(message)
    return " ".join([text, *(f"{name}={_shown(value)}" for name, value in fields.items())])


def _shown(value: object) -> str:
    """A text of one word as it is, everything else as Python writes it."""
    return value if isinstance(value, str) and value and not re.search(r"\s", value) else repr(value)


@define(eq=False)
class Context:
    """The call that a function is in. `block` is as of which block its reads are (None: the newest).

    `call_index` is the call's place in the task's call list, `attempt` counts from 1.
    """

    block: BlockContext | None
    task_id: str
    call_index: int
    attempt: int
    _port: CallPort = field(repr=False)

    @property
    def tables(self) -> Tables:
        return Tables(self._port)

    @property
    def bundles(self) -> Bundles:
        return Bundles(self._port)

    @property
    def log(self) -> CallLogger:
        return CallLogger(self._port)
