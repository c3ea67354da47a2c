"""What all who wait have in common at one moment: room, hosts, and for whom the order keeps room (`lookahead.why`).

Each part is worked out when it is first asked for: whoever explains many explains them beside one another at the price of one.

Rules
  1. It is of one moment: it is not kept while facts may come.
  2. An order plans production alone, on what best-effort would leave it (`make_way`).  Best-effort takes what fits into the
     rest: no room is kept for it, and nobody of it waits behind another one.  Orders that choose victims themselves
     (`makes_way`) plan both.
"""

from __future__ import annotations

from functools import cached_property

from schemas.config import WebPolicy
from services.domain.sharing.withheld import withheld
from services.scheduler.core.batch import make_way
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import Reserved, Situation
from services.scheduler.core.state.shape import Place, Shape


class Standing:
    def __init__(self, core: BatchCore, now: float) -> None:
        self.core, self.now = core, now
        self.queue = core.book.ranked(now)
        self.room = core.room.rested(core.custody, now)
        self.held = core.custody.held(core.dept)
        self._able: dict[Shape, int] = {}
        self._free: dict[Shape, tuple[int, int]] = {}

    @cached_property
    def situation(self) -> Situation:
        return self.core.situation(self.now, self.room)

    @cached_property
    def _production(self) -> Situation:
        return make_way.seen(self.core.order, self.situation, self.core.preempting.best_effort(self.now))

    @cached_property
    def _kept(self) -> Reserved | None:
        reserved = self.core.order.reserved
        return reserved(self._production) if reserved is not None else None

    @cached_property
    def head(self) -> Place | None:
        """The first of all that may start; where the order keeps room for many, of those whom the hosts held could ever hold:
        it passes the others."""
        if not self.keeps_for_many:
            return self.queue.head()
        lanes, could_hold = self.queue.lanes.values(), self.core.foresee().could_hold
        return min((x.first for x in lanes if self.queue.allowance(x) and could_hold(x.key.shape)), default=None)

    @property
    def keeps_for_many(self) -> bool:
        return self.core.order.reservation is not None or self.core.order.reservations is not None

    def planned(self, *, best_effort: bool) -> Situation | None:
        """The situation in which the order plans such a unit; None if it does not (rule 2)."""
        return None if best_effort and not self.core.order.makes_way else self._production

    def kept(self, *, best_effort: bool) -> Reserved | None:
        """For whom the order keeps room that such a unit may not take, if it is for one."""
        return None if self.planned(best_effort=best_effort) is None else self._kept

    def able(self, shape: Shape) -> int:
        """Usable hosts of the cluster that could hold a rank of it if they were empty."""
        if shape not in self._able:
            self._able[shape] = self.core.capacities.able(shape)
        return self._able[shape]

    def free(self, shape: Shape, *, best_effort: bool) -> tuple[int, int]:
        """Hosts with room for a rank of it now, and as the order sees them: those who would make way for it are not there."""
        if shape not in self._free:
            there = self._production.room
            free = self.room.count(shape)
            self._free[shape] = free, free if there is self.room else there.count(shape)
        now, cleared = self._free[shape]
        return now, now if best_effort else cleared

    @cached_property
    def hosts(self) -> dict[str, int | list[str]]:
        """Hosts of the cluster by state, as this department sees them, and the contracts that keep some from it."""
        state, index = self.core.custody.state, self.core.custody.index
        resting = [state.hosts[name].state for name in index.apart if state.hosts[name].quarantine_until > self.now]
        found: dict[str, int | list[str]] = {
            "held": self.held,
            "held_by_others": len(index.by_state["held"]) - self.held,
            "free_hosts": len(index.by_state["free"]) - resting.count("free"),
            "draining": len(index.by_state["draining"]),
            "lost": len(index.by_state["lost"]),
            "cordoned": sum(1 for host in state.hosts.values() if host.cordoned is not None),
            "quarantined": len(resting),
            "on_notice": self.core.notice(),
        }
        by_load = self._held_by_load()
        if by_load:
            found |= {"web": list(by_load), "held_by_web": sum(by_load.values())}
        if by_contract := withheld(self.core.custody, self.core.dept, self.now):
            found["contracts"] = [one.text for one in by_contract]
        return found

    def _held_by_load(self) -> dict[str, int]:
        """Web department -> hosts that it holds beyond its minimum: they come back when its load falls."""
        config, found = self.core.custody.state.config, {}
        for department in config.departments if config is not None else ():
            if department.kind == "web":
                policy = department.web or WebPolicy()
                beyond = self.core.custody.held(department.name) - -(-policy.instances_min // policy.instances_per_host)
                if beyond > 0:
                    found[department.name] = beyond
        return found
