"""ReturnValueResultHandler: the outputs as a JSON array."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from blockx.errors import PluginError
from blockx.model import PluginResult
from blockx.worker.writers import load_writers
from tests.doubles_io import make_context, make_scope, outputs_of


async def run(*values: Any) -> PluginResult:
    writer = load_writers().create("ReturnValueResultHandler", "")
    async with make_scope() as scope:
        (result,) = await writer.execute(make_context(), outputs_of(*values), scope.writer_io)
    return result


async def test_outputs_stand_in_call_order() -> None:
    result = await run("hello ct2", None, [1, {"a": True}])
    assert result == PluginResult("ReturnValueResultHandler", True, "", b'["hello ct2",null,[1,{"a":true}]]')


async def test_no_calls_are_an_empty_array() -> None:
    assert (await run()).result == b"[]"


async def test_values_that_json_lacks_are_spelt_as_documented() -> None:
    result = await run(2**256 - 1, b"\x00\xff", Decimal("1.50"), datetime(2024, 1, 2, tzinfo=UTC), (1, 2))
    assert json.loads(result.result) == [2**256 - 1, "0x00ff", "1.50", "2024-01-02T00:00:00Z", [1, 2]]


async def test_many_outputs_are_all_there() -> None:
    assert json.loads((await run(*range(1_234))).result) == list(range(1_234))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_a_number_that_json_lacks_names_call_and_path(value: float) -> None:
    with pytest.raises(
        PluginError, match=r"the output of call 1 cannot be written as JSON: value\['a'\]\[0\]: "
    ) as caught:
        await run(1, {"a": [value]})
    assert not caught.value.retryable


async def test_an_integer_too_wide_for_json_names_call_and_path() -> None:
    message = (
        r"the output of call 1 cannot be written as JSON: value\['a'\]: an integer of 4000001 bits cannot be "
        "written as JSON, which has 4300 digits at most; return it as text or bytes"
    )
    with pytest.raises(PluginError, match=message) as caught:
        await run(1, {"a": 1 << 4_000_000})
    assert not caught.value.retryable


def test_it_takes_no_settings() -> None:
    with pytest.raises(PluginError, match="unknown key 'table'"):
        load_writers().create("ReturnValueResultHandler", '{"table": "t"}')
