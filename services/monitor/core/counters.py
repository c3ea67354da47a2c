"""Counts of what happened, folded from the journal: how jobs ended and waited, preemptions, hosts that changed hands.

Rules
  1. A unit's end is counted once, by how it ended (`core` passes it); an attempt that failed by itself and was not the last is
     a retry.
  2. A wait is counted when the first attempt is placed; of a lease with a time slot from that on.
  3. A preemption's cause is the reason of the department's last notice, since that is why its scheduler looked for a victim; of
     best-effort that made way, that.  Where no notice was given, how the host was taken.
  4. A move is a grant to another department than the last holder.  A host *flaps* whose holder has changed FLAPS times within
     FLAP_WINDOW_S: a loan that was wanted back, twice, in less time than hosts need to be of use.
  5. Labels come from the configuration and from enums; what is kept of hosts is bounded by the hosts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import TAKEN, Cause
from schemas.ids import is_instance, job_of
from services.domain.core import Handlers
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import ENDED_EARLY
from services.monitor.core.histogram import Histogram
from services.monitor.core.job import Job

FLAPS: Final = 4
FLAP_WINDOW_S: Final = 600.0
# A job waits for seconds on a quiet cloud, and for days on a full one.
WAIT_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
OUTCOMES: Final = ("completed", ENDED_EARLY, "failed", "timeout", "cancelled", "killed")
_AGAIN: Final = (f.Disposal.REQUEUE, f.Disposal.KILL, f.Disposal.SUSPEND, f.Disposal.MIGRATE)
CAUSES: Final = (
    *because.tags(
        because.WebDemand,
        because.WebShare,
        because.BatchShare,
        because.IdleToBatch,
        because.Guarantee,
        because.Lending,
        because.Window,
        because.Cordoned,
        because.DepartmentRemoved,
    ),
    *map(str, TAKEN),
)


class Waits(Histogram, array_like=True):
    bounds = WAIT_S


class Holding(msgspec.Struct, array_like=True):
    """Of a host: who held it last, and when that changed, the last FLAPS times."""

    dept: str = ""
    changed: list[float] = []


class State(msgspec.Struct, kw_only=True):
    """By department, unless it says otherwise."""

    outcomes: dict[str, dict[str, int]] = {}
    retries: dict[str, int] = {}
    preempted: dict[str, dict[str, int]] = {}  # by cause
    noticed: dict[str, str] = {}  # the reason of the last notice
    waits: dict[str, Waits] = {}
    cpu_s: dict[str, float] = {}
    hosts: dict[str, Holding] = {}  # by host
    moves: dict[str, dict[str, int]] = {}  # by who had it, then by who has it


class Tallies:
    """`jobs`: the read model's.  Folds valid facts alone, after custody has."""

    def __init__(self, custody: Custody, jobs: dict[str, Job], state: State) -> None:
        self.custody, self.jobs, self.state = custody, jobs, state
        self.handlers: Handlers = {
            f.UnitPlaced: self._placed,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._reported,
            f.QuotaChanged: self._quota,
            f.HostGranted: self._granted,
            f.HostRemoved: self._removed,
        }

    def used(self, dept: str, cpu_s: float) -> None:
        """Jobs have used this much more, as their guests reported."""
        if cpu_s > 0:
            self.state.cpu_s[dept] = self.state.cpu_s.get(dept, 0.0) + cpu_s

    def ended(self, dept: str, how: str) -> None:
        """Rule 1."""
        _add(self.state.outcomes, dept, how)

    def flapping(self, now: float) -> int:
        """Rule 4: hosts."""
        return sum(
            1
            for held in self.state.hosts.values()
            if len(held.changed) == FLAPS and now - held.changed[0] <= FLAP_WINDOW_S
        )

    def check(self) -> list[str]:
        strange = self.state.hosts.keys() - self.custody.state.hosts.keys()
        return [f"{host} is remembered, and custody knows no such host" for host in sorted(strange)]

    def _placed(self, fact: f.UnitPlaced, meta: Meta) -> None:
        job = self.jobs.get(job_of(fact.unit))
        if job is None or fact.attempt != 1:
            return
        slot_at = job.terms.start_at if job.terms is not None and job.terms.local else 0.0
        waited_s = max(0.0, meta.at - max(job.submitted_at, slot_at))
        self.state.waits.setdefault(job.dept, Waits()).add(waited_s)

    def _closed(self, fact: f.AttemptClosed, _meta: Meta) -> None:
        """Rule 3."""
        unit, cause = self.custody.state.units.get(fact.unit), fact.cause
        if unit is None or is_instance(fact.unit) or cause not in TAKEN or fact.disposal not in _AGAIN:
            return
        own = cause in (Cause.PREEMPTED, Cause.DRAINED)  # no notice is behind it
        noticed = cause if own else self.state.noticed.get(unit.dept, cause)
        _add(self.state.preempted, unit.dept, str(noticed if noticed in CAUSES else cause))

    def _quota(self, fact: f.QuotaChanged, _meta: Meta) -> None:
        if fact.reason is not None and fact.hosts < self.custody.held(fact.dept):
            self.state.noticed[fact.dept] = fact.reason.code

    def _removed(self, fact: f.HostRemoved, _meta: Meta) -> None:
        self.state.hosts.pop(fact.host, None)

    def _reported(self, fact: f.AttemptReported, _meta: Meta) -> None:
        unit = self.custody.state.units.get(fact.unit)
        if unit is None:
            return
        if unit.state != "final":
            self.state.retries[unit.dept] = self.state.retries.get(unit.dept, 0) + 1

    def _granted(self, fact: f.HostGranted, meta: Meta) -> None:
        """Rule 4."""
        held = self.state.hosts.setdefault(fact.host, Holding())
        if held.dept == fact.dept:
            return
        _add(self.state.moves, held.dept, fact.dept)
        held.dept = fact.dept
        held.changed.append(meta.at)
        del held.changed[:-FLAPS]


def _add(counts: dict[str, dict[str, int]], one: str, other: str) -> None:
    found = counts.setdefault(one, {})
    found[other] = found.get(other, 0) + 1
