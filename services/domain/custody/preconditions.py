"""What a fact is worth at its place in the journal: the preconditions of custody.

Rules
  1. Nothing here writes: a precondition names what fails, or gives None (PROTOCOL.md, the two tables).
  2. Preconditions look at custody alone, never at a clock or at who asks.
  3. What a number of the rules has added (`rules`) holds only once it is in force.
"""

from __future__ import annotations

from schemas import facts as f
from schemas.ids import instance_parts, is_instance
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Void
from services.domain.custody.rules import BINDS_AGAIN, CORDONS_HOLD, NAMED_STAYS, TERM_STOPS
from services.domain.custody.state import Host, Unit, vm_key
from services.domain.specs import TooMany


def host_granted(custody: Custody, fact: f.HostGranted, _writer: str) -> Void | None:
    host = custody.state.hosts.get(fact.host)
    if host is None:
        return Void.HOST_UNKNOWN
    return None if host.state == "free" else Void.HOST_NOT_FREE


def host_released(custody: Custody, fact: f.HostReleased, writer: str) -> Void | None:
    return _not_held(custody, fact.host, writer.partition(".")[2])


def host_seized(custody: Custody, fact: f.HostSeized, _writer: str) -> Void | None:
    void = _not_held(custody, fact.host, fact.dept)
    if void is not None or custody.held(fact.dept) > custody.quota(fact.dept).hosts:
        return void
    due = custody.state.rules >= CORDONS_HOLD and custody.state.hosts[fact.host].drain_due(custody.state.at)
    return None if due else Void.WITHIN_QUOTA


def _not_held(custody: Custody, name: str, dept: str) -> Void | None:
    host = custody.state.hosts.get(name)
    if host is None:
        return Void.HOST_UNKNOWN
    return None if host.state == "held" and host.dept == dept else Void.HOST_NOT_HELD


def host_cleared(custody: Custody, fact: f.HostCleared, _writer: str) -> Void | None:
    host = custody.state.hosts.get(fact.host)
    if host is None:
        return Void.HOST_UNKNOWN
    return None if host.state in ("draining", "lost", "absent") else Void.HOST_NOT_CLEARABLE


def host_removed(custody: Custody, fact: f.HostRemoved, _writer: str) -> Void | None:
    host = custody.state.hosts.get(fact.host)
    if host is None:
        return Void.HOST_UNKNOWN
    return None if host.state in ("free", "lost", "absent") else Void.HOST_NOT_REMOVABLE


def host_known(
    custody: Custody, fact: f.HostLost | f.HostQuarantined | f.HostCordoned | f.HostUncordoned, _writer: str
) -> Void | None:
    return None if fact.host in custody.state.hosts else Void.HOST_UNKNOWN


def department_closed(custody: Custody, fact: f.DepartmentClosed, _writer: str) -> Void | None:
    named = custody.state.rules >= NAMED_STAYS and custody.department(fact.dept) is not None
    return Void.DEPARTMENT_NAMED if named else None


def job_submitted(custody: Custody, fact: f.JobSubmitted, _writer: str) -> Void | None:
    return None if int(fact.job) > custody.state.job_last else Void.JOB_KNOWN


def job_open(custody: Custody, fact: f.JobHeld | f.JobResumed | f.JobCancelled, _writer: str) -> Void | None:
    unit = custody.state.units.get(fact.job)
    if unit is None:
        return Void.UNIT_UNKNOWN
    return Void.UNIT_FINAL if unit.state == "final" else None


def elements_open(custody: Custody, fact: f.OfArray, _writer: str) -> Void | None:
    try:
        units = custody.elements(fact)
    except (ValueError, TooMany):
        return Void.WRONG_SHAPE
    if not units:
        return Void.UNIT_UNKNOWN
    return None if any(unit.state != "final" for unit in units) else Void.UNIT_FINAL


def unit_placed(custody: Custody, fact: f.UnitPlaced, writer: str) -> Void | None:
    dept = writer.partition(".")[2]
    unit = custody.state.units.get(fact.unit)
    void = _instance_not_next(custody, fact, dept) if unit is None else _unit_not_next(unit, fact, dept)
    return void or _no_place(custody, fact, dept)


