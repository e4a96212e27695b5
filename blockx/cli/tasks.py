"""Tasks: submit, follow, fetch; and a shorthand for one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blockx.cli.cluster import Errand, in_cluster, warn_of_known
from blockx.cli.options import (
    DEFAULT_WORKER,
    Command,
    access_options,
    as_decorator,
    coordinator_option,
    json_option,
    timeout_option,
    worker_option,
)
from blockx.errors import TaskFailed

if TYPE_CHECKING:
    from blockx.client import Client
    from blockx.model import TaskInput, TaskResult

cluster_options = as_decorator(coordinator_option, worker_option, access_options, timeout_option, json_option)
where_option = as_decorator(
    click.option(
        "--worker",
        "worker",
        default=DEFAULT_WORKER,
        show_default=True,
        metavar="HOST:PORT",
        help="The worker that has the task, as `submit` told.",
    ),
    access_options,
)


@click.command(cls=Command)
@click.argument("task_file", metavar="TASK.json|-", type=click.File("rb"))
@click.option("--watch", "is_watched", is_flag=True, help="Follow the task to its end and print its result.")
@cluster_options
def submit(
    task_file: Any,
    is_watched: bool,
    coordinators: Sequence[str],
    workers: Sequence[str],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Submit the task of a JSON file (or of stdin).

    \b
    Example:  blockx submit examples/hello.json --watch
    """
    from blockx.model import TaskInput

    task = TaskInput.from_json(task_file.read())
    if is_watched:
        _print_result(task.task_id, _run_task(task, coordinators, workers, timeout), as_json)
        return
    errand = Errand(task.task_id)
    submission = in_cluster(coordinators, workers, timeout, lambda client: client.submit(task), errand)
    if submission.is_known:
        warn_of_known(task.task_id, submission)
    state = submission.state.value
    if as_json:
        known = {"task_id": task.task_id, "workerAddr": submission.worker_addr, "state": state}
        flags = {"isKnown": submission.is_known, "payloadMismatch": submission.payload_mismatch}
        click.echo(json.dumps(known | flags))
    else:
        click.echo(f"{task.task_id} {state} on {submission.worker_addr}")


@click.command(cls=Command, short_help="Follow tasks until all have ended.")
@click.argument("task_ids", metavar="ID…", nargs=-1, required=True)
@where_option
@timeout_option
@json_option
def watch(task_ids: Sequence[str], worker: str, timeout: float | None, as_json: bool) -> int:
    """Follow tasks on their worker until all have ended; exit code 1 if one failed or is not known.

    \b
    Example:  blockx watch 3f2b1c9e-8a4d-4c1e-9b0a-6f7e5d4c3b2a
    """
    from blockx.cli.render import update_json, update_line
    from blockx.model import TaskId, TaskState

    async def follow(client: Client) -> bool:
        is_well = True
        async with client.watch([TaskId(task_id) for task_id in task_ids], worker_addr=worker) as updates:
            async for update in updates:
                click.echo(json.dumps(update_json(update)) if as_json else update_line(update))
                is_well = is_well and not (update.error or update.state is TaskState.FAILED)
        return is_well

    return 0 if in_cluster((), (worker,), timeout, follow, Errand()) else 1


@click.command(cls=Command, short_help="Fetch the result of a task.")
@click.argument("task_id", metavar="ID")
@where_option
@timeout_option
@json_option
def result(task_id: str, worker: str, timeout: float | None, as_json: bool) -> None:
    """Fetch the result of a task that has ended; while it is kept, as often as wanted.

    \b
    Example:  blockx result 3f2b1c9e-8a4d-4c1e-9b0a-6f7e5d4c3b2a --json
    """
    from blockx.model import TaskId

    async def fetch(client: Client) -> TaskResult:
        return await client.result(TaskId(task_id), worker_addr=worker)

    found = in_cluster((), (worker,), timeout, fetch, Errand())
    _print_result(task_id, found, as_json)


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("function")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@cluster_options
def run(
    function: str,
    args: Sequence[str],
    coordinators: Sequence[str],
    workers: Sequence[str],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Call one function and print what it returns. An argument that is JSON is taken as JSON, any other as text.

    \b
    Example:  blockx run hello_world ct2
    """
    from blockx.cli.render import value_text
    from blockx.model import PluginConfig, TaskInput

    calls = {"function": function, "callList": [[_argument(text) for text in args]]}
    task = TaskInput(
        function_call_config=PluginConfig("CallListCallConfig", calls),
        result_handler=PluginConfig("ReturnValueResultHandler"),
    )
    found = _run_task(task, coordinators, workers, timeout)
    if not found.success:
        _print_result(task.task_id, found, as_json)
    (value,) = found.return_values()
    click.echo(json.dumps(value, ensure_ascii=False) if as_json else value_text(value))


COMMANDS = (submit, watch, result, run)


def _argument(text: str) -> Any:
    from blockx.strict_json import read_json

    try:
        return read_json(text)
    except ValueError:
        return text


def _run_task(
    task: TaskInput, coordinators: Sequence[str], workers: Sequence[str], timeout: float | None
) -> TaskResult:
    errand = Errand(task.task_id)
    return in_cluster(
        coordinators, workers, timeout, lambda client: client.run(task, on_accepted=errand.accepted), errand
    )


def _print_result(task_id: str, found: TaskResult, as_json: bool) -> None:
    """Print what the handlers returned. Raises TaskFailed for a task that failed, also where JSON was printed."""
    from blockx.cli.render import plugin_lines, result_json

    if as_json:
        click.echo(json.dumps(result_json(task_id, found), ensure_ascii=False))
    if not found.success:
        raise TaskFailed(found, task_id)
    if not as_json:
        for line in plugin_lines(found):
            click.echo(line)
        click.echo(f"{task_id} {found.state.value}", err=True)
