"""The embedded load balancer against a real broker and real web instances, each its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from phoenix.local.balancer.settings import SettingsError, load
from tests.support.balancer_site import DEADLINE_S, Site, serve_once
from tests.support.ports import free_port
from tests.support.until import until


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
    await site.start(wait_s=0.1)
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
    assert (served["errors"], served["refused"]) == (0, 0)
    assert (served["rate"] > 0, served["response_ms"] > 0) == (True, True)
    await next_signal(site, "requests", lambda s: s["rate"] == 0)  # all of these are reported
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


async def test_answers_are_counted_by_instance_with_5xx_and_what_is_broken_off(site: Site) -> None:
    await site.start()
    well, _ = await site.instance()
    ill, port = "web.77", free_port()
    await site.spawn(sys.executable, "-m", "tests.support.ill_program", PORT=str(port))
    address = f"127.0.0.1:{port}"
    site.listed.append({"unit": ill, "attempt": 1, "address": address, "state": "running", "cores": 1})
    await site.event("attempt.began", unit=ill, attempt=1, addresses=[address])
    await site.until_in_service(well, ill)
    told = {well: [0, 0], ill: [0, 0]}

    async def until_told(unit: str, answered: int, errors: int) -> None:
        while told[unit] != [answered, errors]:
            found = await next_signal(site, "answers", lambda _: True)
            for name, counts in found["instances"].items():
                told[name] = [had + more for had, more in zip(told[name], counts, strict=True)]

    statuses = [await site.get() for _ in range(10)]
    assert sorted(statuses) == [200] * 5 + [500] * 5  # the one that was chosen longest ago is next
    await until_told(well, 5, 0)
    await until_told(ill, 5, 5)
    site.unlist(well)
    await site.event("attempt.closed", unit=well, attempt=1)
    await site.until_in_service(ill)
    async with site.session.post(site.url + "/close") as answer:  # not idempotent: it is not repeated
        assert answer.status == 502
    await site.until_in_service(ill)  # its next health check is well
    with pytest.raises(aiohttp.ClientError):
        async with site.session.post(site.url + "/half") as answer:
            await answer.read()
    await until_told(ill, 7, 7)
