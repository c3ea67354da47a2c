"""Every policy of the schedulers by its name in the configuration: those of `schemas.config`, and plug-ins.

Plug-ins are entered once, when a process starts (`services.scheduler.edge.plugins`), before any core is made; cores read only.

Rules
  1. A name that is not here is not replaced by another policy: who decides with it stops, and says why (`Exit.POLICY`).
  2. Who only folds goes on: that a policy was chosen once must not keep a journal from being read.
"""

from __future__ import annotations

from typing import Final, NoReturn

from services.domain.exits import Exit, Stop
from services.scheduler.core.policies import (
    order_conservative,
    order_easy,
    order_fcfs,
    order_first_fit,
    order_leases,
    order_shortest_first,
    order_svmsched,
    order_svmsched_shares,
    scale_target,
    scale_threshold,
    victims_combined,
    victims_least_work_lost,
    victims_minimum_overhead,
    victims_minimum_waiting_time,
    victims_smallest_shortest,
    victims_smallest_shortest_spared,
    victims_youngest_first,
)
from services.scheduler.core.policies.order import Order
from services.scheduler.core.policies.scale import Rule
from services.scheduler.core.policies.victims import Victims

ORDERS: Final[dict[str, Order]] = {
    "fcfs": Order(order_fcfs.plan),
    "first-fit": Order(order_first_fit.plan),
    "easy": Order(order_easy.plan, foresees=True),
    "conservative": Order(order_conservative.plan, foresees=True, reserves_for_all=True),
    "shortest-first": Order(order_shortest_first.plan),
    "svmsched": Order(order_svmsched.plan, foresees=True, makes_way=True, hosts=order_svmsched_shares.hosts_wanted),
    "leases": Order(order_leases.plan, foresees=True, makes_way=True, keeps_slots=True),
}
VICTIMS: Final[dict[str, Victims]] = {
    "smallest-shortest": victims_smallest_shortest.choose,
    "smallest-shortest-spared": victims_smallest_shortest_spared.choose,
    "youngest-first": victims_youngest_first.choose,
    "least-work-lost": victims_least_work_lost.choose,
    "minimum-waiting-time": victims_minimum_waiting_time.choose,
    "minimum-overhead": victims_minimum_overhead.choose,
    "combined": victims_combined.choose,
}
RULES: Final[dict[str, Rule]] = {"threshold": scale_threshold.RULE, "target-tracking": scale_target.RULE}
UNUSABLE: Final[dict[str, str]] = {}  # name of a plug-in that is installed -> why it is not in one of these tables


class Missing(Stop):
    """A policy that is asked is not here."""


def order(name: str) -> Order:
    """Raises `Missing` if it is not here (rule 1)."""
    return ORDERS.get(name) or _missing("order", name)


def victims(name: str) -> Victims:
    """Raises `Missing` if it is not here (rule 1)."""
    return VICTIMS.get(name) or _missing("victims", name)


def rule(name: str) -> Rule:
    """Raises `Missing` if it is not here (rule 1)."""
    return RULES.get(name) or _missing("rule", name)


def absent(kind: str, name: str) -> str:
    """Why this replica cannot go on with a policy that it does not have."""
    where = "install it where this service runs, and start it again"
    return f'the configuration in force names {kind} "{name}": {why_absent(name)}; {where}'


def why_absent(name: str) -> str:
    """The second half of a sentence that names the policy."""
    return UNUSABLE.get(name, "no package that is installed here brings it")


def _missing(kind: str, name: str) -> NoReturn:
    raise Missing(Exit.POLICY, absent(kind, name))
