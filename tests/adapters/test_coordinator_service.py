from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve

from blockx.coordinator.core import CoordinatorCore
from blockx.coordinator.events import BeatSeen, CoordinatorSettings, WorkerBeat, WorkerLeft, WorkersListed
from blockx.coordinator.service import Reserver, coordinator_service
from blockx.driver import now_ms
from blockx.errors import DeadlineExceeded, InvalidArgument, NoSlot, Unavailable
from blockx.model import TaskId, TaskResult, TaskState
from blockx.proto import coordinator_pb2
from blockx.rpc import Channel
from blockx.rpc.pool import ChannelPool
from tests.adapters.fake_worker import FakeWorker
from tests.adapters.network import Host, Network
from tests.cancelling import cancel_at_every_checkpoint

RESERVE = coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"].methods_by_name["ReserveWorkerSlot"]


def beat(worker_id: str, seq: int = 1) -> WorkerBeat:
    return WorkerBeat(worker_id=worker_id, addr=f"{worker_id}:1", instance="i", seq=seq, slots=4)


@define(eq=False)
class Cluster:
    """A coordinator at c:1 over fake workers a and b."""

    channel: Channel
    core: CoordinatorCore
    reserver: Reserver
    workers: dict[str, FakeWorker]
    hosts: dict[str, Host]

    async def reserve(self, task_id: str, timeout: float | None = None) -> Any:
        request = coordinator_pb2.ReserveWorkerSlotRequest(task_id=task_id)
        return await self.channel.unary(RESERVE, request, timeout=timeout)

    async def home(self, task_id: str) -> str:
        """The worker that is asked first."""
        answer = await self.reserve(task_id)
        assert isinstance(answer, coordinator_pb2.ReserveWorkerSlotResponse)
        del self.workers[answer.worker_id].leases[TaskId(task_id)]
        return answer.worker_id

    def free(self) -> dict[str, int]:
        return {worker.worker_id: worker.free for worker in self.core.status(now_ms()).workers}


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> AsyncIterator[Cluster]:
    network = Network(nursery)
    core = CoordinatorCore(CoordinatorSettings())
    reserver = Reserver(core, ChannelPool(nursery, network.channel))
    workers = {name: FakeWorker(f"{name}:1") for name in ("a", "b")}
    hosts = {name: network.serve(worker.addr, worker.service()) for name, worker in workers.items()}
    network.serve("c:1", coordinator_service(reserver))
    reserver.driver.feed(WorkersListed((beat("a"), beat("b"))))
    channel = network.channel("c:1")
    nursery.start_soon(channel.run)
    yield Cluster(channel, core, reserver, workers, hosts)
    nursery.cancel_scope.cancel()


async def test_a_slot_is_reserved_at_a_worker(cluster: Cluster) -> None:
    answer = await cluster.reserve("t")
    worker = cluster.workers[answer.worker_id]
    assert answer.worker_addr == worker.addr
    assert answer.slot_id == worker.leases[TaskId("t")]
    assert answer.state == coordinator_pb2.ReserveWorkerSlotResponse(state="ALLOCATED").state
    assert answer.lease_remaining_ms == 5_000


async def test_a_reserve_of_a_task_that_ended_tells_where(cluster: Cluster) -> None:
    home = await cluster.home("t")
    cluster.workers[home].tasks[TaskId("t")] = TaskResult(state=TaskState.SUCCEEDED)
    answer = await cluster.reserve("t")
    assert (answer.worker_id, answer.slot_id) == (home, "")
    assert answer.state == coordinator_pb2.ReserveWorkerSlotResponse(state="SUCCEEDED").state


async def test_a_bad_task_id_is_an_invalid_argument(cluster: Cluster) -> None:
    with pytest.raises(InvalidArgument, match="task_id"):
        await cluster.reserve("")


async def test_a_full_worker_leads_to_the_other(cluster: Cluster) -> None:
    home = await cluster.home("t")
    cluster.workers[home].refusals["RequestTaskSlot"] = [NoSlot("full")]
    answer = await cluster.reserve("t")
    assert answer.worker_id != home


async def test_a_full_cluster_is_no_slot_with_the_soonest_hint(cluster: Cluster) -> None:
    for hint_ms, worker in enumerate(cluster.workers.values(), start=40):
        worker.refusals["RequestTaskSlot"] = [NoSlot("every slot is taken", retry_after_ms=hint_ms)]
    with pytest.raises(NoSlot, match="a: every slot is taken") as refusal:
        await cluster.reserve("t")
    assert refusal.value.retry_after_ms == 40


async def test_a_worker_that_is_not_ready_leads_to_the_other(cluster: Cluster) -> None:
    home = await cluster.home("t")
    cluster.workers[home].refusals["RequestTaskSlot"] = [Unavailable("draining", retry_after_ms=7)]
    answer = await cluster.reserve("t")
    assert answer.worker_id != home


