"""What a worker tells operators of itself: read from its parts at the moment of asking. Changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import cast

import trio

from blockx import __version__
from blockx.admin import fitting
from blockx.driver import now_ms
from blockx.errors import InvalidArgument
from blockx.proto import worker_pb2 as pb
from blockx.worker.code import CodeView
from blockx.worker.control import Control
from blockx.worker.core.events import (
    Phase,
)
from blockx.worker.core.records import TaskView
from blockx.worker.core.tasks import WorkerCore
from blockx.worker.executors import Executor
from blockx.worker.phases import TaskRun

MAX_FUNCTIONS = 1_000
"""Names of functions in one status."""

_PHASES = {
    Phase.PREPARING: pb.TASK_PHASE_PREPARING,
    Phase.BUILDER: pb.TASK_PHASE_BUILDER,
    Phase.CALLS: pb.TASK_PHASE_CALLS,
    Phase.PLUGIN: pb.TASK_PHASE_PLUGIN,
}
_BY_NUMBER = {int(number): phase for phase, number in _PHASES.items()}


def state_name(core: WorkerCore, now_ms: int) -> str:
    """What a worker calls itself towards registry and operators: STARTING, READY or DRAINING."""
    if core.draining:
        return "DRAINING"
    return "READY" if core.ready(now_ms) else "STARTING"


def phase_from_pb(number: int) -> Phase | None:
    """The phase of a request; TASK_PHASE_UNSPECIFIED is None. Raises InvalidArgument for a number of no phase."""
    if number == pb.TASK_PHASE_UNSPECIFIED:
        return None
    if number not in _BY_NUMBER:
        raise InvalidArgument(f"phase {number} is none; phases are numbered {min(_BY_NUMBER)} to {max(_BY_NUMBER)}")
    return _BY_NUMBER[number]


def worker_status(control: Control) -> pb.WorkerStatus:
    """The worker as a whole."""
    now = now_ms()
    core, counts = control.core, control.core.counts
    state = pb.WorkerState.Value(f"WORKER_STATE_{state_name(core, now)}")
    return pb.WorkerStatus(
        worker_id=control.worker_id,
        addr=control.addr,
        version=__version__,
        uptime_ms=now - control.started_ms,
        state=cast("pb.WorkerState", state),  # the stubs call every enum value a plain int
        not_ready_reason=core.not_ready_reason(now),
        slots=pb.SlotCounts(total=counts.slots, free=counts.free, allocated=counts.allocated, running=counts.running),
        phases=_phases(control, now),
        executors=[_executor(control, executor) for executor in control.pool.connected],
        code=_code(control.code),
        results=pb.ResultsStatus(
            kept=core.retained_results,
            spool_bytes=control.results.used_bytes,
            spool_limit_bytes=control.results.spool_bytes,
        ),
        dropped_answers=control.dispatcher.dropped_answers,
        ignored_events=core.ignored_events,
    )


def list_tasks(control: Control, phase: Phase | None, limit: int) -> pb.ListTasksResponse:
    """The tasks that run and are in this phase (None: in any), oldest first, at most `limit`."""
    now = now_ms()
    viewed = [(run, _view(control, run, now)) for run in control.runs]
    matching = [(run, view) for run, view in viewed if phase is None or view.phase is phase]
    tasks = fitting([_task(control, run, view, now) for run, view in matching[:limit]])
    return pb.ListTasksResponse(tasks=tasks, matching=len(matching), is_truncated=len(tasks) < len(matching))


def _view(control: Control, run: TaskRun, now_ms: int) -> TaskView:
    view = control.core.task(run.task.task_id, now_ms)
    assert view is not None, "the core knows what runs"
    return view


def _phases(control: Control, now_ms: int) -> list[pb.PhaseStatus]:
    tasks = Counter(_view(control, run, now_ms).phase for run in control.runs)
    admission = control.phases.admission
    limiters = {Phase.BUILDER: admission.builder, Phase.CALLS: admission.calls, Phase.PLUGIN: admission.writer}
    return [_phase(phase, tasks[phase], limiters.get(phase)) for phase in _PHASES]


def _phase(phase: Phase, tasks: int, limiter: trio.CapacityLimiter | None) -> pb.PhaseStatus:
    status = pb.PhaseStatus(phase=_PHASES[phase], tasks=tasks)
    if limiter is not None:
        use = limiter.statistics()
        status.admitted, status.waiting, status.limit = use.borrowed_tokens, use.tasks_waiting, int(use.total_tokens)
    return status


def _executor(control: Control, executor: Executor) -> pb.ExecutorStatus:
    status = pb.ExecutorStatus(pid=executor.pid, is_ready=executor.ready, silent_ms=executor.silent_ms())
    if (backlog := control.dispatcher.backlog(executor.id)) is not None:
        status.running_calls, status.waiting_calls = backlog.running, backlog.waiting
        status.backlog_bytes, status.backlog_us = backlog.argument_bytes, backlog.estimated_us
    if (beat := executor.heartbeat) is not None:
        status.rss_bytes, status.loop_lag_us = beat.rss_bytes, beat.loop_lag_us
    return status


def _code(code: CodeView) -> pb.CodeStatus:
    functions = sorted(code.functions or ())
    return pb.CodeStatus(
        epoch=code.epoch, digest=code.digest, function_count=len(functions), functions=functions[:MAX_FUNCTIONS]
    )


def _task(control: Control, run: TaskRun, view: TaskView, now_ms: int) -> pb.TaskStatus:
    assert view.phase is not None, "a task that runs is in a phase"
    assert view.deadline_ms is not None, "a task that runs has a deadline"
    status = pb.TaskStatus(
        task_id=run.task.task_id,
        phase=_PHASES[view.phase],
        is_waiting=run.is_waiting,
        age_ms=now_ms - view.reached_ms,
        deadline_left_ms=max(0, view.deadline_ms - now_ms),
        calls_total=len(run.calls),
    )
    if view.phase is Phase.PLUGIN:
        status.calls_done = status.calls_total
    elif (progress := control.dispatcher.task_progress(run.no)) is not None:
        status.calls_done, status.calls_in_flight = progress.done, progress.in_flight
        status.call_window = progress.window
    return status
