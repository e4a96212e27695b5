"""Every example runs, and does what the README and the manual say of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockx.cli.main import run
from blockx.testing.sample_chain import SampleChain
from tests.cli_server import Server, server
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
ANY_PORT = ["--coordinator-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--executors", "1"]


@pytest.fixture
def hello(tmp_path: Path) -> Iterator[Server]:
    with server("dev", str(EXAMPLES / "hello"), *ANY_PORT, cwd=tmp_path) as dev:
        yield dev


def test_the_hello_task_greets_twice(hello: Server, capsys: pytest.CaptureFixture[str]) -> None:
    task, coordinator = str(EXAMPLES / "hello.json"), hello.addresses["coordinator"]
    assert run(["submit", task, "--watch", "--coordinator", coordinator]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == ["hello ct2", "hello blockx"]
    assert run(["submit", task, "--watch", "--coordinator", coordinator]) == 0
    assert "known already" not in capsys.readouterr().err


def test_the_stock_grpcio_client_gets_the_same(hello: Server) -> None:
    command = [sys.executable, str(EXAMPLES / "grpcio_client" / "client.py")]
    ended = subprocess.run(
        [*command, hello.addresses["coordinator"], str(EXAMPLES / "hello.json")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == ["hello ct2", "hello blockx"]


def programs(page: str) -> list[str]:
    """The complete programs of a page of the manual."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "trio.run(" in block]


@pytest.mark.parametrize(
    ("page", "count", "words"),
    [
        ("README.md", 1, ["['hello ct2', 'hello blockx']"]),
        (
            "docs/clients.md",
            3,
            ["['hello ct2', 'hello blockx']", "['hello ct2']", "['hello blockx']", "TaskState.SUCCEEDED True"],
        ),
    ],
)
def test_the_programs_of_the_manual_run(hello: Server, page: str, count: int, words: list[str]) -> None:
    printed = ""
    for program in programs(page):
        assert "127.0.0.1:7070" in program
        text = program.replace("127.0.0.1:7070", hello.addresses["coordinator"])
        command = [sys.executable, "-c", text]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        printed += ended.stdout
    assert len(programs(page)) == count
    assert [word for word in words if word not in printed] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "usage: "),
        (["127.0.0.1:1", "no-such-file.json"], 2, "no-such-file.json"),
        (["127.0.0.1:1", str(EXAMPLES / "hello.json")], 3, "127.0.0.1:1"),
    ],
)
def test_the_stock_grpcio_client_says_what_is_wrong(arguments: list[str], code: int, words: str) -> None:
    command = [sys.executable, str(EXAMPLES / "grpcio_client" / "client.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_erc20_example_indexes_blocks_step_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    erc20, chain = EXAMPLES / "erc20", SampleChain(blocks=20)  # those that task.json names
    chain.write("sample.jsonl.gz")
    assert run(["tables", "apply", str(erc20 / "tables.toml")]) == 0
    assert run(["bundles", "import", "sample.jsonl.gz"]) == 0
    with server("dev", str(erc20), *ANY_PORT, cwd=tmp_path) as dev:
        coordinator = dev.addresses["coordinator"]
        assert run(["submit", str(erc20 / "task.json"), "--watch", "--coordinator", coordinator]) == 0
    capsys.readouterr()
    assert run(["tables", "show", "transfers", "--limit", "1000", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["tx_id"], row["idx"], row["value"]) for row in rows} == {
        (transfer.tx_id, transfer.idx, transfer.value) for transfer in chain.transfers()
    }
    assert len(rows) == len(list(chain.transfers()))


def test_the_demo_writes_exactly_what_the_sample_chain_holds(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--blocks", "25", "--keep", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "exactly what the chain holds" in ended.stdout
    transfers = len(list(SampleChain(blocks=25).transfers()))
    assert f"{transfers:,}" in ended.stdout
    assert "speed" in ended.stdout
    url = f"sqlite:///{tmp_path / 'blockx.db'}"
    assert f"blockx tables show transfers --database {url}" in ended.stdout
    assert run(["tables", "show", "transfers", "--database", url]) == 0


def test_the_demo_notices_a_row_that_should_not_be_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo", "--keep", str(tmp_path), "--blocks"]
    longer = subprocess.run([*command, "3"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert longer.returncode == 0, longer.stdout + longer.stderr
    shorter = subprocess.run([*command, "2"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert shorter.returncode == 1
    assert "not what the chain holds" in shorter.stdout
