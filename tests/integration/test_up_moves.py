"""A whole cloud of processes: a suspended job continues on another host where it stopped; VMs take one job after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until

pytestmark = pytest.mark.timeout(180)
# It counts until the file $1 is there.
COUNTER = """#!/bin/sh
echo "begins as $$ in attempt $PHOENIX_ATTEMPT"
n=0; while [ ! -e "$1" ]; do n=$((n+1)); echo $n; sleep 0.05; done
echo "ends as $$"
"""
LEAVES = """#!/bin/sh
echo secret > file; (setsid setsid sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 &)
while [ ! -s pid ]; do sleep 0.02; done
echo "$PHOENIX_ROOM $(cat pid)"
"""
LOOKS = """#!/bin/sh
ls -A; cat "$1/work/file" 2>/dev/null && echo FOUND; kill -0 "$2" 2>/dev/null && echo ALIVE
echo "job $PHOENIX_JOB_ID"
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("moves")
    batch = '[department.batch]\non_reclaim = "suspend"\n[department.batch.warm]\nidle_s = 60\n'
    text = stack_config.DEFAULT.read_text().replace('kind = "batch"\n', f'kind = "batch"\n{batch}')
    (directory / "site.toml").write_text(text)
    found = Cloud(directory / "data")
    found.ok("up", "--detach", "--hosts", "4", "--cores", "2", "--config", str(directory / "site.toml"))
    yield found
    found.close()


def submit(cloud: Cloud, path: Path, script: str, *words: str) -> str:
    path.write_text(script)
    return cloud.ok("submit", str(path), *words).strip()


@pytest.fixture
def enough() -> Iterator[Path]:
    with signpost() as file:
        yield file


def ended(cloud: Cloud, job: str) -> None:
    until(lambda: cloud.json("show", job)["state"] == "completed", f"job {job} does not end")


def facts(cloud: Cloud, kind: str, job: str) -> list[dict[str, Any]]:
    lines = cloud.ok("events", "--after", "0", "--last", "100000", "--json").splitlines()
    told = [json.loads(line)["fact"] for line in lines]
    return [fact for fact in told if fact["kind"] == kind and fact.get("unit") == job]


def test_a_counter_goes_on_where_it_stopped_on_another_host(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    def counted() -> int:
        return len(cloud.run("output", job).stdout.splitlines())

    job = submit(cloud, tmp_path / "count.sh", COUNTER, str(enough))
    until(lambda: counted() > 5, "it does not count")
    (host,) = cloud.json("show", job)["hosts"]
    cloud.ok("hosts", "drain", host, "--deadline", "0", "--reason", "a test")
    until(lambda: len(facts(cloud, "attempt.began", job)) == 2, "it does not continue")
    before = counted()
    until(lambda: counted() > before + 2, "it does not count on")
    enough.touch()
    ended(cloud, job)
    cloud.ok("hosts", "uncordon", host)
    lines = cloud.ok("output", job).splitlines()
    assert lines[1:-1] == [str(n + 1) for n in range(len(lines) - 2)]  # without hole or repetition
    pid = lines[-1].split()[-1]
    assert (lines[0], lines[-1]) == (f"begins as {pid} in attempt 1", f"ends as {pid}")
    allocated = facts(cloud, "vm.allocated", job)
    assert len({fact["vm"] for fact in allocated}) == 1  # the same VM
    assert len({fact["host"] for fact in allocated}) == len(allocated) == 2  # on two hosts
    assert [fact["attempt"] for fact in facts(cloud, "attempt.began", job)] == [1, 2]


def test_the_next_job_takes_the_vm_and_finds_nothing_of_the_one_before(cloud: Cloud, tmp_path: Path) -> None:
    first = submit(cloud, tmp_path / "leaves.sh", LEAVES)
    ended(cloud, first)
    until(lambda: "waiting for a job" in cloud.ok("hosts"), "no VM waits")
    room, pid = cloud.ok("output", first).split()
    second = submit(cloud, tmp_path / "looks.sh", LOOKS, room, pid)
    ended(cloud, second)
    assert cloud.ok("output", second) == f"job {second}\n"
    vms = [facts(cloud, "vm.allocated", job)[0]["vm"] for job in (first, second)]
    assert vms[0] == vms[1]
    assert len(facts(cloud, "vm.parked", first)) == 1
