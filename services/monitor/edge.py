"""The monitor's edge: publishes events, writes the history, serves reads.

Theory of operation
  The fold shows every fact to the publisher and the history: each knows how far its own store has come and skips what that
  holds.  Nothing here can change the fold.

Rules
  1. A snapshot of the fold is saved when history and events are stored up to it, and used if they still are: who has lost
     either folds from the journal's beginning, and both are made again.
  2. Where a history that cannot be written (rule 5 of `history.file`) ends is unknown: the fold continues from its snapshot,
     and no other is saved.  So the journal is not trimmed beyond it either.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import nats.errors
from aiohttp import web
from nats.js.errors import Error as JetStreamError

from schemas import facts as f
from schemas.subjects import JOURNAL_STREAM, OPERATORS, SNAPSHOTS, query
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.exits import Exit, Stop
from services.monitor.core.monitor import MonitorCore
from services.monitor.event_backfill import refill
from services.monitor.events import Publisher
from services.monitor.explain.journal_facts import JournalFacts
from services.monitor.explain.record import Records
from services.monitor.explain.story import Story
from services.monitor.explain.troubled import Troubled
from services.monitor.explain.why import Why
from services.monitor.explain.why_waiting import WhyWaiting
from services.monitor.history.archivist import Archivist
from services.monitor.history.file import COMMIT_S, History, Still
from services.monitor.history.retention import Kept
from services.monitor.history.takeover import take_over
from services.monitor.http import api_pages, page_files
from services.monitor.http.access import COOKIE, Access
from services.monitor.http.audit_reads import AuditReads
from services.monitor.http.audit_routes import AuditRoutes
from services.monitor.http.billable import Billable
from services.monitor.http.denied_connections import RefusedKeys
from services.monitor.http.denied_reads import RefusedReads
from services.monitor.http.history_routes import HistoryReads
from services.monitor.http.origin import Hosts
from services.monitor.http.price_routes import PriceRoutes
from services.monitor.http.queries import Queries
from services.monitor.http.read_queue import InTurn
from services.monitor.http.reads import Reads
from services.monitor.http.session_routes import SessionRoutes
from services.monitor.http.session_store import KeptSessions
from services.monitor.http.sessions import Sessions
from services.monitor.http.stream import Stream
from services.monitor.metrics.certificates import Certificates, endpoints
from services.monitor.metrics.collect import ReadModel
from services.monitor.metrics.headroom import Room
from services.monitor.metrics.scrape import Ports, Scrape
from services.monitor.metrics.token_ends import TokenEnds
from services.monitor.views.levels import Levels
from services.monitor.views.times import not_before
from services.monitor.views.views import Views
from services.runtime.broker.objects import Objects
from services.runtime.callers.audit import Recorder
from services.runtime.callers.identity import Identities
from services.runtime.callers.peers import Peers
from services.runtime.config.tables import Config
from services.runtime.flood_connections import Lines
from services.runtime.http.guard import Guard
from services.runtime.http.server import Site
from services.runtime.log import message_of
from services.runtime.request_queue import Turns
from services.runtime.service import Edge, Service

CLOSE_S: Final = 2.0  # for answers that are being sent
SECURE_S: Final = 5.0  # for events on their way; a snapshot that is not saved now is saved later


class MonitorEdge(Edge):
    """Made before the service, because the core that it watches is made by the service (`make_core`).  `file`: the
    configuration's, which may be rewritten while the monitor runs."""

    def __init__(self, config: Config, file: Path | None = None) -> None:
        self.config, self.file = config, file
        self._runner: web.AppRunner | None = None
        self._closed = False
        self._still: Still | None = None  # as told in the log
        self._publishes = False  # not while the archive is folded
        self._resumed = 0  # position up to which a snapshot stands for the facts

    def make_core(self, custody: Custody) -> MonitorCore:
        """Also a second time, when a snapshot turns out to be of no use."""
        if not hasattr(self, "publisher"):
            self.publisher = Publisher(custody)
            monitor = self.config.monitor
            kept = Kept.of(monitor.history_days, monitor.history_max_mb)
            self.history = History(monitor.history_path, kept, waits=True)
        self.publisher.custody = custody
        self.core = MonitorCore(custody, self._watch)
        return self.core

    def _watch(self, fact: f.Fact, meta: Meta) -> None:
        self.publisher.note(fact, meta)
        self.history.note(self.core, fact, meta)

    async def connected(self, service: Service) -> None:
        self.service = service
        if await take_over(self.config.monitor.history_path, Objects(service.js, SNAPSHOTS)):
            service.log.info("rebuilt history adopted")
        info = await service.js.stream_info(JOURNAL_STREAM)
        self.history.open(str(info.created))
        self._tell_history()
        await self.publisher.resume(service.js)

    def continues(self) -> str:
        """Rules 1 and 2."""
        told = self.core.state.told
        for what, place in (
            ("the history ends", self.history.skip_until),
            ("the events end", self.publisher.published),
        ):
            if place < told:
                return f"{what} at {place[0]}.{place[1]}, before it ({told[0]}.{told[1]})"
        self._resumed = told[0]
        return ""

    async def secured(self, position: int) -> bool:
        """Rules 1 and 2."""
        if self._closed or not await self.history.flush():
            return False
        if not self._publishes and self.publisher.waiting(position):
            return False
        try:
            async with asyncio.timeout(SECURE_S):
                await self.publisher.stored(position)
        except TimeoutError:
            return False
        return True

    async def _refill(self, service: Service) -> None:
        try:
            count = await refill(self.publisher, service.js, self._resumed)
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            service.log.warning("events before the snapshot not read", error=message_of(error))
        else:
            service.log.info("events before the snapshot read", events=count)

    def follow(self, service: Service) -> None:
        self._publishes = True
        service.spawn("history", self._commit())
        service.spawn("events", self._publish())

    async def start(self, service: Service) -> None:
        await self.history.flush()
        if self._resumed:
            await self._refill(service)
        kept = self.config.journal
        self.archivist = Archivist(
            service.nc, service.js, kept.archive, kept.keep_messages, self.config.processes(), service.log
        )
        service.spawn("archive", self.archivist.run())
        views, levels = Views(self.core), Levels(time.monotonic)
        views.measured = levels.job
        self.turns = Turns()
        self.queries = Queries(service.nc, views, self.history)
        self.lines = Lines(service, "queries", self._subjects, self.queries.line(self.turns))
        await self.lines.open()
        service.spawn("reasons", WhyWaiting(self.core, views, self.queries.reasons).run())
        service.spawn("troubles", Troubled(self.core, views, self.queries.troubles).run())
        service.registry.register(ReadModel(self.core, views))
        url, identities = self.config.monitor.url, Identities.load(self.config)
        self._watch_limits(service, identities)
        sessions, peers = Sessions(identities), Peers(self.config.http.proxies)
        self.sessions = KeptSessions(sessions, self.config.data_dir, service.log)
        self.sessions.restore(self.core.custody.state.config)
        self.recorder = Recorder(service.nc.publish, service.log)
        service.spawn("audit", self.recorder.run())
        service.spawn("refused keys", RefusedKeys(self.config, self.recorder.note, service.log).run())
        access = Access(self.core.custody, identities, sessions, f"{COOKIE}_{urlsplit(url).port or 0}")
        now = not_before(self.core.custody)
        self.stream = Stream(self.core, views, self.publisher, access, connected=lambda: service.connected)
        service.spawn("page", self.stream.run())
        reads = Reads(
            self.core,
            views,
            self.history,
            self.publisher,
            access,
            service.registry,
            service.wait_for,
            levels=levels,
            more=[
                *Scrape(self.core.custody, Ports(self.config, self.file)).routes(),
                *HistoryReads(access, self.history, now).routes(),
                *SessionRoutes(access, self.sessions, url, self.recorder.note, peers).routes(),
                *AuditRoutes(access, AuditReads(service.js)).routes(),
                *Billable(access, self.history, self.core.accounting, now).routes(),
                *PriceRoutes(access, self.config.billing.prices).routes(),
                *self.stream.routes(),
                *page_files.routes(),
                *api_pages.routes(self.config.http.url),
                *Records(access, service.nc, service.js, kept.archive, service.log).routes(),
                *Why(access, views, self.history, self.queries, now).routes(),
                *Story(access, views, self.history, JournalFacts(service.js, kept.archive)).routes(),
            ],
            hosts=Hosts(url),
            watch=[RefusedReads(access, self.recorder.note, peers).watch],
            turns=InTurn(access, self.turns, peers),
        )
        self._runner = web.AppRunner(reads.app(), access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        host, _, port = self.config.monitor.listen.rpartition(":")
        await Site(self._runner, host, int(port), Guard(service.log, self.config.http, service.http, peers)).start()
        await levels.subscribe(service)
        service.log.info("reads served", url=self.config.monitor.url)

    def _subjects(self) -> dict[str, list[str]]:
        """What each department asks over NATS."""
        names = [one.name for one in self.core.custody.departments]
        return {name: [query("monitor", name, "*")] for name in (OPERATORS, *names)}

    def applied(self, fact: f.Fact, meta: Meta) -> None:
        if isinstance(fact, f.ConfigAdopted) and meta.void is None and hasattr(self, "lines"):
            self.lines.changed()

    def _watch_limits(self, service: Service, identities: Identities) -> None:
        self.room = Room(service.js, self.config, service.log, still=self._stands_still_since)
        certificates = Certificates(endpoints(self.config), service.log)
        for shown in (self.room, certificates, TokenEnds(identities)):
            service.registry.register(shown)
        service.spawn("room", self.room.run())
        service.spawn("certificates", certificates.run())

    def _stands_still_since(self) -> float:
        still = self.history.still
        return still.since if still is not None else 0.0

    async def _publish(self) -> None:
        await self.publisher.run(self.service.nc, self.service.js, self.service.log)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            if self._closed:  # the task outlives the edge for a moment: it must not write to a closed history
                return
            await self.history.flush()
            self._tell_history()

    def _tell_history(self) -> None:
        """Once when it cannot be written, and once when it can again."""
        still, told, log = self.history.still, self._still, self.service.log
        if still is not None and told is None:
            log.error("history not written", file=str(self.history.path), error=still.why)
        elif still is None and told is not None:
            log.info("history written again", stood_still_s=round(time.time() - told.since, 1))
        self._still = still
        if self.history.again:
            raise Stop(Exit.FAILED, "the history can be written again: the next start folds the missed messages")

    def ailing(self) -> list[str]:
        return [self.history.complaint] if hasattr(self, "history") and self.history.still is not None else []

    async def close(self) -> None:
        self._closed = True
        if self._runner is not None:
            self.stream.close()
            await self._runner.cleanup()
            await self.sessions.keep()
            await self.recorder.flush()
            self.room.close()
            await self.lines.close()
            await self.lines.end()
        await self.history.close()
