"""CallListCallConfig: the calls as they stand in the declaration."""

from __future__ import annotations

from typing import Any, ClassVar

import trio
from attrs import frozen

from blockx.model import BlockContext, nearest
from blockx.plugins import IO, CallList, PluginError, TaskContext
from blockx.shown import shown

_CALLS_A_PASS = 1_000
"""Calls made between two looks at the rest of the worker's work."""


@frozen
class CallListCallConfig:
    """`function` is called once for each entry of `call_list`: a list of arguments, or `{args, kwargs}`."""

    function: str
    call_list: list[Any]
    """Its entries are checked while building, a part at a time: it may be long."""
    block: BlockContext | None = None


class CallListBuilder:
    config_type: ClassVar[type[CallListCallConfig]] = CallListCallConfig

    def __init__(self, config: CallListCallConfig) -> None:
        self.config = config

    async def build(self, ctx: TaskContext, io: IO) -> CallList:
        """One call for each entry, in order. Raises PluginError naming the entry that is none."""
        config, calls = self.config, CallList()
        for index, entry in enumerate(config.call_list):
            args, kwargs = _arguments(index, entry)
            calls.add(config.function, args, kwargs, config.block)
            if index % _CALLS_A_PASS == 0:
                await trio.lowlevel.checkpoint()
        return calls


def _arguments(index: int, entry: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(entry, list):
        return entry, {}
    if not isinstance(entry, dict):
        raise PluginError(
            f'callList[{index}] must be a list of arguments or {{"args": […], "kwargs": {{…}}}}, not {shown(entry)}'
        )
    for key in entry:
        if key not in ("args", "kwargs"):
            raise PluginError(f"callList[{index}] has an unknown key {shown(key)}{nearest(key, ('args', 'kwargs'))}")
    args, kwargs = entry.get("args", []), entry.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise PluginError(f"callList[{index}]: args must be a list and kwargs an object")
    return args, kwargs
