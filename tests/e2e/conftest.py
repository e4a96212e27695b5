"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tasks import Gate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Where the function `waits_at_gate` is held until the test lets it pass."""
    gate = Gate(tmp_path)
    yield gate
    gate.close()
