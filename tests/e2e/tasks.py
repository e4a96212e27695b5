"""What the end-to-end tests share: the functions, and short ways to say a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from blockx import PluginConfig, TaskInput

FUNCTIONS = Path(__file__).parent / "functions"
TABLES = FUNCTIONS / "tables.toml"


def calls(function: str, *call_list: Any, handler: PluginConfig | None = None, **fields: Any) -> TaskInput:
    """A task of one call per entry, whose outputs come back."""
    config = {"function": function, "callList": list(call_list)}
    return TaskInput(
        function_call_config=PluginConfig("CallListCallConfig", config),
        result_handler=handler or PluginConfig("ReturnValueResultHandler"),
        **fields,
    )


async def started_pid(directory: Path, attempt: int) -> int:
    """The process that runs the call's attempt, once it has said so."""
    while True:
        for path in await trio.Path(directory).iterdir():
            if path.name.startswith(f"go.{attempt}."):
                return int(path.suffix[1:])
        await trio.sleep(0.01)
