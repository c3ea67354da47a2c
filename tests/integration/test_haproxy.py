"""The agent beside a real HAProxy, with a real broker and real web instances, under a load that never stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from phoenix.haproxy import check, metrics
from phoenix.haproxy.settings import load
from phoenix.load.record import Outcome
from schemas.times import exact
from tests.support.haproxy_site import RATE, ROOT, Site, end
from tests.support.ports import free_port
from tests.support.scraped import faults, linted
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cloud(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One site for all tests of this file that a worker runs, in their order."""
    async with AsyncExitStack() as stack:
        site_ = Site(tmp_path_factory.mktemp("site"), stack)
        await site_.start()
        yield site_


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def first(request: pytest.FixtureRequest, cloud: Site) -> None:
    """`web.1` serves from the first test on, whichever of them this worker has got; but for the one about its absence."""
    if "web.1" not in cloud.listed and request.function is not test_a_request_waits_for_the_first_instance:
        await cloud.begin("web.1", cores=4)
        await cloud.until_serving("web.1")


async def test_a_request_waits_for_the_first_instance(cloud: Site) -> None:
    async with cloud.load(rate=20.0):  # a connection each: a busy machine may take a while to start one
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


async def test_a_connection_that_was_kept_over_a_reload_is_answered_and_then_closed(cloud: Site) -> None:
    host, _, port = cloud.haproxy.front.listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def ask() -> bytes:
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).lower()
        (length,) = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(length)
        assert head.startswith(b"http/1.1 200")
        return head

    assert b"connection: close" not in await ask()
    await cloud.haproxy.reload(cloud.config)

    async def is_the_last() -> bool:  # the old process may not know yet that it is replaced
        return b"connection: close" in await ask()

    await until(is_the_last)
    assert await reader.read() == b""
    writer.close()


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
        report = await cloud.until_reported("web.70", "unready")
        by_check, by_request = "L4CON: Connection refused", "L4 unsuccessful connection"
        assert by_check in report["why"] or by_request in report["why"]
        await cloud.run("web.70", port)
        await cloud.until_reported("web.70", "ready")
    await cloud.retire("web.70")


async def test_while_the_others_are_full_no_request_is_lost_to_one_that_has_died(cloud: Site) -> None:
    """With nothing open the dead one is the first choice, and the only one while another has as many as it may."""
    await cloud.begin("web.75")
    await cloud.until_serving("web.1", "web.75")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> int:
            async with session.post(cloud.haproxy.url + "/?cpu_ms=5") as answer:
                return answer.status

        cloud.processes["web.75"].kill()
        await cloud.processes["web.75"].wait()
        many = 2 * cloud.haproxy.front.server_maxconn
        assert await asyncio.gather(*(ask() for _ in range(many))) == [200] * many
    await cloud.run("web.75", int(cloud.listed["web.75"]["address"].rpartition(":")[2]))
    await cloud.until_serving("web.75")
    await cloud.retire("web.75")


async def test_the_signals_say_what_haproxy_serves(cloud: Site) -> None:
    async def measure(utilisation: float) -> None:
        measured = {
            "unit": "web.1",
            "attempt": 1,
            "rank": 0,
            "utilisation": utilisation,
            "interval_s": 1.0,
            "at": exact(0.0),
        }
        foreign = {**measured, "unit": "web.999", "utilisation": 9.0}  # not in service here
        payload = json.dumps({"v": 1, "instances": [measured, foreign]}).encode()
        await cloud.client.publish("phoenix.measure.web.instances", payload)

    async def quiet() -> bool:  # what was served is reported
        return bool(cloud.signals["requests"]) and cloud.signals["requests"][-1]["rate"] == 0

    def busy() -> list[dict[str, Any]]:
        return [signal_ for signal_ in cloud.signals["requests"] if signal_["rate"]]

    cloud.signals["requests"].clear()
    await until(quiet)
    cloud.signals["requests"].clear()
    async with cloud.load(post_share=0.0) as record:
        await measure(0.75)

        async def enough() -> bool:
            return len(busy()) >= 8

        await until(enough)
    await until(quiet)
    told = busy()
    served = sum(signal_["rate"] * signal_["interval_s"] for signal_ in told)
    assert served == pytest.approx(record.outcomes.count(Outcome.ANSWERED), rel=0.1)
    assert all(signal_["errors"] == 0 and signal_["response_ms"] is not None for signal_ in told)
    assert {signal_["source"] for signal_ in told} == {"lb@test"}
    assert cloud.signals["cpu"][-1]["utilisation"] == 0.75
    assert cloud.signals["sessions"][-1]["sessions"].keys() == {"web.1"}
    for told in cloud.signals.values():  # the scheduler drops one that is not newer than the last
        assert all(before["at"] < after["at"] for before, after in pairwise(told))


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


