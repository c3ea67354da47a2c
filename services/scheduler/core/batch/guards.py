"""Bounds on preemption: whose attempt no job may end now, and how many more may end in this hour.

Source: Slurm's PreemptExemptTime (slurm.schedmd.com/preempt.html); the bounds on numbers are ours.

Theory of operation
  Two things end attempts that have done nothing wrong.  A *job* does, where best-effort makes way for production (`make_way`).
  A *notice* does, when hosts must go back.  The bounds are on jobs: they can wait.  A notice is never refused, since web load
  must have its hosts within a second; there whoever is guarded is chosen last (`policies/victims`, rule 2).

Rules
  1. `min_run_s`: no job ends an attempt before it has run for so long, counted from when its guests called; nor before they
     have, or it could be ended again and again without ever having run.
  2. `preemptions_max`: no job ends an attempt of a unit of which so many ended for somebody else: for a job or on notice.
     Suspended ones count, lost hosts do not.  From then on it runs to its end, and production may wait for that.
  3. `preemptions_per_hour_max`: in no hour more attempts of the department end for jobs.
  4. All of it follows from the journal.  Time lifts rules 1 and 3 at known moments, for which the core is woken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from schemas.config import BatchPolicy
from schemas.reasons import Code, Reason
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.scheduler.core.batch.state import State
from services.scheduler.core.policies.victims import Candidate

HOUR_S: Final = 3600.0
REMEMBERED_MAX: Final = 10_000  # the highest bound that can be configured


class Guards:
    """`policy`: the department's settings now."""

    def __init__(self, custody: Custody, state: State, policy: Callable[[], BatchPolicy]) -> None:
        self.custody, self.state, self.policy = custody, state, policy

    def ended(self, why: Reason) -> None:
        """An attempt was closed: remember it, if it was for a job."""
        if why.code is not Code.MADE_WAY:
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
        """The candidates of a notice, who is guarded among them told."""
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
