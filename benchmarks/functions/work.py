"""What the benchmarks call."""

from __future__ import annotations

from blockx import function


@function
def noop(index: int) -> int:
    return index


@function
async def noop_async(index: int) -> int:
    return index
