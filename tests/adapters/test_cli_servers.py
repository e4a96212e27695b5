"""Servers started from the command line: ready, at work, and gone in good order."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from blockx.cli.main import run
from blockx.cli.stopping import pending
from blockx.model import PluginConfig, TaskInput
from blockx.store.tables import TableStore
from blockx.testing import local_cluster
from blockx.worker.app import Outlook
from tests.cli_server import server
from tests.conftest import ROOT

HELLO = str(ROOT / "examples" / "hello")
ANY_WORKER_PORT = ["--worker-listen", "127.0.0.1:0", "--executors", "1"]
ANY_PORT = ["--coordinator-listen", "127.0.0.1:0", *ANY_WORKER_PORT]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_dev_serves_and_a_signal_ends_it_with_0(
    signum: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server("dev", HELLO, *ANY_PORT, cwd=tmp_path) as dev:
        assert list(dev.addresses) == ["coordinator", "worker"]
        assert run(["run", "hello_world", "ct2", "--coordinator", dev.addresses["coordinator"]]) == 0
        assert capsys.readouterr().out == "hello ct2\n"
        assert dev.stop(signum) == 0


def test_a_worker_alone_is_reached_directly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server("worker", "--functions", HELLO, "--listen", "127.0.0.1:0", "--executors", "1", cwd=tmp_path) as worker:
        assert run(["run", "hello_world", "ct2", "--worker", worker.addresses["worker"]]) == 0
        assert capsys.readouterr().out == "hello ct2\n"
        assert worker.stop() == 0


def test_a_coordinator_without_workers_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server("coordinator", "--listen", "127.0.0.1:0", cwd=tmp_path) as coordinator:
        address = coordinator.addresses["coordinator"]
        assert run(["submit", str(ROOT / "examples" / "hello.json"), "--coordinator", address]) == 3
        assert "worker" in capsys.readouterr().err
        assert coordinator.stop() == 0
    assert "never sees workers of other processes" in (tmp_path / "server.log").read_text()


def notices(directory: Path) -> list[str]:
    """What a server said itself, among its log lines."""
    return [line for line in (directory / "server.log").read_text().splitlines() if line.startswith("blockx: ")]


@pytest.mark.parametrize(
    ("outlook", "words"),
    [
        (None, ""),
        (Outlook(0, 0, 2_000), ""),
        (Outlook(1, 0, 2_000), "; 1 task still runs"),
        (Outlook(0, 1, 2_000), "; 1 result was not fetched yet, waiting for that at most 2 s"),
        (Outlook(3, 2, 500), "; 3 tasks still run; 2 results were not fetched yet, waiting for that at most 0.5 s"),
    ],
)
def test_an_end_says_what_is_waited_for(outlook: Outlook | None, words: str) -> None:
    assert pending(outlook) == words


async def test_a_result_that_nobody_has_fetched_is_in_the_outlook() -> None:
    async with local_cluster(HELLO, executors=1) as cluster:
        (worker,) = cluster.parts.workers
        config = PluginConfig("CallListCallConfig", {"function": "hello_world", "callList": [["ct2"]]})
        task = TaskInput(function_call_config=config)
        await cluster.client.submit(task)
        assert worker.outlook() == Outlook(1, 0, 30_000)
        while worker.outlook().running_tasks:
            await trio.lowlevel.checkpoint()
        assert worker.outlook() == Outlook(0, 1, 30_000)
        await cluster.client.result(task.task_id, worker_addr=worker.addr)
        assert worker.outlook() == Outlook(0, 0, 30_000)


def test_a_second_signal_says_that_it_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "module.py").write_text(
        "import trio\nfrom blockx import function\n\n@function\nasync def waits():\n    await trio.sleep_forever()\n"
    )
    with server("dev", "waiting", *ANY_PORT, cwd=tmp_path) as dev:
        calls = {"type": "CallListCallConfig", "config": {"function": "waits", "callList": [[]]}}
        (tmp_path / "task.json").write_text(json.dumps({"functionCallConfig": calls}))
        assert run(["submit", str(tmp_path / "task.json"), "--worker", dev.addresses["worker"]]) == 0
        dev.process.send_signal(signal.SIGTERM)
        assert dev.stop(signal.SIGINT) == 1
    assert notices(tmp_path) == [
        "blockx: stopping; 1 task still runs; a signal again stops at once",
        "blockx: stopping at once",
    ]


def test_a_setting_for_the_end_goes_before_what_dev_takes(tmp_path: Path) -> None:
    (tmp_path / "blockx.toml").write_text("[worker]\ndrain_result_wait_ms = 1\n")
    with server("dev", HELLO, *ANY_PORT, cwd=tmp_path) as dev:
        assert run(["submit", str(ROOT / "examples" / "hello.json"), "--worker", dev.addresses["worker"]]) == 0
        assert dev.stop() == 0
    assert "2 s" not in "".join(notices(tmp_path))


def test_dev_applies_a_table_schema_first(tmp_path: Path) -> None:
    schema = str(ROOT / "examples" / "erc20" / "tables.toml")
    with server("dev", HELLO, *ANY_PORT, "--tables", schema, cwd=tmp_path):
        store = TableStore.open(f"sqlite:///{tmp_path}/blockx.db")
        assert list(store.schema()) == ["transfers"]
        store.close()


@pytest.mark.parametrize("flags", [["--config", "blockx.toml"], []])
def test_settings_of_the_file_reach_the_worker(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "blockx.toml").write_text(f'[worker]\nlisten = "127.0.0.1:0"\nfunctions = "{HELLO}"\nexecutors = 1\n')
    with server("worker", *flags, cwd=tmp_path) as worker:
        assert worker.addresses["worker"] != "127.0.0.1:7071"


def blockx(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "blockx", *argv]
    environ = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_that_is_taken_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = blockx("dev", HELLO, "--coordinator-listen", address, *ANY_WORKER_PORT, cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stdout == ""
    sentence = ended.stderr.splitlines()[-1]
    assert sentence.startswith("blockx: ")
    assert "in use" in sentence
    assert "Traceback" not in ended.stderr


def test_functions_that_cannot_be_loaded_end_the_start_with_their_error(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "module.py").write_text("import no_such_module\n")
    ended = blockx("dev", "broken", *ANY_PORT, cwd=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "No module named 'no_such_module'" in ended.stderr.splitlines()[-1]


def test_a_wrong_setting_ends_the_start_with_2(tmp_path: Path) -> None:
    (tmp_path / "blockx.toml").write_text("[worker]\nslotz = 3\n")
    ended = blockx("dev", HELLO, cwd=tmp_path)
    assert ended.returncode == 2
    assert "[worker] in blockx.toml" in ended.stderr
    assert "did you mean 'slots'" in ended.stderr


def test_an_executor_without_its_worker_says_so(tmp_path: Path) -> None:
    ended = blockx("executor", "--socket", str(tmp_path / "none.sock"), cwd=tmp_path)
    assert ended.returncode == 1
    assert "cannot connect to the worker's socket" in ended.stderr
