"""Values of users as messages show them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.shown import a_thing, shown, shown_arguments, text_of, type_name


class Loud:
    """Says nothing of itself without leaving the program."""

    def __repr__(self) -> str:
        raise SystemExit(1)

    __str__ = __repr__


class LoudText(str):
    __slots__ = ()
    __repr__ = Loud.__repr__
    __str__ = Loud.__repr__


class LoudNumber(int):
    __repr__ = Loud.__repr__


class Zone(datetime.tzinfo):
    __repr__ = utcoffset = dst = tzname = Loud.__repr__  # type: ignore[assignment]  # never asked for


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, -(2**511), 1.5, float("nan"), "it's\n", b"\xff", [], (), {}, [1, "a"], (1,), (1, 2),
        {"a": [None]}, decimal.Decimal("1.50"), uuid.UUID(int=1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        [[[[[[]]]]]],
    ],
)  # fmt: skip
def test_an_ordinary_value_is_shown_as_its_repr(value: object) -> None:
    assert shown(value, 300) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 << 600, "an integer of 601 b…"),
        ([-(10**5_000)], "[an integer of 1661…"),
        ("a" * 100, "'aaaaaaaaaaaaaaaaaa…"),
        (b"a" * 100, "b'aaaaaaaaaaaaaaaaa…"),
        (list(range(1_000)), "[0, 1, 2, 3, 4, 5, …"),
        ({"a" * 50: 1}, "{'aaaaaaaaaaaaaaaaa…"),
        ([[[[[[[[1]]]]]]]], "[[[[[[…]]]]]]"),
        (Loud(), "a tests.core.test_s…"),
        ([LoudText("x"), LoudNumber(3)], "['x', 3]"),
        ("\ud800", "'\\ud800'"),
    ],
)
def test_what_would_be_long_is_cut_or_described(value: object, text: str) -> None:
    assert shown(value, 20) == text


def test_no_code_of_a_class_is_run_to_show_its_instances() -> None:
    for value in (Loud(), Loud, [Loud()], {Loud(): Loud()}, datetime.datetime(2024, 1, 1, tzinfo=Zone())):
        assert shown(value, 200)
    assert shown(Loud(), 200) == a_thing(Loud()) == f"a {__name__}.Loud"


def test_a_value_that_contains_itself_is_shown() -> None:
    circle: list[Any] = [1]
    circle += [circle, {"k": circle}]
    assert shown(circle).startswith("[1, [1, [1, ")


@given(
    st.recursive(
        st.integers() | st.text() | st.binary() | st.floats(), lambda inner: st.lists(inner) | st.tuples(inner)
    )
)
def test_no_more_is_shown_than_there_is_room_for(value: object) -> None:
    text = shown(value, 30)
    assert len(text) <= 30
    assert text == repr(value) or "…" in text or "bits" in text


def test_arguments_are_shown_as_they_would_be_written() -> None:
    assert shown_arguments([1, "a"], {"b": [2], "c": None}, 100) == "1, 'a', b=[2], c=None"
    assert shown_arguments([], {}, 100) == ""
    assert shown_arguments([10**5_000], {"k" * 1_000: 1}, 40) == "an integer of 16610 bits, kkkkkkkkkkkkk…"
    assert shown_arguments(["x" * 1_000] * 1_000, {}, 10) == "'xxxxxxxx…"


def test_the_text_of_an_exception_is_had_without_its_help() -> None:
    class Silent(Exception):
        __str__ = Loud.__repr__

    assert text_of(ValueError("plain")) == "plain"
    assert text_of(Silent()) == "(its text could not be had: SystemExit)"
    assert type(text_of(ValueError(LoudText("x")))) is str


def test_a_class_is_named_whatever_its_metaclass_says() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            raise SystemExit(2)

    class Hidden(metaclass=Meta):
        pass

    assert type_name(Hidden).endswith("Hidden")
    assert a_thing(Hidden()).startswith(f"a {__name__}.")
