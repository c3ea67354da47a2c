"""Where a user of Slurm would stumble: what is asked for as there is done, or refused in words, with an exit code to match."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up_cloud import Cloud

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    found = Cloud(tmp_path_factory.mktemp("cloud") / "data")
    found.ok("up", "--detach", "--hosts", "3", "--cores", "2")
    yield found
    found.close()


def test_a_script_with_dos_line_ends_runs_with_a_warning_and_a_program_that_is_not_there_is_said_to_be_so(
    cloud: Cloud, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_bytes(b"#!/bin/sh\r\n#SBATCH -J dos\r\nphoenix launch no-such-program\r\necho code $?\r\n")
    done = cloud.run("submit", "--wait", "-o", str(tmp_path / "%u-%N-%n.out"), str(script))
    assert (done.returncode, "DOS line ends (CR LF)" in done.stderr) == (0, True), done.stderr
    job = done.stdout.strip()
    host = cloud.json("show", job)["attempts"][0]["hosts"][0]
    assert (tmp_path / f"alice-{host}-0.out").read_text() == "code 127\n"
    told = cloud.ok("output", job, "--stderr")
    assert told == "phoenix: cannot run no-such-program: there is no such program in PATH\n"


def test_what_has_ended_says_how_and_where_the_rest_is(cloud: Cloud) -> None:
    waited = cloud.run("submit", "--wait", "-a", "1-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID")
    array = waited.stdout.strip()
    assert waited.stderr == f"phoenix: job {array} has ended: 2 failed\n"
    assert f"job {array}:\n  1. It is finished: 2 failed, at 20" in cloud.ok("why", array)
    assert "1. It is finished: failed with exit code 2 after 0s, at 20" in cloud.ok("why", f"{array}_2")
    waited = cloud.run("submit", "--wait", "--wrap", "kill -9 $$")
    assert waited.stderr == f"phoenix: job {waited.stdout.strip()} failed with signal 9 (SIGKILL)\n"
    assert "1. It is finished: failed with signal 9 (SIGKILL) after 0s, at 20" in cloud.ok("why", waited.stdout.strip())
    none = cloud.run("cancel", f"{array}_99999")
    assert (none.returncode, f"job {array} has no element {array}_99999" in none.stderr) == (2, True)
    listed = cloud.run("queue", "--state", "failed")
    assert listed.returncode == 0
    assert f"{array}_2" in listed.stdout
    assert "phoenix history --state failed" in listed.stderr


def test_memory_is_of_the_host_of_each_core_or_the_department_s(cloud: Cloud) -> None:
    host_mb = cloud.json("hosts")["hosts"][0]["memory_mb"]
    asked = {("--mem", "0"): host_mb, ("--mem-per-cpu", "100", "-n", "2"): 200, ("-n", "2"): 512, (): 256}
    for words, expected in asked.items():
        job = cloud.ok("submit", *words, "--wrap", "true").strip()
        assert cloud.json("show", job)["memory_mb"] == expected, words


def test_a_user_lowers_a_priority_and_a_manager_raises_it(cloud: Cloud) -> None:
    cloud.ok("submit", "--priority", "-5", "--wrap", "true")
    denied = cloud.run("submit", "--priority", "1000000", "--wrap", "true")
    assert (denied.returncode, "managers of hpc and operators raise it" in denied.stderr) == (4, True)
    cloud.ok("submit", "--as", "mona", "--priority", "1000000", "--wrap", "true")


def test_what_is_mistyped_or_not_there_is_exit_code_2_and_said(cloud: Cloud, tmp_path: Path) -> None:
    for words in (["-a", "abc"], ["-a", "3-1"], ["-d", "foo:2"], ["-d", "afterok:x"], ["--mem-per-cpu", "0"]):
        assert cloud.run("submit", *words, "--wrap", "true").returncode == 2, words
    job = cloud.run("submit", "--wait", "--wrap", "true").stdout.strip()
    for words, told in ((["--rank", "7"], f"rank: {job} has one rank, 0"), (["--attempt", "9"], f"{job} has had 1")):
        none = cloud.run("output", job, *words)
        assert (none.returncode, told in none.stderr) == (2, True), none.stderr
    check = cloud.run("config", "check", str(tmp_path))
    assert (check.returncode, f"{tmp_path} is a directory" in check.stderr) == (2, True)
