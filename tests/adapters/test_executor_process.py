"""Executors as real processes, spoken to over a Unix socket."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from blockx.wire import messages as m
from tests.adapters.executor_process import ROOT, running, start

FUNCTIONS = """
import os, signal, time
from blockx import function

print("printed at import")

@function
def token_seen():
    return [name for name in os.environ if "TOKEN" in name]

@function
def interrupt_me():
    os.kill(os.getpid(), signal.SIGINT)
    return "alive"

@function
def writes_to_fd_1():
    os.write(1, b"straight to fd 1\\n")
    print("printed")
    return "written"

@function
def spins():
    os.write(1, b"spinning\\n")
    while True:
        pass
"""


def functions_in(directory: Path) -> Path:
    (directory / "code").mkdir()
    (directory / "code" / "process_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return directory / "code"


async def test_a_process_serves_until_it_is_shut_down(tmp_path: Path) -> None:
    async with running(tmp_path) as executor:
        hello = await executor.peer.hear(m.Hello)
        assert (hello.token, hello.pid) == ("secret", executor.process.pid)
        assert await executor.peer.welcome(functions_in(tmp_path)) == [
            "interrupt_me",
            "spins",
            "token_seen",
            "writes_to_fd_1",
        ]
        executor.peer.open()
        assert await executor.peer.outcome("token_seen") == []
        assert await executor.peer.outcome("interrupt_me") == "alive"
        assert await executor.peer.outcome("writes_to_fd_1") == "written"
        assert (await executor.peer.hear(m.CallLog)).message == "printed"
        executor.peer.say(m.Shutdown(60_000))
        assert await executor.output() == "printed at import\nstraight to fd 1\n"
        assert await executor.process.wait() == 0


async def test_a_process_ends_quietly_when_its_worker_closes(tmp_path: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(functions_in(tmp_path))
        await executor.connection.aclose()
        assert await executor.output() == "printed at import\n"
        assert await executor.process.wait() == 0


async def test_a_process_that_is_stuck_in_a_function_does_not_outlive_its_worker(tmp_path: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(functions_in(tmp_path))
        executor.peer.open()
        executor.peer.execute("spins", [])
        assert executor.process.stdout is not None
        seen = b""
        while b"spinning" not in seen:
            seen += await executor.process.stdout.receive_some()
        await executor.connection.aclose()
        assert await executor.process.wait() == 1


async def test_a_malformed_frame_ends_the_process_with_a_clear_line(tmp_path: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(functions_in(tmp_path))
        await executor.connection.send_all(b"\x00\x00\x00\x02\x92\x7f")
        assert (
            "the connection to the worker was closed: a frame of 2 bytes is of no known kind" in await executor.output()
        )
        assert await executor.process.wait() == 1


async def test_functions_that_do_not_load_end_the_process_after_telling_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    async with running(tmp_path) as executor:
        await executor.peer.hear(m.Hello)
        executor.peer.say(m.Welcome(m.PROTOCOL_VERSION, "worker", {}, str(tmp_path), ""))
        assert "no_such_module_anywhere" in (await executor.peer.hear(m.LoadFailed)).error
        assert await executor.process.wait() == 1


async def test_the_token_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n", encoding="utf-8")
    async with running(tmp_path, "--token-file", str(tmp_path / "token"), token="ignored") as executor:
        assert (await executor.peer.hear(m.Hello)).token == "from a file"


async def test_a_token_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    process = await start(["--socket", "x", "--token-file", str(tmp_path / "none")])
    assert process.stdout is not None
    async with process.stdout:
        text = b"".join([bytes(part) async for part in process.stdout]).decode()
    assert "the token file cannot be read" in text
    assert await process.wait() == 2


async def test_a_socket_that_is_not_there_is_said(tmp_path: Path) -> None:
    process = await start(["--socket", str(tmp_path / "none")])
    assert process.stdout is not None
    async with process.stdout:
        text = b"".join([bytes(part) async for part in process.stdout]).decode()
    assert "cannot connect to the worker's socket" in text
    assert await process.wait() == 1


async def test_sigterm_ends_a_process(tmp_path: Path) -> None:
    async with running(tmp_path) as executor:
        await executor.peer.greet(functions_in(tmp_path))
        executor.process.terminate()
        assert await executor.process.wait() == -signal.SIGTERM


def test_importing_blockx_and_its_sdk_stays_light() -> None:
    program = "import sys, blockx, blockx.sdk; blockx.function, blockx.Context; print(*sys.modules)"
    environment = {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in loaded.stdout.split()}
    heavy = {"sqlalchemy", "grpc", "purerpc", "h2", "rich", "click", "structlog", "google", "trio", "msgpack", "cattrs"}
    assert modules & heavy == set()


def test_an_executor_loads_no_grpc_no_database_and_no_console() -> None:
    program = "import sys, blockx.executor.app; print(*sys.modules)"
    environment = {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert modules & {"sqlalchemy", "grpc", "purerpc", "h2", "rich", "click", "structlog", "google", "cattrs"} == set()
