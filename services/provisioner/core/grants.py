"""Who is granted free hosts first, while there are fewer than the quotas promise: the others are still on their way.

Rules
  1. Web by priority.  Those of one priority have them as the targets divide what is short (`sharing.max_min`): up to their
     guarantees, then up to their quotas, always the one that holds fewest for its weight.  So none waits for all of
     another's hosts.
  2. Then batch by priority, then by name, one after the other: a wide job starts when all of its hosts are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.config import CloudConfig, Department
from services.domain.sharing.lending import bounds
from services.domain.sharing.max_min import Part, fill


def grants(
    config: CloudConfig, held: Mapping[str, int], wanted: Mapping[str, int], count: int, at: float
) -> dict[str, int]:
    """Department -> how many of `count` hosts it is granted, in the order of grants.  `wanted`: the targets."""
    order = sorted(config.departments, key=lambda d: (d.kind != "web", -d.priority, d.name))  # unique last key: name
    found: dict[str, int] = {}
    for department in order:
        name = department.name
        if name in found:
            continue
        equals = [d for d in order if d.kind == "web" and d.priority == department.priority]
        if department.kind == "web":
            given = _by_weight(equals, held, wanted, count, at)
        else:
            given = {name: min(count, max(0, wanted.get(name, 0) - held.get(name, 0)))}
        found |= given
        count -= sum(given.values())
    return found


def _by_weight(
    equals: list[Department], held: Mapping[str, int], wanted: Mapping[str, int], count: int, at: float
) -> dict[str, int]:
    """Rule 1."""
    had = {d.name: held.get(d.name, 0) for d in equals}
    has, left = dict(had), count
    promised = {d.name: min(bounds(d, at)[0], wanted.get(d.name, 0)) for d in equals}
    for most in (promised, wanted):
        has = fill([Part(d.name, d.weight, has[d.name], most.get(d.name, 0)) for d in equals], left)
        left = count - sum(has[name] - had[name] for name in had)
    return {name: has[name] - had[name] for name in had}
