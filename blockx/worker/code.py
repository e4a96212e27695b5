"""The functions that a worker serves: where their code lies, its digest, and which names it has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from attrs import evolve, frozen

from blockx.errors import ConfigError


@frozen
class CodeView:
    """An immutable mapping name → code at one epoch. `functions` is None until an executor has loaded the code once."""

    epoch: int
    path: str
    digest: str
    functions: frozenset[str] | None = None

    def with_functions(self, names: Iterable[str]) -> CodeView:
        return evolve(self, functions=frozenset(names))


def directory_view(path: str) -> CodeView:
    """The code in a directory, as epoch 1. Raises ConfigError if there is no such directory."""
    root = Path(path).resolve()
    if not root.is_dir():
        raise ConfigError(f"the functions directory {path} does not exist or is no directory")
    return CodeView(epoch=1, path=str(root), digest=_digest(root))


def _digest(root: Path) -> str:
    """SHA-256 over the names and contents of the Python files, so that equal code has equal digests."""
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        content = file.read_bytes()
        total.update(f"{file.relative_to(root)}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()
