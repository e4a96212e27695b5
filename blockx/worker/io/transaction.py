"""Collects what a writer wants written, until the commit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from blockx.errors import PluginError
from blockx.plugins import Row
from blockx.store.tables import RowError, TableWrite, WriteCounts
from blockx.worker.io.ports import Tables


@define
class _Pending:
    """The writes for one table. Rows from `starts[i]` on came from call `calls[i]` (None: from no call)."""

    replace: Mapping[str, Any] | None = None
    rows: list[Row] = field(factory=list)
    starts: list[int] = field(factory=list)
    calls: list[int | None] = field(factory=list)
    delete_keys: list[Any] = field(factory=list)

    def origin_of(self, row: int) -> tuple[int | None, list[Row]]:
        """The call that returned this row, and all that came with it."""
        place = bisect_right(self.starts, row) - 1
        end = self.starts[place + 1] if place + 1 < len(self.starts) else len(self.rows)
        return self.calls[place], self.rows[self.starts[place] : end]


@define(eq=False)
class TableTransaction:
    """The writes of one task by table. `upsert` and `delete` collect, `run` writes; see blockx.plugins.Transaction."""

    _pending: dict[str, _Pending] = field(factory=dict, init=False)
    _counts: dict[str, dict[str, int]] = field(factory=dict, init=False)
    _is_open: bool = field(default=True, init=False)

    def upsert(
        self, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None = None, *, call: int | None = None
    ) -> None:
        pending = self._of(table)
        if pending.starts and pending.replace != replace:
            raise PluginError(f"table {table!r} is upserted with two different replace scopes; use one")
        pending.replace = replace
        pending.starts.append(len(pending.rows))
        pending.calls.append(call)
        pending.rows += rows

    def delete(self, table: str, keys: Sequence[Any]) -> None:
        self._of(table).delete_keys += keys

    def _of(self, table: str) -> _Pending:
        if not self._is_open:
            raise PluginError("the transaction is over; write inside of its `async with` block")
        return self._pending.setdefault(table, _Pending())

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        return self._counts

    def seal(self) -> bool:
        """Nothing can be added from here on. Whether there is anything to write."""
        self._is_open = False
        return bool(self._pending)

    def run(self, tables: Tables, before_commit: Callable[[], None]) -> None:
        """Write everything, in the calling thread. Raises PluginError, naming the call, for a row that does not fit."""
        writes = [
            TableWrite(table, pending.rows, pending.delete_keys, pending.replace)
            for table, pending in self._pending.items()
        ]
        try:
            written = tables.write(writes, before_commit)
        except RowError as error:
            raise self._explained(tables, error) from None
        self._counts = {table: self._counted(table, count) for table, count in written.items()}

    def _counted(self, table: str, count: WriteCounts) -> dict[str, int]:
        return {
            "written": count.written,
            "unchanged": count.unchanged,
            "deleted": count.deleted,
            "duplicates": len(self._pending[table].rows) - count.written - count.unchanged,
        }

    def _explained(self, tables: Tables, error: RowError) -> PluginError:
        """The same error in terms of calls: whose output it is, and which row of that output."""
        for table, pending in self._pending.items():
            refused = _refusal(tables, table, pending.rows, pending.replace)
            if refused is None:
                continue
            call, rows = pending.origin_of(refused.row)
            origin = "" if call is None else f"the output of call {call} does not fit: "
            return PluginError(f"{origin}{_refusal(tables, table, rows, pending.replace) or refused}")
        return error


def _refusal(tables: Tables, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None) -> RowError | None:
    try:
        tables.check_rows(table, rows, replace)
    except RowError as error:
        return error
    return None
