"""The executor as a process: connects to its worker's socket and serves until the worker is done with it."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time

import trio

from blockx.errors import LoadFailed, ProtocolError
from blockx.executor.forks import keep_children_apart
from blockx.executor.runtime import converse
from blockx.stream import MessageStream

ORPHAN_GRACE_S = 2.0
"""How long after its worker has gone an executor may still be in a call before its process is ended from a thread."""


async def run_executor(socket_path: str, token: str) -> int:
    """Serve the worker behind this socket; returns the exit code.

    0 when the worker closed the connection or sent Shutdown, 1 when the functions could not be loaded, the worker
    could not be reached, or it broke the protocol; what was wrong is then written to stderr.
    """
    try:
        connection = await trio.open_unix_socket(socket_path)
    except OSError as error:
        return _give_up(f"cannot connect to the worker's socket {socket_path}: {error}")
    watched = socket.socket(fileno=os.dup(connection.socket.fileno()))
    leave_when_orphaned(watched)
    keep_children_apart(connection.socket.fileno(), watched.fileno())
    try:
        async with connection:
            await _converse(MessageStream(connection), token)
    except LoadFailed:
        return 1  # the worker was told, and logs it
    except ProtocolError as error:
        return _give_up(f"the connection to the worker was closed: {error}")
    return 0


async def _converse(stream: MessageStream, token: str) -> None:
    """`converse`, its one expected exception not wrapped in the groups of nurseries; a lost worker is an end."""
    ends: list[Exception] = []
    try:
        await converse(stream, token)
    except* trio.BrokenResourceError:
        pass  # the worker was killed while something was on its way
    except* (LoadFailed, ProtocolError) as group:
        ends += _leaves(group)
    if ends:
        raise ends[0]


def _leaves(error: BaseException) -> list[Exception]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error] if isinstance(error, Exception) else []


def _give_up(reason: str) -> int:
    sys.stderr.write(f"blockx executor {os.getpid()}: {reason}\n")
    return 1


def ignore_interrupts() -> None:
    """Ctrl-C in a terminal reaches the whole process group; it is for the worker, which ends its executors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave_when_orphaned(connection: socket.socket) -> None:
    """End the process some time after the worker has gone, even if a function does not let the loop see it."""
    threading.Thread(target=_watch, args=(connection,), name="orphan-watch", daemon=True).start()


def _watch(connection: socket.socket) -> None:
    hangup = select.poll()
    hangup.register(connection, select.POLLRDHUP)
    hangup.poll()
    time.sleep(ORPHAN_GRACE_S)
    os._exit(1)
