"""Metrics of a shell: counted in plain fields where it happens, turned into Prometheus families when somebody asks.

A labelled counter costs about a microsecond an increment; a fold of tens of thousands of facts a second has none to spare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.facts import KIND
from services.runtime.answer import REPLIES_DROPPED

if TYPE_CHECKING:
    from services.runtime.service import Service

STOP_TIMEOUT_S: Final = 1.0
_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class ShellMetrics(Collector):
    """What every service tells about itself.  Use `registry` to add a service's own."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self.append_s = self._histogram(
            "phoenix_journal_append_seconds", "From sending an envelope until it was folded"
        )
        self.decide_s = self._histogram("phoenix_decide_seconds", "One run of the core's decide")
        self._service = service
        self.registry.register(self)
        self.registry.register(REPLIES_DROPPED)

    def appended(self, seconds: float) -> None:
        self.append_s.observe(seconds)

    def decided(self, seconds: float) -> None:
        self.decide_s.observe(seconds)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, registry=self.registry, buckets=_SECONDS)

    def describe(self) -> Iterable[Metric]:
        return ()  # the fold does not exist yet when this is registered

    def collect(self) -> Iterator[Metric]:
        shell, fold = self._service, self._service.fold
        applied = CounterMetricFamily("phoenix_facts_applied", "Valid facts folded", labels=["kind"])
        for cls, count in fold.applied.items():
            applied.add_metric([KIND[cls]], count)
        yield applied
        void = CounterMetricFamily("phoenix_facts_void", "Void facts folded", labels=["kind", "reason"])
        for (kind, reason), count in fold.voided.items():
            void.add_metric([kind, reason], count)
        yield void
        for name, text, count in (
            ("phoenix_garbage", "Journal messages that are no envelope of their writer", fold.garbage),
            ("phoenix_facts_unknown", "Facts of kinds that this version does not know", fold.unknown),
            ("phoenix_leader_changes", "Leaders of this writer, as counted in the journal", shell.epoch),
            ("phoenix_nats_errors", "Errors that the connection reported: denials, losses", shell.nats_errors),
            ("phoenix_reader_renewed", "Journal consumers made anew", shell.reader_renewed),
        ):
            yield CounterMetricFamily(name, text, value=count)
        for name, text, value in (
            ("phoenix_reader_position", "Journal position folded", fold.position),
            ("phoenix_leader", "1 if this replica leads", shell.is_leader),
            ("phoenix_journal_full", "1 if the last append was refused for want of room", shell.journal_full),
            ("phoenix_snapshot_position", "Journal position of the last snapshot", shell.snapshot_position),
            ("phoenix_proposals_waiting", "Proposals that wait for an envelope", shell.proposals_waiting),
            ("phoenix_lease_left_seconds", "Seconds for which the lease is surely ours", shell.lease_left_s()),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))


class MetricsListener:
    """`GET /metrics` for Prometheus; `GET /healthz` for supervisors: 200 when caught up, else 503."""

    def __init__(self, registry: CollectorRegistry, health: Callable[[], dict[str, object]]) -> None:
        self._registry, self._health = registry, health
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (chosen by the system if 0).  OSError if it is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_TIMEOUT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            async with asyncio.timeout(STOP_TIMEOUT_S * 2):
                await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        health = self._health()
        return web.json_response(health, status=200 if health["caught_up"] else 503)
