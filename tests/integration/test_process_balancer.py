"""The embedded load balancer against a real broker and real web instances, each its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from aiohttp import web
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.local.balancer.settings import SettingsError, load
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
        await message.respond(json.dumps({"ok": True, "instances": self.listed}).encode())

    async def _signal(self, message: Msg) -> None:
        self.signals.put_nowait({"name": message.subject.rpartition(".")[2], **json.loads(message.data)})

    async def _report(self, message: Msg) -> None:
        self.reports.put_nowait(json.loads(message.data))
        await message.respond(b'{"ok": true}')

    async def measure(self, **utilisation: float) -> None:
        """What the guests of instances report (`n1`: web.1)."""
        told = [{"unit": f"web.{n[1:]}", "attempt": 1, "utilisation": u, "at": 0.0} for n, u in utilisation.items()]
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


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, stack)


async def test_events_bring_instances_in_and_out_and_audits_repair_what_was_missed(site: Site) -> None:
    await site.start()
    first, _ = await site.instance()
    await site.until_in_service(first)
    second, _ = await site.instance(announce=False)
    await site.until_in_service(first, second)
    assert [await site.get() for _ in range(10)] == [200] * 10
    served = {one["unit"]: one["served"] for one in (await site.status())["instances"]}
    assert served == {first: 5, second: 5}
    site.unlist(first)
    await site.event("attempt.closed", unit=first, attempt=1)
    await site.until_in_service(second)
    site.unlist(second)
    await site.until_in_service()


async def test_a_request_waits_for_the_first_instance(site: Site) -> None:
    await site.start()
    waiting = asyncio.create_task(site.get())

    async def queued() -> bool:
        return bool((await site.status())["queued"] == 1)

    await until(queued)
    await site.instance()
    assert await waiting == 200


async def test_without_an_instance_it_is_503_with_retry_after(site: Site) -> None:
    await site.start()
    async with site.session.get(site.url + "/") as answer:
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
    assert (await site.status())["refused"] == 1


async def test_a_killed_instance_costs_no_idempotent_request(site: Site) -> None:
    await site.start()
    first, process = await site.instance()
    second, _ = await site.instance()
    await site.until_in_service(first, second)
    statuses: list[int] = []

    async def load() -> None:
        for _ in range(50):
            statuses.append(await site.get("/?cpu_ms=1"))

    users = [asyncio.create_task(load()) for _ in range(4)]
    process.kill()
    await asyncio.gather(*users)
    assert set(statuses) == {200}
    await site.until_in_service(second)


async def test_an_open_request_is_finished_while_its_instance_drains_and_that_is_reported(site: Site) -> None:
    await site.start()
    unit, process = await site.instance()
    await site.until_in_service(unit)
    slow = asyncio.create_task(site.get("/?cpu_ms=500"))

    async def is_open() -> bool:
        return any(one["open_requests"] for one in (await site.status())["instances"])

    await until(is_open)
    await site.event("instance.draining", unit=unit, attempt=1, until=9e9)
    site.listed[0]["state"] = "draining"
    await site.until_in_service()
    assert await slow == 200
    assert await asyncio.wait_for(site.reports.get(), DEADLINE_S) == {
        "unit": unit,
        "attempt": 1,
        "state": "drained",
        "why": "",
    }
    site.unlist(unit)
    await site.event("attempt.closed", unit=unit, attempt=1)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0


async def test_what_is_not_done_within_the_drain_time_is_broken_off(site: Site) -> None:
    await site.start(drain_s=0.3)
    unit, _ = await site.instance()
    await site.until_in_service(unit)

    async def order() -> int:
        # aiohttp asks again by itself where that is allowed.
        async with site.session.post(site.url + "/?cpu_ms=20000") as answer:
            return answer.status

    slow = asyncio.create_task(order())

    async def is_open() -> bool:
        return any(one["open_requests"] for one in (await site.status())["instances"])

    await until(is_open)
    await site.event("attempt.closed", unit=unit, attempt=1)
    with pytest.raises(aiohttp.ClientError):
        await asyncio.wait_for(slow, DEADLINE_S)


async def serve_once(site: Site, handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
    """A foreign instance with its own handler for everything but its health."""
    app = web.Application()

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/healthz", healthy)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site.stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    site.listed.append({"unit": "web.foreign", "attempt": 1, "address": address, "state": "running"})
    await site.event("attempt.began", unit="web.foreign", attempt=1, addresses=[address])
    return "web.foreign"


async def test_what_is_not_idempotent_is_never_sent_twice(site: Site) -> None:
    await site.start()
    seen: list[str] = []

    async def breaks(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    unit = await serve_once(site, breaks)
    await site.until_in_service(unit)
    async with site.session.post(site.url + "/order", data=b"once") as answer:
        assert answer.status == 502
    assert seen == ["POST"]
    await site.until_in_service(unit)
    async with site.session.get(site.url + "/page") as answer:
        assert answer.status in (502, 503)
    assert seen[:3] == ["POST", "GET", "GET"]
    assert seen.count("POST") == 1


async def test_bodies_and_headers_pass_through_and_hop_headers_do_not(site: Site) -> None:
    await site.start()

    async def echo(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"X-Seen": request.headers.get("X-Forwarded-For", ""), "X-Hop": request.headers.get("X-Private", "")}
        headers["X-Path"] = request.raw_path
        return web.Response(status=201, body=body, headers=headers)

    unit = await serve_once(site, echo)
    await site.until_in_service(unit)
    for size in (0, 10, 300_000):
        headers = {"Connection": "keep-alive, X-Private", "X-Private": "secret"}
        body = os.urandom(size)
        async with site.session.put(site.url + "/a%2Fb?x=%20y", data=body, headers=headers) as answer:
            assert answer.status == 201
            assert await answer.read() == body
            assert answer.headers["X-Seen"] == "127.0.0.1"
            assert answer.headers["X-Hop"] == ""
            assert answer.headers["X-Path"] == "/a%2Fb?x=%20y"
    async with site.session.head(site.url + "/") as answer:
        assert answer.status == 201


async def next_signal(site: Site, name: str, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            signal_ = await site.signals.get()
            if signal_["name"] == name and good(signal_):
                return signal_


async def test_the_signals_are_what_guests_measure_and_what_was_served(site: Site) -> None:
    await site.start()
    units = [(await site.instance())[0] for _ in range(2)]
    await site.until_in_service(*units)
    await site.measure(n1=1.0, n2=0.5, n9=0.0)
    busy = await next_signal(site, "cpu", lambda s: s["instances"] == 2)
    assert (busy["utilisation"], busy["source"], busy["v"]) == (0.75, "lb", 1)
    statuses = [await site.get() for _ in range(20)]
    assert set(statuses) == {200}
    served = await next_signal(site, "requests", lambda s: s.get("response_ms") is not None)
    assert served["errors"] == 0
    assert (served["rate"] > 0, served["response_ms"] > 0) == (True, True)
    await next_signal(site, "requests", lambda s: s["rate"] == 0)  # all of these are told
    slow = asyncio.create_task(site.get("/?cpu_ms=20000"))
    await next_signal(site, "requests", lambda s: s["rate"] > 0 and s.get("response_ms") is None)  # it has come in
    open_ = await next_signal(site, "sessions", lambda s: sum(s["sessions"].values()) == 1)
    assert set(open_["sessions"]) == set(units)
    slow.cancel()


async def test_what_answers_no_health_check_is_reported_and_so_is_its_return(site: Site) -> None:
    await site.start(health_interval_s=0.1)
    unit, process = await site.instance()
    await site.until_in_service(unit)
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(DEADLINE_S):
        while (report := await site.reports.get())["why"] != "/healthz: no answer within 2 s":
            assert report["why"] in ("", "/healthz: connection refused"), report  # of its start
    assert (report["unit"], report["state"]) == (unit, "unready")
    process.send_signal(signal.SIGCONT)
    assert (await asyncio.wait_for(site.reports.get(), DEADLINE_S))["state"] == "ready"


async def test_it_serves_on_while_the_broker_is_away_and_finds_it_again(site: Site) -> None:
    await site.start()
    unit, _ = await site.instance()
    await site.until_in_service(unit)
    pid = (site.directory / "nats.log").read_text().partition("[")[2].partition("]")[0]
    os.kill(int(pid), signal.SIGKILL)
    assert await site.get() == 200
    await site.start_broker()
    while not site.signals.empty():
        site.signals.get_nowait()
    second, _ = await site.instance(announce=False)
    await site.until_in_service(unit, second)
    await site.measure(n1=0.5, n2=0.5)
    await next_signal(site, "cpu", lambda s: s["instances"] == 2)


async def test_it_stops_cleanly_and_its_numbers_are_shown(site: Site) -> None:
    await site.start()
    unit, _ = await site.instance()
    await site.until_in_service(unit)
    await site.get()
    status = await site.status()
    assert status["served"] == 1
    assert status["latency"]["count"] == 1
    assert status["latency"]["buckets_s"]["+Inf"] == 1
    async with site.session.get(site.url + "/_balancer/metrics") as answer:
        assert "phoenix_balancer_served_total 1.0" in await answer.text()
    site.balancer.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(site.balancer.wait(), DEADLINE_S) == 0


def test_a_configuration_that_others_can_read_or_that_is_wrong_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text("{}")
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load(path)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="department"):
        load(path)
    path.write_text(json.dumps({"department": "w", "user": "u", "nats_url": "n", "inbox_prefix": "i", "listen": "x"}))
    with pytest.raises(SettingsError, match="HOST:PORT"):
        load(path)
