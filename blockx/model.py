"""The values that everybody speaks of: tasks, results, blocks. Frozen, without behaviour that needs IO."""

from __future__ import annotations

import difflib
import enum
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, NewType

from attrs import field, frozen

from blockx.errors import InvalidArgument, TaskFailed
from blockx.shown import shown
from blockx.strict_json import read_json, write_json

TaskId = NewType("TaskId", str)
SlotId = NewType("SlotId", str)

MAX_TASK_ID_BYTES = 256

_MAX_WORD_CHARS = 200
"""Longer words are near to nothing; comparing them takes long."""

_NOT_IN_IDS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and lone surrogates, which have no UTF-8."""


def checked_task_id(text: str) -> TaskId:
    """The text as a task id. Raises InvalidArgument unless it is 1 to 256 bytes of UTF-8 without control characters."""
    if not text:
        raise InvalidArgument("task_id is empty; give each task an id of its own, such as a uuid4")
    if (found := _NOT_IN_IDS.search(text)) is not None:
        raise InvalidArgument(
            f"task_id has the character {found.group()!r} at position {found.start()}; "
            "control characters and lone surrogates are not allowed"
        )
    size = len(text.encode())
    if size > MAX_TASK_ID_BYTES:
        raise InvalidArgument(f"task_id has {size} bytes of UTF-8; at most {MAX_TASK_ID_BYTES} are allowed")
    return TaskId(text)


class TaskState(enum.Enum):
    """What is visible of a task from outside; the inner phases are all RUNNING."""

    ALLOCATED = "ALLOCATED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        return self in (TaskState.SUCCEEDED, TaskState.FAILED)


class FailureCode(enum.Enum):
    """Why a task ended FAILED."""

    ACTIVATION_FAILED = "ACTIVATION_FAILED"
    IO_SCOPE_FAILED = "IO_SCOPE_FAILED"
    SLOT_LOST = "SLOT_LOST"
    BUILDER_NOT_FOUND = "BUILDER_NOT_FOUND"
    BUILDER_FAILED = "BUILDER_FAILED"
    CALL_FAILED = "CALL_FAILED"
    OUTPUT_BYTES_EXCEEDED = "OUTPUT_BYTES_EXCEEDED"
    PLUGIN_NOT_FOUND = "PLUGIN_NOT_FOUND"
    PLUGIN_FAILED = "PLUGIN_FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    WATCH_DISCONNECTED = "WATCH_DISCONNECTED"


class CallErrorCode(enum.Enum):
    """Why one call failed."""

    EXCEPTION = "EXCEPTION"
    FUNCTION_NOT_FOUND = "FUNCTION_NOT_FOUND"
    BAD_ARGUMENTS = "BAD_ARGUMENTS"
    UNSERIALIZABLE = "UNSERIALIZABLE"
    CALL_BUDGET_EXCEEDED = "CALL_BUDGET_EXCEEDED"
    EXECUTOR_CRASHED = "EXECUTOR_CRASHED"
    EXECUTOR_OOM = "EXECUTOR_OOM"
    VALUE_TOO_LARGE = "VALUE_TOO_LARGE"
    IO_ERROR = "IO_ERROR"
    SUBCALL_FAILED = "SUBCALL_FAILED"


BLOCK_ID = re.compile(r"0x[0-9a-f]{1,128}")
"""A block's id as it stands in keys; elsewhere its hex digits may be of either case."""

MAX_HEIGHT = 2**63 - 1
"""The largest height of a block, and the largest chain id."""


@frozen
class BlockContext:
    """As of which block a call reads: chain id, block hash (0x-hex), height, parent hash, unix seconds."""

    chain_id: int
    id: str
    height: int
    parent_id: str
    timestamp: int


def _as_json_text(config: str | Mapping[str, Any]) -> str:
    if isinstance(config, str):
        return config
    if not isinstance(config, Mapping):
        raise InvalidArgument(f"config must be a dict or JSON text, not {shown(config)}")
    try:
        return write_json(config)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"config cannot be written as JSON: {error}") from None


