"""What a fact is worth at its place in the journal: the preconditions of custody, and the questions that others ask of it.

Rules
  1. Nothing here writes.  `_void_<kind>` names the precondition that fails, or gives None (PROTOCOL.md, the two tables).
  2. Preconditions look at the fold's state alone, never at a clock or at who asks.
  3. What a rules number added holds only once a `config.adopted` with that number, or a higher one, has been folded: an old
     journal is worth what it was worth when it was written (S8).
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.config import Department
from schemas.ids import element_id, instance_parts, is_instance
from services.domain.custody.meta import Void
from services.domain.custody.state import FINALS_MAX, Host, Index, Quota, State, Unit, Vm, vm_key
from services.domain.specs import TooMany, array

# The first rules number under which …
BINDS_AGAIN: Final = 2  # a VM may be bound to one attempt after another
TERM_STOPS: Final = 3  # exit 0 of a script that its guest has told to end is no success
ARRAYS_AT_ONCE: Final = 4  # what is said of elements of an array is one fact
NAMED_STAYS: Final = 4  # a department is not closed while the configuration in force names it
CORDONS_HOLD: Final = 3  # nothing new is placed on a cordoned host, and one whose drain is due may be seized


class Verdicts:
    """The fold's state, read."""

    __slots__ = ("index", "state")

    def __init__(self) -> None:
        self.state = State()
        self.index = Index()

    # -------------------------------------------------------------------------------------------------------- reading

    def live(self, unit: str, attempt: int) -> bool:
        known = self.state.units.get(unit)
        return known is not None and known.attempt == attempt and known.live

    @property
    def departments(self) -> tuple[Department, ...]:
        """Of the configuration in force; none before there is one."""
        return self.state.config.departments if self.state.config is not None else ()

    def department(self, name: str) -> Department | None:
        return self.state.config.department(name) if self.state.config is not None else None

    def held(self, dept: str) -> int:
        """Hosts that `dept` holds."""
        return len(self.index.held.get(dept, ()))

    def quota(self, dept: str) -> Quota:
        return self.state.quotas.get(dept) or Quota()

    def cordoned(self, dept: str) -> list[str]:
        """The cordoned hosts that `dept` holds, beside its quota (PROTOCOL, host.cordoned).  Of a department that the
        configuration does not name: none, its hosts all go."""
        apart, hosts = self.index.apart, self.state.hosts
        if not apart or self.department(dept) is None:
            return []
        held = self.index.held.get(dept, {})
        return sorted(name for name in apart if name in held and hosts[name].cordoned is not None)

    def bound(self, unit: str, attempt: int, rank: int) -> Vm | None:
        """The open VM whose guest goes by this name: its own, or the one that it had before it was resumed elsewhere."""
        key = vm_key(unit, attempt, rank)
        return self.state.vms.get(self.index.known_as.get(key, key))

    def taken_over(self, unit: str, attempt: int, rank: int) -> Vm | None:
        """The open VM whose guest had this name before it took another job over, which it may not know yet."""
        return self.state.vms.get(self.index.was.get(vm_key(unit, attempt, rank), ""))

    def fits(self, host: Host, cores: int, memory_mb: int, exclusive: bool) -> bool:
        """True if an attempt of this size has room on `host` beside the live ones."""
        if host.exclusive or (exclusive and host.units):
            return False
        return host.cores_used + cores <= host.cores and host.memory_used_mb + memory_mb <= host.memory_mb

    # -------------------------------------------------------------------------------------------------- preconditions

    def _void_host_granted(self, fact: f.HostGranted, _writer: str) -> Void | None:
        host = self.state.hosts.get(fact.host)
        if host is None:
            return Void.HOST_UNKNOWN
        return None if host.state == "free" else Void.HOST_NOT_FREE

    def _void_host_released(self, fact: f.HostReleased, writer: str) -> Void | None:
        return self._not_held(fact.host, writer.partition(".")[2])

    def _void_host_seized(self, fact: f.HostSeized, _writer: str) -> Void | None:
        void = self._not_held(fact.host, fact.dept)
        if void is not None or self.held(fact.dept) > self.quota(fact.dept).hosts:
            return void
        due = self.state.rules >= CORDONS_HOLD and self.state.hosts[fact.host].drain_due(self.state.at)
        return None if due else Void.WITHIN_QUOTA

    def _not_held(self, name: str, dept: str) -> Void | None:
        host = self.state.hosts.get(name)
        if host is None:
            return Void.HOST_UNKNOWN
        return None if host.state == "held" and host.dept == dept else Void.HOST_NOT_HELD

    def _void_host_cleared(self, fact: f.HostCleared, _writer: str) -> Void | None:
        host = self.state.hosts.get(fact.host)
        if host is None:
            return Void.HOST_UNKNOWN
        return None if host.state in ("draining", "lost", "absent") else Void.HOST_NOT_CLEARABLE

    def _void_host_removed(self, fact: f.HostRemoved, _writer: str) -> Void | None:
        host = self.state.hosts.get(fact.host)
        if host is None:
            return Void.HOST_UNKNOWN
        return None if host.state in ("free", "lost", "absent") else Void.HOST_NOT_REMOVABLE

    def _unknown_host(
        self, fact: f.HostLost | f.HostQuarantined | f.HostCordoned | f.HostUncordoned, _writer: str
    ) -> Void | None:
        return None if fact.host in self.state.hosts else Void.HOST_UNKNOWN

    _void_host_lost = _void_host_quarantined = _void_host_cordoned = _void_host_uncordoned = _unknown_host

    def _void_department_closed(self, fact: f.DepartmentClosed, _writer: str) -> Void | None:
        named = self.state.rules >= NAMED_STAYS and self.department(fact.dept) is not None
        return Void.DEPARTMENT_NAMED if named else None

    def _void_job_submitted(self, fact: f.JobSubmitted, _writer: str) -> Void | None:
        return None if int(fact.job) > self.state.job_last else Void.JOB_KNOWN

    def _job_final(self, fact: f.JobHeld | f.JobResumed | f.JobCancelled, _writer: str) -> Void | None:
        unit = self.state.units.get(fact.job)
        if unit is None:
            return Void.UNIT_UNKNOWN
        return Void.UNIT_FINAL if unit.state == "final" else None

    _void_job_held = _void_job_resumed = _void_job_cancelled = _job_final

    def elements(self, fact: f.OfArray) -> list[Unit]:
        """Those of the array's elements that the fact names and that are remembered.  Raises ValueError, `TooMany`."""
        units, named = self.state.units, array(fact.elements, FINALS_MAX)[0]
        return [unit for i in named if (unit := units.get(element_id(fact.job, i))) is not None]

    def _elements_final(self, fact: f.OfArray, _writer: str) -> Void | None:
        try:
            units = self.elements(fact)
        except (ValueError, TooMany):
            return Void.WRONG_SHAPE
        if not units:
            return Void.UNIT_UNKNOWN
        return None if any(unit.state != "final" for unit in units) else Void.UNIT_FINAL

    _void_array_held = _void_array_resumed = _void_array_cancelled = _elements_final

    def _void_unit_placed(self, fact: f.UnitPlaced, writer: str) -> Void | None:
        dept = writer.partition(".")[2]
        unit = self.state.units.get(fact.unit)
        void = self._instance_not_next(fact, dept) if unit is None else self._unit_not_next(unit, fact, dept)
        return void or self._no_place(fact, dept)

    def _instance_not_next(self, fact: f.UnitPlaced, dept: str) -> Void | None:
        if not is_instance(fact.unit):
            return Void.UNIT_UNKNOWN
        owner, number = instance_parts(fact.unit)
        if owner != dept:
            return Void.NOT_ITS_DEPARTMENT
        fresh = fact.attempt == 1 and number > self.state.instance_last.get(dept, 0)
        return None if fresh else Void.ATTEMPT_NOT_NEXT

    def _unit_not_next(self, unit: Unit, fact: f.UnitPlaced, dept: str) -> Void | None:
        if unit.dept != dept:
            return Void.NOT_ITS_DEPARTMENT
        if unit.state == "final":
            return Void.UNIT_FINAL
        if unit.cancelled:
            return Void.UNIT_CANCELLED
        if unit.held:
            return Void.UNIT_HELD
        if unit.state != "pending":
            return Void.UNIT_NOT_PENDING
        if fact.attempt != unit.attempt + 1:
            return Void.ATTEMPT_NOT_NEXT
        return None if len(fact.hosts) == unit.nodes else Void.WRONG_SHAPE

    def _no_place(self, fact: f.UnitPlaced, dept: str) -> Void | None:
        if not fact.hosts or (len(fact.hosts) > 1 and len(dict.fromkeys(fact.hosts)) != len(fact.hosts)):
            return Void.WRONG_SHAPE
        hosts, cores, memory_mb, exclusive = self.state.hosts, fact.cores, fact.memory_mb, fact.exclusive
        for name in fact.hosts:
            host = hosts.get(name)
            if host is None:
                return Void.HOST_UNKNOWN
            if host.state != "held" or host.dept != dept:
                return Void.HOST_NOT_HELD
            if not self.fits(host, cores, memory_mb, exclusive):
                return Void.NO_ROOM
            if host.cordoned is not None and self.state.rules >= CORDONS_HOLD and not self._goes_on(fact.unit, host):
                return Void.HOST_CORDONED
        return None

    def _goes_on(self, name: str, host: Host) -> bool:
        """True if a VM of the unit's present life runs there: a rank that stays where it is, while others move, is not new."""
        unit, vms = self.state.units.get(name), (self.state.vms[key] for key in host.vms)
        if unit is None or not unit.suspended:
            return False
        return any(vm.unit == name and vm.attempt >= unit.life for vm in vms)

    def _void_attempt_began(self, fact: f.AttemptBegan, _writer: str) -> Void | None:
        return None if self.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE

    def _void_attempt_closed(self, fact: f.AttemptClosed, writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            return Void.UNIT_UNKNOWN
        if unit.dept != writer.partition(".")[2]:
            return Void.NOT_ITS_DEPARTMENT
        return None if unit.state == "open" and unit.attempt == fact.attempt else Void.ATTEMPT_NOT_OPEN

    def _void_instance_draining(self, fact: f.InstanceDraining, writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None or not is_instance(fact.unit):
            return Void.UNIT_UNKNOWN
        if unit.dept != writer.partition(".")[2]:
            return Void.NOT_ITS_DEPARTMENT
        return None if self.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE

    def _void_instance_reported(self, fact: f.InstanceReported, _writer: str) -> Void | None:
        if fact.unit not in self.state.units or not is_instance(fact.unit):
            return Void.UNIT_UNKNOWN
        return None if self.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE

    def _void_release_requested(self, fact: f.ReleaseRequested, _writer: str) -> Void | None:
        """Two doors that number at once: the second one numbers anew."""
        return None if fact.release > self.state.release_last.get(fact.dept, 0) else Void.RELEASE_NOT_NEWER

    def _void_release_changed(self, fact: f.ReleaseChanged, writer: str) -> Void | None:
        return None if fact.dept == writer.partition(".")[2] else Void.NOT_ITS_DEPARTMENT

    def void_report(self, fact: f.AttemptReported) -> Void | None:
        """What is wrong with a guest's report here and now; None if it would count."""
        unit = self.state.units.get(fact.unit)
        if unit is None or is_instance(fact.unit):
            return Void.UNIT_UNKNOWN
        if unit.state == "final":
            return Void.UNIT_FINAL
        if unit.attempt != fact.attempt or not fact.attempt:
            return Void.ATTEMPT_NOT_LATEST
        if fact.exit != 0:
            return None if unit.live else Void.ATTEMPT_NOT_LIVE
        return Void.ATTEMPT_STOPPED if fact.terminated and self._stops_on_term(unit) else None

    def _void_attempt_reported(self, fact: f.AttemptReported, _writer: str) -> Void | None:
        return self.void_report(fact)

    def _stops_on_term(self, unit: Unit) -> bool:
        """True if exit 0 after SIGTERM says nothing of this unit: whatever stopped it decides what becomes of it."""
        department = self.department(unit.dept)
        batch = department.batch if department is not None else None
        wish = unit.on_term or (batch.on_term if batch is not None else "stop")
        return self.state.rules >= TERM_STOPS and wish == "stop"

    def _void_vm_allocated(self, fact: f.VmAllocated, _writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            return Void.UNIT_UNKNOWN
        if unit.allocated.get(fact.attempt, 0) >> fact.rank & 1:
            return Void.VM_KNOWN
        return self._not_free_for(unit, fact) if self.state.rules >= BINDS_AGAIN else None

    def _not_free_for(self, unit: Unit, fact: f.VmAllocated) -> Void | None:
        """A VM that is known already may become this rank's if it is saved for it, moves to it, or waits for a job there."""
        saved, key = self.state.saved.get(fact.vm), self.index.vm_ids.get(fact.vm)
        if saved is None and key is None:
            return None
        if not unit.live or unit.attempt != fact.attempt:
            return Void.ATTEMPT_NOT_LIVE
        if fact.rank >= len(unit.hosts) or unit.hosts[fact.rank] != fact.host:
            return Void.WRONG_SHAPE
        if saved is not None:
            return None if unit.resumes and (saved.unit, saved.rank) == (unit.id, fact.rank) else Void.VM_BUSY
        vm = self.state.vms[key or ""]
        if vm.parked_at is not None:
            ours = self.state.units[vm.unit].dept == unit.dept
            return None if ours and vm.host == fact.host else Void.VM_BUSY
        moves = unit.resumes and (vm.unit, vm.rank) == (unit.id, fact.rank) and unit.life <= vm.attempt < unit.attempt
        return None if moves else Void.VM_BUSY

    def _void_vm_parked(self, fact: f.VmParked, _writer: str) -> Void | None:
        vm = self.state.vms.get(vm_key(fact.unit, fact.attempt, fact.rank))
        if vm is None:
            return Void.VM_NOT_OPEN
        unit, host = self.state.units[vm.unit], self.state.hosts.get(vm.host)
        if unit.final != "completed" or unit.attempt != vm.attempt or unit.nodes != 1 or vm.parked_at is not None:
            return Void.VM_NOT_IDLE
        return None if host is not None and host.state == "held" and host.dept == unit.dept else Void.HOST_NOT_HELD

    def _vm_closed(self, fact: f.VmStarted | f.VmEnded, _writer: str) -> Void | None:
        return None if vm_key(fact.unit, fact.attempt, fact.rank) in self.state.vms else Void.VM_NOT_OPEN

    _void_vm_started = _void_vm_ended = _vm_closed
