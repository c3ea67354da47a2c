"""Attempts that ended before they began: how long the unit waits then, where it goes next, and when it is held.

Theory of operation
  An attempt begins when the guests of all ranks have called.  If it ended before that, because OpenNebula refused the deploy, a
  VM failed to start or never called, or a host was lost, its script has not run, so its job is presumed not to be the cause.
  Such an attempt uses up none of the job's requeues, and the unit keeps its place in the queue.

Rules
  1. The first such attempt in a row is followed by another one at once, on other hosts if there are any (`affinity`, rule 5);
     the next ones wait, twice as long each time, up to `WAIT_MAX_S`; those of a lease with a time slot up to `SLOT_WAIT_MAX_S`.
  2. While starts are paused (`starts.paused`: a fault of the site) none is counted, and when they resume, all waiting units may
     start at once: the cause of their waiting is gone.  An attempt whose VMs had not all started in time (`limits`, rule 3) is
     not counted either: it has waited long enough, for a quota perhaps, and is no evidence against its unit.
  3. A unit of which `FAILURES_MAX` attempts in a row did not begin is held, if attempts of other units have begun since on at
     least `PROVEN_MIN` of the hosts where it failed (on all, if there are fewer): then the unit itself is the cause, and a
     person must look at it.  `attempt.closed` says so, admission writes `job.held`, and `phoenix release` lets it try again.
  4. The first attempt that begins ends the count.
"""

from __future__ import annotations

from typing import Final

from schemas.causes import Cause
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.state import Again, State

WAIT_FIRST_S: Final = 1.0  # a fault of a host is over with the next one, a short one of OpenNebula within seconds
WAIT_MAX_S: Final = 300.0  # after nine waits: after a repair the unit waits no longer than the operator looks
SLOT_WAIT_MAX_S: Final = 5.0  # of a lease whose time runs: its room is not reserved meanwhile
DOUBLED_MAX: Final = 20  # a float has an end; WAIT_MAX_S comes long before
FAILURES_MAX: Final = 5  # of a row that began seconds ago: an unlucky job meets two broken hosts, rarely three
PROVEN_MIN: Final = 3
HOSTS_MAX: Final = 64  # that are remembered of one unit, the newest
BEFORE_IT_BEGAN: Final = (Cause.VM_ENDED, Cause.BOOT_TIMEOUT, Cause.START_TIMEOUT, Cause.HOST_LOST)


def is_launch_failure(unit: Unit, cause: Cause) -> bool:
    """True if the unit's last attempt, closed for `cause`, failed before it began."""
    return unit.began_at is None and cause in BEFORE_IT_BEGAN


def is_counted(state: State, cause: Cause) -> bool:
    """Rule 2, of an attempt that ended before it began, for `cause`."""
    return state.paused is None and cause is not Cause.START_TIMEOUT


def is_its_own(again: Again | None) -> bool:
    """True if the unit is to be held when one more attempt of it does not start (rule 3)."""
    if again is None or again.launches + 1 < FAILURES_MAX:
        return False
    proven = sum(again.failed_on.values())
    return 0 < min(PROVEN_MIN, len(again.failed_on)) <= proven


class Launches:
    """`waiting`: unit -> when it may start again; a view of `State`."""

    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state
        self.waiting: dict[str, float] = {}
        self.failing = dict.fromkeys(unit for unit, again in state.again.items() if again.failed_on)

    def failed(self, unit: str, hosts: tuple[str, ...], cause: Cause, most_s: float = WAIT_MAX_S) -> None:
        """Its attempt there ended before it began, for `cause`; it waits for `most_s` at most."""
        again = self.state.again[unit]
        for host in hosts:
            again.failed_on[host] = again.failed_on.pop(host, False)
        while len(again.failed_on) > HOSTS_MAX:
            del again.failed_on[next(iter(again.failed_on))]
        self.failing[unit] = None
        if is_counted(self.state, cause):
            again.launches += 1
            doubled = min(again.launches - 2, DOUBLED_MAX)
            wait_s = 0.0 if again.launches == 1 else WAIT_FIRST_S * 2.0**doubled
            again.not_before = self.custody.state.at + min(most_s, wait_s)

    def began(self, unit: str, hosts: tuple[str, ...]) -> None:
        """Rule 4; and for others that failed to start there, the hosts are proven."""
        self.forget(unit)
        for other in self.failing:
            failed_on = self.state.again[other].failed_on
            failed_on.update((host, True) for host in hosts if host in failed_on)

    def forget(self, unit: str) -> None:
        """The unit begins, is over, or is to be tried again."""
        self.failing.pop(unit, None)
        self.waiting.pop(unit, None)
        again = self.state.again.get(unit)
        if again is not None:
            again.launches, again.not_before = 0, 0.0
            again.failed_on.clear()

    def resumed(self) -> list[str]:
        """Starts resume: the units that need not wait any longer (rule 2)."""
        found = list(self.failing)
        for unit in found:
            self.state.again[unit].launches, self.state.again[unit].not_before = 0, 0.0
        return found

    def must_wait(self, unit: str, now: float, *, eligible: bool) -> bool:
        """True if it is `eligible` otherwise, and may not start yet; then `waiting` says until when."""
        again = self.state.again.get(unit)
        if not eligible or again is None or again.not_before <= now:
            self.waiting.pop(unit, None)
            return False
        self.waiting[unit] = again.not_before
        return True

    def due(self, now: float) -> list[str]:
        """Units whose wait is over."""
        return [unit for unit, until in self.waiting.items() if until <= now] if self.waiting else []

    def next_due(self) -> float:
        return min(self.waiting.values(), default=NEVER)
