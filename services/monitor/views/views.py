"""Pictures of the read model as JSON: what `phoenix queue`, `show`, `hosts`, `departments`, `top` and pages ask for.

Rules
  1. A unit's row is rendered once and kept until the unit changes (`rows`).  What has many of them is made in parts
     (`monitor.parts`), and leaves here as JSON.
  2. Times leave here in UTC, ISO 8601 with a Z.
  3. A view changes nothing.
  4. How long a unit has run is what counts towards its time limit: all attempts of its present life, that is since it was last
     started again, without the time in which it was suspended or moved (`ran_before_s`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from schemas import reasons as because
from schemas.config import Power
from schemas.dimensions import DIMENSIONS
from schemas.facts import ScaleRequested
from schemas.ids import is_instance, job_of, sort_key
from schemas.reasons import Reason
from services.domain import grace, readiness
from services.domain.custody.state import ENDED_EARLY, Host, Unit
from services.domain.sharing.host_ownership import Whereabouts
from services.domain.sharing.shortage import kept_from, shares_of_others
from services.domain.sharing.withheld import withheld
from services.domain.text import sentence
from services.monitor.core.attempt import Attempt
from services.monitor.core.job import Job
from services.monitor.core.monitor import Claim, MonitorCore, unit_state
from services.monitor.events import kept_json
from services.monitor.parts import RENDERED, Parts, Work
from services.monitor.views import job_usage, leases, lending, release_views
from services.monitor.views.rows import ENDED, Drawn, Rows
from services.monitor.views.times import iso, plain
from services.monitor.views.waiting import One

QUEUE_LIMIT = 100_000  # rows of one answer
QUEUE_BYTES = 16 << 20  # of its rows: 30,000 in full, all 100,000 in short
OF_SCHEDULER = (because.Queue, because.LeaseStartsAt)  # what the journal says and its scheduler says better


class _Array:
    """What its elements are together."""

    __slots__ = ("ended_at", "exits", "rows", "states")

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.states: Counter[str] = Counter()
        self.ended_at = 0.0
        self.exits: dict[int | None, None] = {}


class Views:
    """Renders one `MonitorCore`."""

    def __init__(self, core: MonitorCore) -> None:
        self.core = core
        self.told: Callable[[str, str], Reason | None] = lambda _department, _unit: None
        self.troubles: Callable[[str], Sequence[Reason]] = lambda _department: ()
        self.measured: job_usage.Said = lambda _unit, _attempt: None
        self.rows = Rows(core, self._render, self._one)
        self.waiting = self.rows.waiting

    # ---------------------------------------------------------------------------------------------------------- queue

    def queue(
        self,
        department: str | None,
        states: frozenset[str] | None,
        limit: int = QUEUE_LIMIT,
        user: str | None = None,
        short: bool = False,
        bytes_max: int = QUEUE_BYTES,
    ) -> Parts[bytes]:
        """Units of jobs that are not over (or those in `states`), in order of submission: ``{"jobs": [row…], "total"}``, or
        with `short` ``{"lines": [line…], "total"}``; a line is [unit, name, department, user, state, nodes, cores, since
        hosts or reason], and of a lease its kind.  `since`: it has run from then on (rule 4), as if it had never
        been suspended or moved; null: it does not run."""
        found, total = yield from self.rows.queue(department, states, limit, user, short, bytes_max)
        name = b'{"lines":[' if short else b'{"jobs":['
        return name + b",".join(found) + b'],"total":%d}' % total

    def refresh(self) -> None:
        """Take in what has changed."""
        self.rows.refresh()

    def refreshing(self) -> Parts[None]:
        """The same, in parts."""
        return self.rows.refreshing()

    def _render(self, unit: Unit) -> Drawn:
        row = self.row(unit)
        line = [unit.id, row["name"], unit.dept, row["user"], row["state"], unit.nodes, row["cores"]]
        began_at = unit.began_at if unit.state == "open" else None  # of an earlier attempt it says nothing
        line.append(iso(None if began_at is None else began_at - row["ran_before_s"]))
        line.append(row["hosts"] or row["reason"])
        line += [row["lease"]["kind"]] if "lease" in row else []
        return kept_json(row), kept_json(line)

    def _one(self, unit: Unit) -> One:
        job = self.core.state.jobs.get(job_of(unit.id))
        size = job.size if job is not None else unit.size
        return One(unit.dept, self._waits_since(unit), plain(self.reason(unit)), size.times(unit.nodes))

    def _waits_since(self, unit: Unit) -> float:
        attempts = self.core.state.attempts.get(unit.id)
        ended_at = attempts[-1].ended_at if attempts else None
        job = self.core.state.jobs.get(job_of(unit.id))
        return ended_at if ended_at is not None else job.submitted_at if job is not None else 0.0

    def rendered(self, unit: str) -> bytes:
        """The unit's row of the queue, as it was rendered last."""
        return self.rows.drawn(unit)[0]

    def reason(self, unit: Unit) -> Reason:
        """As the journal tells, or its scheduler, of who is in the queue or has a time slot (`why_waiting`)."""
        known = self.core.reason(unit)
        return (self.told(unit.dept, unit.id) if type(known) in OF_SCHEDULER else None) or known

    def row(self, unit: Unit) -> dict[str, Any]:
        job = self.core.state.jobs.get(job_of(unit.id))
        attempts = self.core.state.attempts.get(unit.id, ())
        return {
            "job": job_of(unit.id),
            "unit": unit.id,
            "department": unit.dept,
            "user": job.user if job else "",
            "name": job.name if job else unit.id,
            "state": unit_state(unit),
            "nodes": unit.nodes,
            **(job.size if job else unit.size).fields(),
            "priority": job.priority if job else 0,
            "submitted_at": iso(job.submitted_at if job else None),
            "started_at": iso(unit.began_at if unit.state != "pending" else None),
            "ended_at": iso(unit.ended_at) if unit.state == "final" else None,
            "ran_before_s": ran_before_s(unit, attempts),
            "walltime_s": job.walltime_s if job else None,
            "attempt": unit.attempt,
            "hosts": list(unit.hosts),
            "exit_code": unit.exit if unit.state == "final" else None,
            "reason": plain(self.reason(unit)),
            **({"lease": leases.times(job, job.terms)} if job is not None and job.terms is not None else {}),
        }

    # ----------------------------------------------------------------------------------------------------------- jobs

    def leases(self, department: str | None, now: float, *, ended: bool = False) -> dict[str, Any]:
        return {"leases": leases.leases(self.core, department, now, ended=ended)}

    def lease(self, name: str, now: float) -> dict[str, Any] | None:
        return leases.lease(self.core, name, now)

    def department_of(self, job: str) -> str | None:
        """The department that a job, element or instance belongs to; None if it is not known (any more), which an element is
        not because its array is."""
        unit = self.core.custody.state.units.get(job)
        known = self.core.state.jobs.get(job)
        return unit.dept if unit else known.dept if known else None

    def job(
        self, name: str, now: float | None = None, *, rows: bool = True
    ) -> Parts[tuple[dict[str, Any], list[bytes]] | None]:
        """A job, or one element of an array, and of an array `rows` of its units as JSON; None if it is not known (any more).
        `now`: with what its attempts have had until then, if all are remembered (`ATTEMPTS_MAX`)."""
        units = self.core.custody.state.units
        job = self.core.state.jobs.get(job_of(name))
        if name in units:
            return {**self.row(units[name]), **self._life(units[name], now), **_ask(job)}, []
        if job is None or job.job != name or not job.array:
            return None
        found = yield from self._array(name, rows)
        states = found.states.keys()
        view = {
            "job": name,
            "unit": name,
            "department": job.dept,
            "user": job.user,
            "name": job.name,
            "state": _array_state(states),
            "submitted_at": iso(job.submitted_at),
            "ended_at": iso(found.ended_at) if states <= ENDED else None,
            "exit_code": _array_exit(found.exits) if states <= ENDED else None,
            "attempts": [],
            "counts": dict(sorted(found.states.items())),
            **_ask(job),
        }
        return view, found.rows

    def _array(self, name: str, rows: bool) -> Parts[_Array]:
        yield from self.refreshing()
        found, work = _Array(), Work()
        for element in self.rows.elements(name):
            unit = self.core.custody.state.units.get(element)
            if unit is None:
                continue  # gone since
            cost = 1
            if rows:
                cost = 1 if self.rows.is_drawn(element) else RENDERED
                found.rows.append(self.rendered(element))
            found.states[unit_state(unit)] += 1
            found.ended_at = max(found.ended_at, unit.ended_at or 0.0)
            found.exits[unit.exit] = None
            if work.add(cost):
                yield
        return found

    def _life(self, unit: Unit, now: float | None) -> dict[str, Any]:
        attempts = self.core.state.attempts.get(unit.id, ())
        spent = job_usage.of_attempts(unit.id, attempts, self.measured)
        return {
            **job_usage.of_job(spent),
            **({} if now is None or len(attempts) < unit.attempt else {"elapsed_s": elapsed_s(attempts, now)}),
            "attempts": [{**attempt_view(attempt), **own} for attempt, own in zip(attempts, spent, strict=True)],
            "preempted": leases.preempted(attempts),
        }

    # ---------------------------------------------------------------------------------------------- hosts, departments

    def hosts(self, at: float | None = None) -> dict[str, Any]:
        """`at` (default: the journal's time): the hour whose windows count in whose hosts they are."""
        custody = self.core.custody
        at = custody.state.at if at is None else at
        hosts, where = custody.state.hosts, lending.where(custody, at)
        return {"hosts": [self.host(hosts[name], where[name], at) for name in sorted(hosts)]}

    def host(self, host: Host, where: Whereabouts, at: float) -> dict[str, Any]:
        waiting = len(self.core.custody.index.parked.get(host.name, ()))
        return {**host_view(host, where, at), "vms_waiting": waiting, **self._idle(host, at)}

    def _idle(self, host: Host, at: float) -> dict[str, Any]:
        """Since when it is empty, and whether it could be switched off."""
        idle, power = self.core.idle, self.power
        return {"idle_since": iso(idle.since.get(host.name)), "power_saving": idle.is_candidate(host, power, at)}

    @property
    def power(self) -> Power:
        config = self.core.custody.state.config
        return config.power if config is not None else Power()

    def lending(self, at: float) -> dict[str, Any]:
        return lending.picture(self.core.custody, self.core.state.credits, at)

    def departments(self) -> dict[str, Any]:
        config = self.core.custody.state.config
        return {"departments": [self.department(d.name) for d in (config.departments if config else ())]}

    def department(self, name: str) -> dict[str, Any]:
        custody, state = self.core.custody, self.core.state
        config = custody.state.config.department(name) if custody.state.config else None
        jobs = self.counts(name)
        running = [
            u
            for u in custody.index.open.get(name, ())
            if is_instance(u) and unit_state(custody.state.units[u]) == "running"
        ]
        load, web = state.loads.last.get(name), config is not None and config.kind == "web"
        scale = state.scales.get(name)
        return {
            "department": name,
            "kind": config.kind if config else None,
            "weight": config.weight if config else None,
            "priority": config.priority if config else None,
            "guarantee": config.guarantee if config else 0,
            "maximum": config.maximum if config else None,
            "hosts_held": custody.held(name),
            "hosts_quota": custody.quota(name).hosts,
            "hosts_demanded": custody.state.demands.get(name, 0),
            "kept_by_guarantees": plain(kept_from(custody, name, custody.state.at)),
            "shares_of_others": plain(shares_of_others(custody, name, custody.state.at)),
            "withheld_by_contracts": plain(withheld(custody, name, custody.state.at)),
            "waits_for_savers": self._savers(name),
            "jobs": jobs,
            "instances_wanted": state.instances.get(name),
            "instances_running": len(running),
            **self._readiness(name, running),
            "utilisation": load.utilisation if load else None,
            "requests_per_s": load.requests_per_s if load else None,
            "errors_ratio": load.errors if load else None,
            "claim": load.claim if load else None,
            "signal_at": iso(load.at) if load else None,
            "signal_missing_since": iso(state.loads.silent.get(name)),
            "troubles": [{"reason": plain(one), "sentence": sentence(one)} for one in self.troubles(name)]
            if web
            else [],
            "scale": scale_view(scale) if scale else None,
            "release": release_views.summary(state.releases.get(name), self.core, name) if web else None,
        }

    def _savers(self, department: str) -> list[dict[str, Any]]:
        """Jobs with time to save on hosts that it waits for, who leaves soonest first."""
        custody = self.core.custody
        short = custody.state.demands.get(department, 0) - custody.held(department)
        found = grace.waited_for(custody, short) if short > 0 else []
        return [{"job": one.job, "host": one.host, "by": iso(one.by)} for one in found]

    def _readiness(self, department: str, running: list[str]) -> dict[str, Any]:
        """How many instances of a department serve, how many are not ready and what one of them answers, and since when fewer
        serve than are wanted."""
        custody, levels = self.core.custody, self.core.levels
        unready = [name for name in running if name in levels.state.unready]
        found = [levels.state.unready[name] for name in unready]
        short = levels.state.short.get(department)
        return {
            "instances_serving": sum(1 for name in running if levels.serves(custody.state.units[name])),
            "instances_not_ready": len(unready),
            "not_ready_since": iso(min(map(readiness.since, found), default=None)),
            "not_ready_answer": readiness.answer(min(found, key=readiness.since)) if found else None,
            "short_since": iso(short.short_at) if short is not None else None,
        }

    def releases(self, department: str) -> dict[str, Any]:
        state = self.core.state
        return release_views.shown(
            state.releases.get(department), self.core, department, state.instances.get(department)
        )

    def counts(self, department: str) -> dict[str, int]:
        """Jobs that are not over, by state."""
        self.refresh()
        counts = self.rows.counts(department)
        return {state: counts[state] for state in sorted(counts) if counts[state] and state not in ENDED}

    def instances(self, department: str) -> list[dict[str, Any]]:
        custody = self.core.custody
        names = sorted((u for u in custody.index.open.get(department, ()) if is_instance(u)), key=sort_key)
        return [self.row(custody.state.units[n]) for n in names]

    # -------------------------------------------------------------------------------------------------------- overview

    def overview(self) -> dict[str, Any]:
        custody, state = self.core.custody, self.core.state
        return {
            "position": custody.state.position,
            "at": iso(custody.state.at),
            "owners": state.timeline[-1][1] if state.timeline else {},
            **self.hosts(),
            **self.departments(),
            "counts": state.counts,
            "voids": custody.state.voids,
            "leaders": {
                name: {**plain(leader), "since": iso(leader.since)} for name, leader in custody.state.leaders.items()
            },
        }

    def summary(self, since: float) -> dict[str, Any]:
        """What became of jobs and claims; `since` bounds claims and the timeline (UTC seconds)."""
        state = self.core.state
        claims = [c for c in state.claims if c.at >= since]
        lengths = sorted((c.met_at or c.at) - c.at for c in claims)
        completed = state.counts.get("completed", 0) + state.counts.get(ENDED_EARLY, 0)
        return {
            "counts": state.counts,
            "mean_turnaround_s": state.turnaround_s / completed if completed else None,
            "claims": [claim_view(c) for c in claims],
            "claims_open": [claim_view(c) for c in state.open_claims.values()],
            "claim_median_s": lengths[len(lengths) // 2] if lengths else None,
            "claim_max_s": lengths[-1] if lengths else None,
            "timeline": [{"at": iso(at), "owners": owners} for at, owners in state.timeline if at >= since],
        }


def ran_before_s(unit: Unit, attempts: Iterable[Attempt]) -> float:
    """How long the unit ran in this life before its open or last attempt; of who is suspended, in all its attempts.  Seconds,
    of as many attempts as are remembered (`ATTEMPTS_MAX`)."""
    if unit.state == "pending" and not unit.suspended:
        return 0.0  # it starts again
    before = (a for a in attempts if a.attempt >= unit.life and (unit.suspended or a.attempt < unit.attempt))
    spans = (a.ended_at - a.began_at for a in before if a.began_at is not None and a.ended_at is not None)
    return round(sum(spans), 3)


def elapsed_s(attempts: Iterable[Attempt], now: float) -> float:
    """All attempts together, each from its placement to its end, in whole milliseconds of each time, as in the history."""
    spans = (round((now if a.ended_at is None else a.ended_at) * 1000) - round(a.placed_at * 1000) for a in attempts)
    return sum(max(0, span) for span in spans) / 1000


def attempt_view(a: Attempt) -> dict[str, Any]:
    return {
        "attempt": a.attempt,
        "hosts": list(a.hosts),
        "placed_at": iso(a.placed_at),
        "began_at": iso(a.began_at),
        "ended_at": iso(a.ended_at),
        "reason": plain(a.reason),
        "disposal": a.disposal,
        "why": plain(a.why),
        "exit": a.exit,
        "signal": a.signal,
        "seconds": a.seconds,
        "note": a.note,
        "terminated": a.terminated,
        "checkpoint": None if a.checkpoint is None else {**plain(a.checkpoint), "at": iso(a.checkpoint.at)},
    }


def claim_view(claim: Claim) -> dict[str, Any]:
    return {"department": claim.dept, "hosts": claim.hosts, "at": iso(claim.at), "met_at": iso(claim.met_at)}


def scale_view(fact: ScaleRequested) -> dict[str, Any]:
    return {"user": fact.user, "minimum": fact.minimum, "exact": fact.exact, "until": iso(fact.until)}


def host_view(host: Host, where: Whereabouts, at: float = 0.0) -> dict[str, Any]:
    """`at`: the time of the picture.  A quarantine that has ended by itself leaves the host on probation."""
    apart = host.quarantine_until > at
    return {
        "host": host.name,
        "state": host.state,
        "department": host.dept,
        **host.size.fields(),
        **{dimension.used: number for dimension, number in zip(DIMENSIONS, host.used, strict=True)},
        "units": sorted(host.units, key=sort_key),
        "vms": len(host.vms),
        "since": iso(host.since),
        "owner": where.owner,
        "lent": where.lent,
        "due_at": iso(where.due_at),
        "cordoned": host.cordoned,
        "drain": host.drain,
        "drain_until": iso(host.drain_until),
        "quarantine": host.quarantine if apart else None,
        "quarantine_until": iso(host.quarantine_until) if apart else None,
        "probation": host.quarantine if 0.0 < host.quarantine_until <= at else None,
        "lost": host.lost,
        "cluster": host.cluster,
        "labels": host.labels,
    }


def _ask(job: Job | None) -> dict[str, Any]:
    if job is None:
        return {}
    shared: dict[str, Any] = {"service": job.service} if job.service else {}
    if job.service or job.best_effort:
        shared["best_effort"] = job.best_effort
    if job.quality:
        shared["quality"] = job.quality
    if job.constraint:
        shared["constraint"] = job.constraint
    if job.grace_s is not None:
        shared["grace_s"] = job.grace_s
    return {"tasks": job.tasks, "on_reclaim": job.on_reclaim, "on_term": job.on_term, "array": job.array, **shared}


def _array_exit(codes: Iterable[int | None]) -> int | None:
    """The worst exit code; None if that would be a 0 although an element ended without one (cancelled, killed, timeout)."""
    worst = max((code for code in codes if code is not None), default=None)
    return None if worst == 0 and None in codes else worst


def _array_state(states: Iterable[str]) -> str:
    """An array is as far as its furthest living element; when all are over, the worst end counts."""
    order = ("running", "completing", "starting", "suspended", "pending", "held")
    ends = ("failed", "timeout", "killed", "cancelled", ENDED_EARLY, "completed")
    known = frozenset(states)
    return next((s for s in (*order, *ends) if s in known), "completed")
