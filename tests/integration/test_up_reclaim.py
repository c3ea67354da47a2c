"""on_reclaim end to end: on a whole cloud with real processes, a job's host is taken, and the job is moved, saved, started
again, or ended, as it wishes.  The counter is a shell variable: that it continues shows that its memory did."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(180)
# $1: a directory that every VM may write to.  It counts until it is stopped, or to a million.
COUNTER = """#!/bin/sh
umask 0
me=$PHOENIX_JOB_ID
trap 'exit 143' TERM
echo "start $PHOENIX_ATTEMPT pid $$" >> "$1/$me.log"
n=0
while [ ! -e "$1/$me.stop" ]; do n=$((n+1)); echo "$n" > "$1/$me.now"; sleep 0.05; done
echo "end $n" >> "$1/$me.log"
"""
TIDY = """'echo tidy >> "$1/$me.log"; exit 0'"""  # what it does on SIGTERM


class Site(Cloud):
    """Hosts of one job each; web has one, batch three."""

    def __init__(self, data: Path, witness: Path) -> None:
        super().__init__(data)
        self.witness = witness
        witness.chmod(0o777)
        (data.parent / "count.sh").write_text(COUNTER)
        (data.parent / "tidy.sh").write_text(COUNTER.replace("'exit 143'", TIDY))

    def submit(self, wish: str, *options: str, nodes: int = 1, script: str = "count.sh") -> str:
        """A counter with this wish that runs and has counted."""
        words = (
            "--on-reclaim",
            wish,
            "-N",
            str(nodes),
            "--exclusive",
            *options,
            str(self.data.parent / script),
            str(self.witness),
        )
        job = self.ok("submit", *words).strip()
        until(lambda: self.count(job) > 2, f"job {job} does not count")
        return job

    def count(self, job: str) -> int:
        file = self.witness / f"{job}.now"
        text = file.read_text().strip() if file.exists() else ""
        return int(text) if text else 0

    def log(self, job: str) -> list[str]:
        return (self.witness / f"{job}.log").read_text().splitlines()

    def show(self, job: str) -> dict[str, Any]:
        return dict(self.json("show", job))

    def reach(self, job: str, state: str, attempt: int = 1) -> dict[str, Any]:
        """The job, once it is in this state, in this attempt or a later one."""

        def reached() -> dict[str, Any] | None:
            found = self.show(job)
            return found if found["state"] == state and found["attempt"] >= attempt else None

        return dict(until(reached, f"job {job} is not {state}: {self.show(job)}"))

    def finish(self, job: str) -> dict[str, Any]:
        (self.witness / f"{job}.stop").touch()
        return self.reach(job, "completed")

    def taken_from(self, job: str) -> str:
        """Its host, or its last one, is asked back."""
        host = self.show(job)["hosts"][-1]
        self.ok("hosts", "drain", host, "--deadline", "0", "--reason", "a test")
        return str(host)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("reclaim")
    (directory / "site.toml").write_text(stack_config.DEFAULT.read_text() + "[policy]\ngrace_s = 0.5\n")
    with tempfile.TemporaryDirectory(prefix="phoenix-reclaim-") as witness:  # pytest's own is closed to other users
        found = Site(directory / "data", Path(witness))
        found.ok("up", "--detach", "--hosts", "4", "--cores", "2", "--config", str(directory / "site.toml"))
        yield found
        found.close()


@pytest.mark.long
def test_who_wishes_to_migrate_moves_and_its_counter_goes_on(site: Site) -> None:
    job = site.submit("migrate")
    left, before = site.taken_from(job), site.count(job)
    moved = site.reach(job, "running", attempt=2)
    assert moved["hosts"] != [left]
    assert moved["attempts"][0]["disposal"] == "migrate"
    until(lambda: site.count(job) > before + 3, "it has stopped counting")
    done = site.finish(job)
    assert [done["attempt"], len(done["attempts"]), done["exit_code"]] == [2, 2, 0]
    assert [line.split(" ")[0] for line in site.log(job)] == ["start", "end"]  # never started again
    assert int(site.log(job)[-1].split(" ")[1]) > before
    site.ok("hosts", "uncordon", left)


def test_of_a_gang_the_node_moves_whose_host_is_taken(site: Site) -> None:
    job = site.submit("migrate", nodes=2)
    stays = site.show(job)["hosts"][0]
    left, before = site.taken_from(job), site.count(job)
    moved = site.reach(job, "running", attempt=2)
    assert moved["hosts"][0] == stays
    assert left not in moved["hosts"]
    until(lambda: site.count(job) > before + 3, "it has stopped counting")
    until(lambda: _holder(site, left) != "hpc", "the host that it has left is not given back")
    assert site.finish(job)["attempt"] == 2
    assert [line.split(" ")[0] for line in site.log(job)] == ["start", "end"]
    site.ok("hosts", "uncordon", left)


def test_a_web_spike_suspends_a_job_which_goes_on_on_another_host(site: Site) -> None:
    others = [site.submit("kill") for _ in range(2)]
    job = site.submit("suspend")  # the one that has run for the shortest time: the victim
    (home,) = site.show(job)["hosts"]
    site.ok("scale", "web", "--exact", "2", "--as", "wendy")
    suspended = site.reach(job, "suspended")
    assert suspended["attempts"][0]["disposal"] == "suspend"
    until(lambda: site.count(job) == _later(site, job), "it keeps counting though it is suspended")
    stopped_at = site.count(job)
    until(lambda: _holder(site, home) == "web", "web has not got its host")
    assert "suspended" in site.ok("queue")
    site.finish(others[0])  # there is room again, and not at home
    resumed = site.reach(job, "running", attempt=2)
    assert resumed["hosts"] != [home]
    until(lambda: site.count(job) > stopped_at + 3, "it does not continue")
    done = site.finish(job)
    assert (done["attempt"], done["exit_code"]) == (2, 0)
    assert [line.split(" ")[0] for line in site.log(job)] == ["start", "end"]
    assert int(site.log(job)[-1].split(" ")[1]) > stopped_at
    site.finish(others[1])
    site.ok("scale", "web", "--exact", "1", "--as", "wendy")


def test_who_wishes_to_be_requeued_starts_again_and_who_wishes_to_be_killed_is_over(site: Site) -> None:
    again, over = site.submit("requeue"), site.submit("kill")
    hosts = [site.taken_from(again), site.taken_from(over)]
    site.reach(over, "killed")
    site.reach(again, "running", attempt=2)
    site.finish(again)
    assert [line.split(" ")[:2] for line in site.log(again)][:2] == [["start", "1"], ["start", "2"]]
    assert [line.split(" ")[0] for line in site.log(over)] == ["start"]
    site.ok("hosts", "uncordon", *hosts)


def test_a_script_that_tidies_up_and_ends_with_0_starts_again_or_has_ended_early_as_it_wishes(site: Site) -> None:
    """Web takes the hosts of the two that have run for the shortest time."""
    stays, again = site.submit("requeue"), site.submit("requeue", script="tidy.sh")
    early = site.submit("requeue", "--on-term", "complete", script="tidy.sh")
    after = site.ok("submit", "-d", f"afterok:{again}", "--wrap", "true").strip()
    site.ok("scale", "web", "--exact", "3", "--as", "wendy")
    done = site.reach(early, "ended_early")
    assert (done["exit_code"], done["attempts"][0]["why"]["code"]) == (0, "reclaimed")
    assert site.reach(again, "pending")["attempts"][0]["disposal"] == "requeue"
    past = {job["unit"]: job for job in site.json("history")["jobs"]}
    for job in (early, again):
        until(lambda job=job: site.log(job)[-1] == "tidy", f"job {job} was not told to end")  # type: ignore[misc]
        assert past[job]["reason"]["code"] == "reclaimed"
    assert site.show(after)["state"] == "pending"
    site.ok("scale", "web", "--exact", "1", "--as", "wendy")
    site.reach(again, "running", attempt=2)
    site.finish(again)
    assert [line.split(" ")[0] for line in site.log(again)] == ["start", "tidy", "start", "end"]
    assert [line.split(" ")[0] for line in site.log(early)] == ["start", "tidy"]
    site.reach(after, "completed")
    site.finish(stays)


def test_what_no_hypervisor_can_do_is_told_at_the_command_line(site: Site) -> None:
    done = site.run("submit", "--on-reclaim", "explode", "--wrap", "true")
    assert done.returncode == 2
    assert "suspend" in done.stderr


def _later(site: Site, job: str) -> int:
    """The count after some other work's time: a round trip through the whole cloud."""
    site.show(job)
    return site.count(job)


def _holder(site: Site, host: str) -> str:
    return next(str(each["department"]) for each in site.json("hosts")["hosts"] if each["host"] == host)
