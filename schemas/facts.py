"""Facts: what has happened, in the past tense.  The vocabulary of the journal (PROTOCOL.md, the two tables).

Rules
  1. A fact is frozen and self-contained; one fact names one host or one attempt, or elements of one array.
  2. `custody` is true if the custody fold reads the fact.  A reader that does not know a kind stops if it is true (S8).
  3. Fields are only ever added, with a default; a new meaning is a new kind.
  4. Times are UTC seconds since 1970 (float), durations end in `_s`, memory in `_mb` (MiB).
  5. No secret and no user content (scripts, environment) is in a fact: `payload` names an object in the object store.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

from schemas.causes import Basis, Cause
from schemas.config import CloudConfig
from schemas.facts_base import AnyKind, CustodyFact, PlainFact, Seconds
from schemas.facts_base import AttemptNumber as AttemptNumber
from schemas.facts_base import Count as Count
from schemas.facts_base import DepartmentName as DepartmentName
from schemas.facts_base import Disposal as Disposal
from schemas.facts_base import Index as Index
from schemas.facts_base import JobId as JobId
from schemas.facts_base import Rank as Rank
from schemas.facts_base import UnitId as UnitId
from schemas.facts_instances import AUTHORS_MAX as AUTHORS_MAX
from schemas.facts_instances import QUIET_MAX as QUIET_MAX
from schemas.facts_instances import Answers as Answers
from schemas.facts_instances import InstanceDraining as InstanceDraining
from schemas.facts_instances import InstanceReported as InstanceReported
from schemas.facts_instances import LoadObserved as LoadObserved
from schemas.facts_instances import ReleaseChanged as ReleaseChanged
from schemas.facts_instances import ReleaseRequested as ReleaseRequested
from schemas.facts_jobs import ArrayCancelled as ArrayCancelled
from schemas.facts_jobs import ArrayHeld as ArrayHeld
from schemas.facts_jobs import ArrayResumed as ArrayResumed
from schemas.facts_jobs import Cancelled as Cancelled
from schemas.facts_jobs import Dependency as Dependency
from schemas.facts_jobs import Held as Held
from schemas.facts_jobs import JobCancelled as JobCancelled
from schemas.facts_jobs import JobHeld as JobHeld
from schemas.facts_jobs import JobResumed as JobResumed
from schemas.facts_jobs import JobSubmitted as JobSubmitted
from schemas.facts_jobs import Lease as Lease
from schemas.facts_jobs import LeaseExtended as LeaseExtended
from schemas.facts_jobs import OfArray as OfArray
from schemas.facts_jobs import OfJobs as OfJobs
from schemas.facts_jobs import Resumed as Resumed
from schemas.ids import is_instance
from schemas.reasons import Reason
from schemas.releases import IMAGE_MAX

# ---------------------------------------------------------------------------------------------------------- every writer


class LeaderStarted(CustodyFact, frozen=True, kw_only=True, tag="leader.started"):
    """A replica of a service has become its leader.  `instance`: name of its process, so that a supervisor can report that
    process's end (X8)."""

    epoch: Count
    instance: str


class LeaderStopped(CustodyFact, frozen=True, kw_only=True, tag="leader.stopped"):
    """Written after the leader's last call has returned."""

    epoch: Count


# ------------------------------------------------------------------------------------------------------------ provisioner


class ConfigAdopted(CustodyFact, frozen=True, kw_only=True, tag="config.adopted"):
    """The configuration that is valid from here on (S7).  `cloud`: the random id of this cloud; `custody_rules`: number of
    the rules of custody that are valid from here on (S8)."""

    cloud: str
    custody_rules: int
    config: CloudConfig


class QuotaChanged(CustodyFact, frozen=True, kw_only=True, tag="quota.changed"):
    """Level: how many hosts a department may keep.  `hosts`: hosts that the department may keep; fewer than it holds is
    notice.  `by`: when a notice ends, UTC seconds.  `claimants`: the departments that want those hosts, empty if none does
    (the cluster shrinks, a window closes)."""

    dept: DepartmentName
    hosts: Count
    by: Seconds
    claimants: tuple[DepartmentName, ...] = ()
    reason: Reason | None = None


