"""The outside of a simulated cloud: OpenNebula's VMs and hosts, and the guests in them.  Nothing here knows the journal.

What a VM does
  HELD ── deploy ──▶ MOVING ── boot ──▶ RUNNING (or FAILED) ── soft terminate ──▶ MOVING ──▶ gone
  A hard terminate works at once, but not while it boots.  A deploy of what is not HELD is refused, and of what is gone, too.
  On a host that is down VMs show as UNKNOWN, go on running, and are seen again when it comes back (a partition), or die.

What is true, whatever anybody believes
  `on(host)`: VMs that have been deployed and are not gone.  The driver compares it with the journal after every step.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from services.executor.calls import Allocate, Call, Deploy, HostSight, Outcome, Phase, Result, Sight, Terminate

CORES: Final = 2
MEMORY_MB: Final = 4096
BOOT_S: Final = (0.01, 1.5)
SHUTDOWN_S: Final = (0.01, 1.0)


@dataclass
class Machine:
    """A VM.  `due`: when it gets where it is moving to."""

    vm: int
    unit: str
    attempt: int
    rank: int
    cores: int
    phase: Phase = Phase.HELD
    host: str = ""
    ending: bool = False
    due: float = 0.0
    started: float | None = None  # its script runs since


@dataclass
class Site:
    cloud: str
    chance: random.Random
    hosts: dict[str, int]  # name -> OpenNebula's id
    down: set[str] = field(default_factory=set)
    vms: dict[int, Machine] = field(default_factory=dict)
    boots_fail: float = 0.1
    ran: dict[tuple[str, int, int], int] = field(default_factory=dict)  # how often each was deployed
    _last: int = 0

    # ---------------------------------------------------------------------------------------------------------- calls

    def perform(self, call: Call, now: float) -> Result:
        """The call arrives."""
        if isinstance(call, Allocate):
            self._last += 1
            self.vms[self._last] = Machine(self._last, call.unit, call.attempt, call.rank, call.cores)
            return Result(call, Outcome.OK, vm=self._last)
        if isinstance(call, Deploy | Terminate):
            machine = self.vms.get(call.vm)
            if machine is None:
                return Result(call, Outcome.GONE, why="no such VM")
            done = self._deploy(machine, call, now) if isinstance(call, Deploy) else self._end(machine, call.hard, now)
            return Result(call, Outcome.OK) if done else Result(call, Outcome.REFUSED, why="wrong state")
        return Result(call, Outcome.OK, found=self.sight(call.host))

    def _deploy(self, machine: Machine, call: Deploy, now: float) -> bool:
        if machine.phase is not Phase.HELD or call.host in self.down:
            return False
        machine.phase, machine.host, machine.due = Phase.MOVING, call.host, now + self.chance.uniform(*BOOT_S)
        key = (machine.unit, machine.attempt, machine.rank)
        self.ran[key] = self.ran.get(key, 0) + 1
        return True

    def _end(self, machine: Machine, hard: bool, now: float) -> bool:
        if machine.phase is Phase.MOVING:
            return False
        if hard:
            del self.vms[machine.vm]
        elif machine.phase is Phase.RUNNING:
            machine.phase, machine.ending, machine.due = Phase.MOVING, True, now + self.chance.uniform(*SHUTDOWN_S)
        return hard or machine.ending

    def power_off(self, machine: Machine) -> None:
        """The guest stops by itself."""
        self.vms.pop(machine.vm, None)

    def live(self, now: float) -> None:
        """Time has passed."""
        for machine in list(self.vms.values()):
            if machine.phase is Phase.MOVING and machine.due <= now:
                if machine.ending:
                    del self.vms[machine.vm]
                else:
                    failed = self.chance.random() < self.boots_fail
                    machine.phase = Phase.FAILED if failed else Phase.RUNNING

    def next_due(self) -> float:
        return min((m.due for m in self.vms.values() if m.phase is Phase.MOVING), default=float("inf"))

    # --------------------------------------------------------------------------------------------------------- sights

    def sight(self, name: str) -> HostSight:
        there = tuple(sorted(m.vm for m in self.vms.values() if m.host == name))
        bad = "error" if name in self.down else ""
        return HostSight(name, self.hosts[name], not bad, bad, CORES, MEMORY_MB, "default", {}, there)

    def host_pool(self) -> list[HostSight]:
        return [self.sight(name) for name in self.hosts]

    def vm_pool(self, tags: bool = False) -> list[Sight]:
        return [self._show(machine, tags) for machine in self.vms.values()]

    def _show(self, machine: Machine, tags: bool) -> Sight:
        hidden = machine.host in self.down and machine.phase is not Phase.HELD
        tag = f"{self.cloud}/{machine.unit}/{machine.attempt}/{machine.rank}" if tags else ""
        return Sight(machine.vm, Phase.UNKNOWN if hidden else machine.phase, tag)

    def on(self, host: str) -> list[Machine]:
        return [machine for machine in self.vms.values() if machine.host == host]

    def ranks(self, unit: str, attempt: int) -> list[Machine]:
        """The running machines of an attempt, by rank."""
        mine = [m for m in self.vms.values() if (m.unit, m.attempt, m.phase) == (unit, attempt, Phase.RUNNING)]
        return sorted(mine, key=lambda m: m.rank)
