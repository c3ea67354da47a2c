"""What a valid fact changes in custody: the only code that writes its state.

Rules
  1. Broken is for ever and occupies nothing: a broken attempt gives its room back at once, on all its hosts.
  2. An attempt is *live* if it is open and not broken.  The first fact that closes it wins; the others are void.
  3. Final units without open VM are forgotten, oldest first, beyond `FINALS_MAX`.  Job and instance numbers only grow, so a
     forgotten unit can never come back: every late fact on it is void.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.ids import element_id, instance_parts
from schemas.size import size_in
from services.domain.custody.custody import Custody
from services.domain.custody.rules import BINDS_AGAIN, RULES, RULES_KNOWN, Incompatible
from services.domain.custody.state import (
    FINALS_MAX,
    RELEASES_KEPT,
    Broken,
    Host,
    Leader,
    Quota,
    Saved,
    Unit,
    Vm,
    vm_key,
)

_ENDED: Final = {
    f.Disposal.KILL: "killed",
    f.Disposal.TIMEOUT: "timeout",
    f.Disposal.CANCELLED: "cancelled",
    f.Disposal.FAILED: "failed",
    f.Disposal.STOPPED: "stopped",
}


# ---------------------------------------------------------------------------------------------------- effects: hosts


def _move(custody: Custody, host: Host, state: str, dept: str | None) -> None:
    custody.index.drop_host(host)
    host.state, host.dept, host.since = state, dept, custody.state.at  # type: ignore[assignment]
    custody.index.add_host(host)


def _take(custody: Custody, name: str, state: str, why: Broken) -> None:
    """A host leaves its department: every open attempt on it is broken, for every reader, for ever."""
    host = custody.state.hosts[name]
    dept = host.dept
    _move(custody, host, state, dept)
    for unit in list(host.units):
        _break(custody, custody.state.units[unit], why)
    if dept is not None and dept in custody.state.quotas:
        custody.state.quotas[dept].keep(custody.held(dept))


def host_described(custody: Custody, fact: f.HostDescribed, _writer: str) -> None:
    host = custody.state.hosts.get(fact.host)
    if host is None:
        host = custody.state.hosts[fact.host] = Host(name=fact.host, since=custody.state.at)
        custody.index.add_host(host)
    host.one_id, host.size = fact.one_id, custody.size(fact)
    host.labels, host.cluster, host.others = dict(fact.labels), fact.cluster, size_in(fact.others)


def host_removed(custody: Custody, fact: f.HostRemoved, _writer: str) -> None:
    custody.index.drop_host(custody.state.hosts.pop(fact.host))


def host_granted(custody: Custody, fact: f.HostGranted, _writer: str) -> None:
    _move(custody, custody.state.hosts[fact.host], "held", fact.dept)


def host_released(custody: Custody, fact: f.HostReleased, _writer: str) -> None:
    _take(custody, fact.host, "draining", Broken.HOST_RELEASED)


def host_seized(custody: Custody, fact: f.HostSeized, _writer: str) -> None:
    _take(custody, fact.host, "draining", Broken.HOST_SEIZED)


def host_lost(custody: Custody, fact: f.HostLost, _writer: str) -> None:
    custody.state.hosts[fact.host].lost = fact.reason
    _take(custody, fact.host, "lost", Broken.HOST_LOST)


def host_cleared(custody: Custody, fact: f.HostCleared, _writer: str) -> None:
    host = custody.state.hosts[fact.host]
    host.lost = None
    _move(custody, host, "free", None)


def host_quarantined(custody: Custody, fact: f.HostQuarantined, _writer: str) -> None:
    host = custody.state.hosts[fact.host]
    host.quarantine, host.quarantine_until = fact.reason, fact.until
    custody.index.set_apart(host)


def host_cordoned(custody: Custody, fact: f.HostCordoned, _writer: str) -> None:
    host = custody.state.hosts[fact.host]
    host.cordoned, host.drain, host.drain_until = fact.reason, fact.drain, fact.until
    custody.index.set_apart(host)


def host_uncordoned(custody: Custody, fact: f.HostUncordoned, _writer: str) -> None:
    host = custody.state.hosts[fact.host]
    host.cordoned, host.drain, host.drain_until = None, False, None
    custody.index.set_apart(host)


# ------------------------------------------------------------------------------------------------ effects: registers


def leads(custody: Custody, fact: f.LeaderStarted | f.LeaderStopped, writer: str) -> None:
    if isinstance(fact, f.LeaderStarted):
        custody.state.leaders[writer] = Leader(epoch=fact.epoch, instance=fact.instance, since=custody.state.at)
    elif writer in custody.state.leaders:
        custody.state.leaders[writer].stopped = True


def config_adopted(custody: Custody, fact: f.ConfigAdopted, _writer: str) -> None:
    if fact.custody_rules not in RULES_KNOWN:
        raise Incompatible(f"custody rules {fact.custody_rules} are in force; this version knows {RULES}")
    state = custody.state
    state.cloud, state.rules, state.config = fact.cloud, fact.custody_rules, fact.config
    for department in fact.config.departments:
        state.closed.pop(department.name, None)


def demand_changed(custody: Custody, fact: f.DemandChanged, _writer: str) -> None:
    custody.state.demands[fact.dept] = fact.hosts


def quota_changed(custody: Custody, fact: f.QuotaChanged, _writer: str) -> None:
    quota = custody.state.quotas.setdefault(fact.dept, Quota())
    quota.change(fact.hosts, fact.by)
    quota.keep(custody.held(fact.dept))


def department_closed(custody: Custody, fact: f.DepartmentClosed, _writer: str) -> None:
    custody.state.closed[fact.dept] = None
    for unit in [u for u in custody.state.units.values() if u.dept == fact.dept and u.state != "final"]:
        _close(custody, unit)
        _finish(custody, unit, "cancelled")


# ----------------------------------------------------------------------------------------------------- effects: jobs


def instance_draining(custody: Custody, fact: f.InstanceDraining, _writer: str) -> None:
    custody.state.units[fact.unit].drains_until = fact.until


def release_requested(custody: Custody, fact: f.ReleaseRequested, _writer: str) -> None:
    custody.state.release_last[fact.dept] = fact.release
    known = custody.state.releases.setdefault(fact.dept, {})
    known[fact.release] = fact
    if len(known) > RELEASES_KEPT:
        used = {custody.state.units[name].release for name in custody.index.open.get(fact.dept, ())}
        spare = next((number for number in known if number not in used), None)
        if spare is not None:
            del known[spare]


def job_submitted(custody: Custody, fact: f.JobSubmitted, _writer: str) -> None:
    custody.state.job_last = int(fact.job)
    for name in [element_id(fact.job, i) for i in fact.array] or [fact.job]:
        custody.state.units[name] = Unit(
            id=name,
            dept=fact.dept,
            nodes=fact.nodes,
            held=fact.held,
            retries=fact.retries,
            on_term=fact.on_term,
            grace_s=fact.grace_s,
        )


def job_held(custody: Custody, fact: f.JobHeld, _writer: str) -> None:
    _hold(custody, custody.state.units[fact.job], True)


def job_resumed(custody: Custody, fact: f.JobResumed, _writer: str) -> None:
    _hold(custody, custody.state.units[fact.job], False)


def job_cancelled(custody: Custody, fact: f.JobCancelled, _writer: str) -> None:
    _cancel(custody, custody.state.units[fact.job])


def array_held(custody: Custody, fact: f.ArrayHeld | f.ArrayResumed, _writer: str) -> None:
    wanted = isinstance(fact, f.ArrayHeld)
    for unit in custody.elements(fact):
        if unit.state != "final" and unit.held is not wanted:
            _hold(custody, unit, wanted)


def array_cancelled(custody: Custody, fact: f.ArrayCancelled, _writer: str) -> None:
    for unit in custody.elements(fact):
        if unit.state != "final" and not unit.cancelled:
            _cancel(custody, unit)


def _hold(custody: Custody, unit: Unit, held: bool) -> None:
    unit.held = held
    custody.changed.append(unit.id)


def _cancel(custody: Custody, unit: Unit) -> None:
    unit.cancelled = True
    custody.changed.append(unit.id)
    if unit.state == "pending":
        _finish(custody, unit, "cancelled")


def unit_placed(custody: Custody, fact: f.UnitPlaced, _writer: str) -> None:
    unit = custody.state.units.get(fact.unit)
    if unit is None:
        dept, number = instance_parts(fact.unit)
        custody.state.instance_last[dept] = number
        unit = custody.state.units[fact.unit] = Unit(id=fact.unit, dept=dept, nodes=len(fact.hosts))
    unit.resumes = unit.suspended
    if not unit.suspended:
        unit.life, unit.boots = fact.attempt, ()
    unit.state, unit.attempt, unit.hosts = "open", fact.attempt, fact.hosts
    unit.size, unit.exclusive = custody.size(fact), fact.exclusive
    unit.broken = unit.began_at = unit.exit = unit.ended_at = None
    unit.placed_at, unit.addresses, unit.suspended = custody.state.at, (), False
    unit.release, unit.drains_until = fact.release, None
    custody.index.open.setdefault(unit.dept, {})[unit.id] = None
    hosts, occupied = custody.state.hosts, custody.index.occupied.setdefault(unit.dept, {})
    for name in fact.hosts:
        host = hosts[name]
        host.units[unit.id] = occupied[name] = None
        host.used = host.used.plus(unit.size)
        host.exclusive = unit.exclusive


def _vacate(custody: Custody, unit: Unit) -> None:
    """A live attempt stops being live: its room is free again."""
    hosts, occupied = custody.state.hosts, custody.index.occupied[unit.dept]
    for name in unit.hosts:
        host = hosts[name]
        del host.units[unit.id]
        host.used = host.used.minus(unit.size)
        host.exclusive = False
        if not host.units:
            occupied.pop(name, None)


def _break(custody: Custody, unit: Unit, why: Broken) -> None:
    if unit.broken is None:
        _vacate(custody, unit)
        unit.broken = why
        custody.index.broken.setdefault(unit.dept, {})[unit.id] = None
        custody.newly_broken.append(unit.id)


def _close(custody: Custody, unit: Unit) -> None:
    """The open attempt, if any, is closed: the unit is pending."""
    if unit.state == "open":
        custody.index.open[unit.dept].pop(unit.id, None)
        if unit.broken is None:
            _vacate(custody, unit)
        else:
            custody.index.broken[unit.dept].pop(unit.id, None)
        unit.state, unit.broken, unit.hosts, unit.addresses = "pending", None, (), ()
        unit.ended_at = custody.state.at


def _finish(custody: Custody, unit: Unit, final: str) -> None:
    unit.state, unit.final, unit.ended_at = "final", final, custody.state.at
    _unsave(custody, unit)
    _forget(custody, unit)


def _forget(custody: Custody, unit: Unit) -> None:
    if unit.state != "final" or unit.vms_open:
        return
    finals = custody.state.finals
    finals[unit.id] = None
    if len(finals) > FINALS_MAX:
        oldest = next(iter(finals))
        del finals[oldest]
        del custody.state.units[oldest]
        custody.forgotten.append(oldest)


def attempt_began(custody: Custody, fact: f.AttemptBegan, _writer: str) -> None:
    unit = custody.state.units[fact.unit]
    if unit.began_at is None:  # a repeated call does not give the walltime back
        unit.began_at = custody.state.at
        unit.boots = fact.boots or unit.boots  # the first counts; one that resumes does not call again
    unit.addresses = fact.addresses


def attempt_closed(custody: Custody, fact: f.AttemptClosed, _writer: str) -> None:
    unit = custody.state.units[fact.unit]
    _close(custody, unit)
    goes_on = fact.disposal in (f.Disposal.SUSPEND, f.Disposal.MIGRATE)
    if goes_on and _is_whole(custody, unit):
        unit.suspended, unit.resumes = True, False
    else:
        _unsave(custody, unit)
    final = "cancelled" if unit.cancelled else _ENDED.get(fact.disposal)
    if final is not None:
        _finish(custody, unit, final)


def attempt_reported(custody: Custody, fact: f.AttemptReported, _writer: str) -> None:
    unit = custody.state.units[fact.unit]
    _close(custody, unit)
    unit.exit = fact.exit
    _unsave(custody, unit)
    if fact.exit == 0:
        unit.early = fact.terminated
        _finish(custody, unit, "completed")
    elif unit.cancelled:
        _finish(custody, unit, "cancelled")
    elif unit.failures >= unit.retries:
        _finish(custody, unit, "failed")
    else:
        unit.failures += 1


# ------------------------------------------------------------------------------------------------------ effects: VMs


def vm_allocated(custody: Custody, fact: f.VmAllocated, _writer: str) -> None:
    unit, key = custody.state.units[fact.unit], vm_key(fact.unit, fact.attempt, fact.rank)
    vm = Vm(
        unit=fact.unit,
        attempt=fact.attempt,
        rank=fact.rank,
        vm=fact.vm,
        host=fact.host,
        allocated_at=custody.state.at,
        known_as=key,
    )
    unit.allocated[fact.attempt] = unit.allocated.get(fact.attempt, 0) | 1 << fact.rank
    unit.vms_open += 1
    custody.state.finals.pop(unit.id, None)
    if custody.state.rules >= BINDS_AGAIN:
        _take_over(custody, fact.vm, vm)
    custody.state.vms[key] = vm
    custody.index.add_vm(key, vm)
    if fact.host in custody.state.hosts:
        custody.state.hosts[fact.host].vms[key] = None


def _take_over(custody: Custody, number: int, vm: Vm) -> None:
    """`vm` may be another attempt's until now: saved, moving, or waiting for a job."""
    saved, key = custody.state.saved.get(number), custody.index.vm_ids.get(number)
    if saved is not None:
        vm.known_as = saved.known_as
        _forget_saved(custody, number)
    elif vm.rank in custody.index.saved.get(vm.unit, {}):  # it starts over all the same: what is saved is worth nothing
        _forget_saved(custody, custody.index.saved[vm.unit][vm.rank])
    if key is not None:
        before = _drop_vm(custody, key)
        if before.parked_at is None:
            vm.known_as = before.known_as
        else:
            vm.was = before.known_as
        _forget(custody, custody.state.units[before.unit])


