from __future__ import annotations

import pytest
import trio
import trio.testing
from attrs import define, field
from trio.testing import MockClock

from blockx.driver import Driver
from blockx.errors import Unavailable


@define
class EchoCore:
    """Answers `say x` with command `x`, refuses `no`, and has a deadline that one can set."""

    deadline_ms: int | None = None
    heard: list[tuple[str, int]] = field(factory=list)

    def handle(self, event: str, now_ms: int) -> list[str]:
        if event == "no":
            raise Unavailable("refused")
        if event == "break":
            raise ZeroDivisionError("a defect")
        self.heard.append((event, now_ms))
        if event == "tick":
            self.deadline_ms = None
            return ["ticked"]
        if event.startswith("at "):
            self.deadline_ms = int(event[3:])
            return []
        return event.split()[1:]

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


async def test_commands_of_an_event_are_executed_in_order() -> None:
    seen: list[str] = []
    driver = Driver(EchoCore(), seen.append, tick="tick")
    driver.feed("say a b c")
    assert seen == ["a", "b", "c"]


async def test_events_fed_while_executing_come_after_the_commands_that_were_already_due() -> None:
    seen: list[str] = []

    def execute(command: str) -> None:
        seen.append(command)
        if command == "a":
            driver.feed("say nested")

    driver = Driver(EchoCore(), execute, tick="tick")
    driver.feed("say a b")
    assert seen == ["a", "b", "nested"]


async def test_a_refusal_reaches_the_feeder_and_leaves_no_trace() -> None:
    driver = Driver(EchoCore(), lambda command: None, tick="tick", log_size=10)
    with pytest.raises(Unavailable, match="refused"):
        driver.feed("no")
    assert not driver.log


async def test_the_log_keeps_the_last_events_with_their_commands() -> None:
    driver = Driver(EchoCore(), lambda command: None, tick="tick", log_size=2)
    for word in ("one", "two", "three"):
        driver.feed(f"say {word}")
    assert [(event, commands) for _, event, commands in driver.log] == [("say two", ["two"]), ("say three", ["three"])]


async def test_a_deadline_is_told_when_it_is_due_and_not_before(autojump_clock: MockClock) -> None:
    core = EchoCore()
    seen: list[str] = []
    driver = Driver(core, seen.append, tick="tick")
    start_ms = int(trio.current_time() * 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run_timers)
        await trio.testing.wait_all_tasks_blocked()
        driver.feed(f"at {start_ms + 10_000}")
        await trio.sleep(9.9)
        assert seen == []
        await trio.sleep(0.2)
        assert seen == ["ticked"]
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_comes_closer_wakes_the_timer(autojump_clock: MockClock) -> None:
    core = EchoCore()
    seen: list[str] = []
    driver = Driver(core, seen.append, tick="tick")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run_timers)
        await trio.testing.wait_all_tasks_blocked()
        start_ms = int(trio.current_time() * 1000)
        driver.feed(f"at {start_ms + 50}")
        await trio.sleep(0.06)
        assert seen == ["ticked"]
        assert core.heard[-1][1] - start_ms == 50
        nursery.cancel_scope.cancel()


async def test_a_defect_of_the_core_ends_the_program_even_where_its_feeder_swallows_it() -> None:
    driver = Driver(EchoCore(), lambda command: None, tick="tick", log_size=10)
    raised: list[str] = []

    async def run() -> None:
        try:
            await driver.run_timers()
        except ZeroDivisionError as error:
            raised.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ZeroDivisionError):
            driver.feed("break")
    assert raised == ["a defect"]


async def test_a_defect_in_a_commands_effect_ends_the_program_too() -> None:
    def execute(command: str) -> None:
        raise ZeroDivisionError(command)

    driver = Driver(EchoCore(), execute, tick="tick")
    with pytest.raises(ZeroDivisionError):
        driver.feed("say x")
    with pytest.raises(ZeroDivisionError):
        await driver.run_timers()


@pytest.mark.parametrize("deadline_ms", [1001, 2003, 4007])
async def test_a_deadline_that_no_float_meets_exactly_is_told_once(autojump_clock: MockClock, deadline_ms: int) -> None:
    core = EchoCore(deadline_ms=deadline_ms + int(trio.current_time() * 1000))
    seen: list[str] = []
    driver = Driver(core, seen.append, tick="tick")
    with trio.move_on_after(60):
        await driver.run_timers()
    assert seen == ["ticked"]