def _checked(kind: type | tuple[type, ...], words: str) -> Callable[[Any, Any, Any], None]:
    """A validator of a field's type."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidArgument(f"{attribute.name} must be {words}, not {shown(value)}")

    return check


def _as_task_id(value: str | uuid.UUID) -> TaskId:
    return TaskId(str(value) if isinstance(value, uuid.UUID) else value)


@frozen
class PluginConfig:
    """Names a call builder or writer plugin by `type` and configures it; `config` is a dict or JSON text.

    Raises InvalidArgument for fields of another type, and for what JSON cannot hold.
    """

    type: str = field(validator=_checked(str, "a text"))
    config: str = field(default="{}", converter=_as_json_text)


def new_task_id() -> TaskId:
    """A random one (uuid4)."""
    return TaskId(str(uuid.uuid4()))


@frozen(kw_only=True)
class TaskInput:
    """One unit of work: which calls to make and, optionally, what to do with their outputs.

    `task_timeout_ms` counts from acceptance; 0 takes the worker's default. `task_id` is the idempotency key: a text or
    a UUID. Raises InvalidArgument for fields of another type.
    """

    function_call_config: PluginConfig = field(validator=_checked(PluginConfig, "a PluginConfig"))
    result_handler: PluginConfig | None = field(
        default=None, validator=_checked((PluginConfig, NoneType), "a PluginConfig or None")
    )
    task_timeout_ms: int = field(default=0, validator=_checked(int, "a whole number of milliseconds"))
    task_id: TaskId = field(factory=new_task_id, converter=_as_task_id, validator=_checked(str, "a text or a UUID"))

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskInput:
        """Read a task from its JSON spelling (camelCase or snake_case keys); a missing task_id is made up.

        Raises InvalidArgument for bad JSON, unknown keys (naming the nearest valid one) and wrong types.
        """
        try:
            data = read_json(text)
        except ValueError as error:
            raise InvalidArgument(f"the task is not valid JSON: {error}") from None
        keys = ("task_id", "function_call_config", "result_handler", "task_timeout_ms")
        known = checked_keys(data, keys, where="the task")
        if "function_call_config" not in known:
            raise InvalidArgument("the task has no functionCallConfig")
        handler = known.get("result_handler")
        timeout_ms = known.get("task_timeout_ms", 0)
        if not isinstance(timeout_ms, int) or isinstance(timeout_ms, bool):
            raise InvalidArgument(f"taskTimeoutMs must be an integer number of milliseconds, not {shown(timeout_ms)}")
        task_id = known.get("task_id")
        if task_id is not None and not isinstance(task_id, str):
            raise InvalidArgument(f"task_id must be a string, not {shown(task_id)}")
        return cls(
            function_call_config=_plugin_config(known["function_call_config"], "functionCallConfig"),
            result_handler=None if handler is None else _plugin_config(handler, "resultHandler"),
            task_timeout_ms=timeout_ms,
            task_id=new_task_id() if task_id is None else TaskId(task_id),
        )


def _plugin_config(data: object, where: str) -> PluginConfig:
    known = checked_keys(data, ("type", "config"), where=where)
    kind, config = known.get("type"), known.get("config", {})
    if not isinstance(kind, str):
        raise InvalidArgument(f"{where}.type must be a string, not {shown(kind)}")
    if not isinstance(config, (str, dict)):
        raise InvalidArgument(f"{where}.config must be an object, not {shown(config)}")
    return PluginConfig(kind, config)


def snake_case(key: str) -> str:
    """`taskTimeoutMs` → `task_timeout_ms`; snake_case stays as it is."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)


def camel_case(key: str) -> str:
    """`task_timeout_ms` → `taskTimeoutMs`."""
    head, *rest = key.split("_")
    return head + "".join(part.capitalize() for part in rest)


