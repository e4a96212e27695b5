"""BlockX runs many small read-only Python functions over on-chain data and writes their results once.

Public names are resolved when first used, so that an executor, which imports `blockx` for its functions, loads no more
than `blockx.sdk`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blockx.client import Client, RetryPolicy
    from blockx.errors import BlockxError, ReadError, RetryableError, TaskFailed
    from blockx.model import (
        BlockContext,
        FailureCode,
        PluginConfig,
        Reservation,
        Submission,
        TaskInput,
        TaskResult,
        TaskState,
        TaskUpdate,
    )
    from blockx.rpc import ClientTls
    from blockx.sdk import Context, function

__version__ = "0.1.0"

__all__ = [
    "BlockContext",
    "BlockxError",
    "Client",
    "ClientTls",
    "Context",
    "FailureCode",
    "PluginConfig",
    "ReadError",
    "Reservation",
    "RetryPolicy",
    "RetryableError",
    "Submission",
    "TaskFailed",
    "TaskInput",
    "TaskResult",
    "TaskState",
    "TaskUpdate",
    "__version__",
    "function",
]

_HOMES = {
    "blockx.client": ("Client", "RetryPolicy"),
    "blockx.errors": ("BlockxError", "ReadError", "RetryableError", "TaskFailed"),
    "blockx.model": (
        "BlockContext",
        "FailureCode",
        "PluginConfig",
        "Reservation",
        "Submission",
        "TaskInput",
        "TaskResult",
        "TaskState",
        "TaskUpdate",
    ),
    "blockx.rpc": ("ClientTls",),
    "blockx.sdk": ("Context", "function"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("errors", "plugins", "testing")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"blockx.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'blockx' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
