"""How many hosts a batch department could use now: a level, over all that runs or may start.

Rules
  1. Hosts in use, and for each lane of the queue: nodes · units / ranks that fit on one host, at least the nodes of one unit.
     Ranks on a host are counted on the smallest kind of host that holds one: too much is asked rather than too little, since
     a demand below the need would let a job wait for ever while others keep the idle hosts.
  2. At most all usable hosts (free, held or draining; not cordoned), for a shape at most those that could hold it.  Cordoned
     hosts in use are wanted beside those (the core adds them): the provisioner takes them off again.
  3. Of jobs with a constraint (`domain.constraints`), or that need some of a dimension that demand names, hosts that satisfy it
     count.  Which ones a grant will bring is not for the department to say, so idle hosts that it holds and that do not satisfy
     it are wanted beside those: otherwise it would have as many as it asked for, and none of use.  `preferred` and `named` tell
     the provisioner which ones.
  4. Held jobs, jobs with unmet dependencies and what a throttle keeps back are not demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas import facts as f
from schemas import reasons as because
from schemas.dimensions import is_named
from services.domain.core import NEVER
from services.scheduler.core.batch import lease_times
from services.scheduler.core.batch.stage import Said
from services.scheduler.core.batch.view import View
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Shape, Start

PREFERRED_MAX: Final = 8  # a hint: the demand is right without it


class ReportDemand:
    """`wanted`: what was worked out last, where nothing that it follows from has changed since (`look_again`)."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.wanted: int | None = None

    def __call__(self, said: Said, now: float) -> bool:
        view, queue, starts = self.view, self.view.jobs.queue, said.starts
        wanted = self._wanted(starts) if view.active else 0
        if view.active and queue.bookings:
            leases = lease_times.hosts_wanted(view.jobs, view.open, view.capacities, view.policy.leases, now)
            wanted = max(wanted, leases)
        prefer = preferred(queue) if view.jobs.constraints and view.active else ()
        sizes = named(queue) if view.active and any(map(is_named, view.capacities.counts)) else ()
        told = (prefer, sizes) == (view.state.prefer, view.state.sizes)
        if wanted != view.custody.state.demands.get(view.dept, 0) or not told:
            pending = len(queue) + len(queue.bookings) - len(starts)
            reason = because.Queue(pending=pending, running=len(view.open) + len(starts))
            said.facts.append(f.DemandChanged(dept=view.dept, hosts=wanted, prefer=prefer, sizes=sizes, reason=reason))
        return False

    def look_again(self) -> None:
        """Queue or hosts have changed."""
        self.wanted = None

    def next_moment(self, after: float) -> float:
        bookings = self.view.jobs.queue.bookings
        return lease_times.next_moment(bookings.values(), self.view.policy.leases, after) if bookings else NEVER

    def _wanted(self, starts: list[Start]) -> int:
        """Hosts that the department could use once `starts` are placed."""
        if starts or self.wanted is None:
            wanted = self._worked_out(starts)
            if starts:
                return wanted
            self.wanted = wanted
        return self.wanted

    def _worked_out(self, starts: list[Start]) -> int:
        view, room = self.view, self.view.room
        starting: dict[Shape, int] = {}
        for start in starts:
            starting[start.shape] = starting.get(start.shape, 0) + 1
        apart = sum(1 for name in room.cordoned if name in room.busy)  # used beside what is divided
        more = {name: None for start in starts for name in start.hosts if name not in room.busy}
        idle = {c: len(names) - sum(map(more.__contains__, names)) for c, names in room.classes.items() if c.empty}
        wanted = hosts_wanted(view.jobs.queue, view.capacities, len(room.busy) - apart + len(more), starting, idle)
        if view.order.hosts is not None:
            ask = view.order.hosts(view.situation(0.0, room), list(view.capacities.counts))
            wanted = max(wanted, min(ask, len(view.capacities.of_host)))
        return wanted + apart

    def check(self, fresh: ReportDemand) -> list[str]:
        """What is remembered is what would be worked out."""
        if self.wanted is None or self.wanted == fresh._worked_out([]):
            return []
        return [f"a demand of {self.wanted} hosts is remembered, and {fresh._worked_out([])} could be used"]


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
            if shape.constraint or is_named(shape.size):
                useless = max(useless, sum(n for free, n in (idle or {}).items() if not free.fits(shape)))
        if wanted + useless >= usable:
            return usable
    return wanted + useless


def named(queue: Queue) -> tuple[dict[str, int], ...]:
    """Sizes of ranks of jobs that may start and that need some of a dimension that is named (`schemas.dimensions`); in order,
    the first `PREFERRED_MAX`."""
    lanes = [lane for lane in queue.lanes.values() if is_named(lane.key.shape.size)]
    found = {lane.key.shape.size: None for lane in lanes if queue.allowance(lane)}
    return tuple(size.fields() for size in sorted(found))[:PREFERRED_MAX]


def preferred(queue: Queue) -> tuple[str, ...]:
    """The constraints of jobs that may start, in order, the first `PREFERRED_MAX`."""
    found = {lane.key.shape.constraint: None for lane in queue.lanes.values() if queue.allowance(lane)}
    return tuple(sorted(c for c in found if c))[:PREFERRED_MAX]
