"""Rolling updates end to end: on a whole cloud with real processes behind HAProxy a good release and a bad one are deployed,
while clients ask HAProxy all the time.  No request fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.haproxy.runtime_api import RuntimeApi
from phoenix.haproxy.slots import Slot
from phoenix.local import stack_config
from schemas.releases import CONNECTIONS_COMMAND
from tests.integration.up_cloud import Cloud, until
from tests.support.haproxy_site import WEBAPP
from tests.support.tools import tool
from tests.support.users import Users

pytestmark = pytest.mark.timeout(180)
WEB = """[department.web]
start_failures_max = 2
drain_s = 2
min_ready_s = 0.5
environment = { WORK_CPU_MS = "1" }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("deploy")
    text = stack_config.DEFAULT.read_text().replace("[department.web]\n", WEB)
    text = text.replace("instances_min = 1\ninstances_max = 12", "instances_min = 2\ninstances_max = 2")
    (directory / "site.toml").write_text(text)
    found = Cloud(directory / "data")
    tool("haproxy")
    size = ("--hosts", "4", "--cores", "1", "--config", str(directory / "site.toml"))
    found.ok("up", "--detach", "--balancer", "haproxy", *size)
    until(lambda: states(found) == {0: ("complete", 2)}, "two instances do not serve")
    yield found
    found.close()


def states(cloud: Cloud) -> dict[int, tuple[str, int]]:
    """Release -> how far it is, and how many instances of it serve."""
    found = cloud.json("releases", "web")["releases"]
    return {one["release"]: (one["state"], one["instances_serving"]) for one in found}


def test_a_good_and_a_bad_release_cost_no_request(site: Cloud, tmp_path: Path) -> None:
    (tmp_path / "value").write_text("hunter2")
    site.ok("secret", "set", "web", "shop-key", "--file", str(tmp_path / "value"))
    with Users(site.status()["balancers"]["web"]) as visitor:
        named = "--env", "GREETING=hello", "--secret", "KEY=shop-key"
        good = site.ok("deploy", "web", *named, "--wait", "--timeout", "200s", "--as", "wendy")
        assert good.splitlines() == ["web: release 1", "web: release 1 is complete"]
        assert states(site) == {1: ("complete", 2), 0: ("replaced", 0)}
        assert site.ok("secret", "list", "web") == "shop-key  $KEY (release 1)\n"
        until(lambda: "secret.set web shop-key" in site.ok("audit"), "who set the secret is not in the audit")
        bad = site.run("deploy", "web", "--image", "shop-2", "--wait", "--timeout", "200s", "--", "false")
        assert (bad.returncode, bad.stdout) == (1, "web: release 2\n")
        assert "release 2 was given up after 2 failures: the last instance, web." in bad.stderr
        assert "ended with exit code 1; release 1 is wanted again" in " ".join(bad.stderr.split())
        until(lambda: states(site)[1] == ("complete", 2), "release 1 is not back")
        until(lambda: visitor.told[200] > 20 or visitor.failed, "hardly a page is served")
    assert visitor.failed == []
    instances = site.json("releases", "web")
    assert [one["content"]["environment"].get("GREETING") for one in instances["releases"][:2]] == ["hello", "hello"]
    assert instances["wanted"] == 1


def test_undo_and_who_may(site: Cloud) -> None:
    asked = site.json("deploy", "web", "--undo", "--max-unavailable", "2", "--max-surge", "0", "--wait")
    given_up = {"start_failures_max": 2, "boot_timeout_s": 60.0}
    assert asked == {"release": 3, "state": "complete", "warning": "", **given_up}
    newest = site.json("releases", "web")["releases"][0]
    assert (newest["content"]["environment"], newest["content"]["command"]) == ({"WORK_CPU_MS": "1"}, [])
    assert site.run("deploy", "web", "--as", "alice").returncode == 4
    refused = site.run("deploy", "web", "--max-surge", "0")
    assert (refused.returncode, "one of them is at least 1" in refused.stderr) == (1, True)


def haproxy_slots(cloud: Cloud) -> list[Slot]:
    """Those of HAProxy that serve."""
    api = RuntimeApi(cloud.data / "run" / "balancer.web.sock", "web", "phoenix", "balancer.web.map")
    return [slot for slot in asyncio.run(api.read()).slots if slot.serves]


def haproxy_pid(cloud: Cloud) -> int:
    return next(one["pid"] for one in cloud.status()["processes"] if one["name"] == "balancer.web")


def test_another_health_path_and_other_limits_reach_a_running_haproxy_and_cost_no_request(
    site: Cloud, tmp_path: Path
) -> None:
    pid = haproxy_pid(site)
    until(lambda: {slot.path for slot in haproxy_slots(site)} == {"/healthz"}, "the paths are not HAProxy's")
    with Users(site.status()["balancers"]["web"]) as visitor:
        program = WEBAPP.read_text().replace('"/healthz"', '"/up?a=1"')  # anything else is 404
        program = program.replace('parts[1].partition("?")', '(parts[1], "", "")')
        site.ok(
            "deploy", "web", "--health-path", "/up?a=1", "--wait", "--timeout", "200s", "--", "python3", "-c", program
        )
        until(
            lambda: [slot.path for slot in haproxy_slots(site)] == ["/up?a=1"] * 2, "not checked at the release's path"
        )
        assert [slot.limit for slot in haproxy_slots(site)] == [CONNECTIONS_COMMAND] * 2
        file = tmp_path / "site.toml"
        text = (site.data.parent / "site.toml").read_text()
        file.write_text(text.replace("[department.web]\n", "[department.web]\nconnections_per_instance = 7\n"))
        site.ok("config", "apply", str(file))
        until(lambda: [slot.limit for slot in haproxy_slots(site)] == [7, 7], "the limit is not HAProxy's")
        site.ok("deploy", "web", "--undo", "--wait", "--timeout", "200s")
        until(lambda: [slot.path for slot in haproxy_slots(site)] == ["/healthz"] * 2, "the path before is not back")
        until(lambda: visitor.told[200] > 20 or visitor.failed, "hardly a page is served")
    assert visitor.failed == []
    assert haproxy_pid(site) == pid
