"""What the commands share: their --debug, the addresses of a cluster, the places of data, the spelling of settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from attrs import define, field

DEFAULT_COORDINATOR = "127.0.0.1:7070"
DEFAULT_WORKER = "127.0.0.1:7071"

F = TypeVar("F", bound=Callable[..., Any])


@define
class Access:
    """Files by which a command gets into a cluster that protects itself; empty for none."""

    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""


@define
class Session:
    """What was said on the command line beside what concerns one command alone."""

    debug: bool = False
    access: Access = field(factory=Access)


def session() -> Session:
    """Of the command that runs."""
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Session), "main gives it to every command"
    return found


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().obj.debug = True


class Command(click.Command):
    """A command that also takes --debug, so that it may stand at either end of the line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(debug_option())


class Group(click.Group):
    command_class = Command


def debug_option() -> click.Option:
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=_remember_debug, help="Show tracebacks of errors."
    )


def as_decorator(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which --help shows them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program to read.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this long (exit 4).",
)
database_option = click.option("--database", metavar="URL", help="Where tables are, e.g. sqlite:///blockx.db.")
bundles_option = click.option("--bundles", metavar="URL", help="Where bundles are: a directory, or a URL.")
CONFIG_FILE = "blockx.toml"
config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False),
    default=lambda: CONFIG_FILE if Path(CONFIG_FILE).is_file() else None,
    help=f"Settings as TOML; see the manual.  [default: {CONFIG_FILE}, if there is one]",
)
coordinator_option = click.option(
    "--coordinator",
    "coordinators",
    multiple=True,
    metavar="HOST:PORT",
    help=f"Reserve through this coordinator; may be repeated.  [default: {DEFAULT_COORDINATOR}]",
)
worker_option = click.option(
    "--worker", "workers", multiple=True, metavar="HOST:PORT", help="Go to this worker directly; may be repeated."
)


def _remember_access(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(context.find_root().obj.access, str(parameter.name), value)


def _access_option(name: str, help_text: str) -> Callable[[F], F]:
    return click.option(name, metavar="FILE", expose_value=False, callback=_remember_access, help=help_text)


access_options = as_decorator(
    _access_option("--tls-ca", "Reach servers by TLS; trust this authority (PEM), or `system`."),
    _access_option("--tls-cert", "Certificate to show to servers that ask for one (PEM)."),
    _access_option("--tls-key", "Key of --tls-cert (PEM)."),
    _access_option("--token-file", "File with the token that the servers want."),
)
