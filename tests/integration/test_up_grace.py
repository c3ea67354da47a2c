"""A victim that asked for a grace saves its work before its host goes to web; one that did not is ended: a whole cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until

pytestmark = pytest.mark.timeout(180)
GRACE_S = 60  # longer than the test: the job continues until it has saved
SAVING = """#!/bin/sh
save() { echo told >> "$1"; while [ ! -e "$2" ]; do sleep 0.05; done; echo saved >> "$1"; exit 0; }
trap 'save "$1" "$2"' TERM
echo runs >> "$1"
while :; do sleep 0.05; done
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("grace")
    allowed = f'kind = "batch"\n[department.batch]\ngrace_max_s = {GRACE_S}\non_reclaim = "kill"\n'.replace(
        "\\\n", "\n"
    )
    (directory / "site.toml").write_text(stack_config.DEFAULT.read_text().replace('kind = "batch"\n', allowed))
    found = Cloud(directory / "data")
    found.ok("up", "--detach", "--hosts", "3", "--cores", "2", "--config", str(directory / "site.toml"))
    yield found
    found.close()


def test_who_asked_has_saved_when_its_host_is_granted_and_who_did_not_is_ended(cloud: Cloud, tmp_path: Path) -> None:
    script = tmp_path / "saving.sh"
    script.write_text(SAVING)
    with signpost() as enough:
        enough.parent.chmod(0o777)  # jobs write there
        said = {name: enough.parent / name for name in ("asked", "plain")}
        jobs = {}
        for name, words in (("asked", ("--grace", f"{GRACE_S}s")), ("plain", ())):
            done = cloud.run("submit", "--exclusive", *words, str(script), str(said[name]), str(enough))
            assert done.returncode == 0, done.stderr
            told = f"a claim that takes its hosts may wait up to {GRACE_S // 60}m01s for it"
            assert (told in done.stderr) is (name == "asked")
            jobs[name] = done.stdout.strip()
            until(lambda name=name: said[name].exists(), f"{name} does not run")  # type: ignore[misc]
        shown = cloud.json("show", jobs["asked"])
        assert (shown["grace_s"], "grace_s" in cloud.json("show", jobs["plain"])) == (GRACE_S, False)
        assert f"{GRACE_S}s from SIGTERM to SIGKILL" in cloud.ok("show", jobs["asked"])
        (home,) = shown["hosts"]
        cloud.ok("scale", "web", "--exact", "3", "--as", "wendy")
        until(lambda: said["asked"].read_text() == "runs\ntold\n", "it is not told to end")
        until(lambda: _held(cloud) == 2, "web has not got the host of the one that did not ask")
        assert f"job {jobs['asked']} has until then to save" in cloud.ok("why", "web")
        for name in ("hpc", home):
            assert f"job {jobs['asked']} has until then to save" in cloud.ok("why", name)
        told = cloud.ok("departments")
        assert "web waits for 1 host until " in told
        assert "hpc waits for" not in told
        assert next(host for host in cloud.json("hosts")["hosts"] if host["host"] == home)["state"] == "draining"
        enough.touch()
        until(lambda: said["asked"].read_text() == "runs\ntold\nsaved\n", "it has not saved")
        until(lambda: _held(cloud) == 3, "web has not got its host")
        assert "web waits for" not in cloud.ok("departments")
        assert "saved" not in said["plain"].read_text()
        assert {name: cloud.json("show", job)["state"] for name, job in jobs.items()} == dict.fromkeys(jobs, "killed")
    cloud.ok("scale", "web", "--auto", "--as", "wendy")


def test_more_than_the_department_allows_is_refused_in_words(cloud: Cloud) -> None:
    done = cloud.run("submit", "--grace", "2m", "--wrap", "true")
    assert done.returncode != 0
    assert f"--grace: 120 s is more than hpc allows: grace_max_s is {GRACE_S} s" in done.stderr


def _held(cloud: Cloud) -> int:
    return next(
        int(one["hosts_held"]) for one in cloud.json("departments")["departments"] if one["department"] == "web"
    )
