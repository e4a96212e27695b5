"""Point reads and scans: order, filters, and how a read that cannot be answered fails."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blockx.errors import ReadError
from blockx.filters import MAX_FILTER_VALUES
from blockx.store.tables import TableStore, TableWrite
from tests.adapters.table_samples import ids, put, row, table_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TableStore]:
    """Rows 1 to 5 of part "a": number 10 × id, notes on 1 to 3, one row of part "b"."""
    with table_store(tmp_path) as opened:
        rows = [row(ident, number=10 * ident, note=f"n{ident}" if ident < 4 else None) for ident in range(1, 6)]
        put(opened, "everything", [*rows, {"part": "b", "id": 1, "number": 99, "blob": b"\xff", "extra": {"a": 1}}])
        put(opened, "balances", [{"owner": bytes([n]), "amount": n} for n in range(3)])
        yield opened


def test_answers_come_in_the_order_of_the_keys_with_none_for_what_is_missing(store: TableStore) -> None:
    found = store.get_many("everything", [("a", 3), ["a", 1], ("c", 1), ("a", 3)], ["id", "number"])
    assert found == [{"id": 3, "number": 30}, {"id": 1, "number": 10}, None, {"id": 3, "number": 30}]


def test_a_scalar_is_the_key_of_a_table_with_one_key_column(store: TableStore) -> None:
    assert store.get_many("balances", [b"\2", "0x01", (b"\0",), b"\7"], ["amount"]) == [
        {"amount": 2},
        {"amount": 1},
        {"amount": 0},
        None,
    ]


def test_no_keys_have_no_answers(store: TableStore) -> None:
    assert store.get_many("everything", []) == []


def test_many_keys_are_answered_at_once(store: TableStore) -> None:
    put(store, "everything", [row(ident) for ident in range(100, 3000)])
    found = store.get_many("everything", [("a", ident) for ident in range(2999, 99, -1)], ["id"])
    assert found == [{"id": ident} for ident in range(2999, 99, -1)]


@pytest.mark.parametrize("ident", [-(2**63), 2**63 - 1, 2**53 + 1, 0])
def test_integers_in_keys_are_exact_over_all_64_bits(store: TableStore, ident: int) -> None:
    put(store, "everything", [row(ident), row(ident ^ 1)])
    assert store.get_many("everything", [("a", ident)], ["id"]) == [{"id": ident}]


@pytest.mark.parametrize("part", ["", "quote ' and \"", "back\\slash", "\u2028 ü 🦀", "1", "null", "x\ty"])
def test_text_in_keys_is_exact(store: TableStore, part: str) -> None:
    put(store, "everything", [{"part": part, "id": 7}])
    assert store.get_many("everything", [(part, 7)], ["part"]) == [{"part": part}]


def test_every_ordered_type_can_be_a_key(tmp_path: Path) -> None:
    key = {"u": "uint256", "i": "int256", "d": "decimal", "f": "boolean", "m": "timestamp", "b": "bytes"}
    schema = f"[k]\nkey = {list(key)}\n[k.columns]\n" + "".join(f'{name} = "{kind}"\n' for name, kind in key.items())
    values = {"u": 2**255, "i": -5, "d": "1.5", "f": True, "m": "2024-01-01T00:00:00Z", "b": b"\0\1"}
    with table_store(tmp_path, schema) as keyed:
        put(keyed, "k", [values])
        assert keyed.get_many("k", [tuple(values.values())], ["u", "b"]) == [{"u": 2**255, "b": b"\0\1"}]
        assert put(keyed, "k", [], delete_keys=[tuple(values.values())]).deleted == 1


@pytest.mark.parametrize(
    ("table", "key", "sentence"),
    [
        ("everything", "a", r"a key of table 'everything' has 2 values \(part, id\), not 'a'"),
        ("everything", ("a", 1, 2), "has 2 values"),
        ("everything", ("a", "1"), "table 'everything': column 'id' must be an integer of 64 bits, not '1'"),
        ("everything", ("a", None), "column 'id' must be an integer"),
        ("everything", ("a\0", 1), "column 'part' must be text without NUL"),
        ("balances", 5, "table 'balances': column 'owner' must be bytes or 0x-hex, not 5"),
    ],
)
def test_a_key_that_does_not_fit_is_named(store: TableStore, table: str, key: Any, sentence: str) -> None:
    with pytest.raises(ReadError, match=sentence) as error:
        store.get_many(table, [key])
    assert not error.value.retryable


@pytest.mark.parametrize("columns", [["nummer"], ["id", "nummer"]])
def test_an_unknown_column_is_named_with_the_nearest_one(store: TableStore, columns: list[str]) -> None:
    with pytest.raises(ReadError, match=r"table 'everything' has no column 'nummer' \(did you mean 'number'\?\)"):
        store.get_many("everything", [("a", 1)], columns)


@pytest.mark.parametrize(
    "name", ['everything"; DROP TABLE balances; --', "sqlite_master", "everything_readable", "x", 5]
)
def test_only_defined_tables_can_be_read(store: TableStore, name: Any) -> None:
    for read in (lambda: store.get_many(name, []), lambda: store.scan(name), lambda: store.show(name)):
        with pytest.raises(ReadError, match="there is no table"):
            read()
    assert set(store.schema()) == {"balances", "everything"}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ([], [1, 2, 3, 4, 5]),
        ([["number", "=", 20]], [2]),
        ([["number", "=", "0x14"]], [2]),
        ([["number", "!=", 20]], [1, 3, 4, 5]),
        ([["number", "<", "30"]], [1, 2]),
        ([["number", "<=", 30]], [1, 2, 3]),
        ([["number", ">", 30]], [4, 5]),
        ([["number", ">=", 30]], [3, 4, 5]),
        ([["number", "in", [10, "50", 70]]], [1, 5]),
        ([["number", "in", []]], []),
        ([["number", "not_in", [10, 50]]], [2, 3, 4]),
        ([["number", "not_in", []]], [1, 2, 3, 4, 5]),
        ([["note", "is_null"]], [4, 5]),
        ([["note", "is_null", True]], [4, 5]),
        ([["note", "is_null", False]], [1, 2, 3]),
        ([["note", "!=", "n1"]], [2, 3]),
        ([["number", ">", 10], ["note", "in", ["n1", "n2"]]], [2]),
        ([("note", "=", "n1' OR '1'='1")], []),
    ],
)
def test_filters_are_joined_by_and(store: TableStore, where: list[Any], found: list[int]) -> None:
    assert ids(store.scan("everything", [["part", "=", "a"], *where])) == found


def test_json_and_bytes_are_compared_as_wholes(store: TableStore) -> None:
    assert len(store.scan("everything", [["extra", "=", {"a": 1}]])) == 1
    assert len(store.scan("everything", [["blob", "in", ["0xff", b"\0"]]])) == 1
    assert len(store.scan("balances", [["owner", ">", b"\0"]])) == 2


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ([["nummer", "=", 1]], r"table 'everything' has no column 'nummer' \(did you mean 'number'\?\)"),
        ([["number; DROP TABLE balances", "=", 1]], "has no column"),
        ([[5, "=", 1]], r"where\[0\] must be \[name, operator, value\], not \[5, '=', 1\]"),
        ([["number", "==", 1]], r"table 'everything', where\[0\] has an unknown operator '==' \(did you mean"),
        ([["number", "= 1 OR 1 =", 1]], "unknown operator"),
        ([["number", ["="], 1]], "unknown operator"),
        ([["number", "like", 1]], r"operators: = != < <= > >= in not_in is_null"),
        ([["number", "="]], r"where\[0\]: = needs a value"),
        ([["number", "=", None]], "= needs a value; for null use is_null"),
        ([["number", "=", "abc"]], "table 'everything': column 'number' must be a uint256 .*, not 'abc'"),
        ([["note", "=", "a\ud800"]], "column 'note' must be text without lone surrogates"),
        ([["number", "in", 5]], "in takes a list of values, not 5"),
        ([["number", "in", "5"]], "in takes a list of values, not '5'"),
        ([["number", "in", [5, None]]], "column 'number' must be a uint256 .*, not None"),
        ([["note", "is_null", "yes"]], "is_null takes true or false, not 'yes'"),
        ([["extra", "<", 5]], "column 'extra' of type json has no order; use = or !="),
        ([["number"]], r"where\[0\] must be .*, not "),
        (["number = 5"], r"where\[0\] must be .*, not 'number = 5'"),
        ("number = 5", "where must be a list of .*, not 'number = 5'"),
        ({"number": 5}, "where must be a list"),
        ([["number", "=", 5]] * 101, "where has 101 filters, at most 100 are allowed"),
        ([["number", "in", list(range(MAX_FILTER_VALUES))]], "where has 10001 values, at most 10000 are allowed"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(store: TableStore, where: Any, sentence: str) -> None:
    with pytest.raises(ReadError, match=sentence) as error:
        store.scan("everything", where)
    assert not error.value.retryable


def test_a_filter_may_list_as_many_values_as_it_says(store: TableStore) -> None:
    where: list[list[Any]] = [["part", "=", "a"], ["number", "in", list(range(MAX_FILTER_VALUES - 2))]]
    assert ids(store.scan("everything", where)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("order", "limit", "found"),
    [
        ([], None, [1, 2, 3, 4, 5]),
        (["-number"], None, [5, 4, 3, 2, 1]),
        (["-id"], 2, [5, 4]),
        (["note"], None, [4, 5, 1, 2, 3]),
        (["-note", "-id"], None, [3, 2, 1, 5, 4]),
        ([], 0, []),
        ([], 10, [1, 2, 3, 4, 5]),
    ],
)
def test_scans_are_sorted_by_order_and_then_by_key(
    store: TableStore, order: list[str], limit: int | None, found: list[int]
) -> None:
    assert ids(store.scan("everything", [["part", "=", "a"]], order, limit)) == found


def test_rows_that_an_order_does_not_tell_apart_go_by_key(store: TableStore) -> None:
    put(store, "everything", [row(ident, number=7) for ident in (8, 6, 9, 7)], replace={"part": "a"})
    assert ids(store.scan("everything", [["number", ">=", "0"], ["number", "<", 99]], ["-number"])) == [6, 7, 8, 9]
    assert ids(store.scan("everything", [["part", "=", "a"]], ["number", "-id"])) == [9, 8, 7, 6]


@pytest.mark.parametrize(
    ("order", "limit", "sentence"),
    [
        (["nummer"], None, "has no column 'nummer'"),
        (["-nummer"], None, "has no column 'nummer'"),
        (["number DESC"], None, "has no column 'number DESC'"),
        (["extra"], None, "column 'extra' has no order"),
        ("number", None, "order must be a list of columns"),
        ([5], None, r"order must be a list of columns .*, not \[5\]"),
        pytest.param([10**5_000], None, r"not \[an integer of 16610 bits\]", id="huge"),
        ([], -1, "limit must be a number of rows, 0 or more, not -1"),
        ([], "1", "limit must be a number of rows, 0 or more, not '1'"),
        ([], True, "limit must be a number of rows"),
    ],
)
def test_an_order_or_limit_that_makes_no_sense_is_refused(
    store: TableStore, order: Any, limit: Any, sentence: str
) -> None:
    with pytest.raises(ReadError, match=sentence):
        store.scan("everything", [], order, limit)


def test_show_gives_the_first_rows_by_key(store: TableStore) -> None:
    assert ids(store.show("everything", 2)) == [1, 2]


def test_a_table_that_was_dropped_while_in_use_is_named(store: TableStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("DROP TABLE everything")
    database.close()
    for read in (lambda: store.get_many("everything", [("a", 1)]), lambda: store.scan("everything")):
        with pytest.raises(
            ReadError, match="table 'everything' could not be read: it is no longer in the database"
        ) as error:
            read()
        assert not error.value.retryable


def test_a_database_that_somebody_locked_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockx.store.sqlite.BUSY_TIMEOUT_MS", 1)
    with table_store(tmp_path) as store:
        other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        store.close()
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE held (x)")
        fresh = TableStore(store._engine, tmp_path / "t.db")
        with pytest.raises(ReadError, match="could not be read: database is locked") as error:
            fresh.show("everything")
        assert error.value.retryable
        other.execute("ROLLBACK")
        other.close()
        assert fresh.show("everything") == []
        fresh.close()


def test_an_interrupted_read_is_worth_another_try(store: TableStore) -> None:
    with store._reading("table 'everything'") as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.create_function("stop", 0, driver.interrupt)
    with pytest.raises(ReadError, match="table 'everything' could not be read: interrupted") as error:
        with store._reading("table 'everything'") as connection:
            connection.exec_driver_sql(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT stop() FROM n"
            ).all()
    assert error.value.retryable
    assert ids(store.show("everything", 1)) == [1]


def test_readers_see_whole_transactions_and_do_not_wait_for_the_writer(store: TableStore) -> None:
    seen: list[list[int]] = []

    def read_in_another_thread() -> None:
        reader = threading.Thread(target=lambda: seen.append(ids(store.scan("everything", [["part", "=", "a"]]))))
        reader.start()
        reader.join()

    store.write([TableWrite("everything", [row(6)])], read_in_another_thread)
    read_in_another_thread()
    assert seen == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
