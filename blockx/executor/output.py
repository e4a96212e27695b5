"""`print` in a call goes to the worker's log, under the call that prints; anything else that prints goes to stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from blockx.executor.call import current_call
from blockx.executor.outbox import Outbox


class CallOutput(io.TextIOBase):
    """Stands in for `sys.stdout`. It has no file descriptor, so that nothing printed can reach the socket."""

    encoding = "utf-8"

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        call = current_call.get()
        if call is None:
            return sys.stderr.write(text)
        self._outbox.printed(call[1], text)
        return len(text)


@contextmanager
def captured_stdout(outbox: Outbox) -> Iterator[None]:
    before = sys.stdout
    sys.stdout = CallOutput(outbox)
    try:
        yield
    finally:
        sys.stdout = before
