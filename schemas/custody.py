"""Custody: the one fold that says who holds which host, which attempt is live, and what a late fact is worth.

Theory of operation
  Every core applies this fold before its own.  A fact whose precondition fails at its place in the journal is *void*: it
  changes nothing, for any reader, for ever (PROTOCOL.md, the two tables).  Preconditions look only at this state, so every
  reader of the same journal gives the same verdict.

Rules
  1. Verdict first, effect second: `_void_<kind>` reads, `_do_<kind>` writes; nothing else writes.
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
from schemas.custody_state import FINALS_MAX, Broken, Host, Index, Leader, Quota, State, Unit, Vm, vm_key
from schemas.envelope import AnyFact, UnknownFact
from schemas.ids import element_id, instance_parts, is_instance
from schemas.meta import Void

RULES: Final = 1  # PROTOCOL S8: a change of any void rule is a new number
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


class Custody:
    """The fold.  Cores read it; only `apply` changes it."""

    __slots__ = ("_do", "_void", "forgotten", "index", "newly_broken", "state")

    def __init__(self) -> None:
        self.state = State()
        self.index = Index()
        self.newly_broken: list[str] = []  # by the fact applied last
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
        if self.forgotten:
            self.forgotten = []
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
        self.newly_broken, self.forgotten = [], []

    # -------------------------------------------------------------------------------------------------------- reading

    def live(self, unit: str, attempt: int) -> bool:
        known = self.state.units.get(unit)
        return known is not None and known.attempt == attempt and known.live

    def held(self, dept: str) -> int:
        """Hosts that `dept` holds."""
        return len(self.index.held.get(dept, ()))

    def quota(self, dept: str) -> Quota:
        return self.state.quotas.get(dept) or Quota()

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
        if void is None and self.held(fact.dept) <= self.quota(fact.dept).hosts:
            return Void.WITHIN_QUOTA
        return void

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

    def _void_job_submitted(self, fact: f.JobSubmitted, _writer: str) -> Void | None:
        return None if int(fact.job) > self.state.job_last else Void.JOB_KNOWN

    def _job_final(self, fact: f.JobHeld | f.JobResumed | f.JobCancelled, _writer: str) -> Void | None:
        unit = self.state.units.get(fact.job)
        if unit is None:
            return Void.UNIT_UNKNOWN
        return Void.UNIT_FINAL if unit.state == "final" else None

    _void_job_held = _void_job_resumed = _void_job_cancelled = _job_final

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
        return None

    def _void_attempt_began(self, fact: f.AttemptBegan, _writer: str) -> Void | None:
        return None if self.live(fact.unit, fact.attempt) else Void.ATTEMPT_NOT_LIVE

    def _void_attempt_closed(self, fact: f.AttemptClosed, writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            return Void.UNIT_UNKNOWN
        if unit.dept != writer.partition(".")[2]:
            return Void.NOT_ITS_DEPARTMENT
        return None if unit.state == "open" and unit.attempt == fact.attempt else Void.ATTEMPT_NOT_OPEN

    def _void_attempt_reported(self, fact: f.AttemptReported, _writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None or is_instance(fact.unit):
            return Void.UNIT_UNKNOWN
        if unit.state == "final":
            return Void.UNIT_FINAL
        if unit.attempt != fact.attempt or not fact.attempt:
            return Void.ATTEMPT_NOT_LATEST
        return None if fact.exit == 0 or unit.live else Void.ATTEMPT_NOT_LIVE

    def _void_vm_allocated(self, fact: f.VmAllocated, _writer: str) -> Void | None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            return Void.UNIT_UNKNOWN
        return Void.VM_KNOWN if unit.allocated.get(fact.attempt, 0) >> fact.rank & 1 else None

    def _vm_closed(self, fact: f.VmStarted | f.VmEnded, _writer: str) -> Void | None:
        return None if vm_key(fact.unit, fact.attempt, fact.rank) in self.state.vms else Void.VM_NOT_OPEN

    _void_vm_started = _void_vm_ended = _vm_closed

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
        self.state.hosts[fact.host].cordoned = fact.reason
        self.index.set_apart(self.state.hosts[fact.host])

    def _do_host_uncordoned(self, fact: f.HostUncordoned) -> None:
        self.state.hosts[fact.host].cordoned = None
        self.index.set_apart(self.state.hosts[fact.host])

    # ------------------------------------------------------------------------------------------------ effects: registers

    def _lead(self, fact: f.LeaderStarted | f.LeaderStopped, writer: str) -> None:
        if isinstance(fact, f.LeaderStarted):
            self.state.leaders[writer] = Leader(epoch=fact.epoch, instance=fact.instance, since=self.state.at)
        elif writer in self.state.leaders:
            self.state.leaders[writer].stopped = True

    def _do_config_adopted(self, fact: f.ConfigAdopted) -> None:
        if fact.custody_rules != RULES:
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

    def _do_job_submitted(self, fact: f.JobSubmitted) -> None:
        self.state.job_last = int(fact.job)
        for name in [element_id(fact.job, i) for i in fact.array] or [fact.job]:
            self.state.units[name] = Unit(
                id=name, dept=fact.dept, nodes=fact.nodes, held=fact.held, retries=fact.retries
            )

    def _do_job_held(self, fact: f.JobHeld) -> None:
        self.state.units[fact.job].held = True

    def _do_job_resumed(self, fact: f.JobResumed) -> None:
        self.state.units[fact.job].held = False

    def _do_job_cancelled(self, fact: f.JobCancelled) -> None:
        unit = self.state.units[fact.job]
        unit.cancelled = True
        if unit.state == "pending":
            self._finish(unit, "cancelled")

    def _do_unit_placed(self, fact: f.UnitPlaced) -> None:
        unit = self.state.units.get(fact.unit)
        if unit is None:
            dept, number = instance_parts(fact.unit)
            self.state.instance_last[dept] = number
            unit = self.state.units[fact.unit] = Unit(id=fact.unit, dept=dept, nodes=len(fact.hosts))
        unit.state, unit.attempt, unit.hosts = "open", fact.attempt, fact.hosts
        unit.cores, unit.memory_mb, unit.exclusive = fact.cores, fact.memory_mb, fact.exclusive
        unit.broken = unit.began_at = unit.exit = unit.ended_at = None
        unit.placed_at, unit.addresses, unit.suspended = self.state.at, (), False
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
        hosts, occupied = self.state.hosts, self.index.occupied.get(unit.dept, {})
        for name in unit.hosts:
            host = hosts.get(name)
            if host is None or unit.id not in host.units:
                continue
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
            self._vacate(unit)
            self.index.open[unit.dept].pop(unit.id, None)
            if unit.broken is not None:
                self.index.broken[unit.dept].pop(unit.id, None)
            unit.state, unit.broken, unit.hosts, unit.addresses = "pending", None, (), ()
            unit.ended_at = self.state.at

    def _finish(self, unit: Unit, final: str) -> None:
        unit.state, unit.final, unit.ended_at = "final", final, self.state.at
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
        unit.suspended = fact.disposal is f.Disposal.SUSPEND
        final = "cancelled" if unit.cancelled else _ENDED.get(fact.disposal)
        if final is not None:
            self._finish(unit, final)

    def _do_attempt_reported(self, fact: f.AttemptReported) -> None:
        unit = self.state.units[fact.unit]
        self._close(unit)
        unit.exit = fact.exit
        if fact.exit == 0:
            self._finish(unit, "completed")
        elif unit.cancelled:
            self._finish(unit, "cancelled")
        elif unit.failures >= unit.retries:
            self._finish(unit, "failed")
        else:
            unit.failures += 1

    # ------------------------------------------------------------------------------------------------------ effects: VMs

    def _do_vm_allocated(self, fact: f.VmAllocated) -> None:
        unit = self.state.units[fact.unit]
        unit.allocated[fact.attempt] = unit.allocated.get(fact.attempt, 0) | 1 << fact.rank
        unit.vms_open += 1
        self.state.finals.pop(unit.id, None)
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self.state.vms[key] = Vm(
            unit=fact.unit,
            attempt=fact.attempt,
            rank=fact.rank,
            vm=fact.vm,
            host=fact.host,
            allocated_at=self.state.at,
        )
        self.index.vm_ids[fact.vm] = key
        if fact.host in self.state.hosts:
            self.state.hosts[fact.host].vms[key] = None

    def _do_vm_started(self, fact: f.VmStarted) -> None:
        self.state.vms[vm_key(fact.unit, fact.attempt, fact.rank)].started_at = self.state.at

    def _do_vm_ended(self, fact: f.VmEnded) -> None:
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        vm = self.state.vms.pop(key)
        self.index.vm_ids.pop(vm.vm, None)
        if vm.host in self.state.hosts:
            self.state.hosts[vm.host].vms.pop(key, None)
        unit = self.state.units[fact.unit]
        unit.vms_open -= 1
        if unit.state == "open" and unit.attempt == fact.attempt:
            self._break(unit, Broken.VM_ENDED)
        self._forget(unit)


def _methods(custody: Custody, prefix: str) -> dict[type, Callable[..., Any]]:
    """Fact class -> bound method `<prefix><noun>_<verb>`."""
    named = ((cls, getattr(custody, prefix + kind.replace(".", "_"), None)) for cls, kind in f.KIND.items())
    return {cls: method for cls, method in named if method is not None}
