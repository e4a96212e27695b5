"""For users' tests: `run` calls one function with no cluster, `local_cluster` starts a real one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blockx.testing.cluster import LocalCluster, local_cluster
    from blockx.testing.single import run

__all__ = ["LocalCluster", "local_cluster", "run"]

_HOME_OF = {
    "LocalCluster": "blockx.testing.cluster",
    "local_cluster": "blockx.testing.cluster",
    "run": "blockx.testing.single",
}


def __getattr__(name: str) -> object:
    """Resolved when first used: a test of one function needs no database and no gRPC."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'blockx.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
