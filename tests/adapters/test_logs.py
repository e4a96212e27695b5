"""Log lines carry the task, never a secret, never a whole payload."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog
import trio
from structlog.contextvars import bound_contextvars

from blockx.telemetry.logs import MAX_VALUE_CHARS, setup_logs


@pytest.fixture
def stream() -> io.StringIO:
    out = io.StringIO()
    setup_logs("json", stream=out)
    return out


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_and_level(stream: io.StringIO) -> None:
    structlog.get_logger().warning("slot_lost", lease_ms=5)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "slot_lost", "level": "warning", "lease_ms": 5}


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    structlog.get_logger().debug("unseen")
    assert lines(stream) == []


async def test_lines_of_a_task_carry_its_id_also_from_tasks_started_inside(stream: io.StringIO) -> None:
    async def child() -> None:
        await trio.lowlevel.checkpoint()
        structlog.get_logger().info("inner")

    async with trio.open_nursery() as nursery:
        with bound_contextvars(task_id="t-1"):
            structlog.get_logger().info("outer")
            nursery.start_soon(child)
        structlog.get_logger().info("after")
    assert {line["event"]: line.get("task_id") for line in lines(stream)} == {
        "outer": "t-1",
        "inner": "t-1",
        "after": None,
    }


def test_secrets_are_masked_by_key_and_in_urls(stream: io.StringIO) -> None:
    structlog.get_logger().info("opened", bearer_token="abc", database="postgresql://me:hunter2@db/x")
    text = stream.getvalue()
    assert "abc" not in text
    assert "hunter2" not in text
    assert lines(stream)[0]["database"] == "postgresql://me:***@db/x"


def test_long_values_are_cut_and_say_how_long_they_were(stream: io.StringIO) -> None:
    structlog.get_logger().info("called", arguments="x" * 1_000, rows=list(range(500)), count=3)
    (line,) = lines(stream)
    assert line["arguments"] == "x" * MAX_VALUE_CHARS + "… (1000 characters)"
    assert line["rows"].startswith("[0, 1, 2")
    assert line["count"] == 3


def test_an_exception_is_logged_whole(stream: io.StringIO) -> None:
    try:
        raise ValueError("x" * 300)
    except ValueError:
        structlog.get_logger().exception("handler_crashed")
    assert "ValueError: " + "x" * 300 in lines(stream)[0]["exception"]


def test_pretty_lines_are_for_people() -> None:
    out = io.StringIO()
    setup_logs("pretty", stream=out)
    structlog.get_logger().info("slot_lost", lease_ms=5)
    assert "slot_lost" in out.getvalue()
    assert "lease_ms" in out.getvalue()
    assert not out.getvalue().startswith("{")
