from __future__ import annotations

import trio
import trio.testing
from attrs import define, field

from blockx.model import TaskId, TaskState, TaskUpdate
from blockx.worker.watches import Subscription, Watches

A, B = TaskId("a"), TaskId("b")


@define
class Heard:
    attached: list[TaskId] = field(factory=list)
    detached: list[TaskId] = field(factory=list)

    def watches(self) -> Watches:
        return Watches(self.attached.append, self.detached.append)


def ended(task_id: TaskId) -> TaskUpdate:
    return TaskUpdate(task_id=task_id, state=TaskState.SUCCEEDED, is_terminal=True)


async def test_every_stream_that_waits_gets_the_terminal_update_once() -> None:
    heard = Heard()
    watches, first, second = heard.watches(), Subscription(), Subscription()
    watches.attach(first, A)
    watches.attach(second, A)
    watches.notify(ended(A))
    watches.notify(ended(A))
    for stream in (first, second):
        assert await stream.next() == ended(A)
        assert await stream.next() is None
    assert heard.attached == [A, A]


async def test_a_stream_that_waits_for_nothing_ends_at_once() -> None:
    assert await Subscription().next() is None


async def test_an_update_wakes_a_waiting_stream() -> None:
    watches, stream = Heard().watches(), Subscription()
    watches.attach(stream, A)
    got: list[TaskUpdate | None] = []

    async def read() -> None:
        got.append(await stream.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        watches.notify(ended(A))
    assert got == [ended(A)]


async def test_a_stream_that_goes_away_is_detached_only_from_what_still_ran() -> None:
    heard = Heard()
    watches, stream = heard.watches(), Subscription()
    watches.attach(stream, A)
    watches.attach(stream, B)
    watches.notify(ended(A))
    watches.detach_all(stream)
    watches.detach_all(stream)
    assert heard.detached == [B]
    watches.notify(ended(B))
    assert await stream.next() == ended(A)
    assert await stream.next() is None
