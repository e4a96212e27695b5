"""JSON that everybody reads alike, in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.errors import InvalidArgument
from blockx.model import PluginConfig, TaskInput
from blockx.strict_json import MAX_INT_DIGITS, fits_json, read_json, write_json
from blockx.worker.core.payload import check_payload

WIDEST = "9" * MAX_INT_DIGITS
TOO_WIDE = "an integer has more than 4300 digits; send it as text"

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(plain)
def test_what_json_holds_is_read_as_it_was_written(value: object) -> None:
    assert read_json(write_json(value)) == value
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("{", "Expecting property name"),
        (b'"\xff"', "invalid start byte"),
        ("[NaN]", "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("[1e999]", "the number 1e999 is beyond what a float holds"),
        ("[-1e999]", "the number -1e999 is beyond what a float holds"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' is twice in one object"),
        ('[{"x": {"\\u0061": 1, "a": 2}}]', "the key 'a' is twice in one object"),
        (f"[{WIDEST}0]", TOO_WIDE),
        (f"[-{WIDEST}0]", TOO_WIDE),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_readers_would_take_differently_is_refused(text: str | bytes, clause: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the clause is compared below
        read_json(text)
    assert clause in str(caught.value)
    assert "sys." not in str(caught.value)


def test_a_refusal_is_short_whatever_was_written() -> None:
    key, number = "k" * 100_000, f"1{'0' * 100_000}e9"
    for text in (f'{{"{key}": 1, "{key}": 2}}', f"[{number}]", f"[{number[:-2]}]"):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # its length is compared
            read_json(text)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ['{"a": {"b": 1}, "b": {"b": 2}}', '[{"a": 1}, {"a": 2}]', "1e308", "1e-999", WIDEST])
def test_what_is_unusual_and_means_one_thing_is_read(text: str) -> None:
    assert read_json(text) == json.loads(text)


def _circle() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "clause"),
    [
        (float("nan"), "a float that is NaN or infinite"),
        ([float("-inf")], "a float that is NaN or infinite"),
        ([10**4_300], TOO_WIDE),
        ([1 << 4_000_000], TOO_WIDE),
        (_circle(), "it contains itself"),
        (_deep(), "it is nested too deeply"),
    ],
)
def test_what_json_does_not_hold_is_not_written(value: object, clause: str) -> None:
    with pytest.raises(ValueError, match=clause):
        write_json(value)
    with pytest.raises(InvalidArgument, match=f"config cannot be written as JSON: .*{clause}"):
        PluginConfig("X", {"a": value})


def test_an_integer_fits_up_to_its_digits() -> None:
    assert fits_json(int(WIDEST))
    assert fits_json(-int(WIDEST))
    assert not fits_json(int(WIDEST) + 1)
    assert not fits_json(-int(WIDEST) - 1)
    assert json.loads(write_json(int(WIDEST))) == int(WIDEST)


@pytest.mark.parametrize(
    ("config", "clause"),
    [
        ('{"a": 1e999}', "the number 1e999 is beyond what a float holds"),
        ('{"function": "f", "function": "g"}', "the key 'function' is twice in one object"),
        (f'{{"a": {WIDEST}0}}', TOO_WIDE),
    ],
)
def test_tasks_are_read_strictly_in_their_files_and_on_workers(config: str, clause: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        TaskInput.from_json(f'{{"functionCallConfig": {{"type": "X", "config": {config}}}}}')
    assert str(caught.value) == f"the task is not valid JSON: {clause}"
    with pytest.raises(InvalidArgument) as caught:
        check_payload(TaskInput(function_call_config=PluginConfig("X", config)))
    assert str(caught.value) == f"functionCallConfig.config is not valid JSON: {clause}"


def test_a_widest_integer_in_a_config_is_taken() -> None:
    assert check_payload(TaskInput(function_call_config=PluginConfig("X", f'{{"a": {WIDEST}}}')))
