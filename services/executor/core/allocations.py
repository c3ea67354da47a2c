"""The first step of a VM: allocated on hold, or found among those that are there already, and journaled; and what was found of
ours that the journal does not know.

Theory of operation
  The ledger lists which ranks need a VM.  Each is in one place here: requested (`allocating`), of unknown outcome (`unsure`),
  refused and tried again later (`later`), or allocated and to be journaled (`allocated`).  Nothing here runs anything.

Rules
  X7  a rank of an attempt that resumes is bound to its saved VM, or to the one that runs and is to move; it waits for one that
      is being saved, and has a fresh one only if there is none
  A rank of one node is bound to a parked VM of its shape on its host; it waits for one that may be parked in a moment.
  X1  what was allocated is journaled before anything else is asked for it; if its attempt is dead by then, it is deleted
  X2  wanted are only ranks that never had a VM; an allocation whose outcome is unsure is not repeated before a poll begun
      after it has shown that there is no VM with its tag.  One that had no answer in time may wait there still: that poll is
      begun when OpenNebula has worked it off, which the answer to a call that was sent after its time-out shows, since calls
      are worked off in their order; or else `WORKED_OFF_S` later.  An id that the journal has for another VM comes again where
      OpenNebula's database was put back to an older copy: the rank is asked for again at once, and X6 ends what has it now
  X6  a VM of ours that the journal does not know is adopted if it is on HOLD for a live attempt's rank without one; else it
      is an orphan: the vm_reconciler ends it.  Others' VMs are `foreign`, and are left alone
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from schemas import facts as f
from schemas.ids import parse_vm_tag
from services.domain.custody.state import Unit, vm_key
from services.executor.core.allocation_backoff import AllocationBackoff
from services.executor.core.call_errors import Failure, pause_s
from services.executor.core.calls import Allocate, Outcome, Phase, Result, Sight
from services.executor.core.ledger import Ledger
from services.executor.core.lifecycle import Aim
from services.executor.core.timers import Timers

WORKED_OFF_S: Final = 30.0  # what has waited for so long, and was given up by its caller, is not begun any more
_NOT_YET: Final = -1  # no VM's id
BRAKE: Final = "%allocations"  # among the timers: neither a key of custody nor a host


class Unsure(NamedTuple):
    """`tick`: when it failed; `from_tick`: an audit begun after that tells, None: not yet known; `until`: WORKED_OFF_S is over
    (UTC seconds)."""

    call: Allocate
    tick: int
    from_tick: int | None
    until: float


class Finder(Protocol):
    """Who knows what the VMs do."""

    def is_idle(self, key: str, aim: Aim) -> bool:
        """This open VM runs, has this aim, and nothing is asked of it."""

    def may_start(self, key: str, want: Allocate, now: float) -> bool:
        """X3 allows that the parked VM `key` runs the rank `want`; if others that wait are in its way, they go."""


class Allocations:
    def __init__(self, ledger: Ledger, timers: Timers) -> None:
        self.ledger, self.timers, self.custody = ledger, timers, ledger.custody
        self.audited = False  # a whole pool has been seen: what an earlier leader left behind is known
        self.allocating: dict[str, Allocate] = {}  # in flight
        self.unsure: dict[str, Unsure] = {}
        self.later: dict[str, Allocate] = {}  # refused; wanted again at a time
        self.refusals: dict[str, int] = {}  # allocations refused in a row
        self.backoff = AllocationBackoff()
        self.untold: dict[str, f.VmRefused] = {}  # unit -> what OpenNebula says; to be written once an attempt
        self.allocated: dict[str, f.VmAllocated] = {}  # to be journaled
        self.promised: dict[int, str] = {}  # id of a VM that is there -> key in `allocated` that takes it over
        self.orphans: dict[int, Phase] = {}  # ids of our VMs that no attempt uses, for the vm_reconciler to end
        self.foreign: dict[int, None] = {}  # ids that are not ours
        self.clashes: dict[int, None] = {}  # ids that were given again, for the vm_reconciler
        self.stale: dict[str, None] = {}  # keys in `allocated` whose tags are in doubt
        self.waking: dict[str, None] = {}  # ranks that wait for a VM to be parked, with a time set

    @property
    def audit_wanted(self) -> bool:
        """What the next look at the whole pool shows is waited for."""
        return not self.audited or any(one.from_tick is not None for one in self.unsure.values())

    def worked_off(self, sent_tick: int) -> None:
        """OpenNebula has answered a call that was sent at that tick."""
        for key, one in self.unsure.items():
            if one.from_tick is None and sent_tick > one.tick:
                self.unsure[key] = one._replace(from_tick=self.ledger.next_tick())

    def again(self, key: str, now: float) -> None:
        """Its time has come: perhaps it is a rank that was refused a VM, or waits for one."""
        unsure = self.unsure.get(key)
        if unsure is not None and unsure.from_tick is None and now >= unsure.until:
            self.unsure[key] = unsure._replace(from_tick=self.ledger.next_tick())
        want = self.later.pop(key, None)
        if want is not None:
            self.ledger.wants[key] = want
        self.waking.pop(key, None)

    def refuse(self, fact: f.VmAllocated) -> None:
        """Our own fact came back void: the rank had a VM already, and no attempt uses this one."""
        key, unit = vm_key(fact.unit, fact.attempt, fact.rank), self.custody.state.units.get(fact.unit)
        self.allocated.pop(key, None)
        if unit is not None and key not in self.allocating and self._lacks_vm(unit, fact.attempt, fact.rank):
            self.ledger.want_again(unit, fact.rank)
        known = self.ledger.by_vm.get(fact.vm)
        if known is not None:
            self.ledger.dirty[known] = None
        if fact.vm not in self.custody.index.vm_ids and fact.vm not in self.custody.state.saved:
            self.orphans[fact.vm] = Phase.HELD

    # --------------------------------------------------------------------------------------------------------- binding

    def bind(self, now: float, found_by: Finder) -> None:
        """Find VMs for the ranks that may have one already."""
        binding, units = self.ledger.binding, self.custody.state.units
        for key, want in list(binding.items()):
            if not self.custody.live(want.unit, want.attempt):
                del binding[key]
            elif key not in self.allocated:
                found = self._resumed(want, found_by) if units[want.unit].resumes else self._warm(want, now, found_by)
                if found is None:
                    self.ledger.wants[key] = binding.pop(key)
                elif found != _NOT_YET:
                    self._say(want, found)
                    self.promised[found] = key

    def is_promised(self, vm: int) -> bool:
        """It becomes another attempt's, as soon as the journal has that."""
        key = self.promised.get(vm)
        if key is not None and key not in self.allocated:
            del self.promised[vm]
            return False
        return key is not None

    def _resumed(self, want: Allocate, found_by: Finder) -> int | None:
        """The VM that continues as this rank; `_NOT_YET` if it is not ready, None if there is none."""
        saved = self.custody.index.saved.get(want.unit, {}).get(want.rank)
        if saved is not None:
            return saved
        vms, life = self.custody.state.vms, self.custody.state.units[want.unit].life
        for key in self.ledger.by_unit.get(want.unit, ()):
            if vms[key].rank == want.rank and life <= vms[key].attempt < want.attempt:
                return vms[key].vm if found_by.is_idle(key, Aim.MOVE) else _NOT_YET
        return None

    def _warm(self, want: Allocate, now: float, found_by: Finder) -> int | None:
        """The parked VM that it takes over; `_NOT_YET` if there may be one in a moment.  To take it over is a start (X3)."""
        if not self.audited:
            return _NOT_YET
        taken = {fact.vm: None for fact in self.allocated.values()}
        waits = [(key, vm) for key, vm in self.ledger.warm_for(want, now) if vm.vm not in taken]
        for key, vm in waits:
            if found_by.is_idle(key, Aim.PARK):
                return vm.vm if found_by.may_start(key, want, now) else _NOT_YET
        for key, _ in waits:
            if found_by.is_idle(key, Aim.LINGER) and want.key not in self.waking:
                self.waking[want.key] = None
                self.timers.set(self.ledger.state.kept[key].until, want.key)
        return _NOT_YET if any(found_by.is_idle(key, Aim.LINGER) for key, _ in waits) else None

    def _say(self, want: Allocate, vm: int) -> None:
        fact = f.VmAllocated(unit=want.unit, attempt=want.attempt, rank=want.rank, vm=vm, host=want.host)
        self.allocated[want.key] = fact

    # ------------------------------------------------------------------------------------------------------ allocations

    def calls(self, limit: int, now: float) -> list[Allocate]:
        """At most `limit` allocations, which count as in flight from now on."""
        found: list[Allocate] = []
        wants = self.ledger.wants
        limit = self.backoff.room(limit, len(self.allocating), now)
        while self.audited and wants and len(found) < limit:
            want = wants.pop(next(iter(wants)))
            if self.custody.live(want.unit, want.attempt):
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
            self.backoff.succeeded()
            if self._is_taken(result.vm):
                self.clashes[result.vm] = None
                self.ledger.wants[call.key] = call
            else:
                self._journal(call, result.vm)
        elif result.outcome is Outcome.UNSURE:
            tick, waits = self.ledger.next_tick(), result.failure == Failure.TIMEOUT
            self.unsure[call.key] = Unsure(call, tick, None if waits else tick, now + WORKED_OFF_S)
            if waits:
                self.timers.set(now + WORKED_OFF_S, call.key)
        elif result.outcome is Outcome.DENIED:
            self.ledger.wants[call.key] = call  # nothing at all is asked until the login is another one
        elif result.outcome is Outcome.LATER:
            self._tell(call, result)
            self.ledger.wants[call.key] = call  # behind the others: a smaller one may be granted
            failure = Failure(result.failure) if result.failure else Failure.OTHER
            self.timers.set(self.backoff.refused(failure, now), BRAKE)
        else:
            failures = self.refusals[call.key] = self.refusals.get(call.key, 0) + 1
            self.later[call.key] = call
            self._tell(call, result)
            kind = Failure(result.failure) if result.failure else None
            self.timers.set(now + pause_s(kind, failures), call.key)

    def _is_taken(self, vm: int) -> bool:
        """The journal has this id for another VM, or is about to."""
        state, index = self.custody.state, self.custody.index
        return vm in index.vm_ids or vm in state.saved or any(fact.vm == vm for fact in self.allocated.values())

    def doubt_tags(self) -> None:
        """What is known by its id alone is not known any more."""
        self.stale = dict.fromkeys(self.allocated)
        self.orphans.clear()
        self.foreign.clear()

    def _tell(self, call: Allocate, result: Result) -> None:
        self.untold[call.unit] = f.VmRefused(
            unit=call.unit, attempt=call.attempt, rank=call.rank, failure=result.failure, why=result.why
        )

    def _refusals(self) -> list[f.VmRefused]:
        """Of live attempts that have not been reported yet; the others are forgotten."""
        told = self.ledger.state.refusals
        for unit, fact in list(self.untold.items()):
            if told.get(unit) == fact.attempt or not self.custody.live(unit, fact.attempt):
                del self.untold[unit]
        return list(self.untold.values())

    def _journal(self, call: Allocate, vm: int) -> None:
        if self.custody.live(call.unit, call.attempt):
            self._say(call, vm)
        else:
            self.orphans[vm] = Phase.HELD

    def facts(self) -> list[f.Fact]:
        vms = self.custody.state.vms
        found: list[f.Fact] = [fact for key, fact in self.allocated.items() if key not in vms]
        return [*found, *self._refusals()]

    # ------------------------------------------------------------------------------------------------------ X6: strangers

    def strangers(self, sights: list[Sight], strays: dict[int, str]) -> list[int]:
        """Ids unknown here: their tags are needed."""
        known, fresh = self.custody.index.vm_ids, {fact.vm: None for fact in self.allocated.values()}
        seen_before, saved = (known, strays, self.foreign, fresh, self.orphans), self.custody.state.saved
        return [
            s.vm
            for s in sights
            if not any(s.vm in ids for ids in seen_before) and not (s.vm in saved and s.phase is Phase.SAVED)
        ]

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
            elif not self.strangers([sight], strays):
                continue
            elif sight.vm in self.custody.state.saved:
                if ticket > self.ledger.saved_at.get(sight.vm, 0):  # X7: resumed by a call that no longer has a waiter
                    self.orphans[sight.vm] = sight.phase
            else:
                self._adopt_or_end(sight, tag[1:])
        for key, one in list(self.unsure.items()):
            if one.from_tick is not None and ticket > one.from_tick:
                del self.unsure[key]
                self.ledger.wants[key] = one.call

    def _adopt_or_end(self, sight: Sight, tag: tuple[str, int, int]) -> None:
        unit, attempt, rank = tag
        key = vm_key(unit, attempt, rank)
        if key in self.allocating:
            return  # it may be the one whose answer is on its way; the next audit tells
        known = self.custody.state.units.get(unit)
        if known is None or sight.phase is not Phase.HELD or not self._lacks_vm(known, attempt, rank):
            self.orphans[sight.vm] = sight.phase
            return
        self.allocated[key] = f.VmAllocated(unit=unit, attempt=attempt, rank=rank, vm=sight.vm, host=known.hosts[rank])
        self.ledger.wants.pop(key, None)
        self.ledger.binding.pop(key, None)
        self.later.pop(key, None)
        self.unsure.pop(key, None)

    def _lacks_vm(self, unit: Unit, attempt: int, rank: int) -> bool:
        if not self.custody.live(unit.id, attempt) or rank >= len(unit.hosts):
            return False
        return not unit.allocated.get(attempt, 0) >> rank & 1 and vm_key(unit.id, attempt, rank) not in self.allocated
