"""The batch core (the paper's ST Server): queue, placement, time limits, and what ends when hosts must be given back.

Theory of operation
  The core folds its department's jobs; everything else (who holds what, which attempt is live) it reads from custody.  What a
  decision needs to be quick (lanes of the queue, room, limits) are views (`batch.views`: there everything is folded).  `decide`
  compares levels and returns, in this order: attempts that must end; the answer to a notice, or else new placements; demand.

Rules
  1. Broken attempts are closed at once: preempted ones by `on_reclaim`, lost ones and ended VMs go back into the queue
     (`endings`).  A cancelled one is closed as cancelled, one over its walltime as timeout.
  2. Notice (held above quota): hosts go back at once, in one envelope with the closing of their attempts; nothing is placed
     meanwhile (paper, II-B: "release resources immediately with the size demanded"); on a contract's longer notice jobs have
     until the policy's is left of it (`notice`).  Only who moves is placed (`moving`), on hosts that stay.
  3. The order of the queue is priority, then entry (`book`).  Which of the units that fit start is the policy's
     (`policies/order_*`); on which hosts is `Room`'s: best fit, different hosts, and among equal ones `affinity`'s.
  4. Never placed: what is held, cancelled, over its throttle or a limit, or waits for others; nothing on cordoned or
     quarantined hosts.
  5. `demand.changed` is a level over running and eligible units (`demand`).
  6. Best-effort jobs make way for production (`make_way`), suspended if that can be done; within bounds (`guards`).  Who makes
     way ahead of time for a lease's slot (`Agenda.clear`) is closed in a decision of its own; what starts follows.
  7. While nothing else is to be said and nobody waits, jobs may move from crowded hosts to idle ones (`balancing`).
  8. An idle host that is set apart for longer than `KEPT_S` (disabled, say) goes back: the department gets another one for it.
     A cordoned one goes back as soon as it is idle; a drained one at its deadline, and what still runs there then ends as on
     notice.  No notice is answered with cordoned hosts: they serve nobody else.
  9. A department that the configuration does not name, or that is closed, places nothing and demands nothing; it still
     answers notices and closes what is broken.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final

from schemas import facts as f
from schemas.envelope import FACTS_MAX
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Code, Reason, because
from services.domain.core import NEVER
from services.scheduler.core.batch import lease_times, make_way, reclaim
from services.scheduler.core.batch import notice as notices
from services.scheduler.core.batch.affinity import Unexchanged, settle
from services.scheduler.core.batch.check import check
from services.scheduler.core.batch.demand import hosts_wanted, preferred
from services.scheduler.core.batch.moving import moves
from services.scheduler.core.batch.views import BatchViews
from services.scheduler.core.policies import known, leases_elsewhere
from services.scheduler.core.policies.order import Order, Situation, Start
from services.scheduler.core.policies.order_multi_factor import order_below
from services.scheduler.core.policies.victims import Choice
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape

KEPT_S: Final = 300.0  # a host that failed starts is tried again sooner; to move it to and fro would gain nothing
STARTS_MAX: Final = 1000  # placements of one decision; the rest follow with the next one, a millisecond later


class BatchCore(BatchViews):
    """The core of batch department `dept`."""

    # 1 did not know what users have used, 2 no checkpoints, leases, qualities and bounds, 3 no moves, 4 no failed starts
    VERSION = 5

    def decide(self, now: float) -> list[f.Fact]:
        if self._rests and now < self.wake_at():
            return []
        self.decided_at = now
        self.look(now)
        found = self._decide(now)
        self._rests = not found
        return found

    def _decide(self, now: float) -> list[f.Fact]:
        if self.custody.state.config is None:
            return []
        closings, notice = self._closings(now), self.notice()
        found: list[f.Fact] = [*closings]
        closing = dict.fromkeys(c.unit for c in closings)
        idle, drained = self._give_up(closing, now) if self.room.cordoned else ([], [])
        found += idle
        if drained:
            found += drained  # the rest follows with the next decision, which sees who is back in the queue
        elif notice:
            self._due, self.book.queue.grew = NEVER, True  # the next pass finds the moment again
            found += self._give_back(notice, closing, now)
        else:
            way, starts = self._moves(now, closing)
            for lease, victims in way.items():
                found += self.endings.made_way(victims, lease, closing)
            for start in starts:
                found += self.endings.made_way(start.victims, start.unit, closing)
                found.append(self._placement(start))
            found += self._useless(now)
            found += self._demand_facts(starts, now)
            found = found or self.balancing.facts(self.policy.balance, now)
        return found[:FACTS_MAX]

    def _useless(self, now: float) -> list[f.HostReleased]:
        """Rule 8."""
        if not self.room.resting:
            return []
        hosts = self.custody.state.hosts
        idle = sorted(n for n, until in self.room.resting.items() if until > now + KEPT_S and not hosts[n].units)
        why = {name: hosts[name].quarantine or "" for name in idle}
        return [f.HostReleased(host=n, reason=because(Code.NOT_NEEDED, quarantine=why[n])) for n in idle]

    def wake_at(self) -> float:
        due = min(self.limits.next_moment(self.decided_at), self.book.next_moment(self.decided_at), self._due)
        due = min(due, self.book.launches.next_due())
        due = min(due, notices.next_due(self.custody, self.dept, self.decided_at))
        if self.book.queue.bookings:
            bookings, settings = self.book.queue.bookings.values(), self.policy.leases
            due = min(due, lease_times.next_moment(bookings, settings, self.decided_at))
        times = [*self.room.cordoned.values()]
        if self.book.queue.where or self.book.queue.bookings:
            times += self.room.resting.values()
            if self.best_effort:
                due = min(due, self.guards.next_moment(self.best_effort, self.decided_at))
        return min([due, *(until for until in times if until > self.decided_at)])

    def rests_until_woken(self) -> bool:
        """True if the last `decide` had nothing to say, and nothing that concerns it has happened since."""
        return self._rests and max(self.decided_at, self.custody.state.at) < self.wake_at()

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def _closings(self, now: float) -> list[f.AttemptClosed]:
        broken = sorted(self.custody.index.broken.get(self.dept, ()), key=sort_key)
        if not (broken or self.cancelling or self.limits.any_due(now)):
            return []
        found = {name: self.endings.broken(name) for name in broken}
        for name in sorted(self.cancelling, key=sort_key):
            if name not in found:
                found[name] = self.endings.close(name, Disposal.CANCELLED, because(Code.CANCELLED))
        for limit in self.limits.overdue(now):
            if limit.unit not in found:
                found[limit.unit] = self.endings.overdue(limit)
        return list(found.values())

    def _give_back(self, count: int, closing: dict[str, None], now: float) -> list[f.Fact]:
        """Rule 2: `count` hosts go back; attempts in `closing` end anyway."""
        held, quota = self.custody.held(self.dept), self.custody.quota(self.dept).hosts
        notice = because(Code.NOTICE, department=self.dept, held=held, quota=quota)
        must = notices.due(self.custody, self.dept, now)
        if must < count:  # a contract's notice: so many may wait for their jobs
            must = max(must, self._due_for_grace(closing, now))
            count = max(must, min(count, self._idle_hosts(closing)))
            if not count:
                return [*self._demand_facts([], now)]
        idle = None if closing else self._idle(count)
        if idle is not None:
            return [f.HostReleased(host=name, reason=notice) for name in idle]
        hosts = reclaim.loads(self.custody, self.dept, closing)
        candidates = self.preempting.on_notice(hosts, now)
        choice, kept_s = known.victims(self.policy.victims)(hosts, candidates, count), self.endings.kept_s
        why = {u: reclaim.why_victim(candidates[u], count, kept_s(u), self.policy.victims) for u in choice.victims}
        return self._hand_back(choice, why, notice)

    def _due_for_grace(self, closing: dict[str, None], now: float) -> int:
        """Hosts that must go back now since those who would be victims have asked for time (`notice`, rule 3)."""
        late_s = max(notices.latenesses(self.custody, self.dept), default=0.0)
        count = notices.due(self.custody, self.dept, now + late_s)
        if not count:
            return 0
        hosts = reclaim.loads(self.custody, self.dept, closing)
        candidates = self.preempting.on_notice(hosts, now)
        victims = known.victims(self.policy.victims)(hosts, candidates, count).victims
        late_s = max((candidates[unit].late_s for unit in victims), default=0.0)
        return notices.due(self.custody, self.dept, now + late_s)

    def _give_up(self, closing: dict[str, None], now: float) -> tuple[list[f.Fact], list[f.Fact]]:
        """Rule 8: the cordoned hosts that go back whatever the quota says: idle ones, and drained ones with those whose end it
        is.  Attempts in `closing` end anyway."""
        hosts, due = self.custody.state.hosts, self.room.cordoned
        on = {name: [u for u in hosts[name].units if u not in closing] for name in sorted(due)}
        idle: list[f.Fact] = [
            f.HostReleased(host=name, reason=because(Code.CORDONED, hosts=[name])) for name in on if not on[name]
        ]
        drained = [name for name in on if on[name] and due[name] <= now]
        if not drained:
            return idle, []
        why = {unit: because(Code.HOST_DRAINED, host=name) for name in drained for unit in on[name]}
        choice = Choice(sorted(why, key=sort_key), drained)
        return idle, self._hand_back(choice, why, because(Code.HOST_DRAINED, host=drained[0]))

    def _hand_back(self, choice: Choice, why: dict[str, Reason], reason: Reason) -> list[f.Fact]:
        """The victims end or move, and their hosts go back.  `why` each of them ends; `reason` of the releases."""
        moves = self._moving(choice)
        closings = {}
        for unit in choice.victims:
            ended = self.endings.preempted(unit, why[unit], saved=self.endings.saved(unit))
            closings[unit] = self.endings.moved(unit, why[unit]) if unit in moves else ended
        placements = {
            unit: self._placement(Start(unit, self.book.shape(unit), hosts, because(Code.MIGRATES)))
            for unit, hosts in moves.items()
        }
        return reclaim.interleave(self.custody, choice, closings, placements, reason)

    def _moving(self, choice: Choice) -> dict[str, tuple[str, ...]]:
        """Which victims go on at once on hosts that stay."""
        wishing = [unit for unit in choice.victims if self.endings.wishes_to_move(unit)] if self.active else []
        return moves(self.custody, self.room, wishing, choice.hosts, self.book.shape) if wishing else {}

    def _idle_hosts(self, closing: dict[str, None]) -> int:
        hosts = reclaim.loads(self.custody, self.dept, closing)
        return sum(1 for host in hosts if not host.units)

    def _idle(self, count: int) -> list[str] | None:
        """`count` idle hosts to give back, those that every order of victims would choose: the first ones by name, those with
        parked VMs last.  None if somebody has to end, or if not all hosts are alike in that (cordoned, in quarantine): then
        the order itself is asked."""
        if self.custody.index.apart or self.custody.held(self.dept) - len(self.room.busy) < count:
            return None
        names = [names for free, names in self.room.classes.items() if free.empty]
        parked = self.custody.index.parked
        if parked:
            return sorted((name for each in names for name in each), key=lambda name: (name in parked, name))[:count]
        return names[0][:count] if len(names) == 1 else list(islice(heapq.merge(*names), count))

    def _moves(self, now: float, closing: dict[str, None]) -> tuple[dict[str, list[str]], list[Start]]:
        """Who makes way now (lease -> attempts), or what starts; with slots, nothing beside `closing`.  A fruitless pass is not
        repeated until something has changed that could bear fruit, or a moment has come (`policies.order`, rules 1 to 3)."""
        room = self.room.rested(self.custody, now)
        queue = self.book.ranked(now, None if self.best_effort else room)  # nothing fits, and somebody may make way
        if not self.active or not (queue.where or queue.bookings):
            self._due = NEVER
            return {}, []
        if closing and queue.bookings:  # theirs may be the room that a slot needs: in a moment it is known to be free
            self._due, queue.grew = NEVER, True
            return {}, []
        order = self.order
        looks_ahead = order.foresees or self.guards.left(now) is not None  # who is gone may leave fewer to end
        news = queue.grew or self.room.grew or (looks_ahead and self._shifted) or now >= self._due
        news = news or (bool(self.best_effort) and self.guards.next_moment(self.best_effort, self._passed_at) <= now)
        if not news and room is self.room:
            return {}, []
        situation = self.situation(now, room)
        clear, self._due = (order.agenda or leases_elsewhere.agenda)(situation)
        way: dict[str, list[str]] = {}
        for unit, lease in clear:
            way.setdefault(lease, []).append(unit)
        starts = [] if way else self._plan(order, situation)
        if queue.budgets is not None:
            booked, rest = [s for s in starts if s.unit in queue.bookings], [s for s in starts if s.unit in queue.where]
            starts = booked + queue.budgets.cut(rest, self.book.owner, self.book.shape)  # accepted ones: not again
        starts = settle(starts, room, self._affinity) if starts else starts
        if not (starts or way):
            queue.grew = self.room.grew = self._shifted = False
            self._passed_at = now
        return way, starts

    def _plan(self, order: Order, situation: Situation) -> list[Start]:
        leases = leases_elsewhere.plan(situation) if order.agenda is None and situation.queue.bookings else []
        return leases or make_way.plan(order, situation, self.preempting.best_effort(situation.now))

    @property
    def order(self) -> Order:
        return known.order(order_below(self.policy))

    def situation(self, now: float, room: Room) -> Situation:
        turns = (self.state.turn, self.state.turn_best_effort)
        return Situation(
            self.book.queue,
            room,
            now,
            STARTS_MAX,
            self.foresee,
            self.policy,
            turns,
            self.preempting.guarded_at(now),
            self._clearing_s,
        )

    @property
    def _affinity(self) -> Unexchanged:
        ahead, policy = self.order.foresees or bool(self.book.queue.bookings), self.policy
        custody, state = self.custody, self.state
        book = self.book
        return Unexchanged(custody, self.dept, policy.warm, book.user, state.warm, book.origin, book.shuns, ahead)

    def _clearing_s(self, name: str) -> float:
        unit, saved = self.custody.state.units[name], self.endings.saved(name)
        later = self.endings.saves_later(name)
        return lease_times.clearing_s(self.custody, unit, self.policy.leases, saved=saved, saves_later=later)

    def _placement(self, start: Start) -> f.UnitPlaced:
        unit, shape = self.custody.state.units[start.unit], start.shape
        return f.UnitPlaced(
            unit=start.unit,
            attempt=unit.attempt + 1,
            hosts=start.hosts,
            cores=shape.cores,
            memory_mb=shape.memory_mb,
            exclusive=shape.exclusive,
            reason=start.reason,
        )

    def _demand_facts(self, starts: list[Start], now: float) -> list[f.DemandChanged]:
        leases = lease_times.hosts_wanted(self.book, self.open, self.capacities, self.policy.leases, now)
        wanted = max(self._wanted(starts), leases) if self.active else 0
        queue = self.book.queue
        prefer = preferred(queue) if self.book.constraints and self.active else ()
        if wanted == self.custody.state.demands.get(self.dept, 0) and prefer == self.state.prefer:
            return []
        pending = len(queue) + len(queue.bookings) - len(starts)
        reason = because(Code.QUEUE, pending=pending, running=len(self.open) + len(starts))
        return [f.DemandChanged(dept=self.dept, hosts=wanted, prefer=prefer, reason=reason)]

    def _wanted(self, starts: list[Start]) -> int:
        """Hosts that the department could use once `starts` are placed."""
        if not starts and self._demand is not None:
            return self._demand
        starting: dict[Shape, int] = {}
        for start in starts:
            starting[start.shape] = starting.get(start.shape, 0) + 1
        busy = self.room.busy
        apart = sum(1 for name in self.room.cordoned if name in busy)  # used beside what is divided
        more = {name: None for start in starts for name in start.hosts if name not in busy}
        idle = {c: sum(n not in more for n in names) for c, names in self.room.classes.items() if c.empty}
        wanted = hosts_wanted(self.book.queue, self.capacities, len(busy) - apart + len(more), starting, idle)
        if self.order.hosts is not None:
            ask = self.order.hosts(self.situation(0.0, self.room), list(self.capacities.counts))
            wanted = max(wanted, min(ask, len(self.capacities.of_host)))
        wanted += apart
        if not starts:
            self._demand = wanted
        return wanted

    def check(self) -> list[str]:
        """The views say what custody and state say; nobody waits who is over (`batch.check`)."""
        dump, fresh, later = self.dump(), BatchCore(self.custody, self.dept), BatchCore(self.custody, self.dept)
        fresh.load(dump)
        later.load(dump)
        return check(self, fresh, later)
