"""The outside of a simulated cloud: OpenNebula's VMs and hosts, and the guests in them.  Nothing here knows the journal.

What a VM does
  HELD ── deploy ──▶ MOVING ── boot ──▶ RUNNING (or FAILED) ── soft terminate ──▶ MOVING ──▶ gone
  A hard terminate works at once, but not while it boots.  A deploy of what is not HELD is refused, and of what is gone, too.
  RUNNING ── save ──▶ MOVING ──▶ SAVED, on no host (or RUNNING again) ── deploy ──▶ …;  RUNNING ── migrate ──▶ MOVING, on both
  hosts ──▶ RUNNING there (or here again).  A script's work goes on where it stopped.
  On a host that is down VMs show as UNKNOWN, go on running, and are seen again when it comes back (a partition), or die.
  Some boots hang for long.  A *deaf* guest ignores the graceful end; a *stuck* VM also outlives the hard one, until somebody
  fences its host, which he does only once the journal says that the host is lost.  Some calls are refused for no reason.
  VMs of others are there, too: whoever touches one of them is in `harmed`.

What is true, whatever anybody believes
  `on(host)`: VMs that have been deployed and are not gone.  The driver compares it with the journal after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.size import Size
from services.executor.core.calls import (
    Allocate,
    Call,
    Deploy,
    HostSight,
    Look,
    Migrate,
    Outcome,
    Phase,
    Result,
    Save,
    Sight,
    Terminate,
)

CORES: Final = 2
MEMORY_MB: Final = 4096
BOOT_S: Final = (0.01, 1.5)
SHUTDOWN_S: Final = (0.01, 1.0)
SAVE_S: Final = (0.01, 1.0)  # sometimes longer than it may take
HANG_S: Final = 20.0  # a boot that hangs: longer than its budget
ODD: Final = 0.04  # of all calls are refused, of all boots hang
FOREIGN: Final = {9_000_001: "", 9_000_002: "c2/1/1/0"}  # VMs of others, and their tags


@dataclass
class Machine:
    """A VM.  `unit`, `attempt`, `rank`: as what its guest knows itself; `tag`: what OpenNebula was told at its birth; `due`:
    when it gets where it is moving to; `target`: the host that it migrates to; `worked`: of its script, before it was saved."""

    vm: int
    tag: str
    unit: str
    attempt: int
    rank: int
    cores: int
    phase: Phase = Phase.HELD
    host: str = ""
    ending: bool = False
    due: float = 0.0
    started: float | None = None  # its script runs since
    deaf: bool = False
    stuck: bool = False
    saving: bool = False
    target: str = ""
    worked: float | None = None
    reported: bool = False  # its job has completed, and it waits for another one


@dataclass
class Site:
    cloud: str
    chance: random.Random
    hosts: dict[str, int]  # name -> OpenNebula's id
    down: set[str] = field(default_factory=set)
    vms: dict[int, Machine] = field(default_factory=dict)
    boots_fail: float = 0.1
    odd: float = ODD
    ran: dict[tuple[str, int, int], int] = field(default_factory=dict)  # how often each was deployed
    harmed: list[int] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    last_words: Callable[[Machine], None] = lambda _machine: None
    _last: int = 0

    def _is_odd(self, what: str) -> bool:
        odd = self.chance.random() < self.odd
        self.faults[what] += odd
        return odd

    # ---------------------------------------------------------------------------------------------------------- calls

    def perform(self, call: Call, now: float) -> Result:
        """The call arrives."""
        if isinstance(call, Allocate):
            if self._is_odd("allocate refused"):
                return Result(call, Outcome.REFUSED, why="no quota left")
            self._last += 1
            made = Machine(self._last, f"{self.cloud}/{call.key}", call.unit, call.attempt, call.rank, call.size.cores)
            made.deaf, made.stuck = self._is_odd("deaf guest"), self._is_odd("stuck VM")
            self.vms[self._last] = made
            return Result(call, Outcome.OK, vm=self._last)
        if isinstance(call, Look):
            return Result(call, Outcome.OK, found=self.sight(call.host))
        if call.vm in FOREIGN:
            self.harmed.append(call.vm)
        machine = self.vms.get(call.vm)
        if machine is None:
            return Result(call, Outcome.GONE, why="no such VM")
        done = self._change(machine, call, now)
        return Result(call, Outcome.OK) if done else Result(call, Outcome.REFUSED, why="wrong state")

    def _change(self, machine: Machine, call: Deploy | Terminate | Save | Migrate, now: float) -> bool:
        if isinstance(call, Deploy):
            return self._deploy(machine, call, now)
        if isinstance(call, Terminate):
            return self._end(machine, call.hard, now)
        if machine.phase is not Phase.RUNNING or machine.host in self.down:
            return False
        if isinstance(call, Migrate) and (call.host in (machine.host, *self.down) or self._is_odd("migrate refused")):
            return False
        if machine.stuck:
            return True
        machine.phase, machine.due = Phase.MOVING, now + self.chance.uniform(*SAVE_S)
        machine.saving, machine.target = isinstance(call, Save), call.host if isinstance(call, Migrate) else ""
        return True

    def _deploy(self, machine: Machine, call: Deploy, now: float) -> bool:
        if machine.phase not in (Phase.HELD, Phase.SAVED) or call.host in self.down or self._is_odd("deploy refused"):
            return False
        if machine.phase is Phase.SAVED:
            self.faults["resumed"] += 1
            machine.phase, machine.host, machine.due = Phase.MOVING, call.host, now + self.chance.uniform(*BOOT_S)
            return True
        machine.phase, machine.host, machine.due = Phase.MOVING, call.host, now + self.chance.uniform(*BOOT_S)
        machine.due += HANG_S * self._is_odd("boot hangs")
        key = (machine.unit, machine.attempt, machine.rank)
        self.ran[key] = self.ran.get(key, 0) + 1
        return True

    def _end(self, machine: Machine, hard: bool, now: float) -> bool:
        if machine.phase is Phase.MOVING:
            return False
        if machine.host and (machine.stuck or (machine.deaf and not hard)):
            return True  # it says yes, and nothing happens
        if hard:
            del self.vms[machine.vm]
        elif machine.phase is Phase.RUNNING:
            machine.phase, machine.ending, machine.due = Phase.MOVING, True, now + self.chance.uniform(*SHUTDOWN_S)
        return hard or machine.ending

    def power_off(self, machine: Machine) -> bool:
        """The guest stops by itself; False if it cannot."""
        if not machine.stuck:
            self.vms.pop(machine.vm, None)
        return not machine.stuck

    def fence(self, host: str) -> None:
        """Somebody cuts the power of a host: what was stuck there is gone."""
        for machine in self.on(host):
            if machine.stuck:
                del self.vms[machine.vm]

    def live(self, now: float) -> None:
        """Time has passed."""
        for machine in list(self.vms.values()):
            if machine.phase is Phase.MOVING and machine.due <= now:
                if machine.ending:
                    if machine.host not in self.down:
                        self.last_words(machine)
                    self.vms.pop(machine.vm, None)
                elif machine.saving or machine.target:
                    self._arrive(machine, now)
                elif machine.worked is not None:
                    machine.phase, machine.started, machine.worked = Phase.RUNNING, now - machine.worked, None
                else:
                    failed = self.chance.random() < self.boots_fail
                    self.faults["boot fails"] += failed
                    machine.phase = Phase.FAILED if failed else Phase.RUNNING

    def _arrive(self, machine: Machine, now: float) -> None:
        """It is saved, or has moved; or not."""
        what = "save fails" if machine.saving else "migration fails"
        failed, saved, target = self._is_odd(what), machine.saving, machine.target
        machine.phase, machine.saving, machine.target = Phase.RUNNING, False, ""
        if failed:
            return
        self.faults["saved" if saved else "migrated"] += 1
        if saved:
            machine.phase, machine.host = Phase.SAVED, ""
            machine.worked = None if machine.started is None else now - machine.started
        else:
            machine.host = target

    def next_due(self) -> float:
        return min((m.due for m in self.vms.values() if m.phase is Phase.MOVING), default=float("inf"))

    # --------------------------------------------------------------------------------------------------------- sights

    def sight(self, name: str) -> HostSight:
        others = [vm for vm in FOREIGN if name == "h1"]
        there = tuple(sorted([*others, *(m.vm for m in self.on(name))]))
        bad = "error" if name in self.down else ""
        return HostSight(name, self.hosts[name], not bad, bad, Size(CORES, MEMORY_MB), "default", {}, there)

    def host_pool(self) -> list[HostSight]:
        return [self.sight(name) for name in self.hosts]

    def vm_pool(self, tags: bool = False) -> list[Sight]:
        others = [Sight(vm, Phase.RUNNING, tag if tags else "") for vm, tag in FOREIGN.items()]
        return others + [self._show(machine, tags) for machine in self.vms.values()]

    def _show(self, machine: Machine, tags: bool) -> Sight:
        hidden = machine.host in self.down and machine.phase is not Phase.HELD
        where = self.hosts.get(machine.target or machine.host, -1)
        return Sight(machine.vm, Phase.UNKNOWN if hidden else machine.phase, machine.tag if tags else "", where)

    def on(self, host: str) -> list[Machine]:
        """Who is there, or on the way there."""
        return [machine for machine in self.vms.values() if host in (machine.host, machine.target)]
