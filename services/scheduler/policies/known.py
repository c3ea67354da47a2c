"""Every policy of the batch scheduler by its name in the configuration (`schemas.config.Order`, `schemas.config.Victims`)."""

from __future__ import annotations

from typing import Final

from services.scheduler.policies import (
    order_conservative,
    order_easy,
    order_fcfs,
    order_first_fit,
    order_shortest_first,
    order_svmsched,
    order_svmsched_shares,
    victims_least_work_lost,
    victims_smallest_shortest,
    victims_smallest_shortest_spared,
    victims_youngest_first,
)
from services.scheduler.policies.order import Order
from services.scheduler.policies.victims import Victims

ORDERS: Final[dict[str, Order]] = {
    "fcfs": Order(order_fcfs.plan),
    "first-fit": Order(order_first_fit.plan),
    "easy": Order(order_easy.plan, foresees=True, reserved=order_easy.reserved),
    "conservative": Order(order_conservative.plan, foresees=True, reservation=order_conservative.reservation),
    "shortest-first": Order(order_shortest_first.plan),
    "svmsched": Order(
        order_svmsched.plan,
        foresees=True,
        reserved=order_svmsched.reserved,
        why=order_svmsched.why,
        hosts=order_svmsched_shares.hosts_wanted,
    ),
}
VICTIMS: Final[dict[str, Victims]] = {
    "smallest-shortest": victims_smallest_shortest.choose,
    "smallest-shortest-spared": victims_smallest_shortest_spared.choose,
    "youngest-first": victims_youngest_first.choose,
    "least-work-lost": victims_least_work_lost.choose,
}
