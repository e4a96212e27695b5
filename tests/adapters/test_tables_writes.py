"""Transactions: what is counted, replaced and deleted, the commit point, and writers that meet."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.errors import CommitRefused, PluginError, ReadError, Unavailable
from blockx.store.tables import RowError, Schema, TableStore, TableWrite, WriteCounts
from tests.adapters.table_samples import ids, put, row, table_store


def test_written_and_unchanged_rows_are_counted_apart(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        assert put(store, "everything", [row(1), row(2, note="x")]) == WriteCounts(written=2)
        rows = [row(1), row(2, note="y"), row(3)]
        assert put(store, "everything", rows) == WriteCounts(written=2, unchanged=1)
        assert put(store, "everything", rows) == WriteCounts(unchanged=3)


def test_a_row_is_a_full_row(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1, note="x", number=5)])
        assert put(store, "everything", [row(1, number=5)]) == WriteCounts(written=1)
        assert store.show("everything")[0]["note"] is None


def test_of_several_rows_with_one_key_the_last_wins(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        rows = [row(1, note="first"), row(2), row(1, note="last")]
        assert put(store, "everything", rows) == WriteCounts(written=2)
        assert [found["note"] for found in store.show("everything")] == ["last", None]
        assert put(store, "balances", [{"owner": "0xAB", "amount": 1}, {"owner": b"\xab", "amount": 2}]).written == 1


def test_a_table_of_keys_alone_counts_too(tmp_path: Path) -> None:
    with table_store(tmp_path, '[seen]\nkey = ["id"]\ncolumns = { id = "integer" }') as store:
        assert put(store, "seen", [{"id": 1}, {"id": 2}]) == WriteCounts(written=2)
        assert put(store, "seen", [{"id": 2}, {"id": 3}]) == WriteCounts(written=1, unchanged=1)


def test_deleted_keys_are_counted_if_they_were_there(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1), row(2), row(3)])
        deleted = put(store, "everything", [], delete_keys=[("a", 1), ("a", 1), ["a", 9]])
        assert (deleted, ids(store.show("everything"))) == (WriteCounts(deleted=1), [2, 3])


def test_rows_are_written_after_the_deletions_of_the_same_write(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1, note="old")])
        counts = put(store, "everything", [row(1, note="new")], delete_keys=[("a", 1)])
        assert counts == WriteCounts(written=1, deleted=1)
        assert store.show("everything")[0]["note"] == "new"


def test_replace_removes_what_is_no_longer_in_its_scope_and_nothing_else(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1), row(2), row(3), {"part": "b", "id": 9}])
        counts = put(store, "everything", [row(2), row(4)], replace={"part": "a"})
        assert counts == WriteCounts(written=1, unchanged=1, deleted=2)
        assert [(found["part"], found["id"]) for found in store.show("everything")] == [("a", 2), ("a", 4), ("b", 9)]


def test_a_row_outside_of_its_scope_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1)])
        rows = [row(2, number=1), row(3, number="0x1"), {"part": "b", "id": 4, "number": 1}]
        for refused in (rows, [row(5)]):
            with pytest.raises(
                RowError, match=r"^row \d for .*: column '(part|number)' must be .*, as in replace"
            ) as e:
                put(store, "everything", refused, replace={"part": "a", "number": 1})
            assert (e.value.row, e.value.retryable) == (len(refused) - 1, False)
        assert ids(store.show("everything")) == [1]
        assert put(store, "everything", rows[:2], replace={"number": 1}) == WriteCounts(written=2)


def test_replace_without_rows_empties_its_scope(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1, number=5), row(2, number=6), row(3)])
        assert put(store, "everything", [], replace={"number": "0x5"}) == WriteCounts(deleted=1)
        assert put(store, "everything", [], replace={"number": None, "part": "a"}) == WriteCounts(deleted=1)
        assert ids(store.show("everything")) == [2]


@pytest.mark.parametrize(
    ("replace", "sentence"),
    [
        ({}, "replace on table 'everything' names no column"),
        ({"prt": "a"}, r"replace on table 'everything' has no column 'prt' \(did you mean 'part'\?\)"),
        ({'part" = "part': "a"}, "has no column"),
        ({"id": "a"}, "replace on table 'everything': column 'id' must be an integer"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(tmp_path: Path, replace: dict[str, Any], sentence: str) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1)])
        with pytest.raises(PluginError, match=sentence) as error:
            put(store, "everything", [row(2)], replace=replace)
        assert not error.value.retryable
        assert ids(store.show("everything")) == [1]


def test_a_key_to_delete_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with table_store(tmp_path) as store, pytest.raises(PluginError, match="a key of table 'everything' has 2 values"):
        put(store, "everything", [], delete_keys=["a"])


def test_the_table_ends_as_a_plain_model_says(tmp_path: Path) -> None:
    rows = st.builds(
        lambda part, ident, note: {"part": part, "id": ident, "note": note},
        *[st.sampled_from(choices) for choices in (["a", "b"], [1, 2, 3], [None, "x", "y"])],
    )
    keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3))
    scopes = st.none() | st.fixed_dictionaries({"part": st.sampled_from(["a", "b"])})
    writes = st.builds(lambda *values: values, st.lists(rows, max_size=5), st.lists(keys, max_size=3), scopes)
    with table_store(tmp_path) as store:

        @given(st.lists(writes, max_size=4))
        def check(batch: list[tuple[list[dict[str, Any]], list[tuple[str, int]], dict[str, str] | None]]) -> None:
            put(store, "everything", [], replace={"part": "a"})
            put(store, "everything", [], replace={"part": "b"})
            model: dict[tuple[str, int], Any] = {}
            for listed, gone, scope in batch:
                new = [one for one in listed if scope is None or one["part"] == scope["part"]]
                after = {key: note for key, note in model.items() if key not in gone}
                mine = {(one["part"], one["id"]): one["note"] for one in new}
                if scope is not None:
                    after = {key: note for key, note in after.items() if key[0] != scope["part"] or key in mine}
                deleted = len(model) - len(after)
                written = sum(key not in after or after[key] != note for key, note in mine.items())
                counts = put(store, "everything", new, delete_keys=gone, replace=scope)
                assert counts == WriteCounts(written, len(mine) - written, deleted)
                model = after | mine
            found = {(one["part"], one["id"]): one["note"] for one in store.scan("everything")}
            assert found == model

        check()


def test_several_tables_are_written_in_one_transaction(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        writes = [
            TableWrite("everything", [row(1)]),
            TableWrite("balances", [{"owner": b"\1", "amount": 1}]),
            TableWrite("everything", [row(1), row(2)], delete_keys=[("a", 1)]),
        ]
        assert store.write(writes, lambda: None) == {
            "balances": WriteCounts(written=1),
            "everything": WriteCounts(written=3, deleted=1),
        }


def test_one_bad_row_anywhere_and_nothing_is_written(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        asked: list[str] = []
        bad = {"part": "a", "id": "x"}
        writes = [TableWrite("balances", [{"owner": b"\1", "amount": 1}]), TableWrite("everything", [row(1), bad])]
        with pytest.raises(RowError, match="row 1 for table 'everything'"):
            store.write(writes, lambda: asked.append("commit?"))
        assert (store.show("balances"), store.show("everything"), asked) == ([], [], [])


@pytest.mark.parametrize("refusal", [CommitRefused("too late"), Unavailable("gone"), KeyboardInterrupt()])
def test_a_commit_that_is_refused_leaves_nothing_and_the_refusal_is_raised_on(
    tmp_path: Path, refusal: BaseException
) -> None:
    def refuse() -> None:
        raise refusal

    with table_store(tmp_path) as store:
        put(store, "everything", [row(1)])
        with pytest.raises(type(refusal)) as raised:
            store.write([TableWrite("everything", [row(2)], delete_keys=[("a", 1)])], refuse)
        assert raised.value is refusal
        assert ids(store.show("everything")) == [1]
        assert put(store, "everything", [row(3)]).written == 1


def test_the_commit_is_asked_for_once_after_all_statements(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        seen: list[list[int]] = []

        def before_commit() -> None:
            seen.append(ids(store.show("everything")))

        store.write([TableWrite("everything", [row(1)])], before_commit)
        store.write([], before_commit)
        assert seen == [[], [1]]


def test_writers_in_many_threads_and_two_stores_take_turns(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        other = TableStore.open(f"sqlite:///{tmp_path}/t.db")
        failures: list[BaseException] = []

        def add(to: TableStore, first: int) -> None:
            try:
                for ident in range(first, first + 10):
                    put(to, "everything", [row(ident)])
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=add, args=(to, 100 * n)) for n, to in enumerate([store, other, store, other])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(store.scan("everything")) == len(other.scan("everything")) == 40
        other.close()


def test_writers_of_one_store_queue_however_long_each_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockx.store.sqlite.BUSY_TIMEOUT_MS", 0)
    with table_store(tmp_path) as store:
        failures: list[Exception] = []

        def add(first: int) -> None:
            try:
                for ident in range(first, first + 20):
                    put(store, "everything", [row(ident)])
            except PluginError as error:
                failures.append(error)

        threads = [threading.Thread(target=add, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(store.scan("everything")) == 80


def test_rows_are_written_and_deleted_in_key_order(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        database = sqlite3.connect(tmp_path / "t.db")
        database.execute("CREATE TABLE log (what, id)")
        for what, row_of in (("INSERT", "new"), ("DELETE", "old")):
            database.execute(
                f"CREATE TRIGGER log_{what} AFTER {what} ON everything"
                f" BEGIN INSERT INTO log VALUES ('{what}', {row_of}.id); END"
            )
        put(store, "everything", [row(ident) for ident in (3, 1, 10, 2)])
        put(store, "everything", [], delete_keys=[("a", ident) for ident in (2, 10, 1)])
        log = database.execute("SELECT what, id FROM log ORDER BY rowid").fetchall()
        assert [ident for what, ident in log if what == "INSERT"] == [1, 2, 3, 10]
        assert [ident for what, ident in log if what == "DELETE"] == [1, 2, 10]
        database.close()


def test_a_writer_that_waited_in_vain_may_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockx.store.sqlite.BUSY_TIMEOUT_MS", 1)
    with table_store(tmp_path) as store:
        other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        asked: list[str] = []
        with pytest.raises(PluginError, match="table 'everything' could not be written: database is locked") as error:
            store.write([TableWrite("everything", [row(1)])], lambda: asked.append("commit?"))
        assert (error.value.retryable, asked) == (True, [])
        with pytest.raises(Unavailable, match=r"could not be applied to .*: database is locked"):
            store.apply(Schema({}))
        other.execute("ROLLBACK")
        other.close()
        assert put(store, "everything", [row(1)]).written == 1


def test_a_table_that_was_dropped_while_in_use_is_named(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute("DROP TABLE everything")
        database.close()
        with pytest.raises(
            PluginError, match="table 'everything' could not be written: it is no longer in the"
        ) as error:
            store.write(
                [TableWrite("balances", [{"owner": b"\1", "amount": 1}]), TableWrite("everything", [row(1)])],
                lambda: None,
            )
        assert not error.value.retryable
        assert store.show("balances") == []


def test_a_rule_that_somebody_added_to_the_table_is_told(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute("CREATE UNIQUE INDEX only_one ON everything (note)")
        database.close()
        with pytest.raises(PluginError, match="table 'everything' could not be written: UNIQUE constraint") as error:
            put(store, "everything", [row(1, note="x"), row(2, note="x")])
        assert not error.value.retryable
        assert store.show("everything") == []


def test_the_write_ahead_log_is_emptied_when_it_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockx.store.tables.MAX_WAL_BYTES", 100_000)
    with table_store(tmp_path) as store:
        put(store, "everything", [row(ident, note="x" * 100) for ident in range(2000)])
        log = tmp_path / "t.db-wal"
        assert log.stat().st_size > 100_000
        put(store, "everything", [row(1)])
        assert log.stat().st_size < 100_000


def test_values_never_become_sql(tmp_path: Path) -> None:
    evil = "'; DROP TABLE everything; --\"); DELETE FROM balances; --"
    with table_store(tmp_path) as store:
        found = {"part": evil, "id": 1, "note": evil, "extra": {evil: [evil]}}
        put(store, "everything", [found], replace={"note": evil})
        put(store, "everything", [], delete_keys=[(evil, 2)])
        assert store.get_many("everything", [(evil, 1)], ["part", "note", "extra"]) == [
            {"part": evil, "note": evil, "extra": {evil: [evil]}}
        ]
        assert len(store.scan("everything", [["note", "=", evil], ["part", "in", [evil]]])) == 1
        assert set(store.schema()) == {"balances", "everything"}


def _delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _replace(path: Path) -> None:
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def _leave_no_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("spoil", [_delete, _replace, _leave_no_folder])
def test_a_database_file_that_is_gone_or_was_replaced_is_neither_written_nor_read(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with table_store(folder) as store:
        put(store, "everything", [row(1)])
        schema = Schema(store.schema())
        spoil(folder / "t.db")
        gone = rf"^the database file {folder}/t\.db is gone or was replaced; restart the worker$"
        with pytest.raises(PluginError, match=gone) as write:
            put(store, "everything", [row(2)])
        with pytest.raises(ReadError, match=gone) as read:
            store.get_many("everything", [("a", 1)])
        with pytest.raises(Unavailable, match=gone):
            store.apply(schema)
        assert not write.value.retryable
        assert not read.value.retryable


@pytest.mark.parametrize("spoil", [_delete, _replace])
def test_a_database_file_that_goes_during_a_write_is_not_committed_to(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1)])
        with pytest.raises(PluginError, match="is gone or was replaced"):
            store.write([TableWrite("everything", [row(2)])], lambda: spoil(tmp_path / "t.db"))
