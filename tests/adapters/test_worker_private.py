from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from blockx.worker.private import private_directory


def test_the_directory_is_the_workers_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    with private_directory(str(tmp_path / "state")) as name:
        directory = Path(name)
        assert directory.parent == tmp_path / "state"
        assert directory.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "state").iterdir()) == []


def test_what_a_killed_worker_left_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"blockx-worker-{ended.pid}-abc").mkdir()
    (tmp_path / f"blockx-worker-{ended.pid}-abc" / "result.json").write_text("[]")
    (tmp_path / f"blockx-worker-{os.getpid()}-def").mkdir()
    (tmp_path / "blockx-worker-notes").mkdir()
    with private_directory(str(tmp_path)):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {f"blockx-worker-{os.getpid()}-def", "blockx-worker-notes"}
