"""`blockx tables` and `blockx bundles` against real stores in a temporary directory."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockx.cli.main import run
from blockx.store.tables import TableStore, TableWrite
from blockx.testing.sample_chain import SampleChain
from tests.conftest import ROOT

SCHEMA = """
[balances]
key = ["owner"]
[balances.columns]
owner = "text"
amount = { type = "uint256", required = true }
note = "text"
"""


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLOCKX_DATABASE", raising=False)
    monkeypatch.delenv("BLOCKX_BUNDLES", raising=False)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    (tmp_path / "tables.toml").write_text(SCHEMA)
    return "tables.toml"


@pytest.fixture
def balances(schema: str) -> str:
    """A database with two rows."""
    assert run(["tables", "apply", schema]) == 0
    store = TableStore.open("sqlite:///blockx.db")
    rows = [{"owner": "b", "amount": 2**256 - 1, "note": None}, {"owner": "a", "amount": 1, "note": "[bold] text"}]
    store.write([TableWrite("balances", rows)], lambda: None)
    store.close()
    return "balances"


def printed_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_apply_creates_tables_and_says_so(schema: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "apply", schema]) == 0
    assert capsys.readouterr().out == "created balances\n"
    assert run(["tables", "apply", schema, "--json"]) == 0
    assert printed_json(capsys) == {"created": [], "altered": [], "unchanged": ["balances"]}


def test_a_change_that_is_refused_is_told_with_all_of_its_sql(
    balances: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "changed.toml").write_text(SCHEMA.replace('note = "text"', 'note = "integer"'))
    capsys.readouterr()
    assert run(["tables", "apply", "changed.toml", "--json"]) == 2
    captured = capsys.readouterr()
    assert "CREATE TABLE" in captured.err
    assert "--debug" not in captured.err
    assert captured.err == f"blockx: {json.loads(captured.out)['refused']}\n"


def test_a_wrong_schema_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text(SCHEMA.replace("uint256", "uint265"))
    assert run(["tables", "apply", "bad.toml"]) == 2
    assert "did you mean 'uint256'" in capsys.readouterr().err


def test_show_prints_an_array_of_rows(balances: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["tables", "show", balances, "--json"]) == 0
    assert printed_json(capsys) == [
        {"owner": "a", "amount": 1, "note": "[bold] text"},
        {"owner": "b", "amount": 2**256 - 1, "note": None},
    ]


def test_show_prints_at_most_the_limit(balances: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["tables", "show", balances, "--limit", "1", "--json"]) == 0
    assert [row["owner"] for row in printed_json(capsys)] == ["a"]


def test_show_prints_a_table_for_people_with_texts_as_they_are(
    balances: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    capsys.readouterr()
    assert run(["tables", "show", balances]) == 0
    captured = capsys.readouterr()
    assert "[bold] text" in captured.out
    assert str(2**256 - 1) in captured.out
    assert captured.err == "2 rows\n"


def test_a_narrow_terminal_shows_all_digits_of_a_number(
    balances: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    capsys.readouterr()
    assert run(["tables", "show", balances]) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "…" not in shown
    assert "".join(re.findall(r"[0-9]{2,}", shown)) == str(2**256 - 1)


def test_on_a_pipe_rows_are_tab_separated_and_whole(balances: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = TableStore.open("sqlite:///blockx.db")
    store.write([TableWrite("balances", [{"owner": "c\td", "amount": 3, "note": "two\nlines"}])], lambda: None)
    store.close()
    capsys.readouterr()
    assert run(["tables", "show", balances]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "owner\tamount\tnote",
        "a\t1\t[bold] text",
        f"b\t{2**256 - 1}\tnull",
        "c\\td\t3\ttwo\\nlines",
    ]
    assert captured.err == "3 rows\n"


def test_it_is_said_when_there_are_more_rows(balances: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["tables", "show", balances, "--limit", "1"]) == 0
    assert capsys.readouterr().err == "1 row, and there are more; --limit shows more\n"
    assert run(["tables", "show", balances, "--limit", "2"]) == 0
    assert capsys.readouterr().err == "2 rows\n"


def test_reading_makes_no_database_and_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "show", "balances"]) == 2
    assert f"there is no database {tmp_path / 'blockx.db'}" in capsys.readouterr().err
    assert run(["bundles", "list"]) == 2
    assert f"there is no bundle directory {tmp_path / 'blockx-bundles'}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value", "command"),
    [
        ("BLOCKX_DATABASE", "oracle://user:secret@host", ["tables", "show", "x"]),
        ("BLOCKX_DATABASE", "blockx.db", ["tables", "show", "x"]),
        ("BLOCKX_BUNDLES", "s3://bucket", ["bundles", "list"]),
    ],
)
def test_a_place_of_another_kind_is_refused_and_its_source_named(
    variable: str,
    value: str,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    assert run(command) == 2
    captured = capsys.readouterr()
    assert f"(from the variable {variable})" in captured.err
    assert "secret" not in captured.err


def test_an_unknown_table_is_named(balances: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "show", "balancs"]) == 1
    assert "did you mean 'balances'" in capsys.readouterr().err


def test_the_database_comes_from_flag_variable_or_file(
    balances: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blockx.db").rename(tmp_path / "other.db")
    (tmp_path / "blockx.toml").write_text('[worker]\ndatabase = "sqlite:///other.db"\nslots = 3\n')
    show = ["tables", "show", balances, "--json"]
    assert run([*show, "--database", "sqlite:///other.db"]) == 0
    assert run([*show, "--config", "blockx.toml"]) == 0
    assert run(show) == 0
    (tmp_path / "blockx.toml").unlink()
    assert run(show) == 2
    monkeypatch.setenv("BLOCKX_DATABASE", "sqlite:///other.db")
    assert run(show) == 0


def test_import_keeps_bundles_and_list_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    chain = SampleChain(blocks=3)
    chain.write("sample.jsonl.gz")
    assert run(["bundles", "import", "sample.jsonl.gz"]) == 0
    assert capsys.readouterr().out == "sample.jsonl.gz: 3 imported, 0 known already, 0 refused\n"
    assert run(["bundles", "list", "--json"]) == 0
    listed = printed_json(capsys)
    assert [entry["height"] for entry in listed] == list(chain.heights)
    assert set(listed[0]) == {"chainId", "height", "blockId", "sizeBytes"}
    assert run(["bundles", "list", "--chain-id", "1"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_bundles_are_imported_from_stdin(
    compress: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b"\n".join(json.dumps(bundle).encode() for bundle in SampleChain(blocks=2).bundles())
    ended = subprocess.run(
        [sys.executable, "-m", "blockx", "bundles", "import", "-"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=compress(lines),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.decode() == "-: 2 imported, 0 known already, 0 refused\n", ended.stderr
    assert ended.returncode == 0
    assert run(["bundles", "list"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_importing_again_finds_everything_known(capsys: pytest.CaptureFixture[str]) -> None:
    SampleChain(blocks=3).write("sample.jsonl.gz")
    run(["bundles", "import", "sample.jsonl.gz"])
    capsys.readouterr()
    assert run(["bundles", "import", "sample.jsonl.gz", "--json"]) == 0
    (report,) = printed_json(capsys)
    assert (report["imported"], report["known"], report["refused"]) == (0, 3, [])


def test_a_line_that_is_cut_off_is_refused_by_number_and_the_rest_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(bundle) for bundle in SampleChain(blocks=3).bundles()]
    lines[1] = lines[1][:100]
    (tmp_path / "cut.jsonl").write_text("\n".join(lines) + "\n")
    assert run(["bundles", "import", "cut.jsonl"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "cut.jsonl: 2 imported, 0 known already, 1 refused\n"
    assert captured.err.startswith("  line 2: ")


def test_a_broken_gzip_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SampleChain(blocks=20).write("whole.jsonl.gz")
    whole = (tmp_path / "whole.jsonl.gz").read_bytes()
    (tmp_path / "broken.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert run(["bundles", "import", "broken.jsonl.gz", "--json"]) == 1
    (report,) = printed_json(capsys)
    assert 0 < report["imported"] < 20
    assert report["refusedCount"] == 1


def test_bundles_of_another_chain_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    SampleChain(blocks=2).write("sample.jsonl.gz")
    assert run(["bundles", "import", "sample.jsonl.gz", "--chain-id", "1"]) == 1
    assert "chain 31337" in capsys.readouterr().err


def test_many_refusals_are_told_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(tmp_path / "bad.jsonl.gz", "wt") as out:
        out.write("not json\n" * 50)
    assert run(["bundles", "import", "bad.jsonl.gz"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 21
    assert captured.err.endswith("  and 30 more; --json lists the first 50\n")


def test_output_that_nobody_reads_any_more_ends_the_command_quietly(balances: str) -> None:
    show = f"{sys.executable} -m blockx tables show {balances} --json"
    ended = subprocess.run(
        ["bash", "-c", f"{show} | true; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
