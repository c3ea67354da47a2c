"""OpenNebula fails every start for some seconds, in a whole cloud with a dummy hypervisor: no job and no host pays for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.up_cloud import Cloud, steer, until

pytestmark = pytest.mark.timeout(240)
WORDS = "DEPLOY: no space left on device"
JOBS = 5


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    found = Cloud(tmp_path_factory.mktemp("site-fault") / "data")
    found.ok("up", "--detach", "--hosts", "8", "--cores", "1", "--hypervisor", "dummy", "--steering")
    yield found
    found.close()


@pytest.mark.long
def test_while_every_start_fails_the_cloud_says_so_once_and_then_all_jobs_run(cloud: Cloud) -> None:
    until(lambda: all(h["state"] == "held" for h in cloud.json("hosts")["hosts"]), "hosts are not held")
    steer(cloud, op="rule", step="boot", fail="no space left on device")
    jobs = [cloud.ok("submit", "--wrap", "true").strip() for _ in range(JOBS)]
    until(lambda: "starts of VMs are paused" in cloud.run("status").stdout, "the pause is not told")
    assert WORDS in cloud.run("status").stdout
    until(lambda: WORDS in cloud.ok("why", jobs[0]), "why does not quote OpenNebula")
    steer(cloud, op="clear")
    until(lambda: all(cloud.json("show", job)["state"] == "completed" for job in jobs), "a job does not run")
    assert [host["quarantine"] for host in cloud.json("hosts")["hosts"]] == [None] * 8
    until(lambda: "starts of VMs are paused" not in cloud.run("status").stdout, "the pause is still reported")
    attempts = [attempt for job in jobs for attempt in cloud.json("show", job)["attempts"]]
    failed = [attempt for attempt in attempts if attempt["began_at"] is None]
    assert {attempt["disposal"] for attempt in failed} == {"requeue"}
    assert {attempt["why"]["vm"] for attempt in failed} == {f"failed: {WORDS}"}
    assert WORDS in "".join(cloud.ok("show", job) for job in jobs)
    events = map(json.loads, cloud.ok("events", "--json", "--last", "1000").splitlines())
    assert [e["kind"] for e in events if e["kind"].startswith("starts.")] == ["starts.paused", "starts.resumed"]
