"""Victims: "from the beginning of job with minimum size and shortest running time" (Phoenix Cloud paper, II-B).

Theory of operation
  So many hosts must go.  Idle ones go first and cost nothing.  Then whole jobs are closed until enough hosts are empty.  The
  paper's nodes hold one job each; here several jobs may share a host, and one job may span several.  So hosts are chosen, by
  what their emptying costs; where each host holds one job this is the paper's order.

Rules
  1. Hosts that must go anyway (cordoned) first, whatever they cost: giving back another one instead would not help.
  2. Then the host that costs least (`_Cost`).  A job that is a victim already costs nothing more, so the other hosts of a wide
     victim come next.
  3. Spare what is not needed: from the dearest victim down, each one that enough hosts can be emptied without is spared.
     What remains is minimal: no victim can be spared.
  4. A job is closed whole, on all its hosts.  Hosts that it empties beyond what is asked stay with the department.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.ids import sort_key


class Candidate(NamedTuple):
    """A live attempt.  `running_s`: since its guests began; 0 before that."""

    unit: str
    nodes: int
    running_s: float


class HostLoad(NamedTuple):
    """A held host and the live attempts on it."""

    name: str
    cordoned: bool
    units: tuple[str, ...]


class Choice(NamedTuple):
    """`victims` in the order of the policy; `hosts` to give back, empty once the victims are closed."""

    victims: list[str]
    hosts: list[str]


class _Cost(NamedTuple):
    """What emptying a host costs; natural order = cheapest first; total."""

    stays: bool  # 1. cordoned hosts first (rule 1)
    nodes: int  # 2. paper: minimum size (of all that would be closed)
    running_s: float  # 3. paper: shortest running time (of all that would be closed)
    youngest: tuple[int, int]  # 4. the job submitted last goes first
    host: str  # 5. unique


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    chosen = _cheapest(hosts, candidates, count)
    named = {unit: None for host in chosen for unit in host.units}
    victims = sorted(named, key=lambda unit: _value(candidates[unit]))
    closed = _spare(victims, hosts, len(chosen))
    empty = sorted((h for h in hosts if all(unit in closed for unit in h.units)), key=_giving_back)
    return Choice([unit for unit in victims if unit in closed], [host.name for host in empty[: len(chosen)]])


def _giving_back(host: HostLoad) -> tuple[bool, bool, str]:
    return (
        not host.cordoned,  # 1. hosts that must go
        bool(host.units),  # 2. hosts that were idle
        host.name,  # 3. unique
    )


def _value(candidate: Candidate) -> tuple[int, float, tuple[int, int]]:
    """The paper's order of killing; unique by the last key."""
    return candidate.nodes, candidate.running_s, _youth(candidate.unit)


def _youth(unit: str) -> tuple[int, int]:
    number, index, _ = sort_key(unit)
    return -number, -index


def _cheapest(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> list[HostLoad]:
    """Rules 1 and 2.  Costs only fall, so a heap with outdated entries finds the cheapest."""
    by_name = {host.name: host for host in hosts}
    spans: dict[str, list[HostLoad]] = {}
    for host in hosts:
        for unit in host.units:
            spans.setdefault(unit, []).append(host)
    closed: dict[str, None] = {}
    costs = {host.name: _cost(host, candidates, closed) for host in hosts}
    heap = sorted(costs.values())
    chosen: dict[str, HostLoad] = {}
    while heap and len(chosen) < count:
        cost = heapq.heappop(heap)
        host = by_name[cost.host]
        if host.name in chosen or costs[host.name] != cost:
            continue
        chosen[host.name] = host
        fresh = [unit for unit in host.units if unit not in closed]
        closed.update(dict.fromkeys(fresh))
        for other in {o.name: o for unit in fresh for o in spans[unit]}.values():
            costs[other.name] = _cost(other, candidates, closed)
            heapq.heappush(heap, costs[other.name])
    return list(chosen.values())


def _cost(host: HostLoad, candidates: Mapping[str, Candidate], closed: Mapping[str, None]) -> _Cost:
    lost = [candidates[unit] for unit in host.units if unit not in closed]
    return _Cost(
        stays=not host.cordoned,
        nodes=sum(c.nodes for c in lost),
        running_s=sum(sorted(c.running_s for c in lost)),  # sorted: a sum of floats depends on their order
        youngest=min((_youth(c.unit) for c in lost), default=(0, 0)),
        host=host.name,
    )


def _spare(victims: list[str], hosts: Sequence[HostLoad], count: int) -> dict[str, None]:
    """Rule 3: the victims that have to be closed, so that `count` hosts are empty, cordoned ones as far as there are."""
    closed = dict.fromkeys(victims)
    on: dict[str, list[HostLoad]] = {}
    for host in hosts:
        for unit in host.units:
            on.setdefault(unit, []).append(host)
    empty = [host for host in hosts if all(unit in closed for unit in host.units)]
    left, cordoned_left = len(empty) - count, sum(1 for host in empty if host.cordoned)
    cordoned_left -= min(count, sum(1 for host in hosts if host.cordoned))
    for unit in reversed(victims):
        kept = [host for host in on[unit] if all(other in closed for other in host.units)]
        cordoned = sum(1 for host in kept if host.cordoned)
        if len(kept) <= left and cordoned <= cordoned_left:
            del closed[unit]
            left -= len(kept)
            cordoned_left -= cordoned
    return closed
