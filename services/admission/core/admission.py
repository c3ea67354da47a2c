"""Admission's core: owners of jobs, requests that are already answered, departments to be closed.

Theory of operation
  Admission composes facts from requests (`compose.py`) with a look at this state and at custody; this core folds them when
  they come back.  By itself it decides four things only: `attempt.began` of an attempt that continues with the VMs of the one
  before, when all of them run (their guests continue where they were, and do not call); `department.closed` for a department
  that a configuration named and the adopted one does not name any more (PROTOCOL, Provisioner: its pending jobs are closed by
  admission); `job.cancelled`, without a user, of a local lease that waits although its time has passed: it can never start; and
  `job.held`, without a user, of a unit whose scheduler asks for that (`attempt.closed`): it never starts, though others do.

Rules
  1. A client request id is remembered with what it asked (a digest) and what it was answered, so that a repeated request is
     answered the same and never done twice (S9).  The newest `REQUESTS_MAX` are kept.
  2. A job is remembered while a unit of it is not final; of finished ones the newest `FINISHED_MAX`.
  3. `unfinished` counts units that are not final: what `jobs_pending_max` bounds, for each department; `submitted` those of
     each account (`domain.usage_limits`): what `jobs_submitted_max` bounds.  The latter is a view of the jobs.
  4. A local lease that was accepted keeps its time until it is over or cancelled (`leases`).
  5. Of a unit that is not final the last checkpoint is remembered, if it counts (`custody.checkpoints`).
  6. Void facts change nothing.  This core must never compose on its own what a person has to ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, User, WebPolicy
from schemas.envelope import FACTS_MAX
from schemas.facts import Fact, Lease
from schemas.ids import element_id, instance_parts, is_instance, job_of
from schemas.reasons import Reason
from schemas.releases import Release
from schemas.size import NOTHING, Size, size_of
from services.admission.core.feasibility import Capacity, constrained
from services.admission.core.rollouts import Wanted, configured, follow, lasting
from services.domain import readiness
from services.domain.core import NEVER, Handlers
from services.domain.custody.checkpoints import counts
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit, vm_key
from services.domain.usage_limits import Account

REQUESTS_MAX: Final = 50_000  # a client repeats within minutes; at 1,000 a second these are the last 50 s
FINISHED_MAX: Final = 20_000  # twice what custody remembers of final units (FINALS_MAX)
LOGS_KEPT: Final = 200  # ended instances of a department whose output is kept: 1.6 GiB at most
LOGS_DUE_MAX: Final = 50  # whose output is just being removed; a door that starts looks at these again
DIGEST_MARK: Final = "@"  # a fact's `request` is "<client's id>@<digest of what was asked>"


class Job(msgspec.Struct, kw_only=True):
    """What a guest and the door need of a job.  `left`: units that are not final; `array` is dropped with the last of them.
    `nodes`, `size` (of each node) and `exclusive` are for leases."""

    dept: str
    user: str
    name: str
    payload: str
    walltime_s: float
    tasks: int
    cpus_per_task: int
    array: tuple[int, ...]
    is_array: bool
    units: int
    left: int
    lease: Lease | None = None
    nodes: int = 1
    size: Size = NOTHING
    exclusive: bool = False
    best_effort: bool = False
    quality: str = ""


class Answered(msgspec.Struct, kw_only=True):
    """A request that was granted: the digest of what it asked; `job` is what came of it: the job, or the release."""

    digest: str
    job: str = ""
    units: int = 0


class Checkpoint(msgspec.Struct, kw_only=True):
    """The last one of a unit: what its next attempt is given."""

    attempt: int
    at: float
    payload: str
    percent: float | None
    request: str


class Reported(msgspec.Struct, kw_only=True):
    """What a watcher said last of an instance (`domain.readiness`)."""

    attempt: int
    at: float
    state: str
    why: str = ""


class _State(msgspec.Struct, kw_only=True):
    jobs: dict[str, Job] = {}
    finished: dict[str, None] = {}  # jobs without a unit left, oldest first
    requests: dict[str, Answered] = {}  # "<user>/<client's id>", oldest first
    departments: dict[str, None] = {}  # named by a configuration and not closed since
    unfinished: dict[str, int] = {}
    reserved: dict[str, None] = {}  # local leases that are neither over nor cancelled, in order of acceptance
    checkpoints: dict[str, Checkpoint] = {}  # of units that are not final
    wanted: dict[str, Wanted] = {}  # releases, by web department
    reported: dict[str, dict[str, Reported]] = {}  # of instances whose attempt is open, by watcher
    holds: dict[str, Reason] = {}  # units to be held -> why
    configured: dict[str, Release] = {}  # what lasts of release 0, by web department
    begun_with: dict[str, Release] = {}  # the same of its instances that began before it changed
    logs: dict[str, list[str]] = {}  # ended instances by department, oldest first: the first ones' output goes


class AdmissionCore:
    # 1 had neither leases nor checkpoints; 2 neither releases nor reports of instances; 3 no holds without a user
    # 4 knew one watcher of an instance; 5 not what instances of release 0 had begun with; 6 had reasons of another form
    VERSION = 7

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self._state = _State()
        self._on: Handlers = {
            f.JobSubmitted: self._add,
            **dict.fromkeys(get_args(f.Held | f.Resumed), self._held_or_let_go),
            **dict.fromkeys(get_args(f.Cancelled), self._cancelled),
            f.LeaseExtended: self._extended,
            f.UnitPlaced: self._placed,
            f.AttemptBegan: self._has_begun,
            **dict.fromkeys((f.AttemptClosed, f.AttemptReported), self._over),
            f.CheckpointReported: self._checkpointed,
            f.InstanceReported: self._instance_reported,
            f.ScaleRequested: self._scaled,
            **dict.fromkeys((f.ReleaseRequested, f.ReleaseChanged), self._released),
            f.ConfigAdopted: self._configured,
            f.DepartmentClosed: self._department_closed,
            **dict.fromkeys((f.HostDescribed, f.HostRemoved), self._hosts_changed),
        }
        self._forget_derived()

    def _forget_derived(self) -> None:
        self._capacity: Capacity | None = None
        self._of_config: CloudConfig | None = None
        self._users: dict[str, User] = {}
        self._departments: dict[str, Department] = {}
        self._submitted: dict[tuple[str, Account], int] = {}
        self._resuming: dict[str, None] = {}  # units that continue with their VMs, and have not begun again
        for units in self.custody.index.open.values():
            self._resuming |= {name: None for name in units if self._resumes(name)}
        for job in self._state.jobs.values():
            self._count_submitted(job, job.left)

    # -------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        handler = self._on.get(type(fact))
        if handler is not None:
            handler(fact, meta)

    def _over(self, fact: f.AttemptClosed | f.AttemptReported, _meta: Meta) -> None:
        self._resuming.pop(fact.unit, None)
        self._state.reported.pop(fact.unit, None)
        self._state.begun_with.pop(fact.unit, None)
        self._keep_logs(fact.unit)
        if isinstance(fact, f.AttemptClosed) and fact.hold:
            self._state.holds[fact.unit] = fact.hold_reason or because.Held()
        self._count_final(fact.unit)

    def _held_or_let_go(self, _fact: f.Held | f.Resumed, _meta: Meta) -> None:
        for unit in self.custody.changed:
            self._state.holds.pop(unit, None)

    def _placed(self, fact: f.UnitPlaced, _meta: Meta) -> None:
        self._state.holds.pop(fact.unit, None)
        if self._resumes(fact.unit):
            self._resuming[fact.unit] = None

    def _has_begun(self, fact: f.AttemptBegan, _meta: Meta) -> None:
        self._resuming.pop(fact.unit, None)
        self._state.reported.pop(fact.unit, None)  # what was said of its start (`domain.readiness`, rule 2)

    def _cancelled(self, fact: f.Cancelled, _meta: Meta) -> None:
        self._state.reserved.pop(fact.job, None)
        self._count_final(*self.custody.changed)

    def _instance_reported(self, fact: f.InstanceReported, meta: Meta) -> None:
        said = Reported(attempt=fact.attempt, at=meta.at, state=fact.state, why=fact.why)
        self._state.reported.setdefault(fact.unit, {})[readiness.watcher(fact)] = said

    def _scaled(self, fact: f.ScaleRequested, _meta: Meta) -> None:
        self._remember(fact.user, fact.request, "", 0)

    def _released(self, fact: f.ReleaseRequested | f.ReleaseChanged, _meta: Meta) -> None:
        self._state.wanted[fact.dept] = follow(self.wanted(fact.dept), fact)
        if isinstance(fact, f.ReleaseRequested):
            self._remember(fact.user, fact.request, str(fact.release), 1)

    def _configured(self, fact: f.ConfigAdopted, _meta: Meta) -> None:
        for department in fact.config.departments:
            self._state.departments[department.name] = None
            if department.kind == "web":
                self._reconfigure(department.name, lasting(configured(department.web or WebPolicy())))

    def _reconfigure(self, dept: str, new: Release) -> None:
        old, units = self._state.configured.get(dept, new), self.custody.state.units
        for name in self.custody.index.open.get(dept, ()) if old != new else ():
            if not units[name].release and units[name].began_at is not None:
                self._state.begun_with.setdefault(name, old)
        self._state.configured[dept] = new

    def _hosts_changed(self, _fact: f.HostDescribed | f.HostRemoved, _meta: Meta) -> None:
        self._capacity = None

    def _add(self, fact: f.JobSubmitted, _meta: Meta) -> None:
        units = len(fact.array) or 1
        self._state.jobs[fact.job] = Job(
            dept=fact.dept,
            user=fact.user,
            name=fact.name,
            payload=fact.payload,
            walltime_s=fact.walltime_s,
            tasks=fact.tasks,
            cpus_per_task=fact.cpus_per_task,
            array=fact.array,
            is_array=bool(fact.array),
            units=units,
            left=units,
            lease=fact.lease,
            nodes=fact.nodes,
            size=size_of(fact),
            exclusive=fact.exclusive,
            best_effort=fact.best_effort,
            quality=fact.quality,
        )
        self._count_submitted(self._state.jobs[fact.job], units)
        if fact.lease is not None and fact.lease.local:
            self._state.reserved[fact.job] = None
        self._state.unfinished[fact.dept] = self.unfinished(fact.dept) + units
        self._remember(fact.user, fact.request, fact.job, units)

    def _keep_logs(self, unit: str) -> None:
        """What ended instances wrote is kept for a while."""
        if is_instance(unit):
            ended = self._state.logs.setdefault(instance_parts(unit)[0], [])
            ended.append(unit)
            del ended[: -LOGS_KEPT - LOGS_DUE_MAX]

    def _extended(self, fact: f.LeaseExtended, _meta: Meta) -> None:
        job = self._state.jobs.get(fact.job)
        if job is not None:
            job.walltime_s = fact.walltime_s
        self._remember(fact.user, fact.request, fact.job, 1)

    def _count_submitted(self, job: Job, by: int) -> None:
        for account in accounts(job.user, job.quality) if by else ():
            key = (job.dept, account)
            self._submitted[key] = self._submitted.get(key, 0) + by
            if not self._submitted[key]:
                del self._submitted[key]

    def _remember(self, user: str, request: str, job: str, units: int) -> None:
        client, _, digest = request.rpartition(DIGEST_MARK)
        if client:
            requests = self._state.requests
            requests[f"{user}/{client}"] = Answered(digest=digest, job=job, units=units)
            if len(requests) > REQUESTS_MAX:
                del requests[next(iter(requests))]

    def _checkpointed(self, fact: f.CheckpointReported, meta: Meta) -> None:
        if counts(self.custody.state.units.get(fact.unit), fact.attempt):
            self._state.checkpoints[fact.unit] = Checkpoint(
                attempt=fact.attempt, at=meta.at, payload=fact.payload, percent=fact.percent, request=fact.request
            )

    def _count_final(self, *names: str) -> None:
        """The valid fact just folded was about units of one job that were not final: they are now, or are not yet."""
        units, job = self.custody.state.units, self._state.jobs.get(job_of(names[0])) if names else None
        final = [name for name in names if (unit := units.get(name)) is None or unit.state == "final"]
        if job is None or not final:
            return
        for name in final:
            self._state.checkpoints.pop(name, None)
            self._state.holds.pop(name, None)
        job.left -= len(final)
        self._count_submitted(job, -len(final))
        self._state.unfinished[job.dept] -= len(final)
        if job.left == 0:
            self._finish(job_of(names[0]), job)

    def _finish(self, name: str, job: Job) -> None:
        job.array = ()
        self._state.reserved.pop(name, None)
        finished = self._state.finished
        finished[name] = None
        if len(finished) > FINISHED_MAX:
            oldest = next(iter(finished))
            del finished[oldest]
            del self._state.jobs[oldest]

    def _department_closed(self, fact: f.DepartmentClosed, _meta: Meta) -> None:
        dept = fact.dept
        self._state.departments.pop(dept, None)
        self._state.unfinished.pop(dept, None)
        self._state.wanted.pop(dept, None)
        self._state.configured.pop(dept, None)
        self._resuming = {name: None for name in self._resuming if self._resumes(name)}
        for of_instances in (self._state.reported, self._state.begun_with):
            for name in [name for name in of_instances if instance_parts(name)[0] == dept]:
                del of_instances[name]
        for name, job in list(self._state.jobs.items()):
            if job.dept == dept:
                for unit in self.units(name):
                    self._state.checkpoints.pop(unit, None)
                    self._state.holds.pop(unit, None)
                self._count_submitted(job, -job.left)
                job.left = 0
                self._finish(name, job)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def load(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
        self._forget_derived()

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[Fact]:
        config = self.custody.state.config
        if config is None:
            return []
        named = {department.name for department in config.departments}
        closed = [f.DepartmentClosed(dept=name) for name in sorted(self._state.departments) if name not in named]
        missed = [f.JobCancelled(job=name, user="") for name, end in self._waiting_leases() if end <= now]
        return [*closed, *self._began(), *missed, *self._held()][:FACTS_MAX]

    def _held(self) -> Iterator[Fact]:
        """Without a user: they never start."""
        units = self.custody.state.units
        for name, why in self._state.holds.items():
            if name in units and units[name].state == "pending" and not units[name].held:
                yield f.JobHeld(job=name, user="", reason=why)

    def _began(self) -> Iterator[Fact]:
        """Attempts of which each rank runs again, in the VM of the one before."""
        custody = self.custody
        for name in sorted(self._resuming):
            unit = custody.state.units[name]
            if unit.live and all(self._runs_again(unit, rank) for rank in range(len(unit.hosts))):
                yield f.AttemptBegan(unit=name, attempt=unit.attempt)

    def _runs_again(self, unit: Unit, rank: int) -> bool:
        key = vm_key(unit.id, unit.attempt, rank)
        vm = self.custody.state.vms.get(key)
        return vm is not None and vm.started_at is not None and vm.known_as != key

    def _resumes(self, name: str) -> bool:
        unit = self.custody.state.units.get(name)
        return unit is not None and unit.resumes and unit.began_at is None

    def wake_at(self) -> float:
        return min((end for _, end in self._waiting_leases()), default=NEVER)

    def _waiting_leases(self) -> Iterator[tuple[str, float]]:
        """Local leases that are on no hosts, each with the end of its time."""
        for name in self._state.reserved:
            job = self._state.jobs[name]
            if job.lease is not None and self.custody.state.units[name].state == "pending":
                yield name, job.lease.start_at + job.walltime_s

    def check(self) -> list[str]:
        units, found = self.custody.state.units, []
        counted: dict[str, int] = {}
        for name, job in self._state.jobs.items():
            left = sum(1 for unit in self.units(name) if (known := units.get(unit)) and known.state != "final")
            counted[job.dept] = counted.get(job.dept, 0) + job.left
            if left != job.left:
                found.append(f"job {name} has {left} units that are not final, counted as {job.left}")
            if (job.left == 0) != (name in self._state.finished):
                found.append(
                    f"job {name} has {job.left} units left and is {'' if job.left else 'not '}kept as finished"
                )
        for dept, count in self._state.unfinished.items():
            if count != counted.get(dept, 0):
                found.append(f"department {dept} has {counted.get(dept, 0)} unfinished units, counted as {count}")
        for name in self._state.reserved:
            if (reserved := self._state.jobs.get(name)) is None or not reserved.left:
                found.append(f"lease {name} is over and keeps its time")
        for name in self._state.checkpoints:
            if name not in units or units[name].state == "final":
                found.append(f"unit {name} is over and its checkpoint is remembered")
        for name in (*self._state.reported, *self._state.begun_with):
            if name not in units or units[name].state != "open":
                found.append(f"instance {name} is over, and what was reported of it or it began with is remembered")
        fresh = AdmissionCore(self.custody)
        fresh.load(self.dump())
        if fresh._submitted != self._submitted:
            found.append("the jobs of users and qualities of service are counted wrongly")
        if sorted(self._resuming) != sorted(fresh._resuming):
            found.append("units that continue with their VMs are not those that are watched")
        if len(self._state.requests) > REQUESTS_MAX or len(self._state.finished) > FINISHED_MAX:
            found.append("more requests or finished jobs are remembered than the limits allow")
        return found

    # -------------------------------------------------------------------------------------------------------- reading

    def job(self, unit: str) -> Job | None:
        """The job that `unit` (a job or an array element) belongs to, if it is still remembered."""
        return self._state.jobs.get(job_of(unit))

    def open_payloads(self) -> Iterator[tuple[str, str]]:
        """Jobs that have a unit left, each with the key of its payload."""
        return ((name, job.payload) for name, job in self._state.jobs.items() if job.left)

    def reserved(self) -> Iterable[str]:
        """Local leases that have a claim to their time, in order of acceptance."""
        return self._state.reserved

    def units(self, job: str) -> list[str]:
        """The unit ids of a job that is not finished; of a finished array the elements are not remembered."""
        known = self._state.jobs[job]
        return [element_id(job, index) for index in known.array] or [job]

    def unit(self, name: str) -> Unit | None:
        return self.custody.state.units.get(name)

    def checkpoint(self, unit: str) -> Checkpoint | None:
        """The last one that counts of a unit that is not final."""
        return self._state.checkpoints.get(unit)

    def checkpointed(self) -> list[str]:
        """Units that are not final and have one."""
        return list(self._state.checkpoints)

    def wanted(self, dept: str) -> Wanted:
        """What a web department is to run."""
        return self._state.wanted.get(dept, Wanted())

    def begun_with(self, unit: str) -> Release | None:
        """Of an instance of release 0, if that is something else by now."""
        return self._state.begun_with.get(unit)

    def reported(self, unit: str) -> Mapping[str, Reported]:
        """What each watcher said last of an instance whose attempt is open."""
        return self._state.reported.get(unit, {})

    def logs_due(self, dept: str) -> list[str]:
        """Ended instances whose output is to go; the oldest of them are forgotten when new ones come."""
        return self._state.logs.get(dept, [])[:-LOGS_KEPT]

    def logged(self) -> list[str]:
        """Departments of which an instance has ended."""
        return list(self._state.logs)

    def answered(self, user: str, request: str) -> Answered | None:
        return self._state.requests.get(f"{user}/{request}")

    def unfinished(self, dept: str) -> int:
        return self._state.unfinished.get(dept, 0)

    def submitted(self, dept: str, account: Account) -> int:
        """Units that are not final, of one account."""
        return self._submitted.get((dept, account), 0)

    def user(self, name: str) -> User | None:
        self._read_config()
        return self._users.get(name)

    def department(self, name: str) -> Department | None:
        self._read_config()
        return self._departments.get(name)

    def _read_config(self) -> None:
        config = self.custody.state.config
        if config is not self._of_config:
            self._of_config = config
            self._users = {user.name: user for user in config.users} if config else {}
            self._departments = {d.name: d for d in config.departments} if config else {}

    def capacity(self, constraint: str = "") -> Capacity:
        """What the hosts known now could hold, regardless of their holder; with `constraint` those that satisfy it.  Raises
        `Refused`."""
        if constraint:
            return constrained(constraint, self.custody.state.hosts.values())
        if self._capacity is None:
            self._capacity = Capacity(self.custody.state.hosts.values())
        return self._capacity


def accounts(user: str, quality: str) -> tuple[Account, ...]:
    """Where a job is counted for `jobs_submitted_max`."""
    own = (Account("", user),)
    return (*own, Account(quality, user), Account(quality, "")) if quality else own
