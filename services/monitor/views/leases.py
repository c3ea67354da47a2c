"""Leases as people see them: what was promised, how far it is, and what it has used.

Rules
  1. States: *reserved* before its time, *waiting* (best-effort without room, or a local one that is late), *running* from its
     placement on, *suspended*, *ended*.  Only this view depends on the time: it is made when it is asked for.
  2. A local lease that waits when its time has passed is *ended*, and its ending is `missed`.
  3. What counts is what was kept for it: its size for the time between placement and end of each attempt.  The dimensions that
     have a word for such sums (`Dimension.hour`) are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas import reasons as because
from schemas.dimensions import DIMENSIONS
from schemas.facts import Lease
from schemas.reasons import Reason
from schemas.times import nearest
from services.domain.custody.state import Unit
from services.monitor.core.attempt import Attempt
from services.monitor.core.job import Job
from services.monitor.core.monitor import MonitorCore, plain_reason, unit_state
from services.monitor.views.times import iso, plain

MISSED = "missed"
TAKEN = (
    because.Reclaimed,
    because.Preempted,
    because.HostTaken,
    because.HostDrained,
)  # its hosts were wanted for something else; a lost one is no way made


def preempted(attempts: Iterable[Attempt]) -> int:
    """How many of them ended because their hosts were wanted for something else, whatever became of their work."""
    return sum(1 for attempt in attempts if attempt.why is not None and type(attempt.why) in TAKEN)


def times(job: Job, lease: Lease) -> dict[str, Any]:
    """What was asked for; best-effort ones have no times."""
    start = lease.start_at if lease.local else None
    return {
        "kind": lease.kind,
        "start_at": iso(start),
        "end_at": iso(None if start is None else start + job.walltime_s),
        "deadline_at": iso(lease.deadline_at or None),
    }


def leases(core: MonitorCore, department: str | None, now: float, *, ended: bool) -> list[dict[str, Any]]:
    """Those of a department (None: all), in order of acceptance; with `ended` also those that are over, as long as they are
    remembered."""
    known = [job.job for job in core.state.jobs.values() if job.terms is not None and department in (None, job.dept)]
    found = [view for name in known if (view := lease(core, name, now)) is not None]
    return [view for view in found if ended or view["state"] != "ended"]


def lease(core: MonitorCore, name: str, now: float) -> dict[str, Any] | None:
    """One lease; None if there is none of that name (any more)."""
    job, unit = core.state.jobs.get(name), core.custody.state.units.get(name)
    if job is None or job.terms is None or unit is None:
        return None
    attempts = core.state.attempts.get(name, [])
    state = _state(job, job.terms, unit, now)
    return {
        "lease": name,
        "name": job.name,
        "department": job.dept,
        "user": job.user,
        **times(job, job.terms),
        "state": state,
        "duration_s": job.walltime_s,
        "nodes": job.nodes,
        **job.size.fields(),
        "hosts": list(unit.hosts),
        "submitted_at": iso(job.submitted_at),
        "began_at": iso(next((a.began_at for a in attempts if a.began_at is not None), None)),
        "ended_at": iso(unit.ended_at if unit.state == "final" else None),
        "ending": _ending(job, job.terms, unit) if state == "ended" else None,
        "preempted": preempted(attempts),
        **_seconds("reserved", job, job.walltime_s),
        **_seconds("used", job, sum(_held_s(attempt, now) for attempt in attempts)),
        "reason": plain(_reason(core, job, unit, now)),
    }


def _reason(core: MonitorCore, job: Job, unit: Unit, now: float) -> Reason:
    """As of now: the journal says of a lease whose time has begun no more than when that was to be."""
    reason = core.reason(unit) if unit.state == "pending" else plain_reason(unit)
    if type(reason) is not because.LeaseStartsAt or job.terms is None or now < job.terms.start_at:
        return reason
    start, end = job.terms.start_at, job.terms.start_at + job.walltime_s
    if now >= end:
        return because.LeaseOver(starts_at=nearest(start), ends_at=nearest(end))
    return because.LeaseLate(late_s=round(now - start, 3), ends_at=nearest(end))


def _state(job: Job, asked: Lease, unit: Unit, now: float) -> str:
    """Rule 1."""
    state = unit_state(unit)
    if unit.state == "final":
        return "ended"
    if unit.state == "open":
        return "running"
    if asked.local and now >= asked.start_at + job.walltime_s:
        return "ended"
    if state == "suspended":
        return state
    return "reserved" if asked.local and now < asked.start_at else "waiting"


def _ending(job: Job, asked: Lease, unit: Unit) -> str:
    """Rule 2.  Such a lease is cancelled, without a user, when its time has passed."""
    passed = asked.local and (unit.ended_at is None or unit.ended_at >= asked.start_at + job.walltime_s)
    if unit.state != "final" or (unit.final == "cancelled" and passed):
        return MISSED
    return unit.end or MISSED


def _seconds(word: str, job: Job, held_s: float) -> dict[str, float]:
    """Rule 3: `core_s_used`, `gpu_s_used`."""
    amounts = zip(DIMENSIONS, job.size.times(job.nodes), strict=True)
    return {f"{d.hour}_s_{word}": round(amount * held_s, 3) for d, amount in amounts if d.hour}


def _held_s(attempt: Attempt, now: float) -> float:
    end = now if attempt.ended_at is None else attempt.ended_at
    return max(0.0, end - attempt.placed_at)
