"""The embedded load balancer with a real broker and real instances, each its own process; the department's part of the
services (events and listings) is the test's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import nats
from aiohttp import web
from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas.times import exact
from tests.support.ports import free_port
from tests.support.until import until

ROOT = Path(__file__).resolve().parents[2]
WEBAPP = ROOT / "phoenix" / "local" / "webapp" / "program.py"
NATS_SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"
DEADLINE_S = 30.0


class Site:
    """A broker, a balancer, instances, and the department's part of the services (events and listings)."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self.nats_port = free_port()
        self.client: Client
        self.session: aiohttp.ClientSession
        self.balancer: Process
        self.url = ""
        self.listed: list[dict[str, Any]] = []
        self.signals: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._next = 1

    async def spawn(self, *argv: str, **environment: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=DEVNULL, cwd=ROOT, env={**os.environ, **environment}
        )
        self.stack.push_async_callback(end, process)
        return process

    async def start_broker(self) -> Process:
        broker = await self.spawn(
            str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self.nats_port), "-l", str(self.directory / "nats.log")
        )

        async def accepts() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.nats_port)
            except OSError:
                return False
            writer.close()
            return True

        await until(accepts)
        return broker

    async def start(self, **settings: Any) -> None:
        await self.start_broker()
        self.client = await nats.connect(
            f"nats://127.0.0.1:{self.nats_port}", max_reconnect_attempts=-1, reconnect_time_wait=1
        )
        self.stack.push_async_callback(self.client.close)
        await self.client.subscribe("phoenix.request.web.lb.instance.list", cb=self._list)
        await self.client.subscribe("phoenix.request.web.lb.instance.report", cb=self._report)
        await self.client.subscribe("phoenix.signal.web.lb.*", cb=self._signal)
        self.session = await self.stack.enter_async_context(aiohttp.ClientSession())
        config = self.directory / "balancer.json"
        content = {
            "department": "web",
            "user": "lb",
            "nats_url": f"nats://127.0.0.1:{self.nats_port}",
            "inbox_prefix": "_INBOX_web.lb",
            "port_file": str(self.directory / "port"),
            "drain_s": 3.0,
            **settings,
        }
        config.write_text(json.dumps(content))
        config.chmod(0o600)
        self.balancer = await self.spawn(sys.executable, "-m", "phoenix.local.balancer", "--config", str(config))

        async def address() -> str:
            path = self.directory / "port"
            return path.read_text().strip() if path.exists() else ""

        self.url = f"http://{await until(address)}"

    async def _list(self, message: Msg) -> None:
        assert json.loads(message.data) == {}
        assert message.reply.startswith("_INBOX_web.lb.")
        await message.respond(json.dumps({"instances": self.listed}).encode())

    async def _signal(self, message: Msg) -> None:
        self.signals.put_nowait({"name": message.subject.rpartition(".")[2], **json.loads(message.data)})

    async def _report(self, message: Msg) -> None:
        self.reports.put_nowait(json.loads(message.data))
        await message.respond(b'{"ok": true}')

    async def measure(self, **utilisation: float) -> None:
        """What the guests of instances report (`n1`: web.1)."""
        told = [
            {"unit": f"web.{n[1:]}", "attempt": 1, "utilisation": u, "at": exact(0.0)} for n, u in utilisation.items()
        ]
        await self.client.publish("phoenix.measure.web.instances", json.dumps({"v": 1, "instances": told}).encode())
        await self.client.flush()

    async def event(self, kind: str, **fact: Any) -> None:
        event = {"v": 1, "kind": kind, "department": "web", "position": 1, "at": 0.0, "fact": fact}
        await self.client.publish(f"phoenix.event.web.{kind}", json.dumps(event).encode())
        await self.client.flush()

    async def instance(self, announce: bool = True, environment: dict[str, str] | None = None) -> tuple[str, Process]:
        """Start a real instance; returns its unit. It is listed from now on, and announced unless told otherwise."""
        unit, port = f"web.{self._next}", free_port()
        self._next += 1
        process = await self.spawn(
            sys.executable, "-I", "-S", str(WEBAPP), PHOENIX_PORT=str(port), **(environment or {})
        )
        address = f"127.0.0.1:{port}"
        self.listed.append({"unit": unit, "attempt": 1, "address": address, "state": "running", "cores": 1})
        if announce:
            await self.event("attempt.began", unit=unit, attempt=1, addresses=[address])
        return unit, process

    def unlist(self, unit: str) -> None:
        self.listed = [entry for entry in self.listed if entry["unit"] != unit]

    async def status(self) -> dict[str, Any]:
        async with self.session.get(self.url + "/_balancer/status") as answer:
            content: dict[str, Any] = await answer.json()
            return content

    async def in_service(self) -> list[str]:
        return [one["unit"] for one in (await self.status())["instances"] if one["state"] == "in service"]

    async def until_in_service(self, *units: str) -> None:
        async def are() -> bool:
            return await self.in_service() == list(units)

        await until(are)

    async def get(self, path: str = "/?cpu_ms=0") -> int:
        async with self.session.get(self.url + path) as answer:
            await answer.read()
            return answer.status


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def serve_once(
    site: Site, handle: Callable[[web.Request], Awaitable[web.StreamResponse]], connections: int = 64
) -> str:
    """A foreign instance with its own handler for everything but its health, which is cancelled when its client goes."""
    app = web.Application()

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/healthz", healthy)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site.stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    listed = {"unit": "web.foreign", "attempt": 1, "address": address, "state": "running", "connections": connections}
    site.listed.append(listed)
    await site.event("attempt.began", unit="web.foreign", attempt=1, addresses=[address])
    return "web.foreign"
