"""A table with one column of every type, and stores over it in real files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blockx.store.tables import Row, TableStore, TableWrite, WriteCounts, load_schema

EVERYTHING = """
[everything]
key = ["part", "id"]
indexes = [["number"]]
[everything.columns]
part = "text"
id = "integer"
number = "uint256"
signed = "int256"
exact = "decimal"
note = "text"
blob = "bytes"
flag = "boolean"
moment = "timestamp"
extra = "json"

[balances]
key = ["owner"]
[balances.columns]
owner = "bytes"
amount = { type = "uint256", required = true }
"""


@contextmanager
def table_store(folder: Path, schema: str = EVERYTHING) -> Iterator[TableStore]:
    """A store over `folder/t.db` with the schema applied."""
    store = TableStore.open(f"sqlite:///{folder}/t.db")
    try:
        store.apply(load_schema(schema))
        yield store
    finally:
        store.close()


def put(store: TableStore, table: str, rows: Sequence[Row], **more: Any) -> WriteCounts:
    """Write rows into one table, with nothing to ask before the commit."""
    return store.write([TableWrite(table, rows, **more)], lambda: None)[table]


def row(ident: int = 1, **values: Any) -> Row:
    """A row of `everything` in part "a"."""
    return {"part": "a", "id": ident, **values}


def ids(rows: Sequence[Row]) -> list[int]:
    return [found["id"] for found in rows]