def _instance_not_next(custody: Custody, fact: f.UnitPlaced, dept: str) -> Void | None:
    if not is_instance(fact.unit):
        return Void.UNIT_UNKNOWN
    owner, number = instance_parts(fact.unit)
    if owner != dept:
        return Void.NOT_ITS_DEPARTMENT
    fresh = fact.attempt == 1 and number > custody.state.instance_last.get(dept, 0)
    return None if fresh else Void.ATTEMPT_NOT_NEXT


def _unit_not_next(unit: Unit, fact: f.UnitPlaced, dept: str) -> Void | None:
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


def _no_place(custody: Custody, fact: f.UnitPlaced, dept: str) -> Void | None:
    if not fact.hosts or (len(fact.hosts) > 1 and len(dict.fromkeys(fact.hosts)) != len(fact.hosts)):
        return Void.WRONG_SHAPE
    hosts, size = custody.state.hosts, custody.size(fact)
    # what the host before it has and what is used: wide jobs have hosts that are alike
    fitting: tuple[Size, Size] | None = None
    for name in fact.hosts:
        host = hosts.get(name)
        if host is None:
            return Void.HOST_UNKNOWN
        if host.state != "held" or host.dept != dept:
            return Void.HOST_NOT_HELD
        if (host.size, host.used) != fitting or host.exclusive or fact.exclusive:
            if not custody.fits(host, size, fact.exclusive):
                return Void.NO_ROOM
            fitting = (host.size, host.used)
        if host.cordoned is not None and custody.state.rules >= CORDONS_HOLD and not _goes_on(custody, fact.unit, host):
            return Void.HOST_CORDONED
    return None


def _goes_on(custody: Custody, name: str, host: Host) -> bool:
    """True if a VM of the unit's present life runs there: a rank that stays where it is, while others move, is not new."""
    unit, vms = custody.state.units.get(name), (custody.state.vms[key] for key in host.vms)
    if unit is None or not unit.suspended:
        return False
    return any(vm.unit == name and vm.attempt >= unit.life for vm in vms)


def attempt_began(custody: Custody, fact: f.AttemptBegan, _writer: str) -> Void | None:
    return None if custody.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE


def attempt_closed(custody: Custody, fact: f.AttemptClosed, writer: str) -> Void | None:
    unit = custody.state.units.get(fact.unit)
    if unit is None:
        return Void.UNIT_UNKNOWN
    if unit.dept != writer.partition(".")[2]:
        return Void.NOT_ITS_DEPARTMENT
    return None if unit.state == "open" and unit.attempt == fact.attempt else Void.ATTEMPT_NOT_OPEN


def instance_draining(custody: Custody, fact: f.InstanceDraining, writer: str) -> Void | None:
    unit = custody.state.units.get(fact.unit)
    if unit is None or not is_instance(fact.unit):
        return Void.UNIT_UNKNOWN
    if unit.dept != writer.partition(".")[2]:
        return Void.NOT_ITS_DEPARTMENT
    return None if custody.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE


def instance_reported(custody: Custody, fact: f.InstanceReported, _writer: str) -> Void | None:
    if fact.unit not in custody.state.units or not is_instance(fact.unit):
        return Void.UNIT_UNKNOWN
    return None if custody.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE


def release_requested(custody: Custody, fact: f.ReleaseRequested, _writer: str) -> Void | None:
    """Two doors that number at once: the second one renumbers."""
    return None if fact.release > custody.state.release_last.get(fact.dept, 0) else Void.RELEASE_NOT_NEWER


def release_changed(_custody: Custody, fact: f.ReleaseChanged, writer: str) -> Void | None:
    return None if fact.dept == writer.partition(".")[2] else Void.NOT_ITS_DEPARTMENT


