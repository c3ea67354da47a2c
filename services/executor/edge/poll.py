"""When OpenNebula is looked at: what is announced or in transition soon, whole pools as rarely as their cost and the news
allow.

Theory of operation
  Three polls.  *Targeted*: `vmpool.infoset` of the ids that events announced, and of those in transition.  *Audit*: every VM
  that is not DONE: finds what ended by itself, and what is ours and unknown.  *Hosts*: the host pool.  Without an event stream
  the first comes 20 ms after the last one, slower while nothing happens, and each of the others every `poll_s`, but takes at
  most one part in SHARE of the time, however large the pools are.

  With a stream (`events`) that has proved itself (`event_hints`), a change is looked at as it is announced, so polling is only
  the fallback and the audit: what is in transition is polled each WATCH_TRUSTED_S, pools RARER times less often.  Then the cost
  grows with what changes, and not with all VMs.  A stream without events costs nothing: the first poll that finds a change
  that no event announced ends the trust, and everything is polled as without it, at once.

  Of OpenNebula's filters an audit uses the state (not DONE: the pool of all VMs only grows).  Not the owner: one whose owner
  was changed would seem to have gone, and whose VMs the others on a host are would have to be asked one by one (X5, and what
  others use); all it could save is a share of what `pools` leaves of an audit.  `infoset` is a filter, too: for ids we know.

Rules
  1. A poll gets its ticket before it is begun.
  2. Unknown VMs are judged only after their tags were read and the journal was folded to its end as read after that
     (X6).  If either fails, nothing of the whole poll is observed.
  3. A poll that fails is tried again after `poll_s`, or later while OpenNebula is not to be asked at all (`circuit_breaker`).
  4. An event only names a place to look at (`event_hints`, rule 1); what no event announces (a refused call) is looked at
     without one.
  5. Between two targeted polls lies GAP_S, however many events come: a flood of them costs one poll of WATCHED_MAX ids each.
  6. An event about a host is looked into at once; those that follow within HOSTS_GAP_S wait for its end, together: a flood of
     them, or forged, costs no more than polling would.
  7. A VM of ours that a poll lacks is gone only if OpenNebula says of its id that it does not exist, or shows it DONE.  One
     that our user may not see any more is hidden: it may run, so its room is not free, and its job is not started again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import nats.errors
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_STREAM
from services.executor.core.calls import HostsSeen, HostTold, Observation, Phase, PoolSeen, Sample, Sight, VmsSeen
from services.executor.core.executor import ExecutorCore
from services.executor.core.host_reconciler import LOOKS_MAX
from services.executor.core.vm_reconciler import WATCHED_MAX
from services.executor.edge.circuit_breaker import Endpoint
from services.executor.edge.event_hints import GRACE_S, Hearsay
from services.executor.edge.events import Told
from services.executor.edge.metrics import ExecutorMetrics
from services.executor.opennebula.client import OpenNebula, host_reader, vm_reader
from services.executor.opennebula.client_pool import Site, told
from services.executor.opennebula.errors import ERRORS, failure_of
from services.runtime.service import Service

FIRST_S: Final = 0.02  # an infoset of 50 ids takes 3 ms there and 1 ms here
SLOWEST_S: Final = 0.1
# … or this part of poll_s: where steps take seconds, a look each tenth of one sees nothing new
SLOWEST_PART: Final = 10
SLOWER: Final = 1.25  # each targeted poll in which nothing was asked for
HOSTS_GAP_S: Final = 1.0  # poll_s by default: without events the hosts would be looked at as often
HOSTS_TOLD_MAX: Final = LOOKS_MAX + 2  # more hosts than this are looked at by one pool
GAP_S: Final = 0.005  # changes that come together are looked at together
WATCH_TRUSTED_S: Final = 1.0  # for an event that was lost: less than a person notices, a tenth of the polls
RARER: Final = 10  # audits, while events are trusted: what they find was lost by the stream
HOSTS_RARER: Final = 5  # the pool of hosts also says what no event does: labels, a host removed, what others use
SHARE: Final = 10  # a pool that takes t seconds is not polled again for SHARE · t
HURRY_S: Final = 0.1  # between two polls of a pool that are wanted at once
TAGS_MAX: Final = 200  # ids in one extended infoset: templates are long
SAMPLES_S: Final = 5.0  # between two looks at the hosts' monitoring, which OpenNebula renews each 120 s by default
LOOKS_IN_TIME: Final = 4  # of the hosts' monitoring, while one may be silent
END_S: Final = 5.0  # for the journal's end
_FAILED: Final = (*ERRORS, nats.errors.Error, JetStreamError, TimeoutError)
T = TypeVar("T")


class Observer(Protocol):
    def __call__(self, observation: Observation) -> None: ...


class Poller:
    """`observe` receives what was seen.  Also the event stream's listener."""

    def __init__(
        self,
        service: Service,
        site: Site,
        endpoint: Endpoint,
        metrics: ExecutorMetrics,
        poll_s: float,
        observe: Observer,
    ) -> None:
        assert isinstance(service.core, ExecutorCore)
        self._service, self._core, self._site = service, service.core, site
        self._endpoint, self._metrics, self._poll_s, self._observe = endpoint, metrics, poll_s, observe
        self._watch, self._wanted = asyncio.Event(), asyncio.Event()
        self._hearsay = Hearsay()
        self._vms_read, self._hosts_read = vm_reader(), host_reader()
        self._interval_s = FIRST_S
        self._watch_due = 0.0  # monotonic: the next targeted poll of what is in transition
        self._resting = True  # nothing was in transition when last looked at
        self._pools_now = False  # the trust in events is gone
        self._failing = False
        self._sampled_at = float("-inf")
        self._hosts_told: dict[int, None] = {}  # OpenNebula's ids of hosts of which events wait (rule 6)
        self._hosts_passed_at = float("-inf")

    # --------------------------------------------------------------------------------------------------------------- hints

    def told(self, told: Told) -> None:
        """An event."""
        if told.phase is None:
            self._host_told(told.id)
        elif self._core.vm_reconciler.observed_vm(told.id) is None:
            self._metrics.heard("foreign")
        else:
            self._hearsay.told(told.id, told.phase)
            self._note_trust()
            self._watch.set()

    def _host_told(self, one_id: int) -> None:
        """Rule 6."""
        first = not self._hosts_told
        if len(self._hosts_told) < HOSTS_TOLD_MAX:
            self._hosts_told[one_id] = None
        if first:
            wait_s = max(0.0, self._hosts_passed_at + HOSTS_GAP_S - time.monotonic())
            asyncio.get_running_loop().call_later(wait_s, self._pass_hosts_on)

    def _pass_hosts_on(self) -> None:
        self._hosts_passed_at = time.monotonic()
        for one_id in self._hosts_told:
            self._observe(HostTold(one_id))
        self._hosts_told.clear()

    def connection(self, connected: bool) -> None:
        """The event stream has begun, or broken off."""
        trusted = self._hearsay.trusted
        self._hearsay.connection(connected)
        if trusted:
            self._distrust("the event stream of OpenNebula broke off: polling")

    def hurry(self, untold: int = -1) -> None:
        """Something was asked of OpenNebula: see soon what became of it.  `untold`: a VM of which no event will tell."""
        if self._hearsay.trusted:
            if untold >= 0:
                self._hearsay.look_at(untold)
            if self._hearsay.hints:
                self._watch.set()
        else:
            self._interval_s = FIRST_S
            if self._watch_due > time.monotonic() + FIRST_S:
                self._watch_due = time.monotonic() + FIRST_S
                self._watch.set()
        self.kick()

    def kick(self) -> None:
        """There may be something to look at."""
        if self._resting and self._core.vm_reconciler.watched:
            self._resting = False
            self._watch_due = time.monotonic() + (WATCH_TRUSTED_S if self._hearsay.trusted else 0.0)
            self._watch.set()
        if self._core.audit_wanted or self._core.hosts_wanted:
            self._wanted.set()

    # -------------------------------------------------------------------------------------------------- the targeted poll

    async def watch_forever(self) -> None:
        """The targeted poll."""
        while True:
            self._watch.clear()
            now = time.monotonic()
            ids = self._due(now)
            if not ids:
                await _wait(self._watch, self._next(), now)
                continue
            seconds = await self._attempt(lambda ids=ids: self._targeted(ids))  # type: ignore[misc]
            if seconds is None:
                await self._rest()
            else:
                await asyncio.sleep(max(GAP_S, seconds))

    def _due(self, now: float) -> list[int]:
        """The ids to ask for now."""
        ids = self._hearsay.due(now, self._busy, WATCHED_MAX)
        if now < self._watch_due:
            return ids
        watched = self._core.watch_list()
        self._resting = not watched
        if watched:
            self._watch_due = now + (WATCH_TRUSTED_S if self._hearsay.trusted else self._interval_s)
            self._interval_s = min(max(SLOWEST_S, self._poll_s / SLOWEST_PART), self._interval_s * SLOWER)
        return list(dict.fromkeys([*ids, *watched]))[:WATCHED_MAX]

    def _next(self) -> float | None:
        """When something is due (monotonic seconds); None if only news can make it so."""
        times = [] if self._resting else [self._watch_due]
        hinted = self._hearsay.next_due(self._busy)
        return min([*times, *([hinted] if hinted is not None else [])], default=None)

    def _busy(self, vm: int) -> bool:
        observed = self._core.vm_reconciler.observed_vm(vm)
        return observed is not None and observed.busy

    async def _targeted(self, ids: list[int]) -> None:
        ticket = self._core.ticket()
        vms = await self._read("vmpool.infoset", lambda one: one.vms_named(ids))
        there = {sight.vm: None for sight in vms}
        vms = [*vms, *await self._absent([vm for vm in ids if vm not in there])]
        self._compare(ids, vms, ticket)
        self._observe(VmsSeen(ticket, ids, vms))

    async def _absent(self, ids: list[int], again: bool = False) -> list[Sight]:
        """Of those that were not shown, what is there all the same (rule 7).  `again`: those that are known to be hidden are
        asked for, too, as audits do."""
        observed = {vm: self._core.vm_reconciler.observed_vm(vm) for vm in ids}
        known = [vm for vm, one in observed.items() if one is not None and one.hidden and not again]
        unknown = [vm for vm in ids if vm not in known]
        found = await self._read("vm.info", lambda one: one.absent(unknown)) if unknown else []
        return [*found, *(Sight(vm, Phase.UNKNOWN, hidden=True) for vm in known)]

    async def _lacking(self, vms: list[Sight]) -> list[Sight]:
        """Of ours that the pool lacks: most are DONE, which the pool does not show."""
        found: list[Sight] = []
        ids = self._core.vm_reconciler.lacking(vms)
        for start in range(0, len(ids), WATCHED_MAX):
            part = ids[start : start + WATCHED_MAX]
            found += await self._read("vmpool.infoset", lambda one, ids=part: one.vms_named(ids))  # type: ignore[misc]
        there = {sight.vm: None for sight in found}
        return [*found, *await self._absent([vm for vm in ids if vm not in there], again=True)]

    # ------------------------------------------------------------------------------------------------- how far to trust

    def _compare(self, asked: Iterable[int], vms: list[Sight], ticket: int) -> None:
        """Before it is observed: was what has changed told?"""
        hearsay, now = self._hearsay, time.monotonic()
        if not (hearsay.connected or hearsay.hints):
            return
        there = {sight.vm: sight.phase for sight in vms}
        for vm in asked:
            observed = self._core.vm_reconciler.observed_vm(vm)
            if observed is None:
                hearsay.forget(vm)
            elif not observed.busy and ticket >= observed.heard:
                phase = there.get(vm, Phase.OVER)
                known = Phase.RUNNING if observed.phase is Phase.ELSEWHERE else observed.phase
                if known is not None and known is not phase:
                    hearsay.changed(vm, phase, now)
                hearsay.looked(vm, phase, now)
        self._note_trust()
        if hearsay.owed:
            asyncio.get_running_loop().call_later(GRACE_S, self._look_back)

    def _look_back(self) -> None:
        """A change was found a while ago: its event should have come by now."""
        trusted, missed = self._hearsay.trusted, self._hearsay.missed
        if not self._hearsay.overdue(time.monotonic()):
            return
        self._metrics.heard("missed", self._hearsay.missed - missed)
        if trusted:
            self._distrust("the event stream of OpenNebula has lost events: polling")

    def _distrust(self, why: str) -> None:
        self._service.log.warning(why)
        self._note_trust()
        self._interval_s, self._watch_due, self._pools_now = FIRST_S, 0.0, True
        self._watch.set()
        self._wanted.set()

    def _note_trust(self) -> None:
        self._metrics.events_trusted = self._hearsay.trusted

    # ---------------------------------------------------------------------------------------------------------- the pools

    async def audit_forever(self) -> None:
        """The pools."""
        hosts_due = audit_due = 0.0
        while True:
            now = time.monotonic()
            if self._pools_now:
                hosts_due, audit_due, self._pools_now = now, now, False
            if now >= hosts_due or self._core.hosts_wanted:
                hosts_due = await self._pool(self._hosts, HOSTS_RARER)
            if now >= audit_due or self._core.audit_wanted:
                audit_due = await self._pool(self._audit, RARER)
            self._wanted.clear()
            await asyncio.sleep(HURRY_S)
            await _wait(self._wanted, min(hosts_due, audit_due), time.monotonic())

    async def _pool(self, poll: Callable[[], object], rarer: int) -> float:
        """Do it; returns when it is due again (monotonic seconds)."""
        seconds = await self._attempt(poll)
        if seconds is None:
            await self._rest()
            return time.monotonic()
        every_s = self._poll_s * (rarer if self._hearsay.trusted else 1)
        return time.monotonic() + max(every_s, SHARE * seconds)

    async def _hosts(self) -> None:
        ticket = self._core.ticket()
        hosts = await self._read("hostpool.info", lambda one: one.hosts(self._hosts_read))
        samples: dict[int, Sample] = {}
        if time.monotonic() >= self._sampled_at + self._samples_s():
            self._sampled_at = time.monotonic()
            samples = await self._read("hostpool.monitoring", lambda one: one.samples())
        self._observe(HostsSeen(ticket, hosts, samples))

    def _samples_s(self) -> float:
        """Often enough that a sample that is late here is late there."""
        late_s = self._core.host_reconciler.rules.monitor_late_s
        return min(SAMPLES_S, late_s / LOOKS_IN_TIME) if late_s else SAMPLES_S

    async def _audit(self) -> None:
        ticket = self._core.ticket()
        vms = await self._read("vmpool.info", lambda one: one.vms(self._vms_read))
        vms = [*vms, *await self._lacking(vms)]
        strange: list[Sight] = []
        unknown = self._core.strangers(vms)
        for start in range(0, len(unknown), TAGS_MAX):
            part = unknown[start : start + TAGS_MAX]
            strange += await self._read("vmpool.infoset", lambda one, ids=part: one.vms_named(ids, tags=True))  # type: ignore[misc]
        if unknown:
            await self._fold_to_end()
        self._compare([observed.vm for observed in self._core.vm_reconciler.observed_vms.values()], vms, ticket)
        self._observe(PoolSeen(ticket, vms, strange))

    async def _fold_to_end(self) -> None:
        async with asyncio.timeout(END_S):
            end = (await self._service.js.stream_info(JOURNAL_STREAM)).state.last_seq
        await self._service.wait_for(end, END_S)

    # ------------------------------------------------------------------------------------------------------------ asking

    async def _rest(self) -> None:
        """After a failure; in pieces, since a login that was mended ends the pause."""
        left_s = self._poll_s
        while left_s > 0:
            await asyncio.sleep(min(self._poll_s, left_s))
            left_s = self._endpoint.paused_s()

    async def _attempt(self, poll: Callable[[], object]) -> float | None:
        """Run one poll; its seconds, or None if it failed."""
        began = time.monotonic()
        try:
            await poll()  # type: ignore[misc]
        except _FAILED as error:
            if not self._failing and not isinstance(error, ERRORS):
                self._service.log.warning("OpenNebula cannot be polled", error=str(error)[:300] or type(error).__name__)
                self._failing = True
            return None
        if self._failing:
            self._service.log.info("OpenNebula is polled again")
            self._failing = False
        return time.monotonic() - began

    async def _read(self, method: str, work: Callable[[OpenNebula], T]) -> T:
        began = time.monotonic()
        try:
            answer = await self._site.read(work)
        except ERRORS as error:
            failure = failure_of(error)
            self._metrics.called(method, "failed", time.monotonic() - began)
            self._endpoint.failed(failure, method, told(error))
            raise
        self._metrics.called(method, "ok", time.monotonic() - began)
        self._endpoint.answered(method)
        return answer


async def _wait(event: asyncio.Event, until: float | None, now: float) -> None:
    """Until it is set, or `until` (monotonic seconds)."""
    try:
        async with asyncio.timeout(None if until is None else max(0.0, until - now)):
            await event.wait()
    except TimeoutError:
        return
