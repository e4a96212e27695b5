"""Importing JSON Lines files: what is counted, what is refused and why, and that the rest stays."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from blockx.errors import InvalidArgument, Unavailable
from blockx.store import bundle_import
from blockx.store.bundle_import import ImportReport, Refusal, import_file
from blockx.store.bundles import BundleStore
from tests.adapters.bundle_samples import bundle, gzipped, lines


def _id(number: int) -> str:
    return f"0x{number:064x}"


def _numbered(*numbers: int, chain_id: int = 1) -> list[dict[str, object]]:
    return [bundle(number, _id(number), chain_id) for number in numbers]


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore.open(str(tmp_path / "bundles"))


@pytest.mark.parametrize("is_gzip", [False, True])
def test_every_line_is_imported_and_counted_by_chain(store: BundleStore, tmp_path: Path, is_gzip: bool) -> None:
    data = lines(*_numbered(1, 2), *_numbered(3, chain_id=25))
    path = tmp_path / "any name"
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    report = import_file(store, path)
    assert report == ImportReport(imported=3, known=0, refused=[], refused_count=0, by_chain={1: 2, 25: 1})
    assert [(entry.chain_id, entry.height) for entry in store.list()] == [(1, 1), (1, 2), (25, 3)]


def test_what_is_known_is_counted_apart(store: BundleStore, tmp_path: Path) -> None:
    path = gzipped(tmp_path / "f.jsonl.gz", lines(*_numbered(1, 2, 2)))
    assert (import_file(store, path).imported, import_file(store, str(path)).imported) == (2, 0)
    assert import_file(store, path).known == 3


def test_blank_lines_and_a_missing_last_newline_are_fine(store: BundleStore, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\n" + lines(*_numbered(1)) + b" \r\n" + lines(*_numbered(2)).rstrip())
    assert import_file(store, path).imported == 2


@pytest.mark.parametrize("data", [b"", b"\n \n", gzip.compress(b"")])
def test_a_file_without_any_bundle_is_refused(store: BundleStore, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    for path in (tmp_path / "f", Path("/dev/null")):
        report = import_file(store, path)
        assert (report.refused, report.refused_count) == ([Refusal(1, "there is no bundle in it")], 1)


def test_a_known_block_with_other_content_is_refused_and_the_stored_one_stays(
    store: BundleStore, tmp_path: Path
) -> None:
    (first,) = _numbered(1)
    import_file(store, gzipped(tmp_path / "f.gz", lines(first)))
    others = [{**first, "events": []}, bundle(2, _id(1)), {**first, "mine": True}]
    report = import_file(store, gzipped(tmp_path / "g.gz", lines(*others, first)))
    reason = f"block {_id(1)} of chain 1 is stored with other content"
    assert report.refused == [Refusal(line, reason) for line in (1, 2, 3)]
    assert (report.imported, report.known) == (0, 1)
    assert json.loads(store.read(1, _id(1))) == first
    assert store.ids_at(1, range(3)) == {1: [_id(1)]}


def test_order_of_keys_spelling_of_quantities_and_case_of_ids_are_no_other_content(
    store: BundleStore, tmp_path: Path
) -> None:
    first = bundle(10, "0x" + "ab" * 32)
    again = bundle(10, "0x" + "AB" * 32, chain_id="1")
    again["block"]["height"] = "0xa"
    again["txs"][0] = dict(reversed(again["txs"][0].items())) | {"nonce": 3}
    import_file(store, gzipped(tmp_path / "f.gz", lines(first)))
    assert import_file(store, gzipped(tmp_path / "g.gz", lines(dict(reversed(again.items()))))).known == 1


def test_a_block_whose_stored_bundle_is_broken_is_refused(store: BundleStore, tmp_path: Path) -> None:
    path = gzipped(tmp_path / "f.gz", lines(*_numbered(1)))
    import_file(store, path)
    (tmp_path / "bundles" / "1" / _id(1)).write_bytes(b"no gzip")
    (refusal,) = import_file(store, path).refused
    assert refusal.reason.startswith(
        "what is stored of it cannot be compared, remove it to import it again: the bundle"
    )


def test_a_pipe_can_be_imported(store: BundleStore, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        pipe.write(gzip.compress(lines(*_numbered(1, 2))))
        pipe.close()
        assert import_file(store, f"/dev/fd/{reading}", progress=lambda done, total: None).imported == 2


def test_a_file_that_cannot_be_read_is_named(store: BundleStore) -> None:
    with pytest.raises(InvalidArgument, match=r"^/proc/self/mem cannot be read: Input/output error$"):
        import_file(store, "/proc/self/mem")


def test_bad_lines_are_refused_with_number_and_reason_and_the_rest_is_imported(
    store: BundleStore, tmp_path: Path
) -> None:
    first, second, third = _numbered(1, 2, 3)
    without_txs = {name: entry for name, entry in second.items() if name != "txs"}
    cut = json.dumps(second)[:-30]
    data = lines(first, "", cut, without_txs, bundle(block_id="../../x"), "nul json", "[]", third)
    report = import_file(store, gzipped(tmp_path / "f.gz", data))
    assert (report.imported, report.refused_count) == (2, 5)
    assert report.refused == [
        Refusal(3, "Input data was truncated"),
        Refusal(4, "Object missing required field `txs`"),
        Refusal(5, "Expected 0x-hex - at `$.block.id`"),
        Refusal(6, "JSON is malformed: invalid character (byte 4)"),
        Refusal(7, "Expected `object`, got `array`"),
    ]
    assert [entry.height for entry in store.list()] == [1, 3]


def test_bundles_of_another_chain_are_refused_if_one_is_asked_for(store: BundleStore, tmp_path: Path) -> None:
    path = gzipped(tmp_path / "f.gz", lines(*_numbered(1), *_numbered(2, chain_id=25)))
    report = import_file(store, path, chain_id=25)
    assert (report.by_chain, report.refused) == ({25: 1}, [Refusal(1, "it is of chain 1, not 25")])


def test_a_gzip_stream_that_is_cut_off_keeps_what_came_before(store: BundleStore, tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    whole = gzip.compress(lines(*_numbered(1, 2)), mtime=0) + gzip.compress(lines(*_numbered(3)), mtime=0)
    path.write_bytes(whole[:-20])
    report = import_file(store, path)
    assert (report.imported, [refusal.line for refusal in report.refused]) == (2, [3])
    assert report.refused[0].reason.startswith("the file is broken, nothing can be read from here on: Compressed file")


def test_a_damaged_gzip_stream_keeps_what_came_before(store: BundleStore, tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    first, second = (gzip.compress(lines(*_numbered(*numbers)), mtime=0) for numbers in ((1, 2), (3,)))
    path.write_bytes(first + b"\x1f\x8b\x08" + b"\xff" * 200 + second)
    report = import_file(store, path)
    assert (report.imported, [refusal.line for refusal in report.refused]) == (2, [3])
    assert "the file is broken" in report.refused[0].reason


def test_a_wrong_checksum_is_told(store: BundleStore, tmp_path: Path) -> None:
    whole = gzip.compress(lines(*_numbered(1)))
    (tmp_path / "f.gz").write_bytes(whole[:-8] + b"\0\0\0\0" + whole[-4:])
    report = import_file(store, tmp_path / "f.gz")
    assert (report.imported, report.refused_count) == (1, 1)
    assert "CRC check failed" in report.refused[0].reason


def test_progress_grows_to_the_size_of_the_file(store: BundleStore, tmp_path: Path) -> None:
    path = gzipped(tmp_path / "f.gz", lines(*_numbered(*range(20)), "bad"))
    seen: list[tuple[int, int]] = []
    import_file(store, path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert len(seen) == 22
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (size, size)


def test_a_line_longer_than_the_bound_is_passed_over(
    store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _numbered(1, 2)
    long = json.dumps(bundle(3, _id(3), filler="x" * 5_000_000))
    monkeypatch.setattr(bundle_import, "MAX_BUNDLE_BYTES", 3000)
    path = gzipped(tmp_path / "f.gz", lines(first, long, second, long))
    tracemalloc.start()
    report = import_file(store, path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000
    assert report.imported == 2
    assert report.refused == [Refusal(line, "the line is longer than 3000 bytes") for line in (2, 4)]


def test_a_line_of_just_the_bound_is_imported(
    store: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(*_numbered(1, 2))
    monkeypatch.setattr(bundle_import, "MAX_BUNDLE_BYTES", len(data) // 2 - 1)
    (tmp_path / "f").write_bytes(data.rstrip())
    assert import_file(store, tmp_path / "f").imported == 2


def test_memory_is_bound_by_a_line_not_by_the_file(store: BundleStore, tmp_path: Path) -> None:
    made = [bundle(number, _id(number), filler="x" * 200_000) for number in range(60)]
    path = gzipped(tmp_path / "f.gz", lines(*made))
    del made
    tracemalloc.start()
    assert import_file(store, path).imported == 60
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3_000_000


def test_refusals_beyond_a_thousand_are_only_counted(store: BundleStore, tmp_path: Path) -> None:
    report = import_file(store, gzipped(tmp_path / "f.gz", b"x\n" * 1500))
    assert (len(report.refused), report.refused_count, report.refused[-1].line) == (1000, 1500, 1000)


def test_a_file_that_is_not_there_is_named(store: BundleStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"{tmp_path}/nowhere cannot be read: No such file"):
        import_file(store, tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="cannot be read: Is a directory"):
        import_file(store, tmp_path)


def test_a_zstd_file_is_refused(store: BundleStore, tmp_path: Path) -> None:
    (tmp_path / "f.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    with pytest.raises(InvalidArgument, match="is compressed with zstd, which this version does not read; use gzip"):
        import_file(store, tmp_path / "f.zst")


def test_a_store_that_cannot_be_written_ends_the_import(store: BundleStore, tmp_path: Path) -> None:
    (tmp_path / "bundles" / "1").write_text("in the way")
    with pytest.raises(Unavailable, match="on chain 1 could not be stored"):
        import_file(store, gzipped(tmp_path / "f.gz", lines(*_numbered(1))))
