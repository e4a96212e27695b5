"""The pure parts: limits, timeouts on the wire, the table of statuses."""

from __future__ import annotations

from typing import Any

import pytest

from blockx import errors
from blockx.rpc import Limits
from blockx.rpc.headers import format_timeout
from blockx.rpc.status import Code, Status, error_of, status_of, status_of_reset


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "1u"),
        (0.0, "1u"),
        (0.0000001, "1u"),
        (0.5, "500000u"),
        (99.5, "99500000u"),
        (100.0, "100000m"),
        (99_999.9991, "100000S"),
        (99_999_999.5, "1670000M"),
        (1e12, "99999999H"),
    ],
)
def test_a_timeout_is_rounded_up_and_fits_eight_digits(seconds: float, text: str) -> None:
    assert format_timeout(seconds) == text


def test_the_same_timeout_is_the_same_text_though_some_of_it_has_passed() -> None:
    assert {format_timeout(30.0 - passed) for passed in (0.0, 0.00001, 0.002, 0.0999)} == {"30000000u"}


def test_a_kind_of_refusal_that_the_table_lacks_is_internal() -> None:
    class Novel(errors.RequestError):
        pass

    assert status_of(Novel("new")) == Status(Code.INTERNAL, "new")


@pytest.mark.parametrize(
    ("http2_error", "kind"),
    [(8, errors.Unavailable), (11, errors.Unavailable), (2, errors.Internal), (0, errors.Internal)],
)
def test_a_reset_is_an_error_of_ours(http2_error: int, kind: type[Exception]) -> None:
    assert type(error_of(status_of_reset(http2_error))) is kind


def test_a_refused_call_has_not_arrived() -> None:
    error = error_of(status_of_reset(7))
    assert isinstance(error, errors.ConnectionFailed)
    assert not error.may_have_arrived


@pytest.mark.parametrize(
    "values",
    [
        {"max_message_bytes": 0},
        {"max_concurrent_streams": 0},
        {"keepalive_interval_s": 0},
        {"max_message_bytes": 1000, "max_buffered_bytes": 999},
        {"backoff_min_s": 2, "backoff_max_s": 1},
    ],
)
def test_limits_that_make_no_sense_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        Limits(**values)
