"""ReturnValueResultHandler: the outputs themselves, as a JSON array in call order."""

from __future__ import annotations

from typing import ClassVar

import trio
from attrs import frozen

from blockx.errors import UnserializableValue
from blockx.plugins import Output, Outputs, PluginError, PluginResult, TaskContext, WriterIO
from blockx.wire.values import to_json

_OUTPUTS_A_PASS = 500
"""Outputs written between two looks at the rest of the worker's work."""


@frozen
class ReturnValueConfig:
    """It takes no settings."""


class ReturnValueResultHandler:
    config_type: ClassVar[type[ReturnValueConfig]] = ReturnValueConfig

    def __init__(self, config: ReturnValueConfig) -> None: ...

    async def execute(self, ctx: TaskContext, outputs: Outputs, io: WriterIO) -> list[PluginResult]:
        """The array as JSON. Raises PluginError, naming call and path, for what JSON cannot hold, such as NaN."""
        parts: list[bytes] = []
        for output in outputs:
            parts.append(_json_of(output))
            if output.index % _OUTPUTS_A_PASS == 0:
                await trio.lowlevel.checkpoint()
        array = b"[" + b",".join(parts) + b"]"
        return [PluginResult(plugin_name=type(self).__name__, success=True, result=array)]


def _json_of(output: Output) -> bytes:
    try:
        return to_json(output.value)
    except UnserializableValue as error:
        raise PluginError(f"the output of call {output.index} cannot be written as JSON: {error}") from None
