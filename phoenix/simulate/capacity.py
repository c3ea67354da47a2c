"""The smallest cluster for which given service levels hold: a search over its size.

Theory of operation
  A size is probed by simulating it (with every seed) and asking whether the levels hold.  The search keeps a size that holds
  and a smaller one that does not, and probes sizes between them, several at once if there are cores for it.

Rules
  1. No size below `floor` is probed: the widest job and what is guaranteed to others have to fit.
  2. No size above `ceiling` is probed: there, no job would ever wait and no instance would be missing, so more hosts are only
     idle.  What does not hold anywhere up to there cannot be had with hosts.
  3. More hosts are not always better: a scheduler can do worse on more of them, and some levels (utilisation) ask for fewer.
     So the answer is the smallest size *found*: below it some more sizes are probed, the next `NEIGHBOURS` and as many spread
     over the rest, and any that holds takes its place.  Sizes above it that do not hold are reported.
  4. How many are probed at once (`width`) decides which sizes are probed, so it does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from phoenix.simulate.workload import Scenario, Work
from schemas.config import Department, WebPolicy
from services.scheduler.core.policies.scale import level

WIDTH: Final = 4  # sizes probed at once; rule 4
NEIGHBOURS: Final = 4  # rule 3
SPREAD: Final = 8  # sizes over the whole range that are probed before it is said that none holds
HOSTS_MAX: Final = 100_000  # as in a configuration
_OVERSHOOT: Final = 2  # a scaling rule may want more instances for a while than the load would need

Holds = Callable[[Sequence[int]], Sequence[bool]]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`smallest`: None if the levels hold at no size that was tried; `tried`: size to whether they hold, rising."""

    smallest: int | None
    floor: int
    ceiling: int
    tried: dict[int, bool]

    @property
    def failed_above(self) -> tuple[int, ...]:
        """Larger sizes at which the levels do not hold (rule 3)."""
        if self.smallest is None:
            return ()
        return tuple(size for size, holds in self.tried.items() if size > self.smallest and not holds)


def search(holds: Holds, floor: int, ceiling: int, width: int = WIDTH) -> Found:
    """The smallest size found between `floor` and `ceiling`; `holds` is asked for several sizes at once, for each one once."""
    tried: dict[int, bool] = {}
    ceiling = max(floor, ceiling)

    def probe(sizes: Iterable[int]) -> None:
        new = [size for size in dict.fromkeys(sizes) if floor <= size <= ceiling and size not in tried]
        tried.update(zip(new, holds(new), strict=True) if new else ())

    probe([ceiling, *between(floor - 1, ceiling, width - 1)])
    if not any(tried.values()):
        probe([floor, *between(floor, ceiling, SPREAD)])
    while any(tried.values()):
        best = _smallest(tried)
        below = max((size for size in tried if size < best), default=floor - 1)
        if best - below > 1:
            probe(between(below, best, width))
            continue
        probe([*range(best - 2, best - 2 - NEIGHBOURS, -1), *between(floor - 1, best - 1 - NEIGHBOURS, NEIGHBOURS)])
        if _smallest(tried) == best:
            break
    smallest = _smallest(tried) if any(tried.values()) else None
    return Found(smallest=smallest, floor=floor, ceiling=ceiling, tried=dict(sorted(tried.items())))


def _smallest(tried: Mapping[int, bool]) -> int:
    return min(size for size, holds in tried.items() if holds)


def between(low: int, high: int, count: int) -> list[int]:
    """At most `count` sizes evenly spread in the open interval, rising."""
    gap = high - low
    steps = min(count, gap - 1)
    return [low + gap * step // (steps + 1) for step in range(1, steps + 1)]


# ----------------------------------------------------------------------------------------------------------------- bounds


def floor_of(scenario: Scenario) -> int:
    """Rule 1."""
    guarantees = sum(d.guarantee for d in scenario.config.departments)
    found = [1, guarantees]
    for department in scenario.config.departments:
        widest = max((work.nodes for work in scenario.jobs.get(department.name, ())), default=0)
        if department.maximum is not None:
            widest = min(widest, department.maximum)
        found.append(max(widest, department.guarantee) + guarantees - department.guarantee)
    return max(found)


def ceiling_of(scenario: Scenario) -> int:
    """Rule 2: the most hosts that could be in use at once if nothing ever waited."""
    latencies = scenario.latencies
    extra_s = max(latencies.boot_s, latencies.resume_s) + max(latencies.end_s, latencies.suspend_s)
    found = 0
    for department in scenario.config.departments:
        if department.kind == "batch":
            most = most_at_once(scenario.jobs.get(department.name, ()), extra_s)
        else:
            most = _most_web(department, scenario)
        if department.maximum is not None:
            most = min(most, department.maximum)
        found += max(most, department.guarantee)
    return min(HOSTS_MAX, max(found, floor_of(scenario)))


def most_at_once(works: Iterable[Work], extra_s: float = 0.0) -> int:
    """Nodes in use at once if every job started when it is submitted and held its nodes for `extra_s` longer."""
    changes: list[tuple[float, int]] = []
    for work in works:
        changes.append((work.submit_s, work.nodes))
        changes.append((work.submit_s + work.run_s + extra_s, -work.nodes))
    most = now = 0
    for _, by in sorted(changes):  # at one instant ends come first: what is given back can be used
        now += by
        most = max(most, now)
    return most


def _most_web(department: Department, scenario: Scenario) -> int:
    policy, given = department.web or WebPolicy(), scenario.web.get(department.name)
    instances = policy.instances_min
    if given is not None:
        asked = max((count for _, count in given.demand), default=0)
        busy = max((work for _, work in given.load), default=0.0)
        instances = max(instances, asked, int(_OVERSHOOT * busy / level(policy)) + 1 if given.load else 0)
    instances = min(instances, policy.instances_max)
    return -(-instances // policy.instances_per_host)