def nearest(word: object, candidates: Iterable[str]) -> str:
    """A hint ` (did you mean 'x'?)` for an unknown word, or an empty string where nothing is near."""
    if not isinstance(word, str) or len(word) > _MAX_WORD_CHARS:
        return ""
    found = difflib.get_close_matches(word, list(candidates), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def checked_keys(data: object, keys: Iterable[str], *, where: str) -> dict[str, Any]:
    """The object's entries under their snake_case names.

    Raises InvalidArgument if it is no object, has an unknown key, or has one key in both spellings.
    """
    if not isinstance(data, dict):
        raise InvalidArgument(f"{where} must be a JSON object, not {type(data).__name__}")
    names = list(keys)
    out: dict[str, Any] = {}
    for key, value in data.items():
        name = snake_case(key)
        if name not in names:
            raise InvalidArgument(
                f"{where} has an unknown key {shown(key)}{nearest(key, [*map(camel_case, names), *names])}"
            )
        if name in out:
            raise InvalidArgument(f"{where} has {name!r} in both spellings; keep one")
        out[name] = value
    return out


@frozen
class Receipt:
    """What a call, or all calls of a task together, cost: microseconds, counts and bytes."""

    cpu_us: int = 0
    io_us: int = 0
    queue_us: int = 0
    reads: int = 0
    cached_reads: int = 0
    bytes_in: int = 0
    attempts: int = 0


@frozen(kw_only=True)
class FailedCall:
    """The call that failed a task: enough to mend the function. `index` is its place in the call list."""

    index: int
    function: str
    arguments: str = ""
    attempts: int = 1
    code: CallErrorCode
    error_type: str = ""
    message: str = ""
    traceback: str = ""


@frozen
class PluginResult:
    """What a writer plugin reports; `result` is JSON."""

    plugin_name: str
    success: bool
    failure_code: str = ""
    result: bytes = b""


@frozen(kw_only=True)
class TaskResult:
    """How a task ended. `failure_code` is None on success; `read_blocks` are the (chain id, block id) pairs it read."""

    state: TaskState
    failure_code: FailureCode | None = None
    failure_message: str = ""
    retryable: bool = False
    plugin_results: tuple[PluginResult, ...] = ()
    failed_call: FailedCall | None = None
    receipt: Receipt = Receipt()
    read_blocks: tuple[tuple[int, str], ...] = ()
    read_blocks_truncated: bool = False
    code_epoch: int = 0

    @property
    def success(self) -> bool:
        return self.state is TaskState.SUCCEEDED

    def return_values(self) -> list[Any]:
        """The outputs in call order, as ReturnValueResultHandler put them.

        Raises TaskFailed if the task failed, and LookupError if it had no ReturnValueResultHandler.
        """
        if not self.success:
            raise TaskFailed(self)
        for plugin in self.plugin_results:
            if plugin.plugin_name == "ReturnValueResultHandler":
                values: list[Any] = json.loads(plugin.result)
                return values
        raise LookupError("the task had no ReturnValueResultHandler, so it has no return values")


@frozen(kw_only=True)
class TaskUpdate:
    """One message of a watch. `error` is empty, "not_found" or "lease_expired"; `timestamp_ms` is wall clock."""

    task_id: TaskId
    state: TaskState | None
    is_terminal: bool
    worker_addr: str = ""
    timestamp_ms: int = 0
    result: TaskResult | None = None
    error: str = ""
    result_bytes: int = 0
    is_truncated: bool = False


@frozen
class Reservation:
    """A slot leased on a worker, or (state not ALLOCATED, slot_id empty or the run's) a task already known there."""

    worker_addr: str
    slot_id: SlotId | None
    state: TaskState = TaskState.ALLOCATED
    lease_remaining_ms: int = 0


@frozen
class Submission:
    """Where a task was accepted, and its state then.

    `is_known`: the worker had the task before, so that nothing is run anew; `payload_mismatch`: with another payload,
    which it kept.
    """

    worker_addr: str
    state: TaskState
    payload_mismatch: bool = False
    is_known: bool = False
