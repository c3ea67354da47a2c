"""How soon a batch department answers a notice.

Rules
  1. The policy's notice is answered at once (paper, II-B: "release resources immediately with the size demanded").
  2. A contract may give a longer one (`sharing.lending`).  Idle hosts go back at once then too, and nothing is placed
     meanwhile; but jobs are ended only when the policy's notice is left of it: whoever ends before that ends in peace.
  3. A victim that asked for a grace (`domain.grace`) is ended so much sooner than that, with the others of its notice: so its
     host is clear when theirs are.  Where the notice is too short for that, as the policy's mostly is, its host is given up
     with theirs, and is clear later: nobody gives up later for it.
"""

from __future__ import annotations

from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.custody import Custody


def due(custody: Custody, dept: str, now: float) -> int:
    """Hosts that `dept` must give back at `now`, though jobs end."""
    quota, held, config = custody.quota(dept), custody.held(dept), custody.state.config
    if config is None:
        return max(0, held - quota.hosts)
    notice_s = config.policy.notice_s  # both sums: each of them may be rounded, and a wake-up must find its time come
    levels = [level for level, by in quota.lowerings if by <= now + notice_s or by - notice_s <= now]
    return max(0, held - min(levels)) if levels else 0


def next_due(custody: Custody, dept: str, after: float) -> float:
    """When next after `after` hosts must be given back though jobs end; `NEVER` if there is no such time."""
    config = custody.state.config
    if config is None or custody.held(dept) <= custody.quota(dept).hosts:
        return NEVER
    times = [by - config.policy.notice_s for _, by in custody.quota(dept).lowerings]
    late_s = [0.0, *latenesses(custody, dept)]
    return min((at - early_s for at in times for early_s in late_s if at - early_s > after), default=NEVER)


def latenesses(custody: Custody, dept: str) -> list[float]:
    """How much longer hosts wait for jobs of `dept` that asked for it, of each that runs (rule 3)."""
    units = [custody.state.units[name] for name in custody.index.open.get(dept, ())]
    return [grace.late_s(custody, unit) for unit in units if unit.grace_s is not None]
