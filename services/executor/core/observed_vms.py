"""The tracks: what this leader has seen of each open VM, and of those that nobody journaled.

Rules
  A sight counts only if its poll was begun after the last call about that VM had ended.
  A VM that moves runs *elsewhere* until it is seen on its attempt's host; a poll that does not say where it runs says nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from services.domain.custody.state import Vm
from services.executor.core.allocations import Launches
from services.executor.core.calls import Phase, Sight
from services.executor.core.host_reconciler import HostDesk
from services.executor.core.ledger import Ledger
from services.executor.core.observed_vm import Track
from services.executor.core.timers import Timers

RESUMES_MAX: Final = 5  # refused in a row: what is saved is given up
WATCHED_MAX: Final = 300  # ids in one targeted poll: about 5 ms at both ends


class Tracks:
    def __init__(self, ledger: Ledger, desk: HostDesk, timers: Timers) -> None:
        self.ledger, self.desk, self.timers = ledger, desk, timers
        self.custody = ledger.custody
        self.launches = Launches(ledger, timers)
        self.tracks: dict[str, Track] = {}
        self.started: dict[str, None] = {}
        self.ended: dict[str, str] = {}  # -> why
        self.stuck: dict[str, None] = {}  # hosts
        self.terminates: dict[str, None] = {}
        self.saves: dict[str, None] = {}
        self.deploys: dict[str, None] = {}  # and migrations
        self.evicted: dict[str, None] = {}  # VMs that wait for a job, whose room is wanted
        self.doubted: dict[int, bool] = {}  # X7: ids with a call that may yet arrive -> and another one was made since
        self.blocked: dict[str, dict[str, None]] = {}  # what is waited for -> keys
        self.watched: dict[int, str] = {}  # ids in transition -> key
        self.strays: dict[int, str] = {}  # ids of ours that the journal does not know -> key

    def _rebind(self, before: str, key: str) -> None:
        track, vm = self.tracks.pop(before, None), self.custody.state.vms.get(key)
        if track is None:
            return
        self._unqueue(track)
        if vm is not None:
            track.rebind(key, vm.host)
            self.tracks[key] = track
            self.launches.allocated.pop(key, None)

    def _track(self, key: str, vm: Vm | None) -> Track | None:
        """The track of an open VM or of a stray; None if there is no such VM any more."""
        track = self.tracks.get(key)
        if vm is None:
            if track is None or self.strays.get(track.vm) == key:
                return track
            del self.tracks[key]
            self._unqueue(track)
            self.evicted.pop(key, None)
            self.launches.brake.eased()
            return None
        if track is None:
            ours = self.launches.allocated.pop(key, None)
            fresh = ours is not None and ours.vm == vm.vm and vm.known_as in ("", key)
            phase = Phase.HELD if fresh else None
            track = self.tracks[key] = Track(key, vm.vm, vm.host, phase, heard=self.ledger.next_tick())
        return track

    def _unqueue(self, track: Track) -> None:
        self.terminates.pop(track.key, None)
        self.saves.pop(track.key, None)
        self.deploys.pop(track.key, None)
        self.started.pop(track.key, None)
        self.ended.pop(track.key, None)
        self.watched.pop(track.vm, None)

    def _end_orphans(self) -> None:
        for vm, phase in self.launches.orphans.items():
            if vm not in self.strays:
                key = self.strays[vm] = f"#{vm}"
                self.tracks[key] = Track(key, vm, phase=phase, condemned="unknown to the journal")
                self.ledger.dirty[key] = None
        self.launches.orphans.clear()

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
        if sight.one_host >= 0:
            track.one_host = sight.one_host
        phase = self._place(track, sight)
        back = track.deployed and phase in (Phase.HELD, Phase.SAVED, Phase.ELSEWHERE)
        if phase is None or (phase is track.phase and not back):
            return
        track.phase, track.why = phase, sight.why
        if phase is Phase.RUNNING and self.doubted.get(track.vm) is False:
            del self.doubted[track.vm]  # the call in doubt was the last one, and this is what it did
        if back:  # asked to run there, and it does not
            self._came_back(track, now)
        self.ledger.dirty[track.key] = None

    def _place(self, track: Track, sight: Sight) -> Phase | None:
        """Its phase; None if the sight does not say where it runs, and that matters."""
        if sight.phase is not Phase.RUNNING or track.key not in self.ledger.state.leaving:
            return sight.phase
        host = self.custody.state.hosts.get(track.host)
        if sight.one_host < 0:
            return None
        return Phase.RUNNING if host is not None and host.one_id == sight.one_host else Phase.ELSEWHERE

    def _may_arrive(self, track: Track) -> bool:
        """It may yet come up on its attempt's host: its newest record is there, as far as is known, or a call is in doubt."""
        host = self.custody.state.hosts.get(track.host)
        if track.vm in self.doubted:
            return True
        if track.one_host >= 0 and (host is None or host.one_id != track.one_host):
            return False
        return track.deployed or track.phase is Phase.MOVING

    def _came_back(self, track: Track, now: float) -> None:
        track.deployed = False
        if track.phase is Phase.ELSEWHERE:
            track.cold = True
        elif track.refused and (track.phase is Phase.HELD or track.failures >= RESUMES_MAX):
            if not self.desk.start_failed(track.host, track.key, now, track.refused):
                track.condemned = f"deploy refused: {track.refused}"
        else:
            self.desk.site.came_to_nothing(track.key, now)
            track.try_later(now, self.timers)

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
