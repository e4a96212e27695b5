"""A table store that counts what it is asked, fails when told to, and can be held up; and scopes for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from blockx.model import BlockContext, PluginConfig, TaskInput
from blockx.plugins import CallList, Outputs, TaskContext
from blockx.store.bundles import BundleStore
from blockx.store.tables import Row, TableDef, TableStore, TableWrite, WriteCounts, load_schema
from blockx.wire.values import pack_value, unpack_value
from blockx.worker.io.admission import Backends
from blockx.worker.io.limits import ScopeLimits
from blockx.worker.io.scope import TaskScope

SCHEMA = """
[balances]
key = ["owner"]
[balances.columns]
owner = "text"
amount = "uint256"

[transfers]
key = ["block_id", "idx"]
[transfers.columns]
block_id = "text"
idx = "integer"
value = { type = "uint256", required = true }
"""


def make_tables(folder: Path) -> TableStore:
    """A database with the tables of SCHEMA."""
    store = TableStore.open(f"sqlite:///{folder / 'tables.db'}")
    store.apply(load_schema(SCHEMA))
    return store


@define(eq=False)
class WatchedTables:
    """A real table store whose requests are counted; `gate` holds every request in its thread.

    Requests raise `errors` first, and writes raise `commit_errors` when their COMMIT has been granted.
    """

    store: TableStore
    errors: list[Exception] = field(factory=list)
    commit_errors: list[Exception] = field(factory=list)
    gate: threading.Event = field(factory=threading.Event)
    batches: list[list[Any]] = field(factory=list)
    scans: int = 0
    writes: int = 0

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def _begin(self) -> None:
        self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)

    def schema(self) -> Mapping[str, TableDef]:
        self._begin()
        return self.store.schema()

    def get_many(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        self.batches.append(list(keys))
        self._begin()
        return self.store.get_many(table, keys, columns)

    def scan(
        self, table: str, where: Sequence[Sequence[Any]] = (), order: Sequence[str] = (), limit: int | None = None
    ) -> list[Row]:
        self.scans += 1
        self._begin()
        return self.store.scan(table, where, order, limit)

    def check_rows(self, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None = None) -> None:
        self.store.check_rows(table, rows, replace)

    def write(self, writes: Sequence[TableWrite], before_commit: Callable[[], None]) -> dict[str, WriteCounts]:
        self.writes += 1
        self._begin()

        def commit() -> None:
            before_commit()
            if self.commit_errors:
                raise self.commit_errors.pop(0)

        return self.store.write(writes, commit)

    def close(self) -> None:
        self.store.close()

    def put(self, table: str, *rows: Row) -> None:
        self.store.write([TableWrite(table, rows)], lambda: None)

    def rows(self, table: str) -> list[Row]:
        return self.store.scan(table)


def make_scope(
    tables: WatchedTables | None = None,
    bundles: BundleStore | None = None,
    *,
    begin_commit: Callable[[], None] = lambda: None,
    limits: ScopeLimits | None = None,
) -> TaskScope:
    """A scope with no randomness in its waits."""
    return TaskScope(Backends(tables, bundles), limits or ScopeLimits(), begin_commit, lambda: 1.0)


def make_context() -> TaskContext:
    return TaskContext(
        TaskInput(function_call_config=PluginConfig("CallListCallConfig")), deadline=trio.current_time() + 60
    )


def calls_of(calls: CallList) -> Iterator[tuple[str, list[Any], dict[str, Any], BlockContext | None]]:
    """Function, arguments and block of each call."""
    for output in Outputs(calls.args, calls.runs):
        function = [name for start, name, _ in calls.runs if start <= output.index][-1]
        args, kwargs = output.value
        yield function, args, kwargs, output.block


def outputs_of(*values: Any) -> Outputs:
    """What calls of one function without a block returned."""
    return Outputs([pack_value(value) for value in values], [(0, "f", None)] if values else [])


def get_many(table: str, keys: list[Any], columns: list[str] | None = None) -> bytes:
    """A call's request for rows."""
    return pack_value(["table.get_many", table, keys, columns])


async def ask(scope: TaskScope, request: bytes) -> Any:
    value, _ = await scope.answer(None, request)
    return unpack_value(value)
