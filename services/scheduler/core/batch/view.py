"""What the stages of one batch department read: its settings, its jobs and queue, room on hosts, limits, who runs.

Rules
  1. Each view is made from custody and the core's `State`, and holds nothing that these do not say (`batch.check` compares).
     The core keeps them in step with each fact; stages change none of them, but for the flags `queue.grew` and `room.grew`,
     which the pass over the queue takes down (`start_jobs`).
  2. The settings are those of the configuration that was adopted last (`adopt`).
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.config import BatchPolicy
from services.domain import grace
from services.domain.custody.custody import Custody
from services.domain.saving import save_s
from services.scheduler.core.batch import lease_times
from services.scheduler.core.batch.dispositions import Dispositions
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.preemption import Guards, Preemption
from services.scheduler.core.batch.state import State
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.order import Order, Situation, Start, nobody
from services.scheduler.core.policies.order_multi_factor import order_below
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.room import Room

STARTS_MAX: Final = 1000  # placements of one decision; the rest follow with the next one, a millisecond later


class View:
    """`policy`: the department's settings; `active`: it is configured as a batch department, and not closed; `open`: units with
    an open attempt, and its hosts; `cancelling`, `best_effort`: those of them that are."""

    policy: BatchPolicy
    active: bool

    def __init__(self, custody: Custody, dept: str, state: State) -> None:
        self.custody, self.dept, self.state = custody, dept, state
        self._order_of: tuple[BatchPolicy, Order] | None = None  # of those settings
        self.adopt()
        self.jobs = Jobs(custody, dept, state)
        self.room = Room.of(custody, dept, tuple(sorted(self.jobs.constraints)))
        self.capacities = Capacities.of(custody)
        self.limits = Limits(
            *(custody, self.jobs.length_s, lambda: self.policy.boot_timeout_s, self.jobs.slot_ends_at),
            save_s=lambda: save_s(custody.state.config, dept),
            grace_s=lambda: grace.longest_s(custody.state.config, dept),
        )
        self.dispositions = Dispositions(custody, self.jobs, lambda: self.policy)
        self.guards = Guards(custody, state, lambda: self.policy)
        self.open: dict[str, tuple[str, ...]] = {}
        self.cancelling: dict[str, None] = {}
        self.best_effort: dict[str, None] = {}
        self.preemption = Preemption(custody, self.jobs, self.dispositions, self.guards, self.best_effort)
        for name in custody.index.open.get(dept, ()):
            if self.jobs.has(name):  # not so while a snapshot is being loaded: custody comes first
                self.note_open(name)
        self.limits.rebuild(self.open)
        self._forecast: Forecast | None = None  # made when an order asks for it

    def adopt(self) -> None:
        """Another configuration is in force, or the department is closed."""
        config, closed = self.custody.state.config, self.dept in self.custody.state.closed
        department = config.department(self.dept) if config else None
        self.policy = (department.batch if department else None) or BatchPolicy()
        self.active = department is not None and department.kind == "batch" and not closed
        self._forecast = None  # the order may be another one that needs none

    # ------------------------------------------------------------------------------------------------------- following

    def note_open(self, name: str) -> None:
        """The unit has an open attempt."""
        unit = self.custody.state.units[name]
        self.open[name] = unit.hosts
        if unit.cancelled:
            self.cancelling[name] = None
        if self.jobs.job(name).best_effort:
            self.best_effort[name] = None
        self.jobs.opened(name, 1)

    def no_longer_open(self, name: str) -> tuple[str, ...]:
        """The unit's attempt is over.  Returns its hosts."""
        hosts = self.open.pop(name, ())
        if hosts:
            self.cancelling.pop(name, None)
            self.best_effort.pop(name, None)
            self.limits.closed(name)
            self.jobs.opened(name, -1, hosts)
        return hosts

    def hosts_changed(self, hosts: tuple[str, ...]) -> None:
        self.room.update(self.custody, self.dept, hosts)
        if self._forecast is not None:
            for name in hosts:
                self._forecast.host_changed(name)

    def end_changed(self, unit: str) -> None:
        """The expected end of the unit's attempt may be another one."""
        if self._forecast is not None:
            self._forecast.unit_changed(unit)

    def constrain(self) -> None:
        """Jobs may have other constraints than before: then hosts fall into other classes."""
        constraints, self.jobs.constrained_anew = tuple(sorted(self.jobs.constraints)), False
        if constraints != self.room.constraints:
            self.room.constrain(self.custody, self.dept, constraints)
            self._forecast = None

    # --------------------------------------------------------------------------------------------------------- reading

    @property
    def order(self) -> Order:
        """Of the queue.  Looked up when it is first asked for: a fold must not need a plug-in."""
        if self._order_of is None or self._order_of[0] is not self.policy:
            self._order_of = self.policy, registry.order(order_below(self.policy))
        return self._order_of[1]

    @property
    def foresaw(self) -> bool:
        """True if the forecast has been asked for."""
        return self._forecast is not None

    def foresee(self) -> Forecast:
        """Live attempts with their hosts and expected ends; worked out when first asked for, then kept up to date."""
        if self._forecast is None:
            jobs = self.jobs
            self._forecast = Forecast(
                self.custody, self.dept, jobs.ends_at, self.open, jobs.said, jobs.waited_s, self.room.serves
            )
        return self._forecast

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quota = self.custody.state.quotas.get(self.dept)
        return 0 if quota is None else max(0, len(self.custody.index.held.get(self.dept, ())) - quota.hosts)

    def situation(self, now: float, room: Room) -> Situation:
        """What an order may look at, on this room."""
        turns = (self.state.turn, self.state.turn_best_effort)
        guarded = self.preemption.guarded_at(now) if self.best_effort else nobody
        return Situation(
            self.jobs.queue, room, now, STARTS_MAX, self.foresee, self.policy, turns, guarded, self._clearing_s
        )

    def _clearing_s(self, name: str) -> float:
        unit, saved = self.custody.state.units[name], self.dispositions.saved(name)
        later = self.dispositions.saves_later(name)
        return lease_times.clearing_s(self.custody, unit, self.policy.leases, saved=saved, saves_later=later)

    def placement(self, start: Start) -> f.UnitPlaced:
        unit, shape = self.custody.state.units[start.unit], start.shape
        return f.UnitPlaced(
            unit=start.unit,
            attempt=unit.attempt + 1,
            hosts=start.hosts,
            **shape.size.fields(),
            exclusive=shape.exclusive,
            reason=start.reason,
        )
