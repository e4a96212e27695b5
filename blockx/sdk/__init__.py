"""What user functions import: `function`, `Context` and the errors they may raise or catch. Light to import."""

from __future__ import annotations

from blockx.errors import ReadError, RetryableError
from blockx.sdk.context import Bundles, CallLogger, Context, Table, Tables
from blockx.sdk.functions import Function, function, function_of

__all__ = [
    "Bundles",
    "CallLogger",
    "Context",
    "Function",
    "ReadError",
    "RetryableError",
    "Table",
    "Tables",
    "function",
    "function_of",
]