def _drop_vm(custody: Custody, key: str) -> Vm:
    vm = custody.state.vms.pop(key)
    custody.index.drop_vm(key, vm)
    if vm.host in custody.state.hosts:
        custody.state.hosts[vm.host].vms.pop(key, None)
    custody.state.units[vm.unit].vms_open -= 1
    return vm


def vm_started(custody: Custody, fact: f.VmStarted, _writer: str) -> None:
    custody.state.vms[vm_key(fact.unit, fact.attempt, fact.rank)].started_at = custody.state.at


def vm_parked(custody: Custody, fact: f.VmParked, _writer: str) -> None:
    key = vm_key(fact.unit, fact.attempt, fact.rank)
    vm = custody.state.vms[key]
    vm.parked_at = custody.state.at
    custody.index.add_vm(key, vm)


def vm_failed(custody: Custody, fact: f.VmFailed, _writer: str) -> None:
    _break(custody, custody.state.units[fact.unit], Broken.VM_ENDED)


def vm_ended(custody: Custody, fact: f.VmEnded, _writer: str) -> None:
    vm = _drop_vm(custody, vm_key(fact.unit, fact.attempt, fact.rank))
    unit = custody.state.units[fact.unit]
    goes_on = custody.state.rules >= BINDS_AGAIN and (unit.suspended or unit.resumes) and fact.attempt >= unit.life
    if goes_on and fact.why == f.SUSPENDED and (unit.suspended or fact.attempt < unit.attempt):
        _save(custody, vm)
    elif unit.state == "open" and unit.attempt == fact.attempt:
        went_on = vm.started_at is not None or vm.known_as in ("", vm_key(vm.unit, vm.attempt, vm.rank))
        _break(custody, unit, Broken.VM_ENDED if went_on else Broken.NOT_SAVED)
    elif goes_on and unit.suspended:
        _unsave(custody, unit)
        custody.newly_unsaved.append(unit.id)
    elif goes_on:
        _break(custody, unit, Broken.NOT_SAVED)
    _forget(custody, unit)


