"""Bounds and times of a worker's cores. Milliseconds and bytes; defaults as in the manual's settings table."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, gt

from blockx.errors import ConfigError


@frozen(kw_only=True)
class WorkerSettings:
    """What WorkerCore obeys."""

    slots: int = field(default=64, validator=gt(0), metadata={"env": "WORKER_SLOTS"})
    """Tasks that the worker leases or runs at a time."""
    default_ttl_ms: int = field(default=5_000, validator=gt(0))
    """Lease of a slot that is taken by a submission without one."""
    max_slot_ttl_ms: int = field(default=60_000, validator=gt(0))
    """Longest lease that may be asked for."""
    task_deadline_ms: int = field(default=300_000, validator=gt(0))
    """Timeout of a task that names none, counted from acceptance."""
    max_task_timeout_ms: int = field(default=8 * 3_600_000, validator=gt(0))
    """Longest timeout that a task may name."""
    result_retention_ms: int = field(default=300_000, validator=gt(0))
    """How long the result of an ended task can be fetched."""
    watch_disconnect_grace_ms: int = field(default=0, validator=ge(0))
    """How long a task that was watched may go on without a watch; 0: for ever."""
    activation_timeout_ms: int = field(default=30_000, validator=gt(0))
    """How long setting a task up may take before it ends SLOT_LOST."""
    commit_timeout_ms: int = field(default=30_000, validator=gt(0))
    """How long a granted commit may take."""
    ready_grace_ms: int = field(default=2_000, validator=ge(0))
    """How long the worker may be without a live executor before it refuses tasks."""
    drain_linger_ms: int = field(default=2_000, validator=ge(0))
    """How long queries are still answered after a drain has finished."""
    drain_result_wait_ms: int = field(default=30_000, validator=ge(0))
    """How long a drain waits for results to be fetched that nobody has seen."""

    def __attrs_post_init__(self) -> None:
        if self.default_ttl_ms > self.max_slot_ttl_ms:
            raise ConfigError(f"default_ttl_ms {self.default_ttl_ms} is above max_slot_ttl_ms {self.max_slot_ttl_ms}")
        if self.task_deadline_ms > self.max_task_timeout_ms:
            raise ConfigError(
                f"task_deadline_ms {self.task_deadline_ms} is above max_task_timeout_ms {self.max_task_timeout_ms}"
            )


@frozen(kw_only=True)
class DispatcherSettings:
    """What DispatcherCore obeys."""

    first_window: int = field(default=16, validator=gt(0))
    """Calls of a task in flight at first; doubled with each full window that went well."""
    task_max_inflight_calls: int = field(default=1_024, validator=gt(0))
    """Calls of a task in flight at most."""
    max_collected_output_bytes: int = field(default=64 * 1024 * 1024, validator=gt(0))
    """Outputs of a task in all; above, it fails OUTPUT_BYTES_EXCEEDED."""
    call_attempts: int = field(default=3, validator=gt(0))
    """How often one call is attempted."""
    retry_base_ms: int = field(default=50, validator=gt(0))
    """Pause before the second attempt of a call; doubled with each further one."""
    retry_max_ms: int = field(default=2_000, validator=gt(0))
    """Longest pause between attempts of a call."""
    backlog_us: int = field(default=5_000, validator=gt(0))
    """Estimated work queued per executor; measured: beyond this a small task waits behind a big one's calls."""
    max_backlog_calls: int = field(default=1_024, validator=gt(0))
    """Calls queued per executor at most."""
    max_backlog_bytes: int = field(default=8 * 1024 * 1024, validator=gt(0))
    """Unanswered bytes per executor at most."""
    max_suspended_calls: int = field(default=4_096, validator=gt(0))
    """Calls per executor that wait for data at most."""