class HostGranted(CustodyFact, frozen=True, kw_only=True, tag="host.granted"):
    """A free host goes to a department.  `dept`: name of the department that holds it from now on."""

    host: str
    dept: DepartmentName
    reason: Reason | None = None


class HostSeized(CustodyFact, frozen=True, kw_only=True, tag="host.seized"):
    """The notice has ended, and a host is taken from its holder: attempts there are broken.  `dept`: name of the department
    that held it."""

    host: str
    dept: DepartmentName
    reason: Reason | None = None


# -------------------------------------------------------------------------------------------------------------- scheduler


class DemandChanged(CustodyFact, frozen=True, kw_only=True, tag="demand.changed"):
    """Level: how many hosts a department wants.  `hosts`: hosts wanted in all, never "n more"; `instances`: instances of a
    web department that need them; null for a batch department; `if_idle`: further hosts that are wanted only if they are
    idle; `prefer`: constraints of waiting jobs, which granted hosts should satisfy; `sizes`: of jobs that wait for something
    scarce, what they need of a host (field -> amount); `basis`: what the number of instances follows, written with the
    reason."""

    dept: DepartmentName
    hosts: Count
    instances: int | None = None
    if_idle: Count = 0
    prefer: tuple[str, ...] = ()
    sizes: tuple[dict[str, Count], ...] = ()
    reason: Reason | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        if self.basis is None:
            msgspec.structs.force_setattr(self, "basis", Basis.LOAD if self.reason is None else self.reason.BASIS)


class HostReleased(CustodyFact, frozen=True, kw_only=True, tag="host.released"):
    """A department gives a host back: it drains until it is cleared."""

    host: str
    reason: Reason | None = None


class UnitPlaced(CustodyFact, frozen=True, kw_only=True, tag="unit.placed"):
    """An attempt opens: its rank r runs on `hosts[r]`.  `hosts`: names of its hosts, by rank; `cores`: cores on each host;
    `memory_mb`: memory on each host, in MiB; `gpus`: GPUs on each host; `exclusive`: it needs its hosts empty; `release`: of
    an instance, the release that it runs; 0: what the configuration says; `image`: of an instance, that release's image;
    empty: the site's."""

    unit: UnitId
    attempt: AttemptNumber
    hosts: tuple[str, ...]
    cores: Count
    memory_mb: Count
    gpus: Count = 0
    exclusive: bool = False
    reason: Reason | None = None
    moved_from: tuple[str, ...] = ()  # of an attempt that was moved while it ran, the hosts where it ran until now
    release: Count = 0
    image: Annotated[str, msgspec.Meta(max_length=IMAGE_MAX)] = ""


class AttemptClosed(CustodyFact, frozen=True, kw_only=True, tag="attempt.closed"):
    """The scheduler ends an attempt.  `disposal`: what becomes of its unit; `why`: the reason for the end."""

    unit: UnitId
    attempt: AttemptNumber
    disposal: Disposal
    why: Reason
    hold: bool = False  # of a unit that is requeued: it is held until a person releases it
    hold_reason: Reason | None = None  # why its unit is held; null: it is not
    cause: Cause | None = None  # the cause that decisions and accounts follow; written with the reason

    def __post_init__(self) -> None:
        if self.cause is None:
            msgspec.structs.force_setattr(self, "cause", self.why.ended_by)


# --------------------------------------------------------------------------------------------------------------- executor


