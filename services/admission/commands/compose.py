"""From a request to facts: which caller may ask for what, and which facts follow.  Pure: a look at the state, nothing else.

Rules
  1. A user acts on own jobs, a manager on the department's, an operator on all.  Other callers learn
     of a job only that it is not known.
  2. Naming an array names all its elements; what is final already is an error for that job alone, and asking again for what
     holds already is granted without a fact.  What is asked of several elements of an array is one fact (PROTOCOL, Arrays).
  3. A composition sees what is already drafted in its envelope, so that two jobs never get the same number.
  4. Scaling a web department needs a manager; hosts need an operator.
  5. The last word on a host counts: cordon after drain keeps what runs there, drain after cordon does not (PROTOCOL,
     host.cordoned).
  6. A guest's report is journaled only if it is valid here; otherwise a zombie that retries would fill the journal.
  7. A user gives a job at most the default priority (Slurm: --nice is at least 0); otherwise all users would raise theirs.
  8. A job's own grace is at most `grace_max_s` of its department: a claim of its host waits for it (`domain.grace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args

import msgspec

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, OnReclaim, Role, WebPolicy
from schemas.facts import Fact
from schemas.ids import ELEMENT, JOB, element_id, job_of
from schemas.requests import PRIORITY_DEFAULT, HostDrain, HostNamed, JobResult, JobSubmit, ScaleSet
from schemas.signals import balancers_of, may_tell
from schemas.size import Size
from services.admission.commands.service_share import service_of
from services.admission.commands.usage_limits import quality_of, refuse_over_limit
from services.admission.core.admission import DIGEST_MARK, AdmissionCore
from services.admission.core.attempt_status import standing
from services.admission.core.feasibility import parse_after, parse_array, shape_of
from services.domain import grace, specs
from services.domain.custody import preconditions
from services.domain.custody.checkpoints import counts
from services.domain.custody.rules import ARRAYS_AT_ONCE
from services.domain.custody.state import FINALS_MAX, Unit
from services.domain.refusal import Refused
from services.runtime.config.machines import lacks

Verb = Literal["cancel", "hold", "release"]
_OF_JOB: Final[dict[str, type[f.JobCancelled | f.JobHeld | f.JobResumed]]] = {
    "cancel": f.JobCancelled,
    "hold": f.JobHeld,
    "release": f.JobResumed,
}
_OF_ARRAY: Final[dict[str, type[f.OfArray]]] = {
    "cancel": f.ArrayCancelled,
    "hold": f.ArrayHeld,
    "release": f.ArrayResumed,
}


class Caller(msgspec.Struct, frozen=True):
    """Who asks.  `department`: the own one ("operators" for an operator)."""

    user: str
    department: str
    role: Role

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"


def adopted(core: AdmissionCore) -> CloudConfig:
    """The configuration in force.  Raises `Refused` before the first one."""
    config = core.custody.state.config
    if config is None:
        raise Refused("unavailable", "no configuration has been adopted yet: try again in a moment")
    return config


def department_for(core: AdmissionCore, caller: Caller, name: str, kind: Literal["batch", "web"]) -> Department:
    """The department of that name and kind, if the caller may act in it.  Raises `Refused`."""
    adopted(core)
    if not caller.is_operator and name != caller.department:
        raise Refused(
            "denied", f"department: {caller.user} belongs to {caller.department}, not to {name}", "department"
        )
    department = core.department(name)
    if department is None:
        what = "is closed" if name in core.custody.state.closed else "does not exist"
        raise Refused("unknown", f"department: {name} {what}", "department")
    if department.kind != kind:
        raise Refused(
            "invalid", f"department: {name} is a {department.kind} department, not a {kind} one", "department"
        )
    return department


def refuse_word(caller: Caller, department: Department) -> None:
    """Raises `Refused` if the department names its balancers, and the caller is none of them."""
    policy = department.web or WebPolicy()
    if not may_tell(policy, caller.user, caller.role):
        whose = balancers_of(department.name, policy)
        message = f"reports by {caller.user} do not count ({whose}); those of managers and operators do"
        raise Refused("denied", f"user: {message}", "user")


# -------------------------------------------------------------------------------------------------------------- submission


def submit(
    core: AdmissionCore,
    caller: Caller,
    dept: str,
    request: JobSubmit,
    payload: str,
    digest: str,
    drafted: Sequence[Fact],
) -> f.JobSubmitted:
    """The fact of a submission.  `payload`: key of its object; `digest`: of all that is asked.  Raises `Refused`."""
    department = department_for(core, caller, dept, "batch")
    limits = adopted(core).limits
    if request.script is not None and len(request.script.encode()) > limits.script_max_bytes:
        raise Refused("limit", f"script: is larger than {limits.script_max_bytes} bytes", "script")
    if sum(len(file.data) for file in request.inputs) > limits.input_max_bytes:
        raise Refused("limit", f"inputs: together are larger than {limits.input_max_bytes} bytes", "inputs")
    _refuse_raise(caller, dept, request.priority)
    policy = department.batch or BatchPolicy()
    capacity = core.capacity(request.constraint)
    shape = shape_of(request, capacity, department.maximum, policy.memory_per_core_mb)
    array, throttle = ((), 0) if request.array is None else parse_array(request.array, limits.array_max)
    _refuse_too_many(core, dept, len(array) or 1, limits.jobs_pending_max, drafted)
    _refuse_wish(adopted(core), request.on_reclaim, shape.size)
    _refuse_grace(adopted(core), dept, request.grace_s)
    walltime_s = _walltime(policy, request.walltime_s)
    name, quality = quality_of(request, department, caller.user)
    refuse_over_limit(core, department, (caller.user, name), shape, (len(array) or 1, bool(array)), drafted)
    return f.JobSubmitted(
        job=str(next_job(core, drafted)),
        dept=dept,
        user=caller.user,
        name=request.name,
        payload=payload,
        nodes=shape.nodes,
        **shape.size.fields(),
        exclusive=request.exclusive,
        tasks=request.tasks,
        cpus_per_task=request.cpus_per_task,
        walltime_s=walltime_s,
        priority=request.priority,
        retries=request.retries,
        on_reclaim=request.on_reclaim,
        on_term=request.on_term,
        grace_s=request.grace_s,
        array=array,
        throttle=throttle,
        after=() if request.after is None else _known_dependencies(core, dept, request.after),
        held=request.held,
        service=service_of(request, department, core.capacity(), shape, walltime_s, quality.best_effort),
        best_effort=request.best_effort or quality.best_effort,
        short=request.short,
        quality=name,
        constraint=request.constraint,
        request=f"{request.request}{DIGEST_MARK}{digest}" if request.request else "",
    )


def next_job(core: AdmissionCore, drafted: Sequence[Fact]) -> int:
    for fact in reversed(drafted):
        if isinstance(fact, f.JobSubmitted):  # numbers grow: the last one is the highest
            return int(fact.job) + 1
    return core.custody.state.job_last + 1


def _refuse_raise(caller: Caller, dept: str, priority: int) -> None:
    """Rule 7."""
    if caller.role == "user" and priority > PRIORITY_DEFAULT:
        who = f"{caller.user} may lower a job's ({PRIORITY_DEFAULT} or less); managers of {dept} and operators raise it"
        raise Refused("denied", f"priority: {priority} is more than the default: {who}", "priority")


def _refuse_wish(config: CloudConfig, wish: OnReclaim | None, size: Size) -> None:
    """What the hypervisor cannot do is refused now: when the host is needed it is too late to tell."""
    wrong = "" if wish is None else lacks(config.capabilities, wish, size)
    if wrong:
        raise Refused("invalid", f'on_reclaim: "{wish}" {wrong}', "on_reclaim")


def _refuse_grace(config: CloudConfig, dept: str, asked_s: float | None) -> None:
    """Rule 8."""
    most_s = grace.most_s(config, dept)
    if asked_s is None or asked_s <= most_s:
        return
    department = config.department(dept)
    is_set = department is not None and department.batch is not None and department.batch.grace_max_s is not None
    why = f"allows: grace_max_s is {most_s:g} s" if is_set else f"allows: {most_s:g} s, as grace_max_s is not set"
    raise Refused("invalid", f"grace_s: {asked_s:g} s is more than {dept} {why}", "grace_s")


def _walltime(policy: BatchPolicy, asked_s: float | None) -> float:
    if asked_s is None:
        return min(policy.walltime_default_s, policy.walltime_max_s)
    if asked_s > policy.walltime_max_s:
        message = f"walltime_s: {asked_s:g} s is more than the department allows ({policy.walltime_max_s:g} s)"
        raise Refused("invalid", message, "walltime_s")
    return asked_s


def _refuse_too_many(core: AdmissionCore, dept: str, units: int, units_max: int, drafted: Sequence[Fact]) -> None:
    waiting = core.unfinished(dept) + sum(
        len(fact.array) or 1 for fact in drafted if isinstance(fact, f.JobSubmitted) and fact.dept == dept
    )
    if waiting + units > units_max:
        message = f"{dept} has {waiting} jobs that are not finished and may have {units_max}: wait, or cancel some"
        raise Refused("limit", message, "array" if units > 1 else None)


def _known_dependencies(core: AdmissionCore, dept: str, spec: str) -> tuple[f.Dependency, ...]:
    found = parse_after(spec)
    for dependency in found:
        job, unit = core.job(dependency.job), core.unit(dependency.job)
        is_element = job_of(dependency.job) != dependency.job
        known = unit is not None if is_element or job is None else True
        owner = unit.dept if unit is not None else job.dept if job is not None else None
        if not known or owner != dept:
            raise Refused("unknown", f"after: there is no job {dependency.job} in department {dept}", "after")
    return found


# ---------------------------------------------------------------------------------------------------- cancel, hold, release


def change_jobs(
    core: AdmissionCore, caller: Caller, verb: Verb, names: Sequence[str]
) -> list[tuple[JobResult, list[str]]]:
    """For each named job what to answer if all goes well, and the units that have to change for that."""
    adopted(core)
    return [_change_job(core, caller, verb, name) for name in names]


def change_facts(
    core: AdmissionCore, caller: Caller, verb: Verb, plan: Sequence[tuple[JobResult, list[str]]]
) -> list[f.OfJobs]:
    """The facts of what `change_jobs` has found: one for each array."""
    jobs: dict[str, dict[int, None]] = {}  # with the indices of elements
    for result, units in plan:
        if units:
            jobs.setdefault(job_of(result.job), {}).update(_indices(core, result.job, units))
    return [fact for job, found in jobs.items() for fact in _facts_of(core, caller, verb, job, sorted(found))]


def _indices(core: AdmissionCore, asked: str, units: Sequence[str]) -> dict[int, None]:
    """Of an array that is named as a whole also those in between that need no change: so the fact is short."""
    found = [int(name.partition("_")[2]) for name in units if name != job_of(name)]
    job = core.job(asked)
    if job is not None and found and asked == job_of(asked):
        found = [index for index in job.array if found[0] <= index <= found[-1]]
    return dict.fromkeys(found)


def _facts_of(core: AdmissionCore, caller: Caller, verb: Verb, job: str, indices: list[int]) -> list[f.OfJobs]:
    known = core.job(job)
    if known is None or len(indices) < 2 or core.custody.state.rules < ARRAYS_AT_ONCE:
        names = [element_id(job, index) for index in indices] or [job]
        return [_OF_JOB[verb](job=name, user=caller.user) for name in names]
    pieces = (indices[start : start + FINALS_MAX] for start in range(0, len(indices), FINALS_MAX))
    return [
        _OF_ARRAY[verb](job=job, dept=known.dept, elements=specs.spelled(piece), user=caller.user) for piece in pieces
    ]


def still_wanted(core: AdmissionCore, verb: Verb, facts: Sequence[f.OfJobs], drafted: Sequence[Fact]) -> list[Fact]:
    """Those of `facts` that would change something after what is drafted before them: a fact that can only be void is not
    written, or a hundred impatient callers would look like a writer that is stuck (PROTOCOL S4)."""
    kinds = (*get_args(f.Cancelled), _OF_JOB[verb], _OF_ARRAY[verb])
    before = {fact.unit for fact in drafted if isinstance(fact, f.AttemptReported)}
    for fact in drafted:
        if isinstance(fact, kinds):
            before.update(named(fact))
    return [fact for fact in facts if any(name not in before and _is_wanted(core, verb, name) for name in named(fact))]


def named(fact: f.OfJobs) -> Iterator[str]:
    """The units that the fact names."""
    if isinstance(fact, f.OfArray):
        return (element_id(fact.job, index) for index in specs.array(fact.elements, FINALS_MAX)[0])
    return iter((fact.job,))


def _is_wanted(core: AdmissionCore, verb: Verb, name: str) -> bool:
    unit = core.unit(name)
    return unit is not None and unit.state != "final" and not _holds_already(unit, verb)


def job_result(core: AdmissionCore, verb: Verb, result: JobResult, names: Sequence[str]) -> JobResult:
    """The answer for one job after its facts came back: failed if they came too late for all its units."""
    units = map(core.unit, names)
    if not names or any(unit is not None and _holds_now(unit, verb) for unit in units):
        return result
    units = map(core.unit, names)
    endings = {unit.final: None for unit in units if unit is not None and unit.final}
    ending = " or ".join(str(ending) for ending in endings) or "over"
    return failed_job(result.job, Refused("conflict", f"job {result.job} was {ending} before that", "jobs"))


def _holds_now(unit: Unit, verb: Verb) -> bool:
    if verb == "cancel":
        return unit.cancelled or unit.final == "cancelled"
    return unit.state != "final" and _holds_already(unit, verb)


def _change_job(core: AdmissionCore, caller: Caller, verb: Verb, name: str) -> tuple[JobResult, list[str]]:
    try:
        units = _units_of(core, caller, name)
        _refuse_final(name, verb, units)
    except Refused as refused:
        return failed_job(name, refused), []
    wanted = [unit.id for unit in units if unit.state != "final" and not _holds_already(unit, verb)]
    return JobResult(job=name), wanted


def failed_job(name: str, refused: Refused) -> JobResult:
    return JobResult(job=name, error=refused.problem())


def _units_of(core: AdmissionCore, caller: Caller, name: str) -> list[Unit]:
    """The units that `name` names and custody still knows, if the caller may act on them.  Raises `Refused`."""
    if JOB.match(name) is None and ELEMENT.match(name) is None:
        raise Refused("invalid", f"jobs: {name[:64]!r} is no job: 17, or 17_3 for an element of an array", "jobs")
    job = core.job(name)
    if job is None or not may_see(caller, job.dept):
        raise Refused("unknown", f"there is no job {name}, or it ended long ago", "jobs")
    if caller.role == "user" and job.user != caller.user:
        raise Refused("denied", f"job {name} is {job.user}'s: its owner or a manager of {job.dept} may do that", "jobs")
    names = core.units(name) if job_of(name) == name else [name]
    units = [unit for unit in map(core.unit, names) if unit is not None]
    if not units and job_of(name) != name:
        ago = "" if job.left or not job.is_array else ", or it ended long ago"
        raise Refused("unknown", f"job {job_of(name)} has no element {name}{ago}", "jobs")
    return units


def _refuse_final(name: str, verb: Verb, units: list[Unit]) -> None:
    """A cancelled job that is cancelled again is what was asked for."""
    if any(unit.state != "final" for unit in units):
        return
    endings = {unit.final: None for unit in units}
    if verb == "cancel" and list(endings) == ["cancelled"]:
        return
    ending = next(iter(endings)) if len(endings) == 1 else "final"
    raise Refused("conflict", f"job {name} is {ending} already", "jobs")


def _holds_already(unit: Unit, verb: Verb) -> bool:
    if verb == "cancel":
        return unit.cancelled
    return unit.held == (verb == "hold")


def may_see(caller: Caller, dept: str) -> bool:
    return caller.is_operator or caller.department == dept


# ------------------------------------------------------------------------------------------------------------ scale, hosts


def scale(
    core: AdmissionCore, caller: Caller, dept: str, request: ScaleSet, digest: str, now: float
) -> f.ScaleRequested:
    department = department_for(core, caller, dept, "web")
    if caller.role == "user":
        raise Refused("denied", f"{caller.user} is no manager of {dept}: only managers and operators scale it")
    most = department.web.instances_max if department.web else 0
    for field in ("minimum", "exact"):
        value = getattr(request, field)
        if value is not None and value > most:
            raise Refused("invalid", f"{field}: {value} instances; {dept} may have at most {most}", field)
    return f.ScaleRequested(
        dept=dept,
        user=caller.user,
        minimum=request.minimum,
        exact=request.exact,
        until=None if request.for_s is None else now + request.for_s,
        request=f"{request.request}{DIGEST_MARK}{digest}" if request.request else "",
    )


def change_host(core: AdmissionCore, caller: Caller, verb: str, request: HostNamed, now: float) -> list[Fact]:
    """Facts of host.cordon, drain and uncordon; none if it is so already."""
    adopted(core)
    if not caller.is_operator:
        raise Refused("denied", f"{caller.user} is no operator: only operators {verb} hosts")
    host = core.custody.state.hosts.get(request.host)
    if host is None:
        raise Refused("unknown", f"there is no host {request.host}", "host")
    if verb == "uncordon":
        if host.cordoned is None:
            return []
        return [f.HostUncordoned(host=request.host, reason=request.reason, user=caller.user)]
    reason = request.reason or f"{verb} by {caller.user}"
    deadline_s = request.deadline_s if isinstance(request, HostDrain) else None
    drain, until = verb == "drain", None if deadline_s is None else now + deadline_s
    if (host.cordoned, host.drain, host.drain_until) == (reason, drain, until):
        return []
    return [f.HostCordoned(host=request.host, reason=reason, user=caller.user, drain=drain, until=until)]


# ----------------------------------------------------------------------------------------------------------------- guests


def began(
    core: AdmissionCore,
    unit: str,
    attempt: int,
    addresses: tuple[str | None, ...],
    boots: tuple[str | None, ...] = (),
) -> list[Fact]:
    """All ranks have called.  No fact if the journal knows it already.  Raises `Refused` (conflict) if the attempt is over."""
    if standing(core, unit, attempt) != "live":
        raise Refused("conflict", "gone")
    known = core.unit(unit)
    assert known is not None
    if known.began_at is not None and known.addresses == addresses:
        return []
    return [f.AttemptBegan(unit=unit, attempt=attempt, addresses=addresses, boots=boots)]


def report(core: AdmissionCore, fact: f.AttemptReported, drafted: Sequence[Fact]) -> list[Fact]:
    """Raises `Refused` (conflict) if the report would be void in this view."""
    if any(isinstance(other, f.AttemptReported) and other.unit == fact.unit for other in drafted):
        raise Refused("conflict", "gone")
    if preconditions.report(core.custody, fact) is not None:
        raise Refused("conflict", "gone")
    return [fact]


def checkpoint(core: AdmissionCore, fact: f.CheckpointReported, now: float, drafted: Sequence[Fact]) -> list[Fact]:
    """A guest's checkpoint.  No fact if this call is known already.  Raises `Refused`: conflict if it would not count, limit if
    a running attempt says so too often: each is a fact in the journal for ever."""
    before, known = core.checkpoint(fact.unit), core.unit(fact.unit)
    if known is None or not counts(known, fact.attempt):
        raise Refused("conflict", "gone")
    if any(isinstance(other, f.CheckpointReported) and other.unit == fact.unit for other in drafted):
        raise Refused("unavailable", "another checkpoint of this job is on its way: come back")
    if before is None or before.attempt != fact.attempt:
        return [fact]
    if fact.request and before.request == fact.request:
        return []
    wait_s = before.at + adopted(core).limits.checkpoint_interval_s - now
    if known.live and known.attempt == fact.attempt and wait_s > 0:
        message = (
            f"the last checkpoint was {max(0.0, now - before.at):.1f} s ago: the next one counts in {wait_s:.1f} s"
        )
        raise Refused("limit", message, retry_after_s=wait_s)
    return [fact]
