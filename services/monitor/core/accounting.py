"""How much each department held, used, lent, borrowed and lost, for how long: integrated exactly from the journal.

Theory of operation
  Between two facts nothing changes, so every sum is level times time.  Each department has one set of levels (hosts held,
  occupied, draining, own, …) that is added up when one of them changes; each open attempt is added up when it is over.  What
  is still running at the time of a read is closed off in a copy (`as_of`): a read changes nothing, and no clock is read here.

Rules
  1. Void facts count nothing.  Custody has folded the fact before; what was before it is remembered here.
  2. An attempt holds its cores from its placement until it is closed or reports; where it has whole hosts, those of the hosts
     (as fair share counts: `services.scheduler.core.state.usage`, rules 1 to 3).  A broken one is its scheduler's to close.
  3. Work is what ran since the guests called, or since the last checkpoint, until the attempt was broken or closed.  It is lost
     when the attempt is closed to be run again because its host was taken or production needed its room; if the unit is
     killed, so is what it had saved.  What was suspended is lost with an attempt that continues from it.  What is thrown away
     because a host or VM failed, or saving it did, is counted apart (`failed`).  Over its time, cancelled, failed by itself:
     not lost.
  4. A late success, or a checkpoint in the grace time, takes back what its attempt had lost, where it was counted; the unit
     ends once.
  5. To whom: the departments that claim the host, as the notice names them, in equal parts; if it names none, the reason; to
     production of the same department: `OWN_PRODUCTION`.
  6. Lent = max(0, own - held), borrowed = max(0, held - own), at every moment; what is its own says `sharing.lending`.  A
     draining host has no holder.  A cordoned one has no owner (`sharing.host_ownership`): its holder has it, and neither
     borrows it nor has lent another for it.
  7. A host is taken back by notice if its department held more than its quota when it gave it up.
  8. What was measured since the last full hour is `fresh`.  With the first fact of another hour everything is added up to the
     full hour before it, becomes `news` for the history, and goes into the book: both have the same sums.
  9. A lease with a start time waits from then on, not from its submission; one cancelled without a user has missed it
     (`leases`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from msgspec.structs import replace

from schemas import facts as f
from schemas.causes import FAILED, TAKEN, Cause
from schemas.facts import Disposal
from schemas.ids import is_instance, job_of
from schemas.size import size_of, total
from services.domain.custody.checkpoints import counts
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit
from services.monitor.core.accounting_hosts import HostTime
from services.monitor.core.accounting_state import Loss, News, Run, State, Work
from services.monitor.core.buckets import (
    BEST_EFFORT,
    DAY_MS,
    HOUR_MS,
    USED,
    Buckets,
    Row,
    Span,
    add,
    department,
    key,
    measure,
)
from services.monitor.core.goodput import FAULT, PREEMPTED, RETRIED, Goodput
from services.monitor.core.job import Job

OWN_PRODUCTION: Final = "(production)"
# no fact for longer: most of it is measured by the day, or its hours would take minutes
SILENCE_MAX_MS: Final = 60 * DAY_MS
NO_CLAIMANT: Final = (
    "(no claimant)"  # no department wanted the hosts: a window, hosts taken out of use, a changed configuration
)
_NO_NOTICE: Final = {Cause.PREEMPTED: OWN_PRODUCTION, Cause.DRAINED: "(cordoned)"}  # who has the host
_AGAIN: Final = (Disposal.REQUEUE, Disposal.KILL)
_KEPT: Final = (Disposal.SUSPEND, Disposal.MIGRATE)


class Accounting:
    """`jobs`: the read model's, as they are before the fact is folded."""

    def __init__(self, custody: Custody, jobs: dict[str, Job], state: State | None = None) -> None:
        self.custody, self.jobs = custody, jobs
        self.state = State() if state is None else state
        self.goodput = Goodput(self.state.goodput)
        self.hosts = HostTime(custody, self.state, custody.state.config)
        self.news = News()

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        """A fact that is not void; custody has folded it."""
        self.news.clear()
        now = round(meta.at * 1000)
        if now > self.state.at:
            self._pass(now)
        handler = _HANDLERS.get(type(fact))
        if handler is not None:
            handler(self, fact)
        for unit in meta.broken:
            run = self.state.runs.get(unit)
            if run is not None:
                run.broken_at = self.state.at
                self.hosts.weigh(self.custody.state.units[unit].dept)
        for unit in meta.unsaved:
            self._unsaved(unit)

    def as_of(self, now: int) -> Buckets:
        """What has not been added up yet, as of `now` (milliseconds, not before the last fact): to be added to what is kept."""
        other = self._ahead(now).state
        other.book.absorb(other.fresh)
        return other.book

    def to_tell(self, now: int) -> list[Buckets]:
        """All that the history does not have yet, as it would be if a fact came at `now`, and what is fresh then."""
        other = self._ahead(now)
        return [self.state.fresh, *other.news.hours, other.state.fresh]

    def _ahead(self, now: int) -> Accounting:
        """A copy, closed off as of `now`, that has not what was added up before."""
        mine = self.state
        runs = {name: replace(run) for name, run in mine.runs.items()}
        levels = {name: replace(level) for name, level in mine.levels.items()}
        book, fresh = Buckets(today=mine.book.today), Buckets(today=mine.book.today)
        copy = replace(mine, book=book, fresh=fresh, levels=levels, runs=runs, own=dict(mine.own))
        other = Accounting(self.custody, self.jobs, copy)
        if now > mine.at:
            other._pass(now)
        other._settle_all()
        return other

    def totals(self, now: int) -> dict[str, Span]:
        """By department, all that ever was, as of `now`: for counters."""
        found: dict[str, Span] = {}
        extra = self.as_of(max(now, self.state.at))
        for book in (self.state.book, self.state.fresh, extra):
            spans = [book.before, *(bucket.spans for bucket in book.kept.values())]
            for some in spans:
                for dept, span in some.items():
                    add(found.setdefault(dept, Span()), span)
        return found

    # ----------------------------------------------------------------------------------------------------------- time

    def _pass(self, now: int) -> None:
        """Time passes until `now`."""
        state, hour = self.state, now // HOUR_MS * HOUR_MS
        if state.began_at is None:
            state.began_at = state.at = state.site_since = now
            self._turn(now)
        if state.at < hour:
            self._close()  # before days turn, which would cut what is too old
            if hour - state.at > SILENCE_MAX_MS:
                self._turn(hour)
            self.hosts.flow(hour)
            self._settle_all()
            self._close()
            self._turn(hour)
        self.hosts.flow(now)

    def _turn(self, now: int) -> None:
        self.state.book.turn(now)
        self.state.fresh.turn(now)

    def _settle_all(self) -> None:
        for dept in self.state.levels:
            self.hosts.settle(dept)
        self.hosts.settle_site()
        for run in self.state.runs.values():
            self._use(run)
            run.settled += run.size.cores * (self.state.at - run.since)
            run.since = self.state.at

    def _close(self) -> None:
        """What was measured is added, and reported."""
        state, fresh = self.state, self.state.fresh
        if fresh.kept:
            self.news.hours.append(fresh)
            state.book.absorb(fresh)
            state.fresh = Buckets(today=state.book.today)

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _host(self, fact: f.HostFact) -> None:
        self.hosts.moved(fact.host)

    def _released(self, fact: f.HostReleased) -> None:
        was = self.state.hosts.get(fact.host)
        self.hosts.moved(fact.host)
        quota = self.custody.state.quotas.get(was.dept) if was is not None else None
        if was is not None and quota is not None and self.custody.held(was.dept) >= quota.hosts:
            self._here(was.dept).noticed_hosts += 1  # rule 7: it held one more

    def _seized(self, fact: f.HostSeized) -> None:
        self.hosts.moved(fact.host)
        self._here(fact.dept).seized_hosts += 1

    def _here(self, dept: str) -> Span:
        """Where to count what happens now."""
        return self.state.fresh.span(self.state.fresh.begin(self.state.at), dept)

    def _quota(self, fact: f.QuotaChanged) -> None:
        if fact.hosts < self.custody.held(fact.dept):
            self.state.claimants[fact.dept] = fact.claimants or (NO_CLAIMANT,)
        self.hosts.weigh(fact.dept)

    def _configured(self, fact: f.ConfigAdopted) -> None:
        self.hosts.config = fact.config
        self.hosts.own()

    # ----------------------------------------------------------------------------------------------------------- jobs

    def _row(self, name: str) -> Row:
        return self.state.fresh.row(self.state.fresh.begin(self.state.at), name)

    def _key(self, unit: str, dept: str) -> str:
        if is_instance(unit):
            return key(dept, "", "", "")
        job = self.jobs.get(job_of(unit))
        return key(dept, job.user, job.service, job.lease) if job is not None else key(dept, "", "", "")

    def _submitted(self, fact: f.JobSubmitted) -> None:
        lease = fact.job if fact.lease is not None else ""
        self._row(key(fact.dept, fact.user, fact.service, lease)).submitted += len(fact.array) or 1

    def _placed(self, fact: f.UnitPlaced) -> None:
        unit, state = self.custody.state.units[fact.unit], self.state
        whole = [self.custody.state.hosts[name].size for name in fact.hosts] if fact.exclusive else []
        job = self.jobs.get(job_of(fact.unit))
        run = state.runs[fact.unit] = Run(
            key=self._key(fact.unit, unit.dept),
            since=state.at,
            size=total(whole) if whole else size_of(fact).times(len(fact.hosts)),
            best_effort=job is not None and job.best_effort,
            before=state.work.pop(fact.unit, Work()),
        )
        if fact.attempt == 1 and job is not None:
            row = self._row(run.key)
            row.started += 1
            slot_at = job.terms.start_at if job.terms is not None and job.terms.local else 0.0
            row.waited += max(0, state.at - round(max(job.submitted_at, slot_at) * 1000))
        self.hosts.weigh(unit.dept)

    def _began(self, fact: f.AttemptBegan) -> None:
        run = self.state.runs.get(fact.unit)
        if run is not None and run.began_at is None:
            run.began_at = self.state.at
            self.state.losses.pop(fact.unit, None)  # what the attempt before has not saved by now it never will
            self.goodput.settle(fact.unit)

    def _checkpoint(self, fact: f.CheckpointReported) -> None:
        """While the attempt is open, or in its grace time: then nothing of what it had not saved is lost."""
        if not counts(self.custody.state.units.get(fact.unit), fact.attempt):
            return
        state = self.state
        run, loss, work = state.runs.get(fact.unit), state.losses.pop(fact.unit, None), state.work.get(fact.unit)
        if run is not None:
            run.save(state.at)
            run.before.kept += 0 if loss is None else loss.amount
        if loss is not None:
            self._account(fact.unit, loss, -1)
            self.goodput.save(fact.unit, loss.amount)
        if work is not None:
            work.kept += work.risked + (0 if loss is None else loss.amount)
            work.risked = 0

    def _closed(self, fact: f.AttemptClosed) -> None:
        run, unit = self.state.runs.get(fact.unit), self.custody.state.units[fact.unit]
        if run is not None:
            self._over(fact.unit, run)
            self.state.losses.pop(fact.unit, None)  # the attempt before can say nothing any more
            if fact.cause in TAKEN and fact.disposal in (*_KEPT, *_AGAIN):
                self._row(run.key).preempted += 1
            if fact.disposal in _KEPT:
                self.state.work[fact.unit] = Work(run.risked(self.state.at), run.before.kept)
            elif fact.disposal in _AGAIN and not unit.cancelled:
                self.state.work[fact.unit] = Work(0, run.before.kept)
                self._lose(fact.unit, run, fact, unit.dept)
            self._judge(fact, run)
        self._end(unit)

    def _judge(self, fact: f.AttemptClosed, run: Run) -> None:
        """What came of what it used (`goodput`)."""
        cause = PREEMPTED if fact.cause in TAKEN else FAULT if fact.cause in FAILED else ""
        self.goodput.settle(fact.unit)
        if is_instance(fact.unit):
            self.goodput.over(fact.unit, good=run.began_at is not None, cause=cause or "stopped")
        elif fact.disposal is Disposal.REQUEUE:
            self.goodput.doom(fact.unit, run.before.kept, cause or FAULT)
        elif fact.disposal is Disposal.KILL:
            self.goodput.over(fact.unit, good=False, cause=cause or "killed")

    def _reported(self, fact: f.AttemptReported) -> None:
        unit, run = self.custody.state.units[fact.unit], self.state.runs.get(fact.unit)
        if run is not None:
            self._over(fact.unit, run)
        elif fact.unit in self.state.losses:  # rule 4
            self._account(fact.unit, self.state.losses[fact.unit], -1)
        self._end(unit)
        if unit.state != "final":
            self.goodput.doom(unit.id, 0, RETRIED)

    def _cancelled(self, fact: f.Cancelled) -> None:
        for name in self.custody.changed:
            unit = self.custody.state.units[name]
            self._end(unit, unit.final if fact.user else "missed")

    def _department_closed(self, fact: f.DepartmentClosed) -> None:
        """Custody has ended every unit; which were not over before, the jobs still say."""
        for name, run in list(self.state.runs.items()):
            if run.key.startswith(f"{fact.dept}/"):
                self._over(name, run)
                served = is_instance(name) and run.began_at is not None
                self.goodput.over(name, good=served, cause="cancelled")
        for job in self.jobs.values():
            if job.dept == fact.dept and job.final < job.units:
                ended = self._row(key(job.dept, job.user, job.service, job.lease)).ended
                ended["cancelled"] = ended.get("cancelled", 0) + job.units - job.final
        for gone in (self.state.work, self.state.losses):
            for name in [
                n for n in gone if (unit := self.custody.state.units.get(n)) is None or unit.dept == fact.dept
            ]:
                del gone[name]
        self.goodput.close(fact.dept, "cancelled")

    def _end(self, unit: Unit, how: str | None = None) -> None:
        """The unit is over, if it is.  `how`, if custody does not say it."""
        if unit.final is None:
            return
        self.state.work.pop(unit.id, None)
        self.state.losses.pop(unit.id, None)
        self.goodput.over(unit.id, good=unit.final == "completed", cause=unit.final)
        if not is_instance(unit.id):
            ended = self._row(self._key(unit.id, unit.dept)).ended
            how = how or unit.end or ""
            ended[how] = ended.get(how, 0) + 1

    def _over(self, name: str, run: Run) -> None:
        self._use(run)
        self.goodput.used(name, department(run.key), run.settled + run.size.cores * (self.state.at - run.since))
        del self.state.runs[name]
        self.hosts.weigh(department(run.key))

    def _use(self, run: Run) -> None:
        """Add up what the attempt used until now."""
        book, dept = self.state.fresh, department(run.key)
        for begin, length in book.pieces(run.since, self.state.at):
            row = book.row(begin, run.key)
            measure(row, USED, run.size, length)
            if run.best_effort:
                measure(row, BEST_EFFORT, run.size, length)
            book.span(begin, dept).used += run.size.cores * length

    def _lose(self, name: str, run: Run, fact: f.AttemptClosed, dept: str) -> None:
        cause, to = fact.cause, tuple[str, ...]()
        if cause in _NO_NOTICE:
            to = (_NO_NOTICE[cause],)
        elif cause in TAKEN:
            to = self.state.claimants.get(dept, (f"({cause})",))
        elif cause not in FAILED:
            return
        killed = fact.disposal is Disposal.KILL
        amount = run.risked(self.state.at) + (run.before.kept if killed else 0)
        loss = self.state.losses[name] = Loss(run.key, self.state.at, amount, to)
        self._account(name, loss, 1)

    def _unsaved(self, name: str) -> None:
        """It waits to continue, and what was suspended turns out to be lost: all of it, or its start alone, if a checkpoint in
        the grace time has saved what it did."""
        work = self.state.work.get(name)
        if work is not None:
            of = self._key(name, self.custody.state.units[name].dept)
            loss = self.state.losses[name] = Loss(of, self.state.at, work.risked, ())
            self._account(name, loss, 1)
            self.goodput.doom(name, work.kept, FAULT)
            work.risked = 0

    def _account(self, name: str, loss: Loss, sign: int) -> None:
        """Count the unit's loss where it happened, or take it back there."""
        book = self.state.fresh
        begin, amount = book.begin(loss.at), sign * loss.amount
        if amount:
            self.news.losses += [(name, part, sign) for part in loss.parts()]
        row = book.row(begin, loss.key)
        span = book.span(begin, department(loss.key))
        if not loss.to:
            row.failed += amount
            span.failed += amount
        else:
            row.lost += amount
            span.lost += amount
            for part in loss.parts():
                span.lost_to[part.to[0]] = span.lost_to.get(part.to[0], 0) + sign * part.amount
        if sign < 0:
            row.recovered += loss.amount
            span.recovered += loss.amount

    def check(self) -> list[str]:
        """Invariants: rows add up to departments, open attempts are those of custody, and what was used is judged."""
        state, found = self.state, list[str]()
        for begin, bucket in [*state.book.kept.items(), *state.fresh.kept.items()]:
            rows: dict[str, int] = {}
            for name, row in bucket.rows.items():
                dept = department(name)
                rows[dept] = rows.get(dept, 0) + row.used
            found += [
                f"usage of {dept} at {begin} is {span.used} and its rows say {rows.get(dept, 0)}"
                for dept, span in bucket.spans.items()
                if span.used != rows.get(dept, 0)
            ]
        opened = {unit for units in self.custody.index.open.values() for unit in units}
        if opened != state.runs.keys():
            found.append(f"open attempts {sorted(opened)} are counted as {sorted(state.runs)}")
        return found + self.goodput.check(self._used())

    def _used(self) -> dict[str, int]:
        """By department, of attempts that are over."""
        state = self.state
        found = state.book.used()
        for dept, amount in state.fresh.used().items():
            found[dept] = found.get(dept, 0) + amount
        for run in state.runs.values():
            dept = department(run.key)
            found[dept] = found.get(dept, 0) - run.settled
        return found


_HANDLERS: dict[type, Callable[[Accounting, Any], None]] = {
    f.ConfigAdopted: Accounting._configured,
    f.QuotaChanged: Accounting._quota,
    f.HostDescribed: Accounting._host,
    f.HostRemoved: Accounting._host,
    f.HostCleared: Accounting._host,
    f.HostLost: Accounting._host,
    f.HostGranted: Accounting._host,
    f.HostCordoned: Accounting._host,
    f.HostUncordoned: Accounting._host,
    f.HostReleased: Accounting._released,
    f.HostSeized: Accounting._seized,
    f.JobSubmitted: Accounting._submitted,
    **dict.fromkeys(get_args(f.Cancelled), Accounting._cancelled),
    f.UnitPlaced: Accounting._placed,
    f.AttemptBegan: Accounting._began,
    f.CheckpointReported: Accounting._checkpoint,
    f.AttemptClosed: Accounting._closed,
    f.AttemptReported: Accounting._reported,
    f.DepartmentClosed: Accounting._department_closed,
}