class HostDescribed(CustodyFact, frozen=True, kw_only=True, tag="host.described"):
    """A host of OpenNebula belongs to the cloud, or offers something else than before.  `one_id`: its id in OpenNebula;
    `cores`: cores that it offers; `memory_mb`: memory that it offers, in MiB; `gpus`: GPUs that it offers; `labels`: its
    labels by name, which constraints of jobs refer to; `cluster`: its cluster in OpenNebula; `others`: what VMs of other users
    take of it, which it does not offer, by dimension (`cores`, `memory_mb`, `gpus`)."""

    host: str
    one_id: int
    cores: Count
    memory_mb: Count
    gpus: Count = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    cluster: str = ""
    others: dict[str, Count] = msgspec.field(default_factory=dict)


class HostRemoved(CustodyFact, frozen=True, kw_only=True, tag="host.removed"):
    """The host no longer belongs to the cloud."""

    host: str


class HostCleared(CustodyFact, frozen=True, kw_only=True, tag="host.cleared"):
    """None of the cloud's VMs is left on the host: it is free."""

    host: str


class HostLost(CustodyFact, frozen=True, kw_only=True, tag="host.lost"):
    """The host has failed, and attempts there are broken.  `reason`: why it counts as lost, as text."""

    host: str
    reason: str


class HostQuarantined(CustodyFact, frozen=True, kw_only=True, tag="host.quarantined"):
    """Nothing is started on the host for a while, because starts have failed there.  `reason`: what failed, as text; `until`:
    end of the quarantine, UTC seconds."""

    host: str
    reason: str
    until: Seconds


class HostObserved(PlainFact, frozen=True, kw_only=True, tag="host.observed"):
    """What the host really uses.  Not a measurement: written when the host has left a band of use for good, and again after a
    VM was moved to or from it.  `cpu`: part of its cores that is in use, 1: all; `memory`: part of its memory that is in use,
    1: all."""

    host: str
    cpu: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    memory: Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class VmAllocated(CustodyFact, frozen=True, kw_only=True, tag="vm.allocated"):
    """OpenNebula holds a VM for this rank, on HOLD.  Or, of a VM that was another attempt's and is free for this one (saved,
    moving, or waiting for a job): from now on it is this rank's.  `vm`: OpenNebula's id of the VM; `host`: name of the host
    where it is to run."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank
    vm: int
    host: str


class VmStarted(CustodyFact, frozen=True, kw_only=True, tag="vm.started"):
    """The VM of this rank runs."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank


SUSPENDED: Final = "suspended"  # `vm.ended.why`


class VmEnded(CustodyFact, frozen=True, kw_only=True, tag="vm.ended"):
    """The VM of this rank is gone from its host.  `why`: how it ended, as text; `suspended`: it has given its host up and can
    resume elsewhere."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank
    why: str  # SUSPENDED: it has given its host up and can resume elsewhere


class VmRefused(PlainFact, frozen=True, kw_only=True, tag="vm.refused"):
    """OpenNebula does not allocate a VM for this rank.  Recorded once an attempt; it is tried again all the same, until its
    scheduler gives it up.  It changes nothing.  `failure`: name of the failure (docs/reference/opennebula-calls.md); `why`:
    the failure in OpenNebula's words."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank
    failure: str
    why: str


class StartsPaused(PlainFact, frozen=True, kw_only=True, tag="starts.paused"):
    """Level, until `starts.resumed`: starts fail on so large a part of the hosts that it is the site's fault, and no VM is
    deployed but one that is tried now and then.  `since`: when the failures began, UTC seconds; `failed`: hosts on which
    starts failed since then; `tried`: hosts on which a start ended since then; `why`: the failure in OpenNebula's words."""

    since: Seconds
    failed: Count
    tried: Count
    why: str


class StartsResumed(PlainFact, frozen=True, kw_only=True, tag="starts.resumed"):
    """VMs are deployed again.  `why`: what ended the pause, as text."""

    why: str


# -------------------------------------------------------------------------------------------------------------- admission


class VmParked(CustodyFact, frozen=True, kw_only=True, tag="vm.parked"):
    """The job in this VM has completed, and its guest waits for the department's next one."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank


class VmFailed(CustodyFact, frozen=True, kw_only=True, tag="vm.failed"):
    """The VM of this rank is of no use to its attempt, by its guest: it has booted again, so that what ran in it is lost, or it
    lacks something.  The attempt is broken, and the VM is to end.  `why`: what is wrong, as text."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank
    why: str = ""


