"""Functions that the executor's tests call: well-behaved, awkward and hostile ones."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import trio

from blockx import Context, ReadError, RetryableError, function

leak: contextvars.ContextVar[str] = contextvars.ContextVar("leak", default="clean")
kept: list[Context] = []
started: list[int] = []
cancelled: list[trio.Cancelled] = []


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@function
def add(a: int, b: int = 10, *, c: int = 100) -> int:
    return a + b + c


@function(name="renamed")
async def original(value: Any) -> Any:
    return value


@function
async def nap(seconds: float, value: Any) -> Any:
    await trio.sleep(seconds)
    return value


@function
def about(ctx: Context) -> dict[str, Any]:
    return {"block": ctx.block, "task": ctx.task_id, "index": ctx.call_index, "attempt": ctx.attempt}


@function
def everything(ctx: Context, *args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@function
async def row(ctx: Context, key: Any) -> Any:
    return await ctx.tables["tokens"].get(key)


@function
async def row_after_row(ctx: Context, keys: list[Any]) -> list[Any]:
    return [await ctx.tables["tokens"].get(key) for key in keys]


@function
async def rows(ctx: Context) -> list[Any]:
    many = await ctx.tables["tokens"].get_many(["a", ("b", 1)], columns=("symbol",))
    some = await ctx.tables["tokens"].scan([["n", ">", 1]], order=["-n"], limit=2)
    return [many, some, await ctx.bundles.get(1, "0xab")]


@function
async def rows_at_once(ctx: Context, keys: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def one(key: str) -> None:
        found[key] = await ctx.tables["tokens"].get(key)

    async with trio.open_nursery() as nursery:
        for key in keys:
            nursery.start_soon(one, key)
    return dict(sorted(found.items()))


@function
async def caught_read(ctx: Context) -> str:
    try:
        await ctx.tables["tokens"].get("x")
    except ReadError as error:
        return f"caught {error} {error.retryable}"
    return "read"


@function
async def impatient_row(ctx: Context) -> Any:
    with trio.move_on_after(1):
        return await ctx.tables["tokens"].get("slow")
    return await ctx.tables["tokens"].get("quick")


@function
def raises(message: str) -> None:
    try:
        raise KeyError("cause")
    except KeyError as error:
        raise ValueError(message) from error


@function
def raises_unprintable() -> None:
    raise Unprintable


@function
async def raises_in_nursery(retryable: bool) -> None:
    async def fail() -> None:
        raise RetryableError("later") if retryable else LookupError("never")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)


@function
def not_yet() -> None:
    raise RetryableError("try again")


@function
def exits(kind: str) -> None:
    if kind == "sys.exit":
        sys.exit(3)
    raise KeyboardInterrupt


@function
async def awaits_nonsense() -> None:
    class Nonsense:
        def __await__(self) -> Any:
            yield "not trio"

    await Nonsense()


@function
def returns_lock() -> Any:
    return [1, {"lock": threading.Lock()}]


@function
def returns_bytes(size: int) -> bytes:
    return bytes(size)


@function
def counted_bytes(number: int, size: int) -> bytes:
    started.append(number)
    return bytes(size)


@function
def leaks_context(value: str) -> str:
    before = leak.get()
    leak.set(value)
    return before


@function
async def leaks_context_later(value: str) -> str:
    before = leak.get()
    leak.set(value)
    await trio.sleep(1)
    return before + leak.get()


@function
def prints(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)  # noqa: T201  # printing is what is tested


@function
async def prints_everywhere() -> None:
    async def child() -> None:
        print("from a child")  # noqa: T201

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
    await trio.to_thread.run_sync(print, "from a thread")
    await trio.sleep(1)


@function
def logs(ctx: Context) -> None:
    ctx.log.debug("plain %d%%", 1)
    ctx.log.info({"n": 1})
    ctx.log.warning("w")
    ctx.log.error("e")
    ctx.log.critical("c")
    try:
        raise ValueError("inner")
    except ValueError:
        ctx.log.exception("it %s", "broke")


@function
async def floods(lines: int) -> None:
    for _ in range(lines):
        print("x" * 1_000)  # noqa: T201


@function
async def stubborn(ctx: Context) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await ctx.tables["tokens"].get("cleanup")


@function
async def swallows_cancellation() -> str:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return "swallowed"


@function
async def leaves_scope_open(kind: str) -> str:
    async def numbers() -> AsyncIterator[int]:
        if kind == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                yield 1
        else:
            with trio.move_on_after(100):
                yield 1

    source = numbers()
    kept_sources.append(source)
    return f"got {await anext(source)}"


kept_sources: list[AsyncIterator[int]] = []


@function
def keeps_context(ctx: Context) -> None:
    kept.append(ctx)


@function
async def uses_kept_context() -> Any:
    return await kept.pop().tables["tokens"].get("x")


@function
def busy(microseconds: int) -> None:
    end = time.perf_counter_ns() + microseconds * 1_000
    while time.perf_counter_ns() < end:
        pass


class SaysExit(Exception):
    """Its texts leave the program."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


def _refuse(error: Any) -> Any:
    raise ValueError("not today")


_ASKED = ("__class__", "__traceback__", "__cause__", "__context__", "__suppress_context__", "__notes__")
Lies = type("Lies", (Exception,), {name: property(_refuse) for name in _ASKED})
"""Whatever is asked of it raises."""


class LyingRead(ReadError):
    @property
    def retryable(self) -> Any:
        raise KeyboardInterrupt

    @retryable.setter
    def retryable(self, value: Any) -> None: ...


class SlyText(str):
    __slots__ = ()

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        raise SystemExit(4)


class SaysSlyText(Exception):
    def __str__(self) -> str:
        return SlyText("sly")


class LyingGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise SystemExit(5)

    def derive(self, excs: Any) -> Any:
        raise SystemExit(6)


AWKWARD: dict[str, Callable[[], BaseException]] = {
    "says exit": SaysExit,
    "lies": Lies,
    "lying read": lambda: LyingRead("read"),
    "sly text": SaysSlyText,
    "lying group": lambda: LyingGroup("group", [ValueError("a"), ValueError("b")]),
    "huge integer": lambda: ValueError(1 << 100_000),
    "generator exit": GeneratorExit,
    "stop": lambda: StopIteration(3),
    "surrogate": lambda: ValueError("\ud800"),
}


@function
def raises_awkward(kind: str) -> None:
    raise AWKWARD[kind]()


@function
async def raises_awkward_later(kind: str) -> None:
    await trio.lowlevel.checkpoint()
    raise AWKWARD[kind]()


@function
async def keeps_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            cancelled.append(error)
            raise


@function
def raises_kept_cancelled(in_group: bool) -> None:
    raise BaseExceptionGroup("kept", [cancelled[0], ValueError("beside")]) if in_group else cancelled[0]


@function
async def raises_kept_cancelled_later(in_group: bool) -> None:
    await trio.lowlevel.checkpoint()
    raises_kept_cancelled(in_group)
