"""Dependencies: may a job start, must it wait, or can it never start?  (sbatch's `--dependency`)

Rules
  1. `afterok`: all units of the named job (or the named element) completed.  `afternotok`: all are final and one did not
     complete.  `afterany`: all are final.  `after`: each has begun once, or is final.
  2. A job waits for all its dependencies; one that can never be met makes the whole job wait for ever, as Slurm's
     DependencyNeverSatisfied: a person decides what becomes of it.
  3. How a job ended is remembered of the newest `ENDED_MAX` only: of an older one `afterany` and `after` are met, the others
     never are.
  4. Met is for ever (the core drops met dependencies), so a requeued job does not wait again.
"""

from __future__ import annotations

from typing import Literal

from schemas.facts import Dependency
from schemas.ids import ELEMENT, job_of
from services.domain.custody.custody import Custody
from services.scheduler.core.batch.state import WHOLE, Job, State

Verdict = Literal["met", "waits", "never"]


def verdict(dependency: Dependency, state: State, custody: Custody) -> Verdict:
    name = job_of(dependency.job)
    job = state.jobs.get(name)
    if job is None:
        return _of_ended(dependency, state.ended.get(name))
    if ELEMENT.match(dependency.job) and job.array:
        return _of_element(dependency, job, custody)
    return _of_job(dependency, job)


def _of_ended(dependency: Dependency, bad: list[int] | None) -> Verdict:
    if dependency.condition in ("afterany", "after"):
        return "met"
    if bad is None:  # rule 3
        return "never"
    index = _index(dependency.job)
    failed = bool(bad) if index == WHOLE else index in bad
    return "met" if failed == (dependency.condition == "afternotok") else "never"


def _of_job(dependency: Dependency, job: Job) -> Verdict:
    """A job with units that are not final."""
    if dependency.condition == "after":
        return "met" if len(job.begun) == job.left else "waits"
    if dependency.condition == "afterok" and job.bad:
        return "never"
    return "waits"


def _of_element(dependency: Dependency, job: Job, custody: Custody) -> Verdict:
    """An element of an array that has not ended as a whole."""
    unit = dependency.job
    known = custody.state.units.get(unit)
    final = known is None or known.state == "final"
    if dependency.condition == "after":
        return "met" if final or unit in job.begun else "waits"
    if not final:
        return "waits"
    if dependency.condition == "afterany":
        return "met"
    return "met" if (unit in job.bad) == (dependency.condition == "afternotok") else "never"


def _index(unit: str) -> int:
    element = ELEMENT.match(unit)
    return int(element[2]) if element else WHOLE
