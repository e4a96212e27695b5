"""The commands for tasks against a cluster that `blockx dev` runs."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from blockx.cli.main import run
from tests.cli_server import server
from tests.conftest import ROOT

FUNCTIONS = """
import trio
from blockx import function

@function
def echo(*values):
    return list(values)

@function
def text(value):
    return value

@function
def fails(reason):
    raise ValueError(reason)

@function
async def waits():
    await trio.sleep_forever()
"""
TASK = {
    "functionCallConfig": {
        "type": "CallListCallConfig",
        "config": {"function": "echo", "callList": [["ct2"], [2**70]]},
    },
    "resultHandler": {"type": "ReturnValueResultHandler"},
}
Cluster = Mapping[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "functions").mkdir()
    (directory / "functions" / "some.py").write_text(FUNCTIONS)
    any_port = ["--coordinator-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0"]
    with server("dev", "functions", *any_port, "--executors", "1", cwd=directory) as dev:
        yield dev.addresses


@pytest.fixture
def through(cluster: Cluster) -> list[str]:
    return ["--coordinator", cluster["coordinator"]]


def task_file(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "task.json"
    path.write_text(json.dumps(TASK | changes))
    return str(path)


def test_submit_and_watch_prints_what_the_handler_returned(
    cluster: Cluster, through: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", task_file(tmp_path, task_id="t-watched"), "--watch", *through]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [["ct2"], [2**70]]
    assert captured.err.splitlines() == [f"t-watched accepted by {cluster['worker']}", "t-watched SUCCEEDED"]


def test_a_known_task_is_not_run_again_and_that_is_said(
    cluster: Cluster, through: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = task_file(tmp_path, task_id="t-known"), {"type": "CallListCallConfig", "config": {}}
    assert run(["submit", known, "--watch", *through]) == 0
    capsys.readouterr()
    assert run(["submit", known, "--watch", *through]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [["ct2"], [2**70]]
    assert f"t-known is known already to {cluster['worker']}; it is not run again" in captured.err
    assert "another payload" not in captured.err
    assert "accepted" not in captured.err
    assert run(["submit", task_file(tmp_path, task_id="t-known", resultHandler=other), "--watch", *through]) == 0
    captured = capsys.readouterr()
    assert "known already" in captured.err
    assert "with another payload, which was kept" in captured.err


def test_a_task_is_read_from_stdin_and_followed_by_its_id(
    cluster: Cluster, through: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(TASK | {"task_id": "t-stdin"}).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run(["submit", "-", *through]) == 0
    assert capsys.readouterr().out == f"t-stdin RUNNING on {cluster['worker']}\n"
    assert run(["watch", "t-stdin", "--worker", cluster["worker"]]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "t-stdin SUCCEEDED"
    assert run(["result", "t-stdin", "--worker", cluster["worker"], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task_id"], found["state"], found["success"]) == ("t-stdin", "SUCCEEDED", True)
    assert found["executeResult"]["pluginResults"][0]["result"] == [["ct2"], [2**70]]


def test_submitting_a_known_id_with_another_payload_is_pointed_out(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directly = ["--worker", cluster["worker"], "--json"]
    assert run(["submit", task_file(tmp_path, task_id="t-twice"), "--watch", *directly]) == 0
    capsys.readouterr()
    assert run(["submit", task_file(tmp_path, task_id="t-twice", resultHandler=None), *directly]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "task_id": "t-twice",
        "workerAddr": cluster["worker"],
        "state": "SUCCEEDED",
        "isKnown": True,
        "payloadMismatch": True,
    }
    assert "another payload" in captured.err


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["ct2"], ["ct2"]),
        (["7", "-7", "1.5", "true", "null"], [7, -7, 1.5, True, None]),
        (['{"a": [1]}', "[2]", '"7"'], [{"a": [1]}, [2], "7"]),
        (["NaN", "not json", "0x10"], ["NaN", "not json", "0x10"]),
        ([], []),
    ],
)
def test_run_takes_arguments_as_json_or_else_as_text(
    through: list[str], args: list[str], value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", *through, "echo", *args]) == 0
    assert json.loads(capsys.readouterr().out) == value


def test_run_prints_a_text_as_it_is_and_as_json_where_asked(
    through: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "text", "ct2", *through]) == 0
    assert capsys.readouterr().out == "ct2\n"
    assert run(["run", "text", "ct2", "--json", *through]) == 0
    assert capsys.readouterr().out == '"ct2"\n'


def test_a_function_that_raises_is_told_in_one_sentence_and_its_traceback_on_demand(
    cluster: Cluster, through: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "fails", "ouch", *through]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    accepted, failed = captured.err.splitlines()
    task_id = accepted.removesuffix(f" accepted by {cluster['worker']}")
    assert failed.startswith(f"blockx: task {task_id} failed: CALL_FAILED: ")
    assert "ouch" in failed
    assert run(["run", "fails", "ouch", "--debug", *through]) == 1
    assert "raise ValueError(reason)" in capsys.readouterr().err


def test_a_failed_task_is_printed_as_json_too(
    through: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"type": "CallListCallConfig", "config": {"function": "ecko", "callList": [[]]}}
    assert run(["submit", task_file(tmp_path, functionCallConfig=wrong), "--watch", "--json", *through]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "FAILED"
    assert found["executeResult"]["failureCode"] == "CALL_FAILED"
    assert found["executeResult"]["failedCall"]["code"] == "FUNCTION_NOT_FOUND"


def test_a_call_that_fails_is_printed_as_json_too_and_a_watch_tells_why(
    cluster: Cluster, through: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "fails", "ouch", "--json", *through]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["executeResult"]["failureCode"]) == ("FAILED", "CALL_FAILED")
    assert run(["watch", found["task_id"], "--worker", cluster["worker"]]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{found['task_id']} FAILED CALL_FAILED: ")
    assert "ouch" in line


def test_an_unknown_task_is_not_found(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["result", "t-unknown", "--worker", cluster["worker"]]) == 1
    assert "t-unknown" in capsys.readouterr().err
    assert run(["watch", "t-unknown", "--worker", cluster["worker"], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "not_found"


def test_a_call_that_never_ends_times_out(through: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "waits", "--timeout", "0.5", *through]) == 4
    accepted, sentence = capsys.readouterr().err.splitlines()
    task_id, _, worker = accepted.partition(" accepted by ")
    assert sentence == (
        f"blockx: not done after 0.5 s; task {task_id} was accepted by {worker} and goes on: "
        f"`blockx watch {task_id} --worker {worker}`"
    )


def test_a_full_worker_is_told_with_the_task_that_it_did_not_accept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "some.py").write_text(FUNCTIONS)
    argv = ["--functions", "functions", "--listen", "127.0.0.1:0", "--executors", "1", "--slots", "1"]
    with server("worker", *argv, cwd=tmp_path) as worker:
        there = ["--worker", worker.addresses["worker"]]
        assert run(["run", "waits", "--timeout", "0.5", *there]) == 4
        capsys.readouterr()
        assert run(["submit", task_file(tmp_path, task_id="t-refused"), *there]) == 3
        assert "; task t-refused was not accepted yet" in capsys.readouterr().err
        assert run(["submit", task_file(tmp_path, task_id="t-late"), "--watch", "--timeout", "0.5", *there]) == 4
        assert "; task t-late was not accepted yet" in capsys.readouterr().err


def test_an_interrupt_says_where_the_task_goes_on(through: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "blockx", "run", "waits", *through],
        env={"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        task_id, _, worker = waiting.stderr.readline().rstrip().partition(" accepted by ")
        waiting.send_signal(signal.SIGINT)
        (sentence,) = waiting.stderr.read().splitlines()
    assert waiting.returncode == 130
    assert sentence.startswith(f"blockx: interrupted; task {task_id} was accepted by {worker} and goes on")


@pytest.mark.parametrize(
    ("argv", "said", "instead"),
    [
        (["run", "echo", "--worker"], "coordinator", "use --coordinator"),
        (["result", "t", "--worker"], "coordinator", "use --coordinator"),
        (["run", "echo", "--coordinator"], "worker", "use --worker"),
    ],
)
def test_a_server_of_the_other_kind_is_told(
    cluster: Cluster, argv: list[str], said: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*argv, cluster[said]]) == 2
    assert f"that is a {said}; {instead}" in capsys.readouterr().err


def test_a_coordinator_and_a_worker_are_not_given_both(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "echo", "--coordinator", cluster["coordinator"], "--worker", cluster["worker"]]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_an_address_that_is_none_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "echo", "--coordinator", "foo"]) == 2
    assert "'foo', which is no HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"functionCalConfig": {}}', "did you mean 'functionCallConfig'"),
        ('{"functionCallConfig": {"type": "x"}, "taskTimeoutMs": -1}', "timeout"),
    ],
)
def test_a_bad_task_is_bad_usage(
    through: list[str], tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert run(["submit", str(path), *through]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--coordinator", "--worker"])
def test_nobody_there_is_out_of_reach_and_says_what_to_do(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:  # bound, but not listening
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        assert run(["submit", task_file(tmp_path), flag, address]) == 3
    captured = capsys.readouterr()
    assert address in captured.err
    assert "`blockx dev DIR` starts a cluster here" in captured.err
    assert "accepted" not in captured.err


def test_on_a_terminal_it_is_said_at_once_for_whom_is_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with socket.socket() as held:  # bound, but not listening
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        argv = ["submit", task_file(tmp_path, task_id="t-waits"), "--watch", "--timeout", "1", "--coordinator", address]
        assert run(argv) == 3
    shown = capsys.readouterr().err
    assert f"waiting for t-waits: no coordinator answers: {address} cannot be reached" in shown
