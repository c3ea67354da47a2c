"""A whole cloud at a site's own OpenNebula whose VMs run the context script: `phoenix up` with an endpoint, jobs by the command
line, and nothing between them but what a site has."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyone
import pytest

from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import Lcm
from phoenix.local.opennebula.testing import running_server
from tests.integration.up_cloud import Cloud, until
from tests.support.ports import free_port
from tests.support.script_guest import ACCOUNT, ScriptDriver
from tests.support.site_page import changed, example, without_web

pytestmark = pytest.mark.timeout(180)

SETTINGS = Settings(events_port=0, user="phoenix", images=("phoenix-guest",), networks=("phoenix",))


@dataclass
class Site:
    """An OpenNebula in a thread of its own."""

    place: Path
    driver: ScriptDriver = field(default_factory=ScriptDriver)
    one: OpenNebula | None = None

    def live(self, ready: threading.Event, over: threading.Event) -> None:
        async def serve() -> None:
            async with running_server(3, self.driver, cores=4, settings=SETTINGS) as self.one:
                for host in self.one.store.hosts.values():
                    host.vm_mad = self.hypervisor
                ready.set()
                await asyncio.to_thread(over.wait)

        asyncio.run(serve())

    @property
    def hypervisor(self) -> str:
        return "lxc" if self.driver.lxc else "kvm"

    def config(self, *own: tuple[str, str], web: bool = False) -> Path:
        """The page's, with this site's names and addresses; `web`: with its web service."""
        assert self.one is not None
        auth = self.place / "one_auth"
        auth.write_text(self.one.session + "\n")
        auth.chmod(0o600)
        text = changed(
            example(),
            ("http://oned.example.org:2633/RPC2", self.one.url),
            ("/etc/phoenix/one_auth", str(auth)),
            ("oned.example.org:2101", f"127.0.0.1:{self.one.events.port}"),
            ('hypervisor = "kvm"', f'hypervisor = "{self.hypervisor}"'),
            ('NETWORK_UNAME = "oneadmin"', 'NETWORK_UNAME = "phoenix"'),
            ('GUEST_USER = "phoenix"', f'GUEST_USER = "{ACCOUNT or "phoenix"}"'),
            *own,
        )
        file = self.place / "site.toml"
        file.write_text((text if web else without_web(text)) + "[policy]\ngrace_s = 1.0\n")
        return file

    def jobs(self) -> list[str]:
        """VMs that are not the web service's."""
        assert self.one is not None
        return [vm.name for vm in list(self.one.store.vms.values()) if "-web." not in vm.name]

    def reached(self, *, web: bool = False) -> Path:
        """Where its VMs, which are processes of this machine, reach the cloud."""
        at = f"127.0.0.1:{free_port()}"
        return self.config(("0.0.0.0:7480", at), ("phoenix.example.org:7480", at), web=web)


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """`lxc` in a test's name: with containers."""
    found = Site(tmp_path, ScriptDriver(lxc="lxc" in request.node.name))
    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=found.live, args=(ready, over))
    thread.start()
    assert ready.wait(20)
    yield found
    over.set()
    thread.join(30)


def test_jobs_run_at_a_site_from_submit_to_output(site: Site, tmp_path: Path) -> None:
    cloud, config = Cloud(tmp_path / "data"), str(site.reached())
    checked = cloud.run("doctor", "--config", str(site.config(web=True)))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    config = str(site.reached(web=True))
    try:
        cloud.ok("up", "--detach", "--config", config)
        script = tmp_path / "job.sh"
        script.write_text('#!/bin/sh\ncat in.txt; echo "$1 on $SLURM_JOB_NODELIST"; echo kept >out.txt; exit 3\n')
        given = tmp_path / "in.txt"
        given.write_text("given\n")
        words = ["submit", "--wait", "--input", str(given), "--keep", "out.txt", str(script), "it's; $(this)"]
        done = cloud.run(*words)
        assert done.returncode == 3, done.stderr
        assert cloud.ok("output", "1") in [f"given\nit's; $(this) on host{n:03}\n" for n in range(3)]
        cloud.ok("submit", "--wrap", "trap 'echo asked; exit 0' TERM; echo on; while :; do sleep 0.05; done")
        until(lambda: cloud.run("output", "2").stdout == "on\n", "the second job runs")
        cloud.ok("cancel", "2")
        until(lambda: cloud.json("show", "2")["state"] == "cancelled", "the second job is cancelled")
        until(lambda: not site.jobs(), "no VM of a job is left")
    finally:
        cloud.run("down", "--purge")


