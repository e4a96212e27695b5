"""Log lines: pretty on a terminal, JSON elsewhere; none holds a secret or a whole payload.

Components log with `structlog.get_logger()`: an event's name and its facts as keywords. What is bound with
`structlog.contextvars.bound_contextvars(task_id=…)` is on every line logged inside, also by trio tasks started inside.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal, TextIO

import structlog

Style = Literal["pretty", "json"]
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_VALUE_CHARS = 200

_SECRET_KEY = re.compile(r"token|password|secret|authorization|credential", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
_UNSHORTENED = frozenset({"event", "exception", "traceback"})


def setup_logs(style: Style | None = None, *, level: str = "info", stream: TextIO | None = None) -> None:
    """Send the log lines of this process to `stream` (stderr); without a `style`, pretty on a terminal, else JSON."""
    out = sys.stderr if stream is None else stream
    is_pretty = style == "pretty" or (style is None and out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if is_pretty else [structlog.processors.format_exc_info]),
            _without_secrets,
            _shortened,
            _console(out) if is_pretty else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _console(out: TextIO) -> structlog.dev.ConsoleRenderer:
    """Plain tracebacks: the rich ones print local variables, and so what must not be logged."""
    return structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _without_secrets(_: Any, __: str, entry: MutableMapping[str, Any]) -> Mapping[str, Any]:
    for key, value in entry.items():
        if _SECRET_KEY.search(key):
            entry[key] = "***"
        elif isinstance(value, str):
            entry[key] = _SECRET_IN_URL.sub(r"\1:***@", value)
    return entry


def _shortened(_: Any, __: str, entry: MutableMapping[str, Any]) -> Mapping[str, Any]:
    for key, value in entry.items():
        if key in _UNSHORTENED or isinstance(value, bool | int | float | None):
            continue
        text = value if isinstance(value, str) else repr(value)
        if len(text) > MAX_VALUE_CHARS:
            entry[key] = f"{text[:MAX_VALUE_CHARS]}… ({len(text)} characters)"
    return entry
