"""What worker and executor say to each other: a tagged union, one msgpack array `[kind, *fields]` a frame.

Fields that a peer only passes on (arguments, values, requests, blocks) are packed bytes (blockx.wire.values), so that
the worker never opens them. Lists in one message run in parallel: `attempts[i]` belongs to `ids[i]`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import field, frozen

PROTOCOL_VERSION = 1
MAX_CALLS_PER_FRAME = 64
CALL_INDEX_BITS = 20
"""A call id is `task_no << CALL_INDEX_BITS | index`, index being the call's place in the call list of its task."""


@frozen
class Hello:
    """First from the executor: `capacity` is how many unanswered calls it takes at most."""

    KIND: ClassVar[int] = 1
    protocol: int
    pid: int
    python: str
    token: str = field(repr=False)
    capacity: int


@frozen
class Welcome:
    """First from the worker. `limits`: call_budget_us, max_frame_bytes, heartbeat_ms. `code_path` is a directory."""

    KIND: ClassVar[int] = 2
    protocol: int
    worker_id: str
    limits: dict[str, int]
    code_path: str
    code_digest: str


@frozen
class Ready:
    """The code is imported; `functions` are the names that can be called."""

    KIND: ClassVar[int] = 3
    functions: list[str]


@frozen
class LoadFailed:
    KIND: ClassVar[int] = 4
    error: str


@frozen
class Heartbeat:
    KIND: ClassVar[int] = 5
    running: int
    waiting: int
    rss_bytes: int
    loop_lag_us: int


@frozen
class OpenTask:
    """`flags` is a bit set, 0 for now. `deadline_left_ms` is what is left of the task's time."""

    KIND: ClassVar[int] = 6
    task_no: int
    task_id: str
    deadline_left_ms: int
    flags: int = 0


@frozen
class CloseTask:
    """Cancel what still runs of the task and forget it."""

    KIND: ClassVar[int] = 7
    task_no: int


@frozen
class ExecuteCalls:
    """`args[i]` is packed `[args, kwargs]`; `block` is a packed BlockContext array or None."""

    KIND: ClassVar[int] = 8
    task_no: int
    function: str
    block: bytes | None
    budget_us: int
    ids: list[int]
    attempts: list[int]
    args: list[bytes] = field(repr=False)


@frozen
class CallsCompleted:
    KIND: ClassVar[int] = 9
    ids: list[int]
    attempts: list[int]
    cpu_us: list[int]
    values: list[bytes] = field(repr=False)


@frozen
class CallFailed:
    """`error` is (code, error type, message, traceback), code a name of CallErrorCode."""

    KIND: ClassVar[int] = 10
    call_id: int
    attempt: int
    error: list[str]
    retryable: bool
    cpu_us: int


@frozen
class CallsWaiting:
    """Calls suspended on reads: `requests[i]` is a packed `[operation, *arguments]`, answered under `wait_ids[i]`."""

    KIND: ClassVar[int] = 11
    ids: list[int]
    attempts: list[int]
    wait_ids: list[int]
    cpu_us: list[int]
    requests: list[bytes] = field(repr=False)


@frozen
class ResumeCalls:
    """`errors[i]` None: `values[i]` is the packed answer; else [error type, message, retryable] and no value."""

    KIND: ClassVar[int] = 12
    ids: list[int]
    wait_ids: list[int]
    io_us: list[int]
    values: list[bytes | None] = field(repr=False)
    errors: list[list[Any] | None]


@frozen
class CancelCall:
    KIND: ClassVar[int] = 13
    call_id: int
    attempt: int


@frozen
class CallLog:
    """A line from `ctx.log` or `print`; `level` is a name of the logging module, in lower case."""

    KIND: ClassVar[int] = 14
    call_id: int
    level: str
    message: str


@frozen
class Shutdown:
    """Finish what runs within `grace_ms`, then exit with 0."""

    KIND: ClassVar[int] = 15
    grace_ms: int


@frozen
class Ping:
    KIND: ClassVar[int] = 16
    n: int


@frozen
class Pong:
    KIND: ClassVar[int] = 17
    n: int


Message = (
    Hello
    | Welcome
    | Ready
    | LoadFailed
    | Heartbeat
    | OpenTask
    | CloseTask
    | ExecuteCalls
    | CallsCompleted
    | CallFailed
    | CallsWaiting
    | ResumeCalls
    | CancelCall
    | CallLog
    | Shutdown
    | Ping
    | Pong
)
