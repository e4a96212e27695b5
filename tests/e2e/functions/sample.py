"""Functions that behave, and functions that do what users' code does on a bad day."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import trio
import trio.lowlevel

from blockx import Context, RetryableError, function


@function(name="hello_world")
def hello(name: str) -> str:
    return f"hello {name}"


@function
async def hello_later(name: str) -> str:
    await trio.lowlevel.checkpoint()
    return f"hello {name}"


@function
def noop(index: int) -> int:
    return index


@function
def echo(value: Any) -> Any:
    return value


@function
def repeat(text: str, times: int) -> str:
    return text * times


@function
def power_of_two(exponent: int) -> int:
    return int(2**exponent)


@function
def raises(message: str) -> None:
    raise ValueError(message)


@function
def returns_a_lock() -> Any:
    return {"inner": [1, threading.Lock()]}


@function
def prints(text: str) -> str:
    print(text)
    print(text, file=sys.stderr)
    return text


@function
def exits() -> None:
    sys.exit(7)


@function
def kills_its_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@function
def kills_its_process_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt


@function
def fails_at_first(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise RetryableError("not yet")
    return ctx.attempt


@function
async def waits_at_gate(ctx: Context, path: str) -> dict[str, Any]:
    """Says over one pipe which process runs it, then waits at another until it may pass."""
    arrivals, passes = os.open(f"{path}.arrivals", os.O_WRONLY), os.open(f"{path}.passes", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.write(arrivals, f"{ctx.attempt} {os.getpid()}".encode())
        await trio.lowlevel.wait_readable(passes)
        os.read(passes, 1)
    finally:
        os.close(arrivals)
        os.close(passes)
    return {"attempt": ctx.attempt, "task": ctx.task_id, "index": ctx.call_index}


@function
def spins_for_ever() -> None:
    while True:
        pass


@function
async def sleeps_for_ever() -> None:
    await trio.sleep_forever()


@function
async def read_token(ctx: Context, key: str) -> Any:
    return await ctx.tables["tokens"].get(key)


@function
def transfer_row(ctx: Context, event: dict[str, Any]) -> dict[str, Any] | None:
    """An ERC-20 transfer as a row; None for any other event."""
    topics = event["topics"]
    is_transfer = topics and topics[0] == TRANSFER and len(topics) == 3 and len(event["data"]) == 66
    if not is_transfer or ctx.block is None:
        return None
    return {
        "block_id": ctx.block.id,
        "tx_id": event["tx_id"],
        "idx": event["idx"],
        "height": ctx.block.height,
        "token": event["contract_id"],
        "sender": f"0x{topics[1][-40:]}",
        "recipient": f"0x{topics[2][-40:]}",
        "value": int(event["data"], 16),
    }


TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@function
def token_row(key: str, value: Any) -> dict[str, Any]:
    return {"id": key, "supply": value}
