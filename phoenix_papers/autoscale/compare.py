"""`phoenix simulate phoenix-autoscale --compare`: what the paper's 80 %/20 s rule and target tracking cost, and what they lack.

Over- and under-capacity against the ideal (`rules`), and the hosts that move for it.

Rules
  1. A new instance serves BOOT_S after its placement, one that goes drains for DRAIN_S (the product's default), and load is
     told each SIGNAL_S, as in production; unless the person says otherwise.
  2. Beside the rules stand two numbers of instances that never change: the ideal's mean, rounded up, and its peak.
  3. `busiest_day` is the day (UTC) of the busiest moment, and WARM_UP_S of the day before: a load of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from phoenix.plugin.simulation import Outcome, WebPolicy, WebRecord, duration, render, share
from phoenix_papers.autoscale import trying
from phoenix_papers.autoscale.rules import PAPER, WARM_UP_S, Followed, Ideal, Load, Variant, followed, tracking

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOOT_S: Final = 30.0  # a virtual machine with its service
SIGNAL_S: Final = 1.0
DRAIN_S: Final = WebPolicy().drain_s
VARIANTS: Final = (
    PAPER,
    tracking(tolerance=0.1),  # the product's defaults
    tracking(),
    tracking(down_s=0),
    trying.variant("down=0,down-limit=10% in 60s"),
    trying.variant("down=300,up-limit=2 in 60s"),
    trying.variant("down=300,forecast=7"),
    tracking(0.7, tolerance=0.1),
    trying.variant("rule=threshold,turns=6"),
)
PLOTTED: Final = (0, 1, 2)  # of them, over time
DAY_S: Final = 86_400.0


def fixed(load: Load, window_s: float, ideal: Ideal) -> list[Followed]:
    """Rule 2."""
    found = []
    for what, number in (("mean", math.ceil(ideal.mean_instances)), ("peak", ideal.peak_instances)):
        variant = Variant(f"always {number} ({what})", WebPolicy(instances_min=number, instances_max=number))
        record = WebRecord(department="web", levels=[(0.0, number, number)])
        outcome = Outcome(label=variant.label, hosts=number, window_s=window_s, host_cores=1, web=[record])
        outcome.held = [(0.0, "web", number)]
        found.append(followed(variant, load, outcome))
    return found


def busiest_day(load: Load) -> tuple[Load, float]:
    """Rule 3: that load, and how long it is."""
    busiest_s = max(load, key=lambda level: level[1])[0]
    since = max(0.0, math.floor(busiest_s / DAY_S) * DAY_S - WARM_UP_S)
    until = math.floor(busiest_s / DAY_S) * DAY_S + DAY_S
    before = [busy for at, busy in load if at <= since][-1:]
    inside = [(at - since, busy) for at, busy in load if since < at < until]
    return (*((0.0, busy) for busy in before), *inside), until - since


_HEAD: Final = ("RULE", "UNDER", "LONGEST", "OVERLOAD", "OVER", "HELD", "OF-IDEAL", "MOVED", "AN-HOUR", "MOST")


def table(runs: Sequence[Followed], ideal: Ideal, window_s: float) -> str:
    measured_h = (window_s - runs[0].measured_from_s) / 3600.0
    rows = [_row(run, ideal, measured_h) for run in runs]
    return f"{render(_HEAD, rows, right=' '.join(_HEAD[1:]))}\n\n{_MEANINGS}"


_MEANINGS: Final = """UNDER     instance-seconds below the ideal (instances are above 80 %), and the longest stretch of it
OVERLOAD  instance-seconds below the load itself (requests wait or are lost)
OVER      instance-seconds in service beyond the ideal
HELD      host-seconds from grant to return, so with boots and drains, and their share of the ideal's
MOVED     hosts that came or went, and in an hour; MOST: instances in service at once"""


def _row(run: Followed, ideal: Ideal, measured_h: float) -> list[str]:
    return [
        run.label,
        f"{run.short_instance_s:,.0f}",
        duration(run.longest_short_s),
        f"{run.overload_instance_s:,.0f}",
        f"{run.over_instance_s:,.0f}",
        f"{run.held_host_s:,.0f}",
        share(run.held_host_s / ideal.used_instance_s),
        f"{run.hosts_moved:,}",
        f"{run.hosts_moved / measured_h:.1f}",
        str(run.peak_instances),
    ]


def plot(runs: Sequence[Followed], caption: str) -> Figure:
    from phoenix_papers.autoscale.plot import Bar, capacity

    bars = [Bar(run.label, run.short_instance_s, run.over_instance_s, run.hosts_moved) for run in runs]
    return capacity(bars, caption=caption)
