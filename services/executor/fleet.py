"""The VMs: what is to be asked of OpenNebula next for each, and which facts follow from what was seen.

Theory of operation
  A `Track` is what this leader knows of one open VM beyond the journal: its phase as seen last, and what was asked of it.  A
  track is looked at again when a fact, an answer, a sight or a time concerns it (`_judge`), and is then in at most one queue.
  Calls are taken from the queues; every precondition is looked at again at that moment, on the folded state.

Rules
  X1  deploy takes only keys of custody's open VMs, so only what has come back through the journal
  X2  wanted are only ranks that never had a VM; an allocation whose outcome is unsure is not repeated before a poll begun
      after it has shown that there is no VM with its tag
  X3  deploy only a live attempt's VM, on a held and usable host with room, while no VM of an older attempt is open
  X4  doomed, or condemned: terminate, gracefully until `kill_by`, then hard, again and again; not gone `stuck_s` after the
      first hard order that OpenNebula answered: the host is lost
  X6  a VM of ours that the journal does not know is adopted if it is on HOLD for a live attempt's rank without one, else ended
  A sight counts only if its poll was begun after the last call about that VM had ended.
  Condemned: the attempt is live, but its VM does not run any more or never will (powered off, failed, refused).  It is
  terminated and `vm.ended` is written when it is gone, never before: a VM that is only powered off can be resumed by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from schemas import facts as f
from schemas.custody_state import Vm, vm_key
from schemas.ids import parse_vm_tag
from services.executor.calls import Allocate, Call, Deploy, Outcome, Phase, Result, Sight, Terminate
from services.executor.hosts import HostDesk
from services.executor.ledger import Ledger
from services.executor.outcomes import Failure, pause_s
from services.executor.timers import Timers, backoff_s

HARD_AGAIN_S: Final = 2.0  # a hard order is repeated: drivers lose some, and a VM in BOOT refuses it until it runs
RETRY_S: Final = 0.05  # after a call without a useful answer; doubles
RETRY_MAX_S: Final = 5.0
WATCHED_MAX: Final = 300  # ids in one targeted poll: about 5 ms at both ends


@dataclass(slots=True)
class Track:
    """`phase` None: not seen yet by this leader.  `heard`: tick at which the last call about it ended."""

    key: str
    vm: int
    host: str = ""
    phase: Phase | None = None
    heard: int = 0
    busy: bool = False
    deployed: bool = False  # asked to run, and not seen on HOLD since
    refused: str = ""
    condemned: str = ""
    soft_at: float | None = None
    hard_at: float | None = None
    hard_first: float | None = None
    not_before: float = 0.0
    failures: int = 0
    unknown_since: float | None = None


class Fleet:
    def __init__(self, ledger: Ledger, desk: HostDesk, timers: Timers) -> None:
        self.ledger, self.desk, self.timers = ledger, desk, timers
        self.custody = ledger.custody
        self.tracks: dict[str, Track] = {}
        self.audited = False  # a whole pool has been seen: what an earlier leader left behind is known
        self.allocating: dict[str, Allocate] = {}  # in flight
        self.unsure: dict[str, tuple[int, Allocate]] = {}  # -> tick of the failure
        self.later: dict[str, Allocate] = {}  # refused; wanted again at a time
        self.refusals: dict[str, int] = {}  # allocations refused in a row
        self.allocated: dict[str, f.VmAllocated] = {}  # to be journaled
        self.started: dict[str, None] = {}
        self.ended: dict[str, str] = {}  # -> why
        self.stuck: dict[str, None] = {}  # hosts
        self.terminates: dict[str, None] = {}
        self.deploys: dict[str, None] = {}
        self.blocked: dict[str, dict[str, None]] = {}  # what is waited for -> keys
        self.watched: dict[int, str] = {}  # ids in transition -> key
        self.strays: dict[int, str] = {}  # ids of ours that the journal does not know -> key
        self.foreign: dict[int, None] = {}  # ids that are not ours

    # -------------------------------------------------------------------------------------------------------- settling

    def settle(self, now: float, due: list[str]) -> None:
        """Look again at all whose case may have changed."""
        ledger = self.ledger
        for fact in ledger.refused:
            self._refuse(fact)
        ledger.refused.clear()
        for key in due:
            want = self.later.pop(key, None)
            if want is not None:
                ledger.wants[key] = want
            else:
                ledger.dirty[key] = None
        dirty = list(ledger.dirty)
        ledger.dirty.clear()
        for key in dirty:
            self._judge(key, now)

    def unblock(self, what: str) -> None:
        for key in self.blocked.pop(what, ()):
            self.ledger.dirty[key] = None  # it may be gone by now

    def _refuse(self, fact: f.VmAllocated) -> None:
        """Our own fact came back void: the rank had a VM already, and nobody knows this one."""
        key = vm_key(fact.unit, fact.attempt, fact.rank)
        self.allocated.pop(key, None)
        if fact.vm not in self.custody.index.vm_ids:
            self.add_stray(fact.vm, Phase.HELD)

    def add_stray(self, vm: int, phase: Phase) -> None:
        if vm not in self.strays:
            key = self.strays[vm] = f"#{vm}"
            self.tracks[key] = Track(key, vm, phase=phase, condemned="unknown to the journal")
            self.ledger.dirty[key] = None

    def _judge(self, key: str, now: float) -> None:
        """Put one VM where it belongs now."""
        vm = self.custody.state.vms.get(key)
        track = self._track(key, vm)
        if track is None:
            return
        self._unqueue(track)
        if track.phase is Phase.OVER:
            self._over(track)
        elif track.busy:
            self.watched[track.vm] = key
        elif track.condemned or key in self.ledger.state.doomed:
            self._end(track, now)
        elif vm is not None:
            self._run(track, vm, now)

    def _track(self, key: str, vm: Vm | None) -> Track | None:
        """The track of an open VM or of a stray; None if there is no such VM any more."""
        track = self.tracks.get(key)
        if vm is None:
            if track is None or track.vm in self.strays:
                return track
            del self.tracks[key]
            self._unqueue(track)
            return None
        if track is None:
            ours = self.allocated.pop(key, None)
            phase = Phase.HELD if ours is not None and ours.vm == vm.vm else None
            track = self.tracks[key] = Track(key, vm.vm, vm.host, phase, heard=self.ledger.next_tick())
        return track

    def _unqueue(self, track: Track) -> None:
        self.terminates.pop(track.key, None)
        self.deploys.pop(track.key, None)
        self.started.pop(track.key, None)
        self.ended.pop(track.key, None)
        self.watched.pop(track.vm, None)

    def _over(self, track: Track) -> None:
        if self.strays.pop(track.vm, None) is not None:
            del self.tracks[track.key]
            return
        doomed = track.key in self.ledger.state.doomed
        self.ended[track.key] = "terminated" if doomed and not track.condemned else track.condemned or "vanished"

    # --------------------------------------------------------------------------------------------------- live: X1 to X3

    def _run(self, track: Track, vm: Vm, now: float) -> None:
        phase, started = track.phase, vm.started_at is not None
        if phase in (Phase.OFF, Phase.FAILED):
            if not started and phase is Phase.FAILED:  # one that is off may have been too quick to be seen running
                self.desk.start_failed(track.host, now)
            self._condemn(track, "powered off" if phase is Phase.OFF else "failed", now)
        elif phase is Phase.UNKNOWN:
            self._doubt(track, now)
        elif phase is Phase.RUNNING:
            track.unknown_since = None
            if not started:
                self.started[track.key] = None
                self.desk.start_succeeded(track.host)
        elif phase is Phase.HELD and not track.deployed and now < track.not_before:
            self.timers.set(track.not_before, track.key)
        elif phase is Phase.HELD and not track.deployed:
            self.deploys[track.key] = None
        else:
            self.watched[track.vm] = track.key

    def _condemn(self, track: Track, why: str, now: float) -> None:
        track.condemned = why
        self._end(track, now)

    def _doubt(self, track: Track, now: float) -> None:
        """Its host does not say whether it runs: after stuck_s it is ended, whatever it does."""
        self.watched[track.vm] = track.key
        if track.unknown_since is None:
            track.unknown_since = now
        until = track.unknown_since + self.ledger.policy.stuck_s
        if now >= until:
            self._condemn(track, "unknown to its host", now)
        else:
            self.timers.set(until, track.key)

    def _deployment(self, key: str, now: float) -> Deploy | None:
        """The call, if X3 allows it now; else the key waits where it will be found."""
        vm, track = self.custody.state.vms[key], self.tracks[key]
        host = self.custody.state.hosts.get(vm.host)
        if key in self.ledger.state.doomed or not self.custody.live(vm.unit, vm.attempt) or host is None:
            self.ledger.dirty[key] = None
            return None
        waits_for = ""
        if self.ledger.older_open(vm.unit, vm.attempt):
            waits_for = f"u:{vm.unit}"
        elif host.state != "held" or not self.desk.is_usable(vm.host) or not self.ledger.has_room(key):
            waits_for = f"h:{vm.host}"
        elif self.desk.resting_until(vm.host) > now:
            track.not_before = self.desk.resting_until(vm.host)
            self.timers.set(track.not_before, key)
            return None
        if waits_for:
            self.blocked.setdefault(waits_for, {})[key] = None
            return None
        return Deploy(key, vm.vm, vm.host, host.one_id)

    # -------------------------------------------------------------------------------------------------------- ending: X4

    def _end(self, track: Track, now: float) -> None:
        self.watched[track.vm] = track.key
        kill_by = self.ledger.state.doomed.get(track.key, now)
        self._watch_stuck(track, now)
        hard = now >= kill_by or track.phase in (Phase.HELD, Phase.OFF, Phase.FAILED, Phase.UNKNOWN)
        if hard:
            again = track.hard_at + HARD_AGAIN_S if track.hard_at is not None else now
        else:
            asks = track.soft_at is None and track.phase in (None, Phase.RUNNING)
            again = now if asks else kill_by
        again = max(again, track.not_before) if again <= now else again
        if again <= now:
            self.terminates[track.key] = None
        else:
            self.timers.set(again, track.key)

    def _watch_stuck(self, track: Track, now: float) -> None:
        if track.hard_first is None or not track.host:
            return
        host = self.custody.state.hosts.get(track.host)
        if host is None or host.state == "lost":
            return
        due = track.hard_first + self.ledger.policy.stuck_s
        if now >= due:
            self.stuck[track.host] = None
        else:
            self.timers.set(due, track.key)

    def _termination(self, key: str, now: float) -> Terminate | None:
        track = self.tracks.get(key)
        if track is None or track.busy:
            return None
        hard = now >= self.ledger.state.doomed.get(key, now) or track.phase not in (None, Phase.RUNNING, Phase.MOVING)
        return Terminate(key, track.vm, hard)

    # ------------------------------------------------------------------------------------------------------------- calls

    def calls(self, now: float, limit: int) -> list[Call]:
        """At most `limit` calls, which count as in flight from now on.  Ends first: somebody waits for the room."""
        found: list[Call] = []
        while self.terminates and len(found) < limit:
            ending = self._termination(_pop(self.terminates), now)
            if ending is not None:
                found.append(ending)
        while self.deploys and len(found) < limit:
            deployment = self._deployment(_pop(self.deploys), now)
            if deployment is not None:
                found.append(deployment)
        for call in found:
            self.tracks[call.key].busy = True  # type: ignore[union-attr]
        while self.audited and self.ledger.wants and len(found) < limit:
            want = self.ledger.wants.pop(next(iter(self.ledger.wants)))
            if self.custody.live(want.unit, want.attempt) and want.key not in self.allocated:
                self.allocating[want.key] = want
                found.append(want)
        return found

    def result(self, result: Result, now: float) -> None:
        """A call has ended."""
        call = result.call
        if isinstance(call, Allocate):
            self._allocated(call, result, now)
        elif isinstance(call, Deploy | Terminate):
            track = self.tracks.get(call.key)
            if track is None:
                return
            track.busy = False
            track.heard = self.ledger.next_tick()
            self.ledger.dirty[call.key] = None
            if isinstance(call, Deploy):
                self._deployed(track, result, now)
            else:
                self._terminated(track, call, result, now)

    def _allocated(self, call: Allocate, result: Result, now: float) -> None:
        del self.allocating[call.key]
        if result.outcome is Outcome.OK:
            self.refusals.pop(call.key, None)
            self._journal(call, result.vm)
        elif result.outcome is Outcome.UNSURE:
            self.unsure[call.key] = (self.ledger.next_tick(), call)
        else:
            failures = self.refusals[call.key] = self.refusals.get(call.key, 0) + 1
            self.later[call.key] = call
            failure = Failure(result.failure) if result.failure else None
            self.timers.set(now + pause_s(failure, failures), call.key)

    def _journal(self, call: Allocate, vm: int) -> None:
        if self.custody.live(call.unit, call.attempt):
            fact = f.VmAllocated(unit=call.unit, attempt=call.attempt, rank=call.rank, vm=vm, host=call.host)
            self.allocated[call.key] = fact
        else:
            self.add_stray(vm, Phase.HELD)

    def _deployed(self, track: Track, result: Result, now: float) -> None:
        if result.outcome in (Outcome.DENIED, Outcome.LATER):
            self._try_later(track, now)
            return
        track.deployed = True  # also if refused or unsure: the next sight tells
        track.refused = result.why if result.outcome in (Outcome.REFUSED, Outcome.GONE) else ""
        if not track.refused:
            track.phase = Phase.MOVING

    def _terminated(self, track: Track, call: Terminate, result: Result, now: float) -> None:
        if result.outcome is Outcome.GONE:
            track.phase = Phase.OVER
        elif result.outcome in (Outcome.UNSURE, Outcome.DENIED):
            self._try_later(track, now)
        elif call.hard:
            track.hard_at = now
            track.hard_first = track.hard_first if track.hard_first is not None else now
        elif result.outcome is Outcome.OK:
            track.soft_at = now
        else:  # it is on its way somewhere; its next sight brings it back here
            self._try_later(track, now)
        if result.outcome is Outcome.OK:
            track.failures = 0

    def _try_later(self, track: Track, now: float) -> None:
        track.failures += 1
        track.not_before = now + backoff_s(track.failures, RETRY_S, RETRY_MAX_S)
        self.timers.set(track.not_before, track.key)

    # ------------------------------------------------------------------------------------------------------------ sights

    def watch_list(self) -> list[int]:
        """Ids for the next targeted poll; those asked for now come last the next time."""
        ids = list(islice(self.watched, WATCHED_MAX))
        if len(self.watched) > WATCHED_MAX:
            for vm in ids:
                self.watched[vm] = self.watched.pop(vm)
        return ids

    def see(self, sight: Sight, ticket: int, now: float) -> None:
        key = self.custody.index.vm_ids.get(sight.vm) or self.strays.get(sight.vm)
        track = self.tracks.get(key) if key is not None else None
        if track is None or track.busy or ticket < track.heard:
            return
        on_hold = sight.phase is Phase.HELD and track.deployed
        if sight.phase is track.phase and not on_hold:
            return
        track.phase = sight.phase
        if on_hold:  # asked to run, and it does not
            track.deployed = False
            if track.refused:
                track.condemned = f"deploy refused: {track.refused}"
                self.desk.start_failed(track.host, now)
            else:
                self._try_later(track, now)
        self.ledger.dirty[track.key] = None

    def missing(self, vms: list[int], ticket: int, now: float) -> None:
        """A poll that should have shown these did not: they are not there any more."""
        for vm in vms:
            self.see(Sight(vm, Phase.OVER), ticket, now)

    def seen_pool(self, sights: list[Sight], ticket: int, now: float) -> None:
        """Every VM that is not DONE."""
        there = {sight.vm: None for sight in sights}
        for sight in sights:
            self.see(sight, ticket, now)
        self.missing([t.vm for t in self.tracks.values() if t.vm not in there], ticket, now)
        self.foreign = {vm: None for vm in self.foreign if vm in there}
        self.audited = True

    def strangers(self, sights: list[Sight]) -> list[int]:
        """Ids that nobody here knows: their tags are needed."""
        known, fresh = self.custody.index.vm_ids, {fact.vm: None for fact in self.allocated.values()}
        return [
            s.vm for s in sights if not (s.vm in known or s.vm in self.strays or s.vm in self.foreign or s.vm in fresh)
        ]

    def seen_strange(self, sights: list[Sight], ticket: int) -> None:
        """VMs with tags that the journal, folded to an end later than their poll, may not know (X6)."""
        cloud = self.custody.state.cloud
        for sight in sorted(sights, key=lambda s: s.vm):
            tag = parse_vm_tag(sight.tag)
            if tag is None or not cloud or tag[0] != cloud:
                self.foreign[sight.vm] = None
            elif self.strangers([sight]) and sight.phase is not Phase.OVER:
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
            self.add_stray(sight.vm, sight.phase)
            return
        self.allocated[key] = f.VmAllocated(unit=unit, attempt=attempt, rank=rank, vm=sight.vm, host=known.hosts[rank])
        self.ledger.wants.pop(key, None)
        self.later.pop(key, None)
        self.unsure.pop(key, None)

    # ------------------------------------------------------------------------------------------------------------- facts

    def facts(self) -> list[f.Fact]:
        vms = self.custody.state.vms
        found: list[f.Fact] = [fact for key, fact in self.allocated.items() if key not in vms]
        found += [f.VmStarted(unit=v.unit, attempt=v.attempt, rank=v.rank) for v in map(vms.__getitem__, self.started)]
        for key, why in self.ended.items():
            vm = vms[key]
            found.append(f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=why))
        return found


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key
