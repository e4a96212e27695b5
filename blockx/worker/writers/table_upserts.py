"""TableUpsertsResultHandler: the outputs are rows, upserted into online tables in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import trio
from attrs import Attribute, field, frozen

from blockx.model import nearest
from blockx.plugins import (
    IO,
    Output,
    Outputs,
    PluginError,
    PluginResult,
    Row,
    TaskContext,
    Transaction,
    WriterIO,
)
from blockx.shown import shown

_OUTPUTS_A_PASS = 500
"""Outputs taken between two looks at the rest of the worker's work."""
_COUNTS = ("written", "unchanged", "deleted", "duplicates")


@frozen
class TableUpsertsConfig:
    """Exactly one of `table` and `tables`. `replace` is the scope that the outputs fill: `{"block_id": "0x…"}`."""

    table: str | None = None
    tables: list[str] | None = None
    replace: dict[str, Any] | None = None
    publish: Any = field(default=None)

    @publish.validator
    def _check_publish(self, _: Attribute[Any], publish: Any) -> None:
        if publish is not None:
            raise ValueError("publish is not supported by this version; leave it out")

    def __attrs_post_init__(self) -> None:
        if (self.table is None) is (self.tables is None):
            raise ValueError("name either table (outputs are rows) or tables (outputs are {table: rows})")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError("tables must name at least one table, and none twice")
        if self.replace is not None and not self.replace:
            raise ValueError("replace must name at least one column, else it would empty the table")

    @property
    def names(self) -> list[str]:
        return [self.table] if self.table is not None else self.tables or []


class TableUpsertsResultHandler:
    """With `table`, an output is a row or a list of rows; with `tables`, `{table: rows}`; null writes nothing."""

    config_type: ClassVar[type[TableUpsertsConfig]] = TableUpsertsConfig

    def __init__(self, config: TableUpsertsConfig) -> None:
        self.config = config

    async def check(self, io: IO) -> None:
        """Whether the tables, and the columns of `replace`, exist."""
        for table in self.config.names:
            columns = await io.table_columns(table)
            for column in self.config.replace or ():
                if column not in columns:
                    raise PluginError(f"replace: table {table!r} has no column {column!r}{nearest(column, columns)}")

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        """Write all rows, or none: a row that does not fit is a PluginError naming call, column and value."""
        skipped = 0
        async with io.transaction() as transaction:
            self._open_scopes(transaction)
            for output in outputs:
                skipped += output.value is None
                for table, rows in self._rows(output):
                    transaction.upsert(table, rows, self.config.replace, call=output.index)
                if output.index % _OUTPUTS_A_PASS == 0:
                    await trio.lowlevel.checkpoint()
        result = json.dumps(_report(transaction.counts, self.config.names, skipped)).encode()
        return [PluginResult(plugin_name=type(self).__name__, success=True, result=result)]

    def _open_scopes(self, transaction: Transaction) -> None:
        """Without any row in the outputs, `replace` still removes what is there."""
        if self.config.replace is not None:
            for table in self.config.names:
                transaction.upsert(table, [], self.config.replace)

    def _rows(self, output: Output) -> Iterator[tuple[str, list[Row]]]:
        if output.value is None:
            return
        if self.config.table is not None:
            yield self.config.table, _as_rows(output, output.value)
            return
        if not isinstance(output.value, dict):
            raise PluginError(
                f"the output of call {output.index} must be {{table: rows}} or null, not {_a(output.value)}"
            )
        for table, rows in output.value.items():
            if table not in self.config.names:
                hint = nearest(table, self.config.names)
                raise PluginError(
                    f"the output of call {output.index} names {shown(table)}, which is none of tables{hint}"
                )
            yield table, _as_rows(output, rows)


def _as_rows(output: Output, value: Any) -> list[Row]:
    rows = [value] if isinstance(value, dict) else value
    if not isinstance(rows, (list, tuple)):
        raise PluginError(f"the output of call {output.index} must be a row, a list of rows or null, not {_a(value)}")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise PluginError(f"the output of call {output.index} has {_a(row)} at place {place}, where a row must be")
    return list(rows)


def _a(value: Any) -> str:
    return f"{shown(value)} ({type(value).__name__})"


def _report(counts: Mapping[str, Mapping[str, int]], names: list[str], skipped: int) -> dict[str, Any]:
    """Totals and, per table, rows written, unchanged, deleted and duplicate; outputs skipped because they were null."""
    tables = {name: dict(counts.get(name, dict.fromkeys(_COUNTS, 0))) for name in names}
    totals = {count: sum(table[count] for table in tables.values()) for count in _COUNTS}
    return {**totals, "skipped": skipped, "tables": tables}
