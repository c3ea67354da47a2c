"""Quotas within contracts: no department may keep more of another's hosts than that one has agreed to lend.

Rules
  1. Levels are those of `phoenix.targets`, in the same order, and each is filled by weight as far as contracts let it: who can
     have no more does not hold up the others (`sharing.max_min.fill_within`).  What departments keep is a flow from owners to
     holders within the contracts (`sharing.loans`).  Of such flows nothing that is left is wasted: who cannot be raised at its
     turn cannot be raised later, and who is raised later takes nothing from those before.  So no idle host stays with its owner
     while a department that waits could borrow it.
  2. Web goes first, beside what each batch department demands of its guarantee and of what its contracts keep from web: its own
     hosts but for those that they lend web departments, as many as these want.  Without that, web would take the hosts of one
     that lends freely, which then borrows those that are not lent to web.
  3. Between batch departments what contracts keep from web counts as far as it is held; where wide jobs take turns, as far as
     it is occupied.
  4. A guarantee is part of what is a department's own, and own hosts need no contract: it is never cut.
  5. Hosts that no contract lets any department use stay free: their owner has them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.domain.sharing.loans import Limit, fit, kept_from_web
from services.domain.sharing.max_min import Part, fill_within
from services.provisioner.core.policies.phoenix import Claim, targets


def targets_within(claims: list[Claim], usable: int, first: str, own: Mapping[str, int], most: Limit) -> dict[str, int]:
    """As `targets`; `own`: each department's own hosts; `most`: what lenders lend borrowers."""
    names = [c.name for c in claims]
    if all(most(one, other) >= own.get(one, 0) for one in names for other in names if one != other):
        return targets(claims, usable, first)
    return targets(claims, usable, first, _Within(claims, usable, first, own, most).deal)


class _Within:
    """What contracts let departments have."""

    def __init__(self, claims: list[Claim], usable: int, first: str, own: Mapping[str, int], most: Limit) -> None:
        self.usable, self.own, self.most = usable, own, most
        batch = [c for c in claims if not c.web]
        web = {c.name: min(c.demand, c.maximum) for c in claims if c.web}
        self.web = dict.fromkeys(web)
        self.demanded, self.in_use = dict[str, int](), dict[str, int]()  # what web leaves, and what other batch leaves
        for claim in batch:
            used = claim.occupied if first not in ("", claim.name) else claim.held
            mine, wanted = own.get(claim.name, 0), min(max(claim.demand, claim.occupied), claim.maximum)
            kept, promised = kept_from_web(claim.name, mine, web, most), min(claim.guarantee, wanted, mine)
            self.demanded[claim.name] = max(promised, min(kept, wanted))
            self.in_use[claim.name] = max(promised, min(kept, wanted, used))

    def deal(self, parts: Sequence[Part], count: int, others: dict[str, int]) -> dict[str, int]:
        """Rule 1."""
        least = self.demanded if any(p.name in self.web for p in parts) else self.in_use

        def allowed(given: dict[str, int]) -> bool:
            quota = {**others, **given}
            return not self._beyond({n: max(hosts, least.get(n, 0)) for n, hosts in quota.items()})

        return fill_within(parts, count, allowed)

    def _beyond(self, quota: Mapping[str, int]) -> bool:
        """True if contracts do not lend so much."""
        return bool(fit(quota, self.own, self.usable, self.most, self.web).unmet)