@pytest.mark.long
def test_lxc_containers_are_ended_at_once_and_nothing_of_them_is_left(site: Site, tmp_path: Path) -> None:
    """As LXC's driver has it, a container that ends by itself is not cleaned up."""
    cloud, config = Cloud(tmp_path / "data"), str(site.reached())
    try:
        cloud.ok("up", "--detach", "--config", config)
        for code in (0, 3):
            assert cloud.run("submit", "--wait", "--wrap", f"exit {code}").returncode == code
        cloud.ok("submit", "--wrap", "echo on; while :; do sleep 0.05; done")
        until(lambda: cloud.run("output", "3").stdout == "on\n", "the third job runs")
        cloud.ok("cancel", "3")
        until(lambda: not site.jobs(), "no VM of a job is left")
        assert site.driver.left == []
        until(lambda: ended(cloud) == ["terminated"] * 3, "the ends are in the journal")
    finally:
        cloud.run("down", "--purge")


def ended(cloud: Cloud) -> list[str]:
    facts = [json.loads(line) for line in cloud.ok("events", "--json", "--last", "1000").splitlines()]
    return [fact["fact"]["why"] for fact in facts if fact["kind"] == "vm.ended"]


@pytest.mark.long
@pytest.mark.parametrize("hypervisor", ["kvm", "lxc"])
def test_a_vm_that_is_made_again_or_reset_does_not_run_its_job_twice(
    site: Site, tmp_path: Path, hypervisor: str
) -> None:
    """OpenNebula's `recover --recreate`, after which its disk is another one, and `reboot --hard`, after which it is not."""
    assert site.driver.lxc == (hypervisor == "lxc")
    cloud, config = Cloud(tmp_path / "data"), str(site.reached())
    runs = site.driver.directory / "runs"  # where the job's account may go
    runs.mkdir()
    runs.chmod(0o777)
    script = f"echo x >>{runs}/$PHOENIX_ATTEMPT; echo on; until [ -e {runs}/go ]; do sleep 0.05; done"
    try:
        cloud.ok("up", "--detach", "--config", config)
        cloud.ok("submit", "--wrap", script)
        assert site.one is not None
        for attempt, empties in ((1, True), (2, False)):
            until((runs / str(attempt)).exists, f"attempt {attempt} runs")
            site.driver.empties = empties
            (vm,) = [vm for vm in site.one.store.vms.values() if vm.lcm == Lcm.RUNNING and "-web." not in vm.name]
            one = pyone.OneServer(site.one.url, session=site.one.session)
            if empties:
                one.vm.recover(vm.id, 4)
            else:
                one.vm.action("reboot-hard", vm.id)
        until((runs / "3").exists, "attempt 3 runs")
        (runs / "go").touch()
        until(lambda: cloud.json("show", "1")["state"] == "completed", "the job completes")
        assert {file.name: file.read_text() for file in runs.iterdir() if file.name != "go"} == dict.fromkeys(
            "123", "x\n"
        )
        until(lambda: len(ended(cloud)) == 3, "the ends are in the journal")
    finally:
        cloud.run("down", "--purge")


@pytest.mark.long
def test_a_job_of_several_nodes_starts_its_tasks_with_phoenix_launch(site: Site, tmp_path: Path) -> None:
    cloud, config = Cloud(tmp_path / "data"), str(site.reached())
    task = 'sh -c "echo \\$PHOENIX_TASK_ID of \\$PHOENIX_NTASKS at \\$PHOENIX_NODEID; exit \\$PHOENIX_TASK_ID"'
    try:
        cloud.ok("up", "--detach", "--config", config)
        script = f"{site.driver.with_programs()}; phoenix launch {task}"
        assert cloud.run("submit", "-N", "2", "--wait", "--wrap", script).returncode == 1
        assert sorted(cloud.ok("output", "1").splitlines()) == ["0 of 2 at 0", "1 of 2 at 1"]
        assert site.one is not None
        until(lambda: not site.one.store.vms, "no VM is left")
    finally:
        cloud.run("down", "--purge")
