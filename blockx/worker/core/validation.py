"""What a request must satisfy before WorkerCore looks at its own state."""

from __future__ import annotations

import re

from blockx.errors import InvalidArgument
from blockx.worker.core.settings import WorkerSettings

MAX_TASK_ID_BYTES = 256

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and lone surrogates, which have no UTF-8."""


def check_task_id(task_id: str) -> None:
    """Raises InvalidArgument unless the id is 1 to 256 bytes of UTF-8 without control characters."""
    if not task_id:
        raise InvalidArgument("task_id is empty; give each task an id of its own, such as a uuid4")
    if (found := _FORBIDDEN.search(task_id)) is not None:
        raise InvalidArgument(
            f"task_id has the character {found.group()!r} at position {found.start()}; "
            "control characters and lone surrogates are not allowed"
        )
    size = len(task_id.encode())
    if size > MAX_TASK_ID_BYTES:
        raise InvalidArgument(f"task_id has {size} bytes of UTF-8; at most {MAX_TASK_ID_BYTES} are allowed")


def check_ttl(ttl_ms: int, settings: WorkerSettings) -> None:
    """Raises InvalidArgument unless the lease asked for is within 1 and MAX_SLOT_TTL_MS."""
    if ttl_ms <= 0:
        raise InvalidArgument(f"ttl_ms must be at least 1, not {ttl_ms}")
    if ttl_ms > settings.max_slot_ttl_ms:
        raise InvalidArgument(f"ttl_ms {ttl_ms} is above this worker's limit of {settings.max_slot_ttl_ms}")


def check_timeout(timeout_ms: int, settings: WorkerSettings) -> None:
    """Raises InvalidArgument unless the timeout is 0 (the default) or within 1 and MAX_TASK_TIMEOUT_MS."""
    if timeout_ms < 0:
        raise InvalidArgument(f"task_timeout_ms must be 0 (the worker's default) or more, not {timeout_ms}")
    if timeout_ms > settings.max_task_timeout_ms:
        raise InvalidArgument(
            f"task_timeout_ms {timeout_ms} is above this worker's limit of {settings.max_task_timeout_ms}"
        )
