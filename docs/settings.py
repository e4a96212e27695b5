"""Writes docs/settings.md from the settings classes: `python -m docs.settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blockx.config import Setting, describe
from blockx.coordinator.app import CoordinatorConfig
from blockx.worker.app import WorkerConfig

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

Each comes from the last of: its default, its line in the file given with `--config` (or in `blockx.toml` in the working
directory), its environment variable, its flag (where a command has one). Written by `nox -s docs` from the code; change
it there.
"""
SECTIONS: dict[str, type[Any]] = {"worker": WorkerConfig, "coordinator": CoordinatorConfig}


def page() -> str:
    """The whole page."""
    tables = [f"\n## `[{section}]`\n\n{table(describe(cls))}" for section, cls in SECTIONS.items()]
    return HEAD + "".join(tables)


def table(settings: list[Setting]) -> str:
    rows = [("key", "variable", "default", "unit", "what"), ("---",) * 5, *map(row, settings)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(setting: Setting) -> tuple[str, ...]:
    env = f"`{setting.env}`" if setting.env else ""
    doc = " ".join(setting.doc.split()).replace("|", "\\|")
    return f"`{setting.name}`", env, default(setting), setting.unit, doc


def default(setting: Setting) -> str:
    if setting.is_required:
        return "required"
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        return f"{setting.default:,}".replace(",", " ")
    return str(setting.default) if setting.default not in (None, "", (), {}) else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
