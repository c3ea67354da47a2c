"""What is to be reported of instances: drained, unreachable, reachable.  A level, as often as it is looked at; that nothing is
said twice is the reporter's business (`phoenix.balance.reporter`).

Rules
  1. Drained: it drains, and two readings in a row show its slot in drain (or no slot of its own) without a request and without
     one that waits.  One reading is not enough: a thread of HAProxy may have chosen the server a moment before the drain, and
     counts the request a moment later.
  2. After a reload the old process finishes its requests, and the new one does not see them.  So nothing is drained in the
     first `old_process_s` of a process (`hard-stop-after`): the scheduler waits for `drain_s` then, and nobody is cut off.
  3. Unreachable: its slot is ready and its checks have failed for the department's `unreachable_s`, by HAProxy's own clock, so
     that a restart of the agent does not begin anew.  The check says why.  0 s: never.
  4. Reachable: up again, after it was called unreachable.  Nobody knows what an agent before this one has said: so it is said
     of all that are up at the first look with instances; the door leaves out what is no news.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from phoenix.balance.reporter import Report
from phoenix.haproxy.reconciler import Plan
from phoenix.haproxy.slots import Reading
from phoenix.haproxy.table import Key, Wanted


class Watch:
    """`old_process_s`: how long a process that was replaced by a reload may go on.  `tells_drained`: False if other balancers
    of the department stand beside this one, whose requests it cannot see."""

    def __init__(self, old_process_s: float, tells_drained: bool = True) -> None:
        self._old_process_s = old_process_s
        self._tells_drained = tells_drained
        self._quiet: set[Key] = set()  # draining ones without a request at the last reading
        self._doubted: set[Key] | None = (
            None  # called unreachable, by this agent or maybe by one before it; None: nobody yet
        )

    def look(self, wanted: Sequence[Wanted], plan: Plan, reading: Reading, unreachable_s: float) -> list[Report]:
        """What this reading is worth."""
        quiet = {one.key for one in wanted if one.draining and _is_quiet(one, plan)}
        drained = quiet & self._quiet if self._may_tell(reading) else set()
        self._quiet = quiet
        found = [Report(one.unit, one.attempt, "drained") for one in wanted if one.key in drained]
        return found + self._reached([one for one in wanted if not one.draining], plan, unreachable_s)

    def _reached(self, wanted: Sequence[Wanted], plan: Plan, unreachable_s: float) -> list[Report]:
        """Rules 3 and 4."""
        keys = {one.key for one in wanted}
        reports = {one.key: report for one in wanted if (report := _of(one, plan, unreachable_s)) is not None}
        before = keys if self._doubted is None else self._doubted & keys
        doubted = before | {key for key, report in reports.items() if report.state == "unreachable"}
        self._doubted = doubted if wanted or self._doubted is not None else None
        return [report for key, report in reports.items() if key in doubted]

    def _may_tell(self, reading: Reading) -> bool:
        return self._tells_drained and reading.uptime_s >= self._old_process_s


def _is_quiet(one: Wanted, plan: Plan) -> bool:
    slot = plan.holders.get(one.address)
    return slot is None or (slot.ordered == "drain" and not slot.sessions and not slot.queued)


def _of(one: Wanted, plan: Plan, unreachable_s: float) -> Report | None:
    """What an instance's slot shows."""
    slot = plan.holders.get(one.address)
    if slot is None or slot.ordered != "ready" or unreachable_s <= 0:
        return None
    if slot.is_up:
        return Report(one.unit, one.attempt, "reachable")
    if slot.for_s < unreachable_s:
        return None
    return Report(one.unit, one.attempt, "unreachable", f"no good health check for {slot.for_s:.0f} s: {slot.why}")
