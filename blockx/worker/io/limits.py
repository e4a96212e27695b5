"""How much one task may read, keep and repeat."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import gt, le

MAX_ANSWER_BYTES = 15 * 1024 * 1024
"""What fits a frame of 16 MiB beside all else that it carries."""

MAX_READ_KEYS = 100_000
"""Keys that one read may ask for; more would keep a worker busy for seconds."""


@frozen(kw_only=True)
class ScopeLimits:
    """Bounds of one task's IO scope. Bytes, counts and milliseconds."""

    read_cache_bytes: int = field(default=64 * 1024 * 1024, validator=gt(0), metadata={"env": "TASK_READ_CACHE_BYTES"})
    """What one task keeps of its reads; least recently used leaves first."""
    batch_keys: int = field(default=500, validator=gt(0))
    """Keys of one table request; measured: flat from 256 on, and some forms of SQL degrade at 1 000."""
    answer_bytes: int = field(default=MAX_ANSWER_BYTES, validator=[gt(0), le(MAX_ANSWER_BYTES)])
    """One answer to an executor at most."""
    io_builder_attempts: int = field(default=5, validator=gt(0))
    """How often a read of a builder is attempted."""
    io_call_attempts: int = field(default=3, validator=gt(0))
    """How often a read of a call is attempted, within one attempt of the call."""
    io_result_attempts: int = field(default=5, validator=gt(0))
    """How often a read or the write of a result handler is attempted."""
    io_retry_base_ms: int = field(default=100, validator=gt(0))
    """Pause before the second attempt of a read or write; doubled with each further one."""
    io_retry_max_ms: int = field(default=5_000, validator=gt(0))
    """Longest pause between attempts of a read or write."""
    read_blocks: int = field(default=1_000, validator=gt(0))
    """Blocks that a task's result names as read."""
