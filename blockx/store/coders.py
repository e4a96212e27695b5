"""Column types: which Python values each takes, and how SQLite keeps them.

SQLite orders TEXT by its bytes and has no integer above 64 bits, so wide numbers are kept as texts whose byte order is
their numeric order. The readable view of a table turns them back into plain numbers.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from attrs import frozen

__all__ = ["COLUMN_TYPES", "MAX_DECIMAL_DIGITS", "MAX_DECIMAL_EXPONENT", "Coder", "coder_for"]

MAX_DECIMAL_DIGITS = 1_000
"""Significant digits of a decimal."""

MAX_DECIMAL_EXPONENT = 9_999
"""Places of a decimal's first digit before (or after) the point: its scientific exponent lies within ± this."""

_MAX_DECIMAL_BITS = 33_220  # as many as below 10^10 000; wider ones would take long to turn into digits
_MAX_JSON_DEPTH = 100
_MAX_JSON_INTEGER_BITS = 4_096  # Python reads back integers of at most 4 300 digits from text
_MAX_NUMBER_CHARS = 200
_EXACT = decimal.Context(prec=MAX_DECIMAL_DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact])
"""Refuses a number of too many digits before they are counted one by one."""
_SWAP = str.maketrans("0123456789", "9876543210")
_WHOLE = re.compile(r"-?(?:[0-9]+|0x[0-9a-fA-F]+)")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


