"""The read model: what people ask about, folded from the journal.  It decides nothing and writes nothing.

Theory of operation
  Custody has holders and live attempts; this fold adds what only people need: names and times of jobs, the
  life of each attempt with its reason, how long claims took, hosts by holder over time.  Everything here is bounded: what
  custody forgets is forgotten here too and lives on in the history.

Rules
  1. Void facts change nothing; they are counted by custody and shown.
  2. A claim opens when a web department's demand exceeds what it holds and closes when it holds what it demands: its length
     is the time from claim to granted hosts.
  3. `touched` names the units whose picture changed since it was last emptied: views re-render only those.  It is derived, not
     part of the dump.  What units wait for beside hosts is `wait_reasons`, derived too.
  4. How much each department held, used and lost, for how long, is `accounting`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.ids import element_id, job_of
from schemas.reasons import Reason
from schemas.size import size_of
from schemas.times import nearest
from services.domain.core import NEVER, Handlers, folding
from services.domain.custody.broken import why_broken
from services.domain.custody.checkpoints import counts
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import ENDED_EARLY, Unit
from services.domain.sharing.credit import CONCERNS as CREDITED
from services.domain.sharing.credit import Credits
from services.monitor.core import accounting_state, counters, loads, releases, series, service_levels
from services.monitor.core import host_history as moves
from services.monitor.core.accounting import Accounting
from services.monitor.core.attempt import Attempt, Checkpoint, cpu_s, measured, note
from services.monitor.core.counters import Tallies
from services.monitor.core.host_history import Moves
from services.monitor.core.idle import Idle
from services.monitor.core.job import Job
from services.monitor.core.series import Series
from services.monitor.core.service_levels import ServiceLevels
from services.monitor.core.wait_reasons import Causes

TIMELINE_MAX: Final = 20_000  # changes of ownership kept in memory; a day of one change in four seconds
CLAIMS_MAX: Final = 2_000
ATTEMPTS_MAX: Final = 50  # of one unit, the newest


class Claim(msgspec.Struct, kw_only=True):
    """A web department's claim: `hosts` short when it opened; `met_at` when it held what it demanded."""

    dept: str
    hosts: int
    at: float
    met_at: float | None = None


class _State(msgspec.Struct, kw_only=True):
    jobs: dict[str, Job] = {}
    attempts: dict[str, list[Attempt]] = {}
    open_claims: dict[str, Claim] = {}
    claims: list[Claim] = []
    timeline: list[tuple[float, dict[str, int]]] = []
    loads: loads.State = msgspec.field(default_factory=loads.State)
    scales: dict[str, f.ScaleRequested] = {}
    instances: dict[str, int] = {}  # wanted, by web department
    releases: dict[str, releases.Releases] = {}
    counts: dict[str, int] = {}  # completed, failed, killed, requeued, …
    turnaround_s: float = 0.0  # sum over completed units
    credits: Credits = msgspec.field(default_factory=Credits)
    accounts: accounting_state.State = msgspec.field(default_factory=accounting_state.State)
    idle: dict[str, float] = {}  # host -> since when it is empty (`idle`)
    levels: service_levels.State = msgspec.field(default_factory=service_levels.State)
    tallies: counters.State = msgspec.field(default_factory=counters.State)
    moves: moves.State = msgspec.field(default_factory=moves.State)
    paused: Reason | None = None  # of VMs that wait while starts are: why
    holds: dict[str, Reason] = {}  # unit held without a user, because it never starts -> why
    told: tuple[int, int] = (0, 0)  # place of the last valid fact: what is kept beside a snapshot must have come as far
    series: series.State = msgspec.field(default_factory=series.State)


