"""Facts of jobs, said by admission: that they are submitted, held, let go, cancelled (`schemas.facts` has the rules).

What a person says of elements of an array is one fact, however many they are: it is worth what one fact for each of them would
be worth at its place, in the order of their indices.  Those that are final, that the array has not, or that are so already are
passed over.  Journals under older custody rules have one fact for each element."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from schemas.config import OnReclaim, OnTerm
from schemas.facts_base import Count, CustodyFact, DepartmentName, Elements, Index, JobId, PlainFact, Seconds, UnitId
from schemas.reasons import Reason


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """sbatch's -d: `condition` on how `job` ends."""

    condition: Literal["afterok", "afternotok", "afterany", "after"]
    job: UnitId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is a lease (InterGrid, 4): its duration is the job's walltime.  `start_at`: when a local lease (all but
    best-effort) begins; admission fixes it, also for deadline and immediate ones.  `deadline_at`: by when a deadline lease
    has to be over."""

    kind: Literal["advance", "deadline", "immediate", "best-effort"]
    start_at: Seconds = 0.0
    deadline_at: Seconds = 0.0

    @property
    def local(self) -> bool:
        """True of a lease that has a time slot of its own, and is never delayed by one that has none."""
        return self.kind != "best-effort"


class JobSubmitted(CustodyFact, frozen=True, kw_only=True, tag="job.submitted"):
    """A job, or an array of jobs (`array` lists the indices; the units are then ``<job>_<index>``)."""

    job: JobId
    dept: DepartmentName
    user: str
    name: str
    payload: str  # object-store key of script, arguments, environment, input files
    nodes: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1
    cores: Count = 1  # on each node
    memory_mb: Count = 256  # on each node
    gpus: Count = 0  # on each node
    exclusive: bool = False
    tasks: int = 1
    cpus_per_task: int = 1
    walltime_s: Seconds
    priority: int = 0
    retries: int = 0  # attempts that may fail with an exit code before the job is final
    on_reclaim: OnReclaim | None = None  # None: the department's
    array: tuple[Index, ...] = ()
    throttle: int = 0  # array elements that may run at once; 0: no limit
    after: tuple[Dependency, ...] = ()
    held: bool = False
    request: str = ""  # client request id, for idempotency
    service: str = ""  # of the department's services, the one that the job belongs to
    best_effort: bool = False  # runs only on what production leaves, and makes way for it
    short: bool = False  # declared short, whatever its walltime
    lease: Lease | None = None  # it is one; a best-effort lease has `best_effort` as well
    quality: str = ""  # its quality of service, of those of the department
    constraint: str = ""  # hosts with these labels (`domain.constraints`); empty: any
    on_term: OnTerm | None = None  # None: the department's
    grace_s: Seconds | None = None  # SIGTERM to SIGKILL; None: the department's


class JobHeld(CustodyFact, frozen=True, kw_only=True, tag="job.held"):
    """By a user; or, with `user` empty, for `reason`: its scheduler asked for it (`attempt.closed`)."""

    job: UnitId
    user: str
    reason: Reason | None = None


class JobResumed(CustodyFact, frozen=True, kw_only=True, tag="job.resumed"):
    """A hold was lifted (`phoenix release`)."""

    job: UnitId
    user: str


class JobCancelled(CustodyFact, frozen=True, kw_only=True, tag="job.cancelled"):
    job: UnitId
    user: str


class _ArrayFact(CustodyFact, frozen=True, kw_only=True):
    """Of these elements of the array `job`, by a person."""

    job: JobId
    dept: DepartmentName
    elements: Elements
    user: str


class ArrayHeld(_ArrayFact, frozen=True, kw_only=True, tag="array.held"):
    """`job.held` of these elements of the array `job`, by a person."""


class ArrayResumed(_ArrayFact, frozen=True, kw_only=True, tag="array.resumed"):
    """`job.resumed` of these elements."""


class ArrayCancelled(_ArrayFact, frozen=True, kw_only=True, tag="array.cancelled"):
    """`job.cancelled` of these elements."""


Held: TypeAlias = JobHeld | ArrayHeld
Resumed: TypeAlias = JobResumed | ArrayResumed
Cancelled: TypeAlias = JobCancelled | ArrayCancelled
OfArray: TypeAlias = ArrayHeld | ArrayResumed | ArrayCancelled
OfJobs: TypeAlias = Held | Resumed | Cancelled


class LeaseExtended(PlainFact, frozen=True, kw_only=True, tag="lease.extended"):
    """The lease lasts `walltime_s` in all, also if it runs."""

    job: JobId
    walltime_s: Seconds
    reason: Reason | None = None
    user: str = ""
    request: str = ""
