"""What is to be reported of instances: drained, unready, ready.  A level, as often as it is looked at; that nothing is
reported twice is the reporter's business (`phoenix.balance.reporter`).

Rules
  1. Drained: it drains, and two readings in a row show its slot in drain (or no slot of its own) without a request and without
     one that waits.  One reading is not enough: a thread of HAProxy may have chosen the server a moment before the drain, and
     counts the request a moment later.
  2. After a reload the old process finishes its requests, and the new one does not see them.  So nothing is drained in the
     first `old_process_s` of a process (`hard-stop-after`): the scheduler waits for `drain_s` then, and no session is cut off.
  3. Unready: its slot is ready and HAProxy has taken it down, which it does after three failed checks.  One that was not seen
     up yet, or that no check of a HAProxy that has restarted has failed, is down until its next check: it has FIRST_S.  The
     check shows why; without the map of health paths, that it may have asked another one than the release's.
  4. Ready: up again, after it was called unready.  What an agent before this one has reported is unknown: so it is reported
     of all that are up at the first look with instances; admission leaves out what is not new.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phoenix.balance.reporter import Report
from phoenix.haproxy.reconciler import Plan
from phoenix.haproxy.slots import Reading
from phoenix.haproxy.table import Key, Wanted

# Of a server of which no check has ended, and of one that passed in drain, before the agent declared it down.
NOT_FAILED: Final = ("INI", "L4OK", "L6OK", "L7OK")
NO_MAP: Final = "haproxy.cfg has no map of health paths (docs/howto/haproxy.md)"
FIRST_S: Final = 2.0  # a first check is due after a quarter of a second; HAProxy counts whole seconds


class Watch:
    """`old_process_s`: how long a process that was replaced by a reload may run.  `tells_drained`: False if other balancers
    of the department stand beside this one, whose requests it cannot see."""

    def __init__(self, old_process_s: float, tells_drained: bool = True) -> None:
        self._old_process_s = old_process_s
        self._tells_drained = tells_drained
        self._quiet: set[Key] = set()  # draining ones without a request at the last reading
        self._up: set[Key] = set()  # seen up
        self._doubted: set[Key] | None = None  # called unready, by this agent or maybe by one before it; None: not yet

    def look(self, wanted: Sequence[Wanted], plan: Plan, reading: Reading) -> list[Report]:
        """What this reading is worth."""
        quiet = {one.key for one in wanted if one.draining and _is_quiet(one, plan)}
        drained = quiet & self._quiet if self._may_tell(reading) else set()
        self._quiet = quiet
        found = [Report(one.unit, one.attempt, "drained") for one in wanted if one.key in drained]
        return found + self._readiness([one for one in wanted if not one.draining], plan, reading.has_map)

    def _readiness(self, wanted: Sequence[Wanted], plan: Plan, has_map: bool) -> list[Report]:
        """Rules 3 and 4."""
        keys = {one.key for one in wanted}
        looks = [(one, _of(one, plan, one.key in self._up, has_map)) for one in wanted]
        reports = {one.key: found for one, found in looks if found is not None}
        self._up = (self._up & keys) | {key for key, report in reports.items() if report.state == "ready"}
        before = keys if self._doubted is None else self._doubted & keys
        doubted = before | {key for key, report in reports.items() if report.state == "unready"}
        self._doubted = doubted if wanted or self._doubted is not None else None
        return [report for key, report in reports.items() if key in doubted]

    def _may_tell(self, reading: Reading) -> bool:
        return self._tells_drained and reading.uptime_s >= self._old_process_s


def _is_quiet(one: Wanted, plan: Plan) -> bool:
    slot = plan.holders.get(one.address)
    return slot is None or (slot.ordered == "drain" and not slot.sessions and not slot.queued)


def _of(one: Wanted, plan: Plan, was_up: bool, has_map: bool) -> Report | None:
    """What an instance's slot shows."""
    slot = plan.holders.get(one.address)
    if slot is None or slot.ordered != "ready":
        return None
    if slot.is_up:
        return Report(one.unit, one.attempt, "ready")
    if slot.for_s < FIRST_S and (not was_up or slot.why.startswith(NOT_FAILED)):
        return None
    where = "" if has_map else f"{NO_MAP}, the release's is {one.health_path}; "
    return Report(one.unit, one.attempt, "unready", f"{where}health check: {words(slot.why)}")


def words(why: str) -> str:
    """What HAProxy's check found, for those who do not know its names."""
    name, _, rest = why.partition(" ")
    if name.startswith("L7STS"):
        return f"HTTP {rest.partition(':')[0]} ({why})"
    told = {"L4CON": "no connection", "L4TOUT": "no connection in time", "L7TOUT": "no answer in time"}.get(
        name.rstrip(":")
    )
    return why if told is None else f"{told} ({why})"
