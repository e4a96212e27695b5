"""The manual's page of settings is what the code says."""

from __future__ import annotations

from blockx.config import describe
from docs.settings import PAGE, SECTIONS, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `nox -s docs`"


def test_no_two_settings_of_a_component_share_a_variable() -> None:
    for cls in SECTIONS.values():
        variables = [setting.env for setting in describe(cls) if setting.env]
        assert len(variables) == len(set(variables))


def test_every_setting_says_what_it_is() -> None:
    for cls in SECTIONS.values():
        assert [setting.name for setting in describe(cls) if not setting.doc] == []
