"""When a job that waits will start, and how sure that is: the batch core itself, run forward on a copy of what it knows.

Theory of operation
  A copy of custody and core is given what would come: attempts begin as soon as they are placed and end with their time limits,
  and between two such moments the core decides as it always does.  So whatever order, limits, dependencies and leases there
  are, the forecast follows them: they are not written down a second time.  Nothing is asked of the clock, and nothing is
  written: the copy is thrown away.  A service makes the copy (12 ms with 10,000 jobs) and leaves the rest to a thread.

Rules
  1. Nothing comes: no job, no claim of web, no host.  The hosts are those that the department holds and may keep; on notice the
     copy gives its hosts back.  Attempts that end complete: a job that waits for another's success is taken to get it
     (`after`).
  2. `planned`: the order keeps room for it (its reservation), or its time slot was agreed: units behind it do not delay it.
     The moment is the order's own, as `lookahead.why` reports it.  Units before it do delay it: if another may still come there
     (a job that waits for another one, an array's next element) it is not planned.  With `conservative` an end that comes early
     can move it too, as that module says; with the others it cannot.
  3. `by_walltimes`: it starts then if rule 1 holds and each job runs to its limit.  As most end sooner it is mostly sooner, but
     that is no promise: an end that comes early can let another job in before it (a known anomaly of list scheduling).
  4. `cannot_say`: what keeps it from starting whatever ends, or that more has to end than is looked at (`STEPS_MAX`).
  5. The time that machines take to boot and to end is not in it; but the grace that a preempted job asked for is: the unit that
     gets its hosts begins when it is over.
  6. Ends come before decisions of the same moment (as in `phoenix.simulate.cluster`), so no attempt is ended for a limit that
     it just keeps.
  7. An attempt that is placed and has not begun is taken to begin now.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Department, WebPolicy
from schemas.reasons import Reason
from schemas.start_estimate import Foreseen, Sure
from schemas.times import exact
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.sharing.lending import bounds
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import Reserved
from services.scheduler.core.state.shape import Place
from services.scheduler.lookahead import why as batch_why
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.snapshot import Snapshot

# moments looked at: some thousand ends; with 1,000 hosts and 10,000 jobs that is about a second
STEPS_MAX: Final = 2_000
HOST_STEPS_MAX: Final = 4_000  # … times hosts held, where a decision costs half a millisecond a host (`conservative`)
CONFIRMED_MIN: Final = 40  # with fewer moments to look at, reservations stand as the order gives them
FIRST: Final = 50  # units of the queue that are looked at when none is named: more than one screen shows
EPSILON_S: Final = 1e-6  # of float sums of one and the same time limit


class Copied(NamedTuple):
    """What a batch core and its custody know, as bytes: nothing that changes, so another thread may work on it."""

    department: str
    custody: bytes
    core: bytes


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """When a unit starts.  `start_at`: UTC seconds, None if that is unknown; `hosts`: where, as far as that is known; `sure`:
    how sure it is; `because`: what it depends on."""

    start_at: float | None
    hosts: tuple[str, ...] = ()
    sure: Sure
    because: Reason

    def told(self) -> Foreseen:
        """As answers have it."""
        at = None if self.start_at is None else exact(self.start_at)
        return Foreseen(start_at=at, hosts=self.hosts, sure=self.sure, because=self.because)


def copied(core: BatchCore) -> Copied:
    return Copied(core.dept, core.custody.dump(), core.dump())


def core_of(known: Copied) -> BatchCore:
    """The same core with a custody of its own: what happens to one does not happen to the other."""
    custody = Custody()
    custody.load(known.custody)
    twin = BatchCore(custody, known.department)
    twin.load(known.core)
    return twin


def foresee(
    core: BatchCore | Copied, now: float, units: Sequence[str] | None = None, more: Iterable[f.Fact] = ()
) -> dict[str, Start]:
    """When these units start; None: the first `FIRST` of the queue, and all that wait for a time slot.  Only pending ones are
    in the answer.  `more`: facts that are folded into the copy before, such as a job that has not been submitted."""
    return _Ahead(core_of(core if isinstance(core, Copied) else copied(core)), now, units, more).found()


class _Started(NamedTuple):
    """A unit's start in the copy; `ends`: attempts that had ended by then."""

    at: float
    hosts: tuple[str, ...]
    ends: int


