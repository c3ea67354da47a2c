"""Leases: accepted or refused at once, with what would be granted instead.  Pure but for writing times as text.

Theory of operation (InterGrid, 4.1: a local request whose interval is taken by other local ones is refused)
  A lease is a job whose duration is its walltime; the fact says when it starts.  Admission keeps the intervals of those it has
  accepted, asks `domain.timetable` whether one more fits, and fixes the start; the department's scheduler (order `leases`)
  then starts it on time, on hosts taken from whatever makes way.

Rules
  1. Only local leases collide.  A best-effort lease is accepted always: it waits for room and makes way.
  2. `advance` starts at the time given; `deadline` at the earliest time that lets it end in time; `immediate` now, or it is
     refused: also where hosts are lacking now that the timetable counts (`immediate_lease`).
  3. Counted are the usable hosts that the department may hold at most, at all hours (`windows`): none that is lost or
     cordoned, none in quarantine when the lease would start.  Beyond the department's guarantee, or where ordinary jobs may
     still run, a lease is accepted with a warning: that comes first, or is not ended for it.
  4. What is drafted counts as accepted: two requests that come together cannot both get the last hosts (compose, rule 3).
  5. A slot is free again when its lease has ended or was cancelled, and past its end in any case.
  6. A refusal names the time from which it collides, the other lease, and what would be accepted: the same later, and fewer
     nodes then.
  7. Answers have times to the millisecond.  One that is sent back is accepted: a start that is offered is rounded up, the
     latest end down, and an end less than a millisecond away from the present one is that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas import requests as r
from schemas.config import BatchPolicy, Department
from schemas.dimensions import DIMENSIONS, words
from schemas.facts import Fact
from schemas.ids import JOB
from schemas.size import size_of
from schemas.times import MILLISECOND_S, exact, not_after, not_before
from schemas.units import count
from services.admission.commands import compose
from services.admission.commands.compose import Caller
from services.admission.core import immediate_lease
from services.admission.core.admission import DIGEST_MARK, AdmissionCore, Job
from services.admission.storage.payloads import Packed, digest_of
from services.domain.leases import ORDER, certain, keeps_times, order_of
from services.domain.refusal import Refused
from services.domain.shape import Shape
from services.domain.timetable import FOREVER, Collision, Ground, Slot, Timetable, most

HORIZON_S: Final = 366 * 86400.0  # which hosts exist more than a year from now is unknown
LEASES_MAX: Final = 200  # of a department at a time: each new one is compared with all, in one step of this process
_FIELDS: Final = {  # of the job's request: of the lease's
    "walltime_s": "duration_s",
    "tasks": "nodes",
    **{dimension.per_node: dimension.field for dimension in DIMENSIONS},
}
NEW: Final = "new"  # the lease that is asked for, in a timetable
# TERM ends it at once, and not with 0: an attempt that makes way would count as completed.
HOLD_SCRIPT: Final = """#!/bin/sh
# Holds the machines of a lease until its end.
trap 'kill "$!" 2>/dev/null; exit 143' TERM
while :; do
    sleep 86400 &
    wait "$!"
done
"""


def digest(asked: r.LeaseCreate, packed: Packed) -> str:
    """Of all that is asked, its own id left out."""
    return digest_of((packed.digest, asked.kind, asked.start_s, asked.deadline_s)) if asked.request else ""


def create(
    core: AdmissionCore,
    caller: Caller,
    dept: str,
    asked: r.LeaseCreate,
    payload: str,
    digest: str,
    now: float,
    drafted: Sequence[Fact],
) -> f.JobSubmitted:
    """The fact of an accepted lease.  Raises `Refused`."""
    department = compose.department_for(core, caller, dept, "batch")
    _refuse_other_orders(department)
    try:
        job = compose.submit(core, caller, dept, asked.job(HOLD_SCRIPT), payload, digest, drafted)
    except Refused as refused:
        raise _in_its_words(refused) from None
    if asked.kind == "best-effort":
        return msgspec.structs.replace(job, lease=f.Lease(kind=asked.kind), best_effort=True)
    start_at = _start(core, department, job, asked, now, drafted)
    lease = f.Lease(kind=asked.kind, start_at=start_at, deadline_at=asked.deadline_s or 0.0)
    # Whatever its quality of service says: a time of its own is kept.
    return msgspec.structs.replace(job, lease=lease, best_effort=False)


def _in_its_words(refused: Refused) -> Refused:
    """A job's refusal, with the field named as leases name it."""
    field = _FIELDS.get(refused.field or "")
    if field in (None, refused.field):
        return refused
    return Refused(refused.code, refused.message.replace(f"{refused.field}:", f"{field}:", 1), field)


