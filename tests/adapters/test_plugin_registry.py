"""How plugins are found by their type."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
from attrs import frozen

from blockx.errors import ConfigError, PluginError
from blockx.worker.builders import load_builders
from blockx.worker.plugin_registry import Plugin, PluginRegistry, PluginTypeNotFound
from blockx.worker.writers import load_writers


@frozen
class Settings:
    limit: int = 0


class Taking:
    config_type: ClassVar[type[Any]] = Settings

    def __init__(self, config: Settings) -> None:
        if config.limit > 100:
            raise PluginError("limit is above 100")
        if config.limit < 0:
            raise ZeroDivisionError("oh")
        self.config = config


def registry(**added: str) -> PluginRegistry[Plugin]:
    points = [EntryPoint(name, value, "blockx.builders") for name, value in added.items()]
    return PluginRegistry.load("call builder", {"Taking": Taking}, "blockx.builders", added=points)


def test_a_plugin_is_made_with_its_config() -> None:
    plugin = registry().create("Taking", '{"limit": 3}')
    assert isinstance(plugin, Taking)
    assert plugin.config == Settings(3)


def test_an_unknown_type_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(PluginTypeNotFound) as caught:
        registry(Other="x:y").create("Takin", "{}")
    assert (
        str(caught.value)
        == "there is no call builder of type 'Takin' (did you mean 'Taking'?); known are Other, Taking"
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"limits": 3}', "the config of Taking is wrong: config: the object has an unknown key 'limits'"),
        ('{"limit": 101}', "^limit is above 100$"),
        ('{"limit": -1}', "the call builder Taking did not take its config: ZeroDivisionError"),
    ],
)
def test_a_bad_config_is_a_plugin_error(config: str, message: str) -> None:
    with pytest.raises(PluginError, match=message) as caught:
        registry().create("Taking", config)
    assert not caught.value.retryable


def test_an_installed_package_can_add_a_plugin() -> None:
    plugin: Any = registry(Added=f"{__name__}:Taking").create("Added", '{"limit": 7}')
    assert plugin.config.limit == 7


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_package:Plugin", r"no_such_package:Plugin\) could not be imported: ModuleNotFoundError"),
        ("json:loads", r"json:loads\) has no config_type"),
    ],
)
def test_a_broken_package_breaks_only_its_own_type(value: str, message: str) -> None:
    plugins = registry(Broken=value)
    with pytest.raises(PluginError, match=message):
        plugins.create("Broken", "{}")
    assert isinstance(plugins.create("Taking", ""), Taking)


def test_a_type_declared_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'Taking' is declared twice; mine:Taking must take another name"):
        registry(Taking="mine:Taking")


def test_the_built_in_plugins_are_known() -> None:
    assert {"CallListCallConfig", "BlockBundleCallConfig"} <= set(load_builders().classes)
    assert {"ReturnValueResultHandler", "TableUpsertsResultHandler"} <= set(load_writers().classes)