class _Ahead:
    """The copy, and how far it has gone."""

    def __init__(self, core: BatchCore, now: float, units: Sequence[str] | None, more: Iterable[f.Fact]) -> None:
        self.core, self.custody = core, core.custody
        self.now = self.at = max(now, self.custody.state.at)
        self._ends: list[tuple[float, str, int]] = []  # when live attempts end: time, unit, attempt
        self._ended = self._steps = 0
        self._starts: dict[str, _Started] = {}
        self._clear: dict[
            str, float
        ] = {}  # host -> when the attempt that was ended there is gone at the latest, by a grace of its own
        self._begins: list[tuple[float, str, int]] = []  # when attempts begin that wait for that: time, unit, attempt
        self._tell(more, "admission")
        self._last = LastPass()
        self.units = self._asked(units)  # what follows is as it was before anything has moved
        self._kept, self._held = self._promised(), self.custody.held(self.core.dept)
        self._known = {unit: word for unit in self.units if (word := self._at_once(unit)) is not None}
        self._after = {unit: [d.job for d in self.core.view.jobs.job(unit).after] for unit in self.units}
        self._most = _steps_max(self.core, self._held)
        named = [unit for unit, place in self._kept.items() if place.hosts] if self._most < CONFIRMED_MIN else []
        self._left = dict.fromkeys(unit for unit in self.units if unit not in self._known and unit not in named)
        for name in list(self.custody.index.open.get(self.core.dept, ())):
            self._begin(name)
        while self._left and self._steps < self._most and self._step():
            self._steps += 1

    def _step(self) -> bool:
        """One decision, or else one moment further; False if nothing happens any more."""
        facts = self.core.decide(self.at)
        for fact in facts:
            if isinstance(fact, f.AttemptClosed):
                self._ending(fact)
        self._tell(facts, f"scheduler.{self.core.dept}")
        for fact in facts:
            if isinstance(fact, f.UnitPlaced):
                self._placed(fact)
        return bool(facts) or self._go_on()

    def found(self) -> dict[str, Start]:
        return {unit: self._word(unit) for unit in self.units}

    # ------------------------------------------------------------------------------------------------------- the copy

    def _tell(self, facts: Iterable[f.Fact], writer: str) -> None:
        custody = self.custody
        position = custody.state.position + 1
        for index, fact in enumerate(facts):
            void = fold_fact(custody, fact, position, index, writer, self.at)
            broken, unsaved = tuple(custody.newly_broken), tuple(custody.newly_unsaved)
            at = custody.state.at
            meta = Meta(position=position, index=index, writer=writer, at=at, void=void, broken=broken, unsaved=unsaved)
            self.core.apply(fact, meta)

    def _begin(self, name: str) -> None:
        """Rule 7; and when it ends."""
        unit = self.custody.state.units[name]
        if not (unit.live and self.core.view.jobs.has(name)):
            return
        if unit.began_at is None:
            self._tell([f.AttemptBegan(unit=name, attempt=unit.attempt)], "admission")
        since = unit.began_at if unit.began_at is not None else self.at
        heapq.heappush(self._ends, (self.core.view.jobs.ends_at(name, since), name, unit.attempt))

    def _ending(self, fact: f.AttemptClosed) -> None:
        """Rule 5: until when its hosts are not clear.  `fact` is not folded yet."""
        unit = self.custody.state.units[fact.unit]
        if unit.grace_s is not None and fact.disposal not in (f.Disposal.SUSPEND, f.Disposal.MIGRATE):
            by = self.at + grace.of_unit(self.custody, unit)
            self._clear |= {host: max(by, self._clear.get(host, by)) for host in unit.hosts}

    def _placed(self, fact: f.UnitPlaced) -> None:
        at = max([self.at, *(self._clear[host] for host in fact.hosts if host in self._clear)])
        self._starts.setdefault(fact.unit, _Started(at, fact.hosts, self._ended))
        self._left.pop(fact.unit, None)
        if at > self.at:
            heapq.heappush(self._begins, (at, fact.unit, fact.attempt))
        else:
            self._begin(fact.unit)

    def _go_on(self) -> bool:
        """To the next moment at which something happens."""
        while self._ends and not self.custody.live(self._ends[0][1], self._ends[0][2]):
            heapq.heappop(self._ends)
        due = min(self._ends[0][0] if self._ends else NEVER, self.core.wake_at())
        due = min(due, self._begins[0][0]) if self._begins else due
        if due == NEVER:
            return False
        self.at = max(self.at, due)
        while self._begins and self._begins[0][0] <= self.at:
            _, name, attempt = heapq.heappop(self._begins)
            if self.custody.live(name, attempt):
                self._begin(name)
        over: list[f.Fact] = []
        while self._ends and self._ends[0][0] <= self.at + EPSILON_S:
            _, name, attempt = heapq.heappop(self._ends)
            if self.custody.live(name, attempt):
                over.append(f.AttemptReported(unit=name, attempt=attempt, exit=0))
        self._ended += len(over)
        self._tell(over, "admission")
        return True

    # ---------------------------------------------------------------------------------------------------------- answers

    def _asked(self, units: Sequence[str] | None) -> list[str]:
        known, queue = self.custody.state.units, self.core.view.jobs.ranked(self.now)
        if units is None:
            return [*queue.bookings, *(place.unit for place in queue.first(FIRST))]
        mine = [unit for unit in dict.fromkeys(units) if unit in known and known[unit].dept == self.core.dept]
        return [unit for unit in mine if known[unit].state == "pending" and self.core.view.jobs.has(unit)]

    def _promised(self) -> dict[str, Reserved]:
        """Room that is kept, for units before which no other can come (rule 2)."""
        book, found = self.core.view.jobs, kept(self.core, self.now)
        first = _next_to_come(self.core) if found else None
        return {
            unit: place
            for unit in self.units
            if (place := found.get(unit)) is not None and (first is None or book.place(unit) < first)
        }

    def _at_once(self, unit: str) -> Start | None:
        """What can be said without looking ahead: a time slot that was agreed, and what no end of another job changes."""
        core, booking = self.core, self.core.view.jobs.queue.bookings.get(unit)
        if booking is not None and booking.start_at >= self.now:
            why = batch_why.why_slot(Snapshot(core, self.now, self._last), booking)
            at, sure = (booking.start_at, Sure.PLANNED) if core.view.order.keeps_slots else (None, Sure.CANNOT_SAY)
            return Start(start_at=at, sure=sure, because=why)
        told = batch_why.before_hosts(core, unit, self.now)
        never = next((each for each in told if isinstance(each, (because.Held, *batch_why.NEVER_STARTS))), None)
        return None if never is None else Start(start_at=None, sure=Sure.CANNOT_SAY, because=never)

    def _word(self, unit: str) -> Start:
        if unit in self._known:
            return self._known[unit]
        start, place = self._starts.get(unit), self._kept.get(unit)
        if place is not None and (start is None or start.at <= place.at + EPSILON_S):
            kept, hosts = because.Reserved(claimable=self._may_be_claimed()), start.hosts if start else place.hosts
            return Start(start_at=place.at, hosts=hosts, sure=Sure.PLANNED, because=kept)
        if start is None:
            return Start(start_at=None, sure=Sure.CANNOT_SAY, because=self._why_not(unit))
        after = self._after[unit]
        told = because.ByWalltimes(ends=start.ends, after=after, claimable=self._may_be_claimed())
        return Start(start_at=start.at, hosts=start.hosts, sure=Sure.BY_WALLTIMES, because=told)

    def _why_not(self, unit: str) -> Reason:
        """It has not started in the copy: how far was looked, or what is short when all has ended."""
        if self._steps >= self._most:
            return because.TooFar(ends=self._ended, ahead_s=round(self.at - self.now))
        told = batch_why.why(self.core, unit, self.at, self._last)
        return told[0] if told else because.WaitsForHosts()

    def _may_be_claimed(self) -> int | None:
        """How many of the department's hosts web may claim: those beyond its guarantee, and no more than web can use yet."""
        config = self.custody.state.config
        mine = config.department(self.core.dept) if config is not None else None
        if config is None or mine is None or all(each.kind != "web" for each in config.departments):
            return None
        beyond = min(self._held - bounds(mine, self.now)[0], sum(map(self._may_grow, config.departments)))
        return beyond if beyond > 0 else None

    def _may_grow(self, department: Department) -> int:
        """By how many hosts a web department may come to hold more than now; 0 of a batch department."""
        if department.kind != "web":
            return 0
        policy = department.web or WebPolicy()
        hosts = -(-policy.instances_max // policy.instances_per_host)
        most = bounds(department, self.now)[1]
        return max(0, (hosts if most is None else min(hosts, most)) - self.custody.held(department.name))


def kept(core: BatchCore, now: float) -> dict[str, Reserved]:
    """The units for which the order keeps room, and when each starts at the latest (`Plan.reservations`).  A moment that has
    passed is no promise: attempts are still there beyond the expected end."""
    plan = core.start.last_pass(now)
    whole = plan.rest(now) if plan.rest is not None else plan
    return {each.unit: each for each in whole.reservations if now <= each.at < NEVER}


def _next_to_come(core: BatchCore) -> Place | None:
    """The first one in the order of the queue that waits for something other than room, and will come in its place."""
    book, queue = core.view.jobs, core.view.jobs.queue
    waits = [name for name, job in core.state.jobs.items() if job.after]
    places = [book.place(unit) for name in waits for unit in core.state.jobs[name].units(name)[:1]]
    places += [lane[queue.allowance(lane)] for lane in queue.lanes.values() if queue.allowance(lane) < len(lane)]
    return min(places, default=None)


def _steps_max(core: BatchCore, held: int) -> int:
    """An order that plans for every unit at each moment looks at each host for each of them."""
    return STEPS_MAX if not core.view.order.reserves_for_all else min(STEPS_MAX, HOST_STEPS_MAX // max(1, held))
