"""What became of the core-seconds that attempts used: goodput, badput by cause, or not known yet.

Theory of operation
  What an attempt used is open when it ends, and stays so while its unit may yet make something of it.  What is thrown away is
  first only *doomed*: a late report, or a checkpoint in the grace time, may save it.  It is badput when the next attempt
  begins, or is over, or the unit is.  So counters never take anything back, and at every moment, in whole core-milliseconds,

      used = good + bad + open.

Rules
  1. Of a job everything counts that was used by a unit that completes, starts and earlier attempts that went on included, but
     for what was thrown away on the way.
  2. Of an instance everything counts if it came into service, and nothing if it did not.
  3. An attempt that is closed to be run again leaves open what was saved before; the rest, its start included, is doomed.
  4. The cause is that of the moment when it was thrown away; of what was not, how the unit ended.
"""

from __future__ import annotations

from typing import Final

import msgspec

PREEMPTED: Final = "preempted"  # made way: its host or its room was wanted
FAULT: Final = "fault"  # a host or a VM failed, or saving it did
RETRIED: Final = "retried"  # the job failed by itself, and was run again
CAUSES: Final = (PREEMPTED, FAULT, "failed", RETRIED, "timeout", "cancelled", "killed", "stopped")


class Entry(msgspec.Struct, array_like=True):
    """Of a unit that is not over: core-milliseconds used in attempts that are, and how much of them is doomed."""

    dept: str
    used: int = 0
    doomed: int = 0
    cause: str = ""


class State(msgspec.Struct, kw_only=True):
    """By department; `bad` by cause; `open` by unit."""

    good: dict[str, int] = {}
    bad: dict[str, dict[str, int]] = {}
    open: dict[str, Entry] = {}


class Goodput:
    def __init__(self, state: State) -> None:
        self.state = state

    def used(self, unit: str, dept: str, amount: int) -> None:
        """An attempt is over."""
        self.state.open.setdefault(unit, Entry(dept)).used += amount

    def doom(self, unit: str, kept: int, cause: str) -> None:
        """All but `kept` is thrown away, unless it is saved yet (rule 3)."""
        self.settle(unit)
        entry = self.state.open.get(unit)
        if entry is not None:
            entry.doomed, entry.cause = max(0, entry.used - kept), cause

    def save(self, unit: str, amount: int) -> None:
        """A checkpoint came after all."""
        entry = self.state.open.get(unit)
        if entry is not None:
            entry.doomed = max(0, entry.doomed - amount)

    def settle(self, unit: str) -> None:
        """What is doomed is lost for good."""
        entry = self.state.open.get(unit)
        if entry is not None and entry.doomed:
            self._bad(entry.dept, entry.cause, entry.doomed)
            entry.used, entry.doomed = entry.used - entry.doomed, 0

    def over(self, unit: str, *, good: bool, cause: str) -> None:
        """The unit is over; `cause`, if it was not good.  What was doomed a late success has saved."""
        if not good:
            self.settle(unit)
        entry = self.state.open.pop(unit, None)
        if entry is None or not entry.used:
            return
        if good:
            self.state.good[entry.dept] = self.state.good.get(entry.dept, 0) + entry.used
        else:
            self._bad(entry.dept, cause, entry.used)

    def close(self, dept: str, cause: str) -> None:
        """The department is closed, and every unit of it with it."""
        for unit in [name for name, entry in self.state.open.items() if entry.dept == dept]:
            self.over(unit, good=False, cause=cause)

    def _bad(self, dept: str, cause: str, amount: int) -> None:
        found = self.state.bad.setdefault(dept, {})
        found[cause] = found.get(cause, 0) + amount

    def unjudged(self) -> dict[str, int]:
        """By department, of attempts that are over."""
        found: dict[str, int] = {}
        for entry in self.state.open.values():
            found[entry.dept] = found.get(entry.dept, 0) + entry.used
        return found

    def check(self, used: dict[str, int]) -> list[str]:
        """`used`: by department, of attempts that are over."""
        opened, found = self.unjudged(), []
        for dept in sorted(used.keys() | opened.keys() | self.state.good.keys() | self.state.bad.keys()):
            told = self.state.good.get(dept, 0) + sum(self.state.bad.get(dept, {}).values()) + opened.get(dept, 0)
            if told != used.get(dept, 0):
                found.append(f"{dept} used {used.get(dept, 0)} and good, bad and open are {told}")
        bad = [unit for unit, entry in self.state.open.items() if not 0 <= entry.doomed <= entry.used]
        return found + [f"{unit} is doomed for more than it used" for unit in bad]
