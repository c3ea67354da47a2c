"""What all waiting units have in common at one moment: the last pass, room and hosts (`lookahead.why`).

Each part is computed when it is first asked for, once for all units that are explained.

Rules
  1. It is of one moment: it is not kept while facts may come.
  2. An order plans production alone, on what best-effort would leave it (`best_effort`).  Best-effort takes what fits into the
     rest: no room is kept for it, and none of it waits behind another unit.  Orders that choose victims themselves
     (`makes_way`) plan both.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from schemas.config import WebPolicy
from services.domain.custody.state import Host
from services.domain.sharing.withheld import withheld
from services.scheduler.core.batch import best_effort
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape
from services.scheduler.lookahead.last_pass import LastPass


class Snapshot:
    def __init__(self, core: BatchCore, now: float, last: LastPass) -> None:
        self.core, self.now, self._last = core, now, last
        self.queue = core.view.jobs.ranked(now)
        self.room = core.view.room.rested(core.custody, now)
        self.held = core.custody.held(core.dept)
        self._able: dict[Shape, int] = {}
        self._free: dict[Shape, tuple[int, int]] = {}

    @cached_property
    def last(self) -> LastPass:
        return self._last.see(self.core, self.now)

    @cached_property
    def situation(self) -> Situation:
        return self.core.view.situation(self.now, self.room)

    @cached_property
    def _cleared(self) -> Room:
        """The room as production has it."""
        return best_effort.seen(
            self.core.view.order, self.situation, self.core.view.preemption.best_effort(self.now)
        ).room

    def planned(self, *, best_effort: bool) -> bool:
        """Whether the order plans such a unit (rule 2)."""
        return not best_effort or self.core.view.order.makes_way

    def able(self, shape: Shape) -> int:
        """Usable hosts of the cluster that could hold a rank of it if they were empty."""
        if shape not in self._able:
            self._able[shape] = self.core.view.capacities.able(shape)
        return self._able[shape]

    def free(self, shape: Shape, *, best_effort: bool) -> tuple[int, int]:
        """Hosts with room for a rank of it now, and as the order sees them: without attempts to be preempted for it."""
        if shape not in self._free:
            there = self._cleared
            free = self.room.count(shape)
            self._free[shape] = free, free if there is self.room else there.count(shape)
        now, cleared = self._free[shape]
        return now, now if best_effort else cleared

    @cached_property
    def hosts(self) -> dict[str, Any]:
        """Hosts of the cluster by state, as this department sees them, and the contracts that keep some from it."""
        state, index = self.core.custody.state, self.core.custody.index
        resting = [state.hosts[name].state for name in index.apart if state.hosts[name].quarantine_until > self.now]
        found: dict[str, Any] = {
            "held": self.held,
            "held_by_others": len(index.by_state["held"]) - self.held,
            "free_hosts": len(index.by_state["free"]) - resting.count("free"),
            "draining": len(index.by_state["draining"]),
            "lost": len(index.by_state["lost"]),
            "cordoned": sum(1 for host in state.hosts.values() if host.cordoned is not None),
            "quarantined": len(resting),
            "on_notice": self.core.view.notice(),
        }
        by_load = self._held_by_load()
        if by_load:
            found |= {"web": list(by_load), "held_by_web": sum(by_load.values())}
        if by_contract := withheld(self.core.custody, self.core.dept, self.now):
            found["contracts"] = [one.text for one in by_contract]
        return found

    @cached_property
    def shared(self) -> list[Host]:
        """Hosts of the cluster on which VMs of other users of OpenNebula take a part."""
        return [host for host in self.core.custody.state.hosts.values() if any(host.others)]

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
