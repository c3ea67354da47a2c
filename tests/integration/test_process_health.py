"""What the guest of an instance says of its program: whether its health path answers well, and how it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.guest_door import HOST
from tests.support.hypervisor import Hypervisor, started

ISOLATION = "none" if os.geteuid() else "uid+cgroup"
pytestmark = pytest.mark.timeout(60)

SWITCHED = """#!/usr/bin/env python3
import http.server, os
class Answers(http.server.BaseHTTPRequestHandler):
    health = 200
    def do_GET(self):
        if self.path != "/healthz":
            Answers.health = int(self.path[1:])
        self.send_response(Answers.health if self.path == "/healthz" else 200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Answers).serve_forever()
"""


@pytest.fixture
async def hypervisor(tmp_path: Path) -> AsyncIterator[Hypervisor]:
    async with started(tmp_path / "data", ISOLATION) as it:
        yield it


async def test_an_instance_that_is_killed_says_by_which_signal(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("web.7", kind="instance", script="#!/bin/sh\nkill -SEGV $$\n", health_path="/x")
    await hypervisor.until_ended(await hypervisor.boot("web.7"))
    assert life.ended == {"exit": None, "signal": signal.SIGSEGV, "oom": False}


async def test_an_instances_guest_says_when_its_health_path_fails_and_when_it_is_well_again(
    hypervisor: Hypervisor,
) -> None:
    life = hypervisor.door.add("web.7", kind="instance", script=SWITCHED, health_path="/healthz")
    vm = await hypervisor.boot("web.7")
    await hypervisor.door.until(lambda: life.usages and life.usages[-1]["ready"])
    async with aiohttp.ClientSession() as session:
        for status in (500, 200):
            async with session.get(f"http://{life.began[0]}/{status}") as answer:
                assert answer.status == 200
            await hypervisor.door.until(lambda status=status: life.usages[-1]["ready"] is (status == 200))  # type: ignore[misc]
            assert life.usages[-1].get("answer", "") == ("" if status == 200 else "/healthz answered HTTP 500")
    await hypervisor.driver.cancel(vm, HOST)
