"""The agent beside a real HAProxy, with a real broker and real web instances, under a load that never stops.

The department's services are played: the test publishes events and answers `instance.list` and `instance.report`.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.haproxy import check
from phoenix.haproxy.configuration import ConfigurationError, Front, render, site, wait_lua
from phoenix.haproxy.keeper import Keeper
from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.settings import load
from phoenix.haproxy.slots import Reading, Slot
from phoenix.haproxy.table import Table
from phoenix.load.curve import constant, plan
from phoenix.load.generator import Generator
from phoenix.load.record import Record
from phoenix.load.results import sum_up
from phoenix.load.target import parse
from tests.support.haproxy import Haproxy, checked, front
from tests.support.nats import NatsServer, free_port

ROOT = Path(__file__).resolve().parents[2]
WEBAPP = ROOT / "phoenix" / "local" / "webapp" / "program.py"
DEADLINE_S = 15.0
RATE = 80.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while not (value := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return value


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


class Site:
    """A broker, HAProxy, the agent, instances, and the department's part of the services."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.broker = NatsServer(directory)
        self.haproxy = Haproxy(front(directory), directory)
        self.config = directory / "agent.toml"
        self.metrics = free_port()
        self.client: Client
        self.agent: Process
        self.listed: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, Process] = {}
        self.reports: list[dict[str, Any]] = []
        self.signals: dict[str, list[dict[str, Any]]] = {"cpu": [], "requests": [], "sessions": []}

    async def start(self) -> None:
        self.broker.start()
        self.stack.callback(self.broker.kill)
        self.client = await nats.connect(self.broker.url, max_reconnect_attempts=-1, reconnect_time_wait=1)
        self.stack.push_async_callback(self.client.close)
        await self.client.subscribe("phoenix.request.web.lb.instance.list", cb=self._list)
        await self.client.subscribe("phoenix.request.web.lb.instance.report", cb=self._report)
        await self.client.subscribe("phoenix.signal.web.*", cb=self._signal)
        await self.haproxy.start()
        self.stack.push_async_callback(self.haproxy.kill)
        self.config.write_text(
            f'department = "web"\nuser = "lb"\nnats_url = "{self.broker.url}"\nsource = "lb@test"\n'
            f'socket = "{self.haproxy.front.socket}"\nmetrics = "127.0.0.1:{self.metrics}"\n'
            "signal_interval_s = 0.25\nlook_interval_s = 0.1\nold_process_s = 1.0\n"
        )
        await self.start_agent()

    async def start_agent(self) -> None:
        self.agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "phoenix.haproxy", "--config", str(self.config)), stderr=DEVNULL, cwd=ROOT
        )
        self.stack.push_async_callback(end, self.agent)

    async def _list(self, message: Msg) -> None:
        wishes = {"ok": True, "drain_s": 5.0, "unreachable_s": 0.3, "health_path": "/healthz"}
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

    async def run(self, unit: str, port: int) -> None:
        self.processes[unit] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(WEBAPP)), env={"PHOENIX_PORT": str(port)}, stderr=DEVNULL
        )
        self.stack.push_async_callback(end, self.processes[unit])

    async def begin(self, unit: str, *, port: int | None = None, announce: bool = True, cores: int = 1) -> int:
        """A real instance: it listens a moment after it has been announced, so that only health checks can tell."""
        port = port or free_port()
        address = f"127.0.0.1:{port}"
        self.listed[unit] = {"unit": unit, "attempt": 1, "address": address, "state": "running", "cores": cores}
        if announce:
            await self.event("attempt.began", unit=unit, attempt=1, addresses=[address])
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
        reading = await self.haproxy.api.read()
        return next((s for s in reading.slots if s.address[1] == port and s.ordered != "maint"), None)

    async def until_serving(self, *units: str) -> None:
        async def are() -> bool:
            found = [await self.slot_of(unit) for unit in units]
            return all(slot is not None and slot.serves for slot in found)

        await until(are)

    async def until_free(self, count: int) -> Reading:
        async def is_so() -> Reading | None:
            reading = await self.haproxy.api.read()
            return reading if sum(s.ordered == "maint" for s in reading.slots) == count else None

        found: Reading = await until(is_so)
        return found

    # ---------------------------------------------------------------------------------------------------------- load

    @asynccontextmanager
    async def load(self, path: str = "/?cpu_ms=1", post_share: float = 0.3) -> AsyncIterator[Record]:
        """RATE requests a second until the block ends; then all of them have been answered well."""
        what = plan(constant(RATE, 60.0), seed=1, fresh_share=0.3, post_share=post_share)
        generator = Generator(parse(self.haproxy.url + path), what, body=b"order", timeout_s=DEADLINE_S)
        running = asyncio.create_task(generator.run())
        try:
            yield generator.record
        finally:
            generator.stop()
            record = await running
        results = sum_up(record, 1.0)
        assert results.failures == {}
        assert results.answered > 20

    async def metric(self, name: str) -> float:
        """The sum over the labels of a metric of the agent; -1 while it does not answer."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.metrics}/metrics") as answer:
                lines = (await answer.text()).splitlines()
        except aiohttp.ClientError:
            return -1.0
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cloud(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One site for all tests of this file, in their order: `web.1` serves from the first to the last."""
    async with AsyncExitStack() as stack:
        site_ = Site(tmp_path_factory.mktemp("site"), stack)
        await site_.start()
        yield site_


