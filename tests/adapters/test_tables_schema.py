"""Schema files: what is accepted, and how what is wrong is named."""

from __future__ import annotations

import pytest

from blockx.errors import ConfigError
from blockx.store.tables import ColumnDef, TableDef, load_schema

GOOD = """
[transfers]
kind = "online"
key = ["block_id", "idx"]
indexes = [["token"], ["token", "value"]]
[transfers.columns]
block_id = "text"
idx = "integer"
token = "text"
value = { type = "uint256", required = true }
"""


def test_a_schema_file_becomes_table_definitions() -> None:
    (table,) = load_schema(GOOD).tables.values()
    assert table == TableDef(
        name="transfers",
        key=("block_id", "idx"),
        columns={
            "block_id": ColumnDef("text"),
            "idx": ColumnDef("integer"),
            "token": ColumnDef("text"),
            "value": ColumnDef("uint256", required=True),
        },
        indexes=(("token",), ("token", "value")),
    )


def test_a_table_is_online_unless_it_says_otherwise() -> None:
    assert load_schema('[t]\nkey = ["k"]\ncolumns = { k = "text" }').tables["t"].kind == "online"


def test_a_definition_survives_being_kept() -> None:
    table = load_schema(GOOD).tables["transfers"]
    assert TableDef.from_json("transfers", table.to_json()) == table


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('kind = "online"', 'kind = "onlin"'),
            r"table 'transfers' has an unknown kind 'onlin' \(did you mean 'online'",
        ),
        (('"online"', '"block-versioned"'), r"table 'transfers' has kind 'block-versioned', which this version"),
        (("kind =", "kid ="), r"table 'transfers' has an unknown entry 'kid' \(did you mean 'kind'\?\)"),
        (('token = "text"', 'token = "txt"'), r"table 'transfers', column 'token'.* 'txt' \(did you mean 'text'\?\)"),
        (('token = "text"', "token = 5"), r"column 'token' must be a table of type, required, not 5"),
        (("required", "requird"), r"column 'value' has an unknown entry 'requird' \(did you mean 'required'"),
        (("required = true", "required = 1"), "column 'value': required must be true or false, not 1"),
        (('"idx"]', '"index"]'), r"table 'transfers': key names an unknown column 'index' \(did you mean 'idx'\?\)"),
        (('"idx"]', '"block_id"]'), "key names a column twice: block_id, block_id"),
        (('key = ["block_id", "idx"]', "key = []"), r"key must be a list of column names, not \[\]"),
        (('key = ["block_id", "idx"]', ""), "key must be a list of column names, not None"),
        (('[["token"], ', '[["tokn"], '), r"index 0 names an unknown column 'tokn' \(did you mean 'token'\?\)"),
        (('["token", "value"]', '["token"]'), "table 'transfers' has the same index twice"),
        (('[["token"], ["token", "value"]]', '"token"'), "indexes must be a list of column lists"),
        (('idx = "integer"', 'idx = "json"'), "key column 'idx' has type json"),
        (("[transfers]\n", "[transfers\n"), "not valid TOML"),
    ],
)
def test_a_wrong_word_is_named_with_its_place_and_the_nearest_valid_one(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(ConfigError, match=sentence):
        load_schema(GOOD.replace(*change))


@pytest.mark.parametrize(
    "name", ["Transfers", "9lives", "a b", "a;drop", "x" * 55, "blockx_mine", "__t", "sqlite_x", "t_readable", "ä", ""]
)
def test_a_table_name_that_sql_could_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="table name"):
        load_schema(f'["{name}"]\nkey = ["k"]\ncolumns = {{ k = "text" }}')


@pytest.mark.parametrize(
    "name", ["Value", "a-b", 'a\\" INTEGER, \\"b', "x" * 64, "blockx_height", "__deleted__", "a\\n"]
)
def test_a_column_name_that_sql_could_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="table 't': column name"):
        load_schema(f'[t]\nkey = ["k"]\ncolumns = {{ k = "text", "{name}" = "text" }}')


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="table 't' has no columns"):
        load_schema('[t]\nkey = ["k"]')


def test_a_table_that_is_no_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="table 't' must be a table of kind, key, indexes, columns, not 5"):
        load_schema("t = 5")
