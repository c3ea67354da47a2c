"""The balancer's process: puts pool, probes, feed, proxy, reports and signals together, and takes them down again.

1. It serves before it knows anything: requests wait for the first instance (`line`).
2. Any failure in one of its tasks ends the process; the supervisor restarts it.
3. A NATS connection that the library has given up is a zombie: the process ends (NATS.md 3.7).
4. SIGTERM: stop accepting, let open requests end within `drain_s`, exit 0.
5. The signal `cpu` comes each `signal_interval_s`, from what guests measure; `requests`, `sessions` and
   `answers` once a second.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web
from nats.aio.client import Client

from phoenix.balance.answers import Counts, Growth
from phoenix.balance.feed import Feed
from phoenix.balance.reporter import Reporter
from phoenix.balance.session import talk
from phoenix.balance.signals import publish, ticks
from phoenix.balance.utilisation import Usages
from phoenix.local.balancer.line import Line
from phoenix.local.balancer.pool import Pool
from phoenix.local.balancer.probe import Prober
from phoenix.local.balancer.proxy import Proxy
from phoenix.local.balancer.settings import Settings
from phoenix.local.balancer.stats import Stats
from phoenix.local.connecting import connector
from schemas.signals import AnswersSignal, CpuSignal, RequestsSignal, SessionsSignal
from schemas.times import exact
from services.domain.exits import Exit
from services.runtime.config.tables import Http
from services.runtime.http.guard import Guard
from services.runtime.http.server import Site
from services.runtime.log import get_log
from services.runtime.watchdog import Heart

TEND_INTERVAL_S = 0.1
FLOW_INTERVAL_S = 1.0  # a rate over less is noise
CONNECTIONS_MAX = 16_384  # of whom it serves; a load generator is one address, so there is no other limit
LIMITS = Http(connections_max=CONNECTIONS_MAX, connections_per_address_max=CONNECTIONS_MAX)

_log = get_log()


class Balancer:
    """One balancer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = Pool(settings.drain_s, settings.connections)
        self._line = Line(self._pool, settings.wait_s)
        self._usages = Usages()
        self._stats = Stats(self._pool, self._line)
        self._proxy = Proxy(self._pool, self._line, self._stats)
        self._feed = Feed(settings, self._pool, self._changed)
        self._reporter = Reporter(settings)
        self._answers = Growth(from_zero=True)
        self._prober = Prober(self._pool, settings.health_path, settings.health_interval_s, self._line.move)
        self._stop = asyncio.Event()
        self._code = Exit.OK

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        await self._proxy.start()
        runner = await self._listen()
        try:
            async with asyncio.TaskGroup() as group, _probe_session() as session:
                tasks = [
                    group.create_task(self._prober.run(session)),
                    group.create_task(self._tend()),
                    group.create_task(self._talk()),
                    group.create_task(Heart().beat()),
                ]
                await self._stop.wait()
                # Stop accepting and drain while probes and events continue.
                await runner.cleanup()
                for task in tasks:
                    task.cancel()
        finally:
            await runner.cleanup()
            await self._proxy.close()
        return self._code

    async def _listen(self) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 40)  # bodies are passed on, not kept
        app.router.add_get("/_balancer/status", self._status)
        app.router.add_get("/_balancer/metrics", self._metrics)
        app.router.add_route("*", "/{path:.*}", self._proxy.handle)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=self._settings.drain_s,
            auto_decompress=False,
            handler_cancellation=True,  # a client that goes ends its request
        )
        await runner.setup()
        await Site(runner, self._settings.host, self._settings.port, Guard(_log, LIMITS, anonymous_s=math.inf)).start()
        host, port = runner.addresses[0][:2]
        if self._settings.port_file is not None:
            _write_whole(Path(self._settings.port_file), f"{host}:{port}\n")
        _log.info("balancer listens", department=self._settings.department, host=host, port=port)
        return runner

    async def _status(self, _request: web.Request) -> web.Response:
        content = {"department": self._settings.department, **self._stats.status()}
        return web.Response(body=orjson.dumps(content), content_type="application/json")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._stats.metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})

    def _changed(self) -> None:
        """The feed has brought something: the department's wishes, or who is there."""
        wishes = self._feed.wishes
        if wishes.drain_s is not None:
            self._pool.drain_s = wishes.drain_s
        if wishes.health_path is not None:
            self._prober.path = wishes.health_path
        self._prober.look()
        self._line.move()
        self._report()

    def _report(self) -> None:
        for report in self._pool.reports():
            if self._reporter.say(report.unit, report.attempt, report.state, report.why):
                self._stats.reports.inc()

    async def _tend(self) -> None:
        """What time alone brings: requests end."""
        while True:
            await asyncio.sleep(TEND_INTERVAL_S)
            self._report()
            now = time.monotonic()
            for instance in self._pool.forget_closed(now):
                self._proxy.abandon(instance)
            self._usages.forget_stale(now)

    async def _talk(self) -> None:
        await talk(
            self._settings,
            f"balancer-{self._settings.department}",
            self._closed,
            feed=self._feed,
            usages=self._usages,
            reporter=self._reporter,
            publishers=(self._publish_cpu, self._publish_flow),
        )

    def _closed(self) -> None:
        if not self._stop.is_set():
            self._code = Exit.FAILED
            self._stop.set()

    async def _publish_cpu(self, client: Client) -> None:
        """Nothing when nothing could be measured, which the scheduler takes as "hold"."""
        interval_s = self._settings.signal_interval_s
        async for _ in ticks(interval_s):
            serving = ((instance.key, instance.cores) for instance in self._pool.in_service())
            reading = self._usages.mean(serving, time.monotonic())
            self._stats.measured(reading)
            if reading is None:
                continue
            signal_ = CpuSignal(
                utilisation=round(reading.utilisation, 4),
                instances=reading.instances,
                at=exact(time.time()),
                interval_s=interval_s,
                source=self._settings.user,
            )
            if await publish(client, self._settings, signal_):
                self._stats.signals.inc()

    async def _publish_flow(self, client: Client) -> None:
        """Requests per second, how many are open at each instance, and what each has answered."""
        before, began = self._stats.flow(), time.monotonic()
        async for _ in ticks(FLOW_INTERVAL_S):
            flow, now = self._stats.flow(), time.monotonic()
            new, interval_s = flow.since(before), now - began
            before, began = flow, now
            source, at = self._settings.user, exact(time.time())
            requests = RequestsSignal(
                rate=round(new.came / interval_s, 3),
                queue=len(self._line),
                response_ms=round(new.seconds / new.answered * 1000, 3) if new.answered else None,
                errors=round(new.errors / interval_s, 3),
                refused=round(new.refused / interval_s, 3),
                at=at,
                interval_s=round(interval_s, 3),
                source=source,
            )
            await publish(client, self._settings, requests)
            open_ = {one.unit: one.open_requests for one in self._pool.all() if one.closed_since is None}
            await publish(client, self._settings, SessionsSignal(sessions=open_, at=at, source=source))
            counts = (Counts(one.key, one.unit, one.answered, one.errors) for one in self._pool.all())
            if answers := self._answers.since(counts):
                await publish(client, self._settings, AnswersSignal(instances=dict(answers), at=at, source=source))


def _probe_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector(), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
