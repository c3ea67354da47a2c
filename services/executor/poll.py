"""When OpenNebula is looked at: what is in transition often, whole pools as rarely as their cost asks for.

Theory of operation
  Three polls.  *Targeted*: `vmpool.infoset` of the ids in transition, 20 ms after the last one, slower while nothing happens.
  *Audit*: every VM that is not DONE, each `poll_s`: finds what ended by itself, and what is ours and unknown.  *Hosts*: the
  host pool, each `poll_s`.  Each of the last two takes at most one part in SHARE of the time, however large the pools are.

Rules
  1. A poll gets its ticket before it is begun.
  2. VMs that nobody knows are judged only after their tags were read and the journal was folded to its end as read after that
     (X6).  If either fails, nothing of the whole poll is observed.
  3. A poll that fails is tried again after `poll_s`, or later while OpenNebula is not to be asked at all (`endpoint`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import nats.errors
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_STREAM
from services.executor.calls import HostsSeen, Observation, PoolSeen, Sight, VmsSeen
from services.executor.core import ExecutorCore
from services.executor.endpoint import Endpoint
from services.executor.errors import ERRORS, failure_of
from services.executor.metrics import ExecutorMetrics
from services.executor.opennebula import OpenNebula
from services.executor.site import Site, told
from services.runtime.service import Service

FIRST_S: Final = 0.02  # an infoset of 50 ids takes 3 ms there and 1 ms here
SLOWEST_S: Final = 0.1
SLOWER: Final = 1.25  # each targeted poll in which nothing was asked for
SHARE: Final = 10  # a pool that takes t seconds is not polled again for SHARE · t
HURRY_S: Final = 0.1  # between two polls of a pool that are wanted at once
TAGS_MAX: Final = 200  # ids in one extended infoset: templates are long
END_S: Final = 5.0  # for the journal's end
_FAILED: Final = (*ERRORS, nats.errors.Error, JetStreamError, TimeoutError)
T = TypeVar("T")


class Observer(Protocol):
    def __call__(self, observation: Observation) -> None: ...


class Poller:
    """`observe` is told what was seen."""

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
        self._interval_s = FIRST_S
        self._failing = False

    def hurry(self) -> None:
        """Something was asked of OpenNebula: see soon what became of it."""
        self._interval_s = FIRST_S
        self.kick()

    def kick(self) -> None:
        """There may be something to look at."""
        if self._core.fleet.watched:
            self._watch.set()
        if self._core.audit_wanted or self._core.hosts_wanted:
            self._wanted.set()

    async def watch_forever(self) -> None:
        """The targeted poll."""
        while True:
            ids = self._core.watch_list()
            if not ids:
                self._watch.clear()
                await self._watch.wait()
                continue
            seconds = await self._attempt(lambda ids=ids: self._targeted(ids))  # type: ignore[misc]
            if seconds is None:
                await self._rest()
                continue
            await asyncio.sleep(max(self._interval_s, seconds))
            self._interval_s = min(SLOWEST_S, self._interval_s * SLOWER)

    async def audit_forever(self) -> None:
        """The pools."""
        hosts_due = audit_due = 0.0
        while True:
            now = time.monotonic()
            if now >= hosts_due or self._core.hosts_wanted:
                hosts_due = await self._pool(self._hosts)
            if now >= audit_due or self._core.audit_wanted:
                audit_due = await self._pool(self._audit)
            self._wanted.clear()
            await asyncio.sleep(HURRY_S)
            try:
                async with asyncio.timeout(max(0.0, min(hosts_due, audit_due) - time.monotonic())):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _pool(self, poll: Callable[[], object]) -> float:
        """Do it; returns when it is due again (monotonic seconds)."""
        seconds = await self._attempt(poll)
        if seconds is None:
            await self._rest()
            return time.monotonic()
        return time.monotonic() + max(self._poll_s, SHARE * seconds)

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

    async def _targeted(self, ids: list[int]) -> None:
        ticket = self._core.ticket()
        vms = await self._read("vmpool.infoset", lambda one: one.vms_named(ids))
        self._observe(VmsSeen(ticket, ids, vms))

    async def _hosts(self) -> None:
        ticket = self._core.ticket()
        self._observe(HostsSeen(ticket, await self._read("hostpool.info", lambda one: one.hosts())))

    async def _audit(self) -> None:
        ticket = self._core.ticket()
        vms = await self._read("vmpool.info", lambda one: one.vms())
        strange: list[Sight] = []
        unknown = self._core.strangers(vms)
        for start in range(0, len(unknown), TAGS_MAX):
            part = unknown[start : start + TAGS_MAX]
            strange += await self._read("vmpool.infoset", lambda one, ids=part: one.vms_named(ids, tags=True))  # type: ignore[misc]
        if unknown:
            await self._fold_to_end()
        self._observe(PoolSeen(ticket, vms, strange))

    async def _fold_to_end(self) -> None:
        async with asyncio.timeout(END_S):
            end = (await self._service.js.stream_info(JOURNAL_STREAM)).state.last_seq
        await self._service.wait_for(end, END_S)
