"""How many hosts a batch department could use now: a level, over all that runs or may start.

Rules
  1. Hosts in use, and for each lane of the queue: nodes · units / ranks that fit on one host, at least the nodes of one unit.
     Ranks on a host are counted on the smallest kind of host that holds one: too much is asked rather than too little, since
     a demand below the need would let a job wait for ever while others keep the idle hosts.
  2. At most all usable hosts (free, held or draining; not cordoned), for a shape at most those that could hold it.
  3. Of jobs with a constraint (`schemas.constraints`) hosts that satisfy it count.  Which ones a grant will bring is not for
     the department to say, so idle hosts that it holds and that do not satisfy it are wanted beside those: otherwise it would
     have as many as it asked for, and none of use.  `preferred` tells the provisioner which constraints grants should satisfy.
  4. Held jobs, jobs with unmet dependencies and what a throttle keeps back are not demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.constraints import satisfies
from schemas.custody import Custody
from schemas.custody_state import Host
from services.scheduler.queue import Queue
from services.scheduler.room import Free
from services.scheduler.shape import Shape

PREFERRED_MAX: Final = 8  # a hint: the demand is right without it
USABLE = ("free", "held", "draining")


class Capacities:
    """Usable hosts by capacity.  A view derived from custody."""

    def __init__(self, custody: Custody | None = None) -> None:
        self.custody = custody  # for labels
        self.of_host: dict[str, tuple[int, int]] = {}
        self.counts: dict[tuple[int, int], int] = {}

    @classmethod
    def of(cls, custody: Custody) -> Capacities:
        found = cls(custody)
        for name in custody.state.hosts:
            found.update(custody, name)
        return found

    def update(self, custody: Custody, name: str) -> bool:
        """Host `name` may have changed; True if its capacity counts otherwise now."""
        host = custody.state.hosts.get(name)
        usable = host is not None and host.state in USABLE and host.cordoned is None
        new = (host.cores, host.memory_mb) if usable and host is not None else None
        old = self.of_host.get(name)
        if old == new:
            return False
        self.of_host.pop(name, None)
        if new is not None:
            self.of_host[name] = new
            self.counts[new] = self.counts.get(new, 0) + 1
        if old is not None:
            self.counts[old] -= 1
            if not self.counts[old]:
                del self.counts[old]
        return True

    def able(self, shape: Shape) -> int:
        """Usable hosts that could hold a rank of `shape` if they were empty."""
        if shape.constraint:
            return sum(1 for kind in self._meeting(shape.constraint) if _ranks(kind, shape) > 0)
        return sum(
            n for (cores, memory), n in self.counts.items() if cores >= shape.cores and memory >= shape.memory_mb
        )

    def ranks(self, shape: Shape) -> int:
        """Ranks of `shape` on the smallest kind of host that holds one; 0 if none does."""
        kinds = self._meeting(shape.constraint) if shape.constraint else self.counts
        return min((n for kind in kinds if (n := _ranks(kind, shape)) > 0), default=0)

    def _meeting(self, constraint: str) -> list[tuple[int, int]]:
        """What each usable host that satisfies it has."""
        if self.custody is None:
            return []
        hosts = self.custody.state.hosts
        return [kind for name, kind in self.of_host.items() if _meets(hosts[name], constraint)]


def _meets(host: Host, constraint: str) -> bool:
    return satisfies(host.name, host.cluster, host.labels, constraint)


def _ranks(kind: tuple[int, int], shape: Shape) -> int:
    cores, memory_mb = kind
    if shape.exclusive:
        return 1 if cores >= shape.cores and memory_mb >= shape.memory_mb else 0
    by_cores = cores // shape.cores if shape.cores else cores or 1
    by_memory = memory_mb // shape.memory_mb if shape.memory_mb else by_cores
    return min(by_cores, by_memory)


def hosts_wanted(
    queue: Queue,
    capacities: Capacities,
    busy: int,
    starting: Mapping[Shape, int],
    idle: Mapping[Free, int] | None = None,
) -> int:
    """`busy`: hosts in use; `starting`: units of a shape that are about to leave the queue onto hosts counted as busy;
    `idle`: what the department's idle hosts offer, and how many do (rule 3)."""
    usable, wanted = len(capacities.of_host), busy
    pending: dict[Shape, int] = {}
    for lane in queue.lanes.values():
        units = queue.allowance(lane)
        if units:
            pending[lane.key.shape] = pending.get(lane.key.shape, 0) + units
    useless = 0
    for shape, units in pending.items():
        units -= starting.get(shape, 0)
        ranks = capacities.ranks(shape) if units > 0 else 0
        if ranks:
            needed = max(shape.nodes, -(-units * shape.nodes // ranks))
            wanted += min(needed, capacities.able(shape))
            if shape.constraint:
                useless = max(useless, sum(n for free, n in (idle or {}).items() if not free.fits(shape)))
        if wanted + useless >= usable:
            return usable
    return wanted + useless


def preferred(queue: Queue) -> tuple[str, ...]:
    """The constraints of jobs that may start, in order, the first `PREFERRED_MAX`."""
    found = {lane.key.shape.constraint: None for lane in queue.lanes.values() if queue.allowance(lane)}
    return tuple(sorted(c for c in found if c))[:PREFERRED_MAX]
