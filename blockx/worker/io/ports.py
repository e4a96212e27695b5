"""What the IO scope asks of its backends. Every method blocks, and is called in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from blockx.model import BlockContext
from blockx.plugins import Row, Where
from blockx.store.tables import TableDef, TableWrite, WriteCounts


class Tables(Protocol):
    """One database of tables. Reads raise ReadError, writes PluginError."""

    def schema(self) -> Mapping[str, TableDef]:
        """The tables by name."""
        ...

    def get_many(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        """One answer per key, in their order; refused as a whole if one key is bad."""
        ...

    def scan(self, table: str, where: Where = (), order: Sequence[str] = (), limit: int | None = None) -> list[Row]: ...

    def check_rows(self, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None = None) -> None:
        """Raise RowError for a row that does not fit, or lies outside of `replace`."""
        ...

    def write(self, writes: Sequence[TableWrite], before_commit: Callable[[], None]) -> dict[str, WriteCounts]:
        """Everything in one transaction. `before_commit` is called right before COMMIT.

        Raises RowError, naming the place in `rows`, for a row that does not fit. If this or `before_commit` raises,
        nothing was written.
        """
        ...

    def close(self) -> None: ...


class Bundles(Protocol):
    """One store of bundles. Raises ReadError: retryable for a missing bundle, not for a broken one."""

    def part(self, chain_id: int, block_id: str, source: str) -> tuple[BlockContext, list[Any]]: ...

    def bundle(self, chain_id: int, block: str | int) -> dict[str, Any]: ...

    def ids_at(self, chain_id: int, heights: range) -> dict[int, list[str]]: ...
