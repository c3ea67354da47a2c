"""A web department behind a real HAProxy with its agent: a real broker, real instances, and the services' part played by the
test, which publishes events and answers `instance.list` and `instance.report`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.haproxy.runtime_api import GoneError
from phoenix.haproxy.slots import Reading, Slot
from phoenix.load.curve import constant, plan
from phoenix.load.generator import Generator
from phoenix.load.record import Outcome, Record
from phoenix.load.results import sum_up
from phoenix.load.target import parse
from tests.support.haproxy import Haproxy, front
from tests.support.nats import NatsServer
from tests.support.ports import free_port
from tests.support.until import until

ROOT = Path(__file__).resolve().parents[2]
WEBAPP = ROOT / "phoenix" / "local" / "webapp" / "program.py"
DEADLINE_S = 30.0
RATE = 80.0
ANSWERED_LEAST = 20  # less is no load


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


class Site:
    """A broker, HAProxy, the agent, instances, and the department's part of the services."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.broker = NatsServer(directory)
        self.haproxy = Haproxy(front(directory, wait_s=60), directory)
        self.config = directory / "agent.toml"
        self.metrics = free_port()
        self.client: Client
        self.agent: Process
        self.listed: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, Process] = {}
        self.reports: list[dict[str, Any]] = []
        self.lists = 0  # that were asked for
        self.lists_silent = False
        self.signals: dict[str, list[dict[str, Any]]] = {"cpu": [], "requests": [], "sessions": [], "answers": []}

    async def start(self) -> None:
        self.broker.start()
        self.stack.callback(self.broker.kill)
        self.client = await nats.connect(self.broker.url, max_reconnect_attempts=-1, reconnect_time_wait=1)
        self.stack.push_async_callback(self.client.close)
        await self.client.subscribe("phoenix.request.web.lb.instance.list", cb=self._list)
        await self.client.subscribe("phoenix.request.web.lb.instance.report", cb=self._report)
        await self.client.subscribe("phoenix.signal.web.lb.*", cb=self._signal)
        await self.haproxy.start()
        self.stack.push_async_callback(self.haproxy.kill)
        self.config.write_text(
            f'department = "web"\nuser = "lb"\nnats_url = "{self.broker.url}"\nsource = "lb@test"\n'
            f'socket = "{self.haproxy.front.socket}"\nhealth_map = "{self.haproxy.front.health_map}"\n'
            f'metrics = "127.0.0.1:{self.metrics}"\n'
            "signal_interval_s = 0.25\nlook_interval_s = 0.1\nold_process_s = 1.0\n"
        )
        await self.start_agent()

    async def start_agent(self) -> None:
        self.agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phoenix.haproxy", "--config", str(self.config)), stderr=DEVNULL, cwd=ROOT
        )
        self.stack.push_async_callback(end, self.agent)

    async def _list(self, message: Msg) -> None:
        if self.lists_silent:
            return
        self.lists += 1
        wishes = {"drain_s": 5.0, "unreachable_s": 0.3, "health_path": "/healthz"}
        await message.respond(json.dumps({**wishes, "instances": list(self.listed.values())}).encode())

    async def _report(self, message: Msg) -> None:
        self.reports.append(json.loads(message.data))
        await message.respond(b'{"ok":true}')

    async def _signal(self, message: Msg) -> None:
        self.signals[message.subject.rpartition(".")[2]].append(json.loads(message.data))

    async def event(self, kind: str, **fact: Any) -> None:
        event = {"v": 1, "kind": kind, "department": "web", "position": 1, "at": 0.0, "fact": fact}
        await self.client.publish(f"phoenix.event.web.{kind}", json.dumps(event).encode())
        await self.client.flush()

    # ----------------------------------------------------------------------------------------------------- instances

    def _program(self, health_path: str) -> Path:
        """One that answers 404 at any other health path."""
        file = self.directory / f"{health_path.replace('/', '_')}.py"
        if not file.exists():  # a process may be reading it
            file.write_text(WEBAPP.read_text().replace('"/healthz"', f'"{health_path}"'))
        return file

    async def run(self, unit: str, port: int) -> None:
        program = self._program(self.listed[unit]["health_path"])
        self.processes[unit] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(program)), env={"PHOENIX_PORT": str(port)}, stderr=DEVNULL
        )
        self.stack.push_async_callback(end, self.processes[unit])

    async def begin(
        self,
        unit: str,
        *,
        port: int | None = None,
        announce: bool = True,
        cores: int = 1,
        health_path: str = "/healthz",
    ) -> int:
        """A real instance: it listens a moment after it has been announced, so that only health checks can tell."""
        port = port or free_port()
        said = {"unit": unit, "attempt": 1, "state": "running", "cores": cores, "health_path": health_path}
        self.listed[unit] = said | {"address": f"127.0.0.1:{port}"}
        if announce:
            await self.event("attempt.began", unit=unit, attempt=1, addresses=[f"127.0.0.1:{port}"])
        await self.run(unit, port)
        return port

    async def drain(self, unit: str) -> None:
        self.listed[unit]["state"] = "draining"
        reason = {"code": "scale_down"}
        await self.event("instance.draining", unit=unit, attempt=1, until=time.time() + 5, reason=reason)

    async def close(self, unit: str) -> None:
        """Its attempt is over; its process ends as its guest would end it."""
        del self.listed[unit]
        await self.event("attempt.closed", unit=unit, attempt=1)
        self.processes[unit].send_signal(signal.SIGTERM)

    async def retire(self, unit: str) -> None:
        """The whole way: drain, wait for the agent's word, close."""
        await self.drain(unit)
        await self.until_reported(unit, "drained")
        await self.close(unit)

    async def until_reported(self, unit: str, state: str) -> dict[str, Any]:
        async def said() -> dict[str, Any] | None:
            return next((r for r in self.reports if (r["unit"], r["state"]) == (unit, state)), None)

        found: dict[str, Any] = await until(said)
        return found

    async def slot_of(self, unit: str) -> Slot | None:
        """Not in maint: there it keeps the address of its last instance."""
        port = int(self.listed[unit]["address"].rpartition(":")[2])
        reading: Reading = await until(self._reading)
        return next((s for s in reading.slots if s.address[1] == port and s.ordered != "maint"), None)

    async def _reading(self) -> Reading | None:
        """A busy one may take long for an answer."""
        try:
            return await self.haproxy.api.read()
        except GoneError:
            return None

    async def until_serving(self, *units: str) -> None:
        async def are() -> bool:
            found = [await self.slot_of(unit) for unit in units]
            return all(slot is not None and slot.serves for slot in found)

        await until(are)

    async def until_free(self, count: int) -> Reading:
        async def is_so() -> Reading | None:
            try:
                reading = await self.haproxy.api.read()
            except GoneError:
                return None
            return reading if sum(s.ordered == "maint" for s in reading.slots) == count else None

        found: Reading = await until(is_so)
        return found

    # ---------------------------------------------------------------------------------------------------------- load

    @asynccontextmanager
    async def load(
        self, path: str = "/?cpu_ms=1", post_share: float = 0.3, rate: float = RATE
    ) -> AsyncIterator[Record]:
        """`rate` requests a second until the block ends; then all of them have been answered well."""
        what = plan(constant(rate, 60.0), seed=1, fresh_share=0.3, post_share=post_share)
        generator = Generator(parse(self.haproxy.url + path), what, body=b"order", timeout_s=DEADLINE_S)
        running = asyncio.create_task(generator.run())

        async def answered() -> bool:
            return generator.record.outcomes.count(Outcome.ANSWERED) > ANSWERED_LEAST

        try:
            yield generator.record
            await until(answered)
        finally:
            generator.stop()
            record = await running
        assert sum_up(record, 1.0).failures == {}

    async def metric(self, name: str) -> float:
        """The sum over the labels of a metric of the agent; -1 while it does not answer."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.metrics}/metrics") as answer:
                lines = (await answer.text()).splitlines()
        except aiohttp.ClientError:
            return -1.0
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)
