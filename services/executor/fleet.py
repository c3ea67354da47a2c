"""The VMs: what is to be asked of OpenNebula next for each, and which facts follow from what was seen.

Theory of operation
  A `Track` is what this leader knows of one open VM beyond the journal: its phase as seen last, and what was asked of it.  A
  track is looked at again when a fact, an answer, a sight or a time concerns it (`_judge`): the table of `lifecycle` gives the
  act that follows from the journal's aim and the phase, and the track is then in at most one queue.  Calls are taken from the
  queues; every precondition is looked at again at that moment, on the folded state.

Rules (X2, X6: `launches`)
  X1  deploy takes only keys of custody's open VMs, so only what has come back through the journal
  X3  deploy only a live attempt's VM, on a held and usable host with room, while no VM of an older attempt is open
  X4  doomed, or condemned: terminate, gracefully until `kill_by`, then hard, again and again; not gone `stuck_s` after the
      first hard order that OpenNebula answered: the host is lost
  A sight counts only if its poll was begun after the last call about that VM had ended.
  Condemned: the attempt is live, but its VM does not run any more or never will (powered off, failed, refused).  It is
  terminated and `vm.ended` is written when it is gone, never before: a VM that is only powered off can be resumed by hand.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from schemas import facts as f
from schemas.custody_state import Vm
from services.executor.calls import Allocate, Call, Deploy, Outcome, Phase, Result, Sight, Terminate
from services.executor.hosts import HostDesk
from services.executor.launches import Launches
from services.executor.ledger import Ledger
from services.executor.lifecycle import ASKED, Act, Aim
from services.executor.timers import Timers
from services.executor.track import Track

HARD_AGAIN_S: Final = 2.0  # a hard order is repeated: drivers lose some, and a VM in BOOT refuses it until it runs
WATCHED_MAX: Final = 300  # ids in one targeted poll: about 5 ms at both ends


class Fleet:
    def __init__(self, ledger: Ledger, desk: HostDesk, timers: Timers) -> None:
        self.ledger, self.desk, self.timers = ledger, desk, timers
        self.custody = ledger.custody
        self.launches = Launches(ledger, timers)
        self.tracks: dict[str, Track] = {}
        self.started: dict[str, None] = {}
        self.ended: dict[str, str] = {}  # -> why
        self.stuck: dict[str, None] = {}  # hosts
        self.terminates: dict[str, None] = {}
        self.deploys: dict[str, None] = {}
        self.blocked: dict[str, dict[str, None]] = {}  # what is waited for -> keys
        self.watched: dict[int, str] = {}  # ids in transition -> key
        self.strays: dict[int, str] = {}  # ids of ours that the journal does not know -> key

    # -------------------------------------------------------------------------------------------------------- settling

    def settle(self, now: float, due: list[str]) -> None:
        """Look again at all whose case may have changed."""
        ledger = self.ledger
        for fact in ledger.refused:
            self.launches.refuse(fact)
        ledger.refused.clear()
        for key in due:
            if not self.launches.again(key):
                ledger.dirty[key] = None
        self._end_orphans()
        dirty = list(ledger.dirty)
        ledger.dirty.clear()
        for key in dirty:
            self._judge(key, now)

    def unblock(self, what: str) -> None:
        for key in self.blocked.pop(what, ()):
            self.ledger.dirty[key] = None  # it may be gone by now

    def _end_orphans(self) -> None:
        for vm, phase in self.launches.orphans.items():
            if vm not in self.strays:
                key = self.strays[vm] = f"#{vm}"
                self.tracks[key] = Track(key, vm, phase=phase, condemned="unknown to the journal")
                self.ledger.dirty[key] = None
        self.launches.orphans.clear()

    def _judge(self, key: str, now: float) -> None:
        """Put one VM where it belongs now."""
        vm = self.custody.state.vms.get(key)
        track = self._track(key, vm)
        if track is None:
            return
        self._unqueue(track)
        if track.busy and track.phase is not Phase.OVER:
            self.watched[track.vm] = key
        else:
            self._act(track, vm, now)

    def _track(self, key: str, vm: Vm | None) -> Track | None:
        """The track of an open VM or of a stray; None if there is no such VM any more."""
        track = self.tracks.get(key)
        if vm is None:
            if track is None or track.vm in self.strays:
                return track
            del self.tracks[key]
            self._unqueue(track)
            self.launches.brake.eased()
            return None
        if track is None:
            ours = self.launches.allocated.pop(key, None)
            phase = Phase.HELD if ours is not None and ours.vm == vm.vm else None
            track = self.tracks[key] = Track(key, vm.vm, vm.host, phase, heard=self.ledger.next_tick())
        return track

    def _unqueue(self, track: Track) -> None:
        self.terminates.pop(track.key, None)
        self.deploys.pop(track.key, None)
        self.started.pop(track.key, None)
        self.ended.pop(track.key, None)
        self.watched.pop(track.vm, None)

    # ---------------------------------------------------------------------------------------------------- acts: the table

    def aim(self, track: Track, now: float) -> Aim:
        return Aim.KILL if track.condemned else self.ledger.aim(track.key, now)

    def _act(self, track: Track, vm: Vm | None, now: float) -> None:
        """What the table says for this VM."""
        aim = self.aim(track, now)
        act = ASKED[aim, track.phase]
        if act is Act.ENDED:
            self._over(track)
        elif aim in (Aim.END, Aim.KILL):
            self._end(track, act, now)
        elif vm is not None:
            self._run(track, vm, act, now)

    def _over(self, track: Track) -> None:
        if self.strays.pop(track.vm, None) is not None:
            del self.tracks[track.key]
            return
        doomed = track.key in self.ledger.state.doomed
        self.ended[track.key] = "terminated" if doomed and not track.condemned else track.condemned or "vanished"

    def _run(self, track: Track, vm: Vm, act: Act, now: float) -> None:
        """X1 to X3."""
        started = vm.started_at is not None
        if act is Act.CONDEMN:
            if (
                not started and track.phase is Phase.FAILED
            ):  # one that is off may have been too quick to be seen running
                self.desk.start_failed(track.host, now)
            self._condemn(track, "powered off" if track.phase is Phase.OFF else "failed", now)
        elif act is Act.DOUBT:
            self._doubt(track, now)
        elif act is Act.STARTED:
            track.unknown_since = None
            if not started:
                self.started[track.key] = None
                self.desk.start_succeeded(track.host)
        elif act is Act.DEPLOY and not track.deployed and now < track.not_before:
            self.timers.set(track.not_before, track.key)
        elif act is Act.DEPLOY and not track.deployed:
            self.deploys[track.key] = None
        else:
            self.watched[track.vm] = track.key

    def _condemn(self, track: Track, why: str, now: float) -> None:
        track.condemned = why
        self._act(track, None, now)

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

    def _end(self, track: Track, act: Act, now: float) -> None:
        """X4."""
        self.watched[track.vm] = track.key
        self._watch_stuck(track, now)
        if act is Act.HARD:
            again = track.hard_at + HARD_AGAIN_S if track.hard_at is not None else now
        else:
            asks = act is Act.SOFT and track.soft_at is None
            again = now if asks else self.ledger.state.doomed[track.key]
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
        return found + self.launches.calls(limit - len(found), now)

    def _termination(self, key: str, now: float) -> Terminate | None:
        track = self.tracks.get(key)
        if track is None or track.busy:
            return None
        act = ASKED[self.aim(track, now), track.phase]
        return Terminate(key, track.vm, act is Act.HARD) if act in (Act.SOFT, Act.HARD) else None

    def _deployment(self, key: str, now: float) -> Deploy | None:
        """The call, if X3 allows it now; else the key waits where it will be found."""
        vm, track = self.custody.state.vms[key], self.tracks[key]
        host = self.custody.state.hosts.get(vm.host)
        if key in self.ledger.state.doomed or not self.custody.live(vm.unit, vm.attempt) or host is None:
            self.ledger.dirty[key] = None
            return None
        if host.quarantine_until > now:  # its attempt is better off elsewhere: no start fails here, none is tried
            self._condemn(track, f"its host is set apart: {host.quarantine}", now)
            return None
        waits_for = ""
        if self.ledger.older_open(vm.unit, vm.attempt):
            waits_for = f"u:{vm.unit}"
        elif host.state != "held" or not self.desk.may_start(vm.host, key) or not self.ledger.has_room(key):
            waits_for = f"h:{vm.host}"
        elif self.desk.probation.resting_until(vm.host) > now:
            track.not_before = self.desk.probation.resting_until(vm.host)
            self.timers.set(track.not_before, key)
            return None
        if waits_for:
            self.blocked.setdefault(waits_for, {})[key] = None
            return None
        self.desk.probation.starts(vm.host, key)
        return Deploy(key, vm.vm, vm.host, host.one_id)

    def result(self, result: Result, now: float) -> None:
        """A call has ended."""
        call = result.call
        if isinstance(call, Allocate):
            self.launches.result(call, result, now)
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

    def _deployed(self, track: Track, result: Result, now: float) -> None:
        if result.outcome in (Outcome.DENIED, Outcome.LATER):
            track.try_later(now, self.timers)
            return
        track.deployed = True  # also if refused or unsure: the next sight tells
        track.refused = result.why if result.outcome in (Outcome.REFUSED, Outcome.GONE) else ""
        if not track.refused:
            track.phase = Phase.MOVING

    def _terminated(self, track: Track, call: Terminate, result: Result, now: float) -> None:
        if result.outcome is Outcome.GONE:
            track.phase = Phase.OVER
        elif result.outcome in (Outcome.UNSURE, Outcome.DENIED):
            track.try_later(now, self.timers)
        elif call.hard:
            track.hard_at = now
            track.hard_first = track.hard_first if track.hard_first is not None else now
        elif result.outcome is Outcome.OK:
            track.soft_at = now
        else:  # it is on its way somewhere; its next sight brings it back here
            track.try_later(now, self.timers)
        if result.outcome is Outcome.OK:
            track.failures = 0

    # ------------------------------------------------------------------------------------------------------------ sights

    def watch_list(self) -> list[int]:
        """Ids for the next targeted poll; those asked for now come last the next time."""
        ids = list(islice(self.watched, WATCHED_MAX))
        if len(self.watched) > WATCHED_MAX:
            for vm in ids:
                self.watched[vm] = self.watched.pop(vm)
        return ids

    def track(self, vm: int) -> Track | None:
        """What is known of the VM with this id, if it is ours."""
        key = self.custody.index.vm_ids.get(vm) or self.strays.get(vm)
        return self.tracks.get(key) if key is not None else None

    def see(self, sight: Sight, ticket: int, now: float) -> None:
        track = self.track(sight.vm)
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
                self.desk.start_failed(track.host, now, track.refused)
            else:
                track.try_later(now, self.timers)
        self.ledger.dirty[track.key] = None

    def missing(self, vms: list[int], ticket: int, now: float) -> None:
        """A poll that should have shown these did not: they are not there any more."""
        for vm in vms:
            self.see(Sight(vm, Phase.OVER), ticket, now)

    def seen_pool(self, sights: list[Sight], strange: list[Sight], ticket: int, now: float) -> None:
        """Every VM that is not DONE; `strange`: those that `strangers` named, with tags (X6)."""
        there = {sight.vm: None for sight in sights}
        for sight in sights:
            self.see(sight, ticket, now)
        self.missing([t.vm for t in self.tracks.values() if t.vm not in there], ticket, now)
        self.launches.seen_pool(sights)
        self.launches.seen_strange(strange, ticket, self.strays)
        self._end_orphans()

    def strangers(self, sights: list[Sight]) -> list[int]:
        """Ids that nobody here knows: their tags are needed."""
        return self.launches.strangers(sights, self.strays)

    # ------------------------------------------------------------------------------------------------------------- facts

    def facts(self) -> list[f.Fact]:
        vms = self.custody.state.vms
        found = self.launches.facts()
        found += [f.VmStarted(unit=v.unit, attempt=v.attempt, rank=v.rank) for v in map(vms.__getitem__, self.started)]
        for key, why in self.ended.items():
            vm = vms[key]
            found.append(f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=why))
        return found


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key
