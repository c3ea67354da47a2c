"""The first step of a VM: allocated on hold, and journaled; and what was found of ours that the journal does not know.

Theory of operation
  The ledger says which ranks want a VM.  Each is in one place here: asked for (`allocating`), of unknown outcome (`unsure`),
  refused and tried again later (`later`), or allocated and to be journaled (`allocated`).  Nothing here runs anything.

Rules
  X1  what was allocated is journaled before anything else is asked for it; if its attempt is dead by then, it is deleted
  X2  wanted are only ranks that never had a VM; an allocation whose outcome is unsure is not repeated before a poll begun
      after it has shown that there is no VM with its tag
  X6  a VM of ours that the journal does not know is adopted if it is on HOLD for a live attempt's rank without one; else it
      is an orphan: the fleet ends it.  Others' VMs are `foreign`, and nobody touches them
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.custody_state import vm_key
from schemas.ids import parse_vm_tag
from services.executor.brake import Brake
from services.executor.calls import Allocate, Outcome, Phase, Result, Sight
from services.executor.ledger import Ledger
from services.executor.outcomes import Failure, pause_s
from services.executor.timers import Timers

BRAKE: Final = "%allocations"  # among the timers: neither a key of custody nor a host


class Launches:
    def __init__(self, ledger: Ledger, timers: Timers) -> None:
        self.ledger, self.timers, self.custody = ledger, timers, ledger.custody
        self.audited = False  # a whole pool has been seen: what an earlier leader left behind is known
        self.allocating: dict[str, Allocate] = {}  # in flight
        self.unsure: dict[str, tuple[int, Allocate]] = {}  # -> tick of the failure
        self.later: dict[str, Allocate] = {}  # refused; wanted again at a time
        self.refusals: dict[str, int] = {}  # allocations refused in a row
        self.brake = Brake()
        self.allocated: dict[str, f.VmAllocated] = {}  # to be journaled
        self.orphans: dict[int, Phase] = {}  # ids of ours that nobody wants, for the fleet to end
        self.foreign: dict[int, None] = {}  # ids that are not ours

    def again(self, key: str) -> bool:
        """Its time has come: True if it was an allocation that had been refused."""
        want = self.later.pop(key, None)
        if want is not None:
            self.ledger.wants[key] = want
        return want is not None

    def refuse(self, fact: f.VmAllocated) -> None:
        """Our own fact came back void: the rank had a VM already, and nobody knows this one."""
        self.allocated.pop(vm_key(fact.unit, fact.attempt, fact.rank), None)
        if fact.vm not in self.custody.index.vm_ids:
            self.orphans[fact.vm] = Phase.HELD

    # ------------------------------------------------------------------------------------------------------ allocations

    def calls(self, limit: int, now: float) -> list[Allocate]:
        """At most `limit` allocations, which count as in flight from now on."""
        found: list[Allocate] = []
        wants = self.ledger.wants
        limit = self.brake.room(limit, len(self.allocating), now)
        while self.audited and wants and len(found) < limit:
            want = wants.pop(next(iter(wants)))
            if self.custody.live(want.unit, want.attempt) and want.key not in self.allocated:
                self.allocating[want.key] = want
                found.append(want)
            else:
                self.refusals.pop(want.key, None)
        return found

    def result(self, call: Allocate, result: Result, now: float) -> None:
        """An allocation has ended."""
        del self.allocating[call.key]
        if result.outcome is Outcome.OK:
            self.refusals.pop(call.key, None)
            self.brake.succeeded()
            self._journal(call, result.vm)
        elif result.outcome is Outcome.UNSURE:
            self.unsure[call.key] = (self.ledger.next_tick(), call)
        elif result.outcome is Outcome.DENIED:
            self.ledger.wants[call.key] = call  # nothing at all is asked until the login is another one
        elif result.outcome is Outcome.LATER:
            self.ledger.wants[call.key] = call  # behind the others: a smaller one may be granted
            failure = Failure(result.failure) if result.failure else Failure.OTHER
            self.timers.set(self.brake.refused(failure, now), BRAKE)
        else:
            failures = self.refusals[call.key] = self.refusals.get(call.key, 0) + 1
            self.later[call.key] = call
            kind = Failure(result.failure) if result.failure else None
            self.timers.set(now + pause_s(kind, failures), call.key)

    def _journal(self, call: Allocate, vm: int) -> None:
        if self.custody.live(call.unit, call.attempt):
            fact = f.VmAllocated(unit=call.unit, attempt=call.attempt, rank=call.rank, vm=vm, host=call.host)
            self.allocated[call.key] = fact
        else:
            self.orphans[vm] = Phase.HELD

    def facts(self) -> list[f.Fact]:
        vms = self.custody.state.vms
        return [fact for key, fact in self.allocated.items() if key not in vms]

    # ------------------------------------------------------------------------------------------------------ X6: strangers

    def strangers(self, sights: list[Sight], strays: dict[int, str]) -> list[int]:
        """Ids that nobody here knows: their tags are needed."""
        known, fresh = self.custody.index.vm_ids, {fact.vm: None for fact in self.allocated.values()}
        seen_before = (known, strays, self.foreign, fresh, self.orphans)
        return [s.vm for s in sights if not any(s.vm in ids for ids in seen_before)]

    def seen_pool(self, sights: list[Sight]) -> None:
        """Every VM that is not DONE."""
        there = {sight.vm: None for sight in sights}
        self.foreign = {vm: None for vm in self.foreign if vm in there}
        self.audited = True

    def seen_strange(self, sights: list[Sight], ticket: int, strays: dict[int, str]) -> None:
        """VMs with tags that the journal, folded to an end later than their poll, may not know."""
        cloud = self.custody.state.cloud
        for sight in sorted(sights, key=lambda s: s.vm):
            tag = parse_vm_tag(sight.tag)
            if tag is None or not cloud or tag[0] != cloud:
                self.foreign[sight.vm] = None
            elif self.strangers([sight], strays) and sight.phase is not Phase.OVER:
                self._adopt_or_end(sight, tag[1:])
        for key, (tick, call) in list(self.unsure.items()):
            if ticket > tick:
                del self.unsure[key]
                if key not in self.allocated:
                    self.ledger.wants[key] = call

    def _adopt_or_end(self, sight: Sight, tag: tuple[str, int, int]) -> None:
        unit, attempt, rank = tag
        key = vm_key(unit, attempt, rank)
        if key in self.allocating:
            return  # it may be the one whose answer is on its way; the next audit tells
        known = self.custody.state.units.get(unit)
        wanted = (
            known is not None
            and self.custody.live(unit, attempt)
            and rank < len(known.hosts)
            and not known.allocated.get(attempt, 0) >> rank & 1
            and key not in self.allocated
        )
        if known is None or not wanted or sight.phase is not Phase.HELD:
            self.orphans[sight.vm] = sight.phase
            return
        self.allocated[key] = f.VmAllocated(unit=unit, attempt=attempt, rank=rank, vm=sight.vm, host=known.hosts[rank])
        self.ledger.wants.pop(key, None)
        self.later.pop(key, None)
        self.unsure.pop(key, None)
