"""The supervisor with its two smallest parts, NATS and the embedded OpenNebula (`--services none`): what it starts, it keeps,
and it stops."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.local import stack_config, stack_settings
from services.monitor.http import session_store
from tests.integration.up_cloud import Cloud, until
from tests.support.small_disk import SmallDisk

ON_A_FULL_DISK = """
import os, sys
from phoenix.cli.__main__ import main
with open(sys.argv[1] + "/filler", "wb", 0) as file:
    try:
        while file.write(b"x" * 4096):
            pass
    except OSError:
        pass
assert main(["up", "--detach", "--services", "none"]) == 1
main(["down", "--purge"])
print("left", sorted(os.listdir(sys.argv[1])))
"""
UP = ("up", "--detach", "--services", "none", "--hosts", "3")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    found = Cloud(tmp_path / "data")
    yield found
    found.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """For tests that leave it as it was: running and well."""
    found = Cloud(tmp_path_factory.mktemp("shared") / "data")
    found.ok(*UP)
    yield found
    found.close()


def test_up_status_down_and_up_again(cloud: Cloud) -> None:
    said = cloud.ok(*UP)
    assert said.startswith("cloud:        data-")
    assert "nats://127.0.0.1:" in said
    first = cloud.json("status")
    assert first["healthy"]
    assert first["hosts"] == 3
    way_out = {"pasta"} if first["job_network"] == "own" and not first["job_network_reason"] else set()
    assert {p["name"]: p["health"] for p in first["processes"]} == dict.fromkeys({"nats", "opennebula"} | way_out, "ok")
    assert first["isolation"] in ("none", "uid", "uid+cgroup")
    assert first["isolation_reason"] or first["isolation"] == "uid+cgroup"
    assert (Path(first["opennebula_auth_file"]).read_text()).startswith("oneadmin:")
    cloud.ok("down")
    assert cloud.pids() == set()
    assert cloud.status()["running"] is False
    cloud.ok("up", "--detach", "--services", "none")
    again = cloud.json("status")
    for kept in ("cloud", "nats_url", "opennebula_url", "hosts", "credentials"):
        assert again[kept] == first[kept]


def test_secrets_are_files_that_only_their_owner_reads_and_no_argument_holds_one(shared: Cloud) -> None:
    secrets = []
    for path in (shared.data / "credentials").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        secrets.append(path.read_bytes().strip())
    assert stat.S_IMODE(shared.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((shared.data / "run" / "control.sock").stat().st_mode) == 0o600
    shown = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in shared.pids())
    said = b"".join(
        path.read_bytes() for path in [*(shared.data / "log").iterdir(), *(shared.data / "run").glob("*.json")]
    )
    for secret in secrets:
        assert secret not in shown + said


def test_the_file_names_the_hypervisor_if_it_is_one_that_the_embedded_opennebula_has(
    cloud: Cloud, tmp_path: Path
) -> None:
    file = tmp_path / "site.toml"

    def names(hypervisor: str) -> tuple[str, str]:
        table = f'[opennebula]\nhypervisor = "{hypervisor}"\n'
        file.write_text(f'[cloud]\nname = "c"\n[[department]]\nname = "hpc"\nkind = "batch"\n{table}')
        return "--config", str(file)

    refused = cloud.run(*UP, *names("lxc"))
    assert refused.returncode == 1
    assert 'hypervisor: "lxc": should be "process" or "dummy": without an endpoint' in refused.stderr
    assert not (cloud.data / "phoenix.toml").exists()
    cloud.ok(*UP, *names("dummy"))
    assert cloud.json("status")["hypervisor"] == "dummy"


def test_a_second_up_on_the_same_directory_is_refused(shared: Cloud) -> None:
    before = shared.pids()
    second = shared.run("up", "--detach")
    assert second.returncode == 1
    assert "already running" in second.stderr
    assert shared.pids() == before


def test_a_part_that_dies_is_started_again(shared: Cloud) -> None:
    victim = next(p for p in shared.json("status")["processes"] if p["name"] == "opennebula")
    os.kill(victim["pid"], signal.SIGKILL)

    def back() -> bool:
        found = shared.status()
        now = next(p for p in found["processes"] if p["name"] == "opennebula")
        return bool(found["healthy"] and now["restarts"] == 1 and now["pid"] != victim["pid"])

    until(back, "opennebula was not started again")


def test_no_process_outlives_a_supervisor_that_is_killed(cloud: Cloud) -> None:
    cloud.ok(*UP)
    os.kill(cloud.json("status")["pid"], signal.SIGKILL)
    until(lambda: not cloud.pids(), "a child outlives its supervisor")
    assert cloud.run("status").returncode == 3
    cloud.ok(*UP)
    assert cloud.json("status")["healthy"]


def test_ctrl_c_in_the_foreground_stops_everything(cloud: Cloud) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "phoenix.cli", "up", "--services", "none", "--hosts", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=cloud.environment(),
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready"):
            break
    assert cloud.status()["healthy"]
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(90) == 0
    assert cloud.pids() == set()


def test_what_cannot_start_says_which_part_and_why_and_leaves_nothing(cloud: Cloud, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "site.toml"
        config.write_text(
            '[cloud]\nname = "x"\n[[department]]\nname = "hpc"\nkind = "batch"\n'
            '[[user]]\nname = "o"\ndepartment = "operators"\nrole = "operator"\n'
            f'[nats]\nurl = "nats://127.0.0.1:{port}"\n'
        )
        failed = cloud.run("up", "--detach", "--services", "none", "--config", str(config))
    assert failed.returncode == 1
    assert "nats ends again and again" in failed.stderr
    assert "address already in use" in failed.stderr
    assert cloud.pids() == set()


def test_a_wrong_configuration_is_told_as_a_whole(cloud: Cloud, tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text('[cloud]\nname = "x"\n[[department]]\nname = "hpc"\nkind = "bach"\nwieght = 2\n')
    failed = cloud.run("up", "--detach", "--config", str(config))
    assert failed.returncode == 1
    assert "site.toml" in failed.stderr
    assert "kind" in failed.stderr
    assert "weight" in failed.stderr
    assert cloud.pids() == set()


def test_a_long_data_directory_has_a_control_socket_all_the_same(tmp_path: Path) -> None:
    found = Cloud(tmp_path / ("d" * 100) / "data")
    try:
        found.ok(*UP)
        assert found.json("status")["healthy"]
    finally:
        found.close()


def test_purge_leaves_what_the_cloud_has_not_made(cloud: Cloud) -> None:
    cloud.data.mkdir()
    (cloud.data / "thesis.tex").write_text("years of work")
    cloud.ok(*UP)
    for made in (session_store.FILE, f".{session_store.FILE}.0a1b", "refused.scheduler.hpc.json"):
        (cloud.data / made).write_text("{}")  # after a login at the page, a kill -9, an append that was refused
    done = cloud.run("down", "--purge")
    assert done.returncode == 0
    assert "thesis.tex" in done.stderr
    assert [path.name for path in cloud.data.iterdir()] == ["thesis.tex"]


def test_more_hosts_than_could_ever_start_are_refused(cloud: Cloud) -> None:
    refused = cloud.run("up", "--detach", "--hosts", "99999999")
    assert refused.returncode == 2
    assert "at most" in refused.stderr
    assert not cloud.data.exists()


def test_purge_deletes_only_what_is_a_cloud(cloud: Cloud, tmp_path: Path) -> None:
    cloud.ok(*UP)
    cloud.ok("down", "--purge")
    assert not cloud.data.exists()
    innocent = tmp_path / "innocent"
    innocent.mkdir()
    (innocent / "thesis.tex").write_text("years of work")
    assert cloud.run("down", "--purge", "--data", str(innocent)).returncode == 1
    assert (innocent / "thesis.tex").exists()


def test_what_a_cloud_did_not_start_with_is_not_kept(cloud: Cloud, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = tmp_path / "site.toml"
        port = taken.getsockname()[1]
        config.write_text(f'{stack_config.DEFAULT.read_text()}\n[nats]\nurl = "nats://127.0.0.1:{port}"\n')
        assert cloud.run(*UP, "--cores", "2", "--config", str(config)).returncode == 1
    assert cloud.run(*UP, "--isolate", "foo").returncode == 2
    kept = stack_settings.load(cloud.data / "settings.json")
    assert kept == stack_settings.Settings()


def test_up_on_a_full_disk_says_so_and_leaves_nothing_that_purge_does_not_remove(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "small", 1)
    done = subprocess.run(
        disk.inside([sys.executable, "-c", ON_A_FULL_DISK, str(disk.directory)]),
        capture_output=True,
        text=True,
        timeout=60,
        env=Cloud(disk.directory / "data").environment(),
        check=False,
    )
    assert "No space left on device" in done.stderr
    assert "a bug" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == "left ['filler']"


def test_two_clouds_side_by_side_have_names_and_addresses_of_their_own(cloud: Cloud, shared: Cloud) -> None:
    cloud.ok(*UP)
    ours, theirs = cloud.json("status"), shared.json("status")
    for own in ("cloud", "nats_url", "opennebula_url"):
        assert ours[own] != theirs[own]
    cloud.ok("down")
    assert shared.json("status")["healthy"]
