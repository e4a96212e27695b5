"""How much one task may read, keep and repeat."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class ScopeLimits:
    """Bounds of one task's IO scope. Bytes, counts and milliseconds."""

    read_cache_bytes: int = 64 * 1024 * 1024
    """TASK_READ_CACHE_BYTES."""
    batch_keys: int = 500
    """Keys of one table request; measured: flat from 256 on, and some forms of SQL degrade at 1 000."""
    answer_bytes: int = 15 * 1024 * 1024
    """One answer to an executor; it has to fit into a frame of 16 MiB."""
    builder_attempts: int = 5
    call_attempts: int = 3
    result_attempts: int = 5
    retry_base_ms: int = 100
    retry_max_ms: int = 5_000
    read_blocks: int = 1_000
    """Blocks that a task's result names as read."""
