"""The main job, end to end, on this machine: index the ERC-20 transfers of a sample chain into SQLite.

    nox -s demo                 (or: python -m examples.demo --blocks 1000 --keep somewhere)

Makes a seeded chain, imports its bundles, starts a cluster (coordinator, worker, two executors), submits one task a
block, and compares what is in the table with what the chain is known to hold.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import attrs
import trio
from attrs import frozen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from blockx import PluginConfig, TaskFailed, TaskInput
from blockx.store.bundle_import import import_file
from blockx.store.bundles import BundleStore
from blockx.telemetry.logs import setup_logs
from blockx.testing import local_cluster
from blockx.testing.sample_chain import SampleChain

ERC20 = Path(__file__).parent / "erc20"
IN_FLIGHT = 32


@frozen
class Totals:
    """What an ERC-20 index holds: how many transfers, of how many tokens, of which sum."""

    transfers: int
    tokens: int
    value_sum: int


@frozen
class Timing:
    importing_s: float
    indexing_s: float


def expected(chain: SampleChain) -> Totals:
    transfers = list(chain.transfers())
    tokens = {transfer.token for transfer in transfers}
    return Totals(len(transfers), len(tokens), sum(transfer.value for transfer in transfers))


def written(database: Path) -> Totals:
    """What is in SQLite; a uint256 is stored as its number of digits, a colon, and the digits."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT token, value FROM transfers").fetchall()
    return Totals(len(rows), len({token for token, _ in rows}), sum(int(value.partition(":")[2]) for _, value in rows))


def import_chain(chain: SampleChain, directory: Path, progress: Progress) -> None:
    file = directory / "sample.jsonl.gz"
    chain.write(file)
    bar = progress.add_task("importing bundles (bytes)", total=None)
    report = import_file(
        BundleStore.open(str(directory / "bundles")),
        file,
        progress=lambda done_bytes, total_bytes: progress.update(bar, completed=done_bytes, total=total_bytes),
    )
    if report.refused:
        raise RuntimeError(f"bundles were refused: {report.refused[0]}")


def tasks(chain: SampleChain) -> Iterator[TaskInput]:
    """One task a block: every event is a call, and the rows of a block are written in one transaction."""
    for height in chain.heights:
        calls = {"chainId": chain.chain_id, "blocks": [height], "source": "events", "function": "decode_transfer"}
        yield TaskInput(
            function_call_config=PluginConfig("BlockBundleCallConfig", calls),
            result_handler=PluginConfig("TableUpsertsResultHandler", {"table": "transfers"}),
        )


async def index(chain: SampleChain, directory: Path, progress: Progress) -> None:
    bar = progress.add_task("indexing blocks", total=chain.blocks)
    async with local_cluster(
        functions=ERC20,
        tables=ERC20 / "tables.toml",
        database=f"sqlite:///{directory / 'blockx.db'}",
        bundles=str(directory / "bundles"),
        executors=2,
    ) as cluster:
        async with cluster.client.run_many(tasks(chain), in_flight=IN_FLIGHT) as results:
            async for result in results:
                if not result.success:
                    raise TaskFailed(result)
                progress.advance(bar)


def work(chain: SampleChain, directory: Path, console: Console) -> Timing:
    columns = (TextColumn("{task.description:26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        started = time.perf_counter()
        import_chain(chain, directory, progress)
        imported = time.perf_counter()
        trio.run(index, chain, directory, progress)
        return Timing(imported - started, time.perf_counter() - imported)


def summary(chain: SampleChain, found: Totals, timing: Timing) -> Table:
    calls = sum(len(bundle["events"]) for bundle in chain.bundles())
    table = Table(title="ERC-20 transfers in SQLite", show_header=False)
    rows = {
        "blocks": f"{chain.blocks:,}",
        "events, one call each": f"{calls:,}",
        "transfers written": f"{found.transfers:,}",
        "tokens": f"{found.tokens:,}",
        "sum of all values, compared exactly": f"{found.value_sum:.6e}",
        "import": f"{timing.importing_s:.1f} s",
        "index, cluster start included": f"{timing.indexing_s:.1f} s",
        "speed": f"{chain.blocks / timing.indexing_s:,.0f} blocks/s, {calls / timing.indexing_s:,.0f} calls/s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def run(chain: SampleChain, directory: Path, console: Console) -> int:
    """The whole demo in a directory; 0 if the table holds exactly what the chain does, else 1."""
    timing = work(chain, directory, console)
    found, known = written(directory / "blockx.db"), expected(chain)
    console.print(summary(chain, found, timing))
    if found != known:
        console.print(f"[red]not what the chain holds:[/red] expected {attrs.asdict(known)}")
        return 1
    console.print("[green]exactly what the chain holds[/green]")
    return 0


def whereabouts(options: argparse.Namespace) -> str:
    if options.keep is None:
        return "database and bundles are gone again; --keep DIR leaves them to look at"
    return f"look at it: blockx tables show transfers --database sqlite:///{options.keep / 'blockx.db'}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=300, help="length of the sample chain")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another chain")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the database and the bundles in DIR")
    options = parser.parse_args(argv)
    setup_logs(level="warning")
    chain = SampleChain(blocks=options.blocks, seed=options.seed)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="blockx-demo-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        exit_code = run(chain, directory, console)
    console.print(whereabouts(options), soft_wrap=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
