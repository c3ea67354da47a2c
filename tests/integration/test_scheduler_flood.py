"""A burst of signals from one connection: the scheduler's own connection, its lead, its journal and its answers continue."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from schemas import facts as f
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.web import WebEdge
from tests.integration.test_scheduler_edges import ask, scheduler
from tests.support.shells import World
from tests.support.until import until

BURST = 100_000
SUBJECT = "phoenix.signal.web.lb.requests"


def burst(url: str, messages: list[bytes]) -> None:
    """As fast as the broker takes them, from one connection."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        lines = [b"PUB %b %d\r\n%b\r\n" % (SUBJECT.encode(), len(one), one) for one in messages]
        connection.sendall(b"".join(lines) + b"PING\r\n")
        heard = b""
        while heard.count(b"PONG") < 2:  # the broker has taken the last one
            heard += connection.recv(4096)


def signal(at: float) -> bytes:
    return json.dumps(
        {"rate": 1.0, "interval_s": 0.1, "source": "haproxy-1", "at": datetime.fromtimestamp(at, UTC).isoformat()}
    ).encode()


def signals(first_at: float) -> list[bytes]:
    """Of one program, each newer than the one before."""
    return [signal(first_at + number * 1e-6) for number in range(BURST)]


@pytest.mark.long
async def test_a_burst_costs_the_scheduler_neither_its_connection_nor_its_lead(here: World) -> None:
    service = await scheduler(here, "web")
    core, edge = service.core, service.edges[0]
    assert isinstance(core, WebCore)
    assert isinstance(edge, WebEdge)
    await until(lambda: core.state.target == 1, "it has decided")
    first_at, epoch, heard = time.time(), service.epoch, service.nc.stats["in_msgs"]
    flood = asyncio.create_task(asyncio.to_thread(burst, here.server.url, signals(first_at)))
    asked = f.ScaleRequested(dept="web", user="wim", minimum=2)
    await here.write(asked, writer="admission")
    await until(lambda: core.state.target == 2, "it decides, and its appends come back")
    assert (await ask(here, "web", "why", {}))["instances"] == 2
    await flood
    gate, line = edge.meter.gate, edge.line.client
    # Where the machine is so busy that they cannot be read in the broker's 10 s, it gives the line up, and it alone.
    await until(
        lambda: sum(gate.taken.values()) + sum(gate.dropped.values()) == BURST or line.stats["reconnects"],
        "all are accounted for",
        deadline_s=120.0,
    )
    last_at = time.time()
    async with asyncio.timeout(120.0):
        while edge.meter.last["requests"].at < last_at:  # one a second, as a balancer: each by itself may be dropped
            await here.admin.publish(SUBJECT, signal(time.time()))
            await asyncio.sleep(1.0)
    assert ("requests", "too_often") in gate.dropped
    assert service.nc.stats["in_msgs"] - heard < BURST, "nothing of the service's own comes behind them"
    assert (service.epoch, service.is_leader, service.nc.stats["reconnects"]) == (epoch, True, 0)
    assert service.nats_errors == 0
