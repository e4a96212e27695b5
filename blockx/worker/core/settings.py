"""Bounds and times of a worker's cores. Milliseconds and bytes; defaults as in the manual's settings table."""

from __future__ import annotations

from attrs import field, frozen

from blockx.errors import ConfigError


@frozen(kw_only=True)
class WorkerSettings:
    """What WorkerCore obeys."""

    slots: int = field(default=64, metadata={"env": "WORKER_SLOTS"})
    """Tasks that the worker leases or runs at a time."""
    default_ttl_ms: int = 5_000
    """Lease of a slot that is taken by a submission without one."""
    max_slot_ttl_ms: int = 60_000
    """Longest lease that may be asked for."""
    task_deadline_ms: int = 300_000
    """Timeout of a task that names none, counted from acceptance."""
    max_task_timeout_ms: int = 8 * 3_600_000
    """Longest timeout that a task may name."""
    result_retention_ms: int = 300_000
    """How long the result of an ended task can be fetched."""
    watch_disconnect_grace_ms: int = 0
    """How long a task that was watched may go on without a watch; 0: for ever."""
    activation_timeout_ms: int = 30_000
    """How long setting a task up may take before it ends SLOT_LOST."""
    commit_timeout_ms: int = 30_000
    """How long a granted commit may take."""
    ready_grace_ms: int = 2_000
    """How long the worker may be without a live executor before it refuses tasks."""
    drain_linger_ms: int = 2_000
    """How long queries are still answered after a drain has finished."""
    drain_result_wait_ms: int = 30_000
    """How long a drain waits for results to be fetched that nobody has seen."""

    def __attrs_post_init__(self) -> None:
        for name in (
            "slots",
            "default_ttl_ms",
            "max_slot_ttl_ms",
            "task_deadline_ms",
            "max_task_timeout_ms",
            "result_retention_ms",
            "activation_timeout_ms",
            "commit_timeout_ms",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("watch_disconnect_grace_ms", "ready_grace_ms", "drain_linger_ms", "drain_result_wait_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.default_ttl_ms > self.max_slot_ttl_ms:
            raise ConfigError(f"default_ttl_ms {self.default_ttl_ms} is above max_slot_ttl_ms {self.max_slot_ttl_ms}")
        if self.task_deadline_ms > self.max_task_timeout_ms:
            raise ConfigError(
                f"task_deadline_ms {self.task_deadline_ms} is above max_task_timeout_ms {self.max_task_timeout_ms}"
            )


@frozen(kw_only=True)
class DispatcherSettings:
    """What DispatcherCore obeys."""

    first_window: int = 16
    """Calls of a task in flight at first; doubled with each full window that went well."""
    task_max_inflight_calls: int = 1_024
    """Calls of a task in flight at most."""
    max_collected_output_bytes: int = 64 * 1024 * 1024
    """Outputs of a task in all; above, it fails OUTPUT_BYTES_EXCEEDED."""
    call_attempts: int = 3
    """How often one call is attempted."""
    retry_base_ms: int = 50
    """Pause before the second attempt of a call; doubled with each further one."""
    retry_max_ms: int = 2_000
    """Longest pause between attempts of a call."""
    backlog_us: int = 5_000
    """Estimated work queued per executor; measured: beyond this a small task waits behind a big one's calls."""
    max_backlog_calls: int = 1_024
    """Calls queued per executor at most."""
    max_backlog_bytes: int = 8 * 1024 * 1024
    """Unanswered bytes per executor at most."""
    max_suspended_calls: int = 4_096
    """Calls per executor that wait for data at most."""
