"""Who may be preempted now, and in which order: what `make_way` and a notice ask the batch core.

Rules
  1. A notice may take anybody; who is guarded is told (`guards`).  A job may end best-effort alone, within the bounds.
  2. Both go by the department's order of victims, each attempt with the same numbers (`reclaim.candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.domain import grace
from services.domain.custody.custody import Custody
from services.scheduler.core.batch import reclaim
from services.scheduler.core.batch.book import Book
from services.scheduler.core.batch.endings import Endings
from services.scheduler.core.batch.guards import Guards
from services.scheduler.core.batch.make_way import BestEffort
from services.scheduler.core.policies import preemption_costs, registry
from services.scheduler.core.policies.victims import Candidate, HostLoad
from services.scheduler.core.state.forecast import Ending


class Preempting:
    """`running`: open best-effort; a view of the core's."""

    def __init__(
        self, custody: Custody, book: Book, endings: Endings, guards: Guards, running: Mapping[str, None]
    ) -> None:
        self.custody, self.book, self.endings, self.guards, self.running = custody, book, endings, guards, running

    def on_notice(self, hosts: list[HostLoad], now: float) -> dict[str, Candidate]:
        """The attempts on these hosts, as orders of victims see them."""
        return self.guards.marked(self._candidates(hosts, now), now)

    def best_effort(self, now: float) -> BestEffort:
        """Best-effort that runs, who of it may be ended for a job now, and who goes first."""
        return BestEffort(
            self.running,
            self.guarded_at(now),
            self.guards.left(now),
            lambda endings: self._in_order(endings, now),
            self.book.owner,
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
        book, endings, policy = self.book, self.endings, self.guards.policy()
        found = reclaim.candidates(
            self.custody, hosts, now, book.used_s, endings.saved, self.running.__contains__, endings.kept_s
        )
        found = {unit: self._with_limit(each, now) for unit, each in found.items()}
        if policy.victims not in registry.COSTS:
            return found
        return preemption_costs.priced(self.custody, found, book.waited_s, policy.leases)

    def _with_limit(self, candidate: Candidate, now: float) -> Candidate:
        """Whose it is, its priority, how much of its time it has left, and how long it would keep its hosts from others."""
        unit, job = self.custody.state.units[candidate.unit], self.book.job(candidate.unit)
        since = now if unit.began_at is None else unit.began_at
        left_s = max(0.0, self.book.ends_at(unit.id, since) - now)
        found = candidate._replace(left_s=left_s, user=job.user, priority=self.book.ranking.asked(job))
        if unit.grace_s is None or self.endings.saved(unit.id):
            return found
        return found._replace(late_s=grace.late_s(self.custody, unit))
