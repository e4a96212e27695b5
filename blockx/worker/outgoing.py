"""Turns the dispatcher's commands into frames for executors, split so that each stays well below a frame's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from blockx.wire import messages as m
from blockx.worker.core import call_events as ce

FRAME_TARGET_BYTES = 1024 * 1024
"""A frame takes no more values once they pass this: a huge frame would hold up the small ones behind it."""


def execute_calls(command: ce.SendCalls, budget_us: int) -> Iterator[m.ExecuteCalls]:
    """One frame or several, in order."""
    for start, end in _stretches([len(args) for args in command.args]):
        yield m.ExecuteCalls(
            command.task_no,
            command.function,
            command.block,
            budget_us,
            cast("list[int]", command.ids[start:end]),
            command.attempts[start:end],
            command.args[start:end],
        )


def resume_calls(command: ce.ResumeCalls) -> Iterator[m.ResumeCalls]:
    """One frame or several, in order."""
    errors = [None if error is None else list(error) for error in command.errors]
    for start, end in _stretches([len(value or b"") for value in command.values]):
        yield m.ResumeCalls(
            cast("list[int]", command.ids[start:end]),
            command.wait_ids[start:end],
            command.io_us[start:end],
            command.values[start:end],
            errors[start:end],
        )


def _stretches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of consecutive stretches of about the target's size; a larger value has one to itself."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > FRAME_TARGET_BYTES:
            yield start, index
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)