def report(custody: Custody, fact: f.AttemptReported) -> Void | None:
    """What is wrong with a guest's report here and now; None if it would count."""
    unit = custody.state.units.get(fact.unit)
    if unit is None or is_instance(fact.unit):
        return Void.UNIT_UNKNOWN
    if unit.state == "final":
        return Void.UNIT_FINAL
    if unit.attempt != fact.attempt or not fact.attempt:
        return Void.ATTEMPT_NOT_LATEST
    if fact.exit != 0:
        return None if unit.live else Void.ATTEMPT_NOT_LIVE
    return Void.ATTEMPT_STOPPED if fact.terminated and _stops_on_term(custody, unit) else None


def attempt_reported(custody: Custody, fact: f.AttemptReported, _writer: str) -> Void | None:
    return report(custody, fact)


def _stops_on_term(custody: Custody, unit: Unit) -> bool:
    """True if exit 0 after SIGTERM says nothing of this unit: whatever stopped it decides what becomes of it."""
    department = custody.department(unit.dept)
    batch = department.batch if department is not None else None
    wish = unit.on_term or (batch.on_term if batch is not None else "stop")
    return custody.state.rules >= TERM_STOPS and wish == "stop"


def vm_allocated(custody: Custody, fact: f.VmAllocated, _writer: str) -> Void | None:
    unit = custody.state.units.get(fact.unit)
    if unit is None:
        return Void.UNIT_UNKNOWN
    if unit.allocated.get(fact.attempt, 0) >> fact.rank & 1:
        return Void.VM_KNOWN
    return _not_free_for(custody, unit, fact) if custody.state.rules >= BINDS_AGAIN else None


def _not_free_for(custody: Custody, unit: Unit, fact: f.VmAllocated) -> Void | None:
    """A VM that is known already may become this rank's if it is saved for it, moves to it, or waits for a job there."""
    saved, key = custody.state.saved.get(fact.vm), custody.index.vm_ids.get(fact.vm)
    if saved is None and key is None:
        return None
    if not unit.live or unit.attempt != fact.attempt:
        return Void.ATTEMPT_NOT_LIVE
    if fact.rank >= len(unit.hosts) or unit.hosts[fact.rank] != fact.host:
        return Void.WRONG_SHAPE
    if saved is not None:
        return None if unit.resumes and (saved.unit, saved.rank) == (unit.id, fact.rank) else Void.VM_BUSY
    vm = custody.state.vms[key or ""]
    if vm.parked_at is not None:
        ours = custody.state.units[vm.unit].dept == unit.dept
        return None if ours and vm.host == fact.host else Void.VM_BUSY
    moves = unit.resumes and (vm.unit, vm.rank) == (unit.id, fact.rank) and unit.life <= vm.attempt < unit.attempt
    return None if moves else Void.VM_BUSY


def vm_parked(custody: Custody, fact: f.VmParked, _writer: str) -> Void | None:
    vm = custody.state.vms.get(vm_key(fact.unit, fact.attempt, fact.rank))
    if vm is None:
        return Void.VM_NOT_OPEN
    unit, host = custody.state.units[vm.unit], custody.state.hosts.get(vm.host)
    if unit.final != "completed" or unit.attempt != vm.attempt or unit.nodes != 1 or vm.parked_at is not None:
        return Void.VM_NOT_IDLE
    return None if host is not None and host.state == "held" and host.dept == unit.dept else Void.HOST_NOT_HELD


def vm_failed(custody: Custody, fact: f.VmFailed, _writer: str) -> Void | None:
    if vm_key(fact.unit, fact.attempt, fact.rank) not in custody.state.vms:
        return Void.VM_NOT_OPEN
    return None if custody.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE


def vm_open(custody: Custody, fact: f.VmStarted | f.VmEnded, _writer: str) -> Void | None:
    return None if vm_key(fact.unit, fact.attempt, fact.rank) in custody.state.vms else Void.VM_NOT_OPEN


def demand_changed(_custody: Custody, fact: f.DemandChanged, writer: str) -> Void | None:
    return None if fact.dept == writer.partition(".")[2] else Void.NOT_ITS_DEPARTMENT
