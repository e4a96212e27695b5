"""Data: table schemas and rows, bundles of blocks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from blockx.cli.options import Command, Group, bundles_option, config_option, database_option, json_option
from blockx.errors import ConfigError

if TYPE_CHECKING:
    from blockx.store.bundle_import import ImportReport
    from blockx.store.settings import StoreSettings
    from blockx.store.tables import TableStore

STDIN = "/dev/stdin"
SHOWN_REFUSALS = 20
_IN_TSV = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""What would break a line of tab-separated values."""


@click.group(cls=Group)
def tables() -> None:
    """Create tables from a schema file, look at rows."""


@tables.command("apply", cls=Command)
@click.argument("schema_file", metavar="TABLES.toml", type=click.Path(exists=True, dir_okay=False))
@database_option
@config_option
@json_option
def apply_schema(schema_file: str, database: str | None, config_file: str | None, as_json: bool) -> None:
    """Create the tables of a schema; add columns and indexes to those that exist.

    Any other difference is refused with the SQL that a person would run.

    \b
    Example:  blockx tables apply examples/erc20/tables.toml
    """
    from blockx.store.tables import load_schema

    schema = load_schema(Path(schema_file).read_text(encoding="utf-8"))
    with _table_store(database, config_file, must_exist=False) as store:
        try:
            report = store.apply(schema)
        except ConfigError as error:
            if as_json:
                click.echo(json.dumps({"refused": str(error)}))
            raise
    done = {"created": report.created, "altered": report.altered, "unchanged": report.unchanged}
    if as_json:
        click.echo(json.dumps(done))
    else:
        for what, names in done.items():
            for name in names:
                click.echo(f"{what} {name}")


@tables.command("show", cls=Command)
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows, the first by key.")
@database_option
@config_option
@json_option
def show(name: str, limit: int, database: str | None, config_file: str | None, as_json: bool) -> None:
    """Print rows of a table: on a pipe one a line, tabs between values, names first; as JSON, an array of them.

    \b
    Example:  blockx tables show transfers --limit 5 --json
    """
    from blockx.cli.render import value_text
    from blockx.wire.values import to_json

    with _table_store(database, config_file, must_exist=True) as store:
        found = store.show(name, limit + 1)  # one more, to know whether there are more
        columns = list(store.schema()[name].columns)
    if as_json:
        click.echo(to_json(found[:limit]).decode())
        return
    _print_rows(columns, [[value_text(row[column]) for column in columns] for row in found[:limit]])
    more = ", and there are more; --limit shows more" if len(found) > limit else ""
    click.echo(f"{_counted(len(found[:limit]), 'row')}{more}", err=True)


@click.group(cls=Group)
def bundles() -> None:
    """Import blocks, see which there are."""


@bundles.command("import", cls=Command)
@click.argument(
    "files",
    metavar="FILE.jsonl[.gz]|-…",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option("--chain-id", type=int, help="Refuse bundles of any other chain.")
@bundles_option
@config_option
@json_option
def import_bundles(
    files: Sequence[str], chain_id: int | None, bundles: str | None, config_file: str | None, as_json: bool
) -> int:
    """Import bundles, one JSON object a line; `-` is stdin.

    What is refused is named with its reason, and then the exit code is 1.

    \b
    Example:  blockx bundles import sample.jsonl.gz
    """
    from blockx.store.bundle_import import import_file
    from blockx.store.bundles import BundleStore

    store = BundleStore.open(_places(config_file, bundles=bundles).bundles)
    reports = {}
    for file in files:
        with _progress(file) as advance:
            reports[file] = import_file(store, STDIN if file == "-" else file, chain_id=chain_id, progress=advance)
    if as_json:
        click.echo(json.dumps([_report_json(file, report) for file, report in reports.items()]))
    else:
        for file, report in reports.items():
            _print_report(file, report)
    return 1 if any(report.refused_count for report in reports.values()) else 0


@bundles.command("list", cls=Command)
@click.option("--chain-id", type=int, help="Only of this chain.")
@bundles_option
@config_option
@json_option
def list_bundles(chain_id: int | None, bundles: str | None, config_file: str | None, as_json: bool) -> None:
    """List the blocks that are there: chain, height, id and stored size in bytes.

    \b
    Example:  blockx bundles list --chain-id 1
    """
    from blockx.cli.render import camel_keys
    from blockx.store.bundles import BundleStore

    store = BundleStore.open(_places(config_file, bundles=bundles).bundles, must_exist=True)
    entries = [attrs.asdict(entry) for entry in store.list(chain_id)]
    if as_json:
        click.echo(json.dumps([camel_keys(entry) for entry in entries]))
    else:
        for entry in entries:
            click.echo(" ".join(str(value) for value in entry.values()))


COMMANDS = (tables, bundles)


def _places(config_file: str | None, **flags: str | None) -> StoreSettings:
    from blockx import config
    from blockx.cli.servers import SECTIONS
    from blockx.store.settings import StoreSettings

    table = config.read_file(config_file, sections=SECTIONS).get("worker", {})
    known = {setting.name for setting in config.describe(StoreSettings)}
    file = {"worker": {key: value for key, value in table.items() if key in known}}
    return config.load(
        StoreSettings, file=file, environ=os.environ, flags=flags, section="worker", file_name=str(config_file)
    )


@contextmanager
def _table_store(database: str | None, config_file: str | None, *, must_exist: bool) -> Iterator[TableStore]:
    from blockx.store.tables import TableStore

    store = TableStore.open(_places(config_file, database=database).database, must_exist=must_exist)
    try:
        yield store
    finally:
        store.close()


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated values elsewhere; either shows all of each value."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        for line in (columns, *rows):
            click.echo("\t".join(value.translate(_IN_TSV) for value in line))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextmanager
def _progress(file: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr while a file is read, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(Path(file).name, total=None)

        def advance(done_bytes: int, total_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes)

        yield advance


def _report_json(file: str, report: ImportReport) -> dict[str, Any]:
    from blockx.cli.render import camel_keys

    return {"file": file, **camel_keys(attrs.asdict(report))}


def _print_report(file: str, report: ImportReport) -> None:
    click.echo(f"{file}: {report.imported} imported, {report.known} known already, {report.refused_count} refused")
    for refusal in report.refused[:SHOWN_REFUSALS]:
        click.echo(f"  line {refusal.line}: {refusal.reason}", err=True)
    unlisted = report.refused_count - len(report.refused[:SHOWN_REFUSALS])
    if unlisted:
        click.echo(f"  and {unlisted} more; --json lists the first {len(report.refused)}", err=True)
