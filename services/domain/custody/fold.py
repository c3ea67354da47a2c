"""Custody: the one fold that says who holds which host, which attempt is live, and what a late fact is worth.

Theory of operation
  Every core applies this fold before its own.  A fact whose precondition fails at its place in the journal is *void*: it
  changes nothing, for any reader, for ever (PROTOCOL.md, the two tables).  Preconditions look only at this state, so every
  reader of the same journal gives the same verdict.

Rules
  1. Verdict first, effect second: `_void_<kind>` reads (`custody_verdicts`), `_do_<kind>` writes; nothing else writes.
  2. Broken is for ever and occupies nothing: a broken attempt gives its room back at once, on all its hosts.
  3. An attempt is *live* if it is open and not broken.  First closing fact wins; the others are void.
  4. Time is the running maximum of the envelopes' `at` (S6).
  5. A kind or a rules number that this version does not know stops the reader (S8): `Incompatible`.
  6. Final units without open VM are forgotten, oldest first, beyond `FINALS_MAX`.  Job and instance numbers only grow, so a
     forgotten unit can never come back: every late fact on it is void.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from schemas import facts as f
from schemas.envelope import AnyFact, UnknownFact
from schemas.ids import element_id, instance_parts
from services.domain.custody.meta import Void
from services.domain.custody.state import (
    FINALS_MAX,
    RELEASES_KEPT,
    Broken,
    Host,
    Index,
    Leader,
    Quota,
    Saved,
    State,
    Unit,
    Vm,
    vm_key,
)
from services.domain.custody.verdicts import BINDS_AGAIN, Verdicts

RULES: Final = 4  # PROTOCOL S8: a change of any void rule is a new number; `custody_verdicts` says what each has added
RULES_KNOWN: Final = (1, 2, 3, 4)  # a journal begins under older ones
_ENDED: Final = {
    f.Disposal.KILL: "killed",
    f.Disposal.TIMEOUT: "timeout",
    f.Disposal.CANCELLED: "cancelled",
    f.Disposal.FAILED: "failed",
    f.Disposal.STOPPED: "stopped",
}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class Incompatible(Exception):
    """The journal holds custody facts or rules that this version does not know: the service must stop (S8)."""


class Custody(Verdicts):
    """The fold.  Cores read it; only `apply` changes it."""

    __slots__ = ("_do", "_void", "changed", "forgotten", "newly_broken", "newly_unsaved")

    def __init__(self) -> None:
        super().__init__()
        self.newly_broken: list[str] = []  # by the fact applied last
        self.newly_unsaved: list[str] = []  # pending units of which it showed that a part of what they saved is lost
        self.changed: list[str] = []  # units that the fact applied last has held, let go or cancelled
        self.forgotten: list[str] = []  # final units that the fact applied last pushed out (rule 6)
        self._void: dict[type, Callable[[Any, str], Void | None]] = _methods(self, "_void_")
        self._do: dict[type, Callable[[Any], None]] = _methods(self, "_do_")

    # -------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: AnyFact, position: int, index: int, writer: str, at: float) -> Void | None:
        """Fold one fact; returns why it is void, or None.  `newly_broken` then names the units that it broke."""
        state = self.state
        state.position, state.index = position, index
        if at > state.at:
            state.at = at
        if self.newly_broken:
            self.newly_broken = []
        if self.newly_unsaved:
            self.newly_unsaved = []
        if self.forgotten:
            self.forgotten = []
        if self.changed:
            self.changed = []
        kind = type(fact)
        check = self._void.get(kind)
        if check is not None:
            void = check(fact, writer)
            if void is not None:
                state.voids[void.value] = state.voids.get(void.value, 0) + 1
                return void
        effect = self._do.get(kind)
        if effect is not None:
            effect(fact)
        elif isinstance(fact, UnknownFact):
            if fact.custody:
                raise Incompatible(f"position {position}: custody fact {fact.kind!r} is unknown to this version")
        elif isinstance(fact, f.LeaderStarted | f.LeaderStopped):
            self._lead(fact, writer)
        return None

    def dump(self) -> bytes:
        return _encoder.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = _decoder.decode(data)
        self.index = Index.of(self.state)
        self.newly_broken, self.newly_unsaved, self.forgotten, self.changed = [], [], [], []

    # ---------------------------------------------------------------------------------------------------- effects: hosts

    def _move(self, host: Host, state: str, dept: str | None) -> None:
        self.index.drop_host(host)
        host.state, host.dept, host.since = state, dept, self.state.at  # type: ignore[assignment]
        self.index.add_host(host)

    def _take(self, name: str, state: str, why: Broken) -> None:
        """A host leaves its department: every open attempt on it is broken, for every reader, for ever."""
        host = self.state.hosts[name]
        dept = host.dept
        self._move(host, state, dept)
        for unit in list(host.units):
            self._break(self.state.units[unit], why)
        if dept is not None and dept in self.state.quotas:
            self.state.quotas[dept].keep(self.held(dept))

    def _do_host_described(self, fact: f.HostDescribed) -> None:
        host = self.state.hosts.get(fact.host)
        if host is None:
            host = self.state.hosts[fact.host] = Host(name=fact.host, since=self.state.at)
            self.index.add_host(host)
        host.one_id, host.cores, host.memory_mb = fact.one_id, fact.cores, fact.memory_mb
        host.labels, host.cluster = dict(fact.labels), fact.cluster

    def _do_host_removed(self, fact: f.HostRemoved) -> None:
        self.index.drop_host(self.state.hosts.pop(fact.host))

    def _do_host_granted(self, fact: f.HostGranted) -> None:
        self._move(self.state.hosts[fact.host], "held", fact.dept)

    def _do_host_released(self, fact: f.HostReleased) -> None:
        self._take(fact.host, "draining", Broken.HOST_RELEASED)

    def _do_host_seized(self, fact: f.HostSeized) -> None:
        self._take(fact.host, "draining", Broken.HOST_SEIZED)

    def _do_host_lost(self, fact: f.HostLost) -> None:
        self.state.hosts[fact.host].lost = fact.reason
        self._take(fact.host, "lost", Broken.HOST_LOST)

    def _do_host_cleared(self, fact: f.HostCleared) -> None:
        host = self.state.hosts[fact.host]
        host.lost = None
        self._move(host, "free", None)

    def _do_host_quarantined(self, fact: f.HostQuarantined) -> None:
        host = self.state.hosts[fact.host]
        host.quarantine, host.quarantine_until = fact.reason, fact.until
        self.index.set_apart(host)

    def _do_host_cordoned(self, fact: f.HostCordoned) -> None:
        host = self.state.hosts[fact.host]
        host.cordoned, host.drain, host.drain_until = fact.reason, fact.drain, fact.until
        self.index.set_apart(host)

    def _do_host_uncordoned(self, fact: f.HostUncordoned) -> None:
        host = self.state.hosts[fact.host]
        host.cordoned, host.drain, host.drain_until = None, False, None
        self.index.set_apart(host)

    # ------------------------------------------------------------------------------------------------ effects: registers

    def _lead(self, fact: f.LeaderStarted | f.LeaderStopped, writer: str) -> None:
        if isinstance(fact, f.LeaderStarted):
            self.state.leaders[writer] = Leader(epoch=fact.epoch, instance=fact.instance, since=self.state.at)
        elif writer in self.state.leaders:
            self.state.leaders[writer].stopped = True

    def _do_config_adopted(self, fact: f.ConfigAdopted) -> None:
        if fact.custody_rules not in RULES_KNOWN:
            raise Incompatible(f"custody rules {fact.custody_rules} are in force; this version knows {RULES}")
        state = self.state
        state.cloud, state.rules, state.config = fact.cloud, fact.custody_rules, fact.config
        for department in fact.config.departments:
            state.closed.pop(department.name, None)

    def _do_demand_changed(self, fact: f.DemandChanged) -> None:
        self.state.demands[fact.dept] = fact.hosts

    def _void_demand_changed(self, fact: f.DemandChanged, writer: str) -> Void | None:
        return None if fact.dept == writer.partition(".")[2] else Void.NOT_ITS_DEPARTMENT

    def _do_quota_changed(self, fact: f.QuotaChanged) -> None:
        quota = self.state.quotas.setdefault(fact.dept, Quota())
        quota.change(fact.hosts, fact.by)
        quota.keep(self.held(fact.dept))

    def _do_department_closed(self, fact: f.DepartmentClosed) -> None:
        self.state.closed[fact.dept] = None
        for unit in [u for u in self.state.units.values() if u.dept == fact.dept and u.state != "final"]:
            self._close(unit)
            self._finish(unit, "cancelled")

    # ----------------------------------------------------------------------------------------------------- effects: jobs

    def _do_instance_draining(self, fact: f.InstanceDraining) -> None:
        self.state.units[fact.unit].drains_until = fact.until

    def _do_release_requested(self, fact: f.ReleaseRequested) -> None:
        self.state.release_last[fact.dept] = fact.release
        known = self.state.releases.setdefault(fact.dept, {})
        known[fact.release] = fact
        if len(known) > RELEASES_KEPT:
            used = {self.state.units[name].release for name in self.index.open.get(fact.dept, ())}
            spare = next((number for number in known if number not in used), None)
            if spare is not None:
                del known[spare]

    def _do_job_submitted(self, fact: f.JobSubmitted) -> None:
        self.state.job_last = int(fact.job)
        for name in [element_id(fact.job, i) for i in fact.array] or [fact.job]:
            self.state.units[name] = Unit(
                id=name,
                dept=fact.dept,
                nodes=fact.nodes,
                held=fact.held,
                retries=fact.retries,
                on_term=fact.on_term,
                grace_s=fact.grace_s,
            )

    def _do_job_held(self, fact: f.JobHeld) -> None:
        self._hold(self.state.units[fact.job], True)

    def _do_job_resumed(self, fact: f.JobResumed) -> None:
        self._hold(self.state.units[fact.job], False)

    def _do_job_cancelled(self, fact: f.JobCancelled) -> None:
        self._cancel(self.state.units[fact.job])

    def _do_array_held(self, fact: f.ArrayHeld | f.ArrayResumed) -> None:
        wanted = isinstance(fact, f.ArrayHeld)
        for unit in self.elements(fact):
            if unit.state != "final" and unit.held is not wanted:
                self._hold(unit, wanted)

    _do_array_resumed = _do_array_held

    def _do_array_cancelled(self, fact: f.ArrayCancelled) -> None:
        for unit in self.elements(fact):
            if unit.state != "final" and not unit.cancelled:
                self._cancel(unit)

    def _hold(self, unit: Unit, held: bool) -> None:
        unit.held = held
        self.changed.append(unit.id)

    def _cancel(self, unit: Unit) -> None:
        unit.cancelled = True
        self.changed.append(unit.id)
        if unit.state == "pending":
            self._finish(unit, "cancelled")

    def _do_unit_placed(self, fact: f.UnitPlaced) -> None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            dept, number = instance_parts(fact.unit)
            self.state.instance_last[dept] = number
            unit = self.state.units[fact.unit] = Unit(id=fact.unit, dept=dept, nodes=len(fact.hosts))
        unit.resumes = unit.suspended
        if not unit.suspended:
            unit.life = fact.attempt
        unit.state, unit.attempt, unit.hosts = "open", fact.attempt, fact.hosts
        unit.cores, unit.memory_mb, unit.exclusive = fact.cores, fact.memory_mb, fact.exclusive
        unit.broken = unit.began_at = unit.exit = unit.ended_at = None
        unit.placed_at, unit.addresses, unit.suspended = self.state.at, (), False
        unit.release, unit.drains_until = fact.release, None
        self.index.open.setdefault(unit.dept, {})[unit.id] = None
        hosts, occupied = self.state.hosts, self.index.occupied.setdefault(unit.dept, {})
        for name in fact.hosts:
            host = hosts[name]
            host.units[unit.id] = occupied[name] = None
            host.cores_used += unit.cores
            host.memory_used_mb += unit.memory_mb
            host.exclusive = unit.exclusive

    def _vacate(self, unit: Unit) -> None:
        """A live attempt stops being live: its room is free again."""
        hosts, occupied = self.state.hosts, self.index.occupied[unit.dept]
        for name in unit.hosts:
            host = hosts[name]
            del host.units[unit.id]
            host.cores_used -= unit.cores
            host.memory_used_mb -= unit.memory_mb
            host.exclusive = False
            if not host.units:
                occupied.pop(name, None)

    def _break(self, unit: Unit, why: Broken) -> None:
        if unit.broken is None:
            self._vacate(unit)
            unit.broken = why
            self.index.broken.setdefault(unit.dept, {})[unit.id] = None
            self.newly_broken.append(unit.id)

    def _close(self, unit: Unit) -> None:
        """The open attempt, if any, is closed: the unit is pending."""
        if unit.state == "open":
            self.index.open[unit.dept].pop(unit.id, None)
            if unit.broken is None:
                self._vacate(unit)
            else:
                self.index.broken[unit.dept].pop(unit.id, None)
            unit.state, unit.broken, unit.hosts, unit.addresses = "pending", None, (), ()
            unit.ended_at = self.state.at

    def _finish(self, unit: Unit, final: str) -> None:
        unit.state, unit.final, unit.ended_at = "final", final, self.state.at
        self._unsave(unit)
        self._forget(unit)

    def _forget(self, unit: Unit) -> None:
        if unit.state != "final" or unit.vms_open:
            return
        finals = self.state.finals
        finals[unit.id] = None
        if len(finals) > FINALS_MAX:
            oldest = next(iter(finals))
            del finals[oldest]
            del self.state.units[oldest]
            self.forgotten.append(oldest)

    def _do_attempt_began(self, fact: f.AttemptBegan) -> None:
        unit = self.state.units[fact.unit]
        if unit.began_at is None:  # a repeated call does not give the walltime back
            unit.began_at = self.state.at
        unit.addresses = fact.addresses

    def _do_attempt_closed(self, fact: f.AttemptClosed) -> None:
        unit = self.state.units[fact.unit]
        self._close(unit)
        goes_on = fact.disposal in (f.Disposal.SUSPEND, f.Disposal.MIGRATE)
        if goes_on and self._is_whole(unit):
            unit.suspended, unit.resumes = True, False
        else:
            self._unsave(unit)
        final = "cancelled" if unit.cancelled else _ENDED.get(fact.disposal)
        if final is not None:
            self._finish(unit, final)

    def _do_attempt_reported(self, fact: f.AttemptReported) -> None:
        unit = self.state.units[fact.unit]
        self._close(unit)
        unit.exit = fact.exit
        self._unsave(unit)
        if fact.exit == 0:
            unit.early = fact.terminated
            self._finish(unit, "completed")
        elif unit.cancelled:
            self._finish(unit, "cancelled")
        elif unit.failures >= unit.retries:
            self._finish(unit, "failed")
        else:
            unit.failures += 1

    # ------------------------------------------------------------------------------------------------------ effects: VMs

    def _do_vm_allocated(self, fact: f.VmAllocated) -> None:
        unit, key = self.state.units[fact.unit], vm_key(fact.unit, fact.attempt, fact.rank)
        vm = Vm(
            unit=fact.unit,
            attempt=fact.attempt,
            rank=fact.rank,
            vm=fact.vm,
            host=fact.host,
            allocated_at=self.state.at,
            known_as=key,
        )
        unit.allocated[fact.attempt] = unit.allocated.get(fact.attempt, 0) | 1 << fact.rank
        unit.vms_open += 1
        self.state.finals.pop(unit.id, None)
        if self.state.rules >= BINDS_AGAIN:
            self._take_over(fact.vm, vm)
        self.state.vms[key] = vm
        self.index.add_vm(key, vm)
        if fact.host in self.state.hosts:
            self.state.hosts[fact.host].vms[key] = None

    def _take_over(self, number: int, vm: Vm) -> None:
        """`vm` may be another attempt's until now: saved, moving, or waiting for a job."""
        saved, key = self.state.saved.get(number), self.index.vm_ids.get(number)
        if saved is not None:
            vm.known_as = saved.known_as
            self._forget_saved(number)
        elif vm.rank in self.index.saved.get(
            vm.unit, {}
        ):  # it begins anew all the same: what is saved is worth nothing
            self._forget_saved(self.index.saved[vm.unit][vm.rank])
        if key is not None:
            before = self._drop_vm(key)
            if before.parked_at is None:
                vm.known_as = before.known_as
            else:
                vm.was = before.known_as
            self._forget(self.state.units[before.unit])

    def _drop_vm(self, key: str) -> Vm:
        vm = self.state.vms.pop(key)
        self.index.drop_vm(key, vm)
        if vm.host in self.state.hosts:
            self.state.hosts[vm.host].vms.pop(key, None)
        self.state.units[vm.unit].vms_open -= 1
        return vm

    def _do_vm_started(self, fact: f.VmStarted) -> None:
        self.state.vms[vm_key(fact.unit, fact.attempt, fact.rank)].started_at = self.state.at

    def _do_vm_parked(self, fact: f.VmParked) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        vm = self.state.vms[key]
        vm.parked_at = self.state.at
        self.index.add_vm(key, vm)

    def _do_vm_ended(self, fact: f.VmEnded) -> None:
        vm = self._drop_vm(vm_key(fact.unit, fact.attempt, fact.rank))
        unit = self.state.units[fact.unit]
        goes_on = self.state.rules >= BINDS_AGAIN and (unit.suspended or unit.resumes) and fact.attempt >= unit.life
        if goes_on and fact.why == f.SUSPENDED and (unit.suspended or fact.attempt < unit.attempt):
            self._save(vm)
        elif unit.state == "open" and unit.attempt == fact.attempt:
            went_on = vm.started_at is not None or vm.known_as in ("", vm_key(vm.unit, vm.attempt, vm.rank))
            self._break(unit, Broken.VM_ENDED if went_on else Broken.NOT_SAVED)
        elif goes_on and unit.suspended:
            self._unsave(unit)
            self.newly_unsaved.append(unit.id)
        elif goes_on:
            self._break(unit, Broken.NOT_SAVED)
        self._forget(unit)

    # ---------------------------------------------------------------------------------------- effects: what is saved

    def _save(self, vm: Vm) -> None:
        self.state.saved[vm.vm] = Saved(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, known_as=vm.known_as)
        self.index.saved.setdefault(vm.unit, {})[vm.rank] = vm.vm

    def _is_whole(self, unit: Unit) -> bool:
        """Nothing of the unit's present life is lost: each rank that had a VM in it has one that is open or saved."""
        if self.state.rules < BINDS_AGAIN:
            return True
        had = 0
        for attempt, ranks in unit.allocated.items():
            had |= ranks if attempt >= unit.life else 0
        saved = self.index.saved.get(unit.id, {})
        return all(
            rank in saved or any(vm_key(unit.id, a, rank) in self.state.vms for a in range(unit.life, unit.attempt + 1))
            for rank in range(had.bit_length())
            if had >> rank & 1
        )

    def _unsave(self, unit: Unit) -> None:
        """It does not go on where it was: what is saved of it is worth nothing."""
        unit.suspended = unit.resumes = False
        for number in list(self.index.saved.get(unit.id, {}).values()):
            self._forget_saved(number)

    def _forget_saved(self, number: int) -> None:
        saved = self.state.saved.pop(number)
        ranks = self.index.saved[saved.unit]
        del ranks[saved.rank]
        if not ranks:
            del self.index.saved[saved.unit]


def _methods(custody: Custody, prefix: str) -> dict[type, Callable[..., Any]]:
    """Fact class -> bound method `<prefix><noun>_<verb>`."""
    named = ((cls, getattr(custody, prefix + kind.replace(".", "_"), None)) for cls, kind in f.KIND.items())
    return {cls: method for cls, method in named if method is not None}
