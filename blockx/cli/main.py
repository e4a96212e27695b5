"""The command `blockx`: one group of commands a file; the only place that turns errors into exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from blockx.cli import data, servers, tasks
from blockx.cli.failures import BAD_USAGE, FAILED, explain, first_cause
from blockx.cli.options import Group, Session, debug_option
from blockx.errors import TaskFailed


@click.group(cls=Group, params=[debug_option()], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="blockx", prog_name="blockx")
def blockx() -> None:
    """Runs many small read-only functions over on-chain data and writes their results once.

    \b
    Try it:  blockx dev examples/hello          (a cluster on this machine)
             blockx run hello_world ct2         (in another terminal)

    Exit codes: 0 ok, 1 the task or check failed, 2 bad usage, 3 could not reach, 4 timed out.
    """


for command in (*servers.COMMANDS, *tasks.COMMANDS, *data.COMMANDS):
    blockx.add_command(command)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors become one sentence on stderr."""
    session = Session()
    try:
        result = blockx.main(args=list(argv), prog_name="blockx", standalone_mode=False, obj=session)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return BAD_USAGE
    except SystemExit as error:  # click's way of leaving when nobody reads the output any more
        return error.code if isinstance(error.code, int) else FAILED
    except BaseException as error:  # the one place where every failure ends, also of a group; nothing runs after it
        sentence, code = explain(error)
        if session.debug:
            _show_traceback(error)
        click.echo(f"blockx: {sentence}", err=True)
        return code
    return result if isinstance(result, int) else 0


def _show_traceback(error: BaseException) -> None:
    cause = first_cause(error)
    if isinstance(cause, TaskFailed) and cause.result.failed_call is not None:
        click.echo(cause.result.failed_call.traceback, err=True)
    else:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


def main() -> NoReturn:
    """The entry point of the program `blockx`."""
    sys.exit(run(sys.argv[1:]))
