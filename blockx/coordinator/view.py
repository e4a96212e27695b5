"""Follows the registry and tells the core what it shows; out of reach is something to tell, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import structlog
import trio

from blockx.coordinator.events import (
    BeatSeen,
    Event,
    RegistryLost,
    WorkerBeat,
    WorkerLeft,
    WorkersListed,
    WorkerState,
)
from blockx.errors import Unavailable
from blockx.registry.port import Beat, Registry, RegistryEvent, ViewReset, WorkerGone, WorkerSeen

log = structlog.get_logger("blockx.coordinator.view")

RETRY_S = 0.5
"""Pause before a lost registry is tried again."""


async def follow(
    registry: Registry, feed: Callable[[Event], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Feed the core until cancelled; started once the first view, or the registry's absence, is known."""
    is_started = False

    def tell(event: Event) -> None:
        nonlocal is_started
        feed(event)
        if not is_started:
            is_started = True
            task_status.started()

    while True:
        try:
            async with registry.watch() as events:
                async for event in events:
                    tell(core_event(event))
            reason = "the watch ended"
        except Unavailable as error:
            reason = str(error)
        log.warning("registry lost", reason=reason, retry_s=RETRY_S)
        tell(RegistryLost())
        await trio.sleep(RETRY_S)


def core_event(event: RegistryEvent) -> Event:
    match event:
        case ViewReset(beats):
            return WorkersListed(tuple(map(_worker_beat, beats)))
        case WorkerSeen(beat):
            return BeatSeen(_worker_beat(beat))
        case WorkerGone(worker_id):
            return WorkerLeft(worker_id)
        case _:
            assert_never(event)


def _worker_beat(beat: Beat) -> WorkerBeat:
    """A state unknown here, of a newer worker, counts as STARTING: nothing is routed on a guess."""
    is_known = beat.state in WorkerState.__members__
    return WorkerBeat(
        worker_id=beat.worker_id,
        addr=beat.addr,
        instance=beat.instance,
        seq=beat.seq,
        state=WorkerState[beat.state] if is_known else WorkerState.STARTING,
        slots=beat.slots,
        used=beat.reserved_slots + beat.running_tasks,
        accepting=beat.accepting,
        dispatch_age_ms=beat.dispatch_age_ms,
        executors=beat.executors,
        code_epoch=beat.code_epoch,
        version=beat.version,
    )