async def test_a_worker_that_takes_offence_leads_to_the_other(cluster: Cluster) -> None:
    home = await cluster.home("t")
    cluster.workers[home].refusals["RequestTaskSlot"] = [InvalidArgument("ttl_ms is above the limit")]
    answer = await cluster.reserve("t")
    assert answer.worker_id != home


async def test_a_worker_that_cannot_be_reached_leads_to_the_other(cluster: Cluster) -> None:
    cluster.hosts["a"].crash()
    assert {(await cluster.reserve(f"t{number}")).worker_id for number in range(4)} == {"b"}


async def test_a_lost_answer_is_asked_for_again_and_gets_the_same_slot(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    home = await cluster.home("t")
    cluster.workers[home].mutes["RequestTaskSlot"] = 2
    answer = await cluster.reserve("t")
    assert answer.worker_id == home
    assert list(cluster.workers[home].leases) == ["t"]


async def test_a_worker_that_never_answers_is_given_up_after_three_questions(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    home = await cluster.home("t")
    cluster.workers[home].mutes["RequestTaskSlot"] = 99
    answer = await cluster.reserve("t")
    assert answer.worker_id != home
    assert cluster.workers[home].mutes["RequestTaskSlot"] == 96


async def test_a_connection_lost_in_mid_question_is_uncertain_and_asked_again(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    home = await cluster.home("t")
    cluster.workers[home].mutes["RequestTaskSlot"] = 1
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await cluster.reserve("t"))

    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        with trio.move_on_after(0.1):
            await trio.sleep_forever()
        cluster.hosts[home].cut()
    assert answers[0].worker_id == home


async def test_the_caller_s_deadline_bounds_a_reserve_and_leaves_nothing_under_way(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    for worker in cluster.workers.values():
        worker.mutes["RequestTaskSlot"] = 99
    with pytest.raises((DeadlineExceeded, Unavailable)):
        await cluster.reserve("t", timeout=0.2)
    await trio.testing.wait_all_tasks_blocked()
    assert sum(cluster.free().values()) == 7  # the slot that may have been leased counts
    for name in cluster.workers:
        cluster.reserver.driver.feed(BeatSeen(beat(name, 2)))
    assert sum(cluster.free().values()) == 8


async def test_a_reserve_that_is_cancelled_at_any_point_leaves_nothing_under_way(cluster: Cluster) -> None:
    def check(step: int) -> None:
        for name in cluster.workers:
            cluster.reserver.driver.feed(BeatSeen(beat(name, 1 + step)))
        assert sum(cluster.free().values()) == 8

    async def work(step: int) -> None:
        cluster.workers["a"].refusals["RequestTaskSlot"] = [NoSlot("full")]
        cluster.workers["b"].refusals["RequestTaskSlot"] = []
        await cluster.reserver.reserve(TaskId(f"t{step}"))

    assert await cancel_at_every_checkpoint(work, check) > 2


async def test_a_reserve_ends_by_itself_at_its_deadline(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    for worker in cluster.workers.values():
        worker.mutes["RequestTaskSlot"] = 99
    with pytest.raises(Unavailable, match=r"no answer from .:1 within \d+ ms"):
        await cluster.reserver.reserve(TaskId("t"), trio.current_time() + 0.2)


async def test_after_three_failed_reserves_a_worker_is_left_alone(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    home = await cluster.home("t")
    other = next(name for name in cluster.workers if name != home)
    cluster.workers[home].mutes["RequestTaskSlot"] = 99
    for number in range(3):
        assert (await cluster.reserve("t")).worker_id == other
        cluster.workers[other].leases.clear()
        cluster.reserver.driver.feed(BeatSeen(beat(home, 2 + number)))
        cluster.reserver.driver.feed(BeatSeen(beat(other, 2 + number)))
    assert cluster.workers[home].mutes["RequestTaskSlot"] == 90
    assert (await cluster.reserve("t")).worker_id == other
    assert cluster.workers[home].mutes["RequestTaskSlot"] == 90


async def test_one_connection_a_worker_is_kept(cluster: Cluster) -> None:
    home = await cluster.home("t")
    for _ in range(5):
        await cluster.reserve("t")
    assert cluster.hosts[home].connected == 1


async def test_the_connection_is_dropped_when_the_worker_leaves(cluster: Cluster) -> None:
    home = await cluster.home("t")
    cluster.reserver.driver.feed(WorkerLeft(home))
    cluster.reserver.driver.feed(BeatSeen(evolve(beat(home), instance="j")))
    await cluster.reserve("t")
    assert cluster.hosts[home].connected == 2


async def test_without_workers_a_reserve_is_unavailable(cluster: Cluster) -> None:
    for name in cluster.workers:
        cluster.reserver.driver.feed(WorkerLeft(name))
    with pytest.raises(Unavailable, match="no worker is registered") as refusal:
        await cluster.reserve("t")
    assert refusal.value.retry_after_ms == 1_000
