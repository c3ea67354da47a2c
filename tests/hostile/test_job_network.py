"""Jobs in a network of their own: what they reach and hear there, what not, and what is so where they can have none."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from phoenix.local import stack_network
from phoenix.local.network.namespace import JobsNetwork, NetworkError
from phoenix.local.port_claims import RESERVED, is_roots
from phoenix.local.process.network import RESOLVER, reached
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings, changed
from tests.integration.up_cloud import Cloud, signpost, until
from tests.support.left_out import leave_out
from tests.support.tools import tool

UP = ("up", "--detach", "--hosts", "2", "--job-network", "own")
# What a job says of each address: "reached", or why not.
TRY = """
import json, socket, sys
told = {}
for word in sys.argv[1:]:
    host, _, port = word.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
        told[word] = "reached"
    except OSError as error:
        told[word] = type(error).__name__
print(json.dumps(told))
"""
ASK = """exec python3 -c 'import urllib.request as u; print(u.urlopen("{balancer}").status)'"""


def made() -> JobsNetwork:
    try:
        return JobsNetwork()
    except (NetworkError, OSError) as error:
        leave_out(f"left out without network namespaces: {error}")


@pytest.fixture
def network() -> Iterator[JobsNetwork]:
    found = made()
    yield found
    found.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made().close()
    tool("pasta")
    found = Cloud(tmp_path_factory.mktemp("job-network") / "data")
    found.ok(*UP)
    yield found
    found.close()


def submit(cloud: Cloud, script: str, *words: str) -> str:
    job = cloud.run("submit", "--as", "alice", "-", *words, stdin=f"#!/bin/sh\n{script}\n")
    assert job.returncode == 0, job.stderr
    return job.stdout.strip()


def output(cloud: Cloud, script: str) -> str:
    job = submit(cloud, script, "--wait").split()[0]
    return cloud.ok("output", job, "--as", "alice")


def tried(cloud: Cloud, *addresses: str) -> dict[str, str]:
    return dict(json.loads(output(cloud, f"exec python3 -c '{TRY}' {' '.join(addresses)}")))


def ports(cloud: Cloud) -> dict[str, int]:
    """Of all that listens on this machine for the cloud, by its name."""
    known = cloud.status()
    found = {part["name"]: urlsplit(part["url"]).port or 0 for part in known["processes"] if part["url"]}
    found |= {door: urlsplit(known[f"{door}_url"]).port or 0 for door in ("http", "monitor")}
    return found


DOORS = {"http", "monitor", "balancer.web"}


def test_a_job_reaches_the_doors_of_the_cloud_and_nothing_else_that_listens_on_the_machine(cloud: Cloud) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        known = ports(cloud) | {"other": other.getsockname()[1]}
        told = tried(cloud, *(f"127.0.0.1:{port}" for port in known.values()))
    assert {"nats", "opennebula", "other"} < known.keys()
    assert {name for name, port in known.items() if told[f"127.0.0.1:{port}"] == "reached"} == DOORS
    assert {told[f"127.0.0.1:{port}"] for name, port in known.items() if name not in DOORS} == {
        "ConnectionRefusedError"
    }


def test_its_token_and_web_instances_serve_it_there(cloud: Cloud) -> None:
    balancer = cloud.status()["balancers"]["web"]
    ask = f'import urllib.request as u; print(u.urlopen("{balancer}").status)'
    told = output(cloud, f"phoenix launch hostname && exec python3 -c '{ask}'")
    assert told.split()[-1] == "200"


def test_nobody_in_the_jobs_network_takes_a_door_while_its_process_is_started_again(cloud: Cloud) -> None:
    """What a job's listener hears there are the tokens of other jobs."""
    known = ports(cloud)
    script = """
import os, socket, sys, time
told = set()
while not os.path.exists(sys.argv[1]):
    for port in map(int, sys.argv[2:]):
        try:
            socket.create_server(("127.0.0.1", port)).close()
            told.add(port)
        except OSError:
            pass
    time.sleep(0.01)
print("took", sorted(told))
"""
    with signpost() as enough:
        words = " ".join(str(known[door]) for door in sorted(DOORS))
        job = submit(cloud, f"exec python3 -c '{script}' {enough} {words}")
        until(lambda: "running" in cloud.ok("show", job, "--as", "alice"), "it does not run")
        before = {part["name"]: part["pid"] for part in cloud.status()["processes"]}
        for name in ("admission", "monitor", "balancer.web"):
            os.kill(before[name], signal.SIGKILL)
        until(lambda: cloud.status()["healthy"], "it is not well again")
        enough.touch()
        assert until(lambda: cloud.run("output", job, "--as", "alice").stdout, "it does not end") == "took []\n"


