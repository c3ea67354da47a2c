"""The hosts: which facts follow from OpenNebula's answers about them, and when one may be cleared (X5).

Theory of operation
  A host's case is looked at again when a fact about it, a poll or a time concerns it; `news` names those.  What OpenNebula
  reports of a host, judged (`seen`, by `host_health`), is compared with custody; where they differ, a fact
  follows.

Rules
  1. Not seen, usable: described.  Described otherwise than seen: described again.
  2. Error, offline, late for too long in OpenNebula, or gone: a host in use is lost.  The same name with another id is another
     host: lost first.
  3. Gone, without holder, and without open VMs: removed.  So is one that the configuration leaves out, once it has no holder.
  4. Draining, lost or absent: cleared only if it is usable, or only set apart, no VM journaled for it is open, and a look
     begun after the last fact about it, or about a VM on it, has shown none of ours (X5).  A look is one `host.info`; where
     many hosts wait, a pool.
     VMs of others do not count, also those that our user may not see (`hidden_vms`).
  5. Set apart (disabled, late, left out, filled by others: `host_health`): `host.quarantined` for as good as ever, and for
     nothing when that is over.  What runs there continues; it is not granted and nothing is placed there.
  6. What a host really uses is reported when that has changed permanently: `utilisation_reports`.
  7. Starts that fail again and again: `probation`; on most hosts at once: `site_fault`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import Hosts
from schemas.dimensions import under
from schemas.ids import HOST
from schemas.size import NOTHING
from services.domain.custody.state import Host
from services.executor.core.calls import HostSight, HostsSeen, Look, Outcome, Result, Sample
from services.executor.core.hidden_vms import HiddenVms
from services.executor.core.host_health import EXCLUDED, LATE, STANDING, HostHealth, offers
from services.executor.core.ledger import Ledger, Room
from services.executor.core.probation import NO_ROOM, Probation
from services.executor.core.site_fault import SiteFault
from services.executor.core.timers import Timers
from services.executor.core.utilisation_reports import UtilisationReports

# more hosts than this are looked at by one pool: a host.info takes 1.5 ms, a pool of 1,000 hosts 44 ms
LOOKS_MAX: Final = 16
LOOK_AGAIN_S: Final = 0.25  # something of ours is still there, or the call failed
FOR_GOOD_S: Final = 3650 * 86_400.0  # ten years: until OpenNebula says otherwise
TIMER: Final = "@"  # names of hosts among the timers begin so
_IN_USE: Final = ("free", "held", "draining")
_TO_CLEAR: Final = ("draining", "lost", "absent")
_REMOVABLE: Final = ("free", "lost", "absent")
_NOTHING: Final = Room(NOTHING)
_DEFAULT: Final = Hosts()  # until a configuration is adopted


class HostReconciler:
    def __init__(self, ledger: Ledger, timers: Timers) -> None:
        self.ledger, self.timers = ledger, timers
        self.custody = ledger.custody
        self.polled = self.pool_wanted = self.suspicious = False  # the last: a look showed unknown VMs
        self.seen: dict[str, HostSight] = {}
        self.news: dict[str, None] = {}
        self.empty: dict[str, int] = {}  # host -> ticket of the look that showed none of ours
        self.looks: dict[str, int] = {}  # hosts that need one -> since which tick
        self.looking: dict[str, int] = {}  # in flight -> ticket
        self.not_before: dict[str, float] = {}
        self.health, self.probation, self.utilisation = (
            HostHealth(),
            Probation(ledger.custody),
            UtilisationReports(ledger),
        )
        self.site = SiteFault(ledger, timers)
        self.hidden = HiddenVms()
        self.ignored: dict[str, None] = {}  # names that no subject or label could carry

    def is_usable(self, name: str) -> bool:
        """OpenNebula says so, of the host that custody knows by this name."""
        seen, known = self.seen.get(name), self.custody.state.hosts.get(name)
        return seen is not None and known is not None and seen.usable and seen.one_id == known.one_id

    @property
    def rules(self) -> Hosts:
        config = self.custody.state.config
        return config.hosts if config is not None else _DEFAULT

    def may_start(self, name: str, key: str) -> bool:
        """It is usable, and not trying another one on probation."""
        return self.is_usable(name) and self.probation.may_start(name, key)

    def start_failed(self, name: str, key: str, now: float, why: str = "") -> bool:
        """True if that is the site's fault: then no host is blamed for it, and none that failed in the same storm."""
        before = self.site.on
        if NO_ROOM in why:
            self.site.came_to_nothing(key, now)
        elif self.site.failed(name, key, why, now):
            if not before:
                for host in self.site.hosts():
                    self.probation.forgive(host, now - self.site.window_s)
                    self._tell(host)
            return True
        self.probation.failed(name, now, self.rules, why)
        self._tell(name)
        return False

    def start_succeeded(self, name: str, key: str, now: float) -> None:
        self.site.succeeded(name, key, now)
        if self.probation.succeeded(name):
            self._tell(name)

    def _tell(self, name: str) -> None:
        """Facts may follow, and attempts that wait there may continue."""
        self.news[name] = None
        self.ledger.freed[f"h:{name}"] = None

    # ------------------------------------------------------------------------------------------------------------ seeing

    def see_pool(self, pool: HostsSeen, now: float, ours: dict[int, str], foreign: dict[int, None]) -> None:
        """All hosts that OpenNebula has.  `ours`: ids of VMs that are ours, by whatever key; `foreign`: ids that are not."""
        now_there: dict[str, HostSight] = {}
        unusable: dict[str, None] = {}
        for sight in pool.hosts:
            if HOST.match(sight.name):
                sample = pool.samples.get(sight.one_id)
                if sample is not None:
                    self.health.sampled(sight.name, sample, now)
                    self._sampled(sight, sample, now)
                now_there[sight.name] = self._appraised(sight, now, pool.ticket, ours, foreign)
            else:
                unusable[sight.name] = None
        for name in [*now_there, *self.seen, *(() if self.polled else self.custody.state.hosts)]:
            if self._differs(self.seen.get(name), now_there.get(name)) or not self.polled:
                self._tell(name)
            if name not in now_there:
                self.health.forget(name)
                self.utilisation.forget(name)
        self.seen, self.polled, self.pool_wanted = now_there, True, False
        self.ignored = unusable
        self.hidden.forget(vm for sight in now_there.values() for vm in sight.vms)
        self.looks = {name: tick for name, tick in self.looks.items() if name in now_there and tick > pool.ticket}
        for name in [n for state in _TO_CLEAR for n in self.custody.index.by_state[state]]:
            seen = now_there.get(name)
            if seen is not None:
                self._note(name, seen.vms, pool.ticket, ours, foreign)

    def _sampled(self, sight: HostSight, sample: Sample, now: float) -> None:
        """What it really uses of what is there."""
        size = sight.size
        if offers(size):
            cpu, memory = sample.used_cpu / (100 * size.cores), sample.used_memory_kb / (1024 * size.memory_mb)
            if self.utilisation.sampled(sight.name, cpu, memory, sample.at, now):
                self.news[sight.name] = None

    def _appraised(
        self, sight: HostSight, now: float, ticket: int, ours: dict[int, str], foreign: dict[int, None]
    ) -> HostSight:
        """The sight as `host_health` has it."""
        unknown = [vm for vm in sight.vms if vm not in ours and vm not in foreign]
        if unknown and self.hidden.listed(unknown, ticket, self.ledger.next_tick()):
            self.suspicious = True
        hidden = self.hidden.hidden
        host, rooms = self.custody.state.hosts.get(sight.name), self.ledger.state.rooms
        same = host if host is not None and host.one_id == sight.one_id else None
        before = same.size if same is not None else None
        was_late = same is not None and same.quarantine == LATE and same.quarantine_until > now

        def room(vm: int) -> Room | None:
            if vm in foreign or vm in hidden or self._was_moved_here(ours.get(vm, ""), sight.name):
                return _NOTHING
            return rooms.get(ours.get(vm, ""))

        others = same.others if same is not None else NOTHING
        seen, counted = self.health.of(sight, self.rules, now, room, before, was_late, others), self.custody.state.rules
        return msgspec.structs.replace(seen, size=under(seen.size, counted), others=under(seen.others, counted))

    def _was_moved_here(self, key: str, name: str) -> bool:
        """A person has migrated this VM of ours to the host `name`: custody counts it where it was placed, so here its room is
        one more that is not offered."""
        state = self.ledger.state
        room, leaving = state.rooms.get(key), state.leaving.get(key)
        if room is None or room.host == name:
            return False
        return leaving is None or all(left.host != name for left in leaving.rooms)

    @staticmethod
    def _differs(before: HostSight | None, after: HostSight | None) -> bool:
        if before is None or after is None:
            return before is not after
        return _about(before) != _about(after)

    def _note(
        self, name: str, vms: tuple[int, ...], ticket: int, ours: dict[int, str], foreign: dict[int, None]
    ) -> None:
        """A look at one host: is anything there that is ours, or may be?"""
        others = [vm for vm in vms if vm not in foreign and vm not in self.hidden.hidden]
        if any(vm not in ours for vm in others):
            self.suspicious = True
        if not others:
            self.empty[name] = ticket
        if self.looks.get(name, ticket) <= ticket:  # else it has changed since
            self.looks.pop(name, None)
        self.news[name] = None

    def audited(self, there: dict[int, None], ticket: int) -> None:
        """All VMs that OpenNebula shows: hosts that list others are looked at once more (`hidden_vms`)."""
        lacking = dict.fromkeys(self.hidden.audited(there, ticket, self.ledger.next_tick()))
        if lacking:
            for name, sight in self.seen.items():
                if any(vm in lacking for vm in sight.vms):
                    self.looks[name] = self.ledger.next_tick()

    def told(self, one_id: int) -> None:
        """A hint that this host has changed.  The truth comes from a look, or from a pool if the host is unknown."""
        name = next((n for n, sight in self.seen.items() if sight.one_id == one_id), None)
        if name is None:
            self.pool_wanted = True
        else:
            self.looks[name] = self.ledger.next_tick()

    def looked(self, result: Result, now: float, ours: dict[int, str], foreign: dict[int, None]) -> None:
        """The answer to a look."""
        assert isinstance(result.call, Look)
        name = result.call.host
        ticket = self.looking.pop(name)
        if result.outcome is Outcome.OK and result.found is not None and result.found.name == name:
            before = self.seen.get(name)
            self.seen[name] = found = self._appraised(result.found, now, ticket, ours, foreign)
            if self._differs(before, found):
                self.ledger.freed[f"h:{name}"] = None
            self._note(name, result.found.vms, ticket, ours, foreign)
        else:
            self.pool_wanted = self.pool_wanted or result.outcome is Outcome.GONE
            self.news[name] = None
        if self.empty.get(name) != ticket:
            self.not_before[name] = now + LOOK_AGAIN_S

    # ------------------------------------------------------------------------------------------------------------- calls

    def calls(self, limit: int) -> list[Look]:
        """At most `limit` looks, which count as in flight from now on."""
        if len(self.looks) > LOOKS_MAX:
            self.pool_wanted = True
            return []
        found = []
        for name in [n for n in self.looks if n not in self.looking and n in self.seen][:limit]:
            self.looking[name] = self.ledger.next_tick()
            del self.looks[name]
            found.append(Look(name, self.seen[name].one_id))
        return found

    # ------------------------------------------------------------------------------------------------------------- facts

    def facts(self, now: float) -> list[f.Fact]:
        """What follows for the hosts in `news`; those whose case rests leave it."""
        if not self.polled:
            return []
        found: list[f.Fact] = []
        for name in list(self.news):
            facts = self._case(name, now)
            found += facts
            if not facts:
                del self.news[name]
        return found

    def _case(self, name: str, now: float) -> list[f.Fact]:
        host, seen = self.custody.state.hosts.get(name), self.seen.get(name)
        if seen is None:
            return [] if host is None else self._gone(host)
        if host is None:
            return [_describe(seen)] if seen.usable and offers(seen.size) else []
        if host.state in _IN_USE and host.one_id != seen.one_id:
            return [f.HostLost(host=name, reason="replaced")]
        if seen.apart == EXCLUDED and host.state in _REMOVABLE and self.ledger.is_left(name):
            return [f.HostRemoved(host=name)]
        if seen.bad:
            return [f.HostLost(host=name, reason=seen.bad)] if host.state in _IN_USE else []
        told = self._set_apart(host, seen, now) or self.probation.fact(host)
        if told is not None:
            return [told]
        if not (seen.usable and offers(seen.size)) and not seen.apart:
            return []
        if _described(host) != _about(seen)[1:]:
            return [_describe(seen)]
        if host.state in _TO_CLEAR and seen.apart != LATE:
            return self._clear(host, now)
        observed = self.utilisation.fact(name, now)
        return [] if observed is None else [observed]

    @staticmethod
    def _set_apart(host: Host, seen: HostSight, now: float) -> f.HostQuarantined | None:
        """Rule 5."""
        standing = host.quarantine if host.quarantine in STANDING and host.quarantine_until > now else ""
        if seen.apart == (standing or ""):
            return None
        if seen.apart:
            return f.HostQuarantined(host=host.name, reason=seen.apart, until=now + FOR_GOOD_S)
        return f.HostQuarantined(host=host.name, reason=f"no longer {standing}", until=0.0)

    def _gone(self, host: Host) -> list[f.Fact]:
        if host.state in ("held", "draining"):
            return [f.HostLost(host=host.name, reason="removed")]
        if not self.ledger.is_left(host.name):
            return []  # its VMs are on their way out; their end is news
        self.empty.pop(host.name, None)
        return [f.HostRemoved(host=host.name)]

    def _clear(self, host: Host, now: float) -> list[f.Fact]:
        """X5."""
        name = host.name
        if not self.ledger.is_left(name):
            return []
        if self.empty.get(name, 0) > self.ledger.touched.get(name, 0):
            return [f.HostCleared(host=name)]
        if name in self.looking:
            return []
        if self.not_before.get(name, 0.0) > now:
            self.timers.set(self.not_before[name], TIMER + name)
        else:
            self.looks.setdefault(name, self.ledger.next_tick())
        return []


def _about(sight: HostSight) -> tuple[object, ...]:
    """What matters of a host beside its VMs."""
    usable = (sight.usable, sight.bad, sight.apart)
    return usable, sight.one_id, sight.size, sight.labels, sight.cluster, sight.others


def _described(host: Host) -> tuple[object, ...]:
    return host.one_id, host.size, host.labels, host.cluster, host.others


def _describe(sight: HostSight) -> f.HostDescribed:
    return f.HostDescribed(
        host=sight.name,
        one_id=sight.one_id,
        **sight.size.fields(),
        labels=sight.labels,
        cluster=sight.cluster,
        others={field: number for field, number in sight.others.fields().items() if number},
    )