@frozen
class Coder:
    """How one column type travels. `encode` raises ValueError saying what was expected; `decode` is its inverse.

    `readable` turns a quoted column name into the SQL expression that shows the plain value; None: it is plain already.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any] | None
    sql_type: sa.types.TypeEngine[Any]
    readable: Callable[[str], str] | None = None
    is_ordered: bool = True


def coder_for(column_type: str, *, in_key: bool) -> Coder:
    """The coder of a column. Bytes in a key are kept as hex text, since key lists travel to SQLite as JSON."""
    if column_type == "bytes" and in_key:
        return _HEX_BYTES
    return _CODERS[column_type]


def _encode_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError("an integer of 64 bits")
    return value


def _whole(value: Any, low: int, high: int, expected: str) -> int:
    """The int that an int, a decimal string or a 0x-hex string means, if it lies in low..high."""
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_CHARS and _WHOLE.fullmatch(value):
        value = int(value, 16 if "x" in value else 10)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(expected)
    return value


def _encode_uint256(value: Any) -> str:
    digits = str(_whole(value, 0, 2**256 - 1, "a uint256 (int, decimal string or 0x-hex; 0 to 2^256-1)"))
    return f"{len(digits):02d}:{digits}"


def _decode_uint256(text: str) -> int:
    return int(text[3:])


def _encode_int256(value: Any) -> str:
    """`p` + the uint256 form for zero and above; `n` + every digit of that form subtracted from 9 below zero."""
    number = _whole(value, -(2**255), 2**255 - 1, "an int256 (int, decimal string or 0x-hex; -2^255 to 2^255-1)")
    digits = str(abs(number))
    form = f"{len(digits):02d}:{digits}"
    return f"p{form}" if number >= 0 else f"n{form.translate(_SWAP)}"


def _decode_int256(text: str) -> int:
    return int(text[4:]) if text[0] == "p" else -int(text[4:].translate(_SWAP))


def _parse_decimal(value: Any) -> decimal.Decimal | None:
    if isinstance(value, decimal.Decimal):
        return value if value.is_finite() else None
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value) if value.bit_length() <= _MAX_DECIMAL_BITS else None
    is_number = isinstance(value, str) and len(value) <= 2 * MAX_DECIMAL_DIGITS and _DECIMAL.fullmatch(value)
    return decimal.Decimal(value) if is_number else None


def _encode_decimal(value: Any) -> str:
    """`p` + exponent of the first digit + 10 000 in five digits + `:` + the digits without trailing zeros.

    Below zero `n`, each digit subtracted from 9, and a closing `~`, so that a shorter number sorts after a longer one;
    zero is `o`. Hence `p10003:15` is 1500, and 1.5 equals 1.50.
    """
    expected = (
        f"a decimal (Decimal, int or string; at most {MAX_DECIMAL_DIGITS} digits, exponent ±{MAX_DECIMAL_EXPONENT})"
    )
    number = _parse_decimal(value)
    if number is None:
        raise ValueError(expected)
    if not number:
        return "o"
    try:
        digits = "".join(map(str, _EXACT.normalize(number).as_tuple().digits))
    except decimal.Inexact:
        raise ValueError(expected) from None
    exponent = number.adjusted()
    if abs(exponent) > MAX_DECIMAL_EXPONENT:
        raise ValueError(expected)
    form = f"{exponent + 10_000:05d}:{digits}"
    return f"p{form}" if number > 0 else f"n{form.translate(_SWAP)}~"


def _decode_decimal(text: str) -> decimal.Decimal:
    if text == "o":
        return decimal.Decimal(0)
    is_negative = text[0] == "n"
    form = text[1:-1].translate(_SWAP) if is_negative else text[1:]
    digits = form[6:]
    places = int(form[:5]) - 10_000 - (len(digits) - 1)
    return decimal.Decimal((int(is_negative), tuple(map(int, digits)), places))


def _check_text(value: str) -> None:
    if "\0" in value:
        raise ValueError("text without NUL characters")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("text without lone surrogates") from None


def _encode_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    _check_text(value)
    return value


def _encode_bytes(value: Any) -> bytes:
    if isinstance(value, str) and _HEX.fullmatch(value):
        return bytes.fromhex(value[2:])
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError("bytes or 0x-hex")
    return bytes(value)


def _encode_boolean(value: Any) -> int:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return int(value)


def _encode_timestamp(value: Any) -> str:
    """UTC with microseconds in one fixed form, whose text order is the order of time."""
    expected = "a time with an offset from UTC (an aware datetime, or ISO 8601 text)"
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime.datetime) or moment.utcoffset() is None:
            raise ValueError(expected)
        plain = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    return plain.isoformat(timespec="microseconds") + "Z"


def _check_json(value: Any, depth: int = 0) -> None:
    if depth > _MAX_JSON_DEPTH:
        raise ValueError(f"JSON at most {_MAX_JSON_DEPTH} levels deep")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise ValueError("JSON whose object keys are text")
            _check_text(name)
            _check_json(entry, depth + 1)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _check_json(entry, depth + 1)
    elif isinstance(value, int):
        if value.bit_length() > _MAX_JSON_INTEGER_BITS:
            raise ValueError(f"JSON whose integers have at most {_MAX_JSON_INTEGER_BITS} bits")
    elif not (value is None or (isinstance(value, float) and math.isfinite(value))):
        raise ValueError("JSON (objects, lists, text, finite numbers, true, false, null)")


def _encode_json(value: Any) -> str:
    """Compact, with sorted keys, so that equal values are equal texts and leave their row unchanged."""
    _check_json(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _swapped(expression: str) -> str:
    """SQL that subtracts every digit of a text from 9: pairs trade places by way of a letter."""
    for low, high in ("09", "18", "27", "36", "45"):
        expression = f"replace(replace(replace({expression}, '{low}', 'x'), '{high}', '{low}'), 'x', '{high}')"
    return expression


def _readable_int256(column: str) -> str:
    negative = _swapped(f"substr({column}, 5)")
    return f"CASE substr({column}, 1, 1) WHEN 'p' THEN substr({column}, 5) WHEN 'n' THEN '-' || {negative} END"


def _readable_decimal(column: str) -> str:
    """Scientific form `0.DIGITSe±N`: exact, and every reader of numbers takes it."""
    exponent = f"CAST(substr({column}, 2, 5) AS INTEGER) - 9999"
    positive = f"'0.' || substr({column}, 8) || 'e' || ({exponent})"
    swapped = f"CAST({_swapped(f'substr({column}, 2, 5)')} AS INTEGER) - 9999"
    digits = _swapped(f"substr({column}, 8, length({column}) - 8)")
    return (
        f"CASE substr({column}, 1, 1) WHEN 'o' THEN '0' WHEN 'p' THEN {positive}"
        f" WHEN 'n' THEN '-0.' || {digits} || 'e' || ({swapped}) END"
    )


_CODERS: Mapping[str, Coder] = {
    "integer": Coder(_encode_integer, None, sa.Integer()),
    "uint256": Coder(_encode_uint256, _decode_uint256, sa.Text(), lambda column: f"substr({column}, 4)"),
    "int256": Coder(_encode_int256, _decode_int256, sa.Text(), _readable_int256),
    "decimal": Coder(_encode_decimal, _decode_decimal, sa.Text(), _readable_decimal),
    "text": Coder(_encode_text, None, sa.Text()),
    "bytes": Coder(_encode_bytes, None, sa.LargeBinary(), lambda column: f"'0x' || lower(hex({column}))"),
    "boolean": Coder(_encode_boolean, bool, sa.Integer()),
    "timestamp": Coder(_encode_timestamp, datetime.datetime.fromisoformat, sa.Text()),
    "json": Coder(_encode_json, json.loads, sa.Text(), is_ordered=False),
}

_HEX_BYTES = Coder(
    lambda value: _encode_bytes(value).hex(), bytes.fromhex, sa.Text(), lambda column: f"'0x' || {column}"
)

COLUMN_TYPES: tuple[str, ...] = tuple(_CODERS)
"""The words that a schema may use as a column type."""