async def test_a_request_waits_for_the_first_instance(cloud: Site) -> None:
    async with cloud.load():
        await cloud.begin("web.1", cores=4)
        await cloud.until_serving("web.1")
    slot = await cloud.slot_of("web.1")
    assert slot is not None

    async def weighs_four() -> bool:
        found = await cloud.slot_of("web.1")
        return found is not None and found.weight == 4

    await until(weighs_four)


async def test_instances_come_and_go_and_addresses_come_back_without_a_failed_request(cloud: Site) -> None:
    port = free_port()
    async with cloud.load():
        for number in (10, 11, 12):
            await cloud.begin(f"web.{number}", port=port)
            await cloud.begin(f"web.{number + 10}")
            await cloud.until_serving("web.1", f"web.{number}", f"web.{number + 10}")
            await cloud.retire(f"web.{number}")
            await cloud.retire(f"web.{number + 10}")
            await cloud.processes[f"web.{number}"].wait()
        await cloud.until_free(5)


async def test_a_draining_instance_ends_what_it_has_begun(cloud: Site) -> None:
    await cloud.begin("web.30")
    await cloud.until_serving("web.30")
    async with aiohttp.ClientSession() as session:

        async def long() -> int:
            async with session.get(cloud.haproxy.url + "/?cpu_ms=150") as answer:
                return answer.status

        requests = [asyncio.create_task(long()) for _ in range(6)]

        async def is_busy() -> bool:
            slot = await cloud.slot_of("web.30")
            return slot is not None and slot.sessions > 0

        await until(is_busy)
        await cloud.drain("web.30")
        await cloud.until_reported("web.30", "drained")
        slot = await cloud.slot_of("web.30")
        assert slot is not None
        assert (slot.ordered, slot.sessions) == ("drain", 0)
        await cloud.close("web.30")
        assert await asyncio.gather(*requests) == [200] * 6
    await cloud.until_free(5)


async def test_an_agent_that_starts_again_takes_over_what_it_finds_and_says_nothing_new(cloud: Site) -> None:
    async with cloud.load():
        await cloud.begin("web.40")
        await cloud.until_serving("web.40")
        cloud.agent.kill()
        await cloud.agent.wait()
        del cloud.listed["web.40"]  # its end is never heard of
        await cloud.begin("web.41", announce=False)
        await cloud.start_agent()
        await cloud.until_serving("web.1", "web.41")
        await cloud.until_free(4)
    cloud.agent.send_signal(signal.SIGTERM)
    assert await cloud.agent.wait() == 0
    await cloud.start_agent()

    async def has_looked() -> bool:
        return await cloud.metric("phoenix_haproxy_instances") == 2 and await cloud.metric("phoenix_haproxy_up") == 1

    await until(has_looked)
    assert await cloud.metric("phoenix_haproxy_commands_total") == 0
    await cloud.retire("web.41")


