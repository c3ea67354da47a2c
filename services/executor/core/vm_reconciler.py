"""The VMs: what is to be asked of OpenNebula next for each, and which facts follow from what was seen.

Theory of operation
  An `ObservedVm` is what this leader knows of one open VM beyond the journal: its phase as seen last, and what was asked of
  it.  It is looked at again when a fact, an answer, a sight or a time concerns it (`_judge`): the table of `lifecycle` gives
  the act that follows from the journal's aim and the phase, and the VM is then in at most one queue.  Calls are taken from
  the queues; what X3 asks is looked at again at that moment, on the folded state.

Rules (X2, X6: `allocations`)
  X1  deploy takes only keys of custody's open VMs, so only what has come back through the journal
  X3  deploy only a live attempt's VM, on a held and usable host with room, while no VM of an older attempt is open
  X4  doomed, or condemned: terminate, gracefully until `kill_by`, then hard: once, and again when the driver's own time is over
      or the order has come to nothing (`hard_again_at`); not gone `stuck_s` after the first hard order that OpenNebula
      answered: the host is lost
  X7  what is to be saved is stopped, and `vm.ended` reports when it is; what is bound to the next attempt is deployed from
      there, or migrates, as X3 allows.  A VM is no more relied on to stay where it is after a migration or a deploy (the first
      one, too) whose outcome was never learned (`doubted`): it is ended rather than saved.  One that was to be saved or moved,
      on a host that is lost, is ended in the journal, so that its job starts again: X6 and X5 deal with what may still run
  there A sight counts only if its poll was begun after the last call about that VM had ended.  A VM that moves runs *elsewhere*
  until it is seen on its attempt's host; a poll without its host proves nothing.
  X6  an order is given only to a VM whose tag was seen to be that of its attempt since OpenNebula's connections broke last
      (`doubt_tags`): its database may have been put back to an older copy, and ids come again.  What the journal has by an id
      that is another VM's now is gone.
  Condemned: the attempt is live, but its VM does not run any more or never will (powered off, failed, refused).  It is
  terminated and `vm.ended` is written when it is gone, never before: a VM that is only powered off can be resumed by hand.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from schemas import facts as f
from services.domain.custody.state import Vm, vm_key
from services.executor.core.allocations import Allocations
from services.executor.core.call_errors import Failure
from services.executor.core.calls import (
    Allocate,
    Call,
    Deploy,
    Look,
    Migrate,
    Outcome,
    Phase,
    Result,
    Save,
    Sight,
    Terminate,
)
from services.executor.core.host_reconciler import HostReconciler
from services.executor.core.ledger import Ledger
from services.executor.core.ledger_state import PAUSED
from services.executor.core.lifecycle import ASKED, Act, Aim, Told, after
from services.executor.core.observed_vm import ObservedVm
from services.executor.core.timers import NEVER, Timers, backoff_s

REFUSALS_MAX: Final = 6  # in a row; more make it no rarer
RESUMES_MAX: Final = 5  # refused in a row: what is saved is given up
WATCHED_MAX: Final = 300  # ids in one targeted poll: about 5 ms at both ends
# an order that came to nothing is repeated: drivers lose some, and a VM in BOOT refuses it until it runs
AGAIN_S: Final = 2.0
AGAIN_MAX_S: Final = 60.0  # … a hard end that is refused though the VM rests: a person has locked it, or given it away
IDLE: Final = "idle"  # these three: why one that waited for a job was ended
ROOM_NEEDED: Final = "its room was needed"
HOST_GONE: Final = "its host was given back"
LEFT_BEHIND: Final = "left behind"  # on a lost host, from which it was to be saved or moved


class VmReconciler:
    def __init__(self, ledger: Ledger, host_reconciler: HostReconciler, timers: Timers) -> None:
        self.ledger, self.host_reconciler, self.timers = ledger, host_reconciler, timers
        self.custody = ledger.custody
        self.allocations = Allocations(ledger, timers)
        self.observed_vms: dict[str, ObservedVm] = {}
        self.started: dict[str, None] = {}
        self.ended: dict[str, str] = {}  # -> why
        self.stuck: dict[str, None] = {}  # hosts
        self.terminates: dict[str, None] = {}
        self.saves: dict[str, None] = {}
        self.deploys: dict[str, None] = {}  # and migrations
        self.evicted: dict[str, None] = {}  # VMs that wait for a job, whose room is wanted
        self.doubted: dict[int, bool] = {}  # X7: ids with a call that may yet arrive -> and another one was made since
        self.blocked: dict[str, dict[str, None]] = {}  # what is waited for -> keys
        self.untagged: dict[str, None] = {}  # an order waits until its tag was seen (X6)
        self.tagged_saved: dict[int, None] = {}  # saved VMs whose tags were seen
        self.tags_from = 0  # tags that were read before this tick prove nothing
        self.sent: dict[str, int] = {}  # calls in flight, by key -> tick at which they were sent
        self.watched: dict[int, str] = {}  # ids in transition -> key
        self.strays: dict[int, str] = {}  # ids of ours that the journal does not know -> key

    def _rebind(self, before: str, key: str) -> None:
        observed, vm = self.observed_vms.pop(before, None), self.custody.state.vms.get(key)
        if observed is None:
            return
        self._unqueue(observed)
        if vm is not None:
            observed.rebind(key, vm.host)
            self.observed_vms[key] = observed
            self.allocations.allocated.pop(key, None)

    def _observed_vm(self, key: str, vm: Vm | None) -> ObservedVm | None:
        """What is known of an open VM or of a stray; None if there is no such VM any more."""
        observed = self.observed_vms.get(key)
        if vm is None:
            if observed is None or self.strays.get(observed.vm) == key:
                return observed
            del self.observed_vms[key]
            self._unqueue(observed)
            self.evicted.pop(key, None)
            if observed.tagged and observed.vm in self.custody.state.saved:
                self.tagged_saved[observed.vm] = None
            self.allocations.backoff.eased()
            return None
        if observed is None:
            ours = self.allocations.allocated.pop(key, None)
            fresh = ours is not None and ours.vm == vm.vm and vm.known_as in ("", key)
            phase = Phase.HELD if fresh else None
            observed = self.observed_vms[key] = ObservedVm(key, vm.vm, vm.host, phase, heard=self.ledger.next_tick())
            observed.tagged = vm.vm in self.tagged_saved or (fresh and key not in self.allocations.stale)
            self.tagged_saved.pop(vm.vm, None)
            self.allocations.stale.pop(key, None)
        return observed

    def _unqueue(self, observed: ObservedVm) -> None:
        self.terminates.pop(observed.key, None)
        self.saves.pop(observed.key, None)
        self.deploys.pop(observed.key, None)
        self.started.pop(observed.key, None)
        self.ended.pop(observed.key, None)
        self.watched.pop(observed.vm, None)
        self.untagged.pop(observed.key, None)

    def _end_orphans(self) -> None:
        for vm, phase in self.allocations.orphans.items():
            if vm not in self.strays:
                key = self.strays[vm] = f"#{vm}"
                self.observed_vms[key] = ObservedVm(
                    key, vm, phase=phase, condemned="unknown to the journal", tagged=True
                )
                self.ledger.dirty[key] = None
        self.allocations.orphans.clear()

    # -------------------------------------------------------------------------------------------------------------- tags

    def doubt_tags(self) -> None:
        """OpenNebula may be another one from now on, with an older copy of its database: an id alone says nothing."""
        self.tags_from = self.ledger.next_tick()
        for vm, key in self.strays.items():
            self._unqueue(self.observed_vms.pop(key))
            self.ledger.dirty.pop(key, None)
            self.doubted.pop(vm, None)
        self.strays.clear()
        self.tagged_saved.clear()
        self.allocations.doubt_tags()
        for observed in self.observed_vms.values():
            observed.tagged = False

    def _may_be_ordered(self, key: str) -> bool:
        """X6; else the next audit reads its tag, and brings it back.  One that is hidden is not: any order would be refused."""
        observed = self.observed_vms[key]
        if not (observed.tagged or observed.hidden):
            self.untagged[key] = None
        return observed.tagged and not observed.hidden

    def _see_tag(self, observed: ObservedVm, tag: str) -> None:
        vm = self.custody.state.vms.get(observed.key)
        if vm is None or observed.tagged:
            return
        observed.tagged = self._is_tag_of(tag, vm)
        if not observed.tagged:
            self._replace(observed)
        self.untagged.pop(observed.key, None)
        self.ledger.dirty[observed.key] = None

    def _is_tag_of(self, tag: str, vm: Vm) -> bool:
        """It has the name of its first attempt; one that took over several jobs that of a job which has ended."""
        cloud, name = self.custody.state.cloud, tag.partition("/")[2]
        if tag != f"{cloud}/{name}":
            return False
        if name in (vm.known_as, vm.was, vm_key(vm.unit, vm.attempt, vm.rank)):
            return True
        index = self.custody.index
        return bool(vm.was) and name not in self.custody.state.vms and name not in index.known_as

    def _replace(self, observed: ObservedVm) -> None:
        """Another VM has its id: the one that the journal means is not there any more."""
        observed.replaced, observed.phase = True, Phase.OVER
        self.ledger.dirty[observed.key] = None

    # ------------------------------------------------------------------------------------------------------------ sights

    def watch_list(self) -> list[int]:
        """Ids for the next targeted poll; those asked for now come last the next time."""
        ids = list(islice(self.watched, WATCHED_MAX))
        if len(self.watched) > WATCHED_MAX:
            for vm in ids:
                self.watched[vm] = self.watched.pop(vm)
        return ids

    def observed_vm(self, vm: int) -> ObservedVm | None:
        """What is known of the VM with this id, if it is ours."""
        key = self.custody.index.vm_ids.get(vm) or self.strays.get(vm)
        return self.observed_vms.get(key) if key is not None else None

    def see(self, sight: Sight, ticket: int, now: float) -> None:
        observed = self.observed_vm(sight.vm)
        if observed is None or observed.busy or observed.replaced or ticket < observed.heard:
            return
        if sight.hidden is not observed.hidden:
            observed.hidden = sight.hidden
            self.ledger.dirty[observed.key] = None
        if sight.hidden:
            return
        if sight.one_host >= 0:
            observed.one_host = sight.one_host
        if observed.rests_from is not None and ticket > observed.rests_from:
            observed.rests_from, observed.rests = None, True
            self.ledger.dirty[observed.key] = None
        phase = self._place(observed, sight)
        back = observed.deployed and phase in (Phase.HELD, Phase.SAVED, Phase.ELSEWHERE)
        if phase is None or (phase is observed.phase and not back):
            return
        observed.phase, observed.why = phase, sight.why
        if phase is Phase.RUNNING and self.doubted.get(observed.vm) is False:
            del self.doubted[observed.vm]  # the call in doubt was the last one, and this is what it did
        if back:  # asked to run there, and it does not
            self._came_back(observed, now)
        self.ledger.dirty[observed.key] = None

    def _place(self, observed: ObservedVm, sight: Sight) -> Phase | None:
        """Its phase; None if the sight does not say where it runs, and that matters."""
        if sight.phase is not Phase.RUNNING or observed.key not in self.ledger.state.leaving:
            return sight.phase
        host = self.custody.state.hosts.get(observed.host)
        if sight.one_host < 0:
            return None
        return Phase.RUNNING if host is not None and host.one_id == sight.one_host else Phase.ELSEWHERE

    def _may_arrive(self, observed: ObservedVm) -> bool:
        """It may yet come up on its attempt's host: its newest record is there, as far as is known, or a call is in doubt."""
        host = self.custody.state.hosts.get(observed.host)
        if observed.vm in self.doubted:
            return True
        if observed.one_host >= 0 and (host is None or host.one_id != observed.one_host):
            return False
        return observed.deployed or observed.phase is Phase.MOVING

    def _came_back(self, observed: ObservedVm, now: float) -> None:
        observed.deployed = False
        if observed.phase is Phase.ELSEWHERE:
            observed.cold = True
        elif observed.refused and (observed.phase is Phase.HELD or observed.failures >= RESUMES_MAX):
            if not self.host_reconciler.start_failed(observed.host, observed.key, now, observed.refused):
                observed.condemned = f"deploy refused: {observed.refused}"
        else:
            self.host_reconciler.site.came_to_nothing(observed.key, now)
            observed.try_later(now, self.timers)

    def missing(self, vms: list[int], ticket: int, now: float) -> None:
        """A poll that should have shown these did not: they are not there any more."""
        for vm in vms:
            self.see(Sight(vm, Phase.OVER), ticket, now)

    def seen_pool(self, sights: list[Sight], strange: list[Sight], ticket: int, now: float) -> None:
        """Every VM that is not DONE; `strange`: those that `strangers` named, with tags (X6)."""
        there = {sight.vm: None for sight in sights}
        for sight in strange if ticket > self.tags_from else ():
            observed = self.observed_vm(sight.vm)
            if observed is not None:
                self._see_tag(observed, sight.tag)
        strange = [sight for sight in strange if self.observed_vm(sight.vm) is None] if ticket > self.tags_from else []
        for sight in sights:
            self.see(sight, ticket, now)
        self.missing([t.vm for t in self.observed_vms.values() if t.vm not in there], ticket, now)
        self.allocations.seen_pool(sights)
        self.allocations.seen_strange(strange, ticket, self.strays)
        self._end_orphans()

    def lacking(self, sights: list[Sight]) -> list[int]:
        """Open VMs of ours, and strays, that are not in a pool."""
        there = {sight.vm: None for sight in sights}
        known = (one for one in self.observed_vms.values() if one.phase is not Phase.OVER)
        return [one.vm for one in known if one.vm not in there]

    def strangers(self, sights: list[Sight]) -> list[int]:
        """Ids unknown here, or not known to be the attempts' of the journal: their tags are needed."""
        doubtful = {one.vm: None for one in self.observed_vms.values() if not (one.tagged or one.replaced)}
        strangers = self.allocations.strangers(sights, self.strays)
        return [*strangers, *(sight.vm for sight in sights if sight.vm in doubtful)] if doubtful else strangers

    @property
    def audit_wanted(self) -> bool:
        """What the next look at the whole pool shows is waited for."""
        return self.allocations.audit_wanted or bool(self.untagged)

    # -------------------------------------------------------------------------------------------------------- settling

    def settle(self, now: float, due: list[str]) -> None:
        """Look again at all whose case may have changed."""
        ledger = self.ledger
        for fact in ledger.refused:
            self.allocations.refuse(fact)
        ledger.refused.clear()
        self.host_reconciler.site.settle(now, woken=PAUSED in due, waiting=bool(self.blocked.get(PAUSED)))
        if PAUSED in due:
            self.unblock(PAUSED)
        for key in due:
            self.allocations.again(key, now)
            ledger.dirty[key] = None
        for before, key in ledger.rebound.items():
            self._rebind(before, key)
        ledger.rebound.clear()
        self._end_orphans()
        dirty = list(ledger.dirty)
        ledger.dirty.clear()
        for key in dirty:
            self._judge(key, now)
        if ledger.binding:
            self.allocations.bind(now, self)

    def is_idle(self, key: str, aim: Aim) -> bool:
        """It runs, has this aim, and nothing is asked of it."""
        observed = self.observed_vms[key]
        if observed.busy or observed.is_asked_to_end or observed.vm in self.doubted:
            return False
        return observed.phase is Phase.RUNNING and key not in self.evicted and self._is_kept_for(key, aim)

    def may_start(self, key: str, want: Allocate, now: float) -> bool:
        """X3 for a VM that runs already, and waits: beside what is there now, since others that are placed find their own."""
        if not self.host_reconciler.may_start(want.host, want.key) or self.ledger.older_open(want.unit, want.attempt):
            return False
        if not self.ledger.has_room(key, now):
            self._evict(key, now)
            return False
        return True

    def _evict(self, key: str, now: float) -> None:
        """VMs that wait for a job make room."""
        vms = self.custody.state.vms
        for other in self.ledger.in_the_way(key, now):
            if not self.allocations.is_promised(vms[other].vm):
                self.evicted[other] = self.ledger.dirty[other] = None

    def _is_kept_for(self, key: str, aim: Aim) -> bool:
        kept = self.ledger.state.kept.get(key)
        return kept is not None and kept.aim is aim

    def unblock(self, what: str) -> None:
        for key in self.blocked.pop(what, ()):
            self.ledger.dirty[key] = None  # it may be gone by now

    def _judge(self, key: str, now: float) -> None:
        """Put one VM where it belongs now."""
        vm = self.custody.state.vms.get(key)
        observed = self._observed_vm(key, vm)
        if observed is None:
            return
        self._unqueue(observed)
        if observed.busy:
            self.watched[observed.vm] = key
        else:
            self._act(observed, vm, now)

    # ---------------------------------------------------------------------------------------------------- acts: the table

    def aim(self, observed: ObservedVm, now: float) -> Aim:
        if observed.condemned:
            return Aim.KILL
        if observed.said_saved:  # its end is on its way to the journal, which will rely on what is saved
            return Aim.SAVE
        if self.allocations.is_promised(observed.vm) and self._is_kept_for(observed.key, Aim.PARK):
            return Aim.PARK  # … and so is its binding
        aim = self.ledger.aim(observed.key, now)
        return after(aim, Told.EVICTED) if observed.key in self.evicted else aim

    def _act(self, observed: ObservedVm, vm: Vm | None, now: float) -> None:
        """What the table says for this VM."""
        aim = self.aim(observed, now)
        act = ASKED[aim, observed.phase]
        if act is Act.ENDED:
            self._over(observed, now)
        elif self.ledger.is_left_behind(observed.key):
            self.ended[observed.key] = LEFT_BEHIND
        elif act is Act.SAVED:
            self._saved(observed, now)
        elif act in (Act.SOFT, Act.HARD) or aim in (Aim.END, Aim.KILL):
            self._end(observed, act, now)
        elif aim is not Aim.RUN:
            self._keep(observed, act, now)
        elif vm is not None:
            self._run(observed, vm, act, now)

    def _keep(self, observed: ObservedVm, act: Act, now: float) -> None:
        """It is to be saved, or waits for its next place or job."""
        kept, kill_by = self.ledger.state.kept.get(observed.key), self.ledger.state.doomed.get(observed.key)
        for time in (kept.until if kept is not None else None, kill_by):
            if time is not None and now < time < NEVER:
                self.timers.set(time, observed.key)
        if act is Act.SAVE:
            self._save(observed, now)
        elif act is Act.WATCH:
            self.watched[observed.vm] = observed.key

    def _save(self, observed: ObservedVm, now: float) -> None:
        """X7: again and again; its aim's time ends that."""
        self.watched[observed.vm] = observed.key
        again = max(observed.not_before, now if observed.saved_at is None else observed.saved_at + AGAIN_S)
        if again <= now:
            self.saves[observed.key] = None
        else:
            self.timers.set(again, observed.key)

    def _saved(self, observed: ObservedVm, now: float) -> None:
        if observed.vm in self.doubted:
            self._condemn(observed, "a late call may resume it", now)
        else:
            self.ended[observed.key] = f.SUSPENDED

    def _over(self, observed: ObservedVm, now: float) -> None:
        self.doubted.pop(observed.vm, None)
        if self.strays.pop(observed.vm, None) is not None:
            del self.observed_vms[observed.key]
            return
        if observed.condemned or not self.ledger.is_burden(observed.key):
            self.ended[observed.key] = observed.condemned or "vanished"
        else:
            self.ended[observed.key] = self._why_not_kept(observed.key, now) or "terminated"

    def _why_not_kept(self, key: str, now: float) -> str:
        """Why one that waited for a job did not keep waiting; empty for any other."""
        vm, kept = self.custody.state.vms[key], self.ledger.state.kept.get(key)
        if vm.parked_at is None:
            return ""
        host = self.custody.state.hosts.get(vm.host)
        if host is None or host.state != "held":
            return HOST_GONE
        if key in self.evicted:
            return ROOM_NEEDED
        return IDLE if kept is not None and now >= kept.until else ""

    def _run(self, observed: ObservedVm, vm: Vm, act: Act, now: float) -> None:
        """X1 to X3."""
        started = vm.started_at is not None
        if self._is_late(observed, now):
            self._condemn(observed, "not moved in time", now)
        elif act is Act.CONDEMN:
            if (
                not started and observed.phase is Phase.FAILED
            ):  # one that is off may have been too quick to be seen running
                self.host_reconciler.start_failed(observed.host, observed.key, now, observed.why)
            failed = f"failed: {observed.why}" if observed.why else "failed"
            self._condemn(observed, "powered off" if observed.phase is Phase.OFF else failed, now)
        elif act is Act.DOUBT:
            self._doubt(observed, now)
        elif act is Act.STARTED:
            observed.unknown_since = None
            if not started:
                self.started[observed.key] = None
                self.host_reconciler.start_succeeded(observed.host, observed.key, now)
        elif act is Act.MIGRATE and (observed.cold or not self.ledger.migrates_live):
            self._save(observed, now)
        elif act is Act.WATCH or observed.deployed:
            self.watched[observed.vm] = observed.key
        elif now < observed.not_before:
            self.timers.set(observed.not_before, observed.key)
        else:
            self.deploys[observed.key] = None

    def _is_late(self, observed: ObservedVm, now: float) -> bool:
        """It should have left a host by now."""
        leaving = self.ledger.state.leaving.get(observed.key)
        if leaving is None or observed.phase is Phase.RUNNING:
            return False
        if observed.phase is Phase.SAVED and observed.vm not in self.doubted:
            self.ledger.has_left(observed.key)
        if observed.key in self.ledger.away:
            return False
        if now < leaving.by < NEVER:
            self.timers.set(leaving.by, observed.key)
        return now >= leaving.by

    def _condemn(self, observed: ObservedVm, why: str, now: float) -> None:
        observed.condemned = why
        self.host_reconciler.site.came_to_nothing(observed.key, now)
        self._act(observed, None, now)

    def _doubt(self, observed: ObservedVm, now: float) -> None:
        """Its host does not say whether it runs: after stuck_s it is ended, whatever it does."""
        self.watched[observed.vm] = observed.key
        if observed.unknown_since is None:
            observed.unknown_since = now
        until = observed.unknown_since + self.ledger.policy.stuck_s
        if now >= until:
            self._condemn(observed, "unknown to its host", now)
        else:
            self.timers.set(until, observed.key)

    def _end(self, observed: ObservedVm, act: Act, now: float) -> None:
        """X4."""
        self.watched[observed.vm] = observed.key
        if (
            observed.hidden and observed.hard_first is None
        ):  # no order reaches it: its host is lost as if one had been in vain
            if now < self.ledger.kill_by(observed.key, now):
                self.timers.set(self.ledger.kill_by(observed.key, now), observed.key)
            else:
                observed.hard_first = now
        self._watch_stuck(observed, now)
        if act is Act.HARD:
            again = self.hard_again_at(observed, now)
        else:
            asks = act is Act.SOFT and observed.soft_at is None
            again = now if asks else self.ledger.kill_by(observed.key, now)
        again = max(again, observed.not_before) if again <= now else again
        if again <= now:
            self.terminates[observed.key] = None
        else:
            self.timers.set(again, observed.key)

    def hard_again_at(self, observed: ObservedVm, now: float) -> float:
        """When it is to be ended hard (UTC seconds).  OpenNebula takes a second order while it stops the VM, and cancels the
        stop that runs: then none comes before its driver has given up.  One that has come to nothing is repeated soon, after a
        look that was begun AGAIN_S after it: OpenNebula may answer before it changes the VM's state."""
        if observed.hard_at is None:
            return now
        until = observed.hard_at + self.ledger.end_again_s
        if observed.phase is Phase.MOVING:
            return until
        if observed.hard_refusals:
            return observed.hard_at + backoff_s(observed.hard_refusals, AGAIN_S, AGAIN_MAX_S)
        if now < observed.hard_at + AGAIN_S:
            return observed.hard_at + AGAIN_S
        if not observed.rests and observed.rests_from is None:
            observed.rests_from = self.ledger.next_tick()
        return now if observed.rests else until

    def _watch_stuck(self, observed: ObservedVm, now: float) -> None:
        """It outlives hard orders: the hosts where it may be are lost.  If they are, and it was to be elsewhere by now, it is
        left behind: what may still run there has no owner (X6)."""
        if observed.hard_first is None or not observed.host:
            return
        hosts, left = self.custody.state.hosts, self._not_left(observed)
        may_be_on = left if left and not self._may_arrive(observed) else [*left, observed.host]
        may_be_on = [name for name in may_be_on if name in hosts and hosts[name].state != "lost"]
        due = observed.hard_first + self.ledger.policy.stuck_s
        if now < due:
            self.timers.set(due, observed.key)
        elif may_be_on:
            self.stuck.update(dict.fromkeys(may_be_on))
        elif left:
            self.ended[observed.key] = LEFT_BEHIND

    def _not_left(self, observed: ObservedVm) -> list[str]:
        """Hosts that it was to leave, and may be on still."""
        leaving = self.ledger.state.leaving.get(observed.key)
        return [] if leaving is None or observed.key in self.ledger.away else [room.host for room in leaving.rooms]

    # ------------------------------------------------------------------------------------------------------------- calls

    def calls(self, now: float, limit: int) -> list[Call]:
        """At most `limit` calls, which count as in flight from now on.  Ends first: others wait for their capacity."""
        found: list[Call] = []
        while self.terminates and len(found) < limit:
            key = _pop(self.terminates)
            if self._may_be_ordered(key):
                found.append(self._termination(key, now))
        while self.saves and len(found) < limit:
            key = _pop(self.saves)
            if self._may_be_ordered(key):
                found.append(Save(key, self.observed_vms[key].vm))
        while self.deploys and len(found) < limit:
            key = _pop(self.deploys)
            deployment = self._deployment(key, now) if self._may_be_ordered(key) else None
            if deployment is not None:
                found.append(deployment)
        for call in found:
            self.observed_vms[call.key].busy = True  # type: ignore[union-attr]
        found += self.allocations.calls(limit - len(found), now)
        sent = self.ledger.next_tick() if found else 0
        self.sent.update((call.key, sent) for call in found)  # type: ignore[union-attr]
        return found

    def _termination(self, key: str, now: float) -> Terminate:
        observed = self.observed_vms[key]
        return Terminate(key, observed.vm, ASKED[self.aim(observed, now), observed.phase] is Act.HARD)

    def _deployment(self, key: str, now: float) -> Deploy | Migrate | None:
        """The call, if X3 allows it now; else the key waits where it will be found."""
        vm, observed = self.custody.state.vms[key], self.observed_vms[key]
        host = self.custody.state.hosts[vm.host]  # its attempt is live, so the host is held
        if (
            observed.phase is Phase.HELD and host.quarantine_until > now
        ):  # its attempt is better off elsewhere: none is tried
            self._condemn(observed, f"its host is set apart: {host.quarantine}", now)
            return None
        waits_for = ""
        if self.ledger.older_open(vm.unit, vm.attempt):
            waits_for = f"u:{vm.unit}"
        elif not self.host_reconciler.may_start(vm.host, key) or not self.ledger.has_room(key, now):
            waits_for = f"h:{vm.host}"
            self._evict(key, now)
        elif self.host_reconciler.probation.resting_until(vm.host) > now:
            observed.not_before = self.host_reconciler.probation.resting_until(vm.host)
            self.timers.set(observed.not_before, key)
            return None
        elif observed.phase is not Phase.ELSEWHERE and not self.host_reconciler.site.may_start(now):
            waits_for = PAUSED
        if waits_for:
            self.blocked.setdefault(waits_for, {})[key] = None
            return None
        if observed.phase is not Phase.ELSEWHERE:
            self.host_reconciler.site.starts(vm.host, key, now)
        self.host_reconciler.probation.starts(vm.host, key)
        if observed.vm in self.doubted:
            self.doubted[observed.vm] = True
        if observed.phase is Phase.HELD:
            return Deploy(key, vm.vm, vm.host, host.one_id)
        if observed.phase is Phase.ELSEWHERE:
            return Migrate(key, vm.vm, vm.host, host.one_id)
        return Deploy(key, vm.vm, vm.host, host.one_id, resumes=True)

    def result(self, result: Result, now: float) -> None:
        """A call has ended."""
        call = result.call
        sent = self.sent.pop(getattr(call, "key", ""), None)
        if sent is not None and result.outcome not in (Outcome.UNSURE, Outcome.DENIED):
            self.allocations.worked_off(sent)
        if isinstance(call, Allocate):
            self.allocations.result(call, result, now)
            if self.allocations.clashes:
                self.doubt_tags()
                for observed in map(self.observed_vm, self.allocations.clashes):
                    if observed is not None:
                        self._replace(observed)
                self.allocations.clashes.clear()
        elif not isinstance(call, Look):
            observed = self.observed_vms.get(call.key) or self.observed_vm(
                call.vm
            )  # it may be another attempt's by now
            if observed is None:
                return
            observed.busy = False
            observed.heard = self.ledger.next_tick()
            self.ledger.dirty[observed.key] = None
            if isinstance(call, Terminate):
                self._terminated(observed, call, result, now)
            elif isinstance(call, Save):
                self._stopped(observed, result, now)
            else:
                self._deployed(observed, call, result, now)

    def _deployed(self, observed: ObservedVm, call: Deploy | Migrate, result: Result, now: float) -> None:
        observed.one_host = -1
        if result.outcome in (Outcome.DENIED, Outcome.LATER):
            self.host_reconciler.site.came_to_nothing(call.key, now)
            observed.try_later(now, self.timers)
            return
        if result.outcome is Outcome.UNSURE:
            self.host_reconciler.site.came_to_nothing(call.key, now)
            self.doubted.setdefault(observed.vm, False)
        refused = result.outcome in (Outcome.REFUSED, Outcome.GONE)
        if call.key != observed.key:
            return  # it was for an attempt that is over
        if isinstance(call, Migrate) and result.outcome is not Outcome.OK:
            observed.cold = refused
            return
        observed.deployed = True  # also if refused or unsure: the next sight tells
        observed.refused = result.why if refused else ""
        if not refused:
            observed.phase = Phase.MOVING

    def _stopped(self, observed: ObservedVm, result: Result, now: float) -> None:
        observed.deployed = False  # to be seen saved is right from now on
        if result.outcome is Outcome.OK:
            observed.saved_at, observed.failures, observed.phase = now, 0, Phase.MOVING
        else:
            observed.try_later(now, self.timers)

    def _terminated(self, observed: ObservedVm, call: Terminate, result: Result, now: float) -> None:
        observed.locked = result.outcome is Outcome.REFUSED and "locked" in result.why
        if result.outcome is Outcome.GONE:
            observed.phase = Phase.OVER
        elif result.outcome is Outcome.UNSURE and result.failure == Failure.TIMEOUT:  # it waits there, and will be done
            observed.hard_at = now if call.hard else observed.hard_at
            observed.rests_from, observed.rests = None, False
            observed.not_before = now + AGAIN_S
        elif result.outcome in (Outcome.UNSURE, Outcome.DENIED):
            observed.try_later(now, self.timers)
        elif call.hard:
            observed.hard_at, observed.rests_from, observed.rests = now, None, False
            resting = result.outcome is not Outcome.OK and observed.phase is not Phase.MOVING
            observed.hard_refusals = min(REFUSALS_MAX, observed.hard_refusals + 1) if resting else 0
            observed.hard_first = observed.hard_first if observed.hard_first is not None else now
        elif result.outcome is Outcome.OK:
            observed.soft_at = now
        else:  # it is on its way somewhere; its next sight brings it back here
            observed.try_later(now, self.timers)
        if result.outcome is Outcome.OK:
            observed.failures = 0

    # ------------------------------------------------------------------------------------------------------------- facts

    def facts(self) -> list[f.Fact]:
        vms = self.custody.state.vms
        found = [*self.host_reconciler.site.facts(), *self.allocations.facts()]
        found += [f.VmStarted(unit=v.unit, attempt=v.attempt, rank=v.rank) for v in map(vms.__getitem__, self.started)]
        for key, why in self.ended.items():
            vm = vms[key]
            found.append(f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=why))
        return found

    def said(self, facts: list[f.Fact]) -> None:
        """These are written now: what they say of a VM must stay true until they are folded."""
        for fact in facts:
            if isinstance(fact, f.VmEnded) and fact.why == f.SUSPENDED:
                self.observed_vms[vm_key(fact.unit, fact.attempt, fact.rank)].said_saved = True


def _pop(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key
