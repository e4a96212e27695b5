"""CallListCallConfig: calls as they stand in the declaration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blockx.errors import PluginError
from blockx.model import BlockContext
from blockx.plugins import MAX_CALLS_PER_TASK, CallList
from blockx.worker.builders import load_builders
from tests.doubles_io import calls_of, make_context, make_scope


async def build(config: object) -> CallList:
    builder = load_builders().create("CallListCallConfig", json.dumps(config))
    async with make_scope() as scope:
        return await builder.build(make_context(), scope.builder_io)


async def test_each_entry_becomes_a_call_in_order() -> None:
    calls = await build({"function": "hello", "callList": [["ct2"], [], {"args": [1], "kwargs": {"aB": 2**90}}, {}]})
    assert list(calls_of(calls)) == [
        ("hello", ["ct2"], {}, None),
        ("hello", [], {}, None),
        ("hello", [1], {"aB": 2**90}, None),
        ("hello", [], {}, None),
    ]


async def test_an_empty_list_is_valid() -> None:
    assert len(await build({"function": "hello", "call_list": []})) == 0


@pytest.mark.parametrize("parent", ["parentId", "parent_id"])
async def test_every_call_carries_the_block(parent: str) -> None:
    block = {"chain_id": 1, "id": "0xa", "height": 7, parent: "0x9", "timestamp": 5}
    calls = await build({"function": "f", "callList": [[1], [2]], "block": block})
    assert [call[3] for call in calls_of(calls)] == [BlockContext(1, "0xa", 7, "0x9", 5)] * 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"callList": []}, "config.function is missing"),
        ({"function": "f"}, "config.callList is missing"),
        ({"function": "f", "callList": {}}, r"config.callList: expected a list, got \{\}"),
        ({"function": "f", "calls": []}, r"unknown key 'calls' \(did you mean 'callList'\?\)"),
        ({"function": "f", "callList": [[1], "ct2"]}, r"callList\[1\] must be a list of arguments or .*, not 'ct2'"),
        (
            {"function": "f", "callList": [{"arg": [1]}]},
            r"callList\[0\] has an unknown key 'arg' \(did you mean 'args'",
        ),
        ({"function": "f", "callList": [{"args": 1}]}, r"callList\[0\]: args must be a list and kwargs an object"),
        ({"function": "f", "callList": [{"kwargs": []}]}, r"callList\[0\]: args must be a list and kwargs an object"),
        ({"function": "f", "callList": [], "block": {"id": "0xa"}}, "config.block.chainId is missing"),
    ],
)
async def test_a_bad_declaration_names_the_place(config: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        await build(config)
    assert not caught.value.retryable


def test_a_task_has_a_bounded_number_of_calls() -> None:
    calls = CallList(args=[b""] * (MAX_CALLS_PER_TASK - 1), runs=[(0, "f", None)])
    calls.add("f")
    with pytest.raises(PluginError, match="a task may have 1000000 calls"):
        calls.add("f")
