"""A function may fork: the child is its function's own process, and never becomes a second executor."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

import trio
from attrs import define

from blockx.executor.failures import traceback_of


@define
class Lineage:
    """Whether this process is an executor, or was forked off by a function that runs in one."""

    is_child: bool = False


lineage = Lineage()


def keep_children_apart(*connection_fds: int) -> None:
    """From now on children that are forked off have no way to the worker, and end where their function's step ends.

    A child shares the executor's epoll and its memory's idea of which calls are to be answered: without this it would
    answer them too. To be called once in the life of a process.
    """
    null_fd = os.open(os.devnull, os.O_RDWR)  # opened now: later there may be no descriptor left

    def begin_child() -> None:
        lineage.is_child = True
        sys.stdout = sys.stderr  # what calls print travels over the connection, which children do not have
        with contextlib.suppress(RuntimeError):  # a thread that has forked is no task of the loop
            trio.lowlevel.add_instrument(_LastStep())
        for fd in connection_fds:
            os.dup2(null_fd, fd, inheritable=False)

    os.register_at_fork(after_in_child=begin_child)


class _LastStep(trio.abc.Instrument):
    """Ends a child where the step of the loop ends in which it was forked off, whichever task that step is of."""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        leave()


def leave(error: BaseException | None = None) -> NoReturn:
    """End this child: its function has returned, or raised this. Cleaning up would touch what is its parent's."""
    status = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            status = (error.code or 0) & 0xFF
        elif error is not None:
            sys.stderr.write(f"blockx executor {os.getppid()}: the process {os.getpid()}, forked off by a function, ")
            sys.stderr.write(f"ends with an exception\n{traceback_of(error)}")
        sys.stderr.flush()
    finally:
        os._exit(status)
