"""Time limits of open attempts: which are over their walltime, and which have not come up.  A view derived from custody.

Rules
  1. `walltime`: counts from `attempt.began`, when the guests of all ranks have called.
  2. `boot`: counts from the start of the attempt's last VM.  An attempt that waits for OpenNebula is not yet booting.
  3. `start`: an attempt whose VMs have not all started after `START_PATIENCE` boot budgets goes back into the queue: its host
     may be stuck.  The time is long, and the job is not blamed, because an executor may be away for minutes.  An attempt that
     resumes saved VMs has twice what saving may take beside: they may still be being saved, and have to be read again.  Where
     jobs may ask for a grace (`domain.grace`) there is the longest beside: its host may still be left.
  4. While admission is silent (it hangs, the broker is away) a job may have ended without its guest being able to report it.
     So a walltime is enforced in its moment if admission gave a sign of life lately (`heard_until`, `scheduler.reports`) and no
     report of the attempt can be held up: admission has been alive since the attempt began, or for `REPORT_S` without a gap
     (`heard_since`).  Else once that is so, and after `PATIENCE_S` in any case.
  5. `slot`: a lease with a time slot ends with it, whenever it began and whether or not it has.  It has no walltime beside.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from schemas.ids import sort_key
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit, vm_key

START_PATIENCE: Final = 5.0  # with the default boot budget: five minutes, longer than any failover
REPORT_S: Final = 3.0  # a guest whose report failed tries again after two seconds at the latest
PATIENCE_S: Final = 300.0  # a hung admission is replaced within half a minute; then other units wait for these hosts
Kind = Literal["walltime", "boot", "start", "slot"]
_new: Final = tuple.__new__  # as in `schemas.size`


class Limit(NamedTuple):
    due: float
    unit: str
    attempt: int
    kind: Kind


class Limits:
    """`walltime_s` of a unit (instances have none: NEVER); `boot_s`: the boot budget; `slot_ends_at`: of a unit with a time
    slot, else NEVER; `save_s`: what saving a VM may take; `grace_s`: what a job may ask for to leave its host, or 0."""

    def __init__(
        self,
        custody: Custody,
        walltime_s: Callable[[str], float],
        boot_s: Callable[[], float],
        slot_ends_at: Callable[[str], float] = lambda _: NEVER,
        save_s: Callable[[], float] = lambda: 0.0,
        grace_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.custody, self.walltime_s, self.boot_s, self.slot_ends_at = custody, walltime_s, boot_s, slot_ends_at
        self.save_s, self.grace_s = save_s, grace_s
        self.heap: list[Limit] = []  # may hold limits that do not count any more
        self.started: dict[str, int] = {}  # open unit -> ranks of its attempt whose VM has started
        # Since when admission is alive without a gap, and until when that counts as lately; NEVER: not watched (simulations).
        self.heard_since, self.heard_until = 0.0, NEVER
        self.began_at = 0.0  # the last attempt: admission says so, and was alive then

    def rebuild(self, units: Iterable[str]) -> None:
        """From scratch, for these open units."""
        self.heap, self.started = [], {}
        for name in units:
            unit = self.custody.state.units[name]
            if not unit.live:
                continue
            vms = self.custody.state.vms
            keys = [vm_key(name, unit.attempt, rank) for rank in range(unit.nodes)]
            times = [vms[key].started_at for key in keys if key in vms]
            running = [at for at in times if at is not None]
            if running:
                self.started[name] = len(running)
            self._watch(unit, max(running) if len(running) == unit.nodes else None)
            self._watch_slot(unit)

    # ------------------------------------------------------------------------------------------------------- following

    def placed(self, name: str) -> None:
        self._watch(self.custody.state.units[name])
        self._watch_slot(self.custody.state.units[name])

    def changed(self, name: str) -> None:
        """The open unit's time limit has changed."""
        unit = self.custody.state.units[name]
        if unit.live:
            self._watch_slot(unit)
            if unit.began_at is not None:
                self._watch(unit)

    def vm_started(self, name: str, attempt: int) -> None:
        unit = self.custody.state.units[name]
        if unit.live and unit.attempt == attempt:
            self.started[name] = self.started.get(name, 0) + 1
            if self.started[name] == unit.nodes:
                self._watch(unit, self.custody.state.at)

    def began(self, name: str) -> None:
        self.began_at = self.custody.state.at
        self._watch(self.custody.state.units[name])

    def closed(self, name: str) -> None:
        """The unit's attempt is closed or broken."""
        self.started.pop(name, None)

    def _watch(self, unit: Unit, started_at: float | None = None) -> None:
        """`started_at`: when the last VM of its attempt started, if all have."""
        kind = self._kind(unit)
        if kind == "walltime":
            due = self._walltime_due(unit)
        elif started_at is not None:
            due = started_at + self.boot_s()
        else:
            resuming_s = 2 * self.save_s() if unit.resumes else 0.0
            due = (unit.placed_at or 0.0) + START_PATIENCE * self.boot_s() + resuming_s + self.grace_s()
        if due < NEVER:
            heapq.heappush(self.heap, _new(Limit, (due, unit.id, unit.attempt, kind)))

    def _walltime_due(self, unit: Unit) -> float:
        assert unit.began_at is not None
        return unit.began_at + self.walltime_s(unit.id) if self.slot_ends_at(unit.id) == NEVER else NEVER

    def _watch_slot(self, unit: Unit) -> None:
        due = self.slot_ends_at(unit.id)
        if due < NEVER:
            heapq.heappush(self.heap, Limit(due, unit.id, unit.attempt, "slot"))

    def _kind(self, unit: Unit) -> Kind:
        if unit.began_at is not None:
            return "walltime"
        return "boot" if self.started.get(unit.id, 0) >= unit.nodes else "start"

    # --------------------------------------------------------------------------------------------------------- reading

    def any_due(self, now: float) -> bool:
        """False if certainly nothing is overdue."""
        return bool(self.heap) and self.heap[0].due <= now

    def overdue(self, now: float) -> list[Limit]:
        """The limits that have passed and are enforced, in the order of submission."""
        found = [limit for limit in self._passed(now) if not self._awaits_report(limit, now)]
        return sorted(
            found, key=lambda x: sort_key(x.unit)
        )  # those of one unit stay in the order in which they are due

    def awaits_reports(self, now: float) -> bool:
        """Whether a walltime has passed and is not enforced yet (rule 4)."""
        return any(self._awaits_report(limit, now) for limit in self._passed(now))

    def ends_by(self, then: float) -> bool:
        """Whether a walltime will have passed by then."""
        return any(limit.kind == "walltime" for limit in self._passed(then))

    def next_moment(self, now: float) -> float:
        """When something is enforced, if admission gives no sign of life meanwhile."""
        if self.next_due() > now:
            return self.next_due()
        moments = [self._enforced_at(limit) for limit in self._passed(now)]
        return min([*moments, *(limit.due for limit in self.heap if limit.due > now)], default=NEVER)

    def _passed(self, now: float) -> list[Limit]:
        found: list[Limit] = []
        while self.heap and self.heap[0].due <= now:
            limit = heapq.heappop(self.heap)
            if self._counts(limit):
                found.append(limit)
        for limit in found:  # they count until the closing has come back
            heapq.heappush(self.heap, limit)
        return found

    def _awaits_report(self, limit: Limit, now: float) -> bool:
        return now < self._enforced_at(limit)

    def _enforced_at(self, limit: Limit) -> float:
        """Rule 4, by the signs of life so far."""
        if limit.kind != "walltime":
            return limit.due
        if limit.due > self.heard_until:
            return limit.due + PATIENCE_S
        began_at = self.custody.state.units[limit.unit].began_at
        assert began_at is not None
        if self.heard_since <= began_at:
            return limit.due
        return min(limit.due + PATIENCE_S, max(limit.due, self.heard_since + REPORT_S))

    def next_due(self) -> float:
        while self.heap and not self._counts(self.heap[0]):
            heapq.heappop(self.heap)
        return self.heap[0].due if self.heap else NEVER

    def _counts(self, limit: Limit) -> bool:
        unit = self.custody.state.units.get(limit.unit)
        if unit is None or not unit.live or unit.attempt != limit.attempt:
            return False
        if limit.kind == "slot":  # what was extended has an older limit in the heap: it counts no more
            return limit.due == self.slot_ends_at(unit.id)
        if limit.kind == "walltime":
            return limit.due == self._walltime_due(unit)
        return self._kind(unit) == limit.kind
