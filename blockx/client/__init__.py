"""The client library: `Client` finds a worker, submits tasks, follows them and fetches their results."""

from __future__ import annotations

from blockx.client.client import Client
from blockx.client.retry import RetryPolicy
from blockx.client.runs import Runs, TaskOutcome

__all__ = ["Client", "RetryPolicy", "Runs", "TaskOutcome"]
