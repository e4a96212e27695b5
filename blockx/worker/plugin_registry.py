"""Finds call builders and writer plugins by type: the built-in ones, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from attrs import frozen

from blockx.errors import BlockxError, ConfigError, PluginError
from blockx.model import nearest
from blockx.worker.plugin_config import read_config


class Plugin(Protocol):
    config_type: ClassVar[type[Any]]

    def __init__(self, config: Any) -> None: ...


T = TypeVar("T", bound=Plugin)


class PluginTypeNotFound(BlockxError):
    """No plugin of this type is known; the message lists those that are."""


@frozen
class PluginRegistry(Generic[T]):
    """Plugin classes by type. `kind` is how errors call them, such as "call builder"."""

    kind: str
    classes: Mapping[str, type[T] | EntryPoint]

    @classmethod
    def load(
        cls, kind: str, builtins: Mapping[str, type[T]], group: str, *, added: Iterable[EntryPoint] | None = None
    ) -> PluginRegistry[T]:
        """The built-in classes and the entry points of `group` (or those given as `added`).

        An entry point is imported when it is first asked for, so that a broken package breaks only its own tasks.
        Raises ConfigError if two plugins have the same type.
        """
        classes: dict[str, type[T] | EntryPoint] = dict(builtins)
        for point in entry_points(group=group) if added is None else added:
            if point.name in classes:
                raise ConfigError(f"{kind} {point.name!r} is declared twice; {point.value} must take another name")
            classes[point.name] = point
        return cls(kind, classes)

    def create(self, type_: str, config_json: str) -> T:
        """A new plugin of this type with this config.

        Raises PluginTypeNotFound for an unknown type, PluginError (not retryable) for a bad config or a broken plugin.
        """
        if type_ not in self.classes:
            known = ", ".join(sorted(self.classes))
            raise PluginTypeNotFound(
                f"there is no {self.kind} of type {type_!r}{nearest(type_, self.classes)}; known are {known}"
            )
        plugin = self._imported(type_)
        config = read_config(config_json, plugin.config_type, plugin=type_)
        try:
            return plugin(config)
        except BlockxError:
            raise
        except Exception as error:
            raise PluginError(f"the {self.kind} {type_} did not take its config: {error!r}") from error

    def _imported(self, type_: str) -> type[T]:
        found = self.classes[type_]
        if not isinstance(found, EntryPoint):
            return found
        try:
            plugin = found.load()
        except Exception as error:
            raise PluginError(f"the {self.kind} {type_} ({found.value}) could not be imported: {error!r}") from error
        if not hasattr(plugin, "config_type"):
            raise PluginError(f"the {self.kind} {type_} ({found.value}) has no config_type; name its attrs class there")
        return cast("type[T]", plugin)
