"""Answers the reads of suspended calls through their task's IO scope, and reports them in batches."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field

from blockx.errors import ReadError
from blockx.plugins import unpack_block
from blockx.worker.core import call_events as ce
from blockx.worker.phases import TaskRun


@define
class _Batch:
    """Answers for one executor that leave together."""

    ids: list[ce.CallId] = field(factory=list)
    attempts: list[int] = field(factory=list)
    wait_ids: list[int] = field(factory=list)
    io_us: list[int] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    errors: list[tuple[str, str, bool] | None] = field(factory=list)


@define
class CallReads:
    """`dispatch` takes the dispatcher's events."""

    dispatch: Callable[[ce.DispatcherEvent], object]
    _batches: dict[ce.ExecutorId, _Batch] = field(factory=dict, init=False)

    def start(self, run: TaskRun, command: ce.StartReads) -> None:
        """Begin the reads in their task's nursery, so that none outlives the task."""
        assert run.nursery is not None, "calls run inside their task's nursery"
        for position in range(len(command.ids)):
            run.nursery.start_soon(self._read, run, command, position)

    async def _read(self, run: TaskRun, command: ce.StartReads, position: int) -> None:
        assert run.io is not None
        call = command.ids[position]
        error: tuple[str, str, bool] | None = None
        value: bytes | None = None
        io_us = 0
        try:
            block = unpack_block(run.calls.block_of(ce.index_of(call)))
            value, io_us = await run.io.answer(block, command.requests[position])
        except ReadError as failure:
            error = (type(failure).__name__, str(failure), failure.retryable)
        batch = self._batches.get(command.executor)
        if batch is None:
            batch = self._batches[command.executor] = _Batch()
        batch.ids.append(call)
        batch.attempts.append(command.attempts[position])
        batch.wait_ids.append(command.wait_ids[position])
        batch.io_us.append(io_us)
        batch.values.append(value)
        batch.errors.append(error)
        if len(batch.ids) == 1:
            await self._flush_after_this_pass(command.executor)

    async def _flush_after_this_pass(self, executor: ce.ExecutorId) -> None:
        """Every read that ends in this scheduler pass joins the batch; then it leaves as one event."""
        try:
            await trio.lowlevel.checkpoint()
        finally:  # other tasks' answers may be in it, so it leaves also if this task has just ended
            batch = self._batches.pop(executor)
            self.dispatch(
                ce.ReadsFinished(
                    executor=executor,
                    ids=batch.ids,
                    attempts=batch.attempts,
                    wait_ids=batch.wait_ids,
                    io_us=batch.io_us,
                    values=batch.values,
                    errors=batch.errors,
                )
            )
