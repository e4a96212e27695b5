"""Importing a JSON Lines file of bundles, plain or gzip: one line at a time, refused lines named and passed over."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attrs import define, field, frozen

from blockx.errors import InvalidArgument
from blockx.store.bundle_container import GZIP_MAGIC, ZSTD_MAGIC
from blockx.store.bundle_format import MAX_BUNDLE_BYTES, BadBundle, context_of, split

if TYPE_CHECKING:
    from blockx.store.bundles import BundleStore

__all__ = ["MAX_LISTED_REFUSALS", "ImportReport", "Refusal", "import_file"]

MAX_LISTED_REFUSALS = 1_000
"""Refusals that a report lists one by one; further ones are only counted."""

_BROKEN_STREAM = (EOFError, zlib.error, OSError)


@frozen
class Refusal:
    """A line (counted from 1) that was not imported, and why."""

    line: int
    reason: str


@frozen(kw_only=True)
class ImportReport:
    """What became of the lines of a file. `by_chain` counts the imported ones, `known` were stored before."""

    imported: int
    known: int
    refused: list[Refusal]
    refused_count: int
    by_chain: Mapping[int, int]


@define
class _Tally:
    known: int = 0
    refused: list[Refusal] = field(factory=list)
    refused_count: int = 0
    by_chain: dict[int, int] = field(factory=dict)

    def refuse(self, line: int, reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < MAX_LISTED_REFUSALS:
            self.refused.append(Refusal(line, reason))

    def report(self) -> ImportReport:
        return ImportReport(
            imported=sum(self.by_chain.values()),
            known=self.known,
            refused=self.refused,
            refused_count=self.refused_count,
            by_chain=self.by_chain,
        )


def import_file(
    store: BundleStore,
    path: str | Path,
    *,
    chain_id: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import every bundle of a `.jsonl` or `.jsonl.gz` file; memory is bound by one line.

    A line that is no whole bundle, or of another chain than `chain_id`, is refused and passed over; a file that breaks
    off (a damaged gzip stream) ends the import. What came before stays. After each line `progress` is told how many
    bytes of the file are done, and how many there are in all.
    Raises InvalidArgument if the file cannot be read, Unavailable if the store cannot be written.
    """
    tally = _Tally()
    with _opened(Path(path)) as (raw, lines):
        total_bytes = Path(path).stat().st_size
        for number, line in _numbered(lines, tally):
            _import_line(store, number, line, chain_id, tally)
            if progress is not None:
                progress(raw.tell(), total_bytes)
    return tally.report()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file itself, and the stream of its lines."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
    with raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic == ZSTD_MAGIC:
            raise InvalidArgument(f"{path} is compressed with zstd, which this version does not read; use gzip")
        if not magic.startswith(GZIP_MAGIC):
            yield raw, raw
            return
        with gzip.GzipFile(fileobj=raw) as stream, io.BufferedReader(stream) as lines:
            yield raw, lines


def _numbered(lines: IO[bytes], tally: _Tally) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1; what cannot be one is refused."""
    number = 0
    while True:
        number += 1
        try:
            line = lines.readline(MAX_BUNDLE_BYTES + 1)
            if len(line) > MAX_BUNDLE_BYTES and not line.endswith(b"\n"):
                _skip_line(lines)
                tally.refuse(number, f"the line is longer than {MAX_BUNDLE_BYTES} bytes")
                continue
        except _BROKEN_STREAM as error:
            tally.refuse(number, f"the file is broken, nothing can be read from here on: {error}")
            return
        if not line:
            return
        if not line.isspace():
            yield number, line.strip()


def _skip_line(lines: IO[bytes]) -> None:
    while (piece := lines.readline(1024 * 1024)) and not piece.endswith(b"\n"):
        pass


def _import_line(store: BundleStore, number: int, line: bytes, chain_id: int | None, tally: _Tally) -> None:
    try:
        block = context_of(split(line))
        if chain_id is not None and block.chain_id != chain_id:
            raise BadBundle(f"it is of chain {block.chain_id}, not {chain_id}")
        is_new = store.put(line)
    except BadBundle as error:
        tally.refuse(number, str(error))
        return
    if is_new:
        tally.by_chain[block.chain_id] = tally.by_chain.get(block.chain_id, 0) + 1
    else:
        tally.known += 1
