"""Which waiting jobs a limit keeps waiting: of their user, their quality of service, or the department (`domain.usage_limits`).

Theory of operation
  Open attempts are counted for each account that has a limit, as the scheduler's `budgets` does, and each job that has one is
  noted there.  An attempt that opens or ends moves its accounts, and the jobs noted there are asked again.

Rules
  1. The answer names the limit and its account; how much is used changes too often for a list (`phoenix why` shows it).
  2. A new configuration starts the count again.
  3. All here is derived from the jobs and custody, and is no part of a dump.
"""

from __future__ import annotations

from schemas import reasons as because
from schemas.config import CloudConfig
from schemas.facts import JobSubmitted
from schemas.ids import job_of
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.usage_limits import WHOLE, Account, Bound, Much, bounds_on
from services.monitor.core.job import Job

NOTHING = Much()


class Limited:
    def __init__(self, custody: Custody, jobs: dict[str, Job]) -> None:
        self.custody, self.jobs = custody, jobs
        self.moves: dict[str, None] = {}
        self._config: CloudConfig | None = None
        self._clear()

    def _clear(self) -> None:
        self._used: dict[tuple[str, Account], Much] = {}
        self._jobs: dict[tuple[str, Account], dict[str, None]] = {}
        self._open: dict[str, None] = {}
        self._bounds: dict[tuple[str, str, str], tuple[Bound, ...]] = {}

    def concerns(self, fact: JobSubmitted) -> bool:
        """True if any limit bounds the job."""
        return bool(self._of(fact.dept, fact.user, fact.quality))

    def submitted(self, job: Job) -> None:
        for bound in self._of(job.dept, job.user, job.quality):
            self._jobs.setdefault((job.dept, bound.account), {})[job.job] = None

    def moved(self, unit: str, job: Job | None) -> None:
        """The unit, of that job, may have an open attempt that it had not, or the other way round."""
        if job is None or not self._of(job.dept, job.user, job.quality):
            return
        known = self.custody.state.units.get(unit)
        is_open = known is not None and known.state == "open"
        if is_open == (unit in self._open):
            return
        if is_open:
            self._open[unit] = None
        else:
            del self._open[unit]
        more = _much(job)
        for bound in self._of(job.dept, job.user, job.quality):
            key, by = (job.dept, bound.account), 1 if is_open else -1
            self._used[key] = self._used.get(key, NOTHING).plus(more, by)
            self.moves |= self._jobs.get(key, {})

    def moved_jobs(self) -> dict[str, None]:
        """Jobs whose answer may be another one than when this was asked last; some may be forgotten."""
        self._look()
        found, self.moves = self.moves, {}
        return found

    def forgotten(self, job: Job) -> None:
        for bound in self._of(job.dept, job.user, job.quality):
            self._jobs.get((job.dept, bound.account), {}).pop(job.job, None)

    def of(self, job: Job) -> Reason | None:
        """The limit that one more attempt of the job would exceed; None if there is none."""
        more = _much(job)
        for bound in self._of(job.dept, job.user, job.quality):
            used = self._used.get((job.dept, bound.account), NOTHING)
            exceeded = bound.exceeded(used.plus(more))
            if exceeded is not None:
                return _reason(bound.account, exceeded[0])
        return None

    def _of(self, dept: str, user: str, quality: str) -> tuple[Bound, ...]:
        self._look()
        key = (dept, user, quality)
        found = self._bounds.get(key)
        if found is None:
            department = self._config.department(dept) if self._config is not None else None
            found = () if department is None else tuple(bounds_on(department, user, quality))
            self._bounds[key] = found
        return found

    def _look(self) -> None:
        """Rule 2."""
        if self.custody.state.config is self._config:
            return
        self.moves |= {name: None for names in self._jobs.values() for name in names}
        self._config = self.custody.state.config
        self._clear()
        for job in self.jobs.values():
            self.submitted(job)
        for unit in self.custody.state.units:
            self.moved(unit, self.jobs.get(job_of(unit)))
        self.moves |= {name: None for names in self._jobs.values() for name in names}


def _much(job: Job) -> Much:
    return Much(1, job.size.times(job.nodes), job.nodes)


def _reason(account: Account, limit: str) -> Reason:
    if account == WHOLE:
        return because.DepartmentLimit(limit=limit)
    if account.user:
        return because.UserLimit(limit=limit, user=account.user, quality=account.quality)
    return because.QualityLimit(limit=limit, quality=account.quality)
