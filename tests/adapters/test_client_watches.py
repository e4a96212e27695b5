from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from blockx.client import Client
from blockx.client import watches as watches_module
from blockx.model import TaskId, TaskResult, TaskState
from tests.adapters.client_doubles import World, make_world, task

WELL = TaskResult(state=TaskState.SUCCEEDED)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    world = make_world(nursery)
    world.a.script = lambda _: None
    return world


class Runner:
    """Runs tasks in the background; each can be cancelled alone."""

    def __init__(self, client: Client, nursery: trio.Nursery) -> None:
        self._client = client
        self._nursery = nursery
        self.scopes: dict[str, trio.CancelScope] = {}
        self.results: dict[str, TaskResult] = {}

    def start(self, *task_ids: str) -> None:
        for task_id in task_ids:
            self.scopes[task_id] = trio.CancelScope()
            self._nursery.start_soon(self._run, task_id)

    async def _run(self, task_id: str) -> None:
        with self.scopes[task_id]:
            self.results[task_id] = await self._client.run(task(task_id))


@pytest.fixture
async def runner(world: World, nursery: trio.Nursery) -> AsyncIterator[Runner]:
    async with world.client() as client:
        yield Runner(client, nursery)


async def test_the_first_task_after_a_rest_is_watched_at_once(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    for number in (1, 2):
        await trio.sleep(1)
        runner.start(f"t{number}")
        with trio.move_on_after(watches_module.BATCH_S / 2):
            await trio.sleep_forever()
        assert world.a.watches[-1] == [f"t{number}"]


async def test_tasks_that_come_together_share_a_stream(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    runner.start("first")
    await trio.sleep(watches_module.BATCH_S / 2)
    runner.start(*(f"t{number}" for number in range(20)))
    await trio.sleep(1)
    assert len(world.a.open_watches) == 2
    assert sorted(map(len, world.a.open_watches)) == [1, 20]


async def test_runs_of_the_same_task_share_a_watch(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    runner.start("t")
    await trio.sleep(1)
    runner.start("t")
    await trio.sleep(1)
    assert world.a.watches == [["t"]]
    world.a.end("t")
    await trio.sleep(1)
    assert runner.results == {"t": WELL}


async def test_streams_are_merged_before_there_are_more_than_eight(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    task_ids = [f"t{number:02}" for number in range(40)]
    for task_id in task_ids:
        runner.start(task_id)
        await trio.sleep(0.1)
    assert world.a.most_open_watches <= 8
    assert sorted(task_id for ids in world.a.open_watches for task_id in ids) == task_ids


async def test_while_streams_are_merged_every_task_stays_watched(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.snapshot_s = 0.01
    for number in range(40):
        runner.start(f"t{number}")
        await trio.sleep(0.1)
    assert world.a.unwatched == []
    for number in range(40):
        world.a.end(f"t{number}")
    await trio.sleep(1)
    assert len(runner.results) == 40


async def test_a_burst_never_opens_more_than_eight_streams(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.snapshot_s = 0.01
    for number in range(60):
        runner.start(f"t{number}")
        await trio.sleep(watches_module.BATCH_S * 1.1)
    await trio.sleep(1)
    assert world.a.most_open_watches <= 8
    assert len({task_id for ids in world.a.open_watches for task_id in ids}) == 60
    assert world.a.unwatched == []


async def test_a_watch_ends_when_nobody_waits_for_its_task_any_more(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    runner.start("t")
    await trio.sleep(1)
    runner.scopes["t"].cancel()
    await trio.sleep(1)
    assert world.a.open_watches == []


async def test_a_task_that_is_no_longer_wanted_leaves_a_shared_watch_but_no_other_does(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    runner.start("first")
    await trio.sleep(watches_module.BATCH_S / 2)
    runner.start("x", "y", "z")
    await trio.sleep(1)
    runner.scopes["y"].cancel()
    await trio.sleep(1)
    assert sorted(world.a.open_watches) == [["first"], ["x", "z"]]
    assert world.a.unwatched == ["y"]


async def test_a_task_that_is_wanted_by_another_stays_watched(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async with world.client() as client:
        one, two = Runner(client, nursery), Runner(client, nursery)
        one.start("t")
        two.start("t")
        await trio.sleep(1)
        one.scopes["t"].cancel()
        await trio.sleep(1)
        assert world.a.open_watches == [["t"]]
        world.a.end("t")
        await trio.sleep(1)
        assert two.results == {"t": WELL}


async def test_a_task_given_up_before_its_watch_was_opened_is_not_watched(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    runner.start("first")
    await trio.sleep(watches_module.BATCH_S / 2)
    runner.start("t")
    await trio.sleep(watches_module.BATCH_S / 4)
    runner.scopes["t"].cancel()
    await trio.sleep(1)
    assert world.a.watches == [["first"]]


async def test_a_lost_merged_stream_takes_nobody_s_result_along(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(10):
        runner.start(f"t{number}")
        await trio.sleep(0.1)
    world.hosts["a:1"].crash()
    await trio.sleep(1)
    world.hosts["a:1"].is_up = True
    for number in range(10):
        world.a.end(f"t{number}")
    await trio.sleep(5)
    assert runner.results == {f"t{number}": WELL for number in range(10)}


async def test_no_watch_has_more_ids_than_a_worker_accepts(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches_module, "MAX_WATCHED_IDS", 5)
    runner.start("first")
    await trio.sleep(watches_module.BATCH_S / 2)
    runner.start(*(f"t{number}" for number in range(12)))
    await trio.sleep(1)
    assert sorted(map(len, world.a.open_watches)) == [1, 2, 5, 5]


async def test_streams_that_are_too_many_to_merge_make_the_next_task_wait_for_one_to_end(
    world: World, runner: Runner, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches_module, "MAX_WATCHED_IDS", 5)
    for number in range(9):
        runner.start(f"t{number}")
        await trio.sleep(0.1)
    assert world.a.watches == [[f"t{number}"] for number in range(8)]
    world.a.end("t0")
    await trio.sleep(0.1)
    assert world.a.watches[8:] == [["t8"]]
    world.a.end("t8")
    await trio.sleep(0.1)
    assert set(runner.results) == {"t0", "t8"}


async def test_closing_the_client_ends_its_watches(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.tasks[TaskId("t")] = None
    async with world.client() as client:
        async with client.run_many([task("t")]) as outcomes:
            with trio.move_on_after(1):
                await anext(outcomes)
            assert world.a.open_watches == [["t"]]
    await trio.sleep(1)
    assert world.a.open_watches == []
