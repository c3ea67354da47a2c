"""A real full file system below JetStream: it is reported while it lasts, and a cloud with room again comes back by itself."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.integration.up_cloud import Cloud, until
from tests.support.small_disk import SmallDisk

SIZE_MB = 64
SUBMIT = ("submit", "--wrap", "true")

pytestmark = pytest.mark.timeout(240)


class Full(Cloud):
    """A cloud whose `nats` directory is on a small disk."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.disk = SmallDisk(data / "nats", SIZE_MB)

    def up(self) -> None:
        words = ["up", "--detach", "--hypervisor", "dummy", "--hosts", "2", "--balancer", "none"]
        argv = self.disk.inside([sys.executable, "-m", "phoenix.cli", *words])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=self.environment(), check=False)
        assert done.returncode == 0, done.stderr

    def part(self, name: str) -> dict[str, Any]:
        return next(part for part in self.status()["processes"] if part["name"] == name)

    def metric(self, process: str, sample: str) -> float:
        with urlopen(str(self.part(process)["url"]), timeout=10) as answer:
            told = answer.read().decode()
        return float(next(line.split()[-1] for line in told.splitlines() if line.startswith(f"{sample} ")))


def doctor(cloud: Full) -> tuple[int, str, bool]:
    """Its exit code, and what it says of the broker: how bad, and whether of the journal."""
    done = cloud.run("doctor", "--json")
    (found,) = [x for x in json.loads(done.stdout)["findings"] if x["check"] == "broker"]
    return done.returncode, found["level"], "PHOENIX (no space left on device)" in found["found"]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Full]:
    found = Full(tmp_path / "data")
    yield found
    found.close()


@pytest.mark.long
def test_a_full_disk_is_told_and_with_room_again_the_cloud_comes_back_by_itself(cloud: Full) -> None:
    cloud.up()
    assert cloud.ok(*SUBMIT) == "1\n"
    supervisor = int(cloud.status()["pid"])
    cloud.disk.fill(supervisor)
    ids = map(str, itertools.count(1))

    def refused() -> tuple[str, subprocess.CompletedProcess[str]] | None:
        """What still fits into the last page is stored."""
        request = f"full-{next(ids)}"
        done = cloud.run(*SUBMIT, "--request", request)
        return (request, done) if done.returncode else None

    request, told = until(refused, "submit succeeds on a full disk")
    assert told.returncode == 3, told.stderr
    assert "stores nothing" in told.stderr
    assert f"--request {request}" in told.stderr
    assert cloud.metric("admission", "phoenix_journal_full") == 1
    until(
        lambda: cloud.metric("monitor", 'phoenix_stream_stopped{stream="journal"}') == 1, "the monitor does not see it"
    )
    status = cloud.status()
    assert not status["healthy"]
    assert "no space left on device" in cloud.part("nats")["ailing"][0]
    assert "free more space" in cloud.part("nats")["ailing"][0]
    assert cloud.part("nats")["restarts"] == 0
    assert doctor(cloud) == (1, "fail", True)
    cloud.disk.empty(supervisor)
    until(lambda: cloud.status()["healthy"], "the cloud does not come back")
    assert cloud.part("nats")["restarts"] == 1
    assert doctor(cloud) == (0, "ok", False)
    job = cloud.ok(*SUBMIT, "--request", request)
    assert cloud.ok(*SUBMIT, "--request", request) == job
    until(lambda: cloud.json("show", job.strip())["state"] == "completed", "the job does not run")
    assert cloud.metric("admission", "phoenix_journal_full") == 0
    until(
        lambda: cloud.metric("monitor", 'phoenix_stream_stopped{stream="journal"}') == 0, "it is not seen written again"
    )
