"""What all orders of victims share: a policy is a price, and hosts are emptied from the cheapest on.

    choose(hosts, candidates, count) -> victims and hosts      a pure function; the order of the input changes nothing

Theory of operation
  A number of hosts must go.  Idle ones go first and cost nothing, those where VMs are parked after the others.  Then whole jobs
  are closed until enough hosts are empty.  The paper's nodes hold one job each; here several jobs may share a host, and one job
  may span several.  So it is hosts that are chosen, by what their emptying costs: the policy's `Price` of the jobs that would
  end.  Hosts with the same jobs on them are one *group*; where each host holds one job, a group is a job, and the order of the
  prices is the order of the victims.

Rules
  1. Hosts that must go anyway (cordoned) first, whatever they cost: giving back another one instead would not help.
  2. Then best-effort, which exists to be preempted; of both kinds guarded jobs last (`batch.preemption`), whatever the policy's
     price; then the group that costs least, by the jobs on it that are no victims yet.  Total: equals go by the group's first
     host.
     Of equals those last whose end takes longer, by a grace that they asked for (`domain.grace`).  Equals are those with the
     same price apart from their identity, with times in whole seconds: jobs that were placed together began within one.  By
     price first: a job is not spared for asking for a grace.
  3. It ends as soon as enough hosts are empty.  A job ends whole, on all its hosts; hosts that it empties beyond what is asked
     stay with the department.
     asked stay with the department.
  4. Sparing (of policies that want it): from the dearest victim down, each one that enough hosts can be emptied without is
     spared (`preemption`).  What remains is minimal: no victim can be spared.

A new order is one module with a `Price` and a `choose`, and its entry in `registry`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple, TypeAlias

from schemas.ids import sort_key
from services.scheduler.core.policies import preemption


class Candidate(NamedTuple):
    """A live attempt.  `running_s`: for how long its job has run, counting what was saved by suspending; 0 before its guests
    began.  `lost_s`: how much of that would be lost if it were the victim: nothing of one that would be suspended, only what
    came after its last checkpoint of one that has made one.  `cores`: of all its hosts together.  `left_s`: for how long it may
    still run, by its time limit.  `user`: the job's.  `priority`: the job's and that of its quality of service together, by
    which the queue goes too (but for `multi-factor`, where it is one of the factors).  `late_s`: how much longer its hosts
    would wait for it than for others of the department, since it asked for that; below 0: sooner."""

    unit: str
    nodes: int
    running_s: float
    lost_s: float
    best_effort: bool = False
    guarded: bool = False  # it has not run for its guaranteed time, or was preempted too often
    waited_s: float = 0.0  # what the leases' policies look at (`preemption_costs`)
    overhead_s: float = 0.0
    combined: float = 0.0
    cores: int = 0
    left_s: float = 0.0
    user: str = ""
    priority: int = 0
    late_s: float = 0.0


class HostLoad(NamedTuple):
    """A held host and the live attempts on it.  `parked`: VMs wait there for a next job; ending them loses nothing, but they
    have to end first."""

    name: str
    cordoned: bool
    units: tuple[str, ...]
    parked: bool = False


class Choice(NamedTuple):
    """`victims` in the order of the policy; `hosts` to give back, empty once the victims are closed."""

    victims: list[str]
    hosts: list[str]


# What it costs to end these jobs together, less is sooner.  The first argument is in the order of submission; the second one
# says, if asked, how many of the hosts that are still needed it would empty (at least 1).  Unique for each single job.
Price: TypeAlias = Callable[[Sequence[Candidate], Callable[[], int]], tuple[float, ...]]
_Worth: TypeAlias = Callable[[Sequence[Candidate], Callable[[], int]], tuple[Any, ...]]
Victims: TypeAlias = Callable[[Sequence[HostLoad], Mapping[str, Candidate], int], Choice]


def choose_by(
    price: Price, hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int, *, spare: bool
) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes.  `spare`: rule 4."""
    count = min(count, len(hosts))
    emptying = _Emptying(hosts, candidates, count)
    worth = _late_last(price, candidates) if any(each.late_s for each in candidates.values()) else price
    if not emptying.fits():
        preemption.until_fits(_cheapest(worth, emptying), emptying.take, emptying.fits)
    closed = emptying.closed
    found = [candidates[unit] for unit in closed]
    found.sort(key=lambda each: (not each.best_effort, each.guarded, worth([each], _one)))
    victims = [each.unit for each in found]
    if spare and victims:
        victims = preemption.needed(victims, _Sparing(closed, hosts, count).give_back)
    empty = sorted((host for host in hosts if all(unit in closed for unit in host.units)), key=_giving_back)
    return Choice(victims, [host.name for host in empty[:count]])


def _late_last(price: Price, candidates: Mapping[str, Candidate]) -> _Worth:
    """Rule 2: the price, among equals how long their hosts would wait, then the price as it is."""
    anybody = min(candidates)  # one that is known: a price may look it up

    def worth(lost: Sequence[Candidate], useful: Callable[[], int]) -> tuple[Any, ...]:
        unseen = [
            each._replace(
                unit=anybody,
                running_s=floor(each.running_s),
                lost_s=floor(each.lost_s),
                waited_s=floor(each.waited_s),
                left_s=floor(each.left_s),
            )
            for each in lost
        ]
        return price(unseen, useful), max(each.late_s for each in lost), price(lost, useful)

    return worth


