"""Bounds and times of a worker's cores. Milliseconds and bytes; defaults as in the manual's settings table."""

from __future__ import annotations

from attrs import field, frozen

from blockx.errors import ConfigError


@frozen(kw_only=True)
class WorkerSettings:
    """What WorkerCore obeys."""

    slots: int = field(default=64, metadata={"env": "WORKER_SLOTS"})
    default_ttl_ms: int = 5_000
    max_slot_ttl_ms: int = 60_000
    task_deadline_ms: int = 300_000
    max_task_timeout_ms: int = 8 * 3_600_000
    result_retention_ms: int = 300_000
    watch_disconnect_grace_ms: int = 0
    activation_timeout_ms: int = 30_000
    commit_timeout_ms: int = 30_000
    ready_grace_ms: int = 2_000
    drain_linger_ms: int = 2_000
    drain_result_wait_ms: int = 30_000

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
    task_max_inflight_calls: int = 1_024
    max_collected_output_bytes: int = 64 * 1024 * 1024
    call_attempts: int = 3
    retry_base_ms: int = 50
    retry_max_ms: int = 2_000
    backlog_us: int = 5_000
    """Estimated work queued per executor; measured: beyond this a small task waits behind a big one's calls."""
    max_backlog_calls: int = 1_024
    max_backlog_bytes: int = 8 * 1024 * 1024
    max_suspended_calls: int = 4_096
