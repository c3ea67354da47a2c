"""Metrics of a shell: counted in plain fields where it happens, turned into Prometheus families on a scrape.

A labelled counter costs about a microsecond an increment; a fold of tens of thousands of facts a second has none to spare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.facts import KIND
from services.runtime import families_shell as fs
from services.runtime.broker.client import MALFORMED
from services.runtime.broker.reply import REPLIES_DROPPED
from services.runtime.callers.audit import LOST
from services.runtime.http.answers import as_asked, made_safe, routed
from services.runtime.http.guard import Counts, Guard
from services.runtime.http.server import Site
from services.runtime.journal.fold import Fold
from services.runtime.refusals import Refusals
from services.runtime.request_queue import REFUSED as TURNS_REFUSED

STOP_TIMEOUT_S: Final = 1.0


class ShellMetrics(Collector):
    """What every service reports about itself.  `fold`: the present one; `levels`: the service's own figures, by family.  Use
    `registry` to add families."""

    def __init__(
        self,
        fold: Callable[[], Fold],
        refusals: Refusals,
        http: Counts,
        levels: Callable[[], Mapping[fs.Level, float]],
    ) -> None:
        self.registry = CollectorRegistry()
        self.append_s, self.decide_s = fs.APPEND_S.live(self.registry), fs.DECIDE_S.live(self.registry)
        self._fold, self._refusals, self._http, self._levels = fold, refusals, http, levels
        self.registry.register(self)
        self.registry.register(REPLIES_DROPPED)
        self.registry.register(LOST)
        self.registry.register(MALFORMED)
        self.registry.register(TURNS_REFUSED)
        ProcessCollector(registry=self.registry)

    def appended(self, seconds: float) -> None:
        self.append_s.observe(seconds)

    def refused(self, reason: str) -> None:
        self._refusals.add(reason)

    def decided(self, seconds: float) -> None:
        self.decide_s.observe(seconds)

    def describe(self) -> Iterable[Metric]:
        return ()  # the fold does not exist yet when this is registered

    def collect(self) -> Iterator[Metric]:
        fold = self._fold()
        applied, void = fs.FACTS_APPLIED.family(), fs.FACTS_VOID.family()
        for cls, count in fold.applied.items():
            applied.add_metric([KIND[cls]], count)
        for (kind, reason), count in fold.voided.items():
            void.add_metric([kind, reason], count)
        refused = fs.APPENDS_REFUSED.family()
        for reason, count in self._refusals.counts.items():
            refused.add_metric([reason], count)
        yield from (applied, void, refused)
        levels: dict[fs.Level, float] = {
            fs.GARBAGE: fold.garbage,
            fs.UNKNOWN: fold.unknown,
            fs.READER_POSITION: fold.position,
            **self._levels(),
            fs.HTTP_CONNECTIONS: self._http.open,
            fs.HTTP_MALFORMED: self._http.malformed,
            fs.HTTP_ACCEPT_ERRORS: self._http.accept_errors,
        }
        for family, value in levels.items():
            yield family.of(value)
        for family, counts in (
            (fs.HTTP_CONNECTIONS_REFUSED, self._http.refused),
            (fs.HTTP_CONNECTIONS_CLOSED, self._http.closed),
        ):
            counter = family.family()
            for label, count in counts.items():
                counter.add_metric([label], count)
            yield counter


class MetricsListener:
    """`GET /metrics` for Prometheus; `GET /healthz` for supervisors: 200 when caught up, else 503."""

    def __init__(self, registry: CollectorRegistry, health: Callable[[], dict[str, object]], guard: Guard) -> None:
        self._registry, self._health, self._guard = registry, health, guard
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (chosen by the system if 0).  OSError if it is taken."""
        app = made_safe(web.Application(middlewares=[as_asked, routed]))
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_TIMEOUT_S)
        await self._runner.setup()
        await Site(self._runner, host, port, self._guard).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            async with asyncio.timeout(STOP_TIMEOUT_S * 2):
                await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        health = self._health()
        if health["caught_up"]:
            return web.json_response(health)
        return web.json_response(health, status=503, headers={"Retry-After": "1"})
