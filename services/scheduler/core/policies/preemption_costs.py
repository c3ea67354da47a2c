"""Whom to preempt for a lease: the three policies of InterGrid, as costs of which the least goes first.

Source: M. A. Salehi, A. N. Toosi, R. Buyya, Contention management in federated virtualized distributed systems, Software:
Practice and Experience 2013, 4.3.1 (eq. 1 and 2); after F. Hermenier et al., HPDC 2010, for the time that a suspension takes.

Theory of operation
  The paper gives scores of which the highest is preempted.  Its eq. 1 is one over a time, and eq. 2 adds that to a waiting
  time: seconds to their inverse.  Here both are costs, brought to 0 to 1 over all candidates before they are added, so that
  alpha = 0 is minimum waiting time and alpha = 1 minimum overhead, as the paper says of it.

Rules
  1. Waiting time: for how long the lease had waited in all when its attempt began.  Who has waited least goes first.
  2. Overhead (eq. 1): n (mem / s + mem / r) for n machines of mem each, one after the other, suspended at s and resumed at r.
  3. Combined (eq. 2): alpha · overhead + (1 - alpha) · waiting time, each less the least of all candidates, in parts of the
     most less the least; 0 where all are equal.
  4. Of equals the one whose machines are left soonest goes first (`victims`, rule 2), then the one submitted last (the paper:
     "younger").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from schemas.config import Leases
from services.domain.custody.custody import Custody
from services.scheduler.core.policies.victims import Candidate, newest_first


class Cost(NamedTuple):
    """What preempting a unit costs, by each policy."""

    unit: str
    waited_s: float
    overhead_s: float
    combined: float = 0.0
    grace_s: float = 0.0  # that it asked for (`domain.grace`)


def suspend_s(nodes: int, memory_mb: int, settings: Leases) -> float:
    """How long `nodes` machines of `memory_mb` take to be suspended, one after the other."""
    return nodes * memory_mb / settings.suspend_mb_per_s


def resume_s(nodes: int, memory_mb: int, settings: Leases) -> float:
    return nodes * memory_mb / settings.resume_mb_per_s


def overhead_s(nodes: int, memory_mb: int, settings: Leases) -> float:
    """Rule 2."""
    return suspend_s(nodes, memory_mb, settings) + resume_s(nodes, memory_mb, settings)


def combined(costs: Iterable[Cost], alpha: float) -> list[Cost]:
    """Rule 3: the same costs, with what they are together."""
    known = list(costs)
    waited, overhead = _parts([c.waited_s for c in known]), _parts([c.overhead_s for c in known])
    return [
        cost._replace(combined=alpha * v + (1 - alpha) * w) for cost, v, w in zip(known, overhead, waited, strict=True)
    ]


def _parts(values: Sequence[float]) -> list[float]:
    least, most = min(values, default=0.0), max(values, default=0.0)
    return [(value - least) / (most - least) if most > least else 0.0 for value in values]


def cheapest_first(costs: Iterable[Cost], settings: Leases) -> list[str]:
    """The units in the order in which they are preempted."""
    order = {"minimum-waiting-time": _by_waiting, "minimum-overhead": _by_overhead, "combined": _by_both}
    return [cost.unit for cost in sorted(combined(costs, settings.alpha), key=order[settings.victims])]


def priced(
    custody: Custody,
    candidates: Mapping[str, Candidate],
    waited_s: Callable[[str, float], float],
    settings: Leases,
) -> dict[str, Candidate]:
    """Candidates of a notice, with their costs.  `waited_s`: of a unit whose attempt began then."""
    costs = []
    for name in candidates:
        unit = custody.state.units[name]
        since = unit.began_at if unit.began_at is not None else unit.placed_at or 0.0
        costs.append(Cost(name, waited_s(name, since), overhead_s(unit.nodes, unit.size.memory_mb, settings)))
    return {
        cost.unit: candidates[cost.unit]._replace(
            waited_s=cost.waited_s, overhead_s=cost.overhead_s, combined=cost.combined
        )
        for cost in combined(costs, settings.alpha)
    }


def _by_waiting(cost: Cost) -> tuple[float, float, int, int]:
    return (
        cost.waited_s,  # 1. who has waited least
        cost.grace_s,  # 2. who leaves soonest
        *newest_first(cost.unit),  # 3. who was submitted last; unique
    )


def _by_overhead(cost: Cost) -> tuple[float, float, int, int]:
    return (
        cost.overhead_s,  # 1. whose suspension and resumption take least
        cost.grace_s,  # 2. who leaves soonest
        *newest_first(cost.unit),  # 3. who was submitted last; unique
    )


def _by_both(cost: Cost) -> tuple[float, float, int, int]:
    return (
        cost.combined,  # 1. least of both, weighed
        cost.grace_s,  # 2. who leaves soonest
        *newest_first(cost.unit),  # 3. who was submitted last; unique
    )
