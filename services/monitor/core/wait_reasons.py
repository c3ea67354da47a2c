"""Why a pending unit is not in the queue: its job waits for another one, its array runs as many elements as it may, or a limit
is reached (`limited`).

Theory of operation
  The answer is one for all pending units of a job.  Facts only note, in constant time, whose progress `moved`; the code that
  renders rows asks `restated` for the units whose answer is another one now.  So a refresh costs what waits for what has moved,
  and 10,000 elements are looked at when their answer changes, not with each fact.

Rules
  1. Conditions are the scheduler's (its `dependencies`): progress only grows, so what is met stays met.
  2. For a job that is forgotten there is no answer: the scheduler remembers longer.
  3. All here is derived from the jobs and custody, and is no part of a dump.
  4. A lease with a time slot was accepted: no limit keeps it from that.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from schemas import reasons as because
from schemas.facts import Dependency
from schemas.ids import element_id, job_of
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.monitor.core.job import Job
from services.monitor.core.limited import Limited

Verdict: TypeAlias = Literal["waits", "never"]  # of a dependency that keeps a job from starting


class Causes:
    def __init__(self, custody: Custody, jobs: dict[str, Job]) -> None:
        self.custody, self.jobs = custody, jobs
        self.waiters: dict[str, dict[str, None]] = {}  # job or element -> jobs that depend on it
        self.open: dict[str, dict[str, None]] = {}  # throttled array -> its open units
        self.pending_moves: dict[str, None] = {}
        self.limited = Limited(custody, jobs)
        self._told: dict[str, Reason | None] = {}  # job -> what `restated` said last
        for job in jobs.values():
            self.submitted(job)
        for unit in custody.state.units:
            self.moved(unit)

    def submitted(self, job: Job) -> None:
        self.limited.submitted(job)
        for dependency in job.after:
            self.waiters.setdefault(dependency.job, {})[job.job] = None

    def moved(self, unit: str) -> None:
        """The unit was placed, began, or is not open any more."""
        name = job_of(unit)
        job = self.jobs.get(name)
        self.limited.moved(unit, job)
        for key in (unit, name) if self.waiters else ():
            if key in self.waiters:
                self.pending_moves[key] = None
        if job is not None and job.throttle:
            self.pending_moves[name] = None
            known, opened = self.custody.state.units.get(unit), self.open.setdefault(name, {})
            if known is not None and known.state == "open":
                opened[unit] = None
            else:
                opened.pop(unit, None)

    def forgotten(self, job: Job) -> None:
        self.limited.forgotten(job)
        for dependency in job.after:
            waiting = self.waiters.get(dependency.job, {})
            waiting.pop(job.job, None)
            if not waiting:
                self.waiters.pop(dependency.job, None)
        self.open.pop(job.job, None)
        self.pending_moves.pop(job.job, None)
        self._told.pop(job.job, None)

    def of(self, job: Job) -> Reason | None:
        """Why its pending units may not start; None if hosts are all they wait for."""
        verdicts = [(self._verdict(dependency), dependency) for dependency in job.after]
        for wanted, kind in (("never", because.DependencyFailed), ("waits", because.Dependency)):
            for verdict, dependency in verdicts:
                if verdict == wanted:
                    return kind(condition=dependency.condition, job=dependency.job)
        running = len(self.open.get(job.job, ()))
        if job.throttle and running >= job.throttle:
            return because.ArrayThrottle(running=running)
        own_time = job.terms is not None and job.terms.local  # rule 4
        return None if own_time else self.limited.of(job)

    def never(self, job: Job) -> bool:
        """None of its pending units can ever start."""
        return any(self._verdict(dependency) == "never" for dependency in job.after)

    def _verdict(self, dependency: Dependency) -> Verdict | None:
        job = self.jobs.get(job_of(dependency.job))
        if job is None:
            return None  # rule 2
        if dependency.job != job.job:
            return _element(dependency, self.custody.state.units.get(dependency.job))
        if dependency.condition == "after":
            return "waits" if job.begun < job.units else None
        return _of(dependency, over=job.final >= job.units, bad=job.bad > 0)

    def restated(self) -> list[str]:
        """Units whose answer may be another one than when this was asked last."""
        jobs: dict[str, None] = {}
        for name in self.pending_moves:
            jobs |= self.waiters.get(name, {})
            if name in self.open:
                jobs[name] = None
        self.pending_moves.clear()
        jobs |= self.limited.moved_jobs()
        found: list[str] = []
        for name in jobs:
            job = self.jobs.get(name)
            if job is None:
                continue
            cause = self.of(job)
            if name not in self._told or self._told[name] != cause:
                self._told[name] = cause
                found += [element_id(name, i) for i in job.elements] or ([] if job.array else [name])
        return found


def _element(dependency: Dependency, unit: Unit | None) -> Verdict | None:
    if unit is None:
        return None
    if dependency.condition == "after":
        return None if unit.state == "final" or unit.began_at is not None else "waits"
    return _of(dependency, over=unit.state == "final", bad=unit.state == "final" and unit.final != "completed")


def _of(dependency: Dependency, *, over: bool, bad: bool) -> Verdict | None:
    if dependency.condition == "afterok" and bad:
        return "never"
    if not over:
        return "waits"
    return "never" if dependency.condition == "afternotok" and not bad else None
