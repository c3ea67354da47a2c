"""When the batch core balances, and what: asks `policies/balance` about the department's own hosts, and states its answer as
facts.

Theory of operation
  The executor reports the actual use of hosts (`host.observed`), seldom and late by design.  The core's state keeps it until
  something makes it worthless.  A move is one envelope: the attempt is closed as migrated, and the next one is placed on the
  target; the executor moves the VM while it runs, and its memory, its guest and its run time continue.

Rules
  1. Only where configured, and only where the cloud can move a running VM.
  2. Only while no job waits in the queue.  A waiting job gets the room first, and no move may take what an order or a lease
     counts on.
  3. After a move the use of both hosts is unknown, as is that of a host which was cleared or lost.  The executor reports it
     again after a while: so nothing moves twice on the strength of one observation, and at unchanged loads nothing moves at
     all.
  4. A job moves if it runs on one host, its guest has called and its VM is up; not if it is held, cancelled, a lease with a
     time slot, one that asked for hosts with certain labels, or one with devices of its host, where that cannot be.
  5. Hosts that are cordoned, in quarantine or taken as a whole neither give nor get (`Room`, rule 1).
  6. A move costs its job neither a retry nor a requeue, and is no preemption (`Jobs.over`).
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance, CloudConfig
from schemas.dimensions import is_fixed
from schemas.facts import Disposal
from schemas.ids import sort_key
from services.domain.capabilities import can
from services.domain.core import NEVER
from services.domain.custody.state import Unit, vm_key
from services.domain.observed import worthless
from services.scheduler.core.batch.stage import Said
from services.scheduler.core.batch.view import View
from services.scheduler.core.policies.balance import Load, Machine, Move, plan
from services.scheduler.core.state.room import Free


class Rebalance:
    """Keeps `State.used`."""

    def __init__(self, view: View) -> None:
        self.custody, self.state, self.jobs, self.room = view.custody, view.state, view.jobs, view.room
        self.view = view

    def __call__(self, said: Said, now: float) -> bool:
        """Only while there is nothing else to say."""
        if not said.facts:
            said.facts += self.facts(self.view.policy.balance, now)
        return False

    def next_moment(self, after: float) -> float:  # noqa: ARG002
        return NEVER

    # -------------------------------------------------------------------------------------------------------- following

    def observed(self, fact: f.HostObserved) -> None:
        if fact.host in self.custody.state.hosts:
            self.state.used[fact.host] = fact.cpu

    def forget(self, fact: f.Fact) -> None:
        """Rule 3, after a fact of a placement or a host."""
        for name in worthless(fact):
            self.state.used.pop(name, None)

    # --------------------------------------------------------------------------------------------------------- deciding

    def facts(self, settings: Balance, now: float) -> list[f.Fact]:
        """The closing and the placement of each move of a pass."""
        if not self._may(settings):
            return []
        found: list[f.Fact] = []
        for move in plan(self._loads(settings, now), settings):
            found += self._moved(move)
        return found

    def _may(self, settings: Balance) -> bool:
        """Rules 1 and 2."""
        queue = self.jobs.queue
        if not settings.enabled or queue.where or queue.bookings:
            return False
        return able(self.custody.state.config) and len(self.state.used) > 1

    def _loads(self, settings: Balance, now: float) -> list[Load]:
        """Hosts in the order of their names; machines only of those that may be a source."""
        free, used, hosts = self.room.free, self.state.used, self.custody.state.hosts
        found = []
        for name in sorted(name for name in used if name in free):
            gives = used[name] > settings.high or (settings.power_saving and used[name] < settings.low)
            machines = self._machines(hosts[name].units, now) if gives else ()
            found.append(self._load(name, free[name], machines))
        return found

    def _load(self, name: str, free: Free, machines: tuple[Machine, ...]) -> Load:
        host = self.custody.state.hosts[name]
        return Load(name, self.state.used[name], host.size, free.size, len(host.units), machines)

    def _machines(self, units: Iterable[str], now: float) -> tuple[Machine, ...]:
        known = (self.custody.state.units[name] for name in sorted(units, key=sort_key))
        return tuple(self._machine(unit, now) for unit in known if self._movable(unit))

    def _movable(self, unit: Unit) -> bool:
        """Rule 4."""
        vm = self.custody.state.vms.get(vm_key(unit.id, unit.attempt, 0))
        if unit.nodes != 1 or unit.began_at is None or unit.held or unit.cancelled or not self.jobs.has(unit.id):
            return False
        job, config = self.jobs.job(unit.id), self.custody.state.config
        stays = is_fixed(unit.size) and not (config is not None and can(config.capabilities, "migrate", unit.size))
        return vm is not None and vm.started_at is not None and not (job.is_local or job.constraint or stays)

    def _machine(self, unit: Unit, now: float) -> Machine:
        assert unit.began_at is not None
        again = self.state.again.get(unit.id)
        left_s = self.jobs.ends_at(unit.id, unit.began_at) - now
        return Machine(unit.id, unit.size, left_s, 0 if again is None else again.moved)

    def _moved(self, move: Move) -> list[f.Fact]:
        unit = self.custody.state.units[move.unit]
        used_pct, cost_s = round(100 * move.before, 1), round(move.cost_s, 3)
        closing = f.AttemptClosed(
            unit=unit.id,
            attempt=unit.attempt,
            disposal=Disposal.MIGRATE,
            why=because.Balanced(host=move.source, to=move.target, used_pct=used_pct, cost_s=cost_s),
        )
        placement = f.UnitPlaced(
            unit=unit.id,
            attempt=unit.attempt + 1,
            hosts=(move.target,),
            **unit.size.fields(),
            reason=because.Balanced(from_hosts=[move.source]),
            moved_from=(move.source,),
        )
        return [closing, placement]


def able(config: CloudConfig | None) -> bool:
    """True if this cloud can move a VM while it runs."""
    return config is not None and "live_migration" in config.capabilities
