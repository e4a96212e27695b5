"""Functions that do to their process what could end it, or split it in two: their call ends, the executor goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from blockx.wire import messages as m
from blockx.wire.values import unpack_value
from tests.adapters.executor_peer import first_id
from tests.adapters.executor_process import Running, running

FUNCTIONS = """
import multiprocessing, os, subprocess, sys, threading

import trio
from blockx import ReadError, function

kept = []

def seven():
    sys.exit(7)

@function
def add(a, b):
    return a + b

@function
def forks_and_returns():
    return os.fork()

@function
def forks_and_raises():
    if os.fork() == 0:
        print("printed by the child")
        raise ValueError("of the child")
    return os.wait()[1]

@function
async def forks_and_reads(ctx):
    child = os.fork()
    return [child, await ctx.tables["t"].get(1)]

@function
async def forks_in_a_task():
    pids = []
    async def fork():
        pids.append(os.fork())
        if pids == [0]:
            await trio.sleep_forever()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fork)
    return pids[0]

@function
def forks_in_a_thread():
    pids = []
    thread = threading.Thread(target=lambda: pids.append(os.fork()))
    thread.start()
    thread.join()
    return pids[0]

@function
def forks_and_exits(kind):
    child = os.fork()
    if child == 0:
        if kind == "os._exit":
            os._exit(3)
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

@function
def writes(text):
    os.write(1, text.encode())

@function
def runs_a_process():
    return subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout

@function
def runs_python(method):
    process = multiprocessing.get_context(method).Process(target=seven)
    process.start()
    process.join()
    return process.exitcode

@function
def uses_up_descriptors():
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return len(kept)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "hostile_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return tmp_path / "code"


async def ended(pid: int) -> None:
    """Wait until a process has ended; it may have done so before."""
    fd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


async def serves_on(executor: Running) -> None:
    """The executor answers later calls, once each, and ends when it is told to."""
    for start in range(5):
        executor.peer.execute("add", *[[n, start] for n in range(50)], first=50 * start)
    assert len(await executor.peer.values(250)) == 250
    executor.peer.say(m.Shutdown(60_000))
    while batch := await executor.peer.stream.receive():
        executor.peer.unheard += batch
    answers = [message for message in executor.peer.unheard if isinstance(message, m.CallsCompleted | m.CallFailed)]
    assert answers == []
    await executor.process.wait()
    assert executor.process.returncode == 0


@pytest.mark.parametrize("function", ["forks_and_returns", "forks_in_a_task", "forks_in_a_thread"])
async def test_a_child_that_goes_on_after_a_fork_is_no_second_executor(
    tmp_path: Path, code: Path, function: str
) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code)
        executor.peer.open()
        executor.peer.execute(function, [], [], [])
        children = (await executor.peer.values(3)).values()
        assert len(set(children)) == 3
        assert 0 not in children
        for child in children:
            await ended(child)
        await serves_on(executor)


async def test_a_child_begins_no_call_that_waits_for_its_turn(tmp_path: Path, code: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code)
        executor.peer.open()
        executor.peer.execute("forks_and_returns", [])
        executor.peer.execute("writes", *[[f"{n} "] for n in range(5)], first=1)
        await ended((await executor.peer.values(6))[first_id(1)])
        await serves_on(executor)
        assert await executor.output() == "0 1 2 3 4 "


async def test_a_child_that_goes_on_to_read_ends_instead(tmp_path: Path, code: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code)
        executor.peer.open()
        executor.peer.execute("forks_and_reads", [])
        waiting, requests = await executor.peer.asked()
        assert len(requests) == 1
        executor.peer.answer(waiting, [{"a": 1}])
        child, row = await executor.peer.value()
        assert row == {"a": 1}
        await ended(child)
        await serves_on(executor)


async def test_what_a_child_prints_and_raises_is_written_to_stderr(tmp_path: Path, code: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code)
        executor.peer.open()
        status = await executor.peer.outcome("forks_and_raises")
        assert os.waitstatus_to_exitcode(status) == 1
        await serves_on(executor)
        output = await executor.output()
    assert output.startswith("printed by the child\n")
    assert "forked off by a function, ends with an exception\n" in output
    assert output.endswith("ValueError: of the child\n")


async def test_processes_that_functions_start_and_end_work_as_anywhere(tmp_path: Path, code: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code)
        executor.peer.open()
        assert await executor.peer.outcome("forks_and_exits", "os._exit") == 3
        assert await executor.peer.outcome("forks_and_exits", "sys.exit") == 3
        assert await executor.peer.outcome("runs_a_process") == "hello\n"
        assert await executor.peer.outcome("runs_python", "spawn") == 7
        assert await executor.peer.outcome("runs_python", "fork") == 7
        await serves_on(executor)


async def test_an_executor_without_descriptors_goes_on_beating(tmp_path: Path, code: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(code, heartbeat_ms=1)
        executor.peer.open()
        assert await executor.peer.outcome("uses_up_descriptors") > 10
        executor.peer.unheard.clear()
        for _ in range(3):
            assert (await executor.peer.hear(m.Heartbeat)).rss_bytes > 1_000_000
        failed = await executor.peer.failure("runs_a_process")
        assert failed.error[:2] == ["EXCEPTION", "OSError"]
        assert unpack_value((await after_add(executor)).values[0]) == 3


async def after_add(executor: Running) -> m.CallsCompleted:
    executor.peer.execute("add", [1, 2])
    return await executor.peer.hear(m.CallsCompleted)
