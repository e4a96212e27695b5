"""What CoordinatorCore hears (events, past tense), what it asks for (commands, imperative), and its settings.

Times are integer monotonic milliseconds of the coordinator's own clock.
"""

from __future__ import annotations

import enum
from typing import NewType

from attrs import field, frozen
from attrs.validators import ge, gt

from blockx.model import Reservation, TaskId

ReserveId = NewType("ReserveId", int)
"""Numbers the reserves of one coordinator process; chosen by the caller of the core, never used twice."""


@frozen(kw_only=True)
class CoordinatorSettings:
    """What CoordinatorCore obeys."""

    slot_ttl_ms: int = field(default=5_000, validator=gt(0), metadata={"env": "COORDINATOR_SLOT_TTL_MS"})
    """Lease asked of a worker; a whole reserve takes at most half of it."""
    rpc_timeout_ms: int = field(default=500, validator=gt(0), metadata={"env": "COORDINATOR_RPC_TIMEOUT_MS"})
    """How long one question to a worker may take."""
    max_candidates: int = field(default=5, validator=gt(0), metadata={"env": "COORDINATOR_MAX_CANDIDATES"})
    """Workers asked for one reserve, at most."""
    uncertain_retries: int = field(default=2, validator=ge(0), metadata={"env": "COORDINATOR_UNCERTAIN_RETRIES"})
    """How often the same worker is asked again when it is unknown whether it leased a slot."""
    heartbeat_timeout_ms: int = field(
        default=10_000, validator=gt(0), metadata={"env": "COORDINATOR_HEARTBEAT_TIMEOUT_MS"}
    )
    """A worker not heard of for this long is not routed to."""
    registry_stale_ms: int = field(default=300_000, validator=ge(0))
    """How long the ages of heartbeats stand still while the registry is out of reach."""
    registry_lease_ttl_ms: int = field(default=15_000, validator=ge(0))
    """How long a worker that a re-list no longer shows stays routable, unconfirmed."""


# --------------------------------------------------------------------------------------------------------------------
# Events: the view


class WorkerState(enum.Enum):
    """What a worker says of itself in its heartbeat."""

    STARTING = "STARTING"
    READY = "READY"
    DRAINING = "DRAINING"


@frozen(kw_only=True)
class WorkerBeat:
    """What is kept of a heartbeat. `used` counts leased and running slots together.

    Routing looks at all but `executors`, `code_epoch` and `version`, which are for people.
    """

    worker_id: str
    addr: str
    instance: str
    seq: int
    state: WorkerState = WorkerState.READY
    slots: int
    used: int = 0
    accepting: bool = True
    dispatch_age_ms: int = 0
    executors: int = 0
    code_epoch: int = 0
    version: str = ""


@frozen
class WorkersListed:
    """The whole registry as it is now; after a loss it also says that the registry is back."""

    beats: tuple[WorkerBeat, ...]


@frozen
class BeatSeen:
    beat: WorkerBeat


@frozen
class WorkerLeft:
    """Its registration was deleted: gone at once."""

    worker_id: str


@frozen
class RegistryLost:
    """The registry is out of reach; nothing will be heard of workers until the next WorkersListed."""


@frozen
class Tick:
    """The time that next_deadline_ms() named has come."""


# --------------------------------------------------------------------------------------------------------------------
# Events: one reserve. AskWorker is answered with exactly one of WorkerGranted, WorkerRejected, WorkerUnreached,
# WorkerUncertain, or with ReserveAbandoned.


@frozen
class ReserveRequested:
    """ReserveWorkerSlot. `deadline_ms` is the caller's own. Refusal raised by handle(): InvalidArgument."""

    reserve_id: ReserveId
    task_id: TaskId
    deadline_ms: int | None = None


@frozen
class WorkerGranted:
    """The worker leased a slot, or told where the task already is."""

    reserve_id: ReserveId
    reservation: Reservation


@frozen
class WorkerRejected:
    """The worker answered no. `is_full` means no free slot, else it is not ready, draining, or took offence."""

    reserve_id: ReserveId
    reason: str
    is_full: bool
    retry_after_ms: int | None = None


@frozen
class WorkerUnreached:
    """The question never left: nobody listens there."""

    reserve_id: ReserveId
    reason: str


@frozen
class WorkerUncertain:
    """The question left, no answer came: timed out or connection lost. The worker may have leased a slot."""

    reserve_id: ReserveId
    reason: str


@frozen
class ReserveAbandoned:
    """The caller has gone; whatever was asked is not waited for."""

    reserve_id: ReserveId


Event = (
    WorkersListed
    | BeatSeen
    | WorkerLeft
    | RegistryLost
    | Tick
    | ReserveRequested
    | WorkerGranted
    | WorkerRejected
    | WorkerUnreached
    | WorkerUncertain
    | ReserveAbandoned
)


# --------------------------------------------------------------------------------------------------------------------
# Commands. A reserve gets exactly one of AskWorker, FinishReserve and RefuseReserve for each of its events, but for
# ReserveAbandoned, which gets none.


@frozen(kw_only=True)
class AskWorker:
    """RequestTaskSlot at this worker."""

    reserve_id: ReserveId
    worker_id: str
    addr: str
    task_id: TaskId
    ttl_ms: int
    timeout_ms: int


@frozen
class FinishReserve:
    reserve_id: ReserveId
    worker_id: str
    reservation: Reservation


@frozen
class RefuseReserve:
    """Raise NoSlot to the caller if all candidates were full, else Unavailable."""

    reserve_id: ReserveId
    is_full: bool
    message: str
    retry_after_ms: int


@frozen
class DropConnection:
    """No worker of the view has this address any more."""

    addr: str


Command = AskWorker | FinishReserve | RefuseReserve | DropConnection


# --------------------------------------------------------------------------------------------------------------------
# Queries


@frozen(kw_only=True)
class WorkerStatus:
    """One worker as a coordinator sees it. `why_not` says why it is not routed to (empty: it is)."""

    worker_id: str
    addr: str
    state: WorkerState
    slots: int
    free: int
    beat_age_ms: int
    is_confirmed: bool
    why_not: str
    dispatch_age_ms: int
    executors: int
    code_epoch: int
    version: str


@frozen
class CoordinatorStatus:
    """`is_registry_lost`: the registry is out of reach, heartbeat ages stand still."""

    is_registry_lost: bool
    workers: tuple[WorkerStatus, ...]
