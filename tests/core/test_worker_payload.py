"""What a task says: the checks before the core sees it, and the digest of its meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockx.errors import ConfigError, InvalidArgument
from blockx.model import PluginConfig, TaskId, TaskInput
from blockx.worker.core.payload import MAX_CONFIG_BYTES, check_payload, nesting_depth
from blockx.worker.core.settings import WorkerSettings


def task(config: str = "{}", handler: str | None = None, kind: str = "CallListCallConfig") -> TaskInput:
    return TaskInput(
        task_id=TaskId("a"),
        function_call_config=PluginConfig(kind, config),
        result_handler=None if handler is None else PluginConfig("ReturnValueResultHandler", handler),
    )


def refusal(bad: TaskInput) -> str:
    with pytest.raises(InvalidArgument) as caught:
        check_payload(bad)
    return str(caught.value)


def test_a_digest_is_sha256() -> None:
    assert len(check_payload(task())) == 32


def test_an_empty_config_is_an_empty_object() -> None:
    assert check_payload(task("")) == check_payload(task("{}"))
    assert check_payload(task(handler="")) == check_payload(task(handler="{}"))


@pytest.mark.parametrize(
    "other",
    [
        '{"callList":[[1,{"a":1,"b":2}]],"function":"f"}',
        '{ "function" : "f",\n "callList" : [ [ 1, {"b": 2, "a": 1} ] ] }',
        '{"function":"f","call_list":[[1,{"b":2,"a":1}]]}',
        '{"function":"\\u0066","callList":[[1,{"b":2,"a":1}]]}',
    ],
)
def test_order_of_keys_white_space_and_spelling_do_not_change_the_digest(other: str) -> None:
    assert check_payload(task(other)) == check_payload(task('{"function":"f","callList":[[1,{"b":2,"a":1}]]}'))


def test_task_id_and_timeout_do_not_change_the_digest() -> None:
    config = PluginConfig("X", {"a": 1})
    assert check_payload(TaskInput(function_call_config=config)) == check_payload(
        TaskInput(function_call_config=config, task_timeout_ms=5)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":0}', '{"a":null}'),
        ('{"a":null}', "{}"),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":9007199254740992}', '{"a":9007199254740993}'),
        (f'{{"a":{2**256 - 1}}}', f'{{"a":{2**256 - 2}}}'),
        ('{"a":{"someKey":1}}', '{"a":{"some_key":1}}'),
        ('{"a":"é"}', '{"a":"e"}'),
    ],
)
def test_what_differs_in_meaning_differs_in_digest(one: str, other: str) -> None:
    assert check_payload(task(one)) != check_payload(task(other))


def test_types_and_handlers_are_part_of_the_digest() -> None:
    digests = {
        check_payload(task()),
        check_payload(task(kind="Other")),
        check_payload(task(handler="{}")),
        check_payload(task(handler='{"a":1}')),
        check_payload(task('{"a":1}', handler="{}")),
    }
    assert len(digests) == 5


@given(st.dictionaries(st.text("abc"), st.recursive(st.integers() | st.text(), st.lists, max_leaves=5)))
def test_the_digest_sees_meaning_and_not_writing(config: dict[str, object]) -> None:
    shuffled = dict(sorted(config.items(), reverse=True))
    written = json.dumps(shuffled, indent=3, ensure_ascii=False)
    assert check_payload(task(written)) == check_payload(task(json.dumps(config)))


@pytest.mark.parametrize(
    "text",
    ["{", "nonsense", '{"a":}', '{"a":1} x', "{'a':1}", '{"a":NaN}', '{"a":-Infinity}', '{"a":"\n"}', '"' + '\\"' * 9],
)
def test_bad_json_is_refused(text: str) -> None:
    assert refusal(task(text)).startswith("functionCallConfig.config is not valid JSON: ")
    assert refusal(task(handler=text)).startswith("resultHandler.config is not valid JSON: ")


def test_a_number_that_is_none_is_named() -> None:
    assert refusal(task('{"a":NaN}')).endswith("NaN is no JSON number")


@pytest.mark.parametrize("text", ["[]", "1", "null", '"text"', "true"])
def test_a_config_that_is_no_object_is_refused(text: str) -> None:
    assert refusal(task(text)) == f"functionCallConfig.config must be a JSON object, not {text}"


def test_a_missing_type_is_refused() -> None:
    assert refusal(task(kind="")) == "functionCallConfig.type is missing; name a call builder"
    no_type = TaskInput(function_call_config=PluginConfig("X"), result_handler=PluginConfig(""))
    assert refusal(no_type) == "resultHandler.type is missing; name a writer plugin"


def test_both_spellings_of_one_key_are_refused() -> None:
    assert "'call_list' in both spellings" in refusal(task('{"callList":[],"call_list":[]}'))


def test_a_config_of_a_mebibyte_is_allowed_and_one_byte_more_is_not() -> None:
    largest = '{"a":"' + "x" * (MAX_CONFIG_BYTES - 8) + '"}'
    assert len(largest) == MAX_CONFIG_BYTES
    assert check_payload(task(largest))
    assert refusal(task(largest + " ")) == ("functionCallConfig.config has 1048577 bytes; at most 1048576 are allowed")


def test_the_size_of_a_config_is_counted_in_bytes() -> None:
    assert "has 1050008 bytes" in refusal(task('{"a":"' + "é" * 525_000 + '"}'))


def test_64_levels_are_allowed_and_65_are_not() -> None:
    assert check_payload(task('{"a":' + "[" * 63 + "]" * 63 + "}"))
    assert refusal(task('{"a":' + "[" * 64 + "]" * 64 + "}")) == (
        "functionCallConfig.config is nested 65 levels deep; at most 64 are allowed"
    )


def test_a_very_deep_config_is_refused_without_overflow() -> None:
    assert "nested 500001 levels deep" in refusal(task('{"a":' + "[" * 500_000 + "]" * 500_000 + "}"))
    assert "nested 100001 levels deep" in refusal(task("[" + '{"a":' * 100_000))


def test_brackets_inside_strings_are_no_levels() -> None:
    assert nesting_depth('{"[[[[": "{{\\"{{\\\\", "b": [1]}') == 2
    assert check_payload(task(json.dumps({"a": "[" * 1_000, 'q"[': '\\"[[' * 100})))


@given(st.recursive(st.integers() | st.text(), lambda leaf: st.lists(leaf) | st.dictionaries(st.text(), leaf)))
def test_the_depth_is_that_of_the_parsed_value(value: object) -> None:
    def depth(part: object) -> int:
        if isinstance(part, dict):
            part = list(part.values())
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    assert nesting_depth(json.dumps(value)) == depth(value)
    assert nesting_depth(json.dumps(value, ensure_ascii=False, indent=1)) == depth(value)


def test_a_lone_surrogate_in_a_config_is_no_crash() -> None:
    assert check_payload(task('{"a":"\ud800"}')) == check_payload(task('{"a":"\\ud800"}'))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 0}, "'slots' must be > 0: 0"),
        ({"commit_timeout_ms": 0}, "'commit_timeout_ms' must be > 0: 0"),
        ({"drain_linger_ms": -1}, "'drain_linger_ms' must be >= 0: -1"),
        ({"default_ttl_ms": 70_000}, "default_ttl_ms 70000 is above max_slot_ttl_ms 60000"),
        ({"task_deadline_ms": 30_000_000}, "task_deadline_ms 30000000 is above max_task_timeout_ms 28800000"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        WorkerSettings(**changes)
    assert str(caught.value) == message
