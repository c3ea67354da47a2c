"""Whether an immediate lease can start now: counted on the hosts as they are, as far as admission can know that.  Pure.

Theory of operation
  The timetable shows whether a lease fits beside other leases on all hosts that the department may hold.  An immediate one must
  have its hosts now: those that the department holds, less what stays there, and those that come at once when it asks.

Rules
  1. On its own hosts stay production and local leases; best-effort too where preemption is off (`preempt`).  What was
     cancelled does not, nor a lease whose time is over.
  2. At once come free hosts and idle ones of other batch departments; and while it has fewer than its own (`lending`), hosts on
     which others run jobs, if they need no longer notice than `policy.notice_s`.  No more than it may have at these hours.
     No host comes at once on which a job runs that asked for a grace (`domain.grace`).
  3. Leases that wait in their slot go first, in the scheduler's order; one that lacks hosts keeps none (`order_leases`, 1).
  4. A yes is conservative the other way round than the timetable's: a host that was taken a moment ago may make it late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.dimensions import scarcity
from schemas.ids import sort_key
from schemas.size import TAKEN, Size
from schemas.units import count
from services.admission.core.admission import AdmissionCore, Job
from services.domain import grace
from services.domain.custody.state import Host, Unit
from services.domain.shape import Shape
from services.domain.sharing import lending
from services.domain.sharing.host_ownership import usable
from services.domain.timetable import Slot


class Offer(NamedTuple):
    """What a host has for leases now.  Natural order: best fit, then name (unique)."""

    scarce: int
    whole: bool
    size: Size
    name: str

    def fits(self, part: Shape) -> bool:
        return part.size.fits_in(self.size) and (self.whole or not part.exclusive)


class Standing(NamedTuple):
    """`able`: hosts that the lease could have now; `blockers`: what stands in the way, in words; `leases` among it."""

    able: int
    blockers: tuple[str, ...]
    leases: tuple[str, ...]


def standing(
    core: AdmissionCore, config: CloudConfig, department: Department, part: Shape, slots: Iterable[Slot], now: float
) -> Standing:
    """`slots`: the department's local leases, in order of acceptance."""
    look = _Look(core, config, department, now)
    waiting = look.seat([slot for slot in slots if slot.start <= now and look.waits(slot.lease)])
    able = sum(1 for offer in look.offers.values() if offer.fits(part))
    leases = tuple(sorted(look.leases, key=sort_key)) + waiting
    return Standing(able, tuple(look.blockers(leases)), leases)


