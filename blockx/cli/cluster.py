"""A client of the cluster that the command line names, and what a person is told while it works or when it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click
from attrs import define

from blockx.cli.failures import Interrupted, first_cause
from blockx.cli.options import DEFAULT_COORDINATOR, session
from blockx.errors import DeadlineExceeded, InvalidArgument, NoSlot, RequestError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from blockx.client import Client
    from blockx.model import Submission, TaskId
    from blockx.rpc import ClientTls

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long one request may take, and a server that is not there is tried again, before it counts as out of reach."""

NO_METHOD = "there is no method /blockx."
"""What a server says that is of another kind than the one that was looked for."""


@define
class Errand:
    """What a command is about: one task, if `task_id` says which, and how far it has come."""

    task_id: str = ""
    worker_addr: str = ""
    show: Callable[[str], object] = lambda _: None

    def accepted(self, task_id: TaskId, submission: Submission) -> None:
        """Say where the task is."""
        self.worker_addr = submission.worker_addr
        if submission.is_known:
            warn_of_known(task_id, submission)
        else:
            click.echo(f"{task_id} accepted by {submission.worker_addr}", err=True)
        self.show(f"{task_id} {submission.state.value} on {submission.worker_addr}")

    def waits(self, reason: RequestError) -> None:
        self.show(f"waiting for {self.task_id}: {reason}")

    @property
    def whereabouts(self) -> str:
        """What became of the task so far, for the end of a sentence; empty where there is none."""
        if not self.task_id:
            return ""
        if not self.worker_addr:
            return f"; task {self.task_id} was not accepted yet"
        return (
            f"; task {self.task_id} was accepted by {self.worker_addr} and goes on: "
            f"`blockx watch {self.task_id} --worker {self.worker_addr}`"
        )


def warn_of_known(task_id: str, submission: Submission) -> None:
    """Say that the task was there before: its result is an old one, and perhaps not that of what was submitted now."""
    kept = " with another payload, which was kept" if submission.payload_mismatch else ""
    where = f"known already to {submission.worker_addr}{kept}"
    click.echo(f"blockx: task {task_id} is {where}; it is not run again, and its result is that of then", err=True)


def in_cluster(
    coordinators: Sequence[str],
    workers: Sequence[str],
    timeout: float | None,
    work: Callable[[Client], Awaitable[T]],
    errand: Errand,
) -> T:
    """What `work` gives, done with a client of the named cluster within `timeout` seconds."""
    import trio

    from blockx.client import Client

    if coordinators and workers:
        raise click.UsageError("--coordinator and --worker exclude each other; give one of them.")
    coordinators = coordinators or (() if workers else (DEFAULT_COORDINATOR,))
    tls, token = _access()
    patience_s = PATIENCE_S if timeout is None else min(PATIENCE_S, timeout / 2)
    client = Client(coordinators, workers, timeout=patience_s, tls=tls, token=token, on_wait=errand.waits)

    async def connected() -> T:
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                async with client:
                    return await work(client)
        except trio.TooSlowError:
            raise DeadlineExceeded(f"not done after {timeout:g} s") from None

    with _told_what_to_do(errand, bool(workers)), _busy(", ".join((*coordinators, *workers)), errand):
        return trio.run(connected)


def _access() -> tuple[ClientTls | None, str | None]:
    from blockx.rpc import read_token
    from blockx.rpc.security import client_tls

    access = session().access
    tls = client_tls(access.tls_ca, access.tls_cert, access.tls_key)
    return tls, read_token(access.token_file) if access.token_file else None


@contextmanager
def _told_what_to_do(errand: Errand, is_direct: bool) -> Iterator[None]:
    """Add to an error what a person at a terminal can do about it, and what became of the task."""
    try:
        yield
    except* Unavailable as group:
        hint = "; `blockx dev DIR` starts a cluster here, --coordinator or --worker names another one"
        raise Unavailable(f"{first_cause(group)}{errand.whereabouts if errand.worker_addr else hint}") from group
    except* DeadlineExceeded as group:
        raise DeadlineExceeded(f"{first_cause(group)}{errand.whereabouts}") from group
    except* NoSlot as group:
        raise NoSlot(f"{first_cause(group)}{errand.whereabouts}") from group
    except* Unauthenticated as group:
        raise Unauthenticated(f"{first_cause(group)}; --token-file names a file with the token") from group
    except* RequestError as group:
        cause = first_cause(group)
        raise _wrong_server(is_direct) if NO_METHOD in str(cause) else cause from group
    except* KeyboardInterrupt as group:
        raise Interrupted(f"interrupted{errand.whereabouts}") from group


def _wrong_server(is_direct: bool) -> InvalidArgument:
    if is_direct:
        return InvalidArgument("--worker names no worker: that is a coordinator; use --coordinator for it")
    return InvalidArgument("--coordinator names no coordinator: that is a worker; use --worker for it")


@contextmanager
def _busy(place: str, errand: Errand) -> Iterator[None]:
    """A sign of life on stderr while waiting, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        line = bar.add_task(f"{errand.task_id} at {place}".removeprefix(" at "), total=None)
        errand.show = lambda text: bar.update(line, description=text)
        yield
