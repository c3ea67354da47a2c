"""The example of docs/howto/plugins.md for a stranger: built by setuptools, found, checked, chosen, simulated, running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(120)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "phoenix-widest-first"
SITE = """[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[department.batch]
order = "widest-first"
victims = "widest-last"
[department.batch.options]
by = "hosts"
[[user]]
name = "ann"
department = "hpc"
[[user]]
name = "root"
department = "operators"
role = "operator"
"""
WHAT_IF = """[experiment]
name = "wide or narrow"
[cluster]
hosts = 8
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 150, processors = 8, load = 0.9 }
[[vary]]
name = "first-fit"
[[vary]]
name = "widest-first"
set = { hpc.order = "widest-first", hpc.victims = "widest-last", hpc.options = { by = "hosts" } }
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the example and its metadata, as setuptools writes them from its pyproject.toml, offline."""
    where = tmp_path_factory.mktemp("site") / "widest"
    shutil.copytree(EXAMPLE, where, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    words = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"]
    subprocess.run(words, cwd=where, check=True, capture_output=True, timeout=200)
    return where


@pytest.fixture
def with_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(package), before))))


def phoenix(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phoenix.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_without_the_package_its_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    refused = phoenix("config", "check", str(tmp_path / "site.toml"))
    assert refused.returncode == 1
    assert 'department.batch.order (of "hpc"): "widest-first": should be one of "first-fit"' in refused.stderr
    assert 'department.batch.victims (of "hpc"): "widest-last": should be one of' in refused.stderr


@pytest.mark.usefixtures("with_it")
def test_with_the_package_they_are_listed_and_their_options_are_checked(tmp_path: Path) -> None:
    listed = json.loads(phoenix("policies", "--json", "--data", str(tmp_path)).stdout)["policies"]
    ours = {policy["name"]: policy for policy in listed if policy["package"] == "phoenix-widest-first"}
    assert {name: (policy["kind"], policy["version"]) for name, policy in ours.items()} == {
        "widest-first": ("order", "0.1.0"),
        "widest-last": ("victims", "0.1.0"),
    }
    assert ours["widest-first"]["settings"] == [{"key": "options.by", "default": '"cores"'}]
    (tmp_path / "site.toml").write_text(SITE)
    assert phoenix("config", "check", str(tmp_path / "site.toml")).returncode == 0
    (tmp_path / "site.toml").write_text(SITE.replace('"hosts"', '"height"'))
    refused = phoenix("config", "check", str(tmp_path / "site.toml"))
    assert 'department.batch.options.by (of "hpc"): "height": should be one of "cores", "hosts"' in refused.stderr


@pytest.mark.long
@pytest.mark.usefixtures("with_it")
def test_its_own_tests_pass(package: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(package)]
    done = subprocess.run(words, cwd=package, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@pytest.mark.usefixtures("with_it")
def test_the_command_finds_that_it_keeps_the_rules() -> None:
    done = phoenix("policies", "check", "widest-first", "--examples", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("10 of 10 rules hold\n")


@pytest.mark.usefixtures("with_it")
def test_the_simulator_compares_it_with_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "what-if.toml").write_text(WHAT_IF)
    done = phoenix("simulate", str(tmp_path / "what-if.toml"), "--json", "--workers", "2", "--verify")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(run["policy"], run["completed"]) for run in runs] == [("first-fit", 150), ("widest-first", 150)]
    assert runs[0]["mean_turnaround_s"] != runs[1]["mean_turnaround_s"]


@pytest.fixture
def cloud(tmp_path: Path, with_it: None) -> Iterator[Cloud]:
    found = Cloud(tmp_path / "data")
    (tmp_path / "site.toml").write_text(SITE)
    try:
        yield found
    finally:
        found.close()


def test_a_cloud_decides_with_it_and_says_so(tmp_path: Path, cloud: Cloud) -> None:
    site = tmp_path / "site.toml"
    cloud.ok("up", "--detach", "--config", str(site), "--hosts", "2", "--hypervisor", "dummy")
    used = {p["name"]: p["departments"] for p in cloud.json("policies")["policies"] if p["departments"]}
    assert used == {"widest-first": ["hpc"], "widest-last": ["hpc"]}
    cloud.ok("submit", "--wrap", "true", "--nodes", "2")
    until(lambda: "by_policy" in cloud.ok("events", "--json"), "the plug-in has placed the job")
    assert "the department's policy says so (policy widest-first, width 2)" in cloud.ok("events")
    log = next((cloud.data / "log").glob("scheduler.hpc*")).read_text()
    assert "policy plug-in" in log
    assert "name=widest-first package=phoenix-widest-first version=0.1.0" in log
    site.write_text(SITE.replace('"widest-first"', '"widest-frist"'))
    refused = cloud.run("config", "apply", str(site))
    assert refused.returncode == 1
    assert 'did you mean "widest-first"?' in refused.stderr
