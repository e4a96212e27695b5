"""What the end-to-end tests share: the functions, and short ways to say a task."""

from __future__ import annotations

import os
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


class Gate:
    """Two named pipes between a test and the function `waits_at_gate`: who has arrived, and who may go on."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "gate")
        self._ends = []
        for name in (f"{self.path}.arrivals", f"{self.path}.passes"):
            os.mkfifo(name)
            # Read and write: so opening never waits, and the pipe outlives the processes that come and go.
            self._ends.append(os.open(name, os.O_RDWR | os.O_NONBLOCK))

    async def arrival(self) -> tuple[int, int]:
        """The attempt that has come to the gate, and the process that runs it."""
        await trio.lowlevel.wait_readable(self._ends[0])
        attempt, pid = os.read(self._ends[0], 100).split()
        return int(attempt), int(pid)

    def let_one_pass(self) -> None:
        os.write(self._ends[1], b".")

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(handle)
    finally:
        os.close(handle)
