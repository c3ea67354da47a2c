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
    """sbatch's -d: a condition on how another job ends.  `condition`: `afterok`: it succeeded; `afternotok`: it failed;
    `afterany`: it ended; `after`: it has begun; `job`: that job or array element."""

    condition: Literal["afterok", "afternotok", "afterany", "after"]
    job: UnitId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is a lease (InterGrid, 4): its duration is the job's walltime.  `kind`: kind of the lease; all but
    `best-effort` have a time slot; `start_at`: when its time slot begins, UTC seconds; admission fixes it, also for deadline
    and immediate leases; `deadline_at`: when a deadline lease has to be over, UTC seconds."""

    kind: Literal["advance", "deadline", "immediate", "best-effort"]
    start_at: Seconds = 0.0
    deadline_at: Seconds = 0.0

    @property
    def local(self) -> bool:
        """True of a lease that has a time slot of its own, and is never delayed by one that has none."""
        return self.kind != "best-effort"


class JobSubmitted(CustodyFact, frozen=True, kw_only=True, tag="job.submitted"):
    """A job, or an array of jobs, whose units are then `<job>_<index>`.  `name`: name of the job, for people; `array`:
    indices of an array's elements; empty: no array; `after`: jobs that it waits for; `held`: it does not start until it is
    released."""

    job: JobId
    dept: DepartmentName
    user: str
    name: str
    payload: str  # object-store key of script, arguments, environment, input files
    nodes: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1
    cores: Count = 1  # cores on each host
    memory_mb: Count = 256  # memory on each host, in MiB
    gpus: Count = 0  # GPUs on each host
    exclusive: bool = False
    tasks: int = 1
    cpus_per_task: int = 1
    walltime_s: Seconds
    priority: int = 0
    retries: int = 0  # attempts that may fail with an exit code before the job is final
    on_reclaim: OnReclaim | None = None  # null: the department's
    array: tuple[Index, ...] = ()
    throttle: int = 0  # array elements that may run at once; 0: no limit
    after: tuple[Dependency, ...] = ()
    held: bool = False
    request: str = ""  # id that the client chose: repeating the request adds no job
    service: str = ""
    best_effort: bool = False  # it runs on what production leaves, and makes way for it
    short: bool = False  # it counts as short, whatever its time limit
    lease: Lease | None = None  # of a job that is a lease; a best-effort lease has `best_effort` as well
    quality: str = ""
    constraint: str = ""  # labels that its hosts must have (`domain.constraints`); empty: any host
    on_term: OnTerm | None = None  # null: the department's
    grace_s: Seconds | None = None  # time from SIGTERM to SIGKILL, in seconds; null: the department's


class JobHeld(CustodyFact, frozen=True, kw_only=True, tag="job.held"):
    """A job does not start until it is released.  `user`: who holds it; empty: its scheduler asked for it (`attempt.closed`);
    `reason`: why, if its scheduler asked for it."""

    job: UnitId
    user: str
    reason: Reason | None = None


class JobResumed(CustodyFact, frozen=True, kw_only=True, tag="job.resumed"):
    """A hold was lifted (`phoenix release`)."""

    job: UnitId
    user: str


class JobCancelled(CustodyFact, frozen=True, kw_only=True, tag="job.cancelled"):
    """A job is cancelled.  `user`: who cancelled it; empty: a lease whose time has passed."""

    job: UnitId
    user: str


class _ArrayFact(CustodyFact, frozen=True, kw_only=True):
    """A person's request about elements of an array.  `elements`: indices and ranges of them, such as `1-100:2,107`."""

    job: JobId
    dept: DepartmentName
    elements: Elements
    user: str


class ArrayHeld(_ArrayFact, frozen=True, kw_only=True, tag="array.held"):
    """`job.held` for several elements of an array."""


class ArrayResumed(_ArrayFact, frozen=True, kw_only=True, tag="array.resumed"):
    """`job.resumed` for several elements of an array."""


class ArrayCancelled(_ArrayFact, frozen=True, kw_only=True, tag="array.cancelled"):
    """`job.cancelled` for several elements of an array."""


Held: TypeAlias = JobHeld | ArrayHeld
Resumed: TypeAlias = JobResumed | ArrayResumed
Cancelled: TypeAlias = JobCancelled | ArrayCancelled
OfArray: TypeAlias = ArrayHeld | ArrayResumed | ArrayCancelled
OfJobs: TypeAlias = Held | Resumed | Cancelled


class LeaseExtended(PlainFact, frozen=True, kw_only=True, tag="lease.extended"):
    """A lease lasts longer, also if it runs.  `walltime_s`: how long it lasts in all, in seconds."""

    job: JobId
    walltime_s: Seconds
    reason: Reason | None = None
    user: str = ""
    request: str = ""