class AttemptBegan(CustodyFact, frozen=True, kw_only=True, tag="attempt.began"):
    """The guests of all ranks have called: walltime starts.  `addresses`: by rank, where an instance listens; null for a
    job.  `boots`: by rank, which boot of its VM has called; null: its guest does not say."""

    unit: UnitId
    attempt: AttemptNumber
    addresses: tuple[str | None, ...] = ()
    boots: tuple[str | None, ...] = ()


class AttemptReported(CustodyFact, frozen=True, kw_only=True, tag="attempt.reported"):
    """The guest reports how its script has ended.  `exit`: exit code of the script; `signal`: number of the signal that ended
    it, or null; `seconds`: how long it ran; `note`: remark of the guest, for people; `terminated`: the guest had sent the
    script SIGTERM, or the signal chosen for it, before it ended."""

    unit: UnitId
    attempt: AttemptNumber
    exit: int
    signal: int | None = None
    seconds: float = 0.0
    cpu_seconds: float | None = None
    max_rss_mb: float | None = None
    note: str | None = None
    terminated: bool = False


class AttemptMeasured(PlainFact, frozen=True, kw_only=True, tag="attempt.measured"):
    """Use of an attempt that ended without a report, or that has several ranks: the last values that guests reported before
    their VMs were gone.  All since the VM began, so with the attempts that it continued from.  `cpu_seconds`: CPU time of all
    ranks that reported; `max_rss_mb`: most memory of one rank, in MiB; `ranks`: how many ranks reported; `heard_at`: when the
    first of these reports arrived, UTC seconds."""

    unit: UnitId
    attempt: AttemptNumber
    cpu_seconds: float
    max_rss_mb: float | None = None
    ranks: int = 1
    heard_at: Seconds


class CheckpointReported(PlainFact, frozen=True, kw_only=True, tag="checkpoint.reported"):
    """What the unit's latest attempt has done until now is safe (`custody.checkpoints` says when it counts).

    `payload`: object-store key of the files that the next attempt gets, empty if the job keeps its state itself; `files`:
    number of files of the checkpoint; `size_bytes`: size of these files together, in bytes."""

    unit: UnitId
    attempt: AttemptNumber
    payload: str = ""
    files: Count = 0
    size_bytes: Count = 0
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None  # of the whole job, by its own word
    progress: Annotated[str, msgspec.Meta(max_length=200)] = ""  # the same in the job's words, for people
    request: str = ""  # the guest's id of this call, so that repeating it is harmless


class ScaleRequested(PlainFact, frozen=True, kw_only=True, tag="scale.requested"):
    """A person sets the number of instances of a web department; without `minimum` and `exact` the load alone decides again.
    `minimum`: at least this many instances; `exact`: exactly this many; `until`: until when that holds, UTC seconds; null:
    until it is changed."""

    dept: DepartmentName
    user: str
    minimum: int | None = None
    exact: int | None = None
    until: Seconds | None = None
    request: str = ""


class HostCordoned(CustodyFact, frozen=True, kw_only=True, tag="host.cordoned"):
    """Nothing new is placed on the host, and what runs there stays; the last such fact counts.  `reason`: why, in a person's
    words; `drain`: the host is to become empty, too; `until`: of a drain, when what still runs there is ended, UTC seconds;
    null: nothing is ended."""

    host: str
    reason: str
    user: str
    drain: bool = False
    until: Seconds | None = None


class HostUncordoned(CustodyFact, frozen=True, kw_only=True, tag="host.uncordoned"):
    """The host returns to use.  `reason`: why, in a person's words."""

    host: str
    reason: str
    user: str


class DepartmentClosed(CustodyFact, frozen=True, kw_only=True, tag="department.closed"):
    """A department that is no longer in the configuration has nothing left."""

    dept: DepartmentName


