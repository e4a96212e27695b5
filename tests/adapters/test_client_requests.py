from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve

from blockx.client import Client
from blockx.errors import (
    ConnectionFailed,
    InvalidArgument,
    InvalidSlot,
    NoSlot,
    NotFinished,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from blockx.model import (
    PluginResult,
    Reservation,
    SlotId,
    Submission,
    TaskId,
    TaskResult,
    TaskState,
    TaskUpdate,
)
from tests.adapters.client_doubles import FULL, World, make_world, task

T = TaskId("t")
LARGE = TaskResult(
    state=TaskState.SUCCEEDED,
    plugin_results=(PluginResult("p", True, "", b"x" * 4_000_000), PluginResult("q", True, "", b"yy")),
)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    return make_world(nursery)


# --------------------------------------------------------------------------------------------------------------------
# Opening and closing


def test_a_client_without_addresses_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one address"):
        Client()


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        (["foo"], "coordinators has 'foo', which is no HOST:PORT"),
        (["c:1", ":7070"], "':7070'"),
        (["c:0"], "'c:0'"),
        ("c:1", r"write coordinators=\['c:1'\]"),
        ([7070], "must be texts"),
    ],
)
def test_addresses_that_are_none_are_refused_at_once(addresses: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Client(coordinators=addresses)


def test_a_client_under_asyncio_says_that_it_wants_trio() -> None:
    async def main() -> None:
        async with Client(workers=["a:1"]):
            raise AssertionError("entered")

    with pytest.raises(RuntimeError, match="BlockX's client runs under trio"):
        asyncio.run(main())


async def test_a_client_that_is_not_open_says_so() -> None:
    client = Client(workers=["a:1"])
    with pytest.raises(RuntimeError, match="async with"):
        await client.reserve(T)


async def test_an_error_leaves_the_client_s_block_as_it_is(world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with world.client():
            raise ZeroDivisionError


async def test_a_cancelled_block_ends_the_client(world: World, autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(1) as scope:
        async with world.client() as client:
            await client.reserve(T)
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_client_may_be_opened_again(world: World) -> None:
    client = Client(["c:1"], channel=world.network.channel)
    for _ in range(2):
        async with client:
            assert (await client.reserve(T)).worker_addr == "a:1"


# --------------------------------------------------------------------------------------------------------------------
# Reserve


async def test_a_reserve_goes_through_the_coordinator(world: World) -> None:
    async with world.client() as client:
        reservation = await client.reserve(T)
    assert reservation == Reservation("a:1", world.a.leases[T], TaskState.ALLOCATED, 5_000)


async def test_a_dead_coordinator_is_passed_over_from_then_on(world: World) -> None:
    world.hosts["c:1"].crash()
    async with world.client("c:1", "d:1") as client:
        await client.reserve(T)
        world.hosts["c:1"].is_up = True
        await client.reserve(T)
    assert (world.c.reserves, world.d.reserves) == ([], ["t", "t"])


async def test_many_reserves_at_once_pass_over_a_dead_coordinator(world: World) -> None:
    world.hosts["c:1"].crash()
    async with world.client("c:1", "d:1") as client, trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(client.reserve, TaskId(f"t{number}"))
    assert len(world.d.reserves) == 6


async def test_a_coordinator_that_knows_no_worker_is_passed_over(world: World) -> None:
    world.c.refusals = [Unavailable("no worker is registered")]
    async with world.client("c:1", "d:1") as client:
        assert (await client.reserve(T)).worker_addr == "a:1"


async def test_a_full_cluster_is_not_asked_again_through_the_next_coordinator(world: World) -> None:
    world.c.refusals = [FULL]
    async with world.client("c:1", "d:1") as client:
        with pytest.raises(NoSlot) as refusal:
            await client.reserve(T)
    assert refusal.value.retry_after_ms == 50
    assert world.d.reserves == []


async def test_when_no_coordinator_answers_each_is_named(world: World) -> None:
    world.hosts["c:1"].crash()
    world.hosts["d:1"].crash()
    async with world.client("c:1", "d:1") as client:
        with pytest.raises(Unavailable, match=r"no coordinator answers: c:1 .*; d:1 "):
            await client.reserve(T)


async def test_an_answer_says_more_than_a_lost_connection(world: World) -> None:
    world.hosts["c:1"].crash()
    world.d.refusals = [Unavailable("no worker is registered", retry_after_ms=30)]
    async with world.client("c:1", "d:1") as client:
        with pytest.raises(Unavailable, match=r"^no worker is registered$") as refusal:
            await client.reserve(T)
    assert refusal.value.retry_after_ms == 30


async def test_other_refusals_are_raised_at_once(world: World) -> None:
    world.c.refusals = [Unauthenticated("no token")]
    async with world.client("c:1", "d:1") as client:
        with pytest.raises(Unauthenticated):
            await client.reserve(T)
    assert world.d.reserves == []


async def test_workers_given_by_address_are_the_fallback(world: World) -> None:
    world.hosts["c:1"].crash()
    async with world.client("c:1", workers=("b:1",)) as client:
        reservation = await client.reserve(T)
    assert reservation == Reservation("b:1", world.b.leases[T], TaskState.ALLOCATED, 5_000)


async def test_without_coordinators_the_next_worker_follows_a_full_one(world: World) -> None:
    async with world.client(workers=("a:1", "b:1")) as client:
        first = (await client.reserve(T)).worker_addr
        world.workers[first].refusals["RequestTaskSlot"] = [FULL]
        assert (await client.reserve(T)).worker_addr != first


async def test_the_same_task_goes_to_the_same_worker_first(world: World) -> None:
    for order in (("a:1", "b:1"), ("b:1", "a:1")):
        async with world.client(workers=order) as client:
            for number in range(8):
                await client.reserve(TaskId(f"t{number}"))
    assert len(world.a.leases) + len(world.b.leases) == 8
    assert world.a.leases
    assert world.b.leases


async def test_when_all_workers_are_full_it_is_no_slot_also_beside_a_dead_one(world: World) -> None:
    world.hosts["b:1"].crash()
    world.a.refusals["RequestTaskSlot"] = [FULL]
    async with world.client(workers=("a:1", "b:1")) as client:
        with pytest.raises(NoSlot) as refusal:
            await client.reserve(T)
    assert refusal.value.retry_after_ms == 50


# --------------------------------------------------------------------------------------------------------------------
# Submit


async def test_a_submission_reserves_and_submits(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        assert await client.submit(task("t")) == Submission("a:1", TaskState.RUNNING)
    assert world.a.submissions == [task("t")]
    assert world.a.slot_ids == ["slot-0"]


async def test_a_submission_may_use_a_reservation_made_before(world: World) -> None:
    async with world.client() as client:
        reservation = await client.reserve(T)
        await client.submit(task("t"), reservation)
    assert world.a.executions == ["t"]
    assert world.a.slot_ids == [reservation.slot_id]
    assert len(world.c.reserves) == 1


async def test_a_stale_reservation_is_refused(world: World) -> None:
    async with world.client() as client:
        reservation = await client.reserve(T)
        with pytest.raises(InvalidSlot):
            await client.submit(task("t"), evolve(reservation, slot_id=SlotId("old")))


async def test_a_submission_without_coordinators_needs_no_reservation(world: World) -> None:
    async with world.client(workers=("a:1",)) as client:
        await client.submit(task("t"))
    assert world.a.executions == ["t"]
    assert world.a.slot_ids == [""]


async def test_a_task_that_cannot_be_sent_is_refused_here(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(InvalidArgument, match="cannot be sent"):
            await client.submit(evolve(task("t"), task_timeout_ms=2**70))


async def test_a_submission_whose_answer_was_lost_is_asked_for_at_the_same_worker(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.mutes["SubmitTask"] = 2
    async with world.client() as client:
        assert (await client.submit(task("t"))).worker_addr == "a:1"
    assert world.a.executions == ["t"]
    assert world.b.executions == []


async def test_a_submission_that_stays_unanswered_is_unknown(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.mutes["SubmitTask"] = 99
    async with world.client() as client:
        reservation = await client.reserve(T)

        async def lose_the_connection() -> None:
            await trio.sleep(35)
            world.hosts["a:1"].crash()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose_the_connection)
            with pytest.raises(ConnectionFailed):
                await client.submit(task("t"), reservation)
    assert world.a.executions == ["t"]


async def test_a_submission_whose_connection_was_lost_is_asked_for_at_the_same_worker(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.mutes["SubmitTask"] = 1
    async with world.client() as client, trio.open_nursery() as nursery:

        async def cut() -> None:
            await trio.sleep(1)
            world.hosts["a:1"].cut()

        nursery.start_soon(cut)
        assert (await client.submit(task("t"))).worker_addr == "a:1"
    assert len(world.a.submissions) == 2
    assert world.a.executions == ["t"]


async def test_a_submission_to_a_dead_worker_is_not_repeated(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    async with world.client() as client:
        reservation = await client.reserve(T)
        world.hosts["a:1"].crash()
        began = trio.current_time()
        with pytest.raises(ConnectionFailed):
            await client.submit(task("t"), reservation)
        assert trio.current_time() == began


# --------------------------------------------------------------------------------------------------------------------
# Watch, status, result


async def test_a_watch_gives_snapshots_and_ends(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        await client.submit(task("t"))
        async with client.watch([T, TaskId("x")], worker_addr="a:1") as updates:
            seen = [await anext(updates), await anext(updates)]
            world.a.end("t")
            seen += [update async for update in updates]
    unknown = TaskUpdate(task_id=TaskId("x"), state=None, is_terminal=True, worker_addr="a:1", error="not_found")
    running = TaskUpdate(task_id=T, state=TaskState.RUNNING, is_terminal=False, worker_addr="a:1")
    ended = evolve(running, state=TaskState.SUCCEEDED, is_terminal=True, result=TaskResult(state=TaskState.SUCCEEDED))
    assert seen == [running, unknown, ended]


async def test_leaving_a_watch_ends_it_at_the_worker(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        await client.submit(task("t"))
        async with client.watch([T], worker_addr="a:1") as updates:
            await anext(updates)
            assert world.a.open_watches == [["t"]]
        await trio.testing.wait_all_tasks_blocked()
        assert world.a.open_watches == []


async def test_a_result_can_be_fetched_once_the_task_has_ended(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        await client.submit(task("t"))
        assert await client.status(T, worker_addr="a:1") == (TaskState.RUNNING, None)
        with pytest.raises(NotFinished, match="'t' is RUNNING on a:1"):
            await client.result(T, worker_addr="a:1")
        world.a.end("t")
        assert await client.result(T, worker_addr="a:1") == TaskResult(state=TaskState.SUCCEEDED)


async def test_a_result_of_an_unknown_task_is_not_found(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(NotFound):
            await client.result(T, worker_addr="a:1")


async def test_a_large_result_is_fetched_whole(world: World) -> None:
    world.a.script = lambda _: LARGE
    async with world.client() as client:
        await client.submit(task("t"))
        assert await client.result(T, worker_addr="a:1") == LARGE
