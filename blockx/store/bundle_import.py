"""Importing a JSON Lines file of bundles, plain or gzip: one line at a time, refused lines named and passed over."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

from blockx.errors import InvalidArgument
from blockx.store.bundle_container import GZIP_MAGIC, ZSTD_MAGIC
from blockx.store.bundle_format import MAX_BUNDLE_BYTES, BadBundle, context_of, split
from blockx.store.bundles import BundleStore

__all__ = ["MAX_LISTED_REFUSALS", "ImportReport", "Refusal", "import_file"]

MAX_LISTED_REFUSALS = 1_000
"""Refusals that a report lists one by one; further ones are only counted."""

_PIECE_BYTES = 64 * 1024
_Stream = io.BufferedReader | gzip.GzipFile
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

    @property
    def is_empty(self) -> bool:
        return not (self.known or self.refused_count or self.by_chain)

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

    A line that is no whole bundle, of another chain than `chain_id`, or a block that is stored with other content, is
    refused and passed over; a file that breaks off (a damaged gzip stream) ends the import, and one without any bundle
    is refused. What came before stays. After each line, and at the end, `progress` is
    told how many bytes of the file are done, and how many there are in all.
    Raises InvalidArgument if the file cannot be read, Unavailable if the store cannot be written.
    """
    tally, report_progress = _Tally(), progress or _no_progress
    with _opened(Path(path)) as (raw, stream):
        total_bytes = os.fstat(raw.fileno()).st_size
        for number, line in _numbered(stream, tally):
            _import_line(store, number, line, chain_id, tally)
            report_progress(raw.tell() if raw.seekable() else total_bytes, total_bytes)
    report_progress(total_bytes, total_bytes)
    if tally.is_empty:
        tally.refuse(1, "there is no bundle in it")
    return tally.report()


def _no_progress(done_bytes: int, total_bytes: int) -> None:
    """Nobody watches."""


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, _Stream]]:
    """The file itself, and the stream of its uncompressed bytes."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
    with raw:
        magic = _first_bytes(raw, path)
        if magic == ZSTD_MAGIC:
            raise InvalidArgument(f"{path} is compressed with zstd, which this version does not read; use gzip")
        if not magic.startswith(GZIP_MAGIC):
            yield raw, raw
            return
        with gzip.GzipFile(fileobj=raw) as stream:
            yield raw, stream


def _first_bytes(raw: io.BufferedReader, path: Path) -> bytes:
    """What the file begins with, left in it: a pipe cannot be wound back."""
    try:
        return raw.peek(len(ZSTD_MAGIC))[: len(ZSTD_MAGIC)]
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None


def _numbered(stream: _Stream, tally: _Tally) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1; what cannot be one is refused."""
    number = 0
    try:
        for number, line in enumerate(_lines(stream), 1):
            if line is None:
                tally.refuse(number, f"the line is longer than {MAX_BUNDLE_BYTES} bytes")
            elif line.strip():
                yield number, line.strip()
    except _BROKEN_STREAM as error:
        tally.refuse(number + 1, f"the file is broken, nothing can be read from here on: {error}")


def _lines(stream: _Stream) -> Iterator[bytes | None]:
    """Every line, None in the place of one above MAX_BUNDLE_BYTES.

    Read piece by piece and not by `readline`, which loses whole lines when the stream breaks within its buffer.
    """
    held: list[bytes] = []
    held_bytes = 0
    while piece := stream.read1(_PIECE_BYTES):
        *ended, rest = piece.split(b"\n")
        for end in ended:
            held.append(end)
            yield b"".join(held) if held_bytes + len(end) <= MAX_BUNDLE_BYTES else None
            held, held_bytes = [], 0
        held.append(rest)
        held_bytes += len(rest)
        if held_bytes > MAX_BUNDLE_BYTES:
            held.clear()
    yield b"".join(held) if held_bytes <= MAX_BUNDLE_BYTES else None


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
