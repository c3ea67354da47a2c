"""Which attempts may be preempted now, in which order, and within which bounds.

Source of the bounds: Slurm's PreemptExemptTime (slurm.schedmd.com/preempt.html); those on numbers are ours.

Theory of operation
  Two things end attempts that have done nothing wrong: a *job*, where best-effort is preempted for production (`best_effort`),
  and a *notice*, when hosts must go back.  The bounds are on jobs: they can wait.  A notice is never refused, since web load
  must have its hosts within a second; there guarded units are chosen last (`policies/victims`, rule 2).  Both use the
  department's order of victims, with the same numbers for each attempt (`candidates`).

Rules
  1. `min_run_s`: no job preempts an attempt before it has run this long, counted from when its guests called; nor before they
     have, or it could be preempted again and again without ever having run.
  2. `preemptions_max`: no job preempts an attempt of a unit that has been preempted this often: for a job or on notice.
     Suspended attempts count, lost hosts do not.  From then on it runs to its end, and production may have to wait for that.
  3. `preemptions_per_hour_max`: within any hour, at most this many attempts of the department are preempted for jobs.
  4. All of it follows from the journal.  Time lifts rules 1 and 3 at known moments, for which the core is woken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from schemas.causes import Cause
from schemas.config import BatchPolicy
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.scheduler.core.batch.best_effort import BestEffort
from services.scheduler.core.batch.dispositions import Dispositions
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.state import State
from services.scheduler.core.policies import preemption_costs, registry
from services.scheduler.core.policies.victims import Candidate, HostLoad
from services.scheduler.core.state.forecast import Ending

HOUR_S: Final = 3600.0
REMEMBERED_MAX: Final = 10_000  # the highest bound that can be configured


class Guards:
    """`policy`: the department's settings now."""

    def __init__(self, custody: Custody, state: State, policy: Callable[[], BatchPolicy]) -> None:
        self.custody, self.state, self.policy = custody, state, policy

    def ended(self, cause: Cause | None) -> None:
        """An attempt was closed: remember it, if it was for a job."""
        if cause is not Cause.PREEMPTED:
            return
        now, times = self.custody.state.at, self.state.made_way
        times.append(now)
        del times[: max(self._past(now), len(times) - REMEMBERED_MAX)]

    def guarded(self, unit: str, now: float) -> bool:
        """Rules 1 and 2."""
        policy = self.policy()
        if policy.preemptions_max:
            again = self.state.again.get(unit)
            if again is not None and again.preempted >= policy.preemptions_max:
                return True
        if not policy.min_run_s:
            return False
        began_at = self.custody.state.units[unit].began_at
        return began_at is None or now < began_at + policy.min_run_s

    def left(self, now: float) -> int | None:
        """Rule 3: how many more may end for jobs now; None: no bound."""
        most = self.policy().preemptions_per_hour_max
        return max(0, most - (len(self.state.made_way) - self._past(now))) if most else None

    def marked(self, candidates: dict[str, Candidate], now: float) -> dict[str, Candidate]:
        """The candidates of a notice, with the guarded ones marked."""
        policy = self.policy()
        if not (policy.min_run_s or policy.preemptions_max):
            return candidates
        return {name: each._replace(guarded=self.guarded(name, now)) for name, each in candidates.items()}

    def next_moment(self, units: Iterable[str] | Mapping[str, None], after: float) -> float:
        """The first moment later than `after` at which time lifts a bound on one of `units`."""
        policy, found = self.policy(), NEVER
        if policy.min_run_s:
            known = self.custody.state.units
            began = (known[unit].began_at for unit in units)
            ends = (at + policy.min_run_s for at in began if at is not None)
            found = min((at for at in ends if at > after), default=NEVER)
        times = self.state.made_way
        first = self._past(after)
        if policy.preemptions_per_hour_max and first < len(times):
            found = min(found, times[first] + HOUR_S)
        return found

    def _past(self, now: float) -> int:
        """How many of those remembered are an hour old."""
        return bisect_right(self.state.made_way, now, key=lambda at: at + HOUR_S)


class Preemption:
    """`running`: open best-effort; a view of the core's."""

    def __init__(
        self, custody: Custody, jobs: Jobs, dispositions: Dispositions, guards: Guards, running: Mapping[str, None]
    ) -> None:
        self.custody, self.jobs, self.dispositions = custody, jobs, dispositions
        self.guards, self.running = guards, running

    def on_notice(self, hosts: list[HostLoad], now: float) -> dict[str, Candidate]:
        """The attempts on these hosts, as orders of victims see them."""
        return self.guards.marked(self._candidates(hosts, now), now)

    def best_effort(self, now: float) -> BestEffort:
        """Best-effort that runs, which of it may be preempted for a job now, and in which order."""
        return BestEffort(
            self.running,
            self.guarded_at(now),
            self.guards.left(now),
            lambda endings: self._in_order(endings, now),
            self.jobs.owner,
        )

    def guarded_at(self, now: float) -> Callable[[str], bool]:
        return lambda unit: self.guards.guarded(unit, now)

    def _in_order(self, endings: list[Ending], now: float) -> list[Ending]:
        """By the department's order of victims: all of them go, each from a host of its own."""
        each = {ending.unit: ending for ending in endings}
        alone = [HostLoad(unit, cordoned=False, units=(unit,)) for unit in each]
        choose = registry.victims(self.guards.policy().victims)
        return [each[unit] for unit in choose(alone, self._candidates(alone, now), len(alone)).victims]

    def _candidates(self, hosts: list[HostLoad], now: float) -> dict[str, Candidate]:
        jobs, ends, policy = self.jobs, self.dispositions, self.guards.policy()
        found = candidates(self.custody, hosts, now, jobs.used_s, ends.saved, self.running.__contains__, ends.kept_s)
        found = {unit: self._with_limit(each, now) for unit, each in found.items()}
        if policy.victims not in registry.COSTS:
            return found
        return preemption_costs.priced(self.custody, found, jobs.waited_s, policy.leases)

    def _with_limit(self, candidate: Candidate, now: float) -> Candidate:
        """The candidate with its user, its priority, the time that it has left, and how late its hosts would be clear."""
        unit, job = self.custody.state.units[candidate.unit], self.jobs.job(candidate.unit)
        since = now if unit.began_at is None else unit.began_at
        left_s = max(0.0, self.jobs.ends_at(unit.id, since) - now)
        found = candidate._replace(left_s=left_s, user=job.user, priority=self.jobs.priorities.asked(job))
        if unit.grace_s is None or self.dispositions.saved(unit.id):
            return found
        return found._replace(late_s=grace.late_s(self.custody, unit))


def candidates(
    custody: Custody,
    hosts: list[HostLoad],
    now: float,
    used_s: Callable[[str], float],
    saved: Callable[[str], bool],
    best_effort: Callable[[str], bool],
    kept_s: Callable[[str], float],
) -> dict[str, Candidate]:
    """The attempts on `hosts`.  Of a unit: `used_s`: how long it ran in suspended attempts; `saved`: whether it would be
    suspended; `best_effort`: whether it is; `kept_s`: how much of what it ran is in a checkpoint."""
    found: dict[str, Candidate] = {}
    for host in hosts:
        for name in host.units:
            if name not in found:
                unit = custody.state.units[name]
                running_s = used_s(name) + (0.0 if unit.began_at is None else max(0.0, now - unit.began_at))
                lost_s = 0.0 if saved(name) else max(0.0, running_s - kept_s(name))
                found[name] = Candidate(
                    name, unit.nodes, running_s, lost_s, best_effort(name), cores=unit.nodes * unit.size.cores
                )
    return found