def _refuse_other_orders(department: Department) -> None:
    if not keeps_times(department):
        order = f'{department.name} has order = "{order_of(department)}", which keeps no times'
        message = f'kind: {order}; leases need order = "{ORDER}"'
        raise Refused("invalid", message, "kind")


def _start(
    core: AdmissionCore,
    department: Department,
    job: f.JobSubmitted,
    asked: r.LeaseCreate,
    now: float,
    drafted: Sequence[Fact],
) -> float:
    """When it starts (rule 2)."""
    start, start_max = _window(asked, now, compose.adopted(core).policy.skew_max_s)
    slots = _slots(core, department.name, now, drafted)
    if len(slots) >= LEASES_MAX:
        raise Refused("limit", f"{department.name} has {len(slots)} leases and may have {LEASES_MAX}: cancel some")
    table = Timetable(_ground(core, department, start), slots)
    wanted = Slot(NEW, start, start + job.walltime_s, part_of(job))
    found = table.earliest(wanted, start_max)
    now_able = None
    if asked.kind == "immediate":
        now_able = immediate_lease.standing(core, compose.adopted(core), department, wanted.part, slots, now)
    if found is None:
        nodes_max = wanted.part.nodes - 1 if now_able is None else min(wanted.part.nodes - 1, now_able.able)
        raise _refusal(department, table, wanted, start_max, asked, nodes_max)
    if now_able is not None and now_able.able < wanted.part.nodes:
        raise _too_few_now(wanted, now_able)
    return found


def _window(asked: r.LeaseCreate, now: float, skew_max_s: float) -> tuple[float, float]:
    """The earliest and the latest start that would do.  Raises `Refused`."""
    start_s, deadline_s = asked.start_s, asked.deadline_s
    if start_s is not None and start_s < now - skew_max_s:
        raise Refused("invalid", f"start_at: {utc(start_s)} has passed; it is {utc(now)}", "start_at")
    start = max(start_s or now, now)
    field, last = ("start_at", start) if deadline_s is None else ("deadline_at", deadline_s)
    if last > now + HORIZON_S:
        message = (
            f"{field}: {utc(last)} is more than {HORIZON_S / 86400:g} days ahead: the hosts of that time are unknown"
        )
        raise Refused("invalid", message, field)
    if deadline_s is None:
        return start, start
    if deadline_s - asked.duration_s < start:
        over = utc(start + asked.duration_s)
        raise Refused("invalid", f"deadline_at: it would be over at {over} at the earliest", "deadline_at")
    return start, deadline_s - asked.duration_s


# ------------------------------------------------------------------------------------------------------------ timetable


def part_of(job: f.JobSubmitted | Job) -> Shape:
    return Shape(job.nodes, job.size if isinstance(job, Job) else size_of(job), job.exclusive)


def _slots(core: AdmissionCore, dept: str, now: float, drafted: Sequence[Fact]) -> list[Slot]:
    """The local leases of a department that were accepted and are not over, in order of acceptance (rules 4 and 5)."""
    known: dict[str, Slot] = {}
    for name in core.reserved():
        job = core.job(name)
        if job is not None and job.lease is not None and job.dept == dept:
            known[name] = Slot(name, job.lease.start_at, job.lease.start_at + job.walltime_s, part_of(job))
    for fact in drafted:
        if isinstance(fact, f.JobSubmitted) and fact.lease is not None and fact.lease.local and fact.dept == dept:
            start = fact.lease.start_at
            known[fact.job] = Slot(fact.job, start, start + fact.walltime_s, part_of(fact))
        elif isinstance(fact, f.LeaseExtended) and fact.job in known:
            slot = known[fact.job]
            known[fact.job] = slot._replace(end=slot.start + fact.walltime_s)
    return [slot for slot in known.values() if slot.end > now]


