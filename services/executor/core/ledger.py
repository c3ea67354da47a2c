"""What the executor folds beside custody: what the journal wants of each open VM and by when, what room each takes, and which
ranks want one.

Theory of operation
  The state is `ledger_state`'s (a snapshot is its encoding); all else is derived from custody and can be recomputed.
  `dirty`, `freed`, `rebound` and `refused` tell the planner what has changed since it looked last; nothing is scanned per fact.
  A VM has a reason to run (its attempt is live), or it is *doomed* (it must have left its host by `kill_by`), or *kept*: for
  the next job (lingering, parked), or, doomed as well, for a later attempt of its own (moving, saving).  `lifecycle.TOLD` says
  which event leads where; `_tell` looks it up, and nothing else changes an aim.

Rules
  1. An open VM is doomed if its attempt is not live, or if its host is not held (X4), but for those that are kept: it continues
     as a later attempt, or waits for another job.
  2. A rank of a live attempt that never had a VM is wanted (X2: once it had one, never again).  Of an attempt that resumes: the
     VM that it had before (X7).
  3. An open VM takes room until it has ended, live or not (X3); on the host that it leaves, until it has started elsewhere.
     What is doomed, kept, or has not left the host from which it moves takes room there that custody gives to others.
  4. The VM of a completed job of one node, in a department that keeps VMs warm, lingers, and is parked when its guest asks for
     another job.  No more than `vms_max` of a department are: the one that waited longest ends.
  5. A rank that is placed and the waiting VM that it may take over have one room between them: such pairs are made first, and
     only what is left over makes room for others, longest waiting first.
  6. `kill_by`: doomed + kill_s; on a host that is draining or lost: + grace_s (of a contract of its department, else of the
     policy), since a department waits for the host.  A job with a grace of its own has that (`domain.grace`), on any host.
     A parked VM runs nothing: at once.  What is saved or moves has `save_s` (`domain.saving`).  It is never moved later.
  7. One that moves waits for its new place for MOVE_WAIT_S at most, and half of its time: then it is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, get_args

from schemas import facts as f
from schemas.config import END_AGAIN_S, Policy, Warm
from schemas.dimensions import words
from schemas.ids import element_id, is_instance, sort_key
from schemas.size import NOTHING, total
from services.domain import grace, saving
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit, Vm, vm_key
from services.domain.observed import worthless
from services.executor.core.calls import Allocate
from services.executor.core.ledger_state import LINGER_S, MOVE_WAIT_S, PAUSED, Kept, Leaving, LedgerState, Paused, Room
from services.executor.core.lifecycle import Aim, Told, after

__all__ = ["Kept", "Leaving", "Ledger", "LedgerState", "Room"]
_DEFAULT: Final = Policy()  # until a configuration is adopted
_WARM_OFF: Final = Warm()
_KEPT: Final = (Aim.MOVE, Aim.SAVE, Aim.LINGER, Aim.PARK)
_WAITS: Final = (Aim.LINGER, Aim.PARK)
_GOES_ON: Final = (Aim.MOVE, Aim.SAVE)


class Ledger:
    """`weight`: host -> room taken there that custody does not count (rule 3)."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.state = LedgerState()
        self.weight: dict[str, Room] = {}
        self.leavers: dict[str, dict[str, None]] = {}  # host -> keys of VMs that move away from it
        self.away: dict[str, None] = {}  # … of which this leader has seen that they have left
        self.parked: dict[
            str, dict[str, None]
        ] = {}  # department -> keys of VMs that wait for a job, longest waiting first
        self.dirty: dict[str, None] = {}  # keys whose case is to be looked at again
        self.by_unit: dict[str, dict[str, None]] = {}  # unit -> keys of its open VMs
        self.by_host: dict[str, dict[str, None]] = {}  # host -> keys of the VMs journaled for it that are open
        self.by_vm: dict[int, str] = {}  # OpenNebula's id -> key of the open VM
        self.wants: dict[str, Allocate] = {}
        self.binding: dict[str, Allocate] = {}  # wanted, too, and perhaps there already: a saved VM, or a warm one
        self.freed: dict[str, None] = {}  # "h:<host>", "u:<unit>": what was waited for may be there
        self.worn: dict[str, None] = {}  # hosts whose samples so far count no more (`utilisation_reports`)
        self.rebound: dict[str, str] = {}  # key under which a VM was known -> its new one
        self.refused: list[f.VmAllocated] = []  # own facts that came back void: VMs of no attempt
        self.touched: dict[str, int] = {}  # host -> tick of the last fact about it or a VM on it (X5)
        self.saved_at: dict[int, int] = {}  # saved VM -> tick at which it was journaled
        self.tick = 0
        self._on: dict[type, Callable[[Any, Meta], None]] = {
            f.JobSubmitted: self._submitted,
            **dict.fromkeys(get_args(f.Cancelled), self._cancelled),
            f.UnitPlaced: self._placed,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._reported,
            f.DepartmentClosed: self._department_closed,
            f.VmAllocated: self._allocated,
            f.VmStarted: self._started,
            f.VmParked: self._vm_parked,
            f.VmFailed: self._failed,
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
            f.VmRefused: self._vm_refused,
            f.StartsPaused: self._paused,
            f.StartsResumed: self._paused,
            f.ConfigAdopted: self._configured,
        }

    @property
    def policy(self) -> Policy:
        config = self.custody.state.config
        return config.policy if config is not None else _DEFAULT

    @property
    def end_again_s(self) -> float:
        """A hard end that is under way is not repeated before this."""
        config = self.custody.state.config
        return config.end_again_s if config is not None else END_AGAIN_S

    # ----------------------------------------------------------------------------------------------------------- reading

    def aim(self, key: str, now: float) -> Aim:
        """What the journal demands of this VM at this time."""
        kill_by, kept = self.state.doomed.get(key), self.state.kept.get(key)
        if kept is None:
            if kill_by is None:
                return Aim.RUN
            return Aim.END if now < kill_by else after(Aim.END, Told.TIME_UP)
        if kill_by is not None and now >= kill_by:
            return after(Aim.SAVE, Told.TIME_UP)
        aim = kept.aim if now < kept.until else after(kept.aim, Told.TIME_UP)
        return after(aim, Told.TIME_UP) if aim is Aim.END and now >= self.kill_by(key, now) else aim

    def kill_by(self, key: str, now: float) -> float:
        """When it is ended hard (UTC seconds); `now` for one that nothing is known of."""
        kill_by, kept = self.state.doomed.get(key), self.state.kept.get(key)
        if kill_by is None and kept is not None:
            return kept.until + self.policy.kill_s
        return now if kill_by is None else kill_by

    def is_burden(self, key: str) -> bool:
        """It takes room that custody does not count."""
        return key in self.state.doomed or key in self.state.kept

    # ---------------------------------------------------------------------------------------------------------- changing

    def _tell(self, key: str, told: Told) -> None:
        """Something happened to this VM."""
        kept, doomed = self.state.kept.get(key), key in self.state.doomed
        before = kept.aim if kept is not None else Aim.END if doomed else Aim.RUN
        aim = after(before, told)
        if aim is not before:
            self._aim_at(key, aim)
        elif doomed:
            self._hurry(key, aim)

    def _aim_at(self, key: str, aim: Aim) -> None:
        at = self.custody.state.at
        self._weigh(key, -1)
        self._keep(key, None)
        if aim in _WAITS:
            self._keep(key, Kept(aim, at + (LINGER_S if aim is Aim.LINGER else self._idle_s(key))))
        else:
            if aim in _KEPT:
                self._keep(key, Kept(aim, float("inf")))
            self._hurry(key, aim)
        self._weigh(key, 1)
        self.dirty[key] = None

    def _hurry(self, key: str, aim: Aim) -> None:
        """Set `kill_by`, or bring it forward (rule 1)."""
        at, host = self.custody.state.at, self.custody.state.hosts.get(self.custody.state.vms[key].host)
        unit = self.custody.state.units[self.custody.state.vms[key].unit]
        patience_s = grace.of_unit(self.custody, unit)
        if host is not None and host.state not in ("draining", "lost"):  # no attempt waits for it
            patience_s = max(self.policy.kill_s, patience_s if unit.grace_s is not None else 0.0)
        if aim in (Aim.SAVE, Aim.MOVE):
            patience_s = self._save_s(key)
        kill_by = at if aim is Aim.KILL else at + patience_s
        known = self.state.doomed.get(key)
        self.state.doomed[key] = kill_by = kill_by if known is None else min(known, kill_by)
        kept = self.state.kept.get(key)
        if kept is not None and kept.aim is Aim.MOVE:
            kept.until = min(kept.until, at + min(MOVE_WAIT_S, max(0.0, kill_by - at) / 2))
        self.dirty[key] = None

    def _keep(self, key: str, kept: Kept | None) -> None:
        before = self.state.kept.pop(key, None)
        dept = self.custody.state.units[self.custody.state.vms[key].unit].dept if before or kept else ""
        if before is not None and before.aim is Aim.PARK:
            del self.parked[dept][key]
        if kept is not None:
            self.state.kept[key] = kept
            if kept.aim is Aim.PARK:
                self.parked.setdefault(dept, {})[key] = None

    # --------------------------------------------------------------------------------------------------------- how long

    def _save_s(self, key: str) -> float:
        state = self.custody.state
        return saving.save_s(state.config, state.units[state.vms[key].unit].dept)

    def _idle_s(self, key: str) -> float:
        state = self.custody.state
        return self.warm(state.units[state.vms[key].unit].dept).idle_s

    def warm(self, dept: str) -> Warm:
        """How the department keeps VMs warm."""
        department = self.custody.department(dept)
        return department.batch.warm if department is not None and department.batch is not None else _WARM_OFF

    # ------------------------------------------------------------------------------------------------------------- room

    def _weigh(self, key: str, sign: int) -> None:
        if self.is_burden(key):
            self._add(self.state.rooms[key], sign)

    def _add(self, room: Room, sign: int) -> None:
        weight = self.weight.setdefault(room.host, Room(NOTHING))
        weight.size = weight.size.plus(room.size.times(sign))

    def _leave(self, key: str, leaving: Leaving) -> None:
        """It is to run on its attempt's host, and may be on these still."""
        self.state.leaving[key] = leaving
        for room in leaving.rooms:
            self.leavers.setdefault(room.host, {})[key] = None
            self._add(room, 1)

    def has_left(self, key: str) -> None:
        """This leader has seen that it is not on the hosts any more that it was to leave: they need not wait for the fact."""
        leaving = self.state.leaving.get(key)
        if leaving is not None and key not in self.away:
            self.away[key] = None
            for room in leaving.rooms:
                self._add(room, -1)
                _remove(self.leavers, room.host, key)
                self._left(room.host, key)

    def _arrive(self, key: str) -> Leaving | None:
        """It has started, or is gone, or is another attempt's."""
        self.has_left(key)
        self.away.pop(key, None)
        return self.state.leaving.pop(key, None)

    def forget_what_was_seen(self) -> None:
        """A new leader looks for itself."""
        for key in list(self.away):
            self._leave(key, self.state.leaving[key])
        self.away.clear()

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
        handler = self._on.get(type(fact))
        if handler is not None:
            handler(fact, meta)
        for unit in self.custody.forgotten:
            self.state.users.pop(unit, None)
            self.state.refusals.pop(unit, None)

    def _wear(self, fact: f.Fact) -> None:
        """What was reported of some hosts is no longer valid."""
        for name in worthless(fact):
            self.state.told.pop(name, None)
            self.worn[name] = None

    def _observed(self, fact: f.HostObserved, _meta: Meta) -> None:
        if fact.host in self.custody.state.hosts:
            self.state.told[fact.host], self.worn[fact.host] = fact.cpu, None

    def _vm_refused(self, fact: f.VmRefused, _meta: Meta) -> None:
        if self.custody.live(fact.unit, fact.attempt):
            self.state.refusals[fact.unit] = fact.attempt

    def _paused(self, fact: f.StartsPaused | f.StartsResumed, _meta: Meta) -> None:
        self.state.paused = Paused(fact.since, fact.why) if isinstance(fact, f.StartsPaused) else None
        self.freed[PAUSED] = None

    def load(self, state: LedgerState) -> None:
        """Begin from `state`, custody being where it was when the state was dumped."""
        custody = self.custody
        self.state = state
        views = (self.by_unit, self.by_host, self.weight, self.leavers, self.away, self.parked, self.touched)
        for view in (*views, self.by_vm, self.saved_at, self.wants, self.binding, self.dirty, self.freed, self.rebound):
            view.clear()
        self.refused.clear()
        for key, vm in custody.state.vms.items():
            self._index(key, vm.vm, vm.unit, vm.host)
            self.dirty[key] = None
            self._weigh(key, 1)
        for key, leaving in state.leaving.items():
            self._leave(key, leaving)
        for key, kept in state.kept.items():  # in the order in which they were parked
            if kept.aim is Aim.PARK:
                self.parked.setdefault(custody.state.units[custody.state.vms[key].unit].dept, {})[key] = None
        for name in sorted((name for units in custody.index.open.values() for name in units), key=sort_key):
            self._want(custody.state.units[name])

    def _index(self, key: str, vm: int, unit: str, host: str) -> None:
        self.by_vm[vm] = key
        self.by_unit.setdefault(unit, {})[key] = None
        self.by_host.setdefault(host, {})[key] = None

    def _want(self, unit: Unit) -> None:
        if not unit.live:
            return
        had = unit.allocated.get(unit.attempt, 0)
        for rank in range(len(unit.hosts)):
            if not had >> rank & 1:
                self.want_again(unit, rank)

    def want_again(self, unit: Unit, rank: int) -> None:
        """A rank of the unit's live attempt has no VM."""
        key = vm_key(unit.id, unit.attempt, rank)
        wants = self.binding if unit.resumes or self._may_be_warm(unit) else self.wants
        wants[key] = Allocate(unit.id, unit.attempt, rank, unit.hosts[rank], unit.size, key, self._image(unit))

    def _image(self, unit: Unit) -> str:
        """Of an instance: its release's; empty: the site's."""
        if not is_instance(unit.id):
            return ""
        state = self.custody.state
        asked = state.releases.get(unit.dept, {}).get(unit.release)
        if asked is not None:
            return asked.content.image
        department = state.config.department(unit.dept) if state.config is not None else None
        return department.web.image if department is not None and department.web is not None else ""

    def _placed(self, fact: f.UnitPlaced, _meta: Meta) -> None:
        self._wear(fact)
        self._want(self.custody.state.units[fact.unit])

    def _submitted(self, fact: f.JobSubmitted, _meta: Meta) -> None:
        warm = self.warm(fact.dept)
        if warm.idle_s > 0.0 and warm.share == "user" and fact.nodes == 1:
            for unit in [element_id(fact.job, i) for i in fact.array] or [fact.job]:
                self.state.users[unit] = fact.user

    def _cancelled(self, _fact: f.Cancelled, _meta: Meta) -> None:
        for unit in self.custody.changed:
            self._review(unit)

    def _closed(self, fact: f.AttemptClosed, _meta: Meta) -> None:
        if self.custody.state.units[fact.unit].suspended:
            moves = fact.disposal is f.Disposal.MIGRATE and self.migrates_live
            for key in self.by_unit.get(fact.unit, ()):
                if self.custody.state.vms[key].attempt == fact.attempt:
                    self._tell(key, Told.MIGRATED if moves else Told.SUSPENDED)
        self._review(fact.unit)

    def _reported(self, fact: f.AttemptReported, _meta: Meta) -> None:
        unit = self.custody.state.units[fact.unit]
        if fact.exit == 0 and unit.nodes == 1 and self.warm(unit.dept).idle_s > 0.0:
            for key in self.by_unit.get(fact.unit, ()):
                if self.custody.state.vms[key].attempt == fact.attempt:
                    self._tell(key, Told.COMPLETED)
        self._review(fact.unit)

    def _department_closed(self, fact: f.DepartmentClosed, _meta: Meta) -> None:
        for unit in list(self.by_unit):
            if self.custody.state.units[unit].dept == fact.dept:
                for key in self.by_unit[unit]:
                    self._tell(key, Told.UNSAVED if self._goes_on(key) else Told.CLOSED)

    def _allocated(self, fact: f.VmAllocated, _meta: Meta) -> None:
        key, before = vm_key(fact.unit, fact.attempt, fact.rank), self.by_vm.get(fact.vm)
        self.saved_at.pop(fact.vm, None)
        self.wants.pop(key, None)
        self.binding.pop(key, None)
        left: Leaving | None = None
        if before is not None:  # it was another attempt's until now
            left = self._still_there(before, fact.host)
            self._drop(before)
            self.rebound[before] = key
        self._index(key, fact.vm, fact.unit, fact.host)
        self.state.rooms[key] = self._room(fact)
        if left is not None and left.rooms:
            self._leave(key, left)
        self._touch(fact.host)
        self.dirty[key] = None
        host = self.custody.state.hosts.get(fact.host)
        if host is None or host.state != "held" or not self.custody.live(fact.unit, fact.attempt):
            self._tell(key, Told.CLOSED)

    def _still_there(self, key: str, host: str) -> Leaving:
        """Where a VM may be that is to be on `host` from now on."""
        before = self.state.leaving.get(key)
        rooms = [self.state.rooms[key], *(before.rooms if before is not None else ())]
        by = min(self.state.doomed.get(key, float("inf")), before.by if before is not None else float("inf"))
        return Leaving([room for room in rooms if room.host != host], by)

    def _room(self, fact: f.VmAllocated) -> Room:
        unit, host = self.custody.state.units[fact.unit], self.custody.state.hosts.get(fact.host)
        if unit.attempt == fact.attempt:
            return Room(unit.size, unit.exclusive, fact.host, fact.vm)
        size = host.size if host is not None else NOTHING
        return Room(size, True, fact.host, fact.vm)  # its size is forgotten: as large as can be

    def _started(self, fact: f.VmStarted, _meta: Meta) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self._arrive(key)
        self.dirty[key] = None

    def _vm_parked(self, fact: f.VmParked, _meta: Meta) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self._tell(key, Told.PARKED)
        dept = self.custody.state.units[fact.unit].dept
        waiting = self.parked.get(dept, {})
        while len(waiting) > self.warm(dept).vms_max:
            self._tell(next(iter(waiting)), Told.EVICTED)
        self._left(self.custody.state.vms[key].host, key)

    def _failed(self, fact: f.VmFailed, _meta: Meta) -> None:
        self._review(fact.unit)

    def _ended(self, fact: f.VmEnded, meta: Meta) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        vm = self.state.rooms[key].vm
        self._drop(key)
        if vm in self.custody.state.saved:
            self.saved_at[vm] = self.next_tick()
        for unit in (*meta.broken, *meta.unsaved):
            self._review(unit)

    def _drop(self, key: str) -> None:
        """The VM is not this key's any more: it has ended, or is another attempt's from now on."""
        self._weigh(key, -1)
        self._arrive(key)
        room, kept = self.state.rooms.pop(key), self.state.kept.pop(key, None)
        self.state.doomed.pop(key, None)
        host, unit = room.host, key.partition("/")[0]
        if kept is not None and kept.aim is Aim.PARK:
            del self.parked[self.custody.state.units[unit].dept][key]
        self.by_vm.pop(room.vm, None)
        _remove(self.by_unit, unit, key)
        _remove(self.by_host, host, key)
        self._touch(host)
        self.dirty[key] = self.freed[f"u:{unit}"] = None

    def _host_taken(self, fact: f.HostReleased | f.HostSeized | f.HostLost, meta: Meta) -> None:
        self._host_moved(fact, meta)
        told = Told.HOST_LOST if isinstance(fact, f.HostLost) else Told.HOST_TAKEN
        for key in self.by_host.get(fact.host, ()):
            self._tell(key, told)
            self.freed[f"u:{self.custody.state.vms[key].unit}"] = None  # X3 does not wait for VMs on lost hosts
        for key in self.leavers.get(fact.host, ()):
            leaving = self.state.leaving[key]
            leaving.by = min(leaving.by, self.custody.state.at + (0.0 if told is Told.HOST_LOST else self._save_s(key)))
            self.dirty[key] = self.freed[f"u:{self.custody.state.vms[key].unit}"] = None
        for unit in meta.broken:
            self._review(unit)

    def _host_moved(self, fact: Any, _meta: Meta) -> None:
        self._wear(fact)
        self._touch(fact.host)

    def _configured(self, _fact: f.ConfigAdopted, _meta: Meta) -> None:
        """Other rules for hosts, perhaps."""
        self.freed.update(dict.fromkeys((f"h:{name}" for name in self.custody.state.hosts), None))

    def _touch(self, host: str) -> None:
        self.touched[host] = self.next_tick()
        self.freed[f"h:{host}"] = None

    def _left(self, host: str, key: str) -> None:
        self._touch(host)
        self.freed[f"u:{key.partition('/')[0]}"] = None

    def _review(self, unit: str) -> None:
        """Something has become of its attempt: its VMs that have no reason to run, or to be saved, must end."""
        for key in self.by_unit.get(unit, ()):
            if self._goes_on(key):
                known = self.custody.state.units[unit]
                if not (known.suspended or known.resumes):
                    self._tell(key, Told.UNSAVED)
            elif key not in self.state.kept and not self.custody.live(unit, self.custody.state.vms[key].attempt):
                self._tell(key, Told.CLOSED)

    def _goes_on(self, key: str) -> bool:
        kept = self.state.kept.get(key)
        return kept is not None and kept.aim in _GOES_ON

    # ------------------------------------------------------------------------------------------------------------- warm

    @property
    def migrates_live(self) -> bool:
        config = self.custody.state.config
        return config is not None and "live_migration" in config.capabilities

    def _may_be_warm(self, unit: Unit) -> bool:
        return unit.nodes == 1 and not is_instance(unit.id) and self.warm(unit.dept).idle_s > 0.0

    def warm_for(self, want: Allocate, now: float) -> list[tuple[str, Vm]]:
        """VMs on the rank's host that it may take over, now or as soon as they are parked: parked ones first."""
        unit, found = self.custody.state.units[want.unit], []
        for key in self.by_host.get(want.host, ()):
            if self.aim(key, now) in (Aim.LINGER, Aim.PARK) and self._fits(key, unit):
                kept = self.state.kept[key]
                found.append((kept.aim is not Aim.PARK, kept.until, *_order(key)))
        return [(key, self.custody.state.vms[key]) for *_, key in sorted(found)]

    def _fits(self, key: str, unit: Unit) -> bool:
        """Of the same shape and department, and, if its VMs are their users', of the same user."""
        vm, room = self.custody.state.vms[key], self.state.rooms[key]
        if self.custody.state.units[vm.unit].dept != unit.dept:
            return False
        if (room.size, room.exclusive) != (unit.size, unit.exclusive):
            return False
        if self.warm(unit.dept).share == "department":
            return True
        user = self.state.users.get(unit.id)
        return user is not None and self.state.users.get(vm.unit) == user

    # ------------------------------------------------------------------------------------------------------------ X3

    def has_room(self, key: str, now: float) -> bool:
        """The host has room for this VM beside the live attempts and the VMs that have no right to be there any more.  One that
        waits for a job is there already, as is each open VM: together they must have room, whatever else was placed there."""
        return self._has_room(
            key, () if self.is_burden(key) else self.taken_over(self.custody.state.vms[key].host, now)
        )

    def taken_over(self, host: str, now: float) -> tuple[str, ...]:
        """VMs that wait there, one for each rank that is placed there, has no VM yet and may take that one over.  They are in
        no other's way: the rank has the same size, in custody."""
        units, taken = self.custody.state.units, dict[str, None]()
        for unit in map(units.__getitem__, self.custody.state.hosts[host].units if self.binding else ()):
            want = self.binding.get(vm_key(unit.id, unit.attempt, 0))
            if want is not None and not unit.resumes:
                fitting = (key for key, _ in self.warm_for(want, now) if key not in taken)
                taken.update(dict.fromkeys(islice(fitting, 1)))
        return tuple(taken)

    def _has_room(self, key: str, without: tuple[str, ...]) -> bool:
        vm, room, rooms = self.custody.state.vms[key], self.state.rooms[key], self.state.rooms
        host, weight = self.custody.state.hosts[vm.host], self.weight.get(vm.host, Room(NOTHING))
        others = [rooms[k] for k in self.by_host[vm.host] if k != key and self.is_burden(k) and k not in without]
        for other in self.leavers.get(vm.host, ()):
            others += [r for r in self.state.leaving[other].rooms if r.host == vm.host]
        if any(r.exclusive for r in others) or (room.exclusive and others):
            return False
        used = host.used
        if self.is_burden(key):
            used = total(rooms[k].size for k in self.by_host[vm.host] if not self.is_burden(k))
        used = used.plus(weight.size).minus(total(rooms[k].size for k in without))
        # Live attempts had their room when they were placed: a host that offers less since then keeps none of them waiting.
        return used.fits_in(host.size.most(host.used))

    def in_the_way(self, key: str, now: float) -> list[str]:
        """Those that wait on this VM's host for a job that does not come, and must go so that it has free capacity; none if
        that does not help.  Who has waited longest goes first."""
        host = self.custody.state.vms[key].host
        taken = self.taken_over(host, now)
        waiting = [k for k in self.by_host.get(host, ()) if k != key and self.aim(k, now) in (Aim.LINGER, Aim.PARK)]
        waiting = [k for k in waiting if k not in taken]
        waiting.sort(key=lambda k: (self.state.kept[k].until, *_order(k)))
        for count in range(1, len(waiting) + 1):
            if self._has_room(key, (*(() if self.is_burden(key) else taken), *waiting[:count])):
                return waiting[:count]
        return []

    def is_left(self, host: str) -> bool:
        """No VM ever journaled for this host is open there (X5)."""
        return host not in self.by_host and host not in self.leavers

    def is_left_behind(self, key: str) -> bool:
        """It was to be saved, or to move, and is on lost hosts alone; its job is to continue with it, and does not know
        that."""
        vm, hosts = self.custody.state.vms.get(key), self.custody.state.hosts
        if vm is None or vm.host not in hosts or hosts[vm.host].state != "lost":
            return False
        leaving = self.state.leaving.get(key)
        if leaving is not None and any(r.host in hosts and hosts[r.host].state != "lost" for r in leaving.rooms):
            return False
        unit = self.custody.state.units[vm.unit]
        return vm.attempt >= unit.life and (unit.suspended or (unit.resumes and vm.attempt < unit.attempt))

    def older_open(self, unit: str, attempt: int) -> bool:
        """A VM of an older attempt is open on a host that is not lost, or may be on such a host still, which it is to leave."""
        hosts = self.custody.state.hosts
        older = [k for k in self.by_unit.get(unit, ()) if self.custody.state.vms[k].attempt < attempt]
        return any(name not in hosts or hosts[name].state != "lost" for k in older for name in self._may_be_on(k))

    def _may_be_on(self, key: str) -> list[str]:
        leaving = self.state.leaving.get(key) if key not in self.away else None
        return [self.state.rooms[key].host, *(room.host for room in (leaving.rooms if leaving is not None else ()))]

    # ------------------------------------------------------------------------------------------------------------ checks

    def check(self) -> list[str]:
        custody, doomed, rooms = self.custody, self.state.doomed, self.state.rooms
        vms, hosts = custody.state.vms, custody.state.hosts
        found = [f"room is kept for {k}, which is not open" for k in rooms if k not in vms]
        for what, keys in (("doomed", doomed), ("kept", self.state.kept), ("leaving", self.state.leaving)):
            found += [f"{k} is {what} and not open" for k in keys if k not in vms]
        for key, vm in vms.items():
            held = vm.host in hosts and hosts[vm.host].state == "held"
            if key not in doomed and not (held and (key in self.state.kept or custody.live(vm.unit, vm.attempt))):
                found.append(f"{key} is open on {vm.host} and should be doomed")
            if self._goes_on(key) and (key not in doomed or custody.live(vm.unit, vm.attempt)):
                found.append(f"{key} is kept for a later attempt, and should be doomed and not live")
            if key not in rooms or key not in self.by_host.get(vm.host, {}) or key not in self.by_unit.get(vm.unit, {}):
                found.append(f"{key} is open and not indexed")
        for host, weight in self.weight.items():
            there = [rooms[k] for k in self.by_host.get(host, ()) if self.is_burden(k)]
            there += [r for k in self.leavers.get(host, ()) for r in self.state.leaving[k].rooms if r.host == host]
            taken = total(room.size for room in there)
            if taken != weight.size:
                found.append(f"doomed VMs on {host} take {words(taken)}, counted {words(weight.size)}")
        return found


def _order(key: str) -> tuple[tuple[int, int, str], str]:
    """A total order of VMs by their unit's submission."""
    return sort_key(key.partition("/")[0]), key


def _remove(view: dict[str, dict[str, None]], name: str, key: str) -> None:
    keys = view[name]
    del keys[key]
    if not keys:
        del view[name]