def oldest_first(unit: str) -> tuple[int, int]:
    """Of two jobs the one submitted earlier is less; unique."""
    number, index, _ = sort_key(unit)
    return number, index


def newest_first(unit: str) -> tuple[int, int]:
    """Of two jobs the one submitted later is less; unique."""
    number, index, _ = sort_key(unit)
    return -number, -index


def _one() -> int:
    return 1


def _giving_back(host: HostLoad) -> tuple[bool, bool, bool, str]:
    return (
        not host.cordoned,  # 1. hosts that must go
        bool(host.units),  # 2. hosts that were idle
        host.parked,  # 3. hosts that are clear at once
        host.name,  # 4. unique
    )


class _Group:
    """Hosts with the same jobs on them, and the same claim to go first."""

    __slots__ = ("cordoned", "first", "hosts", "left", "number")

    def __init__(self, number: int, host: HostLoad) -> None:
        self.number, self.cordoned, self.first, self.hosts = number, host.cordoned, host.name, 0
        self.left = list(host.units)  # no victims yet

    def add(self, name: str) -> None:
        self.hosts += 1
        self.first = min(self.first, name)


class _Emptying:
    """What has been chosen so far, a group at a time."""

    def __init__(self, hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> None:
        self.candidates, self.count = candidates, count
        self.must = min(count, sum(1 for host in hosts if host.cordoned))
        self.closed: dict[str, None] = {}
        self.empty = self.empty_cordoned = 0  # hosts
        self.cheaper: list[_Group] = []  # whose price may have fallen with the last group
        self.spans: dict[str, list[_Group]] = {}
        groups: dict[tuple[bool, tuple[str, ...]], _Group] = {}
        for host in hosts:
            if not host.units:
                self._emptied(1, host.cordoned)
                continue
            kind = (host.cordoned, host.units)
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = _Group(len(groups), host)
                for unit in host.units:
                    self.spans.setdefault(unit, []).append(group)
            group.add(host.name)
        self.groups = list(groups.values())

    def fits(self) -> bool:
        """Rule 3."""
        return self.empty >= self.count and self.empty_cordoned >= self.must

    def lost(self, group: _Group) -> list[Candidate]:
        return [self.candidates[unit] for unit in group.left]

    def useful(self, group: _Group) -> int:
        """Hosts that emptying `group` would empty, of those that are still needed."""
        near = {other.number: other for unit in group.left for other in self.spans[unit]}
        freed = sum(other.hosts for other in near.values() if all(unit in group.left for unit in other.left))
        return max(1, min(freed, self.count - self.empty))

    def take(self, group: _Group) -> None:
        """The jobs of `group` become victims."""
        shared: dict[int, _Group] = {}
        for unit in list(group.left):
            self.closed[unit] = None
            for other in self.spans[unit]:
                other.left.remove(unit)
                if other.left:
                    shared[other.number] = other
                else:
                    self._emptied(other.hosts, other.cordoned)
        cheaper = {near.number: near for other in shared.values() for unit in other.left for near in self.spans[unit]}
        self.cheaper = [near for near in cheaper.values() if near.left]

    def _emptied(self, hosts: int, cordoned: bool) -> None:
        self.empty += hosts
        self.empty_cordoned += hosts if cordoned else 0


def _cheapest(price: _Worth, emptying: _Emptying) -> Iterator[_Group]:
    """Rules 1 and 2: the groups, as those before are taken.  What has become cheaper enters the heap again; what has become
    dearer is found out on top of it."""

    def cost(group: _Group) -> tuple[bool, bool, bool, tuple[Any, ...], str, int]:
        lost = emptying.lost(group)
        worth = price(lost, lambda: emptying.useful(group))
        production, guarded = not all(each.best_effort for each in lost), any(each.guarded for each in lost)
        return not group.cordoned, production, guarded, worth, group.first, group.number

    groups = emptying.groups
    heap = [cost(group) for group in groups]
    heapq.heapify(heap)
    while heap:
        known = heapq.heappop(heap)
        group = groups[known[-1]]
        if not group.left:
            continue
        now = cost(group)
        if now > known:
            heapq.heappush(heap, now)
            continue
        yield group
        for cheaper in emptying.cheaper:
            heapq.heappush(heap, cost(cheaper))


class _Sparing:
    """Rule 4: only those stay in `closed` that have to, so that `count` hosts are empty, cordoned ones as far as there are."""

    def __init__(self, closed: dict[str, None], hosts: Sequence[HostLoad], count: int) -> None:
        self.closed = closed
        self.on: dict[str, list[HostLoad]] = {}
        for host in hosts:
            for unit in host.units:
                self.on.setdefault(unit, []).append(host)
        empty = [host for host in hosts if all(unit in closed for unit in host.units)]
        self.left = len(empty) - count  # hosts that may be occupied again
        must = min(count, sum(1 for host in hosts if host.cordoned))
        self.cordoned_left = sum(1 for host in empty if host.cordoned) - must

    def give_back(self, unit: str) -> bool:
        kept = [host for host in self.on[unit] if all(other in self.closed for other in host.units)]
        cordoned = sum(1 for host in kept if host.cordoned)
        if len(kept) > self.left or cordoned > self.cordoned_left:
            return False
        del self.closed[unit]
        self.left -= len(kept)
        self.cordoned_left -= cordoned
        return True