def _ground(core: AdmissionCore, department: Department, start: float) -> Ground:
    """Rule 3."""
    hosts = core.custody.state.hosts
    usable = [
        host.size
        for host in hosts.values()
        if host.state not in ("lost", "absent") and host.cordoned is None and host.quarantine_until <= start
    ]
    return Ground(usable, certain(department)[1])


def warning(core: AdmissionCore, name: str, now: float) -> str:
    """Rule 3: what could keep an accepted lease waiting all the same; empty if nothing of that kind."""
    job = core.job(name)
    department = core.department(job.dept) if job is not None else None
    if job is None or job.lease is None or not job.lease.local or department is None:
        return ""
    start, end = job.lease.start_at, job.lease.start_at + job.walltime_s
    slots = [slot for slot in _slots(core, job.dept, now, ()) if slot.start < end and start < slot.end]
    hosts = max((_hosts_at(slots, max(start, slot.start)) for slot in slots), default=0)
    guarantee, _ = certain(department)
    told = []
    if hosts > guarantee and len(compose.adopted(core).departments) > 1:
        most = f"with it the leases of {job.dept} may need {count(hosts, 'host')} at a time"
        told.append(
            f"{most}, and {guarantee} are guaranteed: web demand and jobs that others run there may keep it waiting"
        )
    busy = _busy_hosts(core, job.dept, start)
    if busy and busy + _hosts_at(slots, start) > _ground(core, department, start).size:
        where = count(busy, "host")
        told.append(f"jobs that are not best-effort may still run on {where} when it starts: it waits for their end")
    return "; ".join(told)


def _busy_hosts(core: AdmissionCore, dept: str, at: float) -> int:
    """Hosts with jobs that are never preempted and may run beyond `at`."""
    busy: dict[str, None] = {}
    for name in core.custody.index.open.get(dept, ()):
        unit, job = core.unit(name), core.job(name)
        if unit is not None and job is not None and job.lease is None and not job.best_effort:
            begun = unit.began_at if unit.began_at is not None else unit.placed_at or at
            if begun + job.walltime_s > at:
                busy.update(dict.fromkeys(unit.hosts))
    return len(busy)


def _hosts_at(slots: Sequence[Slot], at: float) -> int:
    return sum(slot.part.nodes for slot in slots if slot.start <= at < slot.end)


# -------------------------------------------------------------------------------------------------------------- refusals


class _Offer(NamedTuple):
    """What would be accepted; `start` in UTC seconds."""

    nodes: int
    start: float
    lasts_s: float

    @property
    def end(self) -> float:
        return self.start + self.lasts_s

    def shown(self) -> r.LeaseOffer:
        return r.LeaseOffer(nodes=self.nodes, start_at=not_before(self.start), end_at=exact(self.end))


def _refusal(
    department: Department, table: Timetable, wanted: Slot, start_max: float, asked: r.LeaseCreate, nodes_max: int
) -> Refused:
    """`nodes_max`: of a smaller one that is offered."""
    collision = table.collision(wanted)
    assert collision is not None
    if table.alone(wanted) is not None:
        return _too_large(department, table, wanted)
    lasts_s = wanted.end - wanted.start
    nodes, start = _smaller(table, wanted, start_max, nodes_max)
    smaller = _Offer(nodes, start, lasts_s) if nodes else None
    later = table.earliest(wanted, FOREVER)
    earliest = None if later is None else _Offer(wanted.part.nodes, later, lasts_s)
    field = {"advance": "start_at", "deadline": "deadline_at"}.get(asked.kind, "kind")
    message = f"{field}: {_collides(collision)}; {_instead(earliest, smaller)}"
    return Refused("conflict", message, field, _details(collision.at, collision.leases, earliest, smaller))