def test_what_a_job_listens_to_nobody_on_the_machine_hears_and_no_instance_needs(cloud: Cloud) -> None:
    """A port that instances get: the job's is another one."""
    with signpost() as enough:
        script = f"""
import os, socket, time
made = socket.create_server(("127.0.0.1", 10000))
print("listens", flush=True)
while not os.path.exists("{enough}"):
    time.sleep(0.01)
"""
        job = submit(cloud, f"exec python3 -c '{script}'")
        until(lambda: "listens" in cloud.run("output", job, "--as", "alice").stdout, "it does not listen")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 10000), 5).close()
        assert tried(cloud, "127.0.0.1:10000") == {"127.0.0.1:10000": "reached"}  # as on one machine
        enough.touch()


def test_a_job_cannot_go_back_to_the_network_of_the_machine(cloud: Cloud) -> None:
    hypervisor = next(part["pid"] for part in cloud.status()["processes"] if part["name"] == "opennebula")
    told = output(cloud, f"readlink /proc/self/ns/net; nsenter --net=/proc/{hypervisor}/ns/net true; echo $?")
    inside, code = told.split()[:2]
    assert inside != os.readlink("/proc/self/ns/net")
    assert int(code) != 0


@pytest.mark.long
def test_the_way_out_is_opened_again_when_it_ends_and_goes_with_the_cloud(cloud: Cloud) -> None:
    def pasta() -> int:
        return next(part["pid"] or 0 for part in cloud.status()["processes"] if part["name"] == "pasta")

    first = pasta()
    os.kill(first, signal.SIGKILL)
    until(lambda: pasta() not in (0, first) and cloud.status()["healthy"], "it does not come back")
    second = pasta()
    cloud.ok("down")
    assert not Path(f"/proc/{second}").exists()
    cloud.ok(*UP)
    third, supervisor = pasta(), cloud.status()["pid"]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{third}/exe").exists(), "it outlives its cloud")
    cloud.ok(*UP)


@pytest.mark.long
def test_haproxy_serves_jobs_too(tmp_path: Path) -> None:
    made().close()
    tool("haproxy")
    found = Cloud(tmp_path / "data")
    try:
        found.ok(*UP, "--balancer", "haproxy")
        balancer = found.status()["balancers"]["web"]
        urlopen(balancer, timeout=60).close()
        assert output(found, f"{ASK.format(balancer=balancer)}") == "200\n"
    finally:
        found.close()


def test_without_a_way_out_jobs_have_doors_alone_and_that_is_told(tmp_path: Path) -> None:
    """A program that ends at once, as pasta on a machine without a default route."""
    made().close()
    found = Cloud(tmp_path / "data")
    (tmp_path / "bin").mkdir()
    false = tmp_path / "bin" / "pasta"
    false.write_text("#!/bin/sh\necho no way out >&2\nexit 1\n")
    false.chmod(0o755)
    for closed in (tmp_path, *tmp_path.parents):
        if closed.stat().st_uid == os.geteuid() and not closed.stat().st_mode & 0o001:
            closed.chmod(closed.stat().st_mode | 0o011)
    try:
        words = [sys.executable, "-m", "phoenix.cli", *UP]
        env = found.environment() | {"PATH": f"{false.parent}:{os.environ['PATH']}"}
        started = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert started.returncode == 0, started.stderr
        told = "jobs reach the cloud's services and each other, but no other network: pasta has ended: no way out"
        assert told in started.stderr
        assert found.status()["job_network_reason"].startswith(told)
        assert "pasta" not in {part["name"] for part in found.status()["processes"]}
        assert output(found, "phoenix launch echo served").strip() == "served"
    finally:
        found.close()


