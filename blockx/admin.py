"""What the admin services of worker and coordinator share: streams of snapshots, and lists that fit one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import trio

from blockx.errors import InvalidArgument

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 60_000
DEFAULT_INTERVAL_MS = 1_000
MAX_LIST_BYTES = 3 * 1024 * 1024
"""What the rows of one answer may take: a stock client refuses messages above 4 MiB."""

ROW_OVERHEAD_BYTES = 8
"""What a repeated field adds to a row: its tag and its length."""


class Row(Protocol):
    """A message that is one row of a list."""

    def ByteSize(self) -> int: ...  # noqa: N802  # the name that protobuf gave it


RowT = TypeVar("RowT", bound=Row)


async def stream_snapshots(
    interval_ms: int, snapshot: Callable[[], Any], send: Callable[[Any], Awaitable[None]], ended: trio.Event
) -> None:
    """Send a snapshot now and after each interval until `ended`; 0 takes the default interval.

    A reader that is slower than the interval gets fewer. Raises InvalidArgument for an interval out of bounds.
    """
    interval_s = _checked_interval_ms(interval_ms) / 1000
    while True:
        await send(snapshot())
        with trio.move_on_after(interval_s):
            await ended.wait()
            return


def fitting(rows: Sequence[RowT]) -> Sequence[RowT]:
    """The first rows, as many as fit one message."""
    left_bytes = MAX_LIST_BYTES
    for position, row in enumerate(rows):
        left_bytes -= row.ByteSize() + ROW_OVERHEAD_BYTES
        if left_bytes < 0:
            return rows[:position]
    return rows


def _checked_interval_ms(interval_ms: int) -> int:
    if interval_ms == 0:
        return DEFAULT_INTERVAL_MS
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise InvalidArgument(
            f"interval_ms must be from {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}, or 0 for {DEFAULT_INTERVAL_MS}; "
            f"not {interval_ms}"
        )
    return interval_ms
