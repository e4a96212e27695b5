"""Plugin configs: what they may look like, and what a mistake in one is told as."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

import pytest
from attrs import Factory, field, frozen, validators

from blockx.errors import PluginError
from blockx.worker.plugin_config import MAX_PROBLEMS, read_config


@frozen
class Range:
    from_: int
    to: int


@frozen
class Stream:
    enabled: bool = False


@frozen
class Config:
    chain_id: int
    blocks: list[str | int] | Range = Factory(list)
    source: Literal["events", "txs"] = "events"
    scope: dict[str, Any] | None = None
    places: tuple[int, ...] = ()
    ratio: float = 1.0
    stream_build: Stream = Stream()
    batch_size: int = field(default=1, validator=validators.ge(1))
    anything: Any = None


def read(text: str) -> Config:
    return read_config(text, Config, plugin="TestConfig")


def message_of(text: str) -> str:
    with pytest.raises(PluginError) as caught:
        read(text)
    assert not caught.value.retryable
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"chainId": 1, "blocks": {"from": 2, "to": 3}, "streamBuild": {"enabled": true}, "batchSize": 4}',
        '{"chain_id": 1, "blocks": {"from": 2, "to": 3}, "stream_build": {"enabled": true}, "batch_size": 4}',
    ],
)
def test_keys_may_be_camel_case_or_snake_case(text: str) -> None:
    assert read(text) == Config(1, Range(2, 3), stream_build=Stream(True), batch_size=4)


def test_values_keep_their_types() -> None:
    text = """{"chainId": 1, "blocks": ["0x1", 2], "places": [1, 2], "ratio": 2, "scope": {"a": [1]},
               "anything": {"fromTo": null}}"""
    assert read(text) == Config(1, ["0x1", 2], places=(1, 2), ratio=2.0, scope={"a": [1]}, anything={"fromTo": None})
    assert read('{"chainId": 1, "scope": null}').scope is None


def test_an_empty_config_is_an_empty_object() -> None:
    assert read_config("", Stream, plugin="Stream") == read_config("{}", Stream, plugin="Stream") == Stream()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the config of TestConfig is not valid JSON: "),
        ('{"chainId": NaN}', "the config of TestConfig is not valid JSON: NaN is no JSON number"),
        ("[]", "config: expected an object, got []"),
        ("{}", "config.chainId is missing"),
        ('{"chainId": "1"}', "config.chainId: expected a whole number, got '1'"),
        ('{"chainId": true}', "config.chainId: expected a whole number, got True"),
        ('{"chainId": 1, "chain_id": 1}', "config: the object has 'chain_id' in both spellings; keep one"),
        ('{"chainID": 1}', "config: the object has an unknown key 'chainID' (did you mean 'chainId'?)"),
        ('{"chainId": 1, "blocks": [1, 2.5]}', "config.blocks[1]: expected a text or a whole number, got 2.5"),
        ('{"chainId": 1, "blocks": "0x1"}', "config.blocks: expected a list or an object, got '0x1'"),
        ('{"chainId": 1, "blocks": {"from": 1}}', "config.blocks.to is missing"),
        ('{"chainId": 1, "source": "event"}', "config.source: expected one of events, txs, got 'event' (did you"),
        ('{"chainId": 1, "source": 3}', "config.source: expected one of events, txs, got 3"),
        ('{"chainId": 1, "scope": []}', "config.scope: expected an object or null, got []"),
        ('{"chainId": 1, "places": "ab"}', "config.places: expected a list, got 'ab'"),
        ('{"chainId": 1, "ratio": false}', "config.ratio: expected a number, got False"),
        ('{"chainId": 1, "streamBuild": {"enable": 1}}', "config.streamBuild: the object has an unknown key 'enable'"),
        ('{"chainId": 1, "batchSize": 0}', "config: 'batch_size' must be >= 1: 0"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_path_and_what_was_expected(text: str, message: str) -> None:
    assert message in message_of(text)


def test_several_mistakes_are_told_together() -> None:
    message = message_of('{"chainId": "x", "blocks": {"from": 1, "to": "y"}}')
    assert "config.chainId: expected" in message
    assert "config.blocks.to: expected" in message


def test_many_mistakes_are_cut_short() -> None:
    message = message_of(f'{{"chainId": 1, "places": [{", ".join(["null"] * 9)}]}}')
    assert message.endswith("config.places[4]: expected a whole number, got None; and more")


@frozen
class Refused:
    """Takes no value, and remembers which were tried."""

    value: int = field()
    tried: ClassVar[list[int]] = []

    @value.validator
    def _refuse(self, _: Any, value: int) -> None:
        self.tried.append(value)
        raise ValueError("bad")


@frozen
class ManyRefused:
    entries: list[Refused]


def test_a_long_list_of_mistakes_is_not_gone_through_to_its_end() -> None:
    Refused.tried.clear()
    text = json.dumps({"entries": [{"value": number} for number in range(100)]})
    with pytest.raises(PluginError, match=r"config.entries\[4\]: bad; and more$"):
        read_config(text, ManyRefused, plugin="P")
    assert Refused.tried == list(range(MAX_PROBLEMS + 1))


def test_a_long_value_is_shown_shortened() -> None:
    assert len(message_of(f'{{"chainId": "{"x" * 10_000}"}}')) < 200
