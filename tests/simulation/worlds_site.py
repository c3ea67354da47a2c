"""The outside of a small world as a value: OpenNebula's VMs and hosts.  What a call does to it gives another value.

A VM is HELD, RUNNING, or gone: booting and shutting down take no time of their own here (chaos has both), but the call that
begins them may arrive at any time.  Ids follow from the VM's tag and from how many of that tag there were, so that the order
in which two allocations arrive is not part of the state.  On a host that is down VMs are UNKNOWN and go on running.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.size import Size
from services.executor.core.calls import Allocate, Call, Deploy, HostSight, Outcome, Phase, Result, Sight, Terminate
from tests.simulation.worlds_lands import Violation

CLOUD: Final = "c1"
CORES: Final = 2
MEMORY_MB: Final = 4096
COPIES: Final = 8  # VMs of one tag; more than an executor that crashes at each step would make


class Machine(NamedTuple):
    vm: int
    unit: str
    attempt: int
    rank: int
    cores: int
    host: str = ""  # empty: on hold

    @property
    def key(self) -> str:
        return f"{self.unit}/{self.attempt}/{self.rank}"


class Site(NamedTuple):
    """`made`: how many VMs of a tag there were; `ran`: tags of which one was deployed."""

    hosts: tuple[str, ...]
    machines: tuple[Machine, ...] = ()
    down: tuple[str, ...] = ()
    made: tuple[tuple[str, int], ...] = ()
    ran: tuple[str, ...] = ()

    # ---------------------------------------------------------------------------------------------------------- calls

    def perform(self, call: Call, units: tuple[str, ...]) -> tuple[Site, Result]:
        """The call arrives.  `units`: for the ids, those known so far."""
        if isinstance(call, Allocate):
            made = dict(self.made)
            copy = made[call.key] = made.get(call.key, 0) + 1
            assert copy < COPIES, f"{call.key} is allocated for ever"
            vm = ((units.index(call.unit) * 16 + call.attempt) * 4 + call.rank) * COPIES + copy
            machine = Machine(vm, call.unit, call.attempt, call.rank, call.size.cores)
            site = self._replace(machines=tuple(sorted((*self.machines, machine))), made=tuple(sorted(made.items())))
            return site, Result(call, Outcome.OK, vm=vm)
        if isinstance(call, Deploy | Terminate):
            found = next((m for m in self.machines if m.vm == call.vm), None)
            if found is None:
                return self, Result(call, Outcome.GONE, why="no such VM")
            if isinstance(call, Terminate):
                return self.without(found), Result(call, Outcome.OK)
            return self._deploy(found, call)
        return self, Result(call, Outcome.OK, found=self.sight(call.host))

    def _deploy(self, machine: Machine, call: Deploy) -> tuple[Site, Result]:
        if machine.host or call.host in self.down:
            return self, Result(call, Outcome.REFUSED, why="wrong state")
        if machine.key in self.ran:
            raise Violation(f"{machine.key} is started a second time (X2)")
        rest = [m for m in self.machines if m is not machine]
        moved = tuple(sorted([*rest, machine._replace(host=call.host)]))
        return self._replace(machines=moved, ran=tuple(sorted((*self.ran, machine.key)))), Result(call, Outcome.OK)

    def without(self, *machines: Machine) -> Site:
        return self._replace(machines=tuple(m for m in self.machines if m not in machines))

    # --------------------------------------------------------------------------------------------------------- sights

    def on(self, host: str) -> list[Machine]:
        return [m for m in self.machines if m.host == host]

    def sight(self, name: str) -> HostSight:
        bad = "error" if name in self.down else ""
        there = tuple(m.vm for m in self.on(name))
        return HostSight(name, self.hosts.index(name) + 1, not bad, bad, Size(CORES, MEMORY_MB), "default", {}, there)

    def host_pool(self) -> list[HostSight]:
        return [self.sight(name) for name in self.hosts]

    def vm_pool(self, tags: bool = False) -> list[Sight]:
        return [Sight(m.vm, self._phase(m), f"{CLOUD}/{m.key}" if tags else "") for m in self.machines]

    def _phase(self, machine: Machine) -> Phase:
        if not machine.host:
            return Phase.HELD
        return Phase.UNKNOWN if machine.host in self.down else Phase.RUNNING

    def ranks(self, unit: str, attempt: int) -> int:
        """How many VMs of the attempt run."""
        return sum(1 for m in self.machines if (m.unit, m.attempt) == (unit, attempt) and m.host)
