"""Which free host goes to which department.

Rules
  1. Free hosts, neither cordoned nor quarantined, go to departments below their quota.  While there are fewer than the quotas
     promise, the others are still on their way: web has them first, by priority.  Those of one priority have them as the
     targets divide what is short (`sharing.max_min`): up to their guarantees, then up to their quotas, always the one that
     holds fewest for its weight.  So none waits for all of another's hosts.
  2. Then batch by priority, then by name, one after the other: a wide job starts when all of its hosts are there.
  3. A department is granted those first that satisfy constraints of its waiting jobs (`demand.changed`), then those that no
     other department's need.
  4. Hosts differ: of all that are granted at one time, one that holds a size that a department's demand names goes to that
     department, also if another department comes first in the order; the others get it only when no other host is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department
from schemas.dimensions import SCARCE, scarcity
from schemas.reasons import Reason
from schemas.size import size_in
from services.domain.constraints import satisfies
from services.domain.custody.custody import Custody
from services.domain.sharing.lending import bounds
from services.domain.sharing.max_min import Part, fill
from services.provisioner.core.state import State


def granted(
    custody: Custody, state: State, config: CloudConfig, wanted: Mapping[str, int], now: float
) -> list[f.HostGranted]:
    """`wanted`: the targets."""
    hosts = custody.state.hosts
    free = [
        name
        for name in sorted(custody.index.by_state["free"])
        if hosts[name].quarantine_until <= now and not hosts[name].cordoned
    ]
    found: list[f.HostGranted] = []
    held = {name: custody.held(name) for name in wanted}
    counts = grants(config, held, wanted, len(free), now)
    needed = _needed(custody, state, counts, free)
    for name, count in counts.items():
        department = config.department(name)
        if count and department is not None:
            reason = _why(department, held[name], state.demand(custody, name), now)
            first = needed.get(name, [])
            rest = [n for n in _chosen(custody, state.prefers, name, free) if n not in first]
            kept = dict.fromkeys(n for other, names in needed.items() if other != name for n in names)
            chosen = (first + [n for n in rest if n not in kept])[:count]
            found += [f.HostGranted(host=n, dept=name, reason=reason) for n in chosen]
            free = [n for n in free if n not in chosen]
    return found


def _needed(custody: Custody, state: State, counts: Mapping[str, int], free: list[str]) -> dict[str, list[str]]:
    """Rule 4: department -> hosts that hold the sizes its demand names, in the order of grants."""
    found: dict[str, list[str]] = {}
    taken: dict[str, None] = {}
    for name, count in counts.items():
        sizes = [size_in(each) for each in state.needs.get(name, ())]
        able = [n for n in free if n not in taken and any(size.fits_in(custody.state.hosts[n].size) for size in sizes)]
        found[name] = able[:count]
        taken |= dict.fromkeys(found[name])
    return found


def _chosen(custody: Custody, prefers: Mapping[str, tuple[str, ...]], name: str, free: list[str]) -> list[str]:
    """Rule 3: the free hosts (by name) in the order in which the department is to have them."""
    hosts = custody.state.hosts
    if not prefers:
        return sorted(free, key=lambda n: (scarcity(hosts[n].size), n)) if SCARCE else free
    mine = prefers.get(name, ())
    others = [c for dept, constraints in prefers.items() if dept != name for c in constraints]
    # 1. what its jobs need; 2. what no other's need; 3. nothing scarce; 4. unique: the name
    return sorted(
        free, key=lambda n: (not _meets(custody, n, mine), _meets(custody, n, others), scarcity(hosts[n].size), n)
    )


def _meets(custody: Custody, name: str, constraints: Iterable[str]) -> bool:
    host = custody.state.hosts[name]
    return any(satisfies(name, host.cluster, host.labels, c) for c in constraints)


def _why(department: Department, held: int, demand: int, now: float) -> Reason:
    guarantee, _ = bounds(department, now)
    if held < guarantee:
        return because.Guarantee(guarantee=guarantee, held=held)
    if department.kind == "web":
        return because.WebDemand(department=department.name, demand=demand, held=held)
    return because.IdleToBatch(department=department.name, held=held)


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
