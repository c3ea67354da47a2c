"""What the batch core remembers of its department's jobs, beside custody.  All of it is in `dump`.

Rules
  1. A job is remembered while one of its units is not final; of ended ones the newest `ENDED_MAX`, for dependencies.
  2. The order of every dict is the order of the journal, so equal histories give equal bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.causes import Cause
from schemas.config import OnReclaim
from schemas.ids import element_id
from schemas.reasons import Reason
from schemas.size import Size, size_of
from services.scheduler.core.state.shape import PLAIN, Kind, Shape
from services.scheduler.core.state.usage import Usage

ENDED_MAX: Final = 20_000  # as many as admission accepts dependencies on (its FINISHED_MAX)
WHOLE: Final = -1  # in `State.ended`, instead of an index: the job without array


class Job(msgspec.Struct, kw_only=True):
    nodes: int
    size: Size
    exclusive: bool
    walltime_s: float
    priority: int
    on_reclaim: OnReclaim | None
    array: tuple[int, ...]
    throttle: int
    after: tuple[f.Dependency, ...]  # emptied once met
    entered: int  # order of entry; element i of an array: entered + i
    left: int  # units that are not final
    begun: dict[str, None] = {}  # units not final of which an attempt ever began
    bad: dict[str, None] = {}  # units that ended other than completed
    service: str = ""
    best_effort: bool = False
    lease: f.Lease | None = None
    short: bool = False  # declared so
    overran: bool = False  # … and one of its attempts has run longer than is short
    user: str = ""
    since: float = 0.0  # it has been waiting, and could have started if there was room
    quality: str = ""
    constraint: str = ""  # hosts with these labels

    @property
    def shape(self) -> Shape:
        return Shape(self.nodes, self.size, self.exclusive, self.constraint)

    @property
    def is_local(self) -> bool:
        """True of a lease that has a time slot of its own."""
        return self.lease is not None and self.lease.local

    @property
    def kind(self) -> Kind:
        if not (self.service or self.best_effort or self.short or self.lease):
            return PLAIN
        return Kind(self.service, self.best_effort, self.short and not self.overran, self.is_local)

    def units(self, job: str) -> list[str]:
        return [element_id(job, i) for i in self.array] or [job]


class Again(msgspec.Struct, kw_only=True):
    """A unit that is not in its first attempt any more.  `requeues`: attempts lost to reclaims and lost hosts; `faults`: to VMs
    that ended without a report.  `suspends`: attempts that were suspended or moved; `used_s`: run time of those of them that
    are continued; `ran_s`: run time of the life that is over.  `shuns`: hosts of its last attempt, if that was a fault.
    `launches`: attempts in a row that ended before they began, `failed_on` their hosts -> another unit's attempt has begun
    there since; `not_before`: when the next may start (`launches`)."""

    entered: int
    requeues: int = 0
    faults: int = 0
    suspends: int = 0
    used_s: float = 0.0
    ran_s: float = 0.0
    origin: tuple[str, ...] = ()  # where it was suspended last
    shuns: tuple[str, ...] = ()
    why: Reason | None = None  # of the last attempt that this department closed
    cause: Cause | None = None  # its
    moved: int = 0  # attempts that moved to hosts with more room
    preempted: int = 0  # attempts whose hosts were wanted for something else, suspended ones too
    launches: int = 0
    failed_on: dict[str, bool] = {}
    not_before: float = 0.0


class Checkpoint(msgspec.Struct, kw_only=True):
    """A unit's last one (`checkpoints`).  `saved_s`: run time that its next life need not do again; `base_s`: how much of that
    was there when its present life began."""

    attempt: int
    at: float
    saved_s: float
    base_s: float = 0.0
    percent: float | None = None


class Refused(msgspec.Struct, kw_only=True):
    """Why OpenNebula allocated no VM for this attempt of a unit, as reported by the executor; without `failure`: why a VM of it
    ended."""

    attempt: int
    failure: str
    why: str


class Paused(msgspec.Struct, kw_only=True):
    """Starts are paused in the whole cloud, as reported by the executor."""

    since: float
    why: str


class State(msgspec.Struct, kw_only=True):
    jobs: dict[str, Job] = {}
    again: dict[str, Again] = {}
    checkpoints: dict[str, Checkpoint] = {}  # unit -> its last one
    ended: dict[str, list[int]] = {}  # ended job -> indices of units that did not complete; oldest first
    entries: int = 0  # the next order of entry
    turn: str = ""  # the service of which production was placed last
    turn_best_effort: str = ""  # … and of which best-effort was
    made_way: list[float] = []  # when attempts ended for other jobs, of the last hour (`preemption`)
    refused: dict[str, Refused] = {}  # unit that is not final, and has not begun since -> OpenNebula's last message
    paused: Paused | None = None
    warm: dict[str, str] = {}  # completed unit of one node whose VM is open -> its user, while machines are kept warm
    used: dict[str, float] = {}  # host -> share of its cores in use, as last reported by the executor (`rebalance`)
    prefer: tuple[str, ...] = ()  # constraints that the demand in the journal names
    sizes: tuple[dict[str, int], ...] = ()  # … and the sizes that it names
    usage: Usage = msgspec.field(default_factory=Usage)


def job_from(fact: f.JobSubmitted, entered: int) -> Job:
    return Job(
        nodes=fact.nodes,
        size=size_of(fact),
        exclusive=fact.exclusive,
        walltime_s=fact.walltime_s,
        priority=fact.priority,
        on_reclaim=fact.on_reclaim,
        array=fact.array,
        throttle=fact.throttle if fact.array else 0,
        after=fact.after,
        entered=entered,
        left=len(fact.array) or 1,
        service=fact.service,
        best_effort=fact.best_effort,
        short=fact.short,
        lease=fact.lease,
        user=fact.user,
        quality=fact.quality,
        constraint=fact.constraint,
    )