def _too_few_now(wanted: Slot, found: immediate_lease.Standing) -> Refused:
    """Rule 2: of an immediate lease that fits into the timetable and has no hosts now."""
    part = wanted.part
    needs = f"{count(part.nodes, 'host')} with room for {words(part.size)}"
    message = f"kind: it needs {needs} now, and there {'is' if found.able == 1 else 'are'} {found.able or 'none'}"
    smaller = _Offer(found.able, wanted.start, wanted.end - wanted.start) if found.able else None
    ways = f"{_instead(None, smaller)}, or" if smaller else "possible instead:"
    instead = f"{ways} a time to come (start_at, deadline_at), or best-effort"
    details = _details(wanted.start, found.leases, None, smaller)
    return Refused("conflict", f"{message}: {', '.join(found.blockers)}; {instead}", "kind", details)


def _smaller(table: Timetable, wanted: Slot, start_max: float, nodes_max: int) -> tuple[int, float]:
    """The most nodes, up to `nodes_max`, for which there is a start up to `start_max`, and that start; 0 if there is none."""

    def start(nodes: int) -> float | None:
        return table.earliest(wanted._replace(part=wanted.part._replace(nodes=nodes)), start_max)

    nodes = most(nodes_max, lambda number: start(number) is not None)
    return nodes, (start(nodes) or wanted.start) if nodes else wanted.start


def _too_large(department: Department, table: Timetable, wanted: Slot) -> Refused:
    part, able = wanted.part, table.ground.able(wanted.part)
    maximum = certain(department)[1]
    limit = "" if maximum is None else f"; {department.name} may hold {maximum} of all hosts"
    size = f"{count(part.nodes, 'host')} with {words(part.size)} each"
    message = f"nodes: {size}; {able} can be counted on"
    return Refused("invalid", f"{message}{limit} (hosts that are lost or cordoned do not count)", "nodes")


def _collides(collision: Collision) -> str:
    with_whom = ", ".join(collision.leases)
    return f"at {utc(collision.at)} it collides with {'lease' if len(collision.leases) == 1 else 'leases'} {with_whom}"


def _details(
    at: float, collides_with: tuple[str, ...], earliest: _Offer | None, smaller: _Offer | None
) -> r.LeaseRefusal:
    return r.LeaseRefusal(
        at=exact(at),
        collides_with=collides_with,
        earliest=None if earliest is None else earliest.shown(),
        smaller=None if smaller is None else smaller.shown(),
    )


def _instead(earliest: _Offer | None, smaller: _Offer | None) -> str:
    ways = []
    if earliest is not None:
        ways.append(f"the same from {utc(earliest.start)} to {utc(earliest.end)}")
    if smaller is not None:
        size = f"{smaller.nodes} node{'s' if smaller.nodes > 1 else ''}"
        ways.append(f"{size} from {utc(smaller.start)} to {utc(smaller.end)}")
    return f"possible instead: {', or '.join(ways)}" if ways else "nothing smaller or later would fit either"


def utc(at: float) -> str:
    """To the second, as the command line takes it; a fraction is rounded up: what begins then is not too early."""
    whole = int(at) + (at > int(at))
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ------------------------------------------------------------------------------------------------------- extend and cancel


def named(core: AdmissionCore, caller: Caller, name: str) -> Job:
    """The lease of that name, not ended, if the caller may act on it.  Raises `Refused`."""
    compose.adopted(core)
    if JOB.match(name) is None:
        raise Refused(
            "invalid", f"lease: {name[:64]!r} is no lease: it is a number, as `phoenix lease list` shows", "lease"
        )
    job = core.job(name)
    if job is None or not compose.may_see(caller, job.dept):
        raise Refused("unknown", f"there is no lease {name}, or it ended long ago", "lease")
    if job.lease is None:
        raise Refused("invalid", f"lease: {name} is a job, not a lease: `phoenix cancel` ends jobs", "lease")
    if caller.role == "user" and job.user != caller.user:
        message = f"lease {name} is {job.user}'s: its owner or a manager of {job.dept} may do that"
        raise Refused("denied", message, "lease")
    return job


