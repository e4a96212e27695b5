"""`apply`: what it creates and alters, what it refuses, and the SQL that it prints then."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from blockx.errors import ConfigError, ReadError, Unavailable
from blockx.store.tables import ApplyReport, TableStore, load_schema
from tests.adapters.table_samples import put, table_store

BASE = '[t]\nkey = ["k"]\n[t.columns]\nk = "text"\nv = "uint256"\n'
INDEXED = BASE.replace('key = ["k"]', 'key = ["k"]\nindexes = [["v"]]')


def test_tables_are_created_once_and_unchanged_the_second_time(tmp_path: Path) -> None:
    schema = load_schema(BASE + '[s]\nkey = ["a"]\ncolumns = { a = "integer" }\n')
    store = TableStore.open(f"sqlite:///{tmp_path}/t.db")
    assert store.apply(schema) == ApplyReport(created=("t", "s"))
    assert store.apply(schema) == ApplyReport(unchanged=("t", "s"))
    store.close()


def test_definitions_are_kept_in_the_database(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE):
        other = TableStore.open(f"sqlite:///{tmp_path}/t.db")
        assert other.schema() == load_schema(BASE).tables
        other.close()


def test_a_database_that_apply_never_saw_has_no_tables(tmp_path: Path) -> None:
    store = TableStore.open(f"sqlite:///{tmp_path}/t.db")
    assert store.schema() == {}
    store.close()


def test_tables_that_the_schema_does_not_name_stay_as_they_are(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        put(store, "t", [{"k": "a", "v": 1}])
        assert store.apply(load_schema(BASE.replace("[t", "[u"))) == ApplyReport(created=("u",))
        assert store.show("t") == [{"k": "a", "v": 1}]


def test_nullable_columns_and_indexes_are_added_to_a_table_with_rows(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        put(store, "t", [{"k": "a", "v": 1}])
        assert store.apply(load_schema(INDEXED + 'note = "text"\n')) == ApplyReport(altered=("t",))
        assert store.show("t") == [{"k": "a", "v": 1, "note": None}]
        put(store, "t", [{"k": "b", "note": "n"}])
        assert store.scan("t", [["note", "=", "n"]]) == [{"k": "b", "v": None, "note": "n"}]
    with sqlite3.connect(tmp_path / "t.db") as database:
        assert database.execute("SELECT * FROM t_readable ORDER BY k").fetchall() == [
            ("a", "1", None),
            ("b", None, "n"),
        ]
        plan = database.execute("EXPLAIN QUERY PLAN SELECT k FROM t WHERE v = '01:1'").fetchall()
    database.close()
    assert "blockx_ix_t_" in plan[0][3]


def test_another_store_over_the_same_file_sees_a_new_table_and_a_new_column(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        other = TableStore.open(f"sqlite:///{tmp_path}/t.db")
        assert other.show("t") == []
        with pytest.raises(ReadError, match="there is no table 'u'"):
            other.show("u")
        store.apply(load_schema(BASE + 'note = "text"\n[u]\nkey = ["k"]\ncolumns = { k = "text" }\n'))
        assert put(other, "t", [{"k": "a", "note": "n"}]).written == 1
        assert other.show("u") == []
        other.close()


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (BASE.replace('v = "uint256"\n', ""), "column 'v' is no longer defined"),
        (BASE.replace('v = "uint256"', 'v = "text"'), "column 'v' is uint256, not text"),
        (BASE + 'w = { type = "text", required = true }\n', "new column 'w' is required"),
        (BASE.replace('"uint256"', '{ type = "uint256", required = true }'), "column 'v' is nullable in the database"),
        (BASE.replace('["k"]', '["k", "v"]'), r"its key is \(k\), not \(k, v\)"),
        (BASE.replace('k = "text"', 'k = "text"\nw = "text"').replace('v = "uint256"\n', ""), "'v' is no longer"),
    ],
)
def test_any_other_difference_is_refused_and_the_printed_sql_makes_it(tmp_path: Path, new: str, reason: str) -> None:
    with table_store(tmp_path, BASE) as store:
        put(store, "t", [{"k": "a", "v": 7}])
        with pytest.raises(ConfigError, match=reason) as refusal:
            store.apply(load_schema(new))
        assert store.schema() == load_schema(BASE).tables
        sql = str(refusal.value).split("run it:\n")[1].replace("NULL /* a value for w */", "'given by hand'")
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.executescript(sql)
        database.close()
        assert store.apply(load_schema(new)) == ApplyReport(unchanged=("t",))
        assert [found["k"] for found in store.show("t")] == ["a"]


def test_the_printed_sql_drops_an_index_that_is_no_longer_defined(tmp_path: Path) -> None:
    with table_store(tmp_path, INDEXED) as store:
        with pytest.raises(ConfigError, match=r"the index on \(v\) is no longer defined") as refusal:
            store.apply(load_schema(BASE))
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.executescript(str(refusal.value).split("run it:\n")[1])
            names = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'blockx_ix%'")
            ]
        database.close()
        assert names == []
        assert store.apply(load_schema(BASE)) == ApplyReport(unchanged=("t",))


def test_a_refused_schema_changes_nothing_at_all(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        with pytest.raises(ConfigError):
            store.apply(load_schema('[a]\nkey = ["k"]\ncolumns = { k = "text" }\n' + BASE.replace("uint256", "text")))
        assert list(store.schema()) == ["t"]


@pytest.mark.parametrize("kind", ["TABLE t (x)", "VIEW t AS SELECT 1"])
def test_a_table_of_somebody_else_is_not_taken_over(tmp_path: Path, kind: str) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute(f"CREATE {kind}")
    database.close()
    store = TableStore.open(f"sqlite:///{tmp_path}/t.db")
    with pytest.raises(ConfigError, match=r"already has a (table|view) 't' that BlockX did not create"):
        store.apply(load_schema(BASE))
    store.close()


def test_a_table_in_the_place_of_the_readable_view_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("CREATE TABLE t_readable (x)")
    database.close()
    store = TableStore.open(f"sqlite:///{tmp_path}/t.db")
    with pytest.raises(ConfigError, match="already has a table 't_readable', which is to be a view"):
        store.apply(load_schema(BASE))
    store.close()


def test_a_dropped_table_is_created_again(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute("DROP TABLE t")
        database.close()
        assert store.apply(load_schema(BASE)) == ApplyReport(created=("t",))
        assert store.show("t") == []


def test_words_of_sql_may_be_names(tmp_path: Path) -> None:
    schema = '[select]\nkey = ["order", "group"]\nindexes = [["from"]]\n' + (
        '[select.columns]\norder = "text"\ngroup = "bytes"\nfrom = "uint256"\nindex = "integer"\n'
    )
    with table_store(tmp_path, schema) as store:
        found = {"order": "a", "group": b"\1", "from": 5, "index": 6}
        put(store, "select", [found])
        assert put(store, "select", [{**found, "index": 7}], replace={"from": 5}).written == 1
        assert store.get_many("select", [("a", b"\1")]) == [{**found, "index": 7}]
        assert store.scan("select", [["from", "=", 5]], ["-index"]) == [{**found, "index": 7}]
        assert put(store, "select", [], delete_keys=[("a", "0x01")]).deleted == 1


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://localhost/db", "'postgresql' is not supported"),
        ("postgresql+psycopg://localhost/db", r"'postgresql\+psycopg' is not supported"),
        ("sqlite+aiosqlite:///x.db", "use sqlite:///PATH"),
        ("sqlite://", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("sqlite://host/x.db", "has a path only"),
        ("sqlite:///x.db?mode=ro", "has a path only"),
        ("x.db", "is no database URL"),
    ],
)
def test_a_url_of_another_kind_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        TableStore.open(url)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"there is no directory {tmp_path}/nowhere"):
        TableStore.open(f"sqlite:///{tmp_path}/nowhere/t.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(ConfigError, match="is no SQLite database"):
        TableStore.open(f"sqlite:///{tmp_path}/t.db")


def test_a_folder_cannot_be_opened_as_a_database(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened: unable to open database file"):
        TableStore.open(f"sqlite:///{tmp_path}")


def test_a_relative_path_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TableStore.open("sqlite:///here.db").close()
    assert (tmp_path / "here.db").is_file()


def test_a_definition_of_a_later_version_is_an_error_for_readers(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute("""UPDATE blockx_tables SET definition = replace(definition, '"online"', '"hyper"')""")
            database.execute("CREATE TABLE makes_it_look (x)")
        database.close()
        with pytest.raises(ReadError, match="table 't' has an unknown kind 'hyper'"):
            store.show("t")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with table_store(tmp_path, BASE) as store:
        pass
    store.close()
    with pytest.raises(ReadError, match=r"t\.db is closed"):
        store.show("t")
    with pytest.raises(Unavailable, match="is closed"):
        store.apply(load_schema(BASE))
