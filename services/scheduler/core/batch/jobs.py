"""The jobs of a batch department: their places in the queue, the dependencies between them, and how ended ones ended.

Theory of operation
  After custody has folded a fact about a job, this module reads the unit's state from custody, and updates `State` and the
  queue.  The queue and `dependents` are views, derived from custody and `State`.

Rules
  1. Eligible (in the queue): pending, not held, no dependency left, no wait after failed starts (`launches`).
  2. A job enters when it is submitted, an array's elements in the order of their indices.  A unit that is preempted, or loses
     its host, keeps its place (unless the department has `requeue_place = "end"`, as in the papers): it has waited its turn
     once.  One that failed, or whose VMs did, enters again at the end, so that it does not block the others.  A suspended one
     always keeps its place: its saved work is of no use while it waits.  So does one whose attempt ended before it began
     (`launches`): it has not run yet.
  3. A suspended unit's walltime continues where it stopped: what it has used is deducted from its next attempt.  A unit that
     starts over has all of it again.
  4. A job with a dependency keeps all its units back; once met, a dependency is forgotten (`dependencies`, rule 4).
  5. The service that was placed last, of production and of best-effort, is remembered for orders that take services in turn.
  6. A job declared short is no longer treated as short once one of its attempts ran longer than the department's `short_s`.
  7. A lease with a time slot is in the queue's bookings instead.  It ends when its slot does, whenever it began; its length may
     change while it runs.
  8. A job ages, for orders that count age, since it was submitted, its last dependency was met, or a person released it.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import TAKEN, Cause
from schemas.config import BatchPolicy
from schemas.ids import ELEMENT, job_of
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.checkpoints import Checkpoints, ran_for
from services.scheduler.core.batch.dependencies import verdict
from services.scheduler.core.batch.faults import UNRELIABLE, is_fault
from services.scheduler.core.batch.launches import SLOT_WAIT_MAX_S, WAIT_MAX_S, Launches, is_launch_failure
from services.scheduler.core.batch.priority import Priorities
from services.scheduler.core.batch.state import ENDED_MAX, WHOLE, Again, Job, State, job_from
from services.scheduler.core.policies.preemption_costs import resume_s
from services.scheduler.core.state.budgets import NOBODY, Budgets, Owner
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Booking, Kind, Place, Shape


class Jobs:
    def __init__(self, custody: Custody, dept: str, state: State) -> None:
        self.custody, self.dept, self.state = custody, dept, state
        self.queue = Queue(self.length_s, self._budgets())
        self.priorities = Priorities(custody, dept, state, self.job)
        self.priorities.look(custody.state.at)
        self.aging = self.priorities.ages
        self.checkpoints = Checkpoints(custody, state)
        self.launches = Launches(custody, state)
        self.at = custody.state.at  # waits after failed starts that end by then are over
        self.dependents: dict[str, dict[str, None]] = {}  # job or element -> jobs that wait for it
        self.constraints: dict[str, int] = {}  # that jobs have -> how many jobs
        self.constrained_anew = False  # there is one more of them, or one less, since the flag was last taken down
        for name, job in state.jobs.items():
            self._count(job, 1)
            self._note_dependencies(name, job)
            for unit in job.units(name):
                self.refresh(unit)

    def has(self, unit: str) -> bool:
        """True if `unit` is of a job of this department that has not ended."""
        return job_of(unit) in self.state.jobs

    def job(self, unit: str) -> Job:
        return self.state.jobs[unit.partition("_")[0]]  # `job_of` without the call: asked several times for each fact

    def said(self, unit: str) -> Kind:
        """Whose the unit is, and whether it was declared short, believed or not."""
        job = self.job(unit)
        return Kind(job.service, job.best_effort, job.short, job.is_local)

    def length_s(self, unit: str) -> float:
        """How long the unit's next or present attempt may run: what is left of its walltime, in seconds."""
        return max(0.0, self.job(unit).walltime_s - self.used_s(unit))

    def slot_ends_at(self, unit: str) -> float:
        """When the unit's time slot ends; NEVER if it has none."""
        job = self.job(unit)
        return job.lease.start_at + job.walltime_s if job.lease is not None and job.lease.local else NEVER

    def ends_at(self, unit: str, since: float) -> float:
        """When the unit's attempt that began at `since` ends at the latest; if it has yet to be resumed, that much later."""
        slot = self.slot_ends_at(unit)
        return since + self.length_s(unit) + self._resuming_s(unit) if slot == NEVER else slot

    def _resuming_s(self, unit: str) -> float:
        """How long it takes until the placed unit resumes its work, where orders count that (`order_leases`)."""
        known = self.custody.state.units[unit]
        if known.began_at is not None or not self.used_s(unit):
            return 0.0
        policy = self._policy()
        return resume_s(known.nodes, known.size.memory_mb, policy.leases) if policy.order == "leases" else 0.0

    def waited_s(self, unit: str, since: float) -> float:
        """For how long the unit had waited when its attempt began at `since`, in seconds."""
        return max(0.0, since - self.job(unit).since - self.used_s(unit))

    def used_s(self, unit: str) -> float:
        """Run time of the unit's suspended attempts that its next one continues, in seconds."""
        again = self.state.again.get(unit)
        return 0.0 if again is None else again.used_s

    def owner(self, unit: str) -> Owner:
        """The unit's owner, as far as limits distinguish owners."""
        budgets, job = self.queue.budgets, self.job(unit)
        return NOBODY if budgets is None else budgets.owner(job.user, job.quality)

    def user(self, unit: str) -> str:
        return self.job(unit).user

    def shuns(self, unit: str) -> tuple[str, ...]:
        """Hosts where the unit's last attempt ended without a report, or where attempts failed to begin since one last did:
        another host is more likely to work.  The earliest failure first."""
        again = self.state.again.get(unit)
        return () if again is None else tuple(dict.fromkeys((*again.failed_on, *again.shuns)))

    def origin(self, unit: str) -> tuple[str, ...]:
        """Hosts where the unit was suspended, rank by rank, if it is to be resumed; else none."""
        return self.state.again[unit].origin if self.custody.state.units[unit].suspended else ()

    def shape(self, unit: str) -> Shape:
        return self.job(unit).shape

    def place(self, unit: str) -> Place:
        """The unit's place in the queue, also while it is not eligible."""
        job, again = self.job(unit), self.state.again.get(unit)
        element = ELEMENT.match(unit) if job.array else None
        first = job.entered + (int(element[2]) if element else 0)
        return Place(self.priorities.rank(unit), first if again is None else again.entered, unit)

    # ------------------------------------------------------------------------------------------------------- following

    def submitted(self, fact: f.JobSubmitted) -> None:
        job = self.state.jobs[fact.job] = job_from(fact, self.state.entries)
        self.state.entries += max(fact.array, default=0) + 1
        job.since = self.custody.state.at
        self._count(job, 1)
        if job.after:
            self._note_dependencies(fact.job, job)
            self._look_again(fact.job)
        else:
            for unit in job.units(fact.job):
                self.refresh(unit)

    def refresh(self, unit: str) -> None:
        """Put the unit into the queue if it is eligible, take it out if it is not."""
        known, job = self.custody.state.units.get(unit), self.job(unit)
        eligible = known is not None and known.state == "pending" and not known.held and not job.after
        if self.launches.must_wait(unit, self.at, eligible=eligible):
            eligible = False
        if eligible and job.lease is not None and job.lease.local:
            if unit not in self.queue.bookings:
                place, ends_at = self.place(unit), self.slot_ends_at(unit)
                self.queue.book(Booking(job.lease.start_at, place.entered, unit, ends_at, job.shape))
        elif eligible and unit not in self.queue.where:
            self.queue.add(self.place(unit), job.shape, job.throttle, job.kind, self.owner(unit))
            assert known is not None
            if known.suspended and job.best_effort:
                self.queue.suspended[unit] = self.state.again[unit].origin
        elif not eligible:
            self.queue.remove(unit)

    def look(self, now: float) -> bool:
        """Time passes: units that have waited long enough after failed starts are eligible again.  True if there are any."""
        self.at = max(self.at, now)
        due = self.launches.due(self.at) if self.launches.waiting else ()
        for unit in due:
            self.refresh(unit)
        return bool(due)

    def starts_resumed(self) -> None:
        """No start is paused any more."""
        for unit in self.launches.resumed():
            self.refresh(unit)

    def extended(self, unit: str, walltime_s: float) -> None:
        """Rule 7: it lasts so long in all."""
        waits = unit in self.queue.where or unit in self.queue.bookings
        self.queue.remove(unit)
        self.job(unit).walltime_s = walltime_s
        if waits:
            self.refresh(unit)

    def ranked(self, now: float, room: Room | None = None) -> Queue:
        """The queue in the order of `now` (`priority`): time changes it only where jobs age, and with `room` it stays as it is
        if nothing fits."""
        if not self.aging:
            return self.queue
        matters = self.priorities.stale(now) and (room is None or any(room.fits(key.shape) for key in self.queue.lanes))
        if matters and self.priorities.look(now):
            self.queue.rank_again(self.priorities.ranks)
        return self.queue

    def held(self, name: str) -> None:
        """A person holds the unit."""
        self.refresh(name)

    def resumed(self, name: str) -> None:
        """A person releases the unit: only then does it begin to age.  A running unit keeps its age."""
        job = self.job(name)
        unit = self.custody.state.units.get(name)
        waits = unit is not None and unit.state == "pending" and name not in self.queue.where
        if not job.array and waits:
            job.since = self.custody.state.at
        self.launches.forget(name)
        self.refresh(name)

    def next_moment(self, decided_at: float) -> float:
        """When the queue may be in another order, if nothing happens."""
        return self.priorities.next_moment(decided_at, (self.job(unit) for unit in self.queue.where))

    def opened(self, unit: str, by: int, hosts: tuple[str, ...] = ()) -> None:
        """`by` (1 or -1) more open attempts of the unit.  `hosts`: of one that is over."""
        if hosts:
            self.priorities.over(unit, hosts)
        job, budgets = self.job(unit), self.queue.budgets
        if job.throttle:
            self.queue.opened(job_of(unit), by)
        if budgets is not None:
            budgets.opened(self.owner(unit), job.shape, by)
            self.queue.grew = True

    def configured(self, opened: Iterable[str]) -> None:
        """The configuration is another one.  `opened`: units with an open attempt."""
        self.aging = self.priorities.ages  # then the next decision takes in its moment
        anew = not self.aging and self.priorities.look(self.custody.state.at)
        old, new = self.queue.budgets, self._budgets()
        if old is None and new is None and not anew:
            return
        names, running = [*self.queue.where, *self.queue.bookings], self.queue.running
        self.queue = Queue(self.length_s, new)
        self.queue.running = running
        if new is not None:
            for unit in opened:
                new.opened(self.owner(unit), self.job(unit).shape, 1)
        for unit in names:
            self.refresh(unit)

    def _policy(self) -> BatchPolicy:
        department = self.custody.department(self.dept)
        return (department.batch if department else None) or BatchPolicy()

    def _budgets(self) -> Budgets | None:
        return Budgets.of(self.custody.department(self.dept))

    def began(self, unit: str) -> None:
        self.checkpoints.began(unit)
        self.launches.began(unit, self.custody.state.units[unit].hosts)
        job = self.job(unit)
        if unit not in job.begun:
            job.begun[unit] = None
            self._tell(unit)

    def checkpointed(self, fact: f.CheckpointReported) -> None:
        """What the unit has done until now is safe (`checkpoints`)."""
        self.checkpoints.reported(fact)

    def placed(self, unit: str) -> None:
        """Rule 5."""
        job = self.job(unit)
        if job.best_effort:
            self.state.turn_best_effort = job.service
        else:
            self.state.turn = job.service

    def over(self, unit: str, closed: f.AttemptClosed | None, hosts: tuple[str, ...] = ()) -> None:
        """The unit's attempt is over, or the unit was cancelled while pending.  `closed`: by this department;
        `hosts`: where the attempt was."""
        known = self.custody.state.units[unit]
        self._hold_to_its_word(unit, known)
        if known.state == "final":
            self.queue.remove(unit)
            self._end(unit, known.final in ("completed", "stopped"))  # a lease whose time is over ended as it should
            return
        again = self.state.again.setdefault(unit, Again(entered=self.place(unit).entered))
        before, cause = again.cause, None if closed is None else closed.cause
        if closed is not None:
            again.why, again.cause = closed.why, cause
        again.shuns = hosts if cause in UNRELIABLE else ()
        again.preempted += cause in TAKEN
        again.moved += cause is Cause.MOVED
        if known.suspended:
            again.suspends, again.origin, again.ran_s = again.suspends + 1, hosts, 0.0  # its life is not over
            again.used_s += ran_for(known, self.custody.state.at)
        else:
            again.ran_s = again.used_s + ran_for(known, self.custody.state.at)
            if cause is Cause.NOT_SAVED and before is not Cause.MOVED:
                again.suspends -= 1  # it was a requeue after all, and is reported as one
            if cause is not None and is_launch_failure(known, cause):
                again.used_s = 0.0
                self.launches.failed(unit, hosts, cause, SLOT_WAIT_MAX_S if self.job(unit).is_local else WAIT_MAX_S)
            else:
                self._enter_again(again, cause)
        self.refresh(unit)

    def unsaved(self, unit: str) -> None:
        """The unit waits to be resumed, and what it saved is lost: it starts over."""
        again = self.state.again[unit]
        again.ran_s = again.used_s
        again.suspends -= 1  # it was a requeue after all
        self.queue.remove(unit)
        self._enter_again(again, Cause.NOT_SAVED)
        again.why, again.cause = because.NotSaved(), Cause.NOT_SAVED
        self.refresh(unit)

    def _hold_to_its_word(self, unit: str, known: Unit) -> None:
        """Rule 6."""
        job = self.job(unit)
        if not job.kind.declared or known.began_at is None or known.ended_at is None:
            return
        if known.ended_at - known.began_at > self._policy().short_s:
            waiting = [name for name in job.units(job_of(unit)) if name in self.queue.where]
            for name in waiting:
                self.queue.remove(name)
            job.overran = True
            for name in waiting:
                self.refresh(name)

    def _enter_again(self, again: Again, cause: Cause | None) -> None:
        """Rule 2; from the beginning of its work, or from its last checkpoint."""
        again.used_s = 0.0
        if cause is None or is_fault(cause) or self._policy().requeue_place == "end":
            again.entered = self.state.entries
            self.state.entries += 1
        if cause is not None and is_fault(cause):
            again.faults += 1
        elif cause is not None:
            again.requeues += 1

    def closed(self) -> None:
        """The department is closed: custody has ended every unit."""
        units = self.custody.state.units
        for name in list(self.state.jobs):
            job = self.state.jobs[name]
            unfinished = {unit: None for unit in job.units(name) if unit in units and units[unit].final != "completed"}
            job.bad.update(unfinished)
            self._end_job(name)
        self.state.again.clear()
        self.launches = Launches(self.custody, self.state)
        self.state.refused.clear()
        self.state.checkpoints.clear()
        self.queue, self.dependents = Queue(self.length_s, self.queue.budgets), {}

    def _end(self, unit: str, completed: bool) -> None:
        job = self.job(unit)
        self.launches.forget(unit)
        self.state.again.pop(unit, None)
        self.state.refused.pop(unit, None)
        self.checkpoints.forget(unit)
        job.begun.pop(unit, None)
        job.left -= 1
        if not completed:
            job.bad[unit] = None
        if job.left == 0:
            self._end_job(job_of(unit))
        self._tell(unit)

    def _end_job(self, name: str) -> None:
        """With its last unit a job is remembered by how it ended alone."""
        job = self.state.jobs.pop(name)
        self._count(job, -1)
        self._forget_dependencies(name, job)
        elements = [ELEMENT.match(unit) for unit in job.bad]
        self.state.ended[name] = sorted(int(e[2]) if e else WHOLE for e in elements)
        if len(self.state.ended) > ENDED_MAX:
            del self.state.ended[next(iter(self.state.ended))]

    def _count(self, job: Job, by: int) -> None:
        """`by` (1 or -1) more jobs with this one's constraint."""
        if job.constraint:
            before = self.constraints.get(job.constraint, 0)
            self.constraints[job.constraint] = before + by
            if not before + by:
                del self.constraints[job.constraint]
            self.constrained_anew = self.constrained_anew or not before or not before + by

    # ---------------------------------------------------------------------------------------------------- dependencies

    def _note_dependencies(self, name: str, job: Job) -> None:
        for dependency in job.after:
            self.dependents.setdefault(dependency.job, {})[name] = None

    def _forget_dependencies(self, name: str, job: Job) -> None:
        for dependency in job.after:
            waiting = self.dependents.get(dependency.job, {})
            waiting.pop(name, None)
            if not waiting:
                self.dependents.pop(dependency.job, None)

    def _tell(self, unit: str) -> None:
        """Something about `unit` changed: those who wait for it, or for its whole job, look again."""
        name = job_of(unit)
        job = self.state.jobs.get(name)
        if job is None or len(job.begun) == job.left:  # no verdict on a whole job changes to "met" before that
            self._wake(name)
        if unit != name:
            self._wake(unit)

    def _wake(self, name: str) -> None:
        for waiting in list(self.dependents.get(name, ())):
            self._look_again(waiting)

    def _look_again(self, name: str) -> None:
        job = self.state.jobs[name]
        if all(verdict(d, self.state, self.custody) == "met" for d in job.after):
            self._forget_dependencies(name, job)
            job.after, job.since = (), self.custody.state.at
            for unit in job.units(name):
                self.refresh(unit)