def test_a_port_that_a_job_has_is_given_to_no_new_door(network: JobsNetwork, tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json")
    port = ports.of("balancer.shop")
    ports.save()
    ports.release()
    with network.inside():
        job = socket.create_server(("127.0.0.1", port))
    again = Ports(tmp_path / "ports.json")
    again.network = network
    with job:
        assert again.of("balancer.shop") != port
    again.release()


@pytest.mark.long
def test_jobs_have_no_network_of_their_own_where_the_kernel_refuses_one(tmp_path: Path) -> None:
    """A root that is not allowed to make one, as in most containers."""
    made().close()
    found = Cloud(tmp_path / "data")

    def up(kind: str) -> subprocess.CompletedProcess[str]:
        words = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-m", "phoenix.cli", *UP[:-1], kind]
        return subprocess.run(words, env=found.environment(), capture_output=True, text=True, timeout=120, check=False)

    try:
        refused = up("own")
        assert refused.returncode == 1
        why = "the kernel refuses one (a namespace cannot be entered: Operation not permitted)"
        assert f"jobs cannot have a network of their own: {why}" in refused.stderr
        assert not found.pids()
        started = up("auto")
        assert started.returncode == 0, started.stderr
        assert f"jobs share the machine's network: {why}" in started.stderr
        status = found.status()
        assert (status["job_network"], status["job_network_reason"][:18]) == ("machine", "the kernel refuses")
        nats = f"127.0.0.1:{ports(found)['nats']}"
        assert tried(found, nats) == {nats: "reached"}
        assert is_roots(ports(found)["nats"]) or not is_roots(RESERVED[-1])
    finally:
        found.close()


@pytest.mark.parametrize("wish", [{"job_network": "machine"}, {"isolate": "none"}, {"hypervisor": "dummy"}])
def test_jobs_have_no_network_of_their_own_where_nobody_wants_one_or_they_could_leave_it(wish: dict[str, str]) -> None:
    network, _ = stack_network.made(changed(Settings(), **wish))
    assert network is None


def test_one_that_is_asked_for_by_name_and_would_hold_nobody_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"isolation none|only root"):
        stack_network.made(Settings(job_network="own", isolate="none"))


def test_the_machine_keeps_its_network_and_a_port_of_either_is_not_the_others(network: JobsNetwork) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    with socket.create_server(("127.0.0.1", 0)) as door, network.beside(door, 1) as second:
        assert second.getsockname() == door.getsockname()
        with network.inside():
            assert os.readlink("/proc/thread-self/ns/net") != before
            socket.create_connection(door.getsockname(), 5).close()
            with pytest.raises(OSError, match="in use"):
                socket.create_server(door.getsockname())
        second.accept()[0].close()
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()
    assert os.readlink("/proc/thread-self/ns/net") == before


@pytest.mark.long
def test_outside_is_reached_and_the_machines_loopback_is_not() -> None:
    """A machine with a gateway and a server beyond it, both made of namespaces."""
    made().close()
    program = tool("pasta")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.two_networks", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["outside"] == "outside says hello"
    assert told["datagram"] == "outside says hello"
    assert told["doors without it"] == told["doors"] == ["the door says hello"] * 3
    assert told["name"] == "outside says hello"
    ours, machines = (f"nameserver {name}\nsearch example.com\n" for name in (RESOLVER, "127.0.0.53"))
    assert told["resolv.conf"] == {"job": ours, "instance": machines, "later": f"{ours}options edns0\n"}
    assert len(told["loopback"]) == 3
    assert not [host for host, said in told["loopback"].items() if not said.endswith("Error")]
    assert told["pasta"] == {"uid": 65534, "capabilities of the machine": False, "ends with who started it": True}


def test_without_root_jobs_are_where_they_were_and_nobody_is_told() -> None:
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        assert stack_network.made(Settings()) == (None, "only root can make one")
        with pytest.raises(NetworkError, match="only root"):
            stack_network.made(Settings(job_network="own"))
    finally:
        os.seteuid(before)


def test_of_the_machines_resolvers_jobs_are_told_another_address_of_those_on_its_loopback_alone() -> None:
    text = "# by hand\nnameserver 10.0.0.1\nnameserver\noptions edns0\n"
    assert reached(text) == text
    assert (
        reached(f"{text}nameserver 127.0.0.1\nnameserver ::1")
        == f"{text}nameserver {RESOLVER}\n" + f"nameserver {RESOLVER}\n"
    )
