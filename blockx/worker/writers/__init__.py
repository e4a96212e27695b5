"""Writer plugins: they turn the outputs of a task's root calls into one write."""

from __future__ import annotations

from blockx.plugins import WriterPlugin
from blockx.worker.plugin_registry import PluginRegistry
from blockx.worker.writers.return_value import ReturnValueResultHandler
from blockx.worker.writers.table_upserts import TableUpsertsResultHandler


def load_writers() -> PluginRegistry[WriterPlugin]:
    """The built-in writer plugins and those of installed packages (entry points `blockx.writers`)."""
    builtins: dict[str, type[WriterPlugin]] = {
        "ReturnValueResultHandler": ReturnValueResultHandler,
        "TableUpsertsResultHandler": TableUpsertsResultHandler,
    }
    return PluginRegistry.load("writer plugin", builtins, "blockx.writers")
