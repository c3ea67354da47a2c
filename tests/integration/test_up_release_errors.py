"""A release whose health path is well and which answers 500 to every user, on a whole cloud behind the embedded load balancer:
it is rolled back, and told everywhere; so are errors without a release that could be blamed."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.local import stack_config
from tests.integration.up_cloud import Cloud, signpost, until
from tests.support import ill_program
from tests.support.users import Users

pytestmark = pytest.mark.timeout(240)
PROGRAM = Path(ill_program.__file__).read_text()
DEPLOY_ILL = ("deploy", "web", "--unset", "ILL")


@pytest.fixture(scope="module")
def ill() -> Iterator[Path]:
    """While it exists, instances of release 0 answer 500."""
    with signpost() as path:
        yield path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, ill: Path) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("errors")
    web = f"""[department.web]
command = ["python3", "-c", '''{PROGRAM}''']
environment = {{ ILL = "{ill}" }}
min_ready_s = 2
"""
    text = stack_config.DEFAULT.read_text().replace("[department.web]\n", web)
    text = text.replace("instances_min = 1\ninstances_max = 12", "instances_min = 2\ninstances_max = 2")
    (directory / "site.toml").write_text(text)
    found = Cloud(directory / "data")
    size = ("--hosts", "4", "--cores", "1", "--config", str(directory / "site.toml"))
    found.ok("up", "--detach", "--balancer", "embedded", *size)
    until(lambda: states(found) == {0: ("complete", 2)}, "two instances do not serve")
    yield found
    found.close()


@pytest.fixture
def users(site: Cloud) -> Iterator[Users]:
    with Users(site.status()["balancers"]["web"]) as found:
        found.until(200, 50, "hardly a page is served")
        yield found


def states(cloud: Cloud) -> dict[int, tuple[str, int]]:
    """Release -> how far it is, and how many instances of it serve."""
    found = cloud.json("releases", "web")["releases"]
    return {one["release"]: (one["state"], one["instances_serving"]) for one in found}


def troubles(cloud: Cloud) -> set[str]:
    found = next(one for one in cloud.json("departments")["departments"] if one["department"] == "web")
    return {one["reason"]["code"] for one in found["troubles"]}


def metric(cloud: Cloud, process: str, name: str) -> list[str]:
    url = next(one["url"] for one in cloud.status()["processes"] if one["name"] == process)
    with urllib.request.urlopen(url) as answer:
        return [line for line in answer.read().decode().splitlines() if line.startswith(name)]


@pytest.mark.long
def test_a_release_that_answers_with_500_is_rolled_back_and_told(site: Cloud, users: Users) -> None:
    bad = site.run(*DEPLOY_ILL, "--wait", "--timeout", "60s")
    assert (bad.returncode, bad.stdout) == (1, "web: release 1\n")
    told = " ".join(bad.stderr.split())
    assert "release 1 answered 100 % of its requests (" in told
    assert "release 0 answered 0 % of its requests (0 of " in told
    assert told.count("so: it is wanted again") == 1
    until(lambda: states(site)[0] == ("complete", 2), "release 0 is not back")
    assert states(site)[1] == ("rolled_back", 0)
    before = users.told[500]
    users.until(200, 50, "hardly a page is served")
    assert users.told[500] == before
    assert set(users.told) == {200, 500}
    assert "Release 1 answered 100 % of its requests" in site.ok("why", "web")
    until(lambda: "release_errors" in troubles(site), "the monitor is not told")
    said = "release 1 answered 100 % of its requests"
    until(lambda: said in site.run("status").stdout, "status does not say it")
    assert site.run("status").returncode == 1
    counted = sum(float(line.split()[1]) for line in metric(site, "scheduler.web", "phoenix_web_errors_total"))
    assert 0 < counted <= before  # what one answered in its last moment is not counted
    events = site.ok("events", "-d", "web", "--after", "0", "--as", "wendy")
    assert "state=rolled_back" in events
    assert "(release 1 answered 100 % of its requests" in events


@pytest.mark.long
def test_errors_of_a_release_that_is_not_new_are_told_and_nothing_is_rolled_back(
    site: Cloud, users: Users, ill: Path
) -> None:
    before = states(site)
    ill.touch()
    until(lambda: "requests_fail" in troubles(site), "the monitor is not told")
    assert "Release 0 answered " in site.ok("why", "web")
    said = "with 5xx or not at all in the last 20s"
    until(lambda: said in site.run("status").stdout, "status does not say it")
    assert site.run("status").returncode == 1
    assert states(site) == before
    ill.unlink()
    until(lambda: "requests_fail" not in troubles(site), "it is reported though it is over")
    users.until(200, 50, "hardly a page is served")


@pytest.mark.long
def test_one_that_is_complete_already_is_rolled_back_too(site: Cloud, users: Users) -> None:
    newest = max(states(site))
    number = newest + 1
    site.ok(*DEPLOY_ILL, "--min-ready", "0s", "--max-surge", "2")
    until(lambda: states(site)[number][0] == "rolled_back", "it is not rolled back")
    until(lambda: states(site)[0] == ("complete", 2), "release 0 is not back")
    users.until(200, 50, "hardly a page is served")
    well = site.ok("deploy", "web", "--configured", "--wait", "--timeout", "60s")
    assert well.endswith("is complete\n")
    until(lambda: "release_errors" not in troubles(site), "the next release does not end it")
