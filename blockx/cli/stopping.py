"""What signals do to a server: the first one drains it, a further one stops it at once."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import trio

    from blockx.worker.app import Outlook


class Stop:
    """What SIGTERM and SIGINT do: end a program that still starts, drain one that serves."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._drain: Callable[[], object] = scope.cancel
        self._stop: Callable[[], object] = scope.cancel
        self._outlook: Callable[[], Outlook | None] = lambda: None

    def drains_with(
        self,
        drain: Callable[[], object],
        stop: Callable[[], object],
        outlook: Callable[[], Outlook | None] = lambda: None,
    ) -> None:
        """A first signal drains, a further one stops; `outlook` is what the first one will wait for."""
        self._drain, self._stop, self._outlook = drain, stop, outlook

    async def on(self, signals: AsyncIterator[int]) -> None:
        await anext(signals)
        click.echo(f"blockx: stopping{pending(self._outlook())}; a signal again stops at once", err=True)
        self._drain()
        async for _ in signals:
            click.echo("blockx: stopping at once", err=True)
            self._stop()


def pending(outlook: Outlook | None) -> str:
    """What the end of a server waits for, to go on a sentence."""
    if outlook is None:
        return ""
    tasks, results, wait_s = outlook.running_tasks, outlook.unfetched_results, outlook.result_wait_ms / 1000
    running = f"; {tasks} {'task still runs' if tasks == 1 else 'tasks still run'}" if tasks else ""
    unfetched = f"; {results} {'result was' if results == 1 else 'results were'} not fetched yet" if results else ""
    return f"{running}{unfetched}, waiting for that at most {wait_s:g} s" if results else running


async def until_stopped(serve: Callable[[Stop], Awaitable[int]]) -> int:
    """Run `serve` to its end; the exit code is its own, or 130 if a signal came before it served."""
    import trio

    exit_code = 128 + signal.SIGINT
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            stop = Stop(nursery.cancel_scope)
            nursery.start_soon(stop.on, signals)
            exit_code = await serve(stop)
            nursery.cancel_scope.cancel()
    return exit_code
