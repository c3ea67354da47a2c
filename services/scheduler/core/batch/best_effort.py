"""Best-effort jobs under every order: they run on what production leaves, and production preempts them.

Theory of operation
  The order plans production alone, on the *cleared* room: as if best-effort that may be preempted were not there.  So
  production is planned as it would be without best-effort, whatever the order's rules are: a strict order stays strict, and
  reservations are kept for production only.  Its starts are taken, in its order, while they fit without preemption; victims are
  chosen for the first one that does not fit, and the pass ends.  The next decision continues from there.
  If no production can start, best-effort takes what is free, whatever fits, in the order of the queue.
  An order that chooses the victims itself (`Order.makes_way`: `svmsched`, `leases`) is left alone.

Rules
  1. Only best-effort is preempted, and only for production.  Which of the two a job is never changes, so no two jobs can
     preempt each other in turn.  Each victim is ended for a job that starts; production is never preempted here.
  2. Victims are chosen by the department's order of victims.  The set is minimal (`preemption`).
  3. A guarded unit (`preemption`) is never a victim: the order treats it as production.  If a start needs more victims than the
     hourly bound still allows, the order plans again with all best-effort guarded (not with some of it: which victims come
     first changes with time, and time alone must start nothing).
  4. A start that the order put behind a reservation (backfill) gets the hosts that the order chose for it, and nothing is
     preempted on others; any other start takes free hosts first.
  5. Without best-effort the order alone decides, and this module costs nothing.
  6. Where production waits for a limit that best-effort fills (its user's, its department's), best-effort that counts against
     that limit is preempted too, beside that whose hosts are needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, cast

from schemas import reasons as because
from schemas.reasons import Reason
from services.scheduler.core.policies import order_first_fit, preemption
from services.scheduler.core.policies.order import Order, Plan, Situation, Start
from services.scheduler.core.policies.preemptible_capacity import Pick, PreemptibleCapacity
from services.scheduler.core.state.budgets import Budgets, Owner
from services.scheduler.core.state.forecast import Ending, Forecast
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape


class BestEffort(NamedTuple):
    """The department's best-effort.  `running`: units with an open attempt; `guarded`: whether no job may preempt a unit now;
    `left`: how many may be preempted now, None: all; `in_order`: sorts live attempts, first victim first; `owner`: of a
    unit."""

    running: Mapping[str, None]
    guarded: Callable[[str], bool]
    left: int | None
    in_order: Callable[[list[Ending]], list[Ending]]
    owner: Callable[[str], Owner]

    def movable(self, forecast: Forecast) -> list[Ending]:
        """Rule 3; in no order."""
        if self.left == 0:
            return []
        return [each for each in forecast.best_effort.values() if not self.guarded(each.unit)]


def plan(order: Order, situation: Situation, best_effort: BestEffort) -> Plan:
    """What the order plans for production: the units that start now, each with its victims.  Changes nothing."""
    queue = situation.queue
    if not (best_effort.running or any(key.kind.best_effort for key in queue.lanes)):
        return order.plan(situation)
    if order.makes_way:
        return _bounded(order, situation, best_effort.left)
    production = situation._replace(queue=_part(queue, best_effort=False))
    found = _production(order, production, best_effort)
    return found if found.starts else found._replace(starts=_leavings(situation))


def seen(order: Order, situation: Situation, best_effort: BestEffort) -> Situation:
    """The situation in which the order plans production, for explanations."""
    if order.makes_way:
        return situation
    production = situation._replace(queue=_part(situation.queue, best_effort=False))
    if not best_effort.running:
        return production
    capacity = PreemptibleCapacity(situation.room, situation.forecast(), best_effort.movable(situation.forecast()))
    return _cleared(production, capacity, best_effort)


def why(situation: Situation, best_effort: BestEffort, shape: Shape, until: float) -> Reason | None:
    """Why production of this shape waits although it would fit if all best-effort were preempted: how much of it is guarded.
    `until`: when time lifts a bound next."""
    if not best_effort.running:
        return None
    forecast = situation.forecast()
    if PreemptibleCapacity(situation.room, forecast, best_effort.movable(forecast)).cleared.fits(shape):
        return None
    everybody = list(forecast.best_effort.values())
    if not PreemptibleCapacity(situation.room, forecast, everybody).cleared.fits(shape):
        return None
    guarded = sum(1 for each in everybody if best_effort.guarded(each.unit))
    until_s = round(max(0.0, until - situation.now), 1) if until < float("inf") else None
    return because.Protected(guarded=guarded, hour_spent=best_effort.left == 0, until_s=until_s)


def _bounded(order: Order, situation: Situation, left: int | None) -> Plan:
    """Rule 3, for an order that chooses the victims itself.  Attempts that must end for a coming slot end regardless."""
    found = order.plan(situation) if left != 0 or order.keeps_slots else Plan([])
    if found.clear:
        return found
    planned = [start for start in found.starts if left != 0 and not any(map(situation.guarded, start.victims))]
    kept = planned if left is None else _within(planned, left)
    if kept or (left != 0 and not planned):
        return found._replace(starts=kept)
    again = order.plan(situation._replace(guarded=_everybody))
    return again._replace(starts=_within(again.starts, 0), clear=(), due=min(found.due, again.due))


def _within(starts: list[Start], left: int) -> list[Start]:
    """The first starts, as long as they have at most `left` victims in all."""
    ended = accumulate(len(start.victims) for start in starts)
    return [start for start, count in zip(starts, ended, strict=True) if count <= left]


def _everybody(_unit: str) -> bool:
    return True


def _production(order: Order, situation: Situation, best_effort: BestEffort) -> Plan:
    if not situation.queue.lanes:
        return Plan([])
    movable = best_effort.movable(situation.forecast()) if best_effort.running else []
    if movable:
        capacity = PreemptibleCapacity(situation.room, situation.forecast(), movable)
        planned = order.plan(_cleared(situation, capacity, best_effort))
        if not planned.starts:
            return planned
        capacity.best_effort = best_effort.in_order(movable)  # only now: it costs more than a fruitless pass
        found = _realised(planned.starts, capacity, best_effort, situation.queue.budgets)
        if found:
            return planned._replace(starts=found)
    return order.plan(situation)  # rule 3, or there is nothing to preempt


def _cleared(situation: Situation, capacity: PreemptibleCapacity, best_effort: BestEffort) -> Situation:
    """The situation without best-effort that may be preempted: neither its hosts nor what it counts against limits."""
    room, queue = capacity.cleared.copy(), copy.copy(situation.queue)
    room.resting = situation.room.resting
    if queue.budgets is not None:
        queue.budgets = queue.budgets.without(_counted(capacity.best_effort, best_effort))
    return situation._replace(queue=queue, room=room, forecast=lambda: cast("Forecast", capacity.production))


def _counted(endings: Iterable[Ending], best_effort: BestEffort) -> Iterator[tuple[Owner, Shape]]:
    return ((best_effort.owner(each.unit), each.shape) for each in endings)


def _realised(
    planned: list[Start], capacity: PreemptibleCapacity, best_effort: BestEffort, budgets: Budgets | None
) -> list[Start]:
    """The planned starts that need no victims, up to and including the first one that does."""
    found: list[Start] = []
    then = None if budgets is None else budgets.without(())
    for start in planned:
        chosen = capacity.find(start.shape, _pick(start))
        if chosen is None:
            break
        hosts, victims = chosen
        if then is not None:
            more = _for_limits(then, start, victims, capacity.best_effort, best_effort)
            if more is None:
                break
            victims += more
        if best_effort.left is not None and len(victims) > best_effort.left:
            break
        found.append(start._replace(hosts=hosts, victims=tuple(victims)))
        if victims or hosts != start.hosts:  # the rest was planned beside other hosts
            break
        capacity.start(hosts, start.shape, victims)
        if then is not None:
            then.opened(best_effort.owner(start.unit), start.shape, 1)
    return found


class _Limits:
    """The limits of one start (`preemption.Trial`)."""

    def __init__(self, then: Budgets, start: Start, owner: Callable[[str], Owner]) -> None:
        self.then, self.its, self.shape, self.owner = then, owner(start.unit), start.shape, owner

    def take(self, ending: Ending) -> None:
        self.then.opened(self.owner(ending.unit), ending.shape, -1)

    def fits(self) -> bool:
        return self.then.allowance(self.its, self.shape, 1) > 0

    def give_back(self, ending: Ending) -> bool:
        self.then.opened(self.owner(ending.unit), ending.shape, 1)
        if not self.fits():
            self.take(ending)
            return False
        return True


def _for_limits(
    now: Budgets, start: Start, victims: list[str], movable: list[Ending], best_effort: BestEffort
) -> list[str] | None:
    """What must be preempted beside the victims for the start to keep its limits (rule 6); None if it cannot keep them."""
    if now.allowance(best_effort.owner(start.unit), start.shape, 1):  # as a rule: be quick
        return []
    gone = dict.fromkeys(victims)
    then = now.without(_counted((each for each in movable if each.unit in gone), best_effort))
    limits = _Limits(then, start, best_effort.owner)
    if limits.fits():
        return []
    more = preemption.minimal((each for each in movable if each.unit not in gone), limits)
    return None if more is None else [each.unit for each in more]


def _pick(start: Start) -> Pick:
    """Rule 4."""
    shape, hosts = start.shape, start.hosts

    def those(room: Room) -> tuple[str, ...] | None:
        return hosts if all(name in room.free and room.free[name].fits(shape) for name in hosts) else None

    return (lambda room: room.pick(shape)) if start.anywhere else those


def _part(queue: Queue, *, best_effort: bool) -> Queue:
    """The queue with best-effort alone, or with production alone."""
    twin = copy.copy(queue)
    twin.lanes = {key: lane for key, lane in queue.lanes.items() if key.kind.best_effort == best_effort}
    return twin


def _leavings(situation: Situation) -> list[Start]:
    """Best-effort on what is free, whatever fits."""
    part = _part(situation.queue, best_effort=True)
    starts = order_first_fit.plan(situation._replace(queue=part)).starts if part.lanes else []
    return [start._replace(reason=because.BestEffort()) for start in starts]