def extend(
    core: AdmissionCore, caller: Caller, asked: r.LeaseExtend, digest: str, now: float, drafted: Sequence[Fact]
) -> list[Fact]:
    """The fact of an extension; none if it lasts so long already.  Raises `Refused`."""
    job = named(core, caller, asked.lease)
    lease, unit = job.lease, core.unit(asked.lease)
    assert lease is not None
    lasts_s = next(
        (x.walltime_s for x in drafted if isinstance(x, f.LeaseExtended) and x.job == asked.lease), job.walltime_s
    )
    cancelled = any(isinstance(fact, f.JobCancelled) and fact.job == asked.lease for fact in drafted)
    over = lease.local and lease.start_at + lasts_s <= now
    if job.left == 0 or unit is None or unit.cancelled or cancelled or over:
        raise Refused("conflict", f"lease {asked.lease} has ended: create a new one", "lease")
    longer_s = _wanted_s(asked, lease, lasts_s)
    if longer_s == lasts_s:
        return []
    department = core.department(job.dept)
    assert department is not None
    most_s = (department.batch or BatchPolicy()).walltime_max_s
    if longer_s > most_s:
        message = f"it would last {longer_s:g} s in all, and {job.dept} allows {most_s:g} s"
        raise Refused("invalid", f"{_field(asked)}: {message}", _field(asked))
    if lease.local:
        _refuse_collision(core, department, asked, job, (lasts_s, longer_s), now, drafted)
    request = f"{asked.request}{DIGEST_MARK}{digest}" if asked.request else ""
    return [f.LeaseExtended(job=asked.lease, walltime_s=longer_s, user=caller.user, request=request)]


def _field(asked: r.LeaseExtend) -> str:
    return "until_at" if asked.by_s is None else "by_s"


def _wanted_s(asked: r.LeaseExtend, lease: f.Lease, lasts_s: float) -> float:
    """How long it is to last in all."""
    if asked.until_s is None:
        return lasts_s + (asked.by_s or 0.0)
    if not lease.local:
        message = f"until_at: the start of best-effort lease {asked.lease} is unknown: give a duration"
        raise Refused("invalid", message, "until_at")
    wanted_s = asked.until_s - lease.start_at
    if abs(wanted_s - lasts_s) < MILLISECOND_S:
        return lasts_s  # rule 7
    if wanted_s < lasts_s:
        message = f"until_at: it lasts until {utc(lease.start_at + lasts_s)} already, and a lease is not shortened"
        raise Refused("invalid", f"{message}: cancel it when it is no longer needed", "until_at")
    return wanted_s


def _refuse_collision(
    core: AdmissionCore,
    department: Department,
    asked: r.LeaseExtend,
    job: Job,
    seconds: tuple[float, float],
    now: float,
    drafted: Sequence[Fact],
) -> None:
    """`seconds`: how long it lasts and is to last."""
    assert job.lease is not None
    start, (lasts_s, longer_s) = job.lease.start_at, seconds
    table = Timetable(_ground(core, department, now), _slots(core, department.name, now, drafted))
    # From its present end on: what it has was promised, even if hosts have been lost since.
    collision = table.collision(Slot(asked.lease, start + lasts_s, start + longer_s, part_of(job)))
    if collision is None:
        return
    field, latest = _field(asked), collision.at
    message = f"{field}: {_collides(collision)}; it can last until {utc(latest)} at the latest"
    details = r.LeaseRefusal(at=exact(latest), collides_with=collision.leases, latest_end_at=not_after(latest))
    raise Refused("conflict", message, field, details)


def granted(core: AdmissionCore, name: str, asked: r.LeaseCreate | None, now: float) -> r.LeaseGranted:
    """The answer to a request that was granted; of a lease that was forgotten since, what was asked."""
    job = core.job(name)
    if job is None or job.lease is None:
        kind: r.LeaseKind = asked.kind if asked is not None else "best-effort"
        return r.LeaseGranted(lease=name, kind=kind, nodes=asked.nodes if asked is not None else 1)
    start = job.lease.start_at if job.lease.local else None
    return r.LeaseGranted(
        lease=name,
        kind=job.lease.kind,
        nodes=job.nodes,
        start_at=None if start is None else exact(start),
        end_at=None if start is None else exact(start + job.walltime_s),
        warning=warning(core, name, now),
    )
