from __future__ import annotations

from blockx.errors import ConnectionFailed, NoSlot


def test_a_copy_of_an_error_is_equal_in_all_but_its_notes() -> None:
    error = NoSlot("all slots are taken", retry_after_ms=7)
    error.add_note("while running task a")
    copy = error.copy()
    copy.add_note("while running task b")
    assert (type(copy), str(copy), copy.retry_after_ms) == (NoSlot, "all slots are taken", 7)
    assert (error.__notes__, copy.__notes__) == (["while running task a"], ["while running task b"])


def test_an_error_whose_constructor_wants_more_can_be_copied() -> None:
    copy = ConnectionFailed("lost", may_have_arrived=True).copy()
    assert (str(copy), copy.may_have_arrived, copy.retry_after_ms) == ("lost", True, None)
