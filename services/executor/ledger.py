"""What the executor folds beside custody: which open VMs must end and by when, what room each takes, and which are wanted.

Theory of operation
  `doomed` and `rooms` are the state (a snapshot is their encoding); all else is derived from custody and can be worked out
  anew.  `dirty`, `freed` and `refused` tell the planner what has changed since it looked last; nothing is scanned per fact.

Rules
  1. An open VM is doomed if its attempt is not live, or if its host is not held (X4); for ever, until it has ended.
  2. `kill_by`: doomed + kill_s, for an instance at least DRAIN_SLACK_S more than its department's drain_s; on a host that is
     draining or lost: + grace_s (of a contract of its department, else of the policy), since a department waits for the host.
     It is never moved later.
  3. A rank of a live attempt that never had a VM is wanted (X2: once it had one, never again).
  4. An open VM takes room until it has ended, live or not (X3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from schemas import facts as f
from schemas import lending
from schemas.config import Policy
from schemas.custody import Custody
from schemas.custody_state import Host, Unit, vm_key
from schemas.ids import instance_parts, is_instance, sort_key
from schemas.meta import Meta
from services.executor.bands import worthless
from services.executor.calls import Allocate
from services.executor.lifecycle import Aim

DRAIN_SLACK_S: Final = 1.0  # the guest ends the drain by itself; this is for the way of the call and of the news
_DEFAULT: Final = Policy()  # until a configuration is adopted


class Room(msgspec.Struct, array_like=True):
    """What one VM takes of its host."""

    cores: int
    memory_mb: int
    exclusive: bool = False
    host: str = ""
    vm: int = -1


class LedgerState(msgspec.Struct, kw_only=True):
    """`doomed`: key of an open VM -> when it is ended hard (UTC seconds); `rooms`: key of every open VM -> its room; `told`:
    host -> share of its cores in use, as `host.observed` said it last (`bands`)."""

    doomed: dict[str, float] = {}
    rooms: dict[str, Room] = {}
    told: dict[str, float] = {}


class Ledger:
    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.state = LedgerState()
        self.by_unit: dict[str, dict[str, None]] = {}  # unit -> keys of its open VMs
        self.by_host: dict[str, dict[str, None]] = {}  # host -> keys of the VMs journaled for it that are open
        self.by_vm: dict[int, str] = {}  # OpenNebula's id -> key of the open VM
        self.weight: dict[str, Room] = {}  # host -> room taken by doomed VMs
        self.wants: dict[str, Allocate] = {}
        self.dirty: dict[str, None] = {}  # keys whose case is to be looked at again
        self.freed: dict[str, None] = {}  # "h:<host>", "u:<unit>": what was waited for may be there
        self.untold: dict[str, None] = {}  # hosts of which what was told has become worthless
        self.refused: list[f.VmAllocated] = []  # own facts that came back void: VMs that nobody knows
        self.touched: dict[str, int] = {}  # host -> tick of the last fact about it or a VM on it (X5)
        self.tick = 0
        self._on: dict[type, Callable[[Any, Meta], None]] = {
            f.UnitPlaced: self._placed,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._closed,
            f.DepartmentClosed: self._department_closed,
            f.VmAllocated: self._allocated,
            f.VmStarted: self._started,
            f.VmEnded: self._ended,
            f.HostReleased: self._host_taken,
            f.HostSeized: self._host_taken,
            f.HostLost: self._host_taken,
            f.HostCleared: self._host_moved,
            f.HostGranted: self._host_moved,
            f.HostDescribed: self._host_moved,
            f.HostRemoved: self._host_moved,
            f.HostQuarantined: self._host_moved,
            f.HostObserved: self._observed,
            f.ConfigAdopted: self._configured,
        }

    @property
    def policy(self) -> Policy:
        config = self.custody.state.config
        return config.policy if config is not None else _DEFAULT

    def next_tick(self) -> int:
        """Orders polls, ends of calls and facts among each other."""
        self.tick += 1
        return self.tick

    # -------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.void is not None:
            if isinstance(fact, f.VmAllocated):
                self.refused.append(fact)
            return
        for name in worthless(fact):
            self.state.told.pop(name, None)
            self.untold[name] = None
        handler = self._on.get(type(fact))
        if handler is not None:
            handler(fact, meta)

    def _observed(self, fact: f.HostObserved, _meta: Meta) -> None:
        if fact.host in self.custody.state.hosts:
            self.state.told[fact.host] = fact.cpu

    def load(self, state: LedgerState) -> None:
        """Begin from `state`, custody being where it was when the state was dumped."""
        custody = self.custody
        self.state = state
        for view in (
            self.by_unit,
            self.by_host,
            self.by_vm,
            self.weight,
            self.wants,
            self.dirty,
            self.freed,
            self.touched,
        ):
            view.clear()
        self.refused.clear()
        for key, vm in custody.state.vms.items():
            self._index(key, vm.vm, vm.unit, vm.host)
            self.dirty[key] = None
        for key in state.doomed:
            self._weigh(key, 1)
        names = [name for dept in sorted(custody.index.open) for name in custody.index.open[dept]]
        for name in sorted(names, key=sort_key):
            self._want(custody.state.units[name])

    def _index(self, key: str, vm: int, unit: str, host: str) -> None:
        self.by_vm[vm] = key
        self.by_unit.setdefault(unit, {})[key] = None
        self.by_host.setdefault(host, {})[key] = None

    def _want(self, unit: Unit) -> None:
        if not unit.live:
            return
        had = unit.allocated.get(unit.attempt, 0)
        for rank, host in enumerate(unit.hosts):
            if not had >> rank & 1:
                key = vm_key(unit.id, unit.attempt, rank)
                self.wants[key] = Allocate(unit.id, unit.attempt, rank, host, unit.cores, unit.memory_mb, key)

    def _placed(self, fact: f.UnitPlaced, _meta: Meta) -> None:
        self._want(self.custody.state.units[fact.unit])

    def _closed(self, fact: f.AttemptClosed | f.AttemptReported, _meta: Meta) -> None:
        self._doom_unit(fact.unit)

    def _department_closed(self, _fact: f.DepartmentClosed, _meta: Meta) -> None:
        for unit in list(self.by_unit):
            self._doom_unit(unit)

    def _allocated(self, fact: f.VmAllocated, _meta: Meta) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self.wants.pop(key, None)
        if fact.vm in self.by_vm:  # it was another attempt's until now
            self._drop(self.by_vm[fact.vm])
        self._index(key, fact.vm, fact.unit, fact.host)
        self.state.rooms[key] = self._room(fact)
        self._touch(fact.host)
        self.dirty[key] = None
        host = self.custody.state.hosts.get(fact.host)
        if host is None or host.state != "held" or not self.custody.live(fact.unit, fact.attempt):
            self._doom(key)

    def _room(self, fact: f.VmAllocated) -> Room:
        unit, host = self.custody.state.units[fact.unit], self.custody.state.hosts.get(fact.host)
        if unit.attempt == fact.attempt:
            return Room(unit.cores, unit.memory_mb, unit.exclusive, fact.host, fact.vm)
        cores, memory_mb = (host.cores, host.memory_mb) if host is not None else (0, 0)
        return Room(cores, memory_mb, True, fact.host, fact.vm)  # its size is forgotten: as large as can be

    def _started(self, fact: f.VmStarted, _meta: Meta) -> None:
        self.dirty[vm_key(fact.unit, fact.attempt, fact.rank)] = None

    def _ended(self, fact: f.VmEnded, meta: Meta) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self._drop(key)
        for unit in meta.broken:
            self._doom_unit(unit)

    def _drop(self, key: str) -> None:
        """The VM is not this key's any more: it has ended, or is another attempt's from now on."""
        if self.state.doomed.pop(key, None) is not None:
            self._weigh(key, -1)
        room = self.state.rooms.pop(key)
        host, unit = room.host, key.rsplit("/", 2)[0]
        self.by_vm.pop(room.vm, None)
        _remove(self.by_unit, unit, key)
        _remove(self.by_host, host, key)
        self._touch(host)
        self.dirty[key] = self.freed[f"h:{host}"] = self.freed[f"u:{unit}"] = None

    def _host_taken(self, fact: f.HostReleased | f.HostSeized | f.HostLost, meta: Meta) -> None:
        self._host_moved(fact, meta)
        for key in self.by_host.get(fact.host, ()):
            self._doom(key)
            self.freed[f"u:{self.custody.state.vms[key].unit}"] = None  # X3 does not wait for VMs on lost hosts
        for unit in meta.broken:
            self._doom_unit(unit)

    def _host_moved(self, fact: Any, _meta: Meta) -> None:
        self._touch(fact.host)
        self.freed[f"h:{fact.host}"] = None

    def _configured(self, _fact: f.ConfigAdopted, _meta: Meta) -> None:
        """Other rules for hosts, perhaps."""
        self.freed.update(dict.fromkeys((f"h:{name}" for name in self.custody.state.hosts), None))

    def _touch(self, host: str) -> None:
        self.touched[host] = self.next_tick()
        self.freed.setdefault(f"h:{host}", None)

    # ---------------------------------------------------------------------------------------------------------- dooming

    def _doom_unit(self, unit: str) -> None:
        """Doom its open VMs whose attempt is not live."""
        for key in self.by_unit.get(unit, ()):
            if not self.custody.live(unit, self.custody.state.vms[key].attempt):
                self._doom(key)

    def _doom(self, key: str) -> None:
        host = self.custody.state.hosts.get(self.custody.state.vms[key].host)
        waited_for = host is None or host.state in ("draining", "lost")
        kill_by = self.custody.state.at + (self._grace_s(host) if waited_for else self._patience_s(key))
        known = self.state.doomed.get(key)
        if known is None:
            self._weigh(key, 1)
        self.state.doomed[key] = kill_by if known is None else min(known, kill_by)
        self.dirty[key] = None

    def _grace_s(self, host: Host | None) -> float:
        """From a graceful end to a hard one where a department waits for the host: the policy's, or that of a contract."""
        config, dept = self.custody.state.config, host.dept if host is not None else None
        if config is None or dept is None:
            return self.policy.grace_s
        return lending.grace_s(config, dept)

    def _patience_s(self, key: str) -> float:
        """From a graceful end to a hard one where nobody waits for the host (rule 2)."""
        unit, config = self.custody.state.vms[key].unit, self.custody.state.config
        department = config.department(instance_parts(unit)[0]) if config is not None and is_instance(unit) else None
        web = department.web if department is not None else None
        return self.policy.kill_s if web is None else max(self.policy.kill_s, web.drain_s + DRAIN_SLACK_S)

    def _weigh(self, key: str, sign: int) -> None:
        room = self.state.rooms[key]
        weight = self.weight.setdefault(room.host, Room(0, 0))
        weight.cores += sign * room.cores
        weight.memory_mb += sign * room.memory_mb

    def aim(self, key: str, now: float) -> Aim:
        """What the journal wants of this VM."""
        kill_by = self.state.doomed.get(key)
        if kill_by is None:
            return Aim.RUN
        return Aim.KILL if now >= kill_by else Aim.END

    # ------------------------------------------------------------------------------------------------------------ X3

    def has_room(self, key: str) -> bool:
        """The host has room for this VM beside the live attempts and the doomed VMs that are not gone yet."""
        vm, room = self.custody.state.vms[key], self.state.rooms[key]
        host, weight = self.custody.state.hosts[vm.host], self.weight.get(vm.host, Room(0, 0))
        doomed = [k for k in self.by_host[vm.host] if k in self.state.doomed]
        if any(self.state.rooms[k].exclusive for k in doomed) or (room.exclusive and doomed):
            return False
        cores, memory_mb = host.cores_used + weight.cores, host.memory_used_mb + weight.memory_mb
        # Live attempts had their room when they were placed: a host that offers less since then keeps none of them waiting.
        return cores <= max(host.cores, host.cores_used) and memory_mb <= max(host.memory_mb, host.memory_used_mb)

    def older_open(self, unit: str, attempt: int) -> bool:
        """A VM of an older attempt is open on a host that is not lost."""
        vms, hosts = self.custody.state.vms, self.custody.state.hosts
        older = (vms[k] for k in self.by_unit.get(unit, ()) if vms[k].attempt < attempt)
        return any(vm.host not in hosts or hosts[vm.host].state != "lost" for vm in older)

    # ------------------------------------------------------------------------------------------------------------ checks

    def check(self) -> list[str]:
        custody, doomed, rooms = self.custody, self.state.doomed, self.state.rooms
        vms, hosts = custody.state.vms, custody.state.hosts
        found = [f"room is kept for {k}, which is not open" for k in rooms if k not in vms]
        found += [f"{k} is doomed and not open" for k in doomed if k not in vms]
        for key, vm in vms.items():
            held = vm.host in hosts and hosts[vm.host].state == "held"
            if key not in doomed and not (held and custody.live(vm.unit, vm.attempt)):
                found.append(f"{key} is open on {vm.host} and should be doomed")
            if key not in rooms or key not in self.by_host.get(vm.host, {}) or key not in self.by_unit.get(vm.unit, {}):
                found.append(f"{key} is open and not indexed")
        for host, weight in self.weight.items():
            cores = sum(rooms[k].cores for k in self.by_host.get(host, ()) if k in doomed)
            if cores != weight.cores:
                found.append(f"doomed VMs on {host} take {cores} cores, counted {weight.cores}")
        return found


def _remove(view: dict[str, dict[str, None]], name: str, key: str) -> None:
    keys = view[name]
    del keys[key]
    if not keys:
        del view[name]