async def test_the_agent_exports_what_is_declared_and_nothing_else(cloud: Site) -> None:
    async with aiohttp.request("GET", f"http://127.0.0.1:{cloud.metrics}/metrics") as answer:
        text = await answer.text()
    assert faults(text, (metrics.TABLE,), {}, absent=("phoenix_haproxy_utilisation_ratio",)) == []
    assert linted(text) == ""


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
    cloud.listed["web.91"] = {**cloud.listed["web.1"], "unit": "web.91", "address": address, "state": "running"}
    await cloud.event("attempt.began", unit="web.91", attempt=1, addresses=[address])
    await cloud.until_serving("web.91")
    async with aiohttp.ClientSession() as session:
        async with session.post(cloud.haproxy.url, data=b"order") as answer:
            assert answer.status == 502
        assert seen == ["POST"]
    # On a kept connection the client would try again itself.
    async with aiohttp.ClientSession() as session, session.get(cloud.haproxy.url) as answer:
        assert answer.status == 502
    assert seen == ["POST"] + ["GET"] * 4  # `retries 3`
    server.close()


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
        ({"user": "nobody"}, "instances not listed: nats: no responders"),
        ({"nats_url": "nats://127.0.0.1:1"}, "nats://127.0.0.1:1: no broker answers there"),
        ({"nkey": str(tmp_path / "missing.nk")}, "missing.nk cannot be read"),
    ]
    for changed, what in told_by:
        assert await check.run(msgspec.structs.replace(settings, **changed)) == 2
        wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
        assert len(wrong) == 1
        assert what in wrong[0]


async def test_answers_are_counted_by_instance_with_5xx_and_what_is_broken_off(cloud: Site) -> None:
    well, ill, port = "web.98", "web.97", free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.ill_program"), env={**os.environ, "PORT": str(port)}, cwd=ROOT
    )
    cloud.processes[ill] = process
    cloud.stack.push_async_callback(end, process)
    said = {"unit": ill, "attempt": 1, "state": "running", "cores": 1, "health_path": "/healthz"}
    cloud.listed[ill] = said | {"address": f"127.0.0.1:{port}"}
    await cloud.event("attempt.began", unit=ill, attempt=1, addresses=[f"127.0.0.1:{port}"])
    await cloud.begin(well)
    await cloud.drain("web.1")
    await cloud.until_serving(well, ill)

    def told(unit: str) -> tuple[int, int]:
        found = [signal_["instances"].get(unit, (0, 0)) for signal_ in cloud.signals["answers"]]
        return sum(answered for answered, _ in found), sum(errors for _, errors in found)

    async def get(path: str) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.request("GET", cloud.haproxy.url + path) as answer:
                await answer.read()

    async def both_are_heard() -> bool:  # what a slot answers before the first signal of its instance is not known
        await get("/?cpu_ms=0")
        return told(well)[0] > 0 and told(ill)[0] > 0

    await until(both_are_heard)
    assert told(well)[1] == 0
    await cloud.retire(well)  # the rest goes to one alone

    async def all_is_heard() -> bool:
        return not (cloud.signals["requests"][-1]["rate"] or cloud.signals["requests"][-2]["rate"])

    await until(all_is_heard)
    before = told(ill)
    assert before[0] == before[1]
    await get("/half")
    await get("/close")  # repeated three times, and then 502

    async def broken_ones_are_heard() -> bool:
        return told(ill)[0] >= before[0] + 2

    await until(broken_ones_are_heard)
    assert told(ill) == (before[0] + 2, before[0] + 2)