Fact: TypeAlias = (
    LeaderStarted
    | LeaderStopped
    | ConfigAdopted
    | QuotaChanged
    | HostGranted
    | HostSeized
    | DemandChanged
    | HostReleased
    | UnitPlaced
    | AttemptClosed
    | LoadObserved
    | InstanceDraining
    | ReleaseChanged
    | HostDescribed
    | HostRemoved
    | HostCleared
    | HostLost
    | HostQuarantined
    | HostObserved
    | VmAllocated
    | VmStarted
    | VmEnded
    | VmRefused
    | StartsPaused
    | StartsResumed
    | JobSubmitted
    | JobHeld
    | JobResumed
    | JobCancelled
    | ArrayHeld
    | ArrayResumed
    | ArrayCancelled
    | LeaseExtended
    | AttemptBegan
    | VmParked
    | VmFailed
    | AttemptReported
    | AttemptMeasured
    | CheckpointReported
    | ScaleRequested
    | InstanceReported
    | ReleaseRequested
    | HostCordoned
    | HostUncordoned
    | DepartmentClosed
)

# What names one host and changes whose it is, or what may be placed there.
HostFact: TypeAlias = (
    HostDescribed
    | HostRemoved
    | HostCleared
    | HostLost
    | HostQuarantined
    | HostCordoned
    | HostUncordoned
    | HostGranted
    | HostReleased
    | HostSeized
)

FACTS: tuple[type[AnyKind], ...] = Fact.__args__
KIND: dict[type, str] = {cls: str(cls.__struct_config__.tag) for cls in FACTS}
BY_KIND: dict[str, type[AnyKind]] = {kind: cls for cls, kind in KIND.items()}

_SCHEDULER = (DemandChanged, HostReleased, UnitPlaced, AttemptClosed, LoadObserved, InstanceDraining, ReleaseChanged)
_PROVISIONER = (ConfigAdopted, QuotaChanged, HostGranted, HostSeized)
_EXECUTOR = (
    HostDescribed,
    HostRemoved,
    HostCleared,
    HostLost,
    HostQuarantined,
    HostObserved,
    VmAllocated,
    VmStarted,
    VmEnded,
    VmRefused,
    StartsPaused,
    StartsResumed,
)
_EVERYBODY = (LeaderStarted, LeaderStopped)

# Which service may write which kind; the department of a scheduler's fact is checked by the fold.
WRITERS: dict[type, str] = {
    **dict.fromkeys(FACTS, "admission"),
    **dict.fromkeys(_SCHEDULER, "scheduler"),
    **dict.fromkeys(_PROVISIONER, "provisioner"),
    **dict.fromkeys(_EXECUTOR, "executor"),
    **dict.fromkeys(_EVERYBODY, "*"),
}


# What begins or changes something, and can wait while the journal has room for what ends things alone.
_BEGINS: Final = frozenset(
    {
        JobSubmitted,
        JobHeld,
        JobResumed,
        ArrayHeld,
        ArrayResumed,
        LeaseExtended,
        UnitPlaced,
        CheckpointReported,
        ScaleRequested,
        ReleaseRequested,
    }
)


def begins(fact: object) -> bool:
    """True of `_BEGINS`, but for the placement of an instance: one that has ended is replaced, or no client would be served."""
    kind = type(fact)
    return kind in _BEGINS and not (kind is UnitPlaced and is_instance(fact.unit))  # type: ignore[attr-defined]


def kind_of(fact: object) -> str:
    """The wire name of a fact's kind, e.g. ``host.granted``."""
    return KIND[type(fact)]


@lru_cache(maxsize=256)  # readers ask for each envelope
def written_by(writer: str) -> frozenset[type]:
    """The kinds of facts that `writer` ('admission', 'scheduler.hpc', …) owns."""
    owners = ("*", writer, writer.partition(".")[0])
    return frozenset(kind for kind, owner in WRITERS.items() if owner in owners)
