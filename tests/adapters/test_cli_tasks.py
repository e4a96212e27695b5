"""The commands for tasks against a cluster that `blockx dev` runs."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from blockx.cli.main import run
from tests.cli_server import server

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
    through: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", task_file(tmp_path, task_id="t-watched"), "--watch", *through]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == [["ct2"], [2**70]]
    assert captured.err == "t-watched SUCCEEDED\n"


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
    through: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "fails", "ouch", *through]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("blockx: the task failed: CALL_FAILED: ")
    assert "ouch" in captured.err
    assert captured.err.count("\n") == 1
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


def test_an_unknown_task_is_not_found(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["result", "t-unknown", "--worker", cluster["worker"]]) == 1
    assert "t-unknown" in capsys.readouterr().err
    assert run(["watch", "t-unknown", "--worker", cluster["worker"], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "not_found"


def test_a_call_that_never_ends_times_out(through: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "waits", "--timeout", "0.5", *through]) == 4
    assert "not done after 0.5 s" in capsys.readouterr().err


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