async def test_a_reload_keeps_every_server_and_loses_no_request(cloud: Site) -> None:
    await cloud.begin("web.50")
    await cloud.until_serving("web.50")
    cloud.agent.send_signal(signal.SIGSTOP)  # it is HAProxy that must remember
    async with cloud.load():
        await cloud.haproxy.reload(cloud.config)
        for unit in ("web.1", "web.50"):
            slot = await cloud.slot_of(unit)
            assert slot is not None
            assert slot.serves
        cloud.agent.send_signal(signal.SIGCONT)
        await cloud.retire("web.50")


async def test_an_empty_haproxy_is_filled_again_although_the_broker_is_away(cloud: Site) -> None:
    cloud.broker.stop()
    await cloud.haproxy.kill()
    cloud.signals["requests"].clear()
    await cloud.haproxy.start()
    async with cloud.load():  # from the first request on: it waits
        await cloud.until_serving("web.1")
        cloud.broker.start()
        await cloud.begin("web.60", announce=False)
        await cloud.until_serving("web.60")
    rates = [signal_["rate"] for signal_ in cloud.signals["requests"]]
    assert all(rate < 10 * RATE for rate in rates)
    await cloud.retire("web.60")


async def test_who_cannot_be_reached_is_reported_with_the_reason_and_so_is_its_return(cloud: Site) -> None:
    port = await cloud.begin("web.70")
    await cloud.until_serving("web.70")
    cloud.reports.clear()
    async with cloud.load():
        cloud.processes["web.70"].kill()
        report = await cloud.until_reported("web.70", "unreachable")
        assert "L4CON: Connection refused" in report["why"]
        await cloud.run("web.70", port)
        await cloud.until_reported("web.70", "reachable")
    await cloud.retire("web.70")


async def test_the_signals_say_what_haproxy_serves(cloud: Site) -> None:
    async def measure(utilisation: float) -> None:
        measured = {"unit": "web.1", "attempt": 1, "rank": 0, "utilisation": utilisation, "interval_s": 1.0, "at": 0.0}
        foreign = {**measured, "unit": "web.999", "utilisation": 9.0}  # not in service here
        payload = json.dumps({"v": 1, "instances": [measured, foreign]}).encode()
        await cloud.client.publish("phoenix.measure.web.instances", payload)

    async with cloud.load(post_share=0.0):
        await measure(0.75)
        cloud.signals["requests"].clear()

        async def enough() -> bool:
            return len(cloud.signals["requests"]) >= 8

        await until(enough)
    told = cloud.signals["requests"][1:8]
    mean = sum(signal_["rate"] * signal_["interval_s"] for signal_ in told) / sum(s["interval_s"] for s in told)
    assert mean == pytest.approx(RATE, rel=0.3)
    assert all(signal_["errors"] == 0 and signal_["response_ms"] is not None for signal_ in told)
    assert {signal_["source"] for signal_ in told} == {"lb@test"}
    assert cloud.signals["cpu"][-1]["utilisation"] == 0.75
    assert cloud.signals["sessions"][-1]["sessions"].keys() == {"web.1"}


async def test_more_instances_than_slots_are_told_and_wait_for_one(cloud: Site) -> None:
    more = [f"web.{80 + number}" for number in range(6)]  # six slots, one of them is taken
    for unit in more:
        await cloud.begin(unit)
    await cloud.until_serving(*more[:5])

    async def one_waits() -> bool:
        return await cloud.metric("phoenix_haproxy_waiting") == 1

    await until(one_waits)
    await cloud.retire(more[0])
    await cloud.until_serving(*more[1:])
    for unit in more[1:]:
        await cloud.drain(unit)
    for unit in more[1:]:
        await cloud.until_reported(unit, "drained")
        await cloud.close(unit)
    await cloud.until_free(5)


