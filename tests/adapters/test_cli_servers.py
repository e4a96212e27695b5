"""Servers started from the command line: ready, at work, and gone in good order."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from blockx.cli.main import run
from blockx.store.tables import TableStore
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