class _Look:
    def __init__(self, core: AdmissionCore, config: CloudConfig, department: Department, now: float) -> None:
        self.core, self.config, self.department, self.now = core, config, department, now
        self.preempts = (department.batch or BatchPolicy()).leases.preempt
        self.leases: dict[str, None] = {}
        self.jobs: dict[str, None] = {}  # hosts with jobs that stay
        self.savers: dict[str, None] = {}  # … with jobs that make way, and have time to save
        self.elsewhere: dict[str, int] = {}  # other department -> its hosts that do not come at once
        self.held = 0
        self.offers = self._own()
        self.most = lending.reach(config, department.name, now, usable(core.custody, now))
        self._add_others()

    def _own(self) -> dict[str, Offer]:
        found = {}
        for host in self._hosts():
            if host.state == "held" and host.dept == self.department.name:
                self.held += 1
                found[host.name] = self._less_what_stays(host)
        return found

    def _hosts(self) -> list[Host]:
        hosts = self.core.custody.state.hosts
        return [h for _, h in sorted(hosts.items()) if h.cordoned is None and h.quarantine_until <= self.now]

    def _less_what_stays(self, host: Host) -> Offer:
        """Rule 1."""
        whole, size = True, host.size
        for name in host.units:
            unit, job = self.core.unit(name), self.core.job(name)
            if unit is None or unit.cancelled or (job is not None and not self._stays(job, unit)):
                continue
            if job is not None and job.lease is not None and job.lease.local:
                self.leases[name] = None
            else:
                mine = self.savers if job is not None and job.best_effort and self.preempts else self.jobs
                mine[host.name] = None
            whole, size = False, TAKEN if unit.exclusive else size.minus(unit.size)
        return Offer(scarcity(host.size), whole, size, host.name)

    def _is_late(self, unit: Unit) -> bool:
        return unit.grace_s is not None and grace.late_s(self.core.custody, unit) > 0.0

    def _stays(self, job: Job, unit: Unit) -> bool:
        if job.lease is not None and job.lease.local:
            return job.lease.start_at + job.walltime_s > self.now
        return not (job.best_effort and self.preempts) or self._is_late(unit)

    def _add_others(self) -> None:
        """Rule 2."""
        name, policy = self.department.name, self.config.policy
        idle: list[Host] = []
        busy: list[Host] = []
        for host in self._hosts():
            holder = self.config.department(host.dept or "") if host.state == "held" else None
            if host.state == "free" or (holder is not None and holder.kind == "batch" and host.dept != name):
                (busy if host.units else idle).append(host)
            elif holder is not None and host.dept != name:
                self._note_elsewhere(host)
        own = lending.owned(self.config, self.now, usable(self.core.custody, self.now))[name]
        due = own - self.held - len(idle)
        more = self.most - self.held
        for host in [*idle, *busy]:
            late = any(unit is not None and self._is_late(unit) for unit in map(self.core.unit, host.units))
            notice_s = lending.notice_s(self.config, name, host.dept or "", self.now) if host.units else 0.0
            if more <= 0 or late or (host.units and (due <= 0 or notice_s > policy.notice_s)):
                self._note_elsewhere(host)
                continue
            more, due = more - 1, due - bool(host.units)
            self.offers[host.name] = Offer(scarcity(host.size), True, host.size, host.name)

    def _note_elsewhere(self, host: Host) -> None:
        if host.units and host.dept:
            self.elsewhere[host.dept] = self.elsewhere.get(host.dept, 0) + 1

    def waits(self, lease: str) -> bool:
        """True of one that has no hosts; also of one that is drafted."""
        unit = self.core.unit(lease)
        return unit is None or (unit.state == "pending" and not unit.held)

    def seat(self, waiting: list[Slot]) -> tuple[str, ...]:
        """Rule 3: those that get their hosts."""
        found = []
        for slot in sorted(waiting, key=lambda slot: slot.start):  # stable: then in order of acceptance
            part = slot.part
            hosts = sorted(offer for offer in self.offers.values() if offer.fits(part))[: part.nodes]
            if len(hosts) == part.nodes:
                found.append(slot.lease)
                for offer in hosts:
                    rest = TAKEN if part.exclusive else offer.size.minus(part.size)
                    self.offers[offer.name] = offer._replace(whole=False, size=rest)
        return tuple(found)

    def blockers(self, leases: tuple[str, ...]) -> list[str]:
        held = f"{self.department.name} holds {count(self.held, 'host')}"
        found = [held if self.most > self.held else f"{held} and may have {self.most} now"]
        if leases:
            found.append(
                f"{'lease' if len(leases) == 1 else 'leases'} {', '.join(leases)} {_has(len(leases))} room there"
            )
        if self.jobs:
            found.append(f"jobs that are never preempted are on {len(self.jobs)} of them")
        if self.savers:
            found.append(f"jobs that may save first (--grace) are on {len(self.savers)} of them")
        found += [f"{name} has {count(number, 'host')} in use" for name, number in sorted(self.elsewhere.items())]
        clearing = len(self.core.custody.index.by_state["draining"])
        return found + (
            [f"{count(clearing, 'host')} {'is' if clearing == 1 else 'are'} being cleared"] if clearing else []
        )


def _has(number: int) -> str:
    return "has" if number == 1 else "have"
