"""The manual's page of settings is what the code says."""

from __future__ import annotations

from blockx.config import describe
from blockx.store.settings import StoreSettings
from blockx.worker.app import WorkerConfig
from docs.settings import PAGE, SECTIONS, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `nox -s docs`"


def test_no_two_settings_of_a_component_share_a_variable() -> None:
    for cls in SECTIONS.values():
        variables = [setting.env for setting in describe(cls) if setting.env]
        assert len(variables) == len(set(variables))


def test_the_command_line_looks_for_data_where_a_worker_keeps_it() -> None:
    worker = {setting.name: (setting.env, setting.default) for setting in describe(WorkerConfig)}
    for setting in describe(StoreSettings):
        assert worker[setting.name] == (setting.env, setting.default)
