"""The executor's core: desired VMs (the journal) against actual ones (OpenNebula), as facts and calls that follow.

Theory of operation
  Two views.  The *fold* is custody and the ledger: it changes in `apply` alone, and a snapshot holds all of it.  The *world*
  is what this leader has seen of OpenNebula: it changes in `observe`, is never journaled, and is empty at the start; a new
  leader looks.  Level-triggered: `decide` gives the facts and `calls` the calls that follow from both views, whatever
  message came last; a lost poll or answer delays and never decides.

      apply(fact) ──▶ ledger ─┐                     ┌─▶ decide(now)  vm.allocated · vm.started · vm.ended
                              ├─▶ vm_reconciler ────┤                host.described · cleared · lost · removed · quarantined
      observe(poll, answer) ──┘   host_reconciler   └─▶ calls(now, limit)   allocate · deploy · terminate · look

Rules (PROTOCOL.md, Executor)
  X1, X3, X4: `vm_reconciler`, by the tables of `lifecycle`.  X2, X6: `allocations`.  X5: `host_reconciler`.  X4's deadlines,
  X3's room: `ledger`.  X8, and folding to the end before strangers are judged (X6): the edge, since they are about time and the
  broker.
  It must never name a VM that is not tagged as ours, and never end or start one on a guess: what it does not know it looks up.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.envelope import FACTS_MAX
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.executor.core.calls import Broken, Call, HostTold, Look, Observation, PoolSeen, Result, Sight, VmsSeen
from services.executor.core.host_reconciler import TIMER, HostReconciler
from services.executor.core.ledger import Ledger, LedgerState
from services.executor.core.timers import Timers
from services.executor.core.vm_reconciler import VmReconciler

_decoder: Final = msgspec.msgpack.Decoder(LedgerState)


class ExecutorCore:
    VERSION = 4  # 2 lacked paused starts, 3 the attempts for which no VM could be allocated

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.ledger = Ledger(custody)
        self._start_world()

    def _start_world(self) -> None:
        self.timers = Timers()
        self.host_reconciler = HostReconciler(self.ledger, self.timers)
        self.vm_reconciler = VmReconciler(self.ledger, self.host_reconciler, self.timers)

    # ---------------------------------------------------------------------------------------------------------- the fold

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        self.ledger.apply(fact, meta)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.ledger.state)

    def load(self, data: bytes) -> None:
        self.ledger.load(_decoder.decode(data))
        self._start_world()

    def check(self) -> list[str]:
        found = self.ledger.check()
        vms = self.custody.state.vms
        for key in self.vm_reconciler.deploys:
            if key not in vms:
                found.append(f"{key} is to be deployed and not journaled (X1)")
        for key in self.vm_reconciler.allocations.allocating:
            if key in vms:
                found.append(f"{key} is allocated again (X2)")
        return found

    # --------------------------------------------------------------------------------------------------------- the world

    def take_over(self, now: float) -> None:
        """This replica leads: what earlier leaders left unsaid is for the first audit to find."""
        self.ledger.refused.clear()
        self.ledger.rebound.clear()
        self.ledger.forget_what_was_seen()
        self._start_world()
        self.ledger.dirty.update(dict.fromkeys(self.custody.state.vms))
        self._settle(now)

    def ticket(self) -> int:
        """Before a poll is begun: what it shows is worth something only about what was settled by then."""
        return self.ledger.next_tick()

    def observe(self, observation: Observation, now: float) -> None:
        """Something was learned of OpenNebula."""
        if isinstance(observation, Result):
            self._answered(observation, now)
        elif isinstance(observation, VmsSeen):
            there = {sight.vm: None for sight in observation.vms}
            for sight in observation.vms:
                self.vm_reconciler.see(sight, observation.ticket, now)
            missing = [vm for vm in observation.asked if vm not in there]
            self.vm_reconciler.missing(missing, observation.ticket, now)
        elif isinstance(observation, PoolSeen):
            self.host_reconciler.suspicious = False
            self.host_reconciler.audited({sight.vm: None for sight in observation.vms}, observation.ticket)
            self.vm_reconciler.seen_pool(observation.vms, observation.strange, observation.ticket, now)
        elif isinstance(observation, HostTold):
            self.host_reconciler.told(observation.one_id)
        elif isinstance(observation, Broken):
            self.vm_reconciler.doubt_tags()
            self.host_reconciler.suspicious = True  # what was about to be ended by its id alone is found again
        else:
            self.host_reconciler.see_pool(observation, now, self._ours(), self.vm_reconciler.allocations.foreign)

    def _answered(self, result: Result, now: float) -> None:
        if isinstance(result.call, Look):
            self.host_reconciler.looked(result, now, self._ours(), self.vm_reconciler.allocations.foreign)
        else:
            self.vm_reconciler.result(result, now)

    def _ours(self) -> dict[int, str]:
        strays, saved = self.vm_reconciler.strays, self.custody.state.saved
        if not strays and not saved:
            return self.custody.index.vm_ids
        return {**dict.fromkeys(saved, ""), **self.custody.index.vm_ids, **strays}

    def strangers(self, sights: list[Sight]) -> list[int]:
        """Ids in a pool whose tags are to be read before it is observed."""
        return self.vm_reconciler.strangers(sights)

    # ---------------------------------------------------------------------------------------------------- what follows

    def decide(self, now: float) -> list[f.Fact]:
        self._settle(now)
        facts = self.vm_reconciler.facts()
        facts += self.host_reconciler.facts(now)
        facts = [*facts, *self._lose_stuck()][:FACTS_MAX]
        self.vm_reconciler.said(facts)
        return facts

    def _lose_stuck(self) -> list[f.Fact]:
        hosts = self.custody.state.hosts
        stuck = [name for name in self.vm_reconciler.stuck if name in hosts and hosts[name].state != "lost"]
        self.vm_reconciler.stuck = dict.fromkeys(stuck)
        return [f.HostLost(host=name, reason="stuck") for name in stuck]

    def calls(self, now: float, limit: int) -> list[Call]:
        """At most `limit` calls that must be made; they count as in flight until their `Result` is observed."""
        self._settle(now)
        if limit <= 0:
            return []
        looks: list[Call] = list(self.host_reconciler.calls(limit))
        return looks + self.vm_reconciler.calls(now, limit - len(looks))

    def wake_at(self) -> float:
        return self.timers.next()

    def watch_list(self) -> list[int]:
        """Ids of VMs in transition, for the next targeted poll."""
        return self.vm_reconciler.watch_list()

    @property
    def audit_wanted(self) -> bool:
        """The next look at the whole pool should not wait for its turn."""
        return self.vm_reconciler.audit_wanted or self.host_reconciler.suspicious

    @property
    def hosts_wanted(self) -> bool:
        return not self.host_reconciler.polled or self.host_reconciler.pool_wanted

    def _settle(self, now: float) -> None:
        """Bring the derived queues up to date with fold, world and time."""
        due = self.timers.due(now)
        for name in due:
            if name.startswith(TIMER):
                self.host_reconciler.news[name[len(TIMER) :]] = None
        for what in self.ledger.freed:
            self.vm_reconciler.unblock(what)
            if what.startswith("h:"):
                self.host_reconciler.news[what[2:]] = None
        self.ledger.freed.clear()
        self.vm_reconciler.settle(now, [name for name in due if not name.startswith(TIMER)])
        if self.host_reconciler.news:
            self.host_reconciler.facts(now)  # finds out which looks are needed; what follows is returned by decide