# ---------------------------------------------------------------------------------------- effects: what is saved


def _save(custody: Custody, vm: Vm) -> None:
    custody.state.saved[vm.vm] = Saved(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, known_as=vm.known_as)
    custody.index.saved.setdefault(vm.unit, {})[vm.rank] = vm.vm


def _is_whole(custody: Custody, unit: Unit) -> bool:
    """Nothing of the unit's present life is lost: each rank that had a VM in it has one that is open or saved."""
    if custody.state.rules < BINDS_AGAIN:
        return True
    had = 0
    for attempt, ranks in unit.allocated.items():
        had |= ranks if attempt >= unit.life else 0
    saved = custody.index.saved.get(unit.id, {})
    return all(
        rank in saved or any(vm_key(unit.id, a, rank) in custody.state.vms for a in range(unit.life, unit.attempt + 1))
        for rank in range(had.bit_length())
        if had >> rank & 1
    )


def _unsave(custody: Custody, unit: Unit) -> None:
    """It does not resume where it was: what is saved of it is worth nothing."""
    unit.suspended = unit.resumes = False
    for number in list(custody.index.saved.get(unit.id, {}).values()):
        _forget_saved(custody, number)


def _forget_saved(custody: Custody, number: int) -> None:
    saved = custody.state.saved.pop(number)
    ranks = custody.index.saved[saved.unit]
    del ranks[saved.rank]
    if not ranks:
        del custody.index.saved[saved.unit]
