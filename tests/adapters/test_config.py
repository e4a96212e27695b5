"""Settings come from defaults, file, environment and flags, and every mistake names where it was made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from blockx.config import describe, host_and_port, load, read_file
from blockx.errors import ConfigError
from blockx.worker.core.settings import WorkerSettings


@frozen(kw_only=True)
class Inner:
    grace_ms: int = 200
    """How long to wait."""
    limit_ms: int = 1_000

    def __attrs_post_init__(self) -> None:
        if self.grace_ms > self.limit_ms:
            raise ConfigError(f"grace_ms {self.grace_ms} is above limit_ms {self.limit_ms}")


@frozen(kw_only=True)
class Outer:
    listen: str = field(default="127.0.0.1:1", metadata={"env": "OUTER_LISTEN"})
    inner: Inner = field(factory=Inner)
    verbose: bool = False
    ratio: float = 0.5
    home: Path | None = None
    names: tuple[str, ...] = ()
    labels: dict[str, str] = field(factory=dict)
    internal: int = field(default=7, metadata={"env": None, "default": "a lucky number", "doc": "Set by nobody."})


@frozen(kw_only=True)
class Strict:
    database: str


def outer(
    *,
    file: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Outer:
    return load(Outer, file=file or {}, environ=environ or {}, flags=flags or {}, section="outer")


def test_without_sources_the_defaults_hold() -> None:
    assert outer() == Outer()


def test_each_source_overrides_the_one_before_it() -> None:
    file = {"outer": {"listen": "file", "grace_ms": 1, "ratio": 1}}
    environ = {"OUTER_LISTEN": "variable", "GRACE_MS": "2"}
    loaded = outer(file=file, environ=environ, flags={"listen": "flag", "ratio": None})
    assert loaded == Outer(listen="flag", inner=Inner(grace_ms=2), ratio=1.0)


def test_texts_from_the_environment_take_the_type_of_their_field() -> None:
    environ = {"VERBOSE": "yes", "RATIO": "0.25", "HOME": "/somewhere", "NAMES": "a, b", "LABELS": "zone=a,rack=3"}
    loaded = outer(environ=environ)
    assert loaded == Outer(
        verbose=True, ratio=0.25, home=Path("/somewhere"), names=("a", "b"), labels={"zone": "a", "rack": "3"}
    )


def test_lists_and_tables_come_from_the_file_as_such() -> None:
    loaded = outer(file={"outer": {"names": ["a"], "labels": {"zone": "b"}, "home": "/x"}})
    assert loaded == Outer(names=("a",), labels={"zone": "b"}, home=Path("/x"))


def test_another_section_of_the_file_is_not_read() -> None:
    assert outer(file={"inner": {"listen": "elsewhere"}}) == Outer()


def test_an_empty_variable_counts_as_not_set() -> None:
    assert outer(environ={"GRACE_MS": ""}) == Outer()


def test_a_field_may_refuse_to_have_a_variable() -> None:
    assert outer(environ={"INTERNAL": "9"}).internal == 7


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            {"file": {"outer": {"grace_sm": 1}}},
            "[outer] in the configuration file has an unknown key 'grace_sm' (did you mean 'grace_ms'?)",
        ),
        (
            {"file": {"outer": {"grace_ms": "5s"}}},
            "grace_ms in [outer] of the configuration file must be a whole number of milliseconds, not '5s'",
        ),
        (
            {"file": {"outer": {"grace_ms": True}}},
            "grace_ms in [outer] of the configuration file must be a whole number of milliseconds, not True",
        ),
        ({"file": {"outer": 3}}, "[outer] in the configuration file must be a table, not 3"),
        (
            {"file": {"outer": {"names": ["a", 1]}}},
            "names in [outer] of the configuration file must be a list of texts, not ['a', 1]",
        ),
        ({"environ": {"RATIO": "x"}}, "the variable RATIO must be a number, not 'x'"),
        ({"file": {"outer": {"home": 3}}}, "home in [outer] of the configuration file must be a path, not 3"),
        ({"environ": {"GRACE_MS": "5s"}}, "the variable GRACE_MS must be a whole number of milliseconds, not '5s'"),
        ({"environ": {"VERBOSE": "perhaps"}}, "the variable VERBOSE must be true or false, not 'perhaps'"),
        ({"environ": {"LABELS": "zone"}}, "the variable LABELS must be a list of key=value pairs, not 'zone'"),
        ({"flags": {"grace_ms": "x"}}, "the flag --grace-ms must be a whole number of milliseconds, not 'x'"),
        ({"flags": {"lissen": "x"}}, "there is no setting 'lissen' (did you mean 'listen'?)"),
        (
            {"environ": {"GRACE_MS": "5000"}},
            "grace_ms 5000 is above limit_ms 1000 (from the variable GRACE_MS)",
        ),
    ],
)  # fmt: skip
def test_a_mistake_names_the_setting_and_its_source(sources: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        outer(**sources)
    assert str(caught.value) == message


def test_a_required_setting_says_how_to_give_it() -> None:
    with pytest.raises(
        ConfigError, match=r"database is not set; give it as --database, the variable DATABASE, or database"
    ):
        load(Strict, file={}, environ={}, flags={}, section="strict")


def test_settings_describe_themselves() -> None:
    rows = {row.name: row for row in describe(Outer)}
    assert list(rows) == ["listen", "grace_ms", "limit_ms", "verbose", "ratio", "home", "names", "labels", "internal"]
    assert (rows["grace_ms"].env, rows["grace_ms"].default) == ("GRACE_MS", 200)
    assert (rows["grace_ms"].unit, rows["grace_ms"].doc) == ("milliseconds", "How long to wait.")
    assert rows["internal"].env is None
    assert (rows["internal"].default, rows["internal"].doc) == ("a lucky number", "Set by nobody.")
    assert rows["labels"].default == {}


def test_two_settings_of_one_name_are_a_fault_of_the_program() -> None:
    @frozen
    class Twice:
        inner: Inner
        grace_ms: int = 0

    with pytest.raises(TypeError, match="grace_ms"):
        describe(Twice)


def test_the_worker_takes_its_slots_from_the_documented_variable() -> None:
    assert load(WorkerSettings, file={}, environ={"WORKER_SLOTS": "3"}, flags={}, section="worker").slots == 3


def test_a_file_is_read_by_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "blockx.toml"
    path.write_text("[worker]\nslots = 3\n")
    assert read_file(path, sections=("worker",)) == {"worker": {"slots": 3}}
    assert read_file(None, sections=()) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [("slots =", "is not valid TOML"), ("[workr]\n", r"unknown table \[workr\] \(did you mean 'worker'")],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "blockx.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_file(path, sections=("worker",))
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file"):
        read_file(tmp_path / "missing.toml", sections=())


@pytest.mark.parametrize(
    ("address", "parts"), [("127.0.0.1:7071", ("127.0.0.1", 7071)), ("[::1]:0", ("::1", 0)), (":80", ("", 80))]
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["localhost", "host:", "host:http", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{address}' is no HOST:PORT"):
        host_and_port(address)
