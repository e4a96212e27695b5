"""A task's phases around its commit point and its deadline, under a clock that only the test moves."""

from __future__ import annotations

import threading
from pathlib import Path

import trio
import trio.testing
from trio.testing import MockClock

from blockx.model import FailureCode, TaskId, TaskState
from blockx.wire.values import pack_value
from blockx.worker.core import call_events as ce
from blockx.worker.core import events as ev
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.io.scope import TaskScope
from blockx.worker.phases import AdmissionSettings, TaskRun
from tests.adapters.worker_rig import ROW, HoldingBuilder, rig, rows


async def until(event: threading.Event) -> None:
    """Wait for a thread."""
    await trio.to_thread.run_sync(event.wait)


async def test_a_task_without_calls_runs_through_its_phases(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path) as worker:
        worker.tables.go_on()
        worker.submit("t", writer="OneRow")
        update = await worker.end("t")
        assert update.state is TaskState.SUCCEEDED
        assert update.result is not None
        assert [plugin.plugin_name for plugin in update.result.plugin_results] == ["OneRow"]
        assert rows(worker.tables) == [ROW]


async def test_an_unknown_function_is_told_with_the_nearest_and_how_many_there_are(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with rig(tmp_path) as worker:
        worker.control.functions_loaded(["ff", *(f"other_{number:02}" for number in range(21))])
        worker.submit("t", builder="ThreeCalls")
        update = await worker.end("t")
    assert update.result is not None
    message = update.result.failure_message
    assert "there is no function 'f' (did you mean 'ff'?); deployed are: ff, other_00, " in message
    assert "other_18 … and 2 more" in message


async def test_a_task_that_timed_out_before_its_commit_writes_nothing(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path) as worker:
        worker.submit("t", writer="OneRow", timeout_ms=1_000)
        await until(worker.tables.asking)
        mock_clock.jump(1.1)
        update = await worker.end("t")
        assert update.result is not None
        assert update.result.failure_code is FailureCode.TIMED_OUT
        worker.tables.go_on()
    assert not worker.tables.granted.is_set()
    async with rig(tmp_path) as after:
        assert rows(after.tables) == []


async def test_a_task_whose_commit_was_granted_outlives_its_deadline(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path) as worker:
        worker.submit("t", writer="OneRow", timeout_ms=1_000)
        worker.tables.may_ask.set()
        await until(worker.tables.granted)
        mock_clock.jump(10)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert worker.now("t").state is TaskState.RUNNING
        worker.tables.go_on()
        assert (await worker.end("t")).state is TaskState.SUCCEEDED
        assert rows(worker.tables) == [ROW]


async def test_a_writer_that_lingers_after_its_commit_says_that_its_rows_are_there(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with rig(tmp_path) as worker:
        worker.tables.go_on()
        worker.submit("t", writer="Late", timeout_ms=1_000)
        while not rows(worker.tables):
            await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(60)
        update = await worker.end("t")
        assert update.result is not None
        assert (update.result.failure_code, update.result.retryable) == (FailureCode.PLUGIN_FAILED, True)
        assert [(plugin.plugin_name, plugin.success) for plugin in update.result.plugin_results] == [("Late", False)]


async def test_a_defect_of_a_writer_fails_its_task_and_no_other(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path) as worker:
        worker.submit("bad", writer="Raising")
        worker.submit("good")
        bad, good = await worker.end("bad"), await worker.end("good")
        assert bad.result is not None
        assert (bad.result.failure_code, bad.result.retryable) == (FailureCode.PLUGIN_FAILED, True)
        assert "ZeroDivisionError: a writer's own defect (logged by the worker as " in bad.result.failure_message
        assert [plugin.success for plugin in bad.result.plugin_results] == [False]
        assert good.state is TaskState.SUCCEEDED


async def test_a_defect_of_a_builder_fails_its_task_for_good(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path) as worker:
        worker.submit("t", builder="Raising")
        update = await worker.end("t")
        assert update.result is not None
        assert (update.result.failure_code, update.result.retryable) == (FailureCode.BUILDER_FAILED, False)
        assert update.result.plugin_results == ()


async def test_a_scope_that_cannot_be_opened_fails_its_task_retryably(mock_clock: MockClock, tmp_path: Path) -> None:
    def broken(run: TaskRun) -> TaskScope:
        raise OSError("no descriptors left")

    async with rig(tmp_path, open_scope=broken) as worker:
        worker.submit("t")
        update = await worker.end("t")
        assert update.result is not None
        assert (update.result.failure_code, update.result.retryable) == (FailureCode.IO_SCOPE_FAILED, True)
        assert "no descriptors left" in update.result.failure_message


async def test_an_activation_that_takes_too_long_loses_its_slot(mock_clock: MockClock, tmp_path: Path) -> None:
    async with rig(tmp_path, settings=WorkerSettings(slots=1, activation_timeout_ms=100)) as worker:
        worker.submit("t", writer="SlowToActivate")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.2)
        update = await worker.end("t")
        assert update.result is not None
        assert (update.result.failure_code, update.result.retryable) == (FailureCode.SLOT_LOST, True)
        worker.submit("next")
        assert (await worker.end("next")).state is TaskState.SUCCEEDED


async def test_a_phase_admits_so_many_tasks_at_a_time_and_the_first_first(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    HoldingBuilder.building.clear()
    HoldingBuilder.release = trio.Event()
    async with rig(tmp_path, admission=AdmissionSettings(builder_slots=1)) as worker:
        for name in "abc":
            worker.submit(name, builder="Holding")
            await trio.testing.wait_all_tasks_blocked()
        assert HoldingBuilder.building == ["a"]
        HoldingBuilder.release.set()
        for name in "abc":
            await worker.end(name)
        assert HoldingBuilder.building == ["a", "b", "c"]


async def test_a_task_that_waits_for_admission_times_out_there(mock_clock: MockClock, tmp_path: Path) -> None:
    HoldingBuilder.building.clear()
    HoldingBuilder.release = trio.Event()
    async with rig(tmp_path, admission=AdmissionSettings(builder_slots=1)) as worker:
        worker.submit("first", builder="Holding")
        await trio.testing.wait_all_tasks_blocked()
        worker.submit("second", builder="Holding", timeout_ms=100)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.2)
        update = await worker.end("second")
        assert update.result is not None
        assert update.result.failure_code is FailureCode.TIMED_OUT
        HoldingBuilder.release.set()
        assert (await worker.end("first")).state is TaskState.SUCCEEDED
        assert HoldingBuilder.building == [TaskId("first")]


async def test_what_an_executor_says_in_the_moment_of_a_tasks_end_is_dropped(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with rig(tmp_path) as worker:
        control, executor = worker.control, ce.ExecutorId(1)
        control.calls.feed(ce.ExecutorJoined(executor, 100))
        worker.submit("t", builder="ThreeCalls", timeout_ms=1_000)
        await trio.testing.wait_all_tasks_blocked()
        ids = [ce.call_id(ce.TaskNo(1), index) for index in range(3)]
        request = pack_value(["table.get_many", "balances", [["0xa"]], None])
        mock_clock.jump(1.1)
        control.worker.feed(ev.TimersTicked())  # in one scheduler pass with all that follows
        control.calls.feed(
            ce.CallsWaited(executor=executor, ids=ids[:1], attempts=[1], wait_ids=[1], cpu_us=[1], requests=[request])
        )
        control.calls.feed(
            ce.CallsCompleted(
                executor=executor, ids=ids, attempts=[1] * 3, cpu_us=[1] * 3, values=[pack_value(None)] * 3
            )
        )
        update = await worker.end("t")
        assert update.result is not None
        assert update.result.failure_code is FailureCode.TIMED_OUT
        assert control.dispatcher.dropped_answers == 4
        worker.submit("next")
        assert (await worker.end("next")).state is TaskState.SUCCEEDED