class MonitorCore:
    # 3: snapshots; 4: series; 5: goodput, tallies of ends, waits and moves; 6: the hour that runs stands apart; 7: moves
    # 8: since when a web department is silent; 9: why a unit is held without a user, why starts are paused
    # 10: attempts that ended early, and what broke them; 11: a cordoned host is neither lent nor borrowed; 12: who is not ready
    # 13: use of attempts that did not report; 14: claimants of lost work; 15: reasons are types; 16: their times are text
    VERSION = 16

    def __init__(self, custody: Custody, watch: Callable[[f.Fact, Meta], None] | None = None) -> None:
        """`watch` is shown every fact after it was folded, void ones included; it must not change anything here."""
        self.custody = custody
        self.watch = watch
        self.state = _State()
        self._make_parts()
        self.touched: dict[str, None] = {}
        self.met: list[Claim] = []  # claims that the last fact met, for the history; no part of the dump

    def _make_parts(self) -> None:
        """What folds and derives with the core, from custody and state."""
        custody, state = self.custody, self.state
        self.causes = Causes(custody, state.jobs)
        self.accounting = Accounting(custody, state.jobs, state.accounts)
        self.idle = Idle(custody, state.idle)
        self.levels = ServiceLevels(custody, state.levels)
        self.moves = Moves(custody, state.moves)
        self.series = Series(state.series, state.levels)
        self.tallies = Tallies(custody, state.jobs, state.tallies)
        self._on = folding(
            dict.fromkeys(CREDITED, lambda fact, meta: state.credits.note(custody, fact, meta.at)),
            self._handlers(),
            self.idle.handlers,
            *self.levels.handlers,
            self.tallies.handlers,
            self.moves.handlers,
        )

    def _handlers(self) -> Handlers:
        return {
            f.JobSubmitted: self._submitted,
            **dict.fromkeys(get_args(f.OfJobs), self._jobs_changed),
            f.LeaseExtended: self._extended,
            f.UnitPlaced: self._placed,
            f.AttemptBegan: self._began,
            f.InstanceDraining: self._draining,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._reported,
            f.AttemptMeasured: self._measured,
            f.CheckpointReported: self._checkpointed,
            f.VmEnded: self._vm_ended,
            f.DepartmentClosed: self._department_closed,
            **dict.fromkeys((f.StartsPaused, f.StartsResumed), self._starts),
            f.DemandChanged: self._demand,
            f.LoadObserved: self._load,
            f.ScaleRequested: self._scaled,
            **dict.fromkeys((f.ReleaseRequested, f.ReleaseChanged), self._released),
        }

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.void is None:
            self._fold(fact, meta)
            self.state.told = (meta.position, meta.index)
        if self.watch is not None:
            self.watch(fact, meta)

    def _fold(self, fact: f.Fact, meta: Meta) -> None:
        if self.met:
            self.met = []
        self.accounting.apply(fact, meta)  # before the jobs are changed
        for handler in self._on.get(type(fact), ()):
            handler(fact, meta)
        if meta.broken:
            self.levels.count(fact, meta)
        for unit in meta.broken:
            self._broken(unit, meta)
        for unit in self.custody.forgotten:
            self._forget(unit)
        if type(fact) in _HOLDING:
            self._owners(meta.at)
            self._claims(meta.at)
        self.series.apply(fact, meta, self.state.timeline[-1][1] if self.state.timeline else {})

    def decide(self, _now: float) -> list[f.Fact]:
        return []

    def wake_at(self) -> float:
        return NEVER

    def check(self) -> list[str]:
        found = [f"{u} has attempts but no job" for u in self.state.attempts if not _has_owner(self, u)]
        found += [
            *self.accounting.check(),
            *self.idle.check(),
            *self.series.check(),
            *self.tallies.check(),
        ]
        return found + [
            f"claim of {c.dept} met before it opened" for c in self.state.claims if (c.met_at or c.at) < c.at
        ]

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=_State)
        self._make_parts()
        self.touched = dict.fromkeys(self.custody.state.units)

    # ----------------------------------------------------------------------------------------------------------- jobs

    def _submitted(self, fact: f.JobSubmitted, meta: Meta) -> None:
        self.state.jobs[fact.job] = Job(
            job=fact.job,
            dept=fact.dept,
            user=fact.user,
            name=fact.name,
            nodes=fact.nodes,
            size=size_of(fact),
            tasks=fact.tasks,
            walltime_s=fact.walltime_s,
            priority=fact.priority,
            on_reclaim=fact.on_reclaim,
            on_term=fact.on_term,
            grace_s=fact.grace_s,
            submitted_at=meta.at,
            units=len(fact.array) or 1,
            array=bool(fact.array),
            after=fact.after,
            throttle=fact.throttle if fact.array else 0,
            service=fact.service,
            best_effort=fact.best_effort,
            quality=fact.quality,
            constraint=fact.constraint,
            lease=fact.job if fact.lease is not None else "",
            terms=fact.lease,
            elements=fact.array if fact.after or fact.throttle or self.causes.limited.concerns(fact) else (),
        )
        self.causes.submitted(self.state.jobs[fact.job])
        for unit in [element_id(fact.job, i) for i in fact.array] or [fact.job]:
            self.touched[unit] = None

    def _jobs_changed(self, fact: f.OfJobs, meta: Meta) -> None:
        for name in self.custody.changed:
            self.touched[name] = None
            self.state.holds.pop(name, None)
            if isinstance(fact, f.JobHeld) and fact.reason is not None:
                self.state.holds[name] = fact.reason
            unit = self.custody.state.units.get(name)
            if unit is not None and unit.state == "final":
                self._finished(unit, meta)

    def _extended(self, fact: f.LeaseExtended, _meta: Meta) -> None:
        job = self.state.jobs.get(fact.job)
        if job is not None:
            job.walltime_s = fact.walltime_s
            self.touched[fact.job] = None

    def _placed(self, fact: f.UnitPlaced, meta: Meta) -> None:
        attempts = self.state.attempts.setdefault(fact.unit, [])
        life = self.custody.state.units[fact.unit].life
        new = Attempt(attempt=fact.attempt, hosts=fact.hosts, placed_at=meta.at, reason=fact.reason, life=life)
        attempts.append(new)
        del attempts[:-ATTEMPTS_MAX]
        self._touch(fact.unit)

    def _began(self, fact: f.AttemptBegan, meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None and attempt.began_at is None:
            self._first_begun(fact.unit)
            attempt.began_at = meta.at
        self._touch(fact.unit)

    def _draining(self, fact: f.InstanceDraining, meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None and attempt.draining_at is None:
            attempt.draining_at = meta.at

    def _closed(self, fact: f.AttemptClosed, meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None:
            attempt.ended_at = attempt.ended_at or meta.at
            attempt.disposal, attempt.why = fact.disposal.value, fact.why
        unit = self.custody.state.units.get(fact.unit)
        if unit is not None and unit.state == "final":
            self._finished(unit, meta)
        elif fact.disposal in _AGAIN:
            self._count(_AGAIN[fact.disposal])
        self._touch(fact.unit)

    def _reported(self, fact: f.AttemptReported, meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None:
            attempt.ended_at = attempt.ended_at or meta.at
            attempt.exit, attempt.signal, attempt.seconds = fact.exit, fact.signal, fact.seconds
            self._use(fact.unit, lambda: note(attempt, fact.cpu_seconds, fact.max_rss_mb))
            attempt.note, attempt.terminated = fact.note, fact.terminated
            if fact.terminated and attempt.why is None and attempt.broken is not None:
                attempt.why = why_broken(attempt.broken)  # no service can close it any longer
        unit = self.custody.state.units.get(fact.unit)
        if unit is not None and unit.state == "final":
            self._finished(unit, meta)
        else:
            self._count("retried")
        self._touch(fact.unit)

    def _measured(self, fact: f.AttemptMeasured, _meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None:
            self._use(fact.unit, lambda: measured(attempt, fact))

    def _use(self, name: str, change: Callable[[], None]) -> None:
        """What is said of an attempt changes: by how much its department's jobs have used more is counted."""
        attempts, unit = self.state.attempts[name], self.custody.state.units.get(name)
        before = cpu_s(attempts) or 0.0
        change()
        if unit is not None:
            self.tallies.used(unit.dept, (cpu_s(attempts) or 0.0) - before)

    def _checkpointed(self, fact: f.CheckpointReported, meta: Meta) -> None:
        attempt = self._attempt(fact.unit, fact.attempt)
        if attempt is not None and counts(self.custody.state.units.get(fact.unit), fact.attempt):
            attempt.checkpoint = Checkpoint(at=meta.at, files=fact.files, percent=fact.percent, progress=fact.progress)

    def _broken(self, unit: str, meta: Meta) -> None:
        attempts = self.state.attempts.get(unit)
        if attempts and attempts[-1].ended_at is None:
            attempts[-1].ended_at = meta.at
        if attempts:
            attempts[-1].broken = self.custody.state.units[unit].broken
        self.touched[unit] = None

    def _vm_ended(self, fact: f.VmEnded, _meta: Meta) -> None:
        self.touched[fact.unit] = None

    def _department_closed(self, fact: f.DepartmentClosed, meta: Meta) -> None:
        self._released(fact, meta)
        loads.closed(self.state.loads, fact.dept)
        self.state.open_claims.pop(fact.dept, None)  # it was not met, and has no owner any longer
        self.state.instances.pop(fact.dept, None)
        for unit in self.custody.state.units.values():
            if unit.dept == fact.dept and unit.ended_at == meta.at:
                self._finished(unit, meta)
                self.touched[unit.id] = None

    def _finished(self, unit: Unit, meta: Meta) -> None:
        job = self.state.jobs.get(job_of(unit.id))
        self.state.holds.pop(unit.id, None)
        if job is not None and unit.final is not None:
            self._first_begun(unit.id)
            job.final += 1
            job.bad += unit.final != "completed"
            self.causes.moved(unit.id)
            self._count(unit_state(unit))
            self.tallies.ended(unit.dept, unit_state(unit))
            if unit.final == "completed":
                self.state.turnaround_s += meta.at - job.submitted_at

    def _touch(self, unit: str) -> None:
        self.touched[unit] = None
        self.causes.moved(unit)

    def _first_begun(self, unit: str) -> None:
        """The unit begins, or ends: counted once."""
        job = self.state.jobs.get(job_of(unit))
        if job is not None and all(attempt.began_at is None for attempt in self.state.attempts.get(unit, ())):
            job.begun += 1

    def reason(self, unit: Unit) -> Reason:
        """Why the unit is where it is, as far as the journal tells; the scheduler tells more (`why`)."""
        job = self.state.jobs.get(job_of(unit.id))
        state = unit_state(unit)
        cause = self.causes.of(job) if job is not None and state in ("pending", "held") else None
        if state == "held" and (job is None or not self.causes.never(job)):
            # to release it is what helps first; where it can never start, not even that
            cause = self.state.holds.get(unit.id)
        if state == "starting":
            cause = self.state.paused
        return cause or _slot(job, unit) or plain_reason(unit)

    def _starts(self, fact: f.StartsPaused | f.StartsResumed, _meta: Meta) -> None:
        self.state.paused = None
        if isinstance(fact, f.StartsPaused):
            self.state.paused = because.Starting(paused_since=nearest(fact.since), paused_why=fact.why)
        for units in self.custody.index.open.values():
            self.touched |= {name: None for name in units if self.custody.state.units[name].began_at is None}

    def _attempt(self, unit: str, number: int) -> Attempt | None:
        return next((a for a in reversed(self.state.attempts.get(unit, ())) if a.attempt == number), None)

    def why(self, unit: str, number: int) -> Reason | None:
        """Why an attempt was ended; None of one that is not, or ended by itself."""
        attempt = self._attempt(unit, number)
        return None if attempt is None else attempt.why

    def _count(self, what: str) -> None:
        self.state.counts[what] = self.state.counts.get(what, 0) + 1

    def _forget(self, unit: str) -> None:
        """Custody has forgotten the unit: so do we; the history keeps it."""
        self.state.attempts.pop(unit, None)
        self.touched[unit] = None
        job = self.state.jobs.get(job_of(unit))
        if job is not None:
            job.gone += 1
            if job.gone >= job.units:
                del self.state.jobs[job.job]
                self.causes.forgotten(job)

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _owners(self, at: float) -> None:
        owners = {dept: len(hosts) for dept, hosts in sorted(self.custody.index.held.items()) if hosts}
        for state in ("free", "draining", "lost"):
            count = len(self.custody.index.by_state[state])
            if count:
                owners[f"({state})"] = count
        timeline = self.state.timeline
        if timeline and timeline[-1][0] == at:
            timeline[-1] = (at, owners)
        elif not timeline or timeline[-1][1] != owners:
            timeline.append((at, owners))
            if len(timeline) > TIMELINE_MAX + 1000:
                del timeline[:1000]

    def _claims(self, at: float) -> None:
        config = self.custody.state.config
        for department in config.departments if config else ():
            if department.kind == "web":
                self._claim(department.name, at)

    def _claim(self, dept: str, at: float) -> None:
        short = self.custody.state.demands.get(dept, 0) - self.custody.held(dept)
        claim = self.state.open_claims.get(dept)
        if short > 0 and claim is None:
            self.state.open_claims[dept] = Claim(dept=dept, hosts=short, at=at)
        elif short <= 0 and claim is not None:
            del self.state.open_claims[dept]
            claim.met_at = at
            self.state.claims.append(claim)
            self.met.append(claim)
            del self.state.claims[:-CLAIMS_MAX]

    def _demand(self, fact: f.DemandChanged, meta: Meta) -> None:
        if fact.instances is not None:
            self.state.instances[fact.dept] = fact.instances
            loads.demanded(self.state.loads, fact, meta)

    def _load(self, fact: f.LoadObserved, meta: Meta) -> None:
        loads.observed(self.state.loads, fact, meta, self.custody.state.config)

    def _scaled(self, fact: f.ScaleRequested, _meta: Meta) -> None:
        self.state.scales[fact.dept] = fact

    def _released(self, fact: f.Fact, meta: Meta) -> None:
        releases.note(self.state.releases, fact, meta)


def _has_owner(core: MonitorCore, unit: str) -> bool:
    return "." in unit or job_of(unit) in core.state.jobs


def unit_state(unit: Unit) -> str:
    """The state that people see: one of `phoenix show`'s."""
    if unit.state == "final":
        return unit.end or "completed"
    if unit.state == "open":
        if unit.broken is not None or unit.cancelled:
            return "completing"
        return "starting" if unit.began_at is None else "running"
    if unit.held:
        return "held"
    return "suspended" if unit.suspended else "pending"


def _slot(job: Job | None, unit: Unit) -> Reason | None:
    """Of a lease that has a time of its own and is on no hosts: that time."""
    if job is None or job.terms is None or not job.terms.local or unit_state(unit) != "pending":
        return None
    starts_at = job.terms.start_at
    return because.LeaseStartsAt(starts_at=nearest(starts_at), ends_at=nearest(starts_at + job.walltime_s))


def plain_reason(unit: Unit) -> Reason:
    """What custody alone can say about why a unit is where it is."""
    state = unit_state(unit)
    codes = {
        "held": because.Held,
        "starting": because.Starting,
        "running": because.Running,
        "pending": because.Queue,
        "suspended": because.Queue,
    }
    return because.Finished(end=ENDED_EARLY) if unit.early else codes.get(state, because.Finished)()


_HOLDING = frozenset({*series.OWNERSHIP, f.DemandChanged})  # who holds hosts, or wants more
_AGAIN = {f.Disposal.REQUEUE: "requeued", f.Disposal.SUSPEND: "suspended", f.Disposal.MIGRATE: "migrated"}
