"""The bundle store: keys, typed parts, heights, and what is broken or missing."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockx.errors import ConfigError, ReadError, Unavailable
from blockx.model import BlockContext
from blockx.store import bundles as bundles_module
from blockx.store.bundles import SOURCES, BadBundle, BundleEntry, BundleStore
from tests.adapters.bundle_samples import BLOCK_ID, PARENT_ID, TX_ID, bundle

CONTEXT = BlockContext(chain_id=1, id=BLOCK_ID, height=17, parent_id=PARENT_ID, timestamp=1689270071)
OTHER_ID = "0x" + "ef" * 32


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    """A store that holds the sample bundle."""
    opened = BundleStore.open(str(tmp_path / "bundles"))
    assert opened.put(bundle())
    return opened


def _file(store: BundleStore, block_id: str = BLOCK_ID) -> Path:
    return Path(store.url.removeprefix("file://")) / "1" / block_id


def test_a_bundle_is_kept_once(store: BundleStore) -> None:
    assert not store.put(bundle())
    with pytest.raises(BadBundle, match=f"block {BLOCK_ID} of chain 1 is stored with other content"):
        store.put(bundle(txs=[]))
    assert len(store.part(1, BLOCK_ID, "txs")[1]) == 1


def test_what_was_put_as_json_is_read_back_byte_for_byte(store: BundleStore) -> None:
    data = json.dumps(bundle(block_id=OTHER_ID, spaced=[" "]), indent=1).encode()
    assert store.put(data)
    assert store.read(1, OTHER_ID) == data


def test_one_gzip_object_a_block_lies_under_chain_and_id(store: BundleStore) -> None:
    assert json.loads(gzip.decompress(_file(store).read_bytes()))["block"]["height"] == 17
    index = [path for path in (_file(store).parents[1] / "heights").rglob("*") if path.is_file()]
    assert [(path.name, path.stat().st_size) for path in index] == [(f"000000000017-{BLOCK_ID}", 0)]


def test_a_part_carries_the_context_and_quantities_as_int(store: BundleStore) -> None:
    context, (event,) = store.part(1, BLOCK_ID, "events")
    assert context == CONTEXT
    assert event == {**bundle()["events"][0], "idx": 5}


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("block", {"height": 17, "base_fee_per_gas": None, "gas_limit": 30_000_000, "gas_used": 21_000}),
        ("block", {"timestamp": 1689270071, "parent_id": PARENT_ID}),
        ("txs", {"idx": 0, "gas_limit": 30_000, "gas_price": 65732251887, "gas_used": None, "nonce": 3}),
        ("txs", {"value": 2**256 - 1, "status": None, "to_addr": None, "input": "0x6080", "id": TX_ID}),
        ("traces", {"value": 0, "gas_used": 16, "trace_address": [0, 1], "error": None}),
        ("error_traces", {"value": 7, "gas_used": 1, "error": "out of gas"}),
    ],
)
def test_numbers_are_numbers_and_everything_else_stays(
    store: BundleStore, source: str, numbers: dict[str, Any]
) -> None:
    first = store.part(1, BLOCK_ID, source)[1][0]
    assert {name: first[name] for name in numbers} == numbers
    assert {name: type(first[name]) for name in numbers} == {name: type(value) for name, value in numbers.items()}


def test_json_integers_beyond_64_bits_are_exact(store: BundleStore) -> None:
    assert store.part(1, BLOCK_ID, "traces")[1][1]["value"] == 10**30


def test_keys_that_nobody_knows_are_handed_on(store: BundleStore) -> None:
    made = bundle(block_id=OTHER_ID, withdrawals=[{"amount": "5"}])
    made["events"][0]["mine"] = {"deep": [1.5]}
    store.put(made)
    assert store.part(1, OTHER_ID, "events")[1][0]["mine"] == {"deep": [1.5]}
    assert store.bundle(1, OTHER_ID)["withdrawals"] == [{"amount": "5"}]


def test_a_whole_bundle_is_found_by_id_and_by_height(store: BundleStore) -> None:
    whole = store.bundle(1, 17)
    assert whole == store.bundle(1, BLOCK_ID)
    assert list(whole) == list(bundle())
    assert (whole["chain_id"], whole["block"]["gas_limit"]) == (1, 30_000_000)
    assert whole["txs"] == store.part(1, BLOCK_ID, "txs")[1]


def test_a_list_that_is_not_wanted_is_not_parsed(store: BundleStore) -> None:
    data = json.dumps(bundle()).replace('"topics": [', '"topics": [5, ').encode()
    _file(store).write_bytes(gzip.compress(data))
    assert len(store.part(1, BLOCK_ID, "txs")[1]) == 1


def test_upper_case_ids_name_the_same_block(store: BundleStore) -> None:
    upper = "0x" + "EF" * 32
    assert store.put(bundle(18, upper))
    assert not store.put(bundle(18, OTHER_ID))
    assert store.part(1, upper, "block")[0].id == OTHER_ID
    assert store.ids_at(1, range(18, 19)) == {18: [OTHER_ID]}


def test_chains_are_kept_apart(store: BundleStore) -> None:
    assert store.put(bundle(chain_id="0x19", txs=[]))
    assert store.part(25, BLOCK_ID, "txs") == (BlockContext(25, BLOCK_ID, 17, PARENT_ID, 1689270071), [])
    assert len(store.part(1, BLOCK_ID, "txs")[1]) == 1


def test_several_blocks_of_one_height_are_named(store: BundleStore) -> None:
    store.put(bundle(block_id=OTHER_ID))
    assert store.ids_at(1, range(17, 18)) == {17: [BLOCK_ID, OTHER_ID]}
    with pytest.raises(ReadError, match=f"several bundles of height 17 on chain 1; .*{BLOCK_ID}, {OTHER_ID}") as error:
        store.bundle(1, 17)
    assert not error.value.retryable


@pytest.mark.parametrize(
    ("heights", "found"),
    [
        (range(17, 18), [17]),
        (range(18, 999), []),
        (range(1001), [17, 999, 1000]),
        (range(1000, 2_000_000), [1000, 1_999_999]),
        (range(17, 1001, 983), [17, 1000]),
        (range(1000, 16, -1), [17, 999, 1000]),
        (range(5, 5), []),
        (range(-5, 18), [17]),
        (range(10**12), [17, 999, 1000, 1_999_999]),
    ],
)
def test_heights_are_found_in_any_range(store: BundleStore, heights: range, found: list[int]) -> None:
    for height in (999, 1000, 1_999_999):
        store.put(bundle(height, f"0x{height:064x}"))
    assert list(store.ids_at(1, heights)) == found
    assert store.ids_at(2, heights) == {}


def test_the_list_goes_by_chain_and_height(store: BundleStore) -> None:
    for chain_id, height in ((9, 5), (1, 100_000), (10, 5), (1, 3)):
        store.put(bundle(height, f"0x{height:064x}", chain_id))
    entries = list(store.list())
    assert [(entry.chain_id, entry.height) for entry in entries] == [(1, 3), (1, 17), (1, 100_000), (9, 5), (10, 5)]
    assert list(store.list(9)) == [entry for entry in entries if entry.chain_id == 9]
    assert entries[1] == BundleEntry(1, 17, BLOCK_ID, _file(store).stat().st_size)
    assert list(store.list(2)) == []


def test_a_removed_bundle_is_no_longer_listed(store: BundleStore) -> None:
    _file(store).unlink()
    assert list(store.list()) == []


def test_an_index_entry_that_was_never_written_is_made_good(store: BundleStore) -> None:
    (entry,) = [path for path in (_file(store).parents[1] / "heights").rglob("*") if path.is_file()]
    entry.unlink()
    assert store.ids_at(1, range(17, 18)) == {}
    assert not store.put(bundle())
    assert store.ids_at(1, range(17, 18)) == {17: [BLOCK_ID]}


def test_files_of_somebody_else_in_the_index_are_passed_over(store: BundleStore) -> None:
    (entry,) = [path for path in (_file(store).parents[1] / "heights").rglob("*") if path.is_file()]
    (entry.parent / "README").write_text("hello")
    (entry.parents[1] / "notes").mkdir()
    (entry.parents[2] / "x").mkdir()
    assert store.ids_at(1, range(10**9)) == {17: [BLOCK_ID]}
    assert len(list(store.list())) == 1


READS: list[Callable[[BundleStore], object]] = [
    lambda store: store.read(1, BLOCK_ID),
    lambda store: store.part(1, BLOCK_ID, "events"),
    lambda store: store.bundle(1, BLOCK_ID),
]


@pytest.mark.parametrize("read", READS)
def test_a_missing_bundle_may_still_come(tmp_path: Path, read: Callable[[BundleStore], object]) -> None:
    store = BundleStore.open(str(tmp_path))
    with pytest.raises(ReadError, match=f"there is no bundle of block {BLOCK_ID} on chain 1; import it first") as error:
        read(store)
    assert error.value.retryable
    with pytest.raises(ReadError, match="there is no bundle of height 17 on chain 1; import it first") as error:
        store.bundle(1, 17)
    assert error.value.retryable


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda packed: packed[:-20], "its gzip data is cut off"),
        (lambda packed: packed[:30] + b"\xff\xff\xff" + packed[33:], "its gzip data is damaged"),
        (lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:], "its gzip data is damaged"),
        (lambda packed: packed + b"more", "4 bytes follow its gzip data"),
        (gzip.decompress, "it is not compressed with gzip"),
        (lambda _: b"", "it is not compressed with gzip"),
        (lambda _: b"\x28\xb5\x2f\xfd....", "it is compressed with zstd, which this version does not read"),
        (lambda _: gzip.compress(b"{"), "Input data was truncated"),
        (lambda _: gzip.compress(b'{"chain_id": 1}'), "it has no 'block'"),
        (lambda _: gzip.compress(b"[]"), "Expected `object`, got `array`"),
        (lambda _: gzip.compress(b'{"chain_id":' + b"[" * 100_000), "maximum recursion depth exceeded"),
        (
            lambda _: gzip.compress(json.dumps(bundle(block_id=OTHER_ID)).encode()),
            f"it holds block {OTHER_ID} of chain 1",
        ),
        (lambda _: gzip.compress(json.dumps(bundle(chain_id=5)).encode()), f"it holds block {BLOCK_ID} of chain 5"),
    ],
)
@pytest.mark.parametrize("read", READS)
def test_a_broken_bundle_is_named_and_not_tried_again(
    store: BundleStore, read: Callable[[BundleStore], object], spoil: Callable[[bytes], bytes], reason: str
) -> None:
    path = _file(store)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ReadError, match=f"the bundle of block {BLOCK_ID} on chain 1 is broken: {reason}") as error:
        read(store)
    assert not error.value.retryable


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"idx": "0x5"', '"idx": "5x"', r"'5x' is no quantity - at `\$.events\[0\].idx`"),
        ('"idx": "0x5"', '"idx": -5', r"-5 is no quantity - at `\$.events\[0\].idx`"),
        ('"idx": "0x5"', '"idx": 1.5', "1.5 is no quantity"),
        ('"idx": "0x5"', '"idx": true', "True is no quantity"),
        ('"idx": "0x5"', '"idx": [1]', r"\[1\] is no quantity"),
        ('"events": [{', '"events": [1, {', r"Expected `object`, got `int` - at `\$.events\[0\]`"),
    ],
)
def test_a_broken_list_is_named_with_its_place(store: BundleStore, old: str, new: str, reason: str) -> None:
    text = json.dumps(bundle())
    assert old in text
    _file(store).write_bytes(gzip.compress(text.replace(old, new).encode()))
    for read in READS[1:]:
        with pytest.raises(ReadError, match=f"block {BLOCK_ID} on chain 1: {reason}") as error:
            read(store)
        assert not error.value.retryable


def test_an_unknown_source_is_refused_with_the_nearest_one(store: BundleStore) -> None:
    with pytest.raises(ReadError, match=r"no source 'event' \(did you mean 'events'\?\); sources: block, txs, events"):
        store.part(1, BLOCK_ID, "event")
    assert set(SOURCES) == {"events", "txs", "traces", "error_events", "error_traces", "block"}


def test_a_list_that_was_left_out_is_not_taken_for_an_empty_one(store: BundleStore) -> None:
    made = bundle(block_id=OTHER_ID)
    del made["traces"]
    store.put(made)
    with pytest.raises(ReadError, match=f"block {OTHER_ID} on chain 1: it was stored without 'traces'") as error:
        store.part(1, OTHER_ID, "traces")
    assert not error.value.retryable
    assert "traces" not in store.bundle(1, OTHER_ID)


@pytest.mark.parametrize(
    "block_id", ["", "0x", "ab", "0xxyz", "../../etc/passwd", "0x12/..", "0x" + "1" * 129, "0x1\n", 5.0]
)
def test_only_hex_ids_become_keys(store: BundleStore, block_id: Any) -> None:
    with pytest.raises(ReadError, match=r"no bundle can be read on chain 1: .* is no block id") as error:
        store.read(1, block_id)
    assert not error.value.retryable


@pytest.mark.parametrize("number", [-1, 2**63, 1 << 20_000], ids=["negative", "too large", "far too large"])
def test_a_number_that_is_no_height_or_chain_id_is_not_worth_another_try(store: BundleStore, number: int) -> None:
    reads: list[Callable[[], object]] = [
        lambda: store.bundle(1, number),
        lambda: store.bundle(number, 17),
        lambda: store.part(number, BLOCK_ID, "events"),
        lambda: store.ids_at(number, range(1)),
    ]
    for read in reads:
        with pytest.raises(
            ReadError, match=r"^no bundle can be read: .* is no (height|chain id); it must be 0 to"
        ) as e:
            read()
        assert not e.value.retryable


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chain_id": 2**63}, "9223372036854775808 is no chain id; it must be 0 to 9223372036854775807"),
        ({"height": hex(2**63)}, "9223372036854775808 is no height; it must be 0 to 9223372036854775807"),
        ({"chain_id": -1}, "Expected `int` >= 0 - at `\\$.chain_id`"),
        ({"chain_id": "one"}, r"Expected a quantity \(integer, decimal string or 0x-hex\) - at `\$.chain_id`"),
        ({"chain_id": None}, "got `null` - at `\\$.chain_id`"),
        ({"block": None}, "Expected `object`, got `null` - at `\\$.block`"),
        ({"block": {"id": BLOCK_ID}}, "missing required field `height` - at `\\$.block`"),
        ({"block_id": "../x"}, r"Expected 0x-hex - at `\$.block.id`"),
        ({"block_id": "0x"}, "'0x' is no block id"),
        ({"height": 1.5}, "got `float` - at `\\$.block.height`"),
        ({"txs": None}, "Expected `array`, got `null` - at `\\$.txs`"),
        ({"txs": [{}]}, "missing required field `id` - at `\\$.txs\\[0\\]`"),
        ({"txs": [{**bundle()["txs"][0], "value": "1e18"}]}, r"Expected a quantity .* - at `\$.txs\[0\].value`"),
        ({"events": [{**bundle()["events"][0], "topics": "0x"}]}, "Expected `array`, got `str`"),
        ({"traces": [{**bundle()["traces"][0], "trace_address": ["0"]}]}, "Expected `int`, got `str`"),
        ({"traces": [{}]}, "missing required field `tx_id`"),
        ({"storage_contracts": 5}, "Expected `array`, got `int`"),
        ({"extra": {1, 2}.__iter__()}, "it cannot be written as JSON"),
    ],
)
def test_what_is_no_bundle_is_not_kept(store: BundleStore, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadBundle, match=reason):
        store.put(bundle(**{"block_id": OTHER_ID, **change}))
    assert len(list(store.list())) == 1


@pytest.mark.parametrize("name", ["chain_id", "block", "txs", "events"])
def test_a_bundle_without_its_main_entries_is_not_kept(store: BundleStore, name: str) -> None:
    made = bundle(block_id=OTHER_ID)
    del made[name]
    with pytest.raises(BadBundle, match=f"missing required field `{name}`"):
        store.put(made)


def test_a_bundle_may_not_be_larger_than_the_bound(store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(store.read(1, BLOCK_ID))
    monkeypatch.setattr(bundles_module, "MAX_BUNDLE_BYTES", size - 1)
    with pytest.raises(BadBundle, match=f"it has {size} bytes of JSON, at most {size - 1} are allowed"):
        store.put(b" " * size)
    with pytest.raises(ReadError, match=f"is broken: it has more than {size - 1} bytes of JSON"):
        store.read(1, BLOCK_ID)
    monkeypatch.setattr(bundles_module, "MAX_BUNDLE_BYTES", size)
    assert len(store.read(1, BLOCK_ID)) == size


def test_of_two_that_put_the_same_bundle_at_once_one_is_first(store: BundleStore) -> None:
    answers: list[bool] = []
    made = bundle(block_id=OTHER_ID)
    start = threading.Barrier(8)

    def put() -> None:
        start.wait()
        answers.append(store.put(made))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]
    assert len(store.part(1, OTHER_ID, "events")[1]) == 1


def test_storage_that_fails_is_worth_another_try(store: BundleStore) -> None:
    heights = _file(store).parents[1] / "heights"
    (index,) = [path for path in heights.rglob("*") if path.is_file()]
    _file(store).unlink()
    _file(store).parent.rmdir()
    _file(store).parent.write_text("a file where a folder should be")
    with pytest.raises(ReadError, match=f"the bundle of block {BLOCK_ID} on chain 1 could not be read: ") as error:
        store.read(1, BLOCK_ID)
    assert error.value.retryable
    with pytest.raises(
        Unavailable, match=f"the bundle of block {BLOCK_ID} on chain 1 could not be stored: "
    ) as failure:
        store.put(bundle())
    assert "\n" not in str(failure.value)
    assert index.is_file()


@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket", "http://host/x", "memory:///"])
def test_another_kind_of_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=f"bundle store {url.split(':')[0]}:// is not supported by this version"):
        BundleStore.open(url)


@pytest.mark.parametrize("url", ["file://relative/path", "file://", "file:///a?b=c"])
def test_a_file_url_names_an_absolute_directory(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must be file:///absolute/directory"):
        BundleStore.open(url)


def test_a_path_and_a_file_url_name_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    BundleStore.open("some where").put(bundle())
    for url in (str(tmp_path / "some where"), f"file://{tmp_path}/some%20where", (tmp_path / "some where").as_uri()):
        assert len(list(BundleStore.open(url).list())) == 1


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="the bundle store has no path"):
        BundleStore.open("")


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(Unavailable, match=f"bundle directory {tmp_path}/f cannot be used: "):
        BundleStore.open(str(tmp_path / "f"))
