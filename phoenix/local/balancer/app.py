"""The balancer's process: puts pool, probes, feed, proxy and signal together, and takes them down again.

1. It serves before it knows anything: requests wait for the first instance.
2. Whatever fails in one of its tasks ends the process; the supervisor starts it anew.
3. A NATS connection that the library has given up is a zombie: the process ends (NATS.md 3.7).
4. SIGTERM: stop accepting, let open requests end within `drain_s`, exit 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import aiohttp
import nats.errors
import orjson
from aiohttp import web
from nats.aio.client import Client

from phoenix.local.balancer.feed import Feed
from phoenix.local.balancer.meter import Meter
from phoenix.local.balancer.pool import Pool
from phoenix.local.balancer.probe import Prober
from phoenix.local.balancer.proxy import Proxy
from phoenix.local.balancer.settings import Settings
from phoenix.local.balancer.stats import Stats
from schemas import subjects
from services.runtime import connect
from services.runtime.exits import Exit, Stop
from services.runtime.log import get_log

FORGET_INTERVAL_S = 0.1
CLOSE_DEADLINE_S = 2.0
RECONNECT_PAUSE_S = 1.0
SIGNAL_NAME = "cpu"

_log = get_log()


class Balancer:
    """One balancer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = Pool(settings.drain_s, settings.instance_cores)
        self._meter = Meter(settings.core_share, settings.signal_interval_s)
        self._stats = Stats(self._pool)
        self._proxy = Proxy(self._pool, self._stats)
        self._feed = Feed(settings, self._pool, self._proxy.instances_changed)
        self._prober = Prober(
            self._pool, self._meter, settings.health_path, settings.probe_interval_s, self._proxy.instances_changed
        )
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
                    group.create_task(self._forget()),
                    group.create_task(self._talk()),
                ]
                await self._stop.wait()
                # Stop accepting and drain while probes and events go on.
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
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=self._settings.drain_s, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, self._settings.host, self._settings.port).start()
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

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_INTERVAL_S)
            for instance in self._pool.forget_drained(time.monotonic()):
                self._proxy.abandon(instance)

    async def _talk(self) -> None:
        """Everything that needs the broker, from the moment that there is one."""
        client = await self._connect()
        try:
            await self._feed.subscribe(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed.audit(client))
                group.create_task(self._publish(client))
        finally:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await client.close()

    async def _connect(self) -> Client:
        settings = self._settings
        while True:
            try:
                return await connect.connect(
                    settings.nats_url,
                    name=f"balancer-{settings.department}",
                    inbox=settings.inbox_prefix,
                    log=_log,
                    seed_file=Path(settings.nkey) if settings.nkey else None,
                    watch=connect.Watch(on_closed=self._closed),
                )
            except Stop as error:
                if error.code == Exit.USAGE:
                    raise
                _log.warning("no broker yet", error=error.why)
                await asyncio.sleep(RECONNECT_PAUSE_S)

    def _closed(self) -> None:
        if not self._stop.is_set():
            self._code = Exit.FAILED
            self._stop.set()

    async def _publish(self, client: Client) -> None:
        """The signal, once an interval; nothing when nothing could be measured, which the scheduler takes as "hold"."""
        settings = self._settings
        subject = subjects.signal(settings.department, SIGNAL_NAME)
        due = time.monotonic()
        while True:
            due = max(due + settings.signal_interval_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            reading = self._meter.read(self._pool.all(), time.monotonic())
            self._stats.measured(reading)
            if reading is None or not client.is_connected:
                continue
            signal_ = {
                "v": 1,
                "utilisation": round(reading.utilisation, 4),
                "instances": reading.instances,
                "at": time.time(),
                "interval_s": settings.signal_interval_s,
                "source": settings.user,
            }
            try:
                await client.publish(subject, orjson.dumps(signal_))
                self._stats.signals.inc()
            except (nats.errors.Error, OSError) as error:
                _log.warning("signal not sent", error=str(error) or type(error).__name__)


def _probe_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
