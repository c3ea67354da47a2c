"""Pictures of the read model as JSON: what `phoenix queue`, `show`, `hosts`, `departments`, `top` and pages ask for.

Rules
  1. A unit's row is rendered once and kept until the unit changes: a queue of 10,000 is a join of ready bytes.
  2. Times leave here in UTC, ISO 8601 with a Z.
  3. A view changes nothing.
  4. How long a unit has run is what counts towards its time limit: all attempts of its present life, that is since it was last
     started anew, without the time in which it was suspended or moved (`ran_before_s`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from schemas import grace, readiness
from schemas.config import Power
from schemas.custody_state import ENDED_EARLY, Host, Unit
from schemas.ids import is_instance, job_of, sort_key
from schemas.kept import kept_from, shares_of_others
from schemas.reasons import Code, Reason
from schemas.sentences import sentence
from schemas.whereabouts import Whereabouts
from schemas.withheld import withheld
from services.monitor.core import MonitorCore, unit_state
from services.monitor.events import kept_json
from services.monitor.model.attempt import Attempt
from services.monitor.model.job import Job
from services.monitor.pictures import leases, lending, release_views, used
from services.monitor.pictures.times import iso, plain
from services.monitor.pictures.waiting import One, Waiting

ENDED = frozenset(("completed", ENDED_EARLY, "failed", "cancelled", "timeout", "killed", "stopped"))
QUEUE_LIMIT = 100_000  # rows of one answer
QUEUE_BYTES = 16 << 20  # of its rows: 30,000 in full, all 100,000 in short
OF_SCHEDULER = (Code.QUEUE, Code.LEASE_STARTS_AT)  # what the journal says and its scheduler says better


class _Row:
    """`drawn`: row and line of the queue, once somebody has asked for them (rule 1)."""

    __slots__ = ("dept", "drawn", "state", "user")

    def __init__(self, dept: str, user: str, state: str) -> None:
        self.dept, self.user, self.state = dept, user, state
        self.drawn: tuple[bytes, bytes] | None = None


class Views:
    """Renders one `MonitorCore`."""

    def __init__(self, core: MonitorCore) -> None:
        self.core = core
        self.told: Callable[[str, str], Reason | None] = lambda _department, _unit: None
        self.troubles: Callable[[str], Sequence[Reason]] = lambda _department: ()
        self.measured: used.Said = lambda _unit, _attempt: None
        self._rows: dict[str, _Row] = {}
        self._order: list[str] | None = None
        self._counts: dict[str, dict[str, int]] = {}  # department -> state -> units
        self.waiting = Waiting()

    # ---------------------------------------------------------------------------------------------------------- queue

    def queue(
        self,
        department: str | None,
        states: frozenset[str] | None,
        limit: int = QUEUE_LIMIT,
        user: str | None = None,
        short: bool = False,
        bytes_max: int = QUEUE_BYTES,
    ) -> bytes:
        """Units of jobs that are not over (or those in `states`), in order of submission: ``{"jobs": [row…], "total"}``, or
        with `short` ``{"lines": [line…], "total"}``; a line is [unit, name, department, user, state, nodes, cores, since
        (UTC seconds), hosts or reason], and of a lease its kind.  `since`: it has run from then on (rule 4), as if it had never
        been suspended or moved; null: it does not run."""
        self.refresh()
        if self._order is None:
            self._order = sorted(self._rows, key=sort_key)
        found, total, size = [], 0, 0
        for unit in self._order:
            kept = self._rows[unit]
            if department not in (None, kept.dept) or user not in (None, kept.user):
                continue
            if kept.state in states if states else kept.state not in ENDED:
                total += 1
                if total <= limit and size <= bytes_max:
                    one = self._drawn(unit)[short]
                    size += len(one)
                    found.append(one)
        name = b'{"lines":[' if short else b'{"jobs":['
        return name + b",".join(found) + b'],"total":%d}' % total

    def refresh(self) -> None:
        """Render what has changed."""
        units = self.core.custody.state.units
        for name in self.core.touched | dict.fromkeys(self.core.causes.restated()):
            unit = units.get(name)
            if unit is None or is_instance(name):
                self._drop(name)
            else:
                self._note(unit)
        self.core.touched = {}

    def _drop(self, name: str) -> None:
        had = self._rows.pop(name, None)
        if had is not None:
            self._order = None
            self._counts[had.dept][had.state] -= 1
            self.waiting.drop(name)

    def _note(self, unit: Unit) -> None:
        """What has changed of it is known; of what is over nothing is rendered until somebody asks."""
        name, state = unit.id, unit_state(unit)
        had = self._rows.get(name)
        if had is None:
            self._order = None
        else:
            self._counts[had.dept][had.state] -= 1
        counts = self._counts.setdefault(unit.dept, {})
        counts[state] = counts.get(state, 0) + 1
        job = self.core.state.jobs.get(job_of(name))
        self._rows[name] = _Row(unit.dept, job.user if job else "", state)
        if state in ENDED:
            self.waiting.drop(name)
        else:
            self._drawn(name)

    def _drawn(self, name: str) -> tuple[bytes, bytes]:
        """Its row and its line."""
        kept = self._rows[name]
        if kept.drawn is None:
            kept.drawn = self._render(self.core.custody.state.units[name])
        return kept.drawn

    def _render(self, unit: Unit) -> tuple[bytes, bytes]:
        name, row = unit.id, self.row(unit)
        line = [name, row["name"], unit.dept, row["user"], row["state"], unit.nodes, row["cores"]]
        began_at = unit.began_at if unit.state == "open" else None  # of an earlier attempt it says nothing
        line.append(None if began_at is None else began_at - row["ran_before_s"])
        line.append(row["hosts"] or row["reason"])
        line += [row["lease"]["kind"]] if "lease" in row else []
        self.waiting.note(name, row["state"], One(unit.dept, self._waits_since(unit), row["reason"]))
        return kept_json(row), kept_json(line)

    def _waits_since(self, unit: Unit) -> float:
        attempts = self.core.state.attempts.get(unit.id)
        ended_at = attempts[-1].ended_at if attempts else None
        job = self.core.state.jobs.get(job_of(unit.id))
        return ended_at if ended_at is not None else job.submitted_at if job is not None else 0.0

    def rendered(self, unit: str) -> bytes:
        """The unit's row of the queue, as it was rendered last."""
        return self._drawn(unit)[0]

    def reason(self, unit: Unit) -> Reason:
        """As the journal tells, or its scheduler, of who is in the queue or has a time slot (`why_waiting`)."""
        known = self.core.reason(unit)
        return (self.told(unit.dept, unit.id) if known.code in OF_SCHEDULER else None) or known

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
            "cores": job.cores if job else unit.cores,
            "memory_mb": job.memory_mb if job else unit.memory_mb,
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
        """The department that a job, element or instance belongs to; None if it is not known (any more)."""
        unit = self.core.custody.state.units.get(job)
        known = self.core.state.jobs.get(job_of(job))
        return unit.dept if unit else known.dept if known else None

    def job(self, name: str, now: float | None = None) -> dict[str, Any] | None:
        """A job with all its units, or one element of an array; None if it is not known (any more).  `now`: with what its
        attempts have had until then, if all are remembered (`ATTEMPTS_MAX`)."""
        units = self.core.custody.state.units
        if name in units:
            job = self.core.state.jobs.get(job_of(name))
            return {**self.row(units[name]), **self._life(units[name], now), **_ask(job)}
        job = self.core.state.jobs.get(name)
        if job is None or not job.array:
            return None
        mine = sorted((u for u in units.values() if job_of(u.id) == name), key=lambda u: sort_key(u.id))
        states = [unit_state(u) for u in mine]
        return {
            "job": name,
            "unit": name,
            "department": job.dept,
            "user": job.user,
            "name": job.name,
            "state": _array_state(states),
            "submitted_at": iso(job.submitted_at),
            "ended_at": iso(max((u.ended_at or 0.0 for u in mine), default=0.0)) if set(states) <= ENDED else None,
            "exit_code": _array_exit(mine) if set(states) <= ENDED else None,
            "attempts": [],
            "counts": {s: states.count(s) for s in sorted(set(states))},
            "units": [self.row(u) for u in mine],
            **_ask(job),
        }

    def _life(self, unit: Unit, now: float | None) -> dict[str, Any]:
        attempts = self.core.state.attempts.get(unit.id, ())
        spent = used.of_attempts(unit.id, attempts, self.measured)
        return {
            **used.of_job(spent),
            **({} if now is None or len(attempts) < unit.attempt else {"elapsed_s": elapsed_s(attempts, now)}),
            "attempts": [{**attempt_view(attempt), **own} for attempt, own in zip(attempts, spent, strict=True)],
            "preempted": leases.preempted(attempts),
            "units": [],
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
            "troubles": [{**plain(one), "sentence": sentence(one)} for one in self.troubles(name)] if web else [],
            "scale": plain(scale) if scale else None,
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
        counts = self._counts.get(department, {})
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
            "leaders": plain(custody.state.leaders),
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
            "claims": [plain(c) for c in claims],
            "claims_open": [plain(c) for c in state.open_claims.values()],
            "claim_median_s": lengths[len(lengths) // 2] if lengths else None,
            "claim_max_s": lengths[-1] if lengths else None,
            "timeline": [[at, owners] for at, owners in state.timeline if at >= since],
        }


def ran_before_s(unit: Unit, attempts: Iterable[Attempt]) -> float:
    """How long the unit ran in this life before its open or last attempt; of who is suspended, in all its attempts.  Seconds,
    of as many attempts as are remembered (`ATTEMPTS_MAX`)."""
    if unit.state == "pending" and not unit.suspended:
        return 0.0  # it begins anew
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


def host_view(host: Host, where: Whereabouts, at: float = 0.0) -> dict[str, Any]:
    """`at`: the time of the picture.  A quarantine that has ended by itself leaves the host on probation."""
    apart = host.quarantine_until > at
    return {
        "host": host.name,
        "state": host.state,
        "department": host.dept,
        "cores": host.cores,
        "memory_mb": host.memory_mb,
        "cores_used": host.cores_used,
        "memory_used_mb": host.memory_used_mb,
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


def _array_exit(units: Iterable[Unit]) -> int | None:
    """The worst exit code; None if that would be a 0 although an element ended without one (cancelled, killed, timeout)."""
    codes = [unit.exit for unit in units]
    worst = max((code for code in codes if code is not None), default=None)
    return None if worst == 0 and None in codes else worst


def _array_state(states: Iterable[str]) -> str:
    """An array is as far as its furthest living element; when all are over, the worst end counts."""
    order = ("running", "completing", "starting", "suspended", "pending", "held")
    ends = ("failed", "timeout", "killed", "cancelled", ENDED_EARLY, "completed")
    known = frozenset(states)
    return next((s for s in (*order, *ends) if s in known), "completed")
