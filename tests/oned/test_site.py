"""The product at a given OpenNebula, from the doctor to a web instance, configured as docs/howto/opennebula-site.md shows.

    make test-oned ONED=http://127.0.0.1:2633/RPC2 ONED_AUTH=one_auth ONED_URL=10.0.0.1:7480 ONED_HYPERVISOR=lxc

`ONED_URL`: this machine's address and port, as VMs reach it.  Also, where they are not the page's: ONED_HYPERVISOR (kvm),
ONED_IMAGE (phoenix-guest-lxc or phoenix-guest-kvm), ONED_IMAGE_UNAME, ONED_NETWORK, ONED_NETWORK_UNAME, ONED_EVENTS,
ONED_USE (a constraint: the hosts that may be used).
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from services.domain.capabilities import CAPABILITIES, Hypervisor, can
from tests.integration.up_cloud import Cloud, until
from tests.support.site_page import changed, example

pytestmark = [pytest.mark.oned, pytest.mark.timeout(3600)]

TAKES_S: Final = 900.0  # a start with the copy of its image, and a boot without the processor's help
LOOPS: Final = "trap 'exit 0' TERM; echo on; while :; do sleep 0.5; done"


def given(name: str, page: str) -> str:
    return os.environ.get(f"ONED_{name}") or page


HYPERVISOR: Final = cast(Hypervisor, given("HYPERVISOR", "kvm"))
IMAGE: Final = f"phoenix-guest-{'lxc' if HYPERVISOR == 'lxc' else 'kvm'}"


def configuration() -> str:
    text = changed(
        example(),
        ("http://oned.example.org:2633/RPC2", os.environ["ONED"]),
        ("/etc/phoenix/one_auth", str(Path(os.environ["ONED_AUTH"]).absolute())),
        ('events = "tcp://oned.example.org:2101"', f'events = "{given("EVENTS", "off")}"'),
        ('hypervisor = "kvm"', f'hypervisor = "{HYPERVISOR}"'),
        ('IMAGE = "phoenix-guest"', f'IMAGE = "{given("IMAGE", IMAGE)}"'),
        ('IMAGE_UNAME = "phoenix"', f'IMAGE_UNAME = "{given("IMAGE_UNAME", "phoenix")}"'),
        ('NETWORK = "phoenix"', f'NETWORK = "{given("NETWORK", "phoenix")}"'),
        ('NETWORK_UNAME = "oneadmin"', f'NETWORK_UNAME = "{given("NETWORK_UNAME", "oneadmin")}"'),
        ("0.0.0.0:7480", f"0.0.0.0:{given('URL', ':7480').rpartition(':')[2]}"),
        ("phoenix.example.org:7480", given("URL", "phoenix.example.org:7480")),
    )
    return text + f'[hosts]\nuse = "{given("USE", "")}"\n'


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    place = tmp_path_factory.mktemp("site")
    (place / "site.toml").write_text(configuration())
    found = Cloud(place / "data")
    found.ok("up", "--detach", "--config", str(place / "site.toml"))
    try:
        yield found
    finally:
        found.run("down", "--purge")
        found.close()


def shown(cloud: Cloud, job: str) -> dict[str, Any]:
    return dict(cloud.json("show", job))


def reaches(cloud: Cloud, job: str, state: str) -> dict[str, Any]:
    until(lambda: shown(cloud, job)["state"] == state, f"job {job} is never {state}", TAKES_S)
    return shown(cloud, job)


def prints(cloud: Cloud, job: str, text: str) -> None:
    until(lambda: text in cloud.run("output", job).stdout, f"job {job} never prints {text!r}", TAKES_S)


def submitted(cloud: Cloud, script: str) -> str:
    return cloud.ok("submit", "--wrap", script).split()[-1]


def test_the_doctor_finds_nothing_that_fails(cloud: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(configuration())
    done = cloud.run("doctor", "--config", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_runs_prints_and_has_its_exit_code(cloud: Cloud) -> None:
    job = submitted(cloud, "echo ran on $SLURM_JOB_NODELIST; exit 3")
    until(lambda: shown(cloud, job)["state"] in ("failed", "completed"), "it never ends", TAKES_S)
    assert cloud.ok("output", job).startswith("ran on ")
    assert [attempt["exit"] for attempt in shown(cloud, job)["attempts"]][-1] == 3


def test_a_job_is_cancelled_while_it_runs(cloud: Cloud) -> None:
    job = submitted(cloud, LOOPS)
    prints(cloud, job, "on")
    cloud.ok("cancel", job)
    reaches(cloud, job, "cancelled")


@pytest.mark.parametrize("wish", ["requeue", "suspend", "migrate"])
def test_a_job_whose_host_is_taken_goes_the_way_of_its_department(cloud: Cloud, wish: str, tmp_path: Path) -> None:
    """As far as the hypervisor can."""
    file, able = tmp_path / "site.toml", can(CAPABILITIES[HYPERVISOR], wish)
    file.write_text(configuration().replace('on_reclaim = "requeue"', f'on_reclaim = "{wish}"'))
    applied = cloud.run("config", "apply", str(file))
    assert (applied.returncode == 0) == able, applied.stderr
    if not able:
        return
    job = submitted(cloud, "i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo line $i; sleep 1; done")
    prints(cloud, job, "line 1\n")
    host = shown(cloud, job)["attempts"][-1]["hosts"][0]
    cloud.ok("hosts", "drain", host, "--reason", "test", "--deadline", "1s")
    try:
        until(lambda: len(shown(cloud, job)["attempts"]) > 1, "no second attempt begins", TAKES_S)
        reaches(cloud, job, "running")
        assert shown(cloud, job)["attempts"][0]["disposal"] == wish
        assert shown(cloud, job)["attempts"][-1]["hosts"] != [host]
    finally:
        cloud.ok("hosts", "uncordon", host)
        cloud.ok("cancel", job)
        reaches(cloud, job, "cancelled")


def test_an_instance_of_the_web_service_answers(cloud: Cloud) -> None:
    def addresses() -> list[str]:
        return [one["address"] for one in cloud.json("instances", "web")["instances"] if one.get("address")]

    until(addresses, "no instance serves", TAKES_S)
    with urllib.request.urlopen(f"http://{addresses()[0]}/", timeout=30) as answer:
        assert answer.status == 200
