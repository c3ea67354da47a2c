"""How many hosts a batch department could use now: a level, over all that runs or may start.

Rules
  1. Hosts in use, and for each lane of the queue: nodes · units / ranks that fit on one host, at least the nodes of one unit.
     Ranks on a host are counted on the smallest kind of host that holds one: too much is asked rather than too little, since
     a demand below the need would let a job wait for ever while others keep the idle hosts.
  2. At most all usable hosts (free, held or draining; not cordoned), for a shape at most those that could hold it.  Cordoned
     hosts in use are wanted beside those (the core adds them): the provisioner takes them off again.
  3. Of jobs with a constraint (`domain.constraints`) hosts that satisfy it count.  Which ones a grant will bring is not for
     the department to say, so idle hosts that it holds and that do not satisfy it are wanted beside those: otherwise it would
     have as many as it asked for, and none of use.  `preferred` tells the provisioner which constraints grants should satisfy.
  4. Held jobs, jobs with unmet dependencies and what a throttle keeps back are not demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Shape

PREFERRED_MAX: Final = 8  # a hint: the demand is right without it


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
