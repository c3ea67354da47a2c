"""`phoenix up` on a site's own OpenNebula: it is used as it is, none is started, and of its VMs only ours are ended."""

from __future__ import annotations

import socket
import subprocess
import sys
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.local import stack_config, stack_vms
from phoenix.local.stack_layout import layout
from phoenix.local.stack_ports import Ports
from tests.integration.up_cloud import Cloud, until

pytestmark = pytest.mark.timeout(180)

CONFIG = """
[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[[user]]
name = "ann"
department = "hpc"
role = "user"
[[user]]
name = "root"
department = "operators"
role = "operator"
[opennebula]
endpoint = "{endpoint}"
auth_file = "one_auth"
poll_s = 0.2
[opennebula.template]
SITE_MARK = "of the site"
"""


class Site:
    """An OpenNebula that runs by itself, with processes as VMs."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place, self.auth, port = place, place / "one_auth", place / "port"
        self.auth.write_text("oneadmin:of-the-site\n")
        self.auth.chmod(0o600)
        words = ["--port", "0", "--port-file", port, "--data", place / "one", "--auth-file", self.auth, "--hosts", "3"]
        words += ["--hypervisor", "process", "--core-share", "0.05", "--grace-s", "0.5"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "phoenix.local.opennebula", *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: port.exists() and port.read_text().strip(), "the site's OpenNebula does not listen")
        self.endpoint = f"http://127.0.0.1:{port.read_text().strip()}/RPC2"
        self.config = place / "site.toml"
        self.config.write_text(CONFIG.format(endpoint=self.endpoint))

    def ask(self, method: str, *parameters: object) -> str:
        call = getattr(xmlrpc.client.ServerProxy(self.endpoint), method)
        told = call("oneadmin:of-the-site", *parameters)
        assert told[0], told
        return str(told[1])

    def vms(self) -> str:
        return self.ask("one.vmpool.infoextended", -2, -1, -1, -1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path / "site")
    yield found
    found.process.terminate()
    found.process.wait(90)


@pytest.fixture
def cloud(tmp_path: Path, site: Site) -> Iterator[Cloud]:
    found = Cloud(tmp_path / "data")
    yield found
    found.close()


def test_a_job_runs_on_the_sites_own_opennebula_and_nothing_else_there_is_touched(cloud: Cloud, site: Site) -> None:
    others = site.ask("one.vm.allocate", 'NAME = "of others"\nCPU = 1\nMEMORY = 64\n', True)
    cloud.ok("up", "--detach", "--config", str(site.config))
    told = cloud.status()
    assert (told["opennebula"], told["opennebula_url"]) == ("external", site.endpoint)
    assert told["opennebula_auth_file"] == str(site.auth)
    assert told["hosts"] is None
    assert {p["name"] for p in told["processes"]} == {
        "nats",
        "admission",
        "provisioner",
        "executor",
        "monitor",
        "scheduler.hpc",
    }
    assert not (cloud.data / "credentials" / "one_auth").exists()
    assert "external" in cloud.ok("status")
    assert len(cloud.json("hosts")["hosts"]) == 3
    job = cloud.ok("submit", "--wait", "--wrap", "echo ran at the site").strip()
    assert cloud.ok("output", job) == "ran at the site\n"

    waits = cloud.ok("submit", "--wrap", "sleep 600").strip()
    until(lambda: cloud.json("show", waits)["state"] == "running", "the job does not run")
    assert "of the site" in site.vms()
    said = cloud.run("down").stderr
    assert f"ending this cloud's VMs in the OpenNebula at {site.endpoint}" in said
    assert site.vms().count("<VM>") == 1
    assert f"<ID>{others}</ID>" in site.vms()
    assert site.process.poll() is None

    cloud.ok("up", "--detach")  # without the file: as it was
    assert cloud.status()["opennebula"] == "external"
    until(lambda: cloud.json("show", waits)["state"] == "running", "the job does not start again")
    assert [a["disposal"] for a in cloud.json("show", waits)["attempts"]] == ["requeue", None]


def test_an_opennebula_table_without_an_endpoint_is_about_the_embedded_one(tmp_path: Path) -> None:
    file, place = tmp_path / "site.toml", layout(tmp_path / "data")
    file.write_text(CONFIG.replace('endpoint = "{endpoint}"', ""))
    assert not stack_config.names_opennebula(file)
    config = stack_config.effective(place, Ports(place.ports), file)
    assert (config.opennebula.auth_file, config.opennebula.poll_s) == (place.auth_file, 0.2)
    file.write_text(CONFIG.format(endpoint=type(config.opennebula)().endpoint))  # the usual address is an address, too
    assert stack_config.names_opennebula(file)
    kept = stack_config.effective(place, Ports(place.ports), file, external=True)
    assert (kept.opennebula.endpoint, kept.opennebula.auth_file) == (
        "http://127.0.0.1:2633/RPC2",
        tmp_path / "one_auth",
    )


async def test_a_site_that_takes_the_call_and_says_nothing_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_vms, "CALL_S", 0.1)
    place, file = layout(tmp_path / "data"), tmp_path / "site.toml"
    (tmp_path / "one_auth").write_text("oneadmin:x\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/RPC2"
        file.write_text(CONFIG.format(endpoint=endpoint))
        config = stack_config.effective(place, Ports(place.ports), file, external=True)
        with pytest.raises(stack_vms.OpenNebulaError, match=r"no OpenNebula answers at .* \(TimeoutError\)"):
            await stack_vms.check(config)
        assert await stack_vms.end_vms(config, external=True) == (0, 0, "TimeoutError")


def test_a_site_that_does_not_answer_or_refuses_is_named(cloud: Cloud, site: Site) -> None:
    silent = site.place / "silent.toml"
    silent.write_text(CONFIG.format(endpoint="http://127.0.0.1:9/RPC2"))
    done = cloud.run("up", "--detach", "--config", str(silent))
    assert done.returncode == 1
    assert "no OpenNebula answers at http://127.0.0.1:9/RPC2" in done.stderr
    site.auth.write_text("oneadmin:wrong\n")
    done = cloud.run("up", "--detach", "--config", str(site.config))
    assert done.returncode == 1
    assert f"refuses the credential in {site.auth}" in done.stderr
    site.auth.unlink()
    done = cloud.run("up", "--detach", "--config", str(site.config))
    assert done.returncode == 1
    assert f"{site.auth}: No such file" in done.stderr


def test_a_site_that_went_away_is_no_reason_to_stay_up_and_is_told(cloud: Cloud, site: Site) -> None:
    cloud.ok("up", "--detach", "--config", str(site.config))
    site.process.kill()
    site.process.wait(90)
    said = cloud.run("down")
    assert said.returncode == 0
    assert "it does not answer" in said.stderr
    assert cloud.pids() == set()
