"""Hung is not dead: the supervisor replaces a process that is there and says nothing any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up_cloud import Cloud, until

UP = ("up", "--detach", "--hosts", "2", "--balancer", "none")
# It ends, and its walltime passes, before a hung admission is replaced.
SHORT = ("submit", "--time", "0:08", "--wrap", "sleep 3")

pytestmark = pytest.mark.timeout(240)


class Hung(Cloud):
    def stop(self, name: str) -> None:
        os.kill(next(part["pid"] for part in self.status()["processes"] if part["name"] == name), signal.SIGSTOP)

    def restarts(self) -> dict[str, int]:
        return {part["name"]: part["restarts"] for part in self.status()["processes"]}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Hung]:
    found = Hung(tmp_path / "data")
    yield found
    found.close()


@pytest.mark.long
def test_who_hangs_is_replaced_and_submit_gets_its_answer(cloud: Hung) -> None:
    cloud.ok(*UP)
    assert cloud.ok(*SHORT) == "1\n"
    until(lambda: cloud.json("show", "1")["state"] == "running", "the job does not run")
    cloud.stop("admission")
    assert cloud.ok("submit", "--wrap", "true", "--request", "once") == "2\n"  # asked again by itself
    assert cloud.ok("submit", "--wrap", "true", "--request", "once") == "2\n"
    until(lambda: cloud.json("show", "1")["state"] != "running", "its end is not reported")
    assert cloud.json("show", "1")["state"] == "completed"  # and not timeout: its report only waited
    cloud.stop("nats")
    until(lambda: cloud.restarts()["nats"] == 1, "nats-server is not replaced")
    until(lambda: cloud.status()["healthy"], "it is not healthy again")
    assert cloud.restarts() == dict.fromkeys(cloud.restarts(), 0) | {"admission": 1, "nats": 1}
    assert "admission: does not answer for 20 s" in (cloud.data / "log" / "supervisor.log").read_text()
    until(lambda: cloud.json("show", "2")["state"] == "completed", "the job does not run")
