"""What every test may use, and how strict a run is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

ROOT = Path(__file__).parents[1]

settings.register_profile("same-every-time", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("searching", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same-every-time"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run, as in CI")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("--fail-on-skip"):
        return
    skipped = len(reporter.stats.get("skipped", ()))
    if skipped and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\n{skipped} skipped: with --fail-on-skip that fails the run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _logs_go_where_they_went_before() -> Iterator[None]:
    """A command that was run inside a test has sent the log to that test's stderr, which is then closed."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of real chain data: `../shared/data` beside the project, or BLOCKX_REALDATA."""
    path = Path(os.environ.get("BLOCKX_REALDATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real chain data at {path}; BLOCKX_REALDATA may name its directory")
    return path
