"""A server of the command line as a child process: started, waited for until it is ready, ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tests.conftest import ROOT

READY_WITHIN_S = 60
ENDED_WITHIN_S = 60


@frozen
class Server:
    """`addresses` are those of its ready line, by part."""

    process: subprocess.Popen[str]
    addresses: dict[str, str]

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(signum)
        return self.process.wait(ENDED_WITHIN_S)


@contextmanager
def server(*argv: str, cwd: Path) -> Iterator[Server]:
    """Run `blockx ARGV…` in a directory, with its log in server.log there."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DRAIN_LINGER_MS": "50"}
    with (cwd / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "blockx", *argv], cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield Server(process, _ready_line(process, cwd / "server.log"))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _ready_line(process: subprocess.Popen[str], log: Path) -> dict[str, str]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
    line = process.stdout.readline() if readable else ""
    assert line.startswith("ready "), f"not ready: {line!r}\n{log.read_text()}"
    return dict(part.split("=", 1) for part in line.split()[1:])
