"""The hosts: which facts follow from what OpenNebula says of them, and when one may be cleared (X5).

Theory of operation
  A host's case is looked at again when a fact about it, a poll or a time concerns it; `news` names those.  What OpenNebula
  says of a host (`seen`) is compared with what custody says of it; where they differ, a fact follows.

Rules
  1. Not seen, usable: described.  Described otherwise than seen: described anew.
  2. Error, offline or disabled in OpenNebula, or gone: a host in use is lost.  (A disabled host loses its jobs; who wants to
     empty one gently cordons it.)  The same name with another id is another host: lost first.
  3. Gone, and nobody's, and without open VMs: removed.
  4. Draining, lost or absent: cleared only if it is usable, no VM journaled for it is open, and a look begun after the last
     fact about it, or about a VM on it, has shown none of ours (X5).  A look is one `host.info`; where many hosts wait, a pool.
  5. After a failed start a host rests, longer with each in a row, so that a broken host does not eat attempts by the hundred;
     from the third on it is quarantined: not granted while free, and marked for whoever holds it.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.custody_state import Host
from schemas.ids import HOST
from services.executor.calls import HostSight, Look, Outcome, Result
from services.executor.ledger import Ledger
from services.executor.timers import Timers, backoff_s

LOOKS_MAX: Final = (
    16  # more hosts than this are looked at by one pool: a host.info takes 1.5 ms, a pool of 1,000 hosts 44 ms
)
LOOK_AGAIN_S: Final = 0.25  # something of ours is still there, or the call failed
REST_S: Final = 0.5  # after a failed start; doubles
REST_MAX_S: Final = 10.0
QUARANTINE_AFTER: Final = 3  # failed starts in a row: one may be the VM's fault, three are the host's
QUARANTINE_S: Final = 60.0
TIMER: Final = "@"  # names of hosts among the timers begin so
_IN_USE: Final = ("free", "held", "draining")
_TO_CLEAR: Final = ("draining", "lost", "absent")


class HostDesk:
    def __init__(self, ledger: Ledger, timers: Timers) -> None:
        self.ledger, self.timers = ledger, timers
        self.custody = ledger.custody
        self.polled = False
        self.pool_wanted = False
        self.seen: dict[str, HostSight] = {}
        self.news: dict[str, None] = {}
        self.empty: dict[str, int] = {}  # host -> ticket of the look that showed none of ours
        self.looks: dict[str, None] = {}  # hosts that need one
        self.looking: dict[str, int] = {}  # in flight -> ticket
        self.not_before: dict[str, float] = {}
        self.rests: dict[str, tuple[int, float]] = {}  # host -> failed starts in a row, until when it rests
        self.quarantines: dict[str, float] = {}  # host -> until when; to be written
        self.ignored: dict[str, None] = {}  # names that no subject or label could carry
        self.suspicious = False  # a look showed VMs that nobody knows: an audit is wanted

    def is_usable(self, name: str) -> bool:
        """OpenNebula says so, of the host that custody knows by this name."""
        seen, known = self.seen.get(name), self.custody.state.hosts.get(name)
        return seen is not None and known is not None and seen.usable and seen.one_id == known.one_id

    def resting_until(self, name: str) -> float:
        return self.rests.get(name, (0, 0.0))[1]

    def start_failed(self, name: str, now: float) -> None:
        failures = self.rests.get(name, (0, 0.0))[0] + 1
        self.rests[name] = failures, now + backoff_s(failures, REST_S, REST_MAX_S)
        if failures >= QUARANTINE_AFTER:
            self.quarantines[name] = now + QUARANTINE_S
            self.news[name] = None

    def start_succeeded(self, name: str) -> None:
        self.rests.pop(name, None)

    # ------------------------------------------------------------------------------------------------------------ seeing

    def see_pool(self, hosts: list[HostSight], ticket: int, ours: dict[int, str], foreign: dict[int, None]) -> None:
        """All hosts that OpenNebula has.  `ours`: ids of VMs that are ours, by whatever key; `foreign`: ids that are not."""
        now_there: dict[str, HostSight] = {}
        for sight in hosts:
            if HOST.match(sight.name):
                now_there[sight.name] = sight
            else:
                self.ignored[sight.name] = None
        for name in [*now_there, *self.seen, *(() if self.polled else self.custody.state.hosts)]:
            if self._differs(self.seen.get(name), now_there.get(name)) or not self.polled:
                self.news[name] = None
                self.ledger.freed[f"h:{name}"] = None
        self.seen, self.polled, self.pool_wanted = now_there, True, False
        for name in [n for state in _TO_CLEAR for n in self.custody.index.by_state[state]]:
            seen = now_there.get(name)
            if seen is not None:
                self._note(name, seen.vms, ticket, ours, foreign)

    @staticmethod
    def _differs(before: HostSight | None, after: HostSight | None) -> bool:
        if before is None or after is None:
            return before is not after
        return _about(before) != _about(after)

    def _note(
        self, name: str, vms: tuple[int, ...], ticket: int, ours: dict[int, str], foreign: dict[int, None]
    ) -> None:
        """A look at one host: is anything there that is ours, or may be?"""
        others = [vm for vm in vms if vm not in foreign]
        if any(vm not in ours for vm in others):
            self.suspicious = True
        if not others:
            self.empty[name] = ticket
        self.looks.pop(name, None)
        self.news[name] = None

    def told(self, one_id: int) -> None:
        """Somebody says that this host has changed.  What is so, a look says, or a pool if nobody knows the host."""
        name = next((n for n, sight in self.seen.items() if sight.one_id == one_id), None)
        if name is None or len(self.looks) > LOOKS_MAX:
            self.pool_wanted = True
        else:
            self.looks[name] = None

    def looked(self, result: Result, now: float, ours: dict[int, str], foreign: dict[int, None]) -> None:
        """The answer to a look."""
        assert isinstance(result.call, Look)
        name = result.call.host
        ticket = self.looking.pop(name)
        if result.outcome is Outcome.OK and result.found is not None and result.found.name == name:
            before = self.seen.get(name)
            self.seen[name] = result.found
            if self._differs(before, result.found):
                self.ledger.freed[f"h:{name}"] = None
            self._note(name, result.found.vms, ticket, ours, foreign)
        else:
            self.pool_wanted = self.pool_wanted or result.outcome is Outcome.GONE
            self.news[name] = None
        if self.empty.get(name, -1) != ticket:
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
        if host is not None and name in self.quarantines and self.quarantines[name] > host.quarantine_until:
            return [f.HostQuarantined(host=name, reason="starts failed", until=self.quarantines[name])]
        self.quarantines.pop(name, None)
        in_use = host is not None and host.state in _IN_USE
        if host is not None and in_use and host.one_id != seen.one_id:
            return [f.HostLost(host=name, reason="replaced")]
        if seen.bad:
            return [f.HostLost(host=name, reason=seen.bad)] if in_use else []
        if not seen.usable or seen.cores <= 0 or seen.memory_mb <= 0:
            return []
        if host is None or _described(host) != _about(seen)[1:]:
            return [_describe(seen)]
        return self._clear(host, now) if host.state in _TO_CLEAR else []

    def _gone(self, host: Host) -> list[f.Fact]:
        if host.state in ("held", "draining"):
            return [f.HostLost(host=host.name, reason="removed")]
        if host.name in self.ledger.by_host:
            return []  # its VMs are on their way out; their end is news
        self.empty.pop(host.name, None)
        return [f.HostRemoved(host=host.name)]

    def _clear(self, host: Host, now: float) -> list[f.Fact]:
        """X5."""
        name = host.name
        if name in self.ledger.by_host:
            return []
        if self.empty.get(name, -1) > self.ledger.touched.get(name, 0):
            return [f.HostCleared(host=name)]
        if name in self.looking:
            return []
        if self.not_before.get(name, 0.0) > now:
            self.timers.set(self.not_before[name], TIMER + name)
        else:
            self.looks[name] = None
        return []


def _about(sight: HostSight) -> tuple[object, ...]:
    """What matters of a host beside its VMs."""
    usable = (sight.usable, sight.bad)
    return usable, sight.one_id, sight.cores, sight.memory_mb, sight.labels, sight.cluster


def _described(host: Host) -> tuple[object, ...]:
    return host.one_id, host.cores, host.memory_mb, host.labels, host.cluster


def _describe(sight: HostSight) -> f.HostDescribed:
    return f.HostDescribed(
        host=sight.name,
        one_id=sight.one_id,
        cores=sight.cores,
        memory_mb=sight.memory_mb,
        labels=sight.labels,
        cluster=sight.cluster,
    )
