"""What each policy is, for people: told once, in the docstring of its module, and read from there.

A docstring opens with a paragraph that says what the policy does; a paragraph that begins with "Source:" or "Sources:" says
where it is from; the whole is its theory of operation.  Modules of plug-ins are read in the same way.  What the docstring
does not say is here: which settings of the configuration the policy reads.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final, NamedTuple

from services.scheduler.core.policies import (
    order_conservative,
    order_easy,
    order_fcfs,
    order_first_fit,
    order_leases,
    order_multi_factor,
    order_shortest_first,
    order_svmsched,
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


class Entry(NamedTuple):
    """A policy that comes with Phoenix Cloud.  `settings`: keys of the department's table that this policy reads and others do
    not; a key that is a table stands for all that is in it."""

    name: str
    module: ModuleType
    settings: tuple[str, ...] = ()


ORDERS: Final = (
    Entry("first-fit", order_first_fit),
    Entry("fcfs", order_fcfs),
    Entry("easy", order_easy),
    Entry("conservative", order_conservative, ("reservations_max",)),
    Entry("svmsched", order_svmsched, ("services", "short_s", "w_cpu", "w_mem")),
    Entry("shortest-first", order_shortest_first),
    Entry("multi-factor", order_multi_factor, ("multi_factor",)),
    Entry("leases", order_leases, ("leases",)),
)
VICTIMS: Final = (
    Entry("smallest-shortest-spared", victims_smallest_shortest_spared),
    Entry("smallest-shortest", victims_smallest_shortest),
    Entry("youngest-first", victims_youngest_first),
    Entry("least-work-lost", victims_least_work_lost),
    Entry("minimum-waiting-time", victims_minimum_waiting_time),
    Entry("minimum-overhead", victims_minimum_overhead),
    Entry("combined", victims_combined),
)
RULES: Final = (
    Entry("threshold", scale_threshold, ("threshold", "window_s")),
    Entry("target-tracking", scale_target, ("target", "tolerance", "up_window_s", "down_window_s")),
)


def summary(theory: str) -> str:
    """What the policy does: the first paragraph, on one line."""
    return _line(theory.split("\n\n", 1)[0])


def source(theory: str) -> str:
    """Where it is from; empty if the theory does not say."""
    for paragraph in theory.split("\n\n"):
        word, colon, rest = paragraph.strip().partition(":")
        if colon and word in ("Source", "Sources"):
            return _line(rest)
    return ""


def _line(paragraph: str) -> str:
    return " ".join(paragraph.split())