async def test_what_may_not_be_repeated_is_sent_once(cloud: Site) -> None:
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if "/healthz" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            seen.append(head.split(" ")[0])
        writer.close()  # without a word

    await cloud.begin("web.90")
    server = await asyncio.start_server(serve, "127.0.0.1", port := free_port())
    address = f"127.0.0.1:{port}"
    await cloud.retire("web.90")
    await cloud.drain("web.1")
    cloud.listed["web.91"] = {"unit": "web.91", "attempt": 1, "address": address, "state": "running", "cores": 1}
    await cloud.event("attempt.began", unit="web.91", attempt=1, addresses=[address])
    await cloud.until_serving("web.91")
    async with aiohttp.ClientSession() as session:
        async with session.post(cloud.haproxy.url, data=b"order") as answer:
            assert answer.status == 502
        assert seen == ["POST"]
        async with session.get(cloud.haproxy.url) as answer:
            assert answer.status == 502
    assert seen.count("GET") > 1
    server.close()


# ------------------------------------------------------------------------------------------------------- by themselves


async def test_check_says_what_is_wrong_and_changes_nothing(
    cloud: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(cloud.config)
    assert await check.run(settings) == 0
    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == ["ok    "] * 4
    told_by: list[tuple[dict[str, Any], str]] = [
        ({"backend": "gone"}, "no state of backend gone"),
        ({"slots": "server"}, "no server whose name begins with server"),
        ({"socket": str(tmp_path / "nowhere.sock")}, "nowhere.sock: No such file"),
        ({"user": "nobody"}, "no list of instances: nats: no responders"),
        ({"nats_url": "nats://127.0.0.1:1"}, "nats://127.0.0.1:1: no broker answers there"),
        ({"nkey": str(tmp_path / "missing.nk")}, "missing.nk cannot be read"),
    ]
    for changed, what in told_by:
        assert await check.run(msgspec.structs.replace(settings, **changed)) == 2
        wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
        assert len(wrong) == 1
        assert what in wrong[0]


async def test_a_socket_that_may_not_command_is_told_and_nothing_else_is_made_of_it(
    tmp_path: Path, cloud: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    haproxy = Haproxy(front(tmp_path), tmp_path)
    await haproxy.start(level="operator")
    try:
        settings = msgspec.structs.replace(load(cloud.config), socket=str(haproxy.front.socket))
        assert await check.run(settings) == 2
        assert "has level operator: the agent needs `level admin` in haproxy.cfg" in capsys.readouterr().out
        table, counts = Table(), Counts()
        table.began("web.1", 1, ["127.0.0.1:8001"], 0.0)
        table.audited([], asked_at=0.0, now=0.0)
        seen = await Keeper(haproxy.api, table, counts).look()
        assert seen is not None
        assert [slot.ordered for slot in seen.reading.slots] == ["maint"] * 6
        assert counts.commands == {("SetAddress", "refused"): 1}
    finally:
        await haproxy.kill()


async def test_the_sites_configuration_is_the_rendered_one_and_haproxy_takes_it(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
    assert text == render(site()), "run python -m phoenix.haproxy.configuration > deploy/haproxy/haproxy.cfg"
    assert (ROOT / "deploy" / "haproxy" / "phoenix-wait.lua").read_text() == wait_lua()
    (tmp_path / "wait.lua").write_text(wait_lua())
    (tmp_path / "state").write_text("1\n")
    for before, after in (
        ("/etc/haproxy/phoenix-wait.lua", str(tmp_path / "wait.lua")),
        ("/run/haproxy/phoenix.state", str(tmp_path / "state")),
        ("user haproxy", f"user {getpass.getuser()}"),
        (" group haproxy", ""),
        ("    chroot /var/lib/haproxy\n", ""),
    ):
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "haproxy.cfg").write_text(text)
    assert await checked(tmp_path / "haproxy.cfg") == (0, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "web\n    stats socket /tmp/open"},
        {"health_path": "/healthz ver"},
        {"health_path": "healthz"},
        {"listen": "80"},
        {"slots": 0},
    ],
)
async def test_nothing_is_rendered_that_would_be_another_directive(tmp_path: Path, wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {"department": "web", "listen": ":80", **wrong}
    paths = {name: tmp_path / name for name in ("socket", "state_file", "lua_file")}
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        render(Front(**values, **paths))
