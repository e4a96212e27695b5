from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import trio
import trio.testing
from attrs import evolve

from blockx.client import Client, RetryPolicy, TaskOutcome
from blockx.client.retry import MAX_PAUSE_MS
from blockx.errors import DeadlineExceeded, InvalidArgument, InvalidSlot, NoSlot, NotFound, RequestError, Unavailable
from blockx.model import FailureCode, PluginResult, Submission, TaskId, TaskInput, TaskResult, TaskState
from tests.adapters.client_doubles import FULL, World, make_world, task
from tests.adapters.test_client_requests import LARGE
from tests.cancelling import cancel_at_every_checkpoint

T = TaskId("t")
WELL = TaskResult(state=TaskState.SUCCEEDED)
FAILED = TaskResult(state=TaskState.FAILED, failure_code=FailureCode.CALL_FAILED, failure_message="no")
PASSING = evolve(FAILED, failure_code=FailureCode.TIMED_OUT, retryable=True)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    return make_world(nursery)


# --------------------------------------------------------------------------------------------------------------------
# From submission to result


async def test_a_task_runs_to_its_result(world: World) -> None:
    async with world.client() as client:
        assert await client.run(task("t")) == WELL
    assert world.a.executions == ["t"]


async def test_a_task_that_ends_later_is_waited_for(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(_end_when_watched, world)
        assert await client.run(task("t")) == WELL


async def _end_when_watched(world: World) -> None:
    while not world.a.open_watches:
        await trio.lowlevel.checkpoint()
    world.a.end("t")


async def test_a_failed_task_is_a_result(world: World) -> None:
    world.a.script = lambda _: PASSING
    async with world.client() as client:
        assert await client.run(task("t")) == PASSING
    assert world.a.executions == ["t"]


async def test_a_large_result_comes_whole(world: World) -> None:
    world.a.script = lambda _: LARGE
    async with world.client() as client:
        assert await client.run(task("t")) == LARGE


async def test_a_large_result_is_read_again_where_reading_failed(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.script = lambda _: LARGE
    world.a.refusals["ReadTaskResult"] = [Unavailable("not now")]
    async with world.client() as client:
        assert await client.run(task("t")) == LARGE


async def test_a_refused_task_is_an_error(world: World) -> None:
    world.a.refusals["SubmitTask"] = [InvalidArgument("the builder has no type")]
    async with world.client() as client:
        with pytest.raises(InvalidArgument, match="no type"):
            await client.run(task("t"))


async def test_after_the_timeout_it_may_still_run(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        with pytest.raises(DeadlineExceeded, match="'t' has not ended within 3 s; it may still run"):
            await client.run(task("t"), timeout=3)
        await trio.testing.wait_all_tasks_blocked()
        assert world.a.unwatched == ["t"]


async def test_a_run_may_be_cancelled_at_any_point(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda _: LARGE

    def check(step: int) -> None:
        assert world.a.executions.count(TaskId(f"t{step}")) <= 1

    async with world.client() as client:

        async def work(step: int) -> None:
            await client.run(task(f"t{step}"))

        assert await cancel_at_every_checkpoint(work, check) > 5
        await trio.sleep(1)
        assert world.a.open_watches == []


# --------------------------------------------------------------------------------------------------------------------
# A full or absent cluster


async def test_a_full_cluster_is_waited_for_as_long_as_it_takes(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.c.refusals = [FULL] * 300
    async with world.client() as client:
        assert await client.run(task("t")) == WELL
    assert trio.current_time() == pytest.approx(300 * 0.05)


async def test_the_timeout_bounds_the_wait_for_a_slot(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.c.refusals = [FULL] * 1_000
    async with world.client() as client:
        with pytest.raises(DeadlineExceeded):
            await client.run(task("t"), timeout=5)


async def test_without_a_hint_the_pauses_grow(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.c.refusals = [Unavailable("no worker is registered")] * 6
    async with world.client() as client:
        assert await client.run(task("t")) == WELL
    assert trio.current_time() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 2.0)


async def test_an_absent_cluster_is_given_up_after_the_client_s_timeout(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.hosts["c:1"].crash()
    async with world.client() as client:
        with pytest.raises(Unavailable, match="no coordinator answers"):
            await client.run(task("t"))
    assert trio.current_time() == pytest.approx(10)


async def test_a_hint_to_wait_long_is_obeyed_up_to_the_longest_pause(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.c.refusals = [NoSlot("every slot is taken", retry_after_ms=3_600_000)]
    async with world.client() as client:
        assert await client.run(task("t")) == WELL
    assert trio.current_time() == pytest.approx(MAX_PAUSE_MS / 1000)


async def test_each_wait_is_told_with_its_reason(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.c.refusals = [FULL, Unavailable("no worker is registered")]
    reasons: list[str] = []
    client = Client(["c:1"], channel=world.network.channel, on_wait=lambda error: reasons.append(str(error)))
    async with client:
        assert await client.run(task("t")) == WELL
    assert reasons == ["every slot is taken", "no worker is registered"]


async def test_where_a_task_was_accepted_is_told_and_whether_it_was_known(world: World) -> None:
    told: list[tuple[TaskId, Submission]] = []
    async with world.client() as client:
        for _ in range(2):
            await client.run(task("t"), on_accepted=lambda *accepted: told.append(accepted))
    assert told == [
        ("t", Submission("a:1", TaskState.RUNNING)),
        ("t", Submission("a:1", TaskState.SUCCEEDED, is_known=True)),
    ]


async def test_a_task_that_another_client_s_submission_runs_is_known(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        assert not (await client.submit(task("t"))).is_known
        assert (await client.submit(task("t"))).is_known


async def test_patience_begins_anew_when_the_cluster_was_full_in_between(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    absent: list[RequestError] = [Unavailable("no worker is registered", retry_after_ms=2_000)] * 4
    world.c.refusals = [*absent, FULL, *absent]
    async with world.client() as client:
        assert await client.run(task("t")) == WELL


async def test_a_lease_that_ran_out_is_taken_anew(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.refusals["SubmitTask"] = [InvalidSlot("the lease ran out")]
    async with world.client() as client:
        assert await client.run(task("t")) == WELL
    assert world.c.reserves == ["t", "t"]


async def test_a_worker_that_begins_to_drain_after_the_reserve_leads_to_another(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.refusals["SubmitTask"] = [Unavailable("draining")]
    world.c.workers.reverse()
    world.b.refusals["SubmitTask"] = [Unavailable("draining")]
    async with world.client() as client:
        assert await client.run(task("t"), timeout=5) == WELL


async def test_workers_given_by_address_run_tasks_where_no_coordinator_answers(world: World) -> None:
    world.hosts["c:1"].crash()
    async with world.client("c:1", workers=("b:1",)) as client:
        assert await client.run(task("t")) == WELL
    assert world.b.executions == ["t"]


async def test_without_coordinators_the_next_worker_follows_a_full_one(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    for worker in world.workers.values():
        worker.refusals["SubmitTask"] = [FULL]
    async with world.client(workers=("a:1", "b:1")) as client:
        with pytest.raises(DeadlineExceeded):
            await client.run(task("t"), timeout=0.02)
    assert [worker.refusals["SubmitTask"] for worker in world.workers.values()] == [[], []]


# --------------------------------------------------------------------------------------------------------------------
# Lost connections and workers


async def test_a_lost_watch_is_opened_again(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:

        async def cut_and_end() -> None:
            await trio.sleep(1)
            world.hosts["a:1"].crash()
            await trio.sleep(4)
            world.a.end("t")
            world.hosts["a:1"].is_up = True

        nursery.start_soon(cut_and_end)
        assert await client.run(task("t")) == WELL
    assert world.a.watches == [["t"], ["t"]]
    assert world.a.executions == ["t"]


async def test_each_loss_of_a_watch_has_the_whole_patience(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:

        async def go_away_twice() -> None:
            for _ in range(2):
                await trio.sleep(60)
                world.hosts["a:1"].crash()
                await trio.sleep(6)
                world.hosts["a:1"].is_up = True
            await trio.sleep(60)
            world.a.end("t")

        nursery.start_soon(go_away_twice)
        assert await client.run(task("t")) == WELL


async def test_a_watch_that_the_worker_refuses_for_a_while_is_tried_again(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.refusals["WatchTasks"] = [Unavailable("not now")] * 3
    async with world.client() as client:
        assert await client.run(task("t")) == WELL


async def test_a_watch_that_is_refused_for_good_is_an_error(world: World) -> None:
    world.a.refusals["WatchTasks"] = [InvalidArgument("too many")]
    async with world.client() as client:
        with pytest.raises(InvalidArgument, match="too many"):
            await client.run(task("t"))


async def test_a_worker_that_does_not_come_back_is_an_error_that_says_where(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:

        async def crash() -> None:
            await trio.sleep(60)
            world.hosts["a:1"].crash()

        nursery.start_soon(crash)
        with pytest.raises(Unavailable, match="a:1"):
            await client.run(task("t"))
    assert 70 <= trio.current_time() <= 73


async def test_a_worker_that_forgot_the_task_is_an_error(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(_restart, world)
        with pytest.raises(NotFound, match="'t' was accepted by worker a:1, which lost it: not_found"):
            await client.run(task("t"))


async def _restart(world: World) -> None:
    await trio.sleep(1)
    world.a.forget()
    world.a.script = lambda _: WELL
    world.hosts["a:1"].cut()


# --------------------------------------------------------------------------------------------------------------------
# Retry


async def test_a_retryable_failure_is_tried_again_under_a_fresh_id(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    ends = [PASSING, PASSING, WELL]
    world.a.script = lambda _: ends.pop(0)
    async with world.client() as client:
        assert await client.run(task("t"), retry=RetryPolicy(attempts=3)) == WELL
    assert world.a.executions[0] == "t"
    assert len(set(world.a.executions)) == 3


async def test_the_last_attempt_s_failure_is_the_result(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda _: PASSING
    async with world.client() as client:
        assert await client.run(task("t"), retry=RetryPolicy(attempts=2)) == PASSING
    assert len(world.a.executions) == 2


async def test_a_failure_that_is_not_retryable_is_not_tried_again(world: World) -> None:
    world.a.script = lambda _: FAILED
    async with world.client() as client:
        assert await client.run(task("t"), retry=RetryPolicy(attempts=3)) == FAILED
    assert world.a.executions == ["t"]


async def test_with_retry_a_forgotten_task_is_submitted_anew(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(_restart, world)
        assert await client.run(task("t"), retry=RetryPolicy(attempts=2)) == WELL
    assert len(world.a.executions) == 2


async def test_with_retry_a_task_of_a_dead_worker_goes_to_another(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.script = lambda _: None
    async with world.client() as client, trio.open_nursery() as nursery:

        async def crash() -> None:
            await trio.sleep(1)
            world.hosts["a:1"].crash()

        nursery.start_soon(crash)
        assert await client.run(task("t"), retry=RetryPolicy(attempts=2)) == WELL
    assert len(world.b.executions) == 1


def test_a_retry_policy_has_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="attempts"):
        RetryPolicy(attempts=0)


# --------------------------------------------------------------------------------------------------------------------
# Many


def numbered(count: int) -> list[TaskInput]:
    return [task(f"t{number}") for number in range(count)]


def echo(submitted: TaskInput) -> TaskResult:
    return evolve(WELL, plugin_results=(PluginResult("p", True, "", submitted.task_id.encode()),))


async def test_many_tasks_give_each_its_own_result(world: World) -> None:
    world.a.script = echo
    async with world.client() as client:
        outcomes = [outcome async for outcome in client.run_many(numbered(50), in_flight=8)]
    assert sorted(outcome.task.task_id for outcome in outcomes) == sorted(each.task_id for each in numbered(50))
    for outcome in outcomes:
        assert outcome == TaskOutcome.of(outcome.task, echo(outcome.task))


async def test_results_come_in_the_order_in_which_the_tasks_end(world: World) -> None:
    world.a.script = lambda _: None
    async with world.client() as client:
        async with client.run_many(numbered(3)) as outcomes:

            async def end_in_reverse() -> None:
                while len(world.a.executions) < 3:
                    await trio.testing.wait_all_tasks_blocked()
                for task_id in reversed(world.a.executions):
                    world.a.end(task_id)
                    await trio.testing.wait_all_tasks_blocked()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_in_reverse)
                ended = [outcome.task.task_id async for outcome in outcomes]
    assert ended == list(reversed(world.a.executions))


async def test_never_more_than_in_flight_are_pulled_before_one_is_read(world: World) -> None:
    pulled: list[TaskInput] = []

    def tasks() -> Iterator[TaskInput]:
        for each in numbered(10):
            pulled.append(each)
            yield each

    async with world.client() as client:
        async with client.run_many(tasks(), in_flight=3) as outcomes:
            await anext(outcomes)
            await trio.testing.wait_all_tasks_blocked()
            assert len(world.a.executions) == 4
            assert len(pulled) == 5  # the fifth waits for its turn
            assert len([outcome async for outcome in outcomes]) == 9


async def test_tasks_may_come_from_an_async_iterable(world: World) -> None:
    async def tasks() -> AsyncIterator[TaskInput]:
        for each in numbered(3):
            await trio.lowlevel.checkpoint()
            yield each

    async with world.client() as client:
        assert len([outcome async for outcome in client.run_many(tasks())]) == 3


async def test_no_tasks_give_no_results(world: World) -> None:
    async with world.client() as client:
        assert [outcome async for outcome in client.run_many([])] == []


async def test_a_refused_task_is_raised_with_its_name_and_ends_the_iteration(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.a.refusals["SubmitTask"] = [InvalidArgument("bad config")]
    world.a.script = lambda _: None
    async with world.client() as client:
        outcomes = client.run_many(numbered(2))
        with pytest.raises(InvalidArgument, match="bad config") as refusal:
            await anext(outcomes)
        (note,) = refusal.value.__notes__
        assert note in ("while running task 't0'", "while running task 't1'")
        with trio.fail_after(60):
            assert [outcome async for outcome in outcomes] == []


async def test_an_error_of_the_caller_s_own_iterable_is_raised_as_it_is(world: World) -> None:
    def tasks() -> Iterator[TaskInput]:
        yield task("t0")
        raise ZeroDivisionError

    async with world.client() as client:
        with pytest.raises(ZeroDivisionError):
            async for _ in client.run_many(tasks()):
                pass


async def test_leaving_the_block_ends_what_runs(world: World, autojump_clock: trio.testing.MockClock) -> None:
    world.a.script = lambda submitted: WELL if submitted.task_id == "t0" else None
    async with world.client() as client:
        async with client.run_many(numbered(3)) as outcomes:
            assert (await anext(outcomes)).task.task_id == "t0"
        await trio.sleep(1)
        assert world.a.open_watches == []
        assert [outcome async for outcome in outcomes] == []


async def test_in_flight_must_be_positive(world: World) -> None:
    async with world.client() as client:
        with pytest.raises(ValueError, match="in_flight must be at least 1, not 0"):
            client.run_many([], in_flight=0)


async def test_retry_and_timeout_hold_for_each_task(world: World, autojump_clock: trio.testing.MockClock) -> None:
    tried: set[str] = set()

    def fail_at_first(submitted: TaskInput) -> TaskResult:
        is_first = submitted.task_id in ("t0", "t1")
        tried.add(submitted.task_id)
        return PASSING if is_first else WELL

    world.a.script = fail_at_first
    async with world.client() as client:
        outcomes = [each async for each in client.run_many(numbered(2), retry=RetryPolicy(attempts=2), timeout=60)]
    assert [outcome.success for outcome in outcomes] == [True, True]
    assert {outcome.task.task_id for outcome in outcomes} == {"t0", "t1"}
    assert len(tried) == 4
