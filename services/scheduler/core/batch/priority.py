"""Ranks of jobs: by priority, or by points where the order is multi-factor.  A view of the core's state as of a moment.

Rules
  1. Without `order = "multi-factor"` a rank is minus the job's priority and that of its quality of service, whatever the time.
  2. With it, a rank is minus its points as of the last moment (`policies/order_multi_factor`); standings come from `usage`.
  3. Until an attempt is credited after the moment (`usage`, rule 5), the next fact may still belong before it: standings are
     computed again with each fact, ranks only if they differ.
  4. Best-effort comes after all production, whatever its priority.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from schemas.config import BatchPolicy
from schemas.ids import job_of
from schemas.size import total
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.scheduler.core.batch.state import Job, State
from services.scheduler.core.policies import order_multi_factor as multi
from services.scheduler.core.policies.order_multi_factor import Fair, Points
from services.scheduler.core.state.shape import Place
from services.scheduler.core.state.usage import Holding, Weights, weights, worth

BEHIND: Final = 1 << 50  # more than any priority: weights are at most 1e9 points, and there are six


class Priorities:
    """`job`: of a unit."""

    def __init__(self, custody: Custody, dept: str, state: State, job: Callable[[str], Job]) -> None:
        self.custody, self.dept, self.state, self.job = custody, dept, state, job
        self.policy = BatchPolicy()
        self.at = 0.0  # ranks are as of this moment
        self.fair: dict[str, Fair] = {}
        self.department = 0.0  # its factor
        self._of_user: dict[
            str, tuple[float, float]
        ]  # points of fair share, and of the user, as far as asked since a look
        self._seen: object = None  # what the last look at standings followed from

    @property
    def by_points(self) -> bool:
        return self.policy.order == multi.NAME

    @property
    def ages(self) -> bool:
        """Whether time changes priorities, in the configuration in force."""
        return self._configured().order == multi.NAME

    def look(self, now: float) -> bool:
        """Take in the moment of `now`; True if ranks may have changed."""
        if not self.stale(now):
            return False
        config, policy = self.custody.state.config, self._configured()
        self._seen, before = self._sources(now), (self.policy, self.at, self.fair, self.department)
        self.policy, self.at, self.fair = policy, self._moment(now, policy), {}
        self._of_user = {}
        if self.by_points:
            assert config is not None
            members = [user.name for user in config.users if user.department == self.dept]
            self.department = multi.department_factor(config, self.dept)
            self.fair = multi.fair(policy.multi_factor, self._standing(self.at), members)
        return before != (self.policy, self.at, self.fair, self.department)

    def stale(self, now: float) -> bool:
        """True if a look may show something new."""
        return self._seen != self._sources(now)

    def _sources(self, now: float) -> tuple[object, ...]:
        """What ranks follow from."""
        policy, config = self._configured(), self.custody.state.config
        if policy.order != multi.NAME:
            return (policy.quality,)
        at = self._moment(now, policy)
        return at, config, at == self.state.usage.moment or self.custody.state.position

    def _configured(self) -> BatchPolicy:
        config = self.custody.state.config
        department = config.department(self.dept) if config else None
        return (department.batch if department else None) or BatchPolicy()

    def _moment(self, now: float, policy: BatchPolicy) -> float:
        if policy.order != multi.NAME:
            return 0.0
        return max(multi.moment(max(now, self.custody.state.at), policy), self.state.usage.moment)

    def _standing(self, at: float) -> dict[str, float]:
        usage = self.state.usage
        if usage.moment == at:
            return usage.standing
        return usage.as_of(at, self._open(), self.policy.multi_factor.half_life_s)

    def next_moment(self, decided_at: float, jobs: Iterator[Job]) -> float:
        """When priorities may change, if nothing happens: while an attempt holds cores, or one of the waiting `jobs` ages.  A
        moment that only the fold has passed, and no decision, is still to come."""
        policy = self._configured()
        if not self.ages:
            return NEVER
        at = max(multi.moment(decided_at, policy), self.state.usage.moment)
        settings, first = policy.multi_factor, next(jobs, None)
        if first is None:
            return NEVER
        running = bool(self.custody.index.open.get(self.dept))
        grows = running or any(at - job.since < settings.age_full_s for job in chain((first,), jobs))
        return at + settings.period_s if grows else NEVER

    # ---------------------------------------------------------------------------------------------------------- ranks

    def rank(self, unit: str) -> int:
        job = self.job(unit)
        return (BEHIND if job.best_effort else 0) - self.priority(job)

    def priority(self, job: Job) -> int:
        """Higher first."""
        return self.points(job).priority if self.by_points else self.asked(job)

    def asked(self, job: Job) -> int:
        """The job's priority and that of its quality of service together: what counts where there are no points."""
        quality = self.policy.quality.get(job.quality)
        return job.priority if quality is None else job.priority + quality.priority

    def ranks(self, places: Sequence[Place]) -> list[int]:
        """`rank` of units of one lane, in bulk: there may be ten thousand at a moment."""
        if not self.by_points:
            return [self.rank(place.unit) for place in places]
        jobs, settings, at, floor = self.state.jobs, self.policy.multi_factor, self.at, math.floor
        of_user, weight, full_s = self._of_user, settings.weight_age, settings.age_full_s
        of_asked: dict[tuple[int, str], tuple[int, float, float, float]] = {}
        found: list[int] = []
        for _, _, unit in places:
            job = jobs[job_of(unit)]
            asked, user = of_asked.get((job.priority, job.quality)), of_user.get(job.user)
            if asked is None:
                _, _, size, quality, _, department = self.points(job)
                behind = BEHIND if job.best_effort else 0
                asked = of_asked[job.priority, job.quality] = behind, size, quality, department
            if user is None:
                points = self.points(job)
                user = of_user[job.user] = points.fair_share, points.user
            age_s = at - job.since
            age = age_s / full_s if age_s > 0.0 else 0.0
            age = weight * (age if age < 1.0 else 1.0)
            behind, size, quality, department = asked
            found.append(behind - floor(age + user[0] + size + quality + user[1] + department))
        return found

    def points(self, job: Job) -> Points:
        standing = self.fair.get(job.user)
        return multi.points(
            self.policy.multi_factor,
            self.at - job.since,
            1.0 if standing is None else standing.factor,
            job.nodes * job.size.cores,
            self.asked(job),
            job.user,
            self.department,
        )

    # ---------------------------------------------------------------------------------------------------------- usage

    def over(self, unit: str, hosts: tuple[str, ...]) -> None:
        """The unit's attempt on these hosts is over: it is credited, and is open no more."""
        policy, now = self._configured(), self.custody.state.at
        holding = self._holding(unit, hosts, weights(policy.multi_factor))
        if holding is None:
            return
        usage, half_life_s = self.state.usage, policy.multi_factor.half_life_s
        moment = multi.moment(now, policy)
        if moment > usage.moment:
            usage.remember(moment, [*self._open(), holding], half_life_s)
        usage.credit(holding, now, half_life_s)

    def _open(self) -> list[Holding]:
        units = self.custody.state.units
        jobs = self.state.jobs  # not all are there while a snapshot is being loaded: custody comes first
        names = [n for n in self.custody.index.open.get(self.dept, ()) if job_of(n) in jobs]
        counted = weights(self._configured().multi_factor)
        found = [self._holding(name, units[name].hosts, counted) for name in names]
        return sorted(holding for holding in found if holding is not None)

    def _holding(self, name: str, hosts: tuple[str, ...], counted: Weights) -> Holding | None:
        unit, known = self.custody.state.units.get(name), self.custody.state.hosts
        if unit is None or unit.placed_at is None:
            return None
        whole = [known[host].size for host in hosts if host in known] if unit.exclusive else []
        cores = worth(total(whole), counted) if whole else unit.nodes * worth(unit.size, counted)
        return Holding(self.job(name).user, cores, unit.placed_at)
