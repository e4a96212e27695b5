"""A worker's own directory for its socket and its large results; those of workers that were killed are cleared away."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = re.compile(r"blockx-worker-(\d+)-.*")


@contextmanager
def private_directory(parent: str) -> Iterator[str]:
    """A directory of mode 0700 in `parent` (empty: the system's temporary directory), removed at the end."""
    root = Path(parent or tempfile.gettempdir())
    root.mkdir(parents=True, exist_ok=True)
    clear_abandoned(root)
    with tempfile.TemporaryDirectory(prefix=f"blockx-worker-{os.getpid()}-", dir=root) as directory:
        yield directory


def clear_abandoned(root: Path) -> None:
    """Remove what workers of this user left that no longer run: nobody can fetch those results any more."""
    for path in root.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir() and path.stat().st_uid == os.getuid() and not Path("/proc", match[1]).exists():
            shutil.rmtree(path, ignore_errors=True)
