"""Servers: a whole cluster for development, or one process of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import click

from blockx.cli.options import Command, as_decorator, bundles_option, config_option, database_option
from blockx.cli.stopping import Stop, until_stopped

if TYPE_CHECKING:
    import trio

    from blockx.registry.local import LocalRegistry

SECTIONS = ("worker", "coordinator")
DEV_RESULT_WAIT_MS = 2_000
"""How long `dev` waits for results to be fetched: its tasks are most often those of a person who has seen enough."""

ALONE = (
    "the registry `local` is inside this process, so this coordinator never sees workers of other processes: "
    "it refuses every task. `blockx dev DIR` runs both in one; clients reach a worker alone with --worker"
)
log_format_option = click.option(
    "--log-format", type=click.Choice(["pretty", "json"]), help="Of the log on stderr.  [default: by terminal]"
)
registry_option = click.option("--registry", default="local", show_default=True, help="Where workers are found.")
token_options = as_decorator(
    click.option("--token-file", metavar="FILE", help="File with the token that every call must show."),
    click.option("--admin-token-file", metavar="FILE", help="File with the token for the admin services."),
    click.option(
        "--insecure", is_flag=True, default=None, help="Serve other machines even without TLS and without a token."
    ),
)
security_options = as_decorator(
    click.option("--tls-cert", metavar="FILE", help="Encrypt connections; the server's certificate chain (PEM)."),
    click.option("--tls-key", metavar="FILE", help="Key of --tls-cert (PEM)."),
    click.option("--tls-ca", metavar="FILE", help="Serve only clients with a certificate of this authority (PEM)."),
    token_options,
)
worker_access_options = as_decorator(
    click.option("--worker-tls-ca", metavar="FILE", help="Reach workers by TLS; their authority (PEM), or `system`."),
    click.option("--worker-tls-cert", metavar="FILE", help="Certificate to show to workers that ask for one (PEM)."),
    click.option("--worker-tls-key", metavar="FILE", help="Key of --worker-tls-cert (PEM)."),
    click.option("--worker-token-file", metavar="FILE", help="File with the token that workers want."),
)
worker_options = as_decorator(
    config_option,
    database_option,
    bundles_option,
    click.option("--executors", type=click.IntRange(min=1), metavar="N", help="Executor processes.  [default: CPUs]"),
    click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Tasks at a time.  [default: 64]"),
)


@click.command(cls=Command, short_help="Run a whole cluster over the functions of DIR.")
@click.argument("functions", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--coordinator-listen", metavar="HOST:PORT", help="Port 0 takes any.  [default: 127.0.0.1:7070]")
@click.option("--worker-listen", metavar="HOST:PORT", help="Port 0 takes any.  [default: 127.0.0.1:7071]")
@click.option(
    "--tables", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Apply this table schema first."
)
@worker_options
@token_options
@log_format_option
def dev(
    functions: str,
    coordinator_listen: str | None,
    worker_listen: str | None,
    tables: Path | None,
    token_file: str | None,
    admin_token_file: str | None,
    insecure: bool | None,
    config_file: str | None,
    log_format: str | None,
    **flags: Any,
) -> int:
    """Run a whole cluster over the functions of DIR: coordinator, worker, executors.

    Prints one line `ready coordinator=… worker=…` when it serves; Ctrl-C finishes what runs and ends it.

    \b
    Example:  blockx dev examples/hello
              blockx dev examples/erc20 --tables examples/erc20/tables.toml
    """
    import trio

    from blockx.coordinator.app import CoordinatorConfig
    from blockx.dev import apply_tables, dev_cluster
    from blockx.worker.app import WorkerConfig

    _setup_logs(log_format)
    guard: dict[str, Any] = {"token_file": token_file, "admin_token_file": admin_token_file, "insecure": insecure}
    worker = _load(
        WorkerConfig,
        "worker",
        config_file,
        {"drain_result_wait_ms": DEV_RESULT_WAIT_MS},
        functions=functions,
        listen=worker_listen,
        **guard,
        **flags,
    )
    guard["worker_token_file"] = token_file
    coordinator = _load(CoordinatorConfig, "coordinator", config_file, listen=coordinator_listen, **guard)
    if tables is not None:
        apply_tables(worker.store.database, tables)

    async def serve(stop: Stop) -> int:
        async with dev_cluster(coordinator, [worker]) as cluster:
            _ready(coordinator=cluster.coordinator.addr, worker=cluster.workers[0].addr)
            stop.drains_with(cluster.drain, cluster.drain, cluster.workers[0].outlook)
            await cluster.ended.wait()
        return max(cluster.exit_codes)

    return trio.run(until_stopped, serve)


@click.command(cls=Command)
@click.option("--functions", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="The user functions.")
@click.option("--listen", metavar="HOST:PORT", help="Port 0 takes any.  [default: 127.0.0.1:7071]")
@click.option("--advertise", metavar="HOST:PORT", help="How clients reach it.  [default: where it listens]")
@click.option("--worker-id", metavar="NAME", help="Stable over restarts.  [default: the advertised address]")
@worker_options
@security_options
@registry_option
@log_format_option
def worker(registry: str, config_file: str | None, log_format: str | None, **flags: Any) -> int:
    """Run one worker. Clients reach it directly with --worker.

    Prints one line `ready worker=…` when it accepts tasks; SIGTERM or Ctrl-C drains it.

    \b
    Example:  blockx worker --functions examples/hello --listen 127.0.0.1:7071
    """
    import trio

    from blockx.worker.app import WorkerConfig, run_worker

    _setup_logs(log_format)
    cluster = _registry(registry)
    settings = _load(WorkerConfig, "worker", config_file, **flags)
    exit_codes: list[int] = []

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        exit_codes.append(await run_worker(settings, cluster, task_status=task_status))

    async def serve(stop: Stop) -> int:
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(run)
            await handle.wait_ready()
            _ready(worker=handle.addr)
            stop.drains_with(handle.drain, handle.drain, handle.outlook)
        return exit_codes[0]

    return trio.run(until_stopped, serve)


@click.command(cls=Command)
@click.option("--listen", metavar="HOST:PORT", help="Port 0 takes any.  [default: 127.0.0.1:7070]")
@config_option
@security_options
@worker_access_options
@registry_option
@log_format_option
def coordinator(registry: str, config_file: str | None, log_format: str | None, **flags: Any) -> int:
    """Run one coordinator over the workers of a registry.

    The registry `local` is inside one process: with it a coordinator sees no workers of other processes.

    Prints one line `ready coordinator=…` when it serves; SIGTERM or Ctrl-C ends it.

    \b
    Example:  blockx coordinator --listen 127.0.0.1:7070
    """
    import trio

    from blockx.coordinator.app import CoordinatorConfig, run_coordinator

    _setup_logs(log_format)
    cluster = _registry(registry)
    settings = _load(CoordinatorConfig, "coordinator", config_file, **flags)

    async def serve(stop: Stop) -> int:
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(run_coordinator, settings, cluster)
            click.echo(f"blockx: {ALONE}", err=True)
            _ready(coordinator=handle.addr)
            stop.drains_with(handle.shutdown, nursery.cancel_scope.cancel)
        return 0

    return trio.run(until_stopped, serve)


@click.command(cls=Command)
@click.option("--socket", "socket_path", required=True, metavar="PATH", help="The Unix socket of the worker.")
@click.option("--token-file", type=click.File("r"), help="File with the token; else BLOCKX_EXECUTOR_TOKEN has it.")
def executor(socket_path: str, token_file: IO[str] | None) -> int:
    """Run one executor for a worker on this machine. Workers start their own; this is how.

    \b
    Example:  BLOCKX_EXECUTOR_TOKEN=… blockx executor --socket /tmp/blockx-worker-1/executors.sock
    """
    import trio

    from blockx.executor.__main__ import TOKEN_VARIABLE
    from blockx.executor.app import ignore_interrupts, run_executor

    token = os.environ.pop(TOKEN_VARIABLE, "") if token_file is None else token_file.read().strip()
    ignore_interrupts()
    return trio.run(run_executor, socket_path, token)


COMMANDS = (dev, worker, coordinator, executor)


def _load(
    cls: type[Any],
    section: str,
    config_file: str | None,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **flags: Any,
) -> Any:
    """The settings of a server; `defaults` are those of the command, in place of those of `cls`."""
    from blockx import config

    file = config.read_file(config_file, sections=SECTIONS)
    if isinstance(file.get(section, {}), dict):
        file[section] = {**defaults, **file.get(section, {})}
    return config.load(cls, file=file, environ=os.environ, flags=flags, section=section, file_name=str(config_file))


def _setup_logs(log_format: str | None) -> None:
    from blockx.telemetry.logs import setup_logs

    setup_logs(log_format)  # type: ignore[arg-type]  # click has checked the word


def _registry(name: str) -> LocalRegistry:
    from blockx.registry.local import LocalRegistry

    if name != "local":
        raise click.UsageError(f"registry {name!r} is not supported by this version; use `--registry local`.")
    return LocalRegistry()


def _ready(**addresses: str) -> None:
    click.echo("ready " + " ".join(f"{part}={address}" for part, address in addresses.items()))
