"""Call builders: plugins that turn a declaration into the root calls of a task."""

from __future__ import annotations

from blockx.plugins import CallBuilder
from blockx.worker.builders.bundle_scan import BlockBundleBuilder
from blockx.worker.builders.call_list import CallListBuilder
from blockx.worker.plugin_registry import PluginRegistry


def load_builders() -> PluginRegistry[CallBuilder]:
    """The built-in call builders and those of installed packages (entry points `blockx.builders`)."""
    builtins: dict[str, type[CallBuilder]] = {
        "CallListCallConfig": CallListBuilder,
        "BlockBundleCallConfig": BlockBundleBuilder,
    }
    return PluginRegistry.load("call builder", builtins, "blockx.builders")
