"""A worker that keeps its tasks in memory and runs nothing: tests end them by hand, or by `script`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import define, field

from blockx import api
from blockx.errors import InvalidSlot, NotFound, RequestError
from blockx.model import Reservation, SlotId, Submission, TaskId, TaskInput, TaskResult, TaskState, TaskUpdate
from blockx.proto import worker_pb2 as pb
from blockx.rpc import ServerCall, Service

Send = Callable[[Any], Awaitable[None]]


@define(eq=False)
class FakeWorker:
    """`script` says how an accepted task ends at once (None: it runs until end()).

    `refusals` and `mutes` hold, per method, what its next calls meet: an error to raise before, or (mute) after the
    request took effect no answer, ever. A watch takes up its tasks one by one, `snapshot_s` seconds each.
    """

    addr: str
    script: Callable[[TaskInput], TaskResult | None] = lambda task: TaskResult(state=TaskState.SUCCEEDED)
    refusals: dict[str, list[RequestError]] = field(factory=dict)
    mutes: dict[str, int] = field(factory=dict)
    leases: dict[TaskId, SlotId] = field(factory=dict)
    tasks: dict[TaskId, TaskResult | None] = field(factory=dict)
    submissions: list[TaskInput] = field(factory=list)
    slot_ids: list[str] = field(factory=list)
    executions: list[TaskId] = field(factory=list)
    snapshot_s: float = 0
    watches: list[list[str]] = field(factory=list)
    open_watches: list[list[str]] = field(factory=list)
    most_open_watches: int = 0
    unwatched: list[str] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)

    def service(self) -> Service:
        return Service(
            pb.DESCRIPTOR.services_by_name["WorkerService"],
            {
                "RequestTaskSlot": self._request_task_slot,
                "SubmitTask": self._submit_task,
                "GetTaskResult": self._get_task_result,
                "WatchTasks": self._watch_tasks,
                "ReadTaskResult": self._read_task_result,
            },
        )

    def end(self, task_id: str, result: TaskResult | None = None) -> None:
        self.tasks[TaskId(task_id)] = result or TaskResult(state=TaskState.SUCCEEDED)
        self._tell()

    def lease(self, task_id: TaskId) -> SlotId:
        self.leases[task_id] = SlotId(f"slot-{len(self.leases)}")
        return self.leases[task_id]

    def state_of_known(self, task_id: TaskId) -> TaskState | None:
        """Of a task that was accepted here; None for any other."""
        return self._state(task_id) if task_id in self.tasks else None

    def forget(self) -> None:
        """As a restart does."""
        self.tasks.clear()
        self.leases.clear()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def _meet(self, method: str) -> None:
        if self.refusals.get(method):
            raise self.refusals[method].pop(0)

    async def _answer(self, method: str) -> None:
        if self.mutes.get(method, 0) > 0:
            self.mutes[method] -= 1
            await trio.sleep_forever()

    def _state(self, task_id: TaskId) -> TaskState | None:
        if task_id in self.tasks:
            result = self.tasks[task_id]
            return TaskState.RUNNING if result is None else result.state
        return TaskState.ALLOCATED if task_id in self.leases else None

    async def _request_task_slot(self, request: pb.RequestTaskSlotRequest, call: ServerCall) -> Any:
        await self._meet("RequestTaskSlot")
        task_id = TaskId(request.task_id)
        if self._state(task_id) is None:
            self.lease(task_id)
        await self._answer("RequestTaskSlot")
        state = self._state(task_id)
        assert state is not None
        return api.slot_to_pb(Reservation(self.addr, self.leases.get(task_id), state, request.ttl_ms))

    async def _submit_task(self, request: pb.SubmitTaskRequest, call: ServerCall) -> Any:
        await self._meet("SubmitTask")
        task = api.task_input_from_pb(request.task)
        self.submissions.append(task)
        self.slot_ids.append(request.slot_id)
        was_known = task.task_id in self.tasks
        if not was_known:
            if request.slot_id and self.leases.get(task.task_id) != request.slot_id:
                raise InvalidSlot(f"slot {request.slot_id!r} is not leased to task {task.task_id!r}")
            self.leases.pop(task.task_id, None)
            self.executions.append(task.task_id)
            self.tasks[task.task_id] = self.script(task)
            self._tell()
        await self._answer("SubmitTask")
        state = self._state(task.task_id) if was_known else TaskState.RUNNING
        assert state is not None
        return api.submission_to_pb(Submission(self.addr, state))

    async def _get_task_result(self, request: pb.GetTaskResultRequest, call: ServerCall) -> Any:
        await self._meet("GetTaskResult")
        state = self._state(TaskId(request.task_id))
        if state is None:
            raise NotFound(f"task {request.task_id!r} is not known")
        return api.task_status_to_pb(state, self.tasks.get(TaskId(request.task_id)))

    async def _watch_tasks(self, request: pb.WatchTasksRequest, call: ServerCall, send: Send) -> None:
        await self._meet("WatchTasks")
        ids: list[str] = []
        self.watches.append(list(request.task_ids))
        self.open_watches.append(ids)
        self.most_open_watches = max(self.most_open_watches, len(self.open_watches))
        try:
            running = []
            for task_id in map(TaskId, request.task_ids):
                ids.append(task_id)
                snapshot = self._update(task_id)
                if not snapshot.is_terminal:
                    running.append(task_id)
                await send(snapshot)
                await trio.sleep(self.snapshot_s)
            await self._send_ends(running, send)
        finally:
            self.open_watches = [each for each in self.open_watches if each is not ids]
            still = {task_id for others in self.open_watches for task_id in others}
            self.unwatched += [each for each in ids if each not in still and self.tasks.get(TaskId(each), 0) is None]

    async def _send_ends(self, running: list[TaskId], send: Send) -> None:
        while running:
            changed = self.changed
            for task_id in [each for each in running if self._update(each).is_terminal]:
                running.remove(task_id)
                await send(self._update(task_id))
            if running:
                await changed.wait()

    def _update(self, task_id: TaskId) -> pb.TaskUpdate:
        state = self._state(task_id)
        return api.task_update_to_pb(
            TaskUpdate(
                task_id=task_id,
                state=state,
                is_terminal=state is None or state.is_terminal,
                worker_addr=self.addr,
                result=self.tasks.get(task_id),
                error="not_found" if state is None else "",
            )
        )

    async def _read_task_result(self, request: pb.ReadTaskResultRequest, call: ServerCall, send: Send) -> None:
        await self._meet("ReadTaskResult")
        result = self.tasks.get(TaskId(request.task_id))
        if result is None:
            raise NotFound(f"task {request.task_id!r} has no result")
        body = result.plugin_results[request.plugin_index].result
        for start in range(0, len(body), 1_000_000):
            await send(pb.ReadTaskResultChunk(chunk=body[start : start + 1_000_000]))
