"""What local_cluster does with settings and logs."""

from __future__ import annotations

import pytest
import structlog
import structlog.testing

from blockx.errors import ConfigError
from blockx.testing import local_cluster
from tests.conftest import ROOT

HELLO = ROOT / "examples" / "hello"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("EXECUTOR_SILENCE_M", "EXECUTOR_SILENCE_MS"),
        ("TASK_DEADLIN_MS", "TASK_DEADLINE_MS"),
        ("task_deadline_ms", "TASK_DEADLINE_MS"),
        ("DATABASE", "BLOCKX_DATABASE"),
    ],
)
async def test_a_misspelt_setting_is_refused(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"env has '{key}', which is no setting .did you mean '{meant}'"):
        async with local_cluster(HELLO, env={key: "1"}):
            raise AssertionError("entered")


async def test_a_cluster_says_nothing_of_its_well_being_and_leaves_logging_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with local_cluster(HELLO, executors=1, env={"HOME": "/root", "PATH": "/bin", "LANG": "C"}):
        structlog.get_logger("mine").warning("a warning")
    captured = capfd.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "a warning" in line
    assert not structlog.is_configured()


async def test_a_program_that_has_configured_its_log_gets_all_lines() -> None:
    with structlog.testing.capture_logs() as lines:
        structlog.configure(processors=structlog.get_config()["processors"])
        async with local_cluster(HELLO, executors=1):
            pass
    assert "worker serves" in [line["event"] for line in lines]
