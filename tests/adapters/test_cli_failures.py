"""Whatever goes wrong at the command line becomes one sentence and the right exit code."""

from __future__ import annotations

import errno
import os

import click
import pytest

from blockx import errors
from blockx.cli.failures import explain
from blockx.cli.main import run
from blockx.model import CallErrorCode, FailedCall, FailureCode, TaskResult, TaskState

FAILED_CALL = FailedCall(
    index=3,
    function="decode",
    arguments="{'idx': 1}",
    attempts=2,
    code=CallErrorCode.EXCEPTION,
    message="boom",
    traceback="Traceback …",
)
FAILED = TaskResult(
    state=TaskState.FAILED, failure_code=FailureCode.CALL_FAILED, failure_message="boom", failed_call=FAILED_CALL
)


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (errors.NotFound("no such task"), 1, "no such task"),
        (errors.ConfigError("slots is wrong"), 2, "slots is wrong"),
        (errors.ConfigError("do this:\nALTER TABLE …"), 2, "do this:\nALTER TABLE …"),
        (errors.LoadFailed("no module\nTraceback …"), 1, "no module; --debug shows where"),
        (errors.InvalidArgument("bad task"), 2, "bad task"),
        (click.UsageError("No such option."), 2, "No such option."),
        (errors.Unavailable("nobody there"), 3, "nobody there"),
        (errors.NoSlot("all full"), 3, "all full"),
        (errors.DeadlineExceeded("too slow"), 4, "too slow"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            errors.TaskFailed(FAILED, "t"),
            1,
            "task t failed: CALL_FAILED: boom (called as decode({'idx': 1}); --debug shows its traceback)",
        ),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.db"), 1, "x.db: No space left on device"),
        (RuntimeError("bug"), 1, "unexpected RuntimeError: bug; --debug shows where"),
        (
            errors.TaskFailed(FAILED),
            1,
            "the task failed: CALL_FAILED: boom (called as decode({'idx': 1}); --debug shows its traceback)",
        ),
    ],
)
def test_an_error_has_a_sentence_and_an_exit_code(error: BaseException, code: int, sentence: str) -> None:
    assert explain(error) == (sentence, code)


def test_a_group_of_errors_is_told_by_its_first_cause() -> None:
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [errors.Unavailable("gone"), ValueError("later")])])
    assert explain(group) == ("gone", 3)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["subimt"], "No such command 'subimt'"),
        (["tables", "show"], "Missing argument 'NAME'. See `blockx tables show --help`."),
        (["submit", "missing.json"], "'missing.json': No such file"),
        (["dev", "missing"], "Directory 'missing' does not exist"),
        (["worker", "--registry", "etcd://127.0.0.1:2379"], "is not supported by this version"),
        (["worker"], "functions is not set; give it as --functions"),
        (["run", "f", "--timeout", "0"], "--timeout"),
    ],
)
def test_bad_usage_is_said_on_stderr_and_ends_with_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("blockx: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("argv", [["--debug", "tables", "show", "x"], ["tables", "show", "x", "--debug"]])
def test_debug_shows_the_traceback_at_either_end_of_the_line(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOCKX_DATABASE", "oracle://nowhere")
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert "Traceback (most recent call last)" in captured.err
    assert captured.err.splitlines()[-1].startswith("blockx: ")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["dev"],
        ["worker"],
        ["coordinator"],
        ["executor"],
        ["submit"],
        ["watch"],
        ["result"],
        ["run"],
        ["tables", "apply"],
        ["tables", "show"],
        ["bundles", "import"],
        ["bundles", "list"],
    ],
)
def test_every_command_explains_itself_with_an_example(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*argv, "--help"]) == 0
    assert ("Example:" if argv else "Try it:") in capsys.readouterr().out
