"""Scaling rules on one load (the paper's §III-C): the scenarios, and how well instances followed the load.

The load is in busy instances: an instance serves `capacity` requests a second.  The ideal keeps each at LEVEL or less at every
moment: max(1, ceil(load / LEVEL)) instances.  It knows the load at once; a rule learns of it by an observation each SIGNAL_S.

Rules
  1. Unless a capacity is named, it is the one with which the busiest interval needs exactly `peak` instances at LEVEL (paper:
     "the peak resource demand is 64 virtual machines").  Requests are multiplied by `scale` first (paper: 2.22).
  2. The department is alone on hosts enough for twice the peak, one instance each: the rule is measured, not a shortage.
  3. Short: instances below the ideal, so that those in service are above LEVEL.  Over: instances in service beyond it.
     Overloaded: below the load itself, so that requests wait or are lost.  All in instance-seconds.  Hosts are held from grant
     to return, so while instances boot and drain as well; each that comes or goes has moved.
  4. Correlation and mean deviation compare instances in service and ideal at every moment, weighted by time.
  5. Every rule begins with one instance.  How it gets from there to what the first load needs is no following of a load, so
     the first WARM_UP_S are simulated and not measured; a load shorter than a day is measured as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from phoenix.plugin.simulation import (
    CloudConfig,
    Department,
    InputError,
    Latencies,
    Outcome,
    Scenario,
    Series,
    WebInput,
    WebPolicy,
    WebRecord,
    load_and_service,
    stretches,
    web_csv,
)

LEVEL: Final = 0.8  # the paper's 80 %
PEAK: Final = 64  # instances of the busiest interval (paper)
SCALE: Final = 2.22  # of the World Cup trace (paper)
SIGNAL_S: Final = 20.0  # the paper's window: one observation each
PEAK_MAX: Final = 100_000  # hosts of the largest cluster that a configuration may have
WARM_UP_S: Final = 7200.0  # rule 5: one at a time, each with two minutes' boot, gives 50 instances
WARM_UP_FROM_S: Final = 86_400.0  # rule 5
_ROUNDING: Final = 1e-9  # instances: 51.2 / 0.8 is 64

T = TypeVar("T")
Load = tuple[tuple[float, float], ...]


class Variant(msgspec.Struct, frozen=True):
    label: str
    policy: WebPolicy


def tracking(target: float = LEVEL, up_s: float = 0.0, down_s: float = 300.0, tolerance: float = 0.0) -> Variant:
    """A setting of rule target-tracking; its label tells it."""
    about = f" ± {tolerance:.0%}" if tolerance else ""
    up = f"up {up_s:g}, " if up_s else ""
    policy = WebPolicy(
        rule="target-tracking", target=target, up_window_s=up_s, down_window_s=down_s, tolerance=tolerance
    )
    return Variant(f"target {target:.0%}{about}, {up}down {down_s:g} s".replace("%", " %"), policy)


PAPER: Final = Variant("threshold 80 %, 20 s", WebPolicy(rule="threshold", threshold=LEVEL, window_s=SIGNAL_S))
VARIANTS: Final = (
    PAPER,
    tracking(down_s=0),
    tracking(down_s=60),
    tracking(down_s=300),
    tracking(down_s=900),
    tracking(up_s=60, down_s=300),
    tracking(tolerance=0.1),  # the product's defaults
    tracking(0.7, tolerance=0.1),
    tracking(0.7, down_s=60),
)


# -------------------------------------------------------------------------------------------------------------- scenarios


def capacity_for(series: Series, peak: int, scale: float) -> float:
    """Requests a second of one instance (rule 1).  InputError if nothing is ever asked for."""
    rates = [
        scale * value / (end - start)
        for value, start, end in zip(series.values, series.starts, series.ends(), strict=True)
    ]
    if not rates or max(rates) <= 0:
        raise InputError("there is no request in the whole table: nothing to scale with")
    return max(rates) / (peak * LEVEL)


def load_of(series: Series, capacity: float, scale: float) -> Load:
    """Busy instances from each time on.  Utilisation is taken as it was measured; a table of instances is an InputError."""
    return tuple((at, busy * scale) for at, busy in web_csv.load(series, capacity))


def ideal(busy: float) -> int:
    """Instances that keep `busy` busy ones at LEVEL."""
    return max(1, math.ceil(busy / LEVEL - _ROUNDING))


def measured_from(window_s: float) -> float:
    """Since when a rule is measured (rule 5)."""
    return WARM_UP_S if window_s >= WARM_UP_FROM_S else 0.0


def scenario(
    variant: Variant, load: Load, window_s: float, boot_s: float, drain_s: float = 0.0, signal_s: float = SIGNAL_S
) -> Scenario:
    """Rule 2.  `drain_s`: how long sessions last, and how long the department lets them."""
    hosts = 2 * max(ideal(busy) for _, busy in load) + 1
    policy = msgspec.structs.replace(variant.policy, instances_max=hosts, drain_s=drain_s)
    policy = msgspec.structs.replace(policy, boot_timeout_s=10 * boot_s + 60)
    return Scenario(
        label=variant.label,
        config=CloudConfig(name="autoscale", departments=(Department(name="web", kind="web", web=policy),)),
        hosts=hosts,
        web={"web": WebInput(load=load)},
        window_s=window_s,
        latencies=Latencies(boot_s=boot_s, drain_s=drain_s),
        signal_s=signal_s,
    )


# ---------------------------------------------------------------------------------------------------------------- metrics


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """How well a rule followed the load (rules 3 and 4)."""

    label: str
    policy: WebPolicy
    correlation: float | None  # None: one of the two never changes
    mean_deviation: float  # instances
    short_instance_s: float
    longest_short_s: float
    overload_instance_s: float
    longest_overload_s: float
    over_instance_s: float
    used_instance_s: float
    used_of_ideal: float  # used instance-seconds ÷ the ideal's
    held_host_s: float
    hosts_moved: int
    peak_instances: int
    changes_per_hour: float
    turns_in_an_hour_max: int  # changes of direction
    measured_from_s: float  # rule 5
    facts: int
    wall_s: float


def followed(variant: Variant, load: Load, outcome: Outcome) -> Followed:
    record = outcome.web[0]
    record = WebRecord(department=record.department, levels=record.levels, load=list(load))
    from_s = measured_from(outcome.window_s)
    measured_s = outcome.window_s - from_s
    lasting = _lasting(load_and_service(record), from_s, outcome.window_s)
    rows = [(until - since, busy, there) for since, until, (busy, there) in lasting]
    wanted = [(seconds, ideal(busy), there) for seconds, busy, there in rows]
    used = math.fsum(seconds * there for seconds, _, there in rows)
    ideal_s = math.fsum(seconds * needed for seconds, needed, _ in wanted)
    short_s, longest_short_s = _missing(wanted)
    overload_s, longest_overload_s = _missing(rows)
    held = [(at, hosts) for at, department, hosts in outcome.held if department == record.department]
    return Followed(
        label=variant.label,
        policy=variant.policy,
        correlation=correlation(wanted),
        mean_deviation=math.fsum(s * abs(there - needed) for s, needed, there in wanted) / measured_s,
        short_instance_s=short_s,
        longest_short_s=longest_short_s,
        overload_instance_s=overload_s,
        longest_overload_s=longest_overload_s,
        over_instance_s=math.fsum(seconds * max(0, there - needed) for seconds, needed, there in wanted),
        used_instance_s=used,
        used_of_ideal=used / ideal_s,
        held_host_s=math.fsum((until - since) * n for since, until, n in _lasting(held, from_s, outcome.window_s)),
        hosts_moved=sum(abs(after - before) for (_, before), (at, after) in pairwise(held) if at > from_s),
        peak_instances=max(there for _, _, there in rows),
        changes_per_hour=_changes(there for _, _, there in rows) * 3600.0 / measured_s,
        turns_in_an_hour_max=turns_in_an_hour((since, there) for since, _, (_, there) in lasting),
        measured_from_s=from_s,
        facts=outcome.facts,
        wall_s=outcome.wall_s,
    )


class Ideal(msgspec.Struct, frozen=True, kw_only=True):
    """What would have been enough at every moment, and what the peak costs if it stands ready all the time; of the time that
    is measured (rule 5)."""

    used_instance_s: float
    peak_instances: int
    peak_all_the_time_instance_s: float
    mean_instances: float
    changes_per_hour: float


def ideal_of(load: Load, window_s: float) -> Ideal:
    from_s = measured_from(window_s)
    levels = _lasting([(at, ideal(busy)) for at, busy in load], from_s, window_s)
    used = math.fsum((until - since) * level for since, until, level in levels)
    peak = max(level for _, _, level in levels)
    return Ideal(
        used_instance_s=used,
        peak_instances=peak,
        peak_all_the_time_instance_s=peak * (window_s - from_s),
        mean_instances=used / (window_s - from_s),
        changes_per_hour=_changes(level for _, _, level in levels) * 3600.0 / (window_s - from_s),
    )


def _lasting(rows: Sequence[tuple[float, T]], from_s: float, window_s: float) -> list[tuple[float, float, T]]:
    """(from, until, level) for each level that lasts beyond `from_s`."""
    return [(max(since, from_s), until, level) for since, until, level in stretches(rows, window_s) if until > from_s]


def _missing(rows: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """Of (seconds, needed, there): what was missing, in instance-seconds, and for how long at most without a break."""
    longest = since = 0.0
    for seconds, needed, there in rows:
        since = since + seconds if needed > there else 0.0
        longest = max(longest, since)
    return math.fsum(seconds * (needed - there) for seconds, needed, there in rows if needed > there), longest


def correlation(rows: Sequence[tuple[float, float, int]]) -> float | None:
    """Pearson's, of needed and there, weighted by seconds; None if one of them is constant."""
    total = math.fsum(seconds for seconds, _, _ in rows)
    mean_x = math.fsum(seconds * x for seconds, x, _ in rows) / total
    mean_y = math.fsum(seconds * y for seconds, _, y in rows) / total
    both = math.fsum(seconds * (x - mean_x) * (y - mean_y) for seconds, x, y in rows)
    of_x = math.fsum(seconds * (x - mean_x) ** 2 for seconds, x, _ in rows)
    of_y = math.fsum(seconds * (y - mean_y) ** 2 for seconds, _, y in rows)
    return both / math.sqrt(of_x * of_y) if of_x > 0 and of_y > 0 else None


def turns_in_an_hour(levels: Iterable[tuple[float, int]]) -> int:
    """Most changes of direction in any hour, of (time, number)."""
    turns: list[float] = []
    most, heading = 0, 0
    for (_, before), (at, after) in pairwise(levels):
        turned = (after - before) * heading < 0
        heading = heading if after == before else 1 if after > before else -1
        if turned:
            turns = [*(earlier for earlier in turns if earlier > at - 3600.0), at]
            most = max(most, len(turns))
    return most


def _changes(levels: Iterable[int]) -> int:
    return sum(1 for before, after in pairwise(levels) if after != before)
