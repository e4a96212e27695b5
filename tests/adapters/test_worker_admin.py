"""What operators see of a worker, over gRPC, and how they end it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import frozen
from trio.testing import MockClock

import blockx
from blockx.errors import InvalidArgument, Unavailable
from blockx.model import FailureCode, TaskId, TaskState
from blockx.proto import worker_pb2 as pb
from blockx.rpc import Channel
from blockx.worker.admin import worker_admin_service
from blockx.worker.core import call_events as ce
from blockx.worker.core import events as ev
from blockx.worker.core.settings import WorkerSettings
from blockx.worker.phases import AdmissionSettings
from tests.adapters.network import Network
from tests.adapters.worker_rig import FUNCTION, INLINE_BYTES, SPOOL_BYTES, HoldingBuilder, Rig, rig

METHODS = pb.DESCRIPTOR.services_by_name["WorkerAdminService"].methods_by_name
EXECUTOR = ce.ExecutorId(7)


@frozen
class Operator:
    """One who asks a worker over gRPC."""

    worker: Rig
    channel: Channel

    async def status(self) -> pb.WorkerStatus:
        answer = await self.channel.unary(METHODS["GetStatus"], pb.GetStatusRequest())
        assert isinstance(answer, pb.WorkerStatus)
        return answer

    async def phase(self, phase: pb.TaskPhase) -> pb.PhaseStatus:
        return next(each for each in (await self.status()).phases if each.phase == phase)

    async def tasks(self, phase: int = 0, limit: int = 0) -> pb.ListTasksResponse:
        request = pb.ListTasksRequest(phase=phase, limit=limit)  # type: ignore[arg-type]  # any number is sent
        answer = await self.channel.unary(METHODS["ListTasks"], request)
        assert isinstance(answer, pb.ListTasksResponse)
        return answer

    async def task(self) -> pb.TaskStatus:
        (task,) = (await self.tasks()).tasks
        return task

    async def drain(self, timeout_ms: int = 0) -> int:
        answer = await self.channel.unary(METHODS["Drain"], pb.DrainRequest(timeout_ms=timeout_ms))
        assert isinstance(answer, pb.DrainResponse)
        return answer.running_tasks

    def watch(self, interval_ms: int = 0) -> Any:
        return self.channel.stream(METHODS["WatchStatus"], pb.WatchStatusRequest(interval_ms=interval_ms))


@asynccontextmanager
async def operated(folder: Path, **options: Any) -> AsyncIterator[Operator]:
    HoldingBuilder.building.clear()
    HoldingBuilder.release = trio.Event()
    async with rig(folder, **options) as worker, trio.open_nursery() as nursery:
        network = Network(nursery)
        network.serve("w:1", worker_admin_service(worker.control))
        channel = network.channel("w:1")
        nursery.start_soon(channel.run)
        yield Operator(worker, channel)
        nursery.cancel_scope.cancel()


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_an_idle_worker_tells_what_it_is(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path, settings=WorkerSettings(slots=3)) as operator:
        mock_clock.jump(2)
        assert await operator.status() == pb.WorkerStatus(
            worker_id="w",
            addr="127.0.0.1:7071",
            version=blockx.__version__,
            uptime_ms=2_000,
            state=pb.WORKER_STATE_READY,
            slots=pb.SlotCounts(total=3, free=3),
            phases=[
                pb.PhaseStatus(phase=pb.TASK_PHASE_PREPARING),
                pb.PhaseStatus(phase=pb.TASK_PHASE_BUILDER, limit=16),
                pb.PhaseStatus(phase=pb.TASK_PHASE_CALLS, limit=32),
                pb.PhaseStatus(phase=pb.TASK_PHASE_PLUGIN, limit=16),
            ],
            code=pb.CodeStatus(epoch=1, digest="digest", function_count=1, functions=[FUNCTION]),
            results=pb.ResultsStatus(spool_limit_bytes=SPOOL_BYTES),
        )


async def test_a_worker_that_is_not_ready_tells_why(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.control.worker.feed(ev.ExecutorsChanged(0, "no module named web3"))
        status = await operator.status()
        assert status.state == pb.WORKER_STATE_STARTING
        assert status.not_ready_reason == "its executors keep dying: no module named web3"


async def test_slots_are_counted_by_state(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path, settings=WorkerSettings(slots=4)) as operator:
        operator.worker.control.worker.feed(ev.SlotRequested(TaskId("leased"), 5_000, blockx.model.SlotId("s")))
        operator.worker.submit("running", builder="Holding")
        await settled()
        assert (await operator.status()).slots == pb.SlotCounts(total=4, free=2, allocated=1, running=1)


async def test_tasks_beyond_an_admission_s_limit_are_shown_waiting(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path, admission=AdmissionSettings(builder_slots=1)) as operator:
        for name in "abc":
            operator.worker.submit(name, builder="Holding")
            await settled()
        assert await operator.phase(pb.TASK_PHASE_BUILDER) == pb.PhaseStatus(
            phase=pb.TASK_PHASE_BUILDER, tasks=3, admitted=1, waiting=2, limit=1
        )
        waiting = {task.task_id: task.is_waiting for task in (await operator.tasks()).tasks}
        assert waiting == {"a": False, "b": True, "c": True}


async def test_a_task_that_is_prepared_needs_no_admission(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("t", writer="SlowToActivate")
        await settled()
        preparing = pb.PhaseStatus(phase=pb.TASK_PHASE_PREPARING, tasks=1)
        assert await operator.phase(pb.TASK_PHASE_PREPARING) == preparing
        assert (await operator.task()).phase == pb.TASK_PHASE_PREPARING


async def test_a_task_shows_its_age_and_what_is_left_of_its_time(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("t", builder="Holding", timeout_ms=9_000)
        await settled()
        mock_clock.jump(2)
        assert await operator.task() == pb.TaskStatus(
            task_id="t", phase=pb.TASK_PHASE_BUILDER, age_ms=2_000, deadline_left_ms=7_000
        )


async def test_a_task_shows_its_calls(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path, admission=AdmissionSettings(executor_task_slots=1)) as operator:
        calls = operator.worker.control.calls
        for name in ("first", "second"):
            operator.worker.submit(name, builder="ThreeCalls")
            await settled()
        calls.feed(ce.ExecutorJoined(EXECUTOR, 100))
        first_call = ce.call_id(ce.TaskNo(1), 0)
        calls.feed(ce.CallsCompleted(executor=EXECUTOR, ids=[first_call], attempts=[1], cpu_us=[1], values=[b"\xc0"]))
        first, second = (await operator.tasks(pb.TASK_PHASE_CALLS)).tasks
        assert (first.calls_total, first.calls_done, first.calls_in_flight) == (3, 1, 2)
        assert first.call_window >= 2
        assert (second.is_waiting, second.calls_total, second.calls_done, second.call_window) == (True, 3, 0, 0)


async def test_the_calls_of_a_task_that_writes_are_done(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        calls = operator.worker.control.calls
        calls.feed(ce.ExecutorJoined(EXECUTOR, 100))
        operator.worker.submit("t", builder="ThreeCalls", writer="OneRow")
        await settled()
        ids = [ce.call_id(ce.TaskNo(1), index) for index in range(3)]
        calls.feed(
            ce.CallsCompleted(executor=EXECUTOR, ids=ids, attempts=[1] * 3, cpu_us=[1] * 3, values=[b"\xc0"] * 3)
        )
        await trio.to_thread.run_sync(operator.worker.tables.asking.wait)
        task = await operator.task()
        assert (task.phase, task.calls_total, task.calls_done) == (pb.TASK_PHASE_PLUGIN, 3, 3)
        assert (task.calls_in_flight, task.call_window) == (0, 0)


async def test_only_the_tasks_of_one_phase_are_listed_when_asked_so(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("building", builder="Holding")
        operator.worker.submit("preparing", writer="SlowToActivate")
        await settled()
        answer = await operator.tasks(pb.TASK_PHASE_PREPARING)
        assert [task.task_id for task in answer.tasks] == ["preparing"]
        assert (answer.matching, answer.is_truncated) == (1, False)


async def test_a_list_of_tasks_ends_at_its_limit_and_says_so(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        for name in "abc":
            operator.worker.submit(name, builder="Holding")
        await settled()
        answer = await operator.tasks(limit=2)
        assert [task.task_id for task in answer.tasks] == ["a", "b"]
        assert (answer.matching, answer.is_truncated) == (3, True)
        answer = await operator.tasks(limit=3)
        assert (len(answer.tasks), answer.matching, answer.is_truncated) == (3, 3, False)


@pytest.mark.parametrize(
    ("request_fields", "complaint"),
    [
        ({"limit": -1}, "limit must be from 1 to 5000, or 0 for 1000; not -1"),
        ({"limit": 5_001}, "limit must be from 1 to 5000, or 0 for 1000; not 5001"),
        ({"phase": 5}, "phase 5 is none; phases are numbered 1 to 4"),
    ],
)
async def test_a_list_that_cannot_be_is_an_invalid_argument(
    mock_clock: MockClock, tmp_path: Path, request_fields: dict[str, int], complaint: str
) -> None:
    async with operated(tmp_path) as operator:
        with pytest.raises(InvalidArgument, match=complaint):
            await operator.tasks(**request_fields)


async def test_results_and_what_came_too_late_are_counted(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        control = operator.worker.control
        operator.worker.submit("t", writer="Large")
        await operator.worker.end("t")
        control.worker.feed(ev.PhaseFinished(TaskId("t"), ev.Phase.PLUGIN, ev.Outcome()))
        late = [ce.call_id(ce.TaskNo(1), 0), ce.call_id(ce.TaskNo(1), 1)]
        control.calls.feed(
            ce.CallsCompleted(executor=EXECUTOR, ids=late, attempts=[1, 1], cpu_us=[1, 1], values=[b"", b""])
        )
        status = await operator.status()
        assert status.results == pb.ResultsStatus(kept=1, spool_bytes=2 * INLINE_BYTES, spool_limit_bytes=SPOOL_BYTES)
        assert (status.ignored_events, status.dropped_answers) == (1, 2)


async def test_of_many_functions_the_first_thousand_are_named(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.control.functions_loaded([f"f{number:04}" for number in range(1_001)])
        code = (await operator.status()).code
        assert (code.function_count, len(code.functions)) == (1_001, 1_000)
        assert (code.functions[0], code.functions[-1]) == ("f0000", "f0999")


# ---------------------------------------------------------------------------------------------------------- watching


@pytest.mark.parametrize(("interval_ms", "apart_ms"), [(0, 1_000), (100, 100), (60_000, 60_000)])
async def test_a_watch_sends_the_status_now_and_after_each_interval(
    autojump_clock: MockClock, tmp_path: Path, interval_ms: int, apart_ms: int
) -> None:
    async with operated(tmp_path) as operator, operator.watch(interval_ms) as statuses:
        uptimes = [(await anext(statuses)).uptime_ms for _ in range(3)]
    assert uptimes == [0, apart_ms, 2 * apart_ms]


@pytest.mark.parametrize("interval_ms", [-1, 99, 60_001])
async def test_an_interval_out_of_bounds_is_an_invalid_argument(
    mock_clock: MockClock, tmp_path: Path, interval_ms: int
) -> None:
    async with operated(tmp_path) as operator, operator.watch(interval_ms) as statuses:
        with pytest.raises(InvalidArgument, match=f"interval_ms must be from 100 to 60000.*not {interval_ms}"):
            await anext(statuses)


async def test_a_watch_shows_a_worker_that_drains_and_ends_with_it(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator, operator.watch() as statuses:
        assert (await anext(statuses)).state == pb.WORKER_STATE_READY
        operator.worker.control.worker.feed(ev.DrainRequested())
        with trio.fail_after(60):
            states = [status.state async for status in statuses]
        assert set(states) == {pb.WORKER_STATE_DRAINING}
        assert operator.worker.control.finished.is_set()


# ---------------------------------------------------------------------------------------------------------- draining


async def test_drain_answers_at_once_with_what_runs_and_lets_it_finish(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("t", builder="Holding")
        operator.worker.submit("preparing", writer="SlowToActivate", timeout_ms=5_000)
        await settled()
        assert await operator.drain() == 2
        assert (await operator.status()).state == pb.WORKER_STATE_DRAINING
        with pytest.raises(Unavailable, match="drain"):
            operator.worker.submit("new")
        HoldingBuilder.release.set()
        assert (await operator.worker.end("t")).state is TaskState.SUCCEEDED
        await operator.worker.control.finished.wait()
        assert operator.worker.control.exit_code == 0


async def test_what_runs_beyond_the_timeout_of_a_drain_is_cancelled(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("t", builder="Holding")
        assert await operator.drain(timeout_ms=3_000) == 1
        update = await operator.worker.end("t")
        assert update.result is not None
        assert (update.result.failure_code, update.result.retryable) == (FailureCode.CANCELLED, True)
        await operator.worker.control.finished.wait()
        assert operator.worker.control.exit_code == 1


async def test_a_second_drain_narrows_the_limit_and_cancels_nothing_at_once(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with operated(tmp_path) as operator:
        operator.worker.submit("t", builder="Holding")
        await settled()
        assert await operator.drain(timeout_ms=60_000) == 1
        assert await operator.drain(timeout_ms=3_000) == 1
        assert await operator.drain() == 1
        mock_clock.jump(2.9)
        await settled()
        assert operator.worker.now("t").state is TaskState.RUNNING
        mock_clock.jump(0.2)
        update = await operator.worker.end("t")
        assert update.result is not None
        assert update.result.failure_code is FailureCode.CANCELLED


async def test_a_drain_without_a_timeout_takes_the_worker_s_own_once(mock_clock: MockClock, tmp_path: Path) -> None:
    async with operated(tmp_path, drain_timeout_ms=3_000) as operator:
        operator.worker.submit("t", builder="Holding")
        await settled()
        await operator.drain()
        mock_clock.jump(2)
        await operator.drain()
        mock_clock.jump(1.1)
        update = await operator.worker.end("t")
        assert update.result is not None
        assert update.result.failure_code is FailureCode.CANCELLED


async def test_a_drain_with_a_negative_timeout_is_refused_and_begins_none(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with operated(tmp_path) as operator:
        with pytest.raises(InvalidArgument, match="timeout_ms must be positive, or 0 for the worker's own; not -1"):
            await operator.drain(timeout_ms=-1)
        assert (await operator.status()).state == pb.WORKER_STATE_READY
