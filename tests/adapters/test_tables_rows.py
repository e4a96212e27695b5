"""Values of every column type: exact round trips, the order of numbers, and how what does not fit is named."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blockx.errors import PluginError, ReadError
from blockx.store.tables import RowError
from tests.adapters.table_samples import put, row, table_store

UINT256_MAX = 2**256 - 1
INT256_MIN, INT256_MAX = -(2**255), 2**255 - 1
PLUS_5 = datetime.timezone(datetime.timedelta(hours=5))

UINT256 = st.integers(0, UINT256_MAX) | st.integers(0, 300)
INT256 = st.integers(INT256_MIN, INT256_MAX) | st.integers(-300, 300)
DECIMAL = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(map(int, str(digits))), exponent)),
    st.sampled_from([0, 1]),
    st.integers(0, 10**40) | st.integers(0, 200),
    st.integers(-60, 60) | st.integers(-2, 2),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)

ROWS = st.fixed_dictionaries(
    {},
    optional={
        "number": UINT256,
        "signed": INT256,
        "exact": DECIMAL,
        "note": TEXT,
        "blob": st.binary(max_size=40),
        "flag": st.booleans(),
        "moment": st.datetimes(timezones=st.just(datetime.UTC)),
        "extra": JSON,
    },
)
EMPTY = dict.fromkeys(("number", "signed", "exact", "note", "blob", "flag", "moment", "extra"))


def test_every_value_comes_back_exactly_and_an_absent_one_as_none(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:

        @given(ROWS, st.integers(-(2**63), 2**63 - 1), TEXT)
        def check(values: dict[str, Any], ident: int, part: str) -> None:
            whole = {"part": part, "id": ident, **values}
            put(store, "everything", [whole])
            assert store.get_many("everything", [(part, ident)]) == [{**EMPTY, **whole}]
            assert put(store, "everything", [whole]).unchanged == 1

        check()


def _sorted_by_database(store: Any, column: str, values: list[Any]) -> list[Any]:
    rows = [row(ident, **{column: value}) for ident, value in enumerate(values)]
    put(store, "everything", rows, replace={"part": "a"})
    return [found[column] for found in store.scan("everything", [], [column])]


@pytest.mark.parametrize(("column", "strategy"), [("number", UINT256), ("signed", INT256), ("exact", DECIMAL)])
def test_numbers_are_sorted_by_their_value(tmp_path: Path, column: str, strategy: st.SearchStrategy[Any]) -> None:
    with table_store(tmp_path) as store:

        @given(st.lists(strategy, min_size=2, max_size=12))
        def check(values: list[Any]) -> None:
            assert _sorted_by_database(store, column, values) == sorted(values)

        check()


@pytest.mark.parametrize(("column", "strategy"), [("number", UINT256), ("signed", INT256), ("exact", DECIMAL)])
def test_numbers_are_compared_by_their_value(tmp_path: Path, column: str, strategy: st.SearchStrategy[Any]) -> None:
    with table_store(tmp_path) as store:

        @given(strategy, strategy)
        def check(stored: Any, bound: Any) -> None:
            put(store, "everything", [row(1, **{column: stored})], replace={"part": "a"})
            found = {sign: bool(store.scan("everything", [[column, sign, bound]])) for sign in ("<", "<=", "=", ">")}
            assert found == {"<": stored < bound, "<=": stored <= bound, "=": stored == bound, ">": stored > bound}

        check()


def test_moments_are_sorted_by_time_whatever_their_offset(tmp_path: Path) -> None:
    moments = st.datetimes(
        datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1), timezones=st.sampled_from([datetime.UTC, PLUS_5])
    )
    with table_store(tmp_path) as store:

        @given(st.lists(moments, min_size=2, max_size=8))
        def check(values: list[datetime.datetime]) -> None:
            assert _sorted_by_database(store, "moment", values) == sorted(values)

        check()


def test_the_readable_view_shows_plain_numbers(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        database = sqlite3.connect(tmp_path / "t.db")

        @given(UINT256, INT256, DECIMAL, st.binary(max_size=8))
        @example(0, 0, Decimal(0), b"")
        @example(UINT256_MAX, INT256_MIN, Decimal("-0.000123"), b"\xab")
        @example(1, INT256_MAX, Decimal("1e9999"), b"\x00")
        @example(1, -1234567890, Decimal("-9876543210e-9990"), b"\x00")
        def check(number: int, signed: int, exact: Decimal, blob: bytes) -> None:
            put(store, "everything", [row(1, number=number, signed=signed, exact=exact, blob=blob)])
            query = "SELECT number, signed, exact, blob FROM everything_readable"
            shown_number, shown_signed, shown_exact, shown_blob = database.execute(query).fetchone()
            assert (shown_number, shown_signed) == (str(number), str(signed))
            assert (Decimal(shown_exact), shown_blob) == (exact, "0x" + blob.hex())

        check()
        put(store, "everything", [row(1)])
        assert database.execute("SELECT number, signed, exact FROM everything_readable").fetchone() == (None,) * 3
        database.close()


@pytest.mark.parametrize(
    ("column", "given_value", "kept"),
    [
        ("number", "1000000", 1_000_000),
        ("number", "0xff", 255),
        ("number", "007", 7),
        ("number", "0x" + "f" * 64, UINT256_MAX),
        ("signed", "-12", -12),
        ("signed", "-0x10", -16),
        ("signed", INT256_MIN, INT256_MIN),
        ("exact", 5, Decimal(5)),
        ("exact", "1.50", Decimal("1.5")),
        ("exact", "-.5e-3", Decimal("-0.0005")),
        ("exact", Decimal("-0"), Decimal(0)),
        ("exact", Decimal("1" * 1000), Decimal("1" * 1000)),
        ("blob", "0xAB01", b"\xab\x01"),
        ("blob", bytearray(b"xy"), b"xy"),
        ("note", "", ""),
        ("note", "über 🦀", "über 🦀"),
        ("moment", "2023-07-13T20:04:51.5+02:00", datetime.datetime(2023, 7, 13, 18, 4, 51, 500_000, datetime.UTC)),
        ("extra", {"b": [1, None, {"c": 2**200}], "a": "x"}, {"a": "x", "b": [1, None, {"c": 2**200}]}),
        ("extra", (1, 2), [1, 2]),
        ("extra", False, False),
    ],
)
def test_other_spellings_are_accepted(tmp_path: Path, column: str, given_value: object, kept: object) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1, **{column: given_value})])
        assert store.show("everything")[0][column] == kept
        assert len(store.scan("everything", [[column, "=", given_value]])) == 1


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("id", "5", "an integer of 64 bits, not '5'"),
        ("id", True, "an integer of 64 bits, not True"),
        ("id", 2**63, "an integer of 64 bits, not 9223372036854775808"),
        ("id", 1.0, "an integer of 64 bits, not 1.0"),
        ("number", -1, "a uint256 .*, not -1"),
        ("number", 2**256, "a uint256 .*, not 1157920892"),
        pytest.param("number", 10**9000, "a uint256 .*, not an integer of 29898 bits", id="huge"),
        ("number", 1.5, "a uint256 .*, not 1.5"),
        ("number", True, "a uint256 .*, not True"),
        ("number", "", "a uint256 .*, not ''"),
        ("number", "1_000", "a uint256 .*, not '1_000'"),
        ("number", " 1", "a uint256 .*, not ' 1'"),
        ("number", "٣", "a uint256"),
        ("number", "0x", "a uint256 .*, not '0x'"),
        ("number", "1" * 5000, "a uint256"),
        ("signed", 2**255, "an int256"),
        ("signed", -(2**255) - 1, "an int256"),
        ("signed", "--1", "an int256"),
        ("exact", 1.5, "a decimal .*, not 1.5"),
        ("exact", Decimal("NaN"), r"a decimal .*, not Decimal\('NaN'\)"),
        ("exact", "Infinity", "a decimal"),
        ("exact", "1e10000", "a decimal"),
        ("exact", Decimal("1e-10000"), "a decimal"),
        ("exact", Decimal("1" * 1001), "a decimal"),
        pytest.param("exact", Decimal("1" * 2_000_000), "a decimal", id="long decimal"),
        pytest.param("exact", 10**10_000, "a decimal .*, not an integer of 33220 bits", id="long integer"),
        pytest.param("exact", 1 << 40_000_000, "a decimal .*, not an integer of 40000001 bits", id="huge integer"),
        pytest.param("extra", [{"a": 1 << 40_000_000}], "JSON .*, not .*an integer of 40000001 bits", id="in JSON"),
        ("exact", True, "a decimal"),
        ("note", 5, "text, not 5"),
        ("note", b"x", "text, not b'x'"),
        ("note", "a\0b", "text without NUL"),
        ("note", "a\ud800b", "text without lone surrogates"),
        ("blob", "abc", "bytes or 0x-hex, not 'abc'"),
        ("blob", "0xabc", "bytes or 0x-hex, not '0xabc'"),
        ("flag", 1, "true or false, not 1"),
        ("moment", datetime.datetime(2024, 1, 1), "a time with an offset from UTC"),
        ("moment", "yesterday", "a time with an offset from UTC .*, not 'yesterday'"),
        ("moment", 1_700_000_000, "a time with an offset from UTC"),
        ("moment", datetime.datetime(1, 1, 1, tzinfo=PLUS_5), "a time with an offset from UTC"),
        ("extra", {1: 2}, "JSON whose object keys are text"),
        ("extra", {"a\0": 2}, "text without NUL"),
        ("extra", ["a\udfff"], "text without lone surrogates"),
        ("extra", [float("nan")], "JSON "),
        ("extra", {1, 2}, "JSON "),
        ("extra", [Decimal(1)], "JSON "),
        ("extra", 2**4097, "JSON whose integers have at most 4096 bits"),
        pytest.param("extra", _nested(5000), "JSON at most 100 levels deep", id="deep"),
        pytest.param(
            "extra",
            [10**9000],
            "JSON whose integers have at most 4096 bits, not .an integer of 29898 bits",
            id="huge-inside",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row_and_column(
    tmp_path: Path, column: str, value: object, expected: str
) -> None:
    with table_store(tmp_path) as store:
        rows = [row(1), {**row(2), column: value}]
        with pytest.raises(
            RowError, match=f"row 1 for table 'everything': column '{column}' must be {expected}"
        ) as error:
            store.check_rows("everything", rows)
        assert (error.value.row, error.value.column, error.value.retryable) == (1, column, False)
        with pytest.raises(RowError):
            put(store, "everything", rows)
        assert store.show("everything") == []


@pytest.mark.parametrize(
    ("bad", "column", "sentence"),
    [
        ({"part": "a"}, "id", "column 'id' is required, but has no value"),
        ({"part": None, "id": 1}, "part", "column 'part' is required"),
        ({"part": "a", "id": 1, "nummer": 1}, "nummer", r"unknown column 'nummer' \(did you mean 'number'\?\)"),
        ({"part": "a", "id": 1, 5: 1}, "5", "unknown column 5"),
        ({"part": "a", "id": 1, 'x" = 1; --': 1}, 'x" = 1; --', "unknown column"),
        (["a", 1], "", r"row 0 for table 'everything' must be an object of columns, not \['a', 1\]"),
        (None, "", "must be an object of columns, not None"),
    ],
)
def test_a_row_of_another_shape_is_refused(tmp_path: Path, bad: Any, column: str, sentence: str) -> None:
    with table_store(tmp_path) as store:
        with pytest.raises(RowError, match=sentence) as error:
            store.check_rows("everything", [bad])
        assert (error.value.row, error.value.column) == (0, column)


def test_a_required_column_needs_a_value(tmp_path: Path) -> None:
    with table_store(tmp_path) as store, pytest.raises(RowError, match="column 'amount' is required"):
        store.check_rows("balances", [{"owner": b"\1"}])


def test_rows_that_fit_pass_the_check_and_nothing_is_written(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        store.check_rows("everything", [row(1, number=5), row(2)])
        assert store.show("everything") == []


def test_rows_for_an_unknown_table_are_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with table_store(tmp_path) as store:
        sentence = r"there is no table 'balance' \(did you mean 'balances'\?\)"
        with pytest.raises(PluginError, match=sentence):
            store.check_rows("balance", [])
        with pytest.raises(PluginError, match=sentence):
            put(store, "balance", [])


def test_a_decimal_is_its_value_whatever_its_trailing_zeros(tmp_path: Path) -> None:
    with table_store(tmp_path, '[d]\nkey = ["k"]\n[d.columns]\nk = "decimal"\nv = "decimal"\n') as store:
        assert put(store, "d", [{"k": "1.50", "v": 100}]).written == 1
        assert put(store, "d", [{"k": Decimal("1.5"), "v": "1e2"}]).unchanged == 1
        assert store.get_many("d", ["1.500", "15e-1"], ["v"]) == [{"v": Decimal(100)}] * 2


def test_decimals_are_exact_whatever_the_context_of_the_thread(tmp_path: Path) -> None:
    value = Decimal("1234567890.0987654321")
    with table_store(tmp_path) as store, decimal.localcontext(prec=3):
        put(store, "everything", [row(1, exact=value)])
        assert store.show("everything")[0]["exact"] == value


@pytest.mark.parametrize(
    ("column", "stored"), [("number", "5"), ("exact", "1.5"), ("moment", "now"), ("extra", "{"), ("signed", "")]
)
def test_a_value_that_somebody_else_put_there_is_named_not_guessed(tmp_path: Path, column: str, stored: str) -> None:
    with table_store(tmp_path) as store:
        put(store, "everything", [row(1)])
        with sqlite3.connect(tmp_path / "t.db") as database:
            database.execute(f"UPDATE everything SET {column} = ?", (stored,))
        database.close()
        with pytest.raises(ReadError, match=f"table 'everything', column '{column}' holds {stored!r}, which is no"):
            store.show("everything")
