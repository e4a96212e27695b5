"""What a TaskInput and a PluginConfig take, and what they refuse."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from blockx.errors import InvalidArgument
from blockx.model import PluginConfig, TaskInput

CALLS = PluginConfig("CallListCallConfig")


def test_a_uuid_is_a_task_id() -> None:
    found = uuid.UUID("3f2b1c9e-8a4d-4c1e-9b0a-6f7e5d4c3b2a")
    task = TaskInput(function_call_config=CALLS, task_id=found)
    assert task.task_id == "3f2b1c9e-8a4d-4c1e-9b0a-6f7e5d4c3b2a"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("function_call_config", {"type": "CallListCallConfig"}),
        ("function_call_config", None),
        ("result_handler", "ReturnValueResultHandler"),
        ("task_timeout_ms", "30000"),
        ("task_timeout_ms", 1.5),
        ("task_timeout_ms", True),
        ("task_id", 7),
        ("task_id", None),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"function_call_config": CALLS, field: value}
    with pytest.raises(InvalidArgument, match=f"^{field} must be "):
        TaskInput(**fields)


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (None, {}, "^type must be a text, not None"),
        ("x", [1], "^config must be a dict or JSON text"),
        ("x", None, "^config must be a dict or JSON text"),
        ("x", {"a": b"bytes"}, "^config cannot be written as JSON: .*bytes"),
    ],
)
def test_a_plugin_config_of_another_type_is_refused(kind: Any, config: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        PluginConfig(kind, config)
