"""What a request must satisfy before WorkerCore looks at its own state."""

from __future__ import annotations

from blockx.errors import InvalidArgument
from blockx.worker.core.settings import WorkerSettings


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
