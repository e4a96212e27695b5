"""The task IO scope: what is kept, what travels together, what is tried again, what ends with the task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from blockx.errors import ReadError
from blockx.store.bundles import BundleStore
from blockx.wire.values import pack_value
from blockx.worker.io.admission import READ_THREADS
from blockx.worker.io.limits import ScopeLimits
from blockx.worker.io.scope import TaskScope
from tests.cancelling import cancel_at_every_checkpoint
from tests.doubles_io import WatchedTables, ask, get_many, make_scope, make_tables

LOST = ReadError("connection lost", retryable=True)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[WatchedTables]:
    watched = WatchedTables(make_tables(tmp_path))
    watched.put("balances", {"owner": "ann", "amount": 2**200}, {"owner": "bob", "amount": 5})
    watched.put("transfers", {"block_id": "0x1", "idx": 0, "value": 7})
    yield watched
    watched.gate.set()
    watched.close()


@pytest.fixture
def bundles(tmp_path: Path) -> BundleStore:
    store = BundleStore.open(str(tmp_path / "bundles"))
    for height in range(3):
        store.put(bundle(height))
    return store


def bundle(height: int) -> dict[str, Any]:
    header = {"id": f"0xa{height}", "height": height, "parent_id": "0xa", "timestamp": 1}
    return {"chain_id": 1, "block": header, "txs": [], "events": []}


async def gather(scope: TaskScope, *requests: bytes) -> list[Any]:
    """The answers, or ReadErrors, to requests made at the same time."""
    answers: list[Any] = [None] * len(requests)

    async def one(place: int) -> None:
        try:
            answers[place] = await ask(scope, requests[place])
        except ReadError as error:
            answers[place] = error

    async with trio.open_nursery() as nursery:
        for place in range(len(requests)):
            nursery.start_soon(one, place)
    return answers


async def test_rows_come_in_the_order_of_their_keys_and_exact(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        rows = await ask(scope, get_many("balances", ["bob", "nobody", "ann"]))
        some = await ask(scope, get_many("transfers", [["0x1", 0]], ["value"]))
    assert rows == [{"owner": "bob", "amount": 5}, None, {"owner": "ann", "amount": 2**200}]
    assert some == [{"value": 7}]


async def test_a_key_read_twice_is_answered_from_memory_and_costs_nothing(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        first, _ = await scope.answer(None, get_many("balances", ["ann"]))
        tables.put("balances", {"owner": "ann", "amount": 1})
        second, io_us = await scope.answer(None, get_many("balances", ["ann"]))
    assert (second, io_us) == (first, 0)
    assert (scope.reads, scope.cached_reads) == (2, 1)
    assert tables.batches == [["ann"]]


async def test_the_builder_and_the_writer_read_through_the_same_memory(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        assert await scope.builder_io.get("balances", "bob") == {"owner": "bob", "amount": 5}
        assert await scope.writer_io.get_many("balances", ["bob"]) == [{"owner": "bob", "amount": 5}]
        assert await ask(scope, get_many("balances", ["bob"])) == [{"owner": "bob", "amount": 5}]
    assert tables.batches == [["bob"]]


async def test_identical_reads_in_flight_share_one_request(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        answers = await gather(scope, *[get_many("balances", ["ann"])] * 50)
    assert answers == [[{"owner": "ann", "amount": 2**200}]] * 50
    assert tables.batches == [["ann"]]


async def test_a_thousand_parallel_point_reads_are_a_handful_of_requests(tables: WatchedTables) -> None:
    tables.put("balances", *({"owner": f"o{number}", "amount": number} for number in range(1_000)))
    async with make_scope(tables) as scope:
        answers = await gather(scope, *(get_many("balances", [f"o{number}"]) for number in range(1_000)))
    assert answers == [[{"owner": f"o{number}", "amount": number}] for number in range(1_000)]
    assert len(tables.batches) <= 4
    assert max(map(len, tables.batches)) <= 500


async def test_a_read_of_many_keys_gives_others_their_turn(tables: WatchedTables) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with make_scope(tables) as scope, trio.open_nursery() as nursery:
        await scope.builder_io.get_many("balances", keys := [f"k{number}" for number in range(20_000)])
        nursery.start_soon(count)
        assert await scope.builder_io.get_many("balances", [*keys[1:], "bob"]) == [
            *[None] * 19_999,
            {"owner": "bob", "amount": 5},
        ]
        nursery.cancel_scope.cancel()
    assert turns >= 20


async def test_a_read_of_more_keys_than_are_allowed_is_refused(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        with pytest.raises(
            ReadError, match="'balances' is asked for 100001 rows at once, at most 100000 are"
        ) as caught:
            await scope.builder_io.get_many("balances", ["ann"] * 100_001)
        assert len(await scope.builder_io.get_many("balances", ["ann"] * 100_000)) == 100_000
    assert not caught.value.retryable
    assert tables.batches == [["ann"]]


async def test_reads_join_the_next_request_while_the_backend_is_busy(tables: WatchedTables) -> None:
    tables.gate.clear()
    async with make_scope(tables) as scope, trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(ask, scope, get_many("balances", [f"k{number}"]))
            await wait_all_tasks_blocked(0.01)
        tables.gate.set()
    assert [len(batch) for batch in tables.batches] == [1, 1, 4]


async def test_reads_of_other_columns_do_not_share_a_request(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        answers = await gather(scope, get_many("balances", ["bob"]), get_many("balances", ["bob"], ["amount"]))
    assert answers == [[{"owner": "bob", "amount": 5}], [{"amount": 5}]]
    assert len(tables.batches) == 2


async def test_one_bad_key_fails_only_its_own_call(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        good, bad, also_good = await gather(scope, *(get_many("balances", [key]) for key in ("ann", 17, "bob")))
    assert (good[0]["owner"], also_good[0]["owner"]) == ("ann", "bob")
    assert "column 'owner' must be" in str(bad)
    assert bad.retryable is False


async def test_keys_that_python_calls_equal_are_different_reads(tables: WatchedTables) -> None:
    tables.put("transfers", {"block_id": "0x1", "idx": 1, "value": 8})
    async with make_scope(tables) as scope:
        right, wrong = await gather(scope, get_many("transfers", [["0x1", 1]]), get_many("transfers", [["0x1", True]]))
    assert right[0]["value"] == 8
    assert isinstance(wrong, ReadError)


@pytest.mark.parametrize(("who", "attempts"), [("call", 3), ("builder", 5), ("writer", 5)])
async def test_a_retryable_error_is_tried_again_as_often_as_the_phase_may(
    tables: WatchedTables, autojump_clock: MockClock, who: str, attempts: int
) -> None:
    async def read(key: str) -> None:
        if who == "call":
            await ask(scope, get_many("balances", [key]))
        else:
            await (scope.builder_io if who == "builder" else scope.writer_io).get("balances", key)

    async with make_scope(tables) as scope:
        tables.errors = [LOST] * (attempts - 1)
        await read("ann")
        assert tables.batches == [["ann"]] * attempts
        tables.errors = [LOST] * attempts
        with pytest.raises(ReadError, match="connection lost") as caught:
            await read("bob")
    assert caught.value.retryable
    assert tables.errors == []


@pytest.mark.parametrize("what", ["scan", "table_columns"])
async def test_scans_and_lookups_are_tried_again_too(
    tables: WatchedTables, autojump_clock: MockClock, what: str
) -> None:
    tables.errors = [LOST] * 4
    async with make_scope(tables) as scope:
        if what == "scan":
            assert len(await scope.builder_io.scan("balances")) == 2
            assert tables.scans == 5
        else:
            assert await scope.builder_io.table_columns("balances") == ("owner", "amount")
            assert tables.errors == []


async def test_an_error_that_is_not_retryable_is_not_tried_again_and_not_kept(tables: WatchedTables) -> None:
    tables.errors = [ReadError("broken")]
    async with make_scope(tables) as scope:
        with pytest.raises(ReadError, match="broken"):
            await ask(scope, get_many("balances", ["bob"]))
        assert await ask(scope, get_many("balances", ["bob"])) == [{"owner": "bob", "amount": 5}]
    assert tables.batches == [["bob"], ["bob"]]


async def test_a_wait_that_the_deadline_would_cut_is_not_begun(tables: WatchedTables) -> None:
    tables.errors = [LOST]
    limits = ScopeLimits(io_retry_base_ms=3_600_000, io_retry_max_ms=3_600_000)
    with trio.move_on_after(5) as task:
        async with make_scope(tables, limits=limits) as scope:
            with pytest.raises(ReadError, match="connection lost"):
                await ask(scope, get_many("balances", ["bob"]))
    assert not task.cancelled_caught


async def test_waits_between_attempts_are_not_charged(tables: WatchedTables, autojump_clock: MockClock) -> None:
    tables.errors = [LOST]
    async with make_scope(tables) as scope:
        started = trio.current_time()
        _, io_us = await scope.answer(None, get_many("balances", ["bob"]))
        assert trio.current_time() - started == pytest.approx(ScopeLimits().io_retry_base_ms / 1_000)
    assert io_us == 0


async def test_scans_and_bundles_are_answered(tables: WatchedTables, bundles: BundleStore) -> None:
    async with make_scope(tables, bundles) as scope:
        scan = pack_value(["table.scan", "balances", [["amount", ">", 5]], ["-owner"], 10])
        assert await ask(scope, scan) == [{"owner": "ann", "amount": 2**200}]
        by_height = await ask(scope, pack_value(["bundle.get", 1, 2]))
        by_id = await ask(scope, pack_value(["bundle.get", 1, "0xA2"]))
        assert await gather(scope, scan, scan) == [[{"owner": "ann", "amount": 2**200}]] * 2
    assert by_height == by_id == bundle(2)
    assert tables.scans == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            ["table.get_meny", "balances", [], None],
            "'table.get_meny' is no read operation .did you mean 'table.get_many'",
        ),
        (["table.get_many", "balances", []], "takes table, keys, columns, not 2 arguments"),
        (["table.get_many", 7, [], None], "table must be a text, not 7"),
        (["table.get_many", "balances", "ann", None], "keys must be a list, not 'ann'"),
        (["bundle.get", True, "0x1"], "chain_id must be a whole number, not True"),
        (["table.get_many", "balanses", ["ann"], None], "there is no table 'balanses' .did you mean 'balances'"),
        (["table.scan", "balances", [["amoun", "=", 1]], [], None], "no column 'amoun' .did you mean 'amount'"),
        (["table.scan", "balances", [], [], -1], "limit must be a number of rows"),
        (["bundle.get", 1, "nothing"], "'nothing' is no block id"),
        ("hello", "a read must be a list"),
        ([], "a read must be a list"),
    ],
)
async def test_a_bad_request_says_what_is_wrong(
    tables: WatchedTables, bundles: BundleStore, request_: object, message: str
) -> None:
    async with make_scope(tables, bundles) as scope:
        with pytest.raises(ReadError, match=message) as caught:
            await ask(scope, pack_value(request_))
    assert not caught.value.retryable


async def test_an_answer_that_fits_no_frame_is_an_error(tables: WatchedTables) -> None:
    async with make_scope(tables, limits=ScopeLimits(answer_bytes=20)) as scope:
        with pytest.raises(
            ReadError, match=r"scan of table 'balances' answers .* bytes, but .* at most 20; ask for fewer"
        ):
            await ask(scope, pack_value(["table.scan", "balances", [], [], None]))


async def test_a_key_that_cannot_be_packed_is_a_read_error(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        with pytest.raises(ReadError, match="a read cannot ask for this: value: an object cannot be sent"):
            await scope.builder_io.get("balances", object())


async def test_a_worker_without_a_store_says_which_flag_is_missing() -> None:
    async with make_scope() as scope:
        with pytest.raises(ReadError, match="no tables; start it with --database URL"):
            await ask(scope, get_many("balances", ["ann"]))
        with pytest.raises(ReadError, match="no bundles; start it with --bundles URL"):
            await scope.builder_io.bundle_part(1, "0xa", "events")


async def test_table_columns_are_told_and_an_unknown_table_names_the_nearest(tables: WatchedTables) -> None:
    async with make_scope(tables) as scope:
        assert await scope.builder_io.table_columns("balances") == ("owner", "amount")
        with pytest.raises(ReadError, match=r"there is no table 'balance' \(did you mean 'balances'\?\)"):
            await scope.builder_io.table_columns("balance")


async def test_the_read_set_names_each_block_once_in_order(bundles: BundleStore) -> None:
    async with make_scope(bundles=bundles) as scope:
        await scope.builder_io.bundle_part(1, "0xa1", "events")
        await scope.builder_io.bundle(1, 0)
        await scope.builder_io.bundle(1, "0xa1")
        assert await scope.builder_io.block_ids(1, range(5)) == {0: ["0xa0"], 1: ["0xa1"], 2: ["0xa2"]}
    assert scope.read_blocks == ((1, "0xa1"), (1, "0xa0"))
    assert not scope.read_blocks_truncated


async def test_a_long_read_set_is_cut_and_says_so(bundles: BundleStore) -> None:
    async with make_scope(bundles=bundles, limits=ScopeLimits(read_blocks=2)) as scope:
        for height in range(2):
            await scope.builder_io.bundle(1, height)
        assert not scope.read_blocks_truncated
        await scope.builder_io.bundle(1, 2)
    assert scope.read_blocks == ((1, "0xa0"), (1, "0xa1"))
    assert scope.read_blocks_truncated


async def test_nothing_starts_before_a_scope_is_entered_or_after_it_was_left(tables: WatchedTables) -> None:
    scope = make_scope(tables)
    with pytest.raises(ReadError, match="the task has ended"):
        await ask(scope, get_many("balances", ["ann"]))
    async with scope:
        await ask(scope, get_many("balances", ["ann"]))
    with pytest.raises(ReadError, match="the task has ended"):
        await ask(scope, get_many("balances", ["ann"]))
    assert len(tables.batches) == 1


async def test_a_read_that_waits_when_the_task_ends_is_told_so(tables: WatchedTables) -> None:
    tables.gate.clear()
    answers: list[Any] = []

    async def read(scope: TaskScope) -> None:
        answers.extend(await gather(scope, get_many("balances", ["ann"])))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, make_scope(tables) as scope:
            nursery.start_soon(read, scope)
            await wait_all_tasks_blocked(0.01)
    assert [str(answer) for answer in answers] == ["the task has ended, so nothing more is read for it"]


async def test_a_cancelled_reader_takes_no_other_reader_along(tables: WatchedTables) -> None:
    tables.gate.clear()
    answers: list[Any] = []

    async def stay(scope: TaskScope) -> None:
        answers.append(await ask(scope, get_many("balances", ["bob"])))

    async with make_scope(tables) as scope, trio.open_nursery() as nursery:
        with trio.CancelScope() as leaving:
            nursery.start_soon(stay, scope)
            async with trio.open_nursery() as other:
                other.start_soon(ask, scope, get_many("balances", ["bob"]))
                await wait_all_tasks_blocked(0.01)
                leaving.cancel()
        tables.gate.set()
    assert answers == [[{"owner": "bob", "amount": 5}]]
    assert tables.batches == [["bob"]]


async def test_the_callers_own_error_leaves_the_scope_as_it_is(tables: WatchedTables) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with make_scope(tables):
            raise LookupError("mine")


async def test_a_defect_in_a_backend_is_loud(tables: WatchedTables) -> None:
    tables.errors = [ZeroDivisionError("a defect")]
    with pytest.raises(ExceptionGroup) as caught:
        async with make_scope(tables) as scope:
            await ask(scope, get_many("balances", ["ann"]))
    assert caught.group_contains(ZeroDivisionError)


async def test_reads_may_be_cancelled_at_every_checkpoint(tables: WatchedTables) -> None:
    scopes: list[TaskScope] = []

    async def work(_: int) -> None:
        scope = make_scope(tables)
        scopes.append(scope)
        async with scope:
            await gather(scope, get_many("balances", ["ann"]), get_many("balances", ["bob", 3]))
            await scope.builder_io.scan("balances")

    def check(_: int) -> None:
        assert scopes[-1].read_blocks == ()

    steps = await cancel_at_every_checkpoint(work, check)
    assert steps > 5
    with trio.fail_after(5):  # threads that were left to themselves still give their permits back
        for scope in scopes:
            for _ in range(READ_THREADS):
                await scope.backends.table_readers.acquire_on_behalf_of(object())
