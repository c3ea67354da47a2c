"""A cloud of processes: what jobs use is known while they run, and of whatever they end.

Jobs hold memory, burn CPU and say themselves how much of it they have had; the figures are compared with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until

pytestmark = pytest.mark.timeout(240)
HELD_MB = 100
MORE_MB = 60  # that an interpreter and a shell need beside
# What a job has used and not said: interpreters that start, what came after its last word.
MORE_S = 2.0
RESTS_S = 0.6  # of CPU time, after which a job rests: what it has used stays what it has said
PROGRAM = f"""
import os, sys, time
held = bytearray({HELD_MB} << 20)
held[::4096] = bytes([1]) * len(held[::4096])
most, own = float((*sys.argv[2:], "inf")[0]), 0.0
while not os.path.exists(sys.argv[1]):
    if own < most:
        sum(range(100_000))
        own = sum(os.times()[:2])
        print(own, flush=True)
    else:
        time.sleep(0.1)
"""
BURN = f"#!/bin/sh\nexec python3 -c '{PROGRAM}' \"$@\"\n"
GANG = f"#!/bin/sh\nexec phoenix launch -l python3 -c '{PROGRAM}' \"$1\"\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("used")
    text = f"{stack_config.DEFAULT.read_text()}\n[limits]\nusage_interval_s = 0.25\n"
    (directory / "site.toml").write_text(text)
    found = Cloud(directory / "data")
    found.ok("up", "--detach", "--hosts", "4", "--cores", "8", "--config", str(directory / "site.toml"))
    yield found
    found.close()


@pytest.fixture
def enough() -> Iterator[Path]:
    with signpost() as file:
        yield file


def burning(cloud: Cloud, path: Path, enough: Path, *words: str) -> str:
    """A job that has used more than half a second."""
    path.write_text(BURN)
    job = cloud.ok("submit", "-c", "8", "--mem", "300", *words, str(path), str(enough)).strip()
    until(lambda: own_s(cloud, job) > 0.5, "it does not burn")
    return job


def resting(cloud: Cloud, path: Path, enough: Path, *words: str) -> str:
    """A job that has used `RESTS_S`, and of which that is known.  However slow the machine is, it uses no more, so it does not
    matter when what it says and what is heard of it come: both are the whole."""
    path.write_text(BURN)
    job = cloud.ok("submit", "-c", "8", "--mem", "300", *words, str(path), str(enough), str(RESTS_S)).strip()
    until(lambda: own_s(cloud, job) >= RESTS_S, "it does not burn")
    until(lambda: (cloud.json("show", job)["cpu_seconds"] or 0.0) >= RESTS_S, "what it has used is unknown")
    return job


def own_s(cloud: Cloud, job: str, *words: str) -> float:
    """By its own word."""
    lines = cloud.run("output", job, *words).stdout.split()
    return float(lines[-1]) if lines else 0.0


def is_right(used: dict[str, Any], own: float) -> bool:
    cpu, peak = used["cpu_seconds"], used["max_rss_mb"]
    return own - 0.1 <= cpu <= own + MORE_S and HELD_MB <= peak <= HELD_MB + MORE_MB


def recorded(cloud: Cloud, job: str, attempt: int = 1) -> dict[str, Any]:
    """What the journal says an attempt has used."""

    def known() -> dict[str, Any] | None:
        found = cloud.json("show", job)["attempts"][attempt - 1]
        return found if found["ended_at"] and found["heard_at"] and not found["so_far"] else None

    return dict(until(known, f"what attempt {attempt} of job {job} has used is unknown"))


def test_a_job_that_runs_is_known(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    job = burning(cloud, tmp_path / "burn.sh", enough)
    own = own_s(cloud, job)

    def known() -> dict[str, Any] | None:
        told = cloud.json("show", job)
        return told if (told["cpu_seconds"] or 0.0) >= own else None

    shown = until(known, "what it has used is unknown")
    assert shown["so_far"]
    assert shown["attempts"][0]["so_far"]
    said = own_s(cloud, job)  # later, so that it may have used more; and what it says is on its way for a moment
    assert own <= shown["cpu_seconds"] <= said + MORE_S
    assert HELD_MB <= shown["max_rss_mb"] <= HELD_MB + MORE_MB
    assert "CPU time:" in cloud.ok("show", job)
    assert "MiB so far" in cloud.ok("show", job)
    enough.touch()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    shown = cloud.json("show", job)
    assert not shown["so_far"]
    assert is_right(shown, own_s(cloud, job))


def test_a_cancelled_job_keeps_what_it_has_used(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    job = resting(cloud, tmp_path / "burn.sh", enough)
    cloud.ok("cancel", job)
    assert is_right(recorded(cloud, job), own_s(cloud, job))
    (past,) = [each for each in cloud.json("history", "--all")["jobs"] if each["unit"] == job]
    assert (past["state"], past["cpu_seconds"]) == ("cancelled", recorded(cloud, job)["cpu_seconds"])
    assert "CPU time" in cloud.ok("story", job)


def test_a_job_that_has_timed_out_keeps_what_it_has_used(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    job = resting(cloud, tmp_path / "burn.sh", enough, "-t", "12s")
    until(lambda: cloud.json("show", job)["state"] == "timeout", "it continues beyond its limit")
    assert is_right(recorded(cloud, job), own_s(cloud, job))


def test_a_job_that_was_preempted_keeps_what_each_attempt_has_used(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    job = resting(cloud, tmp_path / "burn.sh", enough, "--on-reclaim", "requeue")
    (host,) = cloud.json("show", job)["hosts"]
    cloud.ok("hosts", "drain", host, "--deadline", "0", "--reason", "a test")
    first = recorded(cloud, job)
    assert first["disposal"] == "requeue"
    assert is_right(first, own_s(cloud, job, "--attempt", "1"))
    until(lambda: cloud.json("show", job)["attempts"][-1]["attempt"] == 2, "it does not run again")
    until(lambda: own_s(cloud, job) > 0, "it does not burn")
    enough.touch()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    cloud.ok("hosts", "uncordon", host)
    shown = cloud.json("show", job)
    assert is_right(shown["attempts"][1], own_s(cloud, job))
    assert shown["cpu_seconds"] == round(sum(each["cpu_seconds"] for each in shown["attempts"]), 3)


def test_a_job_that_was_suspended_has_used_in_each_attempt_its_own(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    job = burning(cloud, tmp_path / "burn.sh", enough, "--on-reclaim", "suspend")
    (host,) = cloud.json("show", job)["hosts"]
    cloud.ok("hosts", "drain", host, "--deadline", "0", "--reason", "a test")
    first = recorded(cloud, job)
    assert first["disposal"] == "suspend"
    assert first["cpu_seconds"] > 0.4
    until(lambda: own_s(cloud, job) > first["cpu_seconds"] + 0.5, "it does not continue")
    enough.touch()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    cloud.ok("hosts", "uncordon", host)
    shown = cloud.json("show", job)
    assert is_right(shown, own_s(cloud, job))  # of the process that went on, and not more: nothing counts twice
    assert shown["attempts"][0]["cpu_seconds"] == first["cpu_seconds"]


def test_what_all_ranks_of_a_job_have_used_adds_up(cloud: Cloud, tmp_path: Path, enough: Path) -> None:
    def own() -> dict[str, float]:
        lines = [line.split() for line in cloud.run("output", job).stdout.splitlines()]
        return {task: float(cpu) for task, cpu in lines}

    (tmp_path / "gang.sh").write_text(GANG)
    job = cloud.ok("submit", "-N", "2", "-c", "4", "--mem", "300", str(tmp_path / "gang.sh"), str(enough)).strip()
    until(lambda: len(own()) == 2 and min(own().values()) > 0.3, "not both ranks burn")
    enough.touch()
    until(lambda: cloud.json("show", job)["state"] == "completed", "it does not end")
    told = recorded(cloud, job)
    assert told["ranks_heard"] == 2
    assert sum(own().values()) - 0.1 <= told["cpu_seconds"] <= sum(own().values()) + 2 * MORE_S
    assert HELD_MB <= told["max_rss_mb"] <= HELD_MB + MORE_MB  # of the rank that needed most
