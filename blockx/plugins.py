"""What call builders and writer plugins implement, and the door to data that they are given.

A plugin is registered under its `type` by an entry point (`blockx.builders`, `blockx.writers`) or is built in. Each
runs once per task, serially. `config_type` is an attrs class; the JSON config is structured into it before the plugin
is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from operator import itemgetter
from typing import Any, ClassVar, Protocol, runtime_checkable

from attrs import define, field, frozen

from blockx.errors import PluginError
from blockx.filters import Row, Where
from blockx.model import BlockContext, PluginResult, TaskInput
from blockx.wire.values import pack_value, unpack_value

__all__ = [
    "IO",
    "MAX_CALLS_PER_TASK",
    "ActivationCheck",
    "Call",
    "CallBuilder",
    "CallList",
    "Output",
    "Outputs",
    "PluginError",
    "PluginResult",
    "Row",
    "TaskContext",
    "Transaction",
    "Where",
    "WriterIO",
    "WriterPlugin",
    "pack_block",
    "unpack_block",
]

MAX_CALLS_PER_TASK = 1_000_000
"""Root calls of one task; a call's index has 20 bits."""


@define
class TaskContext:
    """Shared by builder, IO scope and writer. `stage` is "builder", "executor" or "plugin", as phases advance."""

    task: TaskInput
    deadline: float
    """trio.current_time() at which the task times out."""
    code_epoch: int = 0
    stage: str = "builder"
    debug_mode: bool = False
    scanned_blocks: list[BlockContext] = field(factory=list)
    """The blocks that the builder went through, also those that made no call."""


def pack_block(block: BlockContext | None) -> bytes | None:
    """A block context as packed array, as calls carry it."""
    if block is None:
        return None
    return pack_value([block.chain_id, block.id, block.height, block.parent_id, block.timestamp])


def unpack_block(packed: bytes | None) -> BlockContext | None:
    return None if packed is None else BlockContext(*unpack_value(packed))


@frozen
class Call:
    """One invocation: function name, positional and keyword arguments, and as of which block its reads are."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(factory=dict)
    block: BlockContext | None = None


@define
class CallList:
    """The root calls of a task, in order. Arguments are packed at once, so that memory holds bytes, not objects.

    `runs` holds (start index, function, packed block) for each stretch of calls that agree in function and block.
    """

    args: list[bytes] = field(factory=list, repr=False)
    runs: list[tuple[int, str, bytes | None]] = field(factory=list, repr=False)
    _last: tuple[str, BlockContext | None] | None = field(default=None, init=False, repr=False)

    def add(
        self,
        function: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        block: BlockContext | None = None,
    ) -> None:
        """Append one call.

        Raises UnserializableValue for an argument that cannot cross processes, PluginError for a call too many.
        """
        if len(self.args) >= MAX_CALLS_PER_TASK:
            raise PluginError(f"a task may have {MAX_CALLS_PER_TASK} calls, and this one has more; split it")
        packed = pack_value([list(args), dict(kwargs or {})])
        if self._last != (function, block):
            self.runs.append((len(self.args), function, pack_block(block)))
            self._last = (function, block)
        self.args.append(packed)

    def append(self, call: Call) -> None:
        self.add(call.function, call.args, call.kwargs, call.block)

    def block_of(self, index: int) -> bytes | None:
        """The packed block of the call at this index."""
        return self._run_of(index)[2]

    def function_of(self, index: int) -> str:
        """The function of the call at this index."""
        return self._run_of(index)[1]

    def _run_of(self, index: int) -> tuple[int, str, bytes | None]:
        return self.runs[bisect_right(self.runs, index, key=itemgetter(0)) - 1]

    def __len__(self) -> int:
        return len(self.args)


@frozen
class Output:
    """What one root call returned; `index` is its place in the call list, `block` the block it read as of."""

    index: int
    block: BlockContext | None
    value: Any


@define
class Outputs:
    """The outputs of all root calls in call-list order, decoded as they are looked at."""

    packed: list[bytes] = field(repr=False)
    runs: list[tuple[int, str, bytes | None]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[Output]:
        ends = [*(start for start, _, _ in self.runs[1:]), len(self.packed)]
        for (start, _, block), end in zip(self.runs, ends, strict=False):  # no calls: no run, but one end
            context = unpack_block(block)
            for index in range(start, end):
                yield Output(index, context, unpack_value(self.packed[index]))


class IO(Protocol):
    """Reads, all through the task's scope: cached, admitted, retried, bounded by the task's deadline.

    Every method raises ReadError (with `retryable`) for what the backend could not answer.
    """

    async def get(self, table: str, key: Any, columns: Sequence[str] | None = None) -> Row | None:
        """The row with this key (a scalar, or a tuple in key order), or None."""
        ...

    async def get_many(self, table: str, keys: Sequence[Any], columns: Sequence[str] | None = None) -> list[Row | None]:
        """One answer per key, in their order."""
        ...

    async def table_columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table. Raises ReadError, naming the nearest table, for one that does not exist."""
        ...

    async def scan(
        self, table: str, where: Where = (), order: Sequence[str] = (), limit: int | None = None
    ) -> list[Row]:
        """Rows that match every filter; `order` names columns, `-name` descending."""
        ...

    async def bundle(self, chain_id: int, block: str | int) -> dict[str, Any]:
        """Everything of one block, by id (0x-hex hash) or height."""
        ...

    async def block_ids(self, chain_id: int, heights: range) -> dict[int, list[str]]:
        """The ids of the stored blocks at these heights; a height without one is missing from the answer."""
        ...

    async def bundle_part(self, chain_id: int, block_id: str, source: str) -> tuple[BlockContext, list[Any]]:
        """One block's context, and one list of its bundle.

        `source` is events, txs, traces, error_events or error_traces, or `block`: the header alone, as a list of one.
        """
        ...


class Transaction(Protocol):
    """Collects writes; they reach the database, all or nothing, when its block is left."""

    def upsert(
        self, table: str, rows: Sequence[Row], replace: Mapping[str, Any] | None = None, *, call: int | None = None
    ) -> None:
        """Insert or update full rows by key; of several rows with one key the last wins.

        `replace` also deletes the rows with these column values that are not upserted here; all rows must have them,
        and all upserts of one table must agree in it. `call` is the index of the call that returned these rows, for
        errors to name. An unknown table or a row that does not fit is a PluginError when the block is left, naming
        call, column and value; nothing is written then.
        """
        ...

    def delete(self, table: str, keys: Sequence[Any]) -> None:
        """Delete rows by key, before any row of this transaction is upserted."""
        ...

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """After the block was left, per table: rows `written`, `unchanged`, `deleted` and `duplicates`."""
        ...


class WriterIO(IO, Protocol):
    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """The task's one transaction. Leaving the block is the commit point; a second one is a PluginError."""
        ...


class CallBuilder(Protocol):
    """Turns the declaration into root calls."""

    config_type: ClassVar[type[Any]]

    def __init__(self, config: Any) -> None: ...

    async def build(self, ctx: TaskContext, io: IO) -> CallList: ...


class WriterPlugin(Protocol):
    """Turns the outputs of the root calls into one write."""

    config_type: ClassVar[type[Any]]

    def __init__(self, config: Any) -> None: ...

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]: ...


@runtime_checkable
class ActivationCheck(Protocol):
    """A writer that can tell before anything runs that it will not be able to write."""

    async def check(self, io: IO) -> None:
        """Look whether what the config names exists. PluginError and ReadError fail the task at its activation."""
        ...
