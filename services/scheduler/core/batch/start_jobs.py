"""Which units start now, and which are preempted for them: the stage that asks the department's order.

Theory of operation
  A pass over a long queue takes long, and mostly starts nothing.  So a fruitless one is not repeated until something has
  changed that could bear fruit, or a moment has come that the pass itself stated (`policies.order`, rules 1 to 3).

Rules
  1. The order of the queue is priority, then entry (`jobs`).  Which of the units that fit start is the policy's
     (`policies/order_*`); on which hosts is `Room`'s: best fit, different hosts, and among equal ones `affinity`'s.
  2. Never placed: what is held, cancelled, over its throttle or a limit, or waits for others; nothing on cordoned or
     quarantined hosts.
  3. Best-effort jobs are preempted for production (`best_effort`), by suspension if possible; within bounds (`preemption`).
     Attempts preempted ahead of time for a lease's slot (`Plan.clear`) are closed in a decision of their own; the starts
     follow.
  4. A department that the configuration does not name, or that is closed, places nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from services.domain.core import NEVER
from services.scheduler.core.batch import best_effort
from services.scheduler.core.batch.affinity import Unexchanged, settle
from services.scheduler.core.batch.stage import Said
from services.scheduler.core.batch.view import View
from services.scheduler.core.policies import leases_elsewhere
from services.scheduler.core.policies.order import Order, Plan, Situation, Start
from services.scheduler.core.state.room import Room

NOBODY: Final = Plan([])  # the result of a pass over an empty queue


class Passed(NamedTuple):
    """A pass, and the position in the journal that it was made at."""

    plan: Plan
    position: int

    def serves(self, position: int, now: float) -> bool:
        """True if neither a fact nor a stated moment has come since."""
        return position == self.position and now < self.plan.due


class StartJobs:
    """`due`: when time alone may start something, as of the last pass; `shifted`: a host or an expected end has changed since
    the last fruitless pass; `passed_at`: when that was.  Before the first one `room.grew` is up.  `passed`: the last pass,
    fruitless or not, for explanations of why units wait; decisions do not read it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.due, self.shifted, self.passed_at = NEVER, False, 0.0
        self.passed: Passed | None = None

    def __call__(self, said: Said, now: float) -> bool:
        way, said.starts = self._moves(now, said.closing)
        for lease, victims in way.items():
            said.facts += self.view.dispositions.made_way(victims, lease, said.closing)
        for start in said.starts:
            if start.victims:
                said.facts += self.view.dispositions.made_way(start.victims, start.unit, said.closing)
            said.facts.append(self.view.placement(start))
        return False

    def look_again(self) -> None:
        """The next pass determines again when time may start something."""
        self.due, self.view.jobs.queue.grew = NEVER, True

    def next_moment(self, after: float) -> float:
        view, jobs = self.view, self.view.jobs
        due = min(jobs.next_moment(after), self.due, jobs.launches.next_due())
        if not (jobs.queue.where or jobs.queue.bookings):
            return due
        if view.best_effort:
            due = min(due, view.guards.next_moment(view.best_effort, after))
        return min((until for until in view.room.resting.values() if after < until < due), default=due)

    # ---------------------------------------------------------------------------------------------------------- passes

    def _moves(self, now: float, closing: dict[str, None]) -> tuple[dict[str, list[str]], list[Start]]:
        """Attempts preempted now (lease -> attempts), or the units that start; with slots, nothing beside `closing`."""
        view, queue = self.view, self.view.jobs.queue
        if not view.active or not (queue.where or queue.bookings):
            self.due = NEVER
            return {}, []
        if closing and queue.bookings:  # theirs may be the room that a slot needs: in a moment it is known to be free
            self.look_again()
            return {}, []
        room = view.room.rested(view.custody, now)
        view.jobs.ranked(now, None if view.best_effort else room)  # what fits nowhere may preempt best-effort
        if not self._may_bear_fruit(now, room):
            return {}, []
        plan = self._pass(now, room)
        self.due = plan.due
        way, starts = self._accepted(plan, room)
        if not (starts or way):
            queue.grew = view.room.grew = self.shifted = False
            self.passed_at = now
        return way, starts

    def _may_bear_fruit(self, now: float, room: Room) -> bool:
        """True if something has changed since the last fruitless pass that could let another one start something."""
        view = self.view
        if room is not view.room or view.jobs.queue.grew or view.room.grew or now >= self.due:
            return True
        left = view.guards.left(now) if view.best_effort else None
        if self.shifted and (view.order.foresees or left is not None):  # who is gone may leave fewer to end
            return True
        return bool(view.best_effort) and view.guards.next_moment(view.best_effort, self.passed_at) <= now

    def last_pass(self, now: float) -> Plan:
        """What the last pass over the queue found.  Where that may no longer hold, since the core has yet to decide or may
        place nothing (on notice), a pass is made now.  It serves until the next fact; the next decision makes one of its
        own."""
        view = self.view
        room = view.room.rested(view.custody, now)
        view.jobs.ranked(now)
        made = self.passed
        if made is not None and (not self._may_bear_fruit(now, room) or made.serves(view.custody.state.position, now)):
            return made.plan
        waits = view.jobs.queue.where or view.jobs.queue.bookings
        return self._pass(now, room) if view.active and waits else NOBODY

    def _pass(self, now: float, room: Room) -> Plan:
        plan = self._plan(self.view.order, self.view.situation(now, room))
        self.passed = Passed(plan, self.view.custody.state.position)
        return plan

    def _plan(self, order: Order, situation: Situation) -> Plan:
        queue, view = situation.queue, self.view
        slots = leases_elsewhere.plan(situation) if queue.bookings and not order.keeps_slots else Plan([])
        if slots.starts:
            return slots
        if view.best_effort or any(key.kind.best_effort for key in queue.lanes):
            plan = best_effort.plan(order, situation, view.preemption.best_effort(situation.now))
        else:
            plan = order.plan(situation)
        return plan if slots.due == NEVER else plan._replace(due=min(plan.due, slots.due))

    def _accepted(self, plan: Plan, room: Room) -> tuple[dict[str, list[str]], list[Start]]:
        """Of a plan: attempts preempted now (lease -> attempts), or starts within the limits, on the hosts that suit them
        best."""
        way: dict[str, list[str]] = {}
        for unit, lease in plan.clear:
            way.setdefault(lease, []).append(unit)
        queue, starts = self.view.jobs.queue, [] if way else plan.starts
        if queue.budgets is not None:
            booked, rest = [s for s in starts if s.unit in queue.bookings], [s for s in starts if s.unit in queue.where]
            starts = booked + queue.budgets.cut(
                rest, self.view.jobs.owner, self.view.jobs.shape
            )  # accepted ones: not again
        return way, self._settled(starts, room)

    def _settled(self, starts: list[Start], room: Room) -> list[Start]:
        """Among equal hosts those that serve the starts best."""
        view, index, state, jobs = self.view, self.view.custody.index, self.view.state, self.view.jobs
        if not starts or not (index.parked or index.saved or state.again):
            return starts
        ahead, warm = view.order.foresees or bool(jobs.queue.bookings), view.policy.warm
        given = Unexchanged(
            view.custody, view.dept, warm, jobs.user, state.warm, jobs.origin, jobs.shuns, empty_only=ahead
        )
        return settle(starts, room, given)

    def check(self, fresh: StartJobs, now: float) -> list[str]:
        """A pass that is skipped as fruitless would be so: one by a newly loaded stage starts nothing."""
        view, queue = self.view, self.view.jobs.queue
        if not view.active or not (queue.where or queue.bookings):
            return []
        room = view.room.rested(view.custody, now)
        if self._may_bear_fruit(now, room):
            return []
        room = fresh.view.room.rested(view.custody, now)
        way, starts = fresh._accepted(fresh._pass(now, room), room)
        found = [f"a pass is held for fruitless, and {start.unit} could start" for start in starts]
        return found + [
            f"a pass is held for fruitless, and {unit} has to make way" for each in way.values() for unit in each
        ]
