"""How much one task may read, keep and repeat."""

from __future__ import annotations

from attrs import field, frozen

from blockx.errors import ConfigError

MAX_ANSWER_BYTES = 15 * 1024 * 1024
"""What fits a frame of 16 MiB beside all else that it carries."""


@frozen(kw_only=True)
class ScopeLimits:
    """Bounds of one task's IO scope. Bytes, counts and milliseconds."""

    read_cache_bytes: int = field(default=64 * 1024 * 1024, metadata={"env": "TASK_READ_CACHE_BYTES"})
    """What one task keeps of its reads; least recently used leaves first."""
    batch_keys: int = 500
    """Keys of one table request; measured: flat from 256 on, and some forms of SQL degrade at 1 000."""
    answer_bytes: int = MAX_ANSWER_BYTES
    """One answer to an executor at most."""
    io_builder_attempts: int = 5
    """How often a read of a builder is attempted."""
    io_call_attempts: int = 3
    """How often a read of a call is attempted, within one attempt of the call."""
    io_result_attempts: int = 5
    """How often a read or the write of a result handler is attempted."""
    io_retry_base_ms: int = 100
    """Pause before the second attempt of a read or write; doubled with each further one."""
    io_retry_max_ms: int = 5_000
    """Longest pause between attempts of a read or write."""
    read_blocks: int = 1_000
    """Blocks that a task's result names as read."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.answer_bytes <= MAX_ANSWER_BYTES:
            raise ConfigError(f"answer_bytes must be from 1 to {MAX_ANSWER_BYTES}, not {self.answer_bytes}")
