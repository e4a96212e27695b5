"""JSON as everybody reads it alike: no doubled keys, no numbers that Python alone has, integers that readers take."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from blockx.shown import shown

MAX_INT_DIGITS = 4_300
"""Decimal digits of an integer: what Python reads and writes by default, since more take long (quadratic time)."""

_INT_END: int = 10**MAX_INT_DIGITS
_GONE = object()
_TOO_WIDE = f"an integer has more than {MAX_INT_DIGITS} digits; send it as text"

_CLAUSES = {
    "Circular": "it contains itself",
    "Exceeds": _TOO_WIDE,
    "Out": "it has a float that is NaN or infinite, which is no JSON number",
}
"""Ours for those of Python's json, by their first words."""


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError with a clause that says what is wrong: bad syntax, NaN or infinity (also a number too large for a
    float), an integer of more than 4 300 digits, one key twice in an object, or too deep nesting.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_doubles
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except _NotStrict as fault:
        raise ValueError(str(fault)) from None
    except ValueError as error:
        if type(error) is not ValueError:  # of syntax or encoding, and says so
            raise
        raise ValueError(_TOO_WIDE) from None  # Python's own words advise to change a setting of the process


def write_json(value: object) -> str:
    """A value as compact JSON text, such as `read_json` takes. Raises ValueError or TypeError saying what is wrong."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(_CLAUSES.get(str(error).partition(" ")[0], str(error))) from None


def fits_json(number: int) -> bool:
    """Whether an integer has few enough digits."""
    return -_INT_END < number < _INT_END


class _NotStrict(ValueError):
    """Python would take it."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict(f"the number {shown(digits)[1:-1]} is beyond what a float holds")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        for key, _ in pairs:
            if entries.pop(key, _GONE) is _GONE:
                raise _NotStrict(f"the key {shown(key)} is twice in one object")
    return entries
