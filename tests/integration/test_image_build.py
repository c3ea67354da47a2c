"""The image that `deploy/opennebula/image/build` makes for LXC, from Debian's packages: its files, its account, its units.

That of KVM differs in kernel and boot loader; QEMU boots it by hand only (docs/howto/opennebula-site.md).
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.boot_units import PACKAGE, faults
from tests.support.left_out import leave_out
from tests.support.tools import tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DEPLOY = Path(__file__).parents[2] / "deploy" / "opennebula"
PARTS = (
    "phoenix-guest",
    "phoenix-guest-context",
    "phoenix-guest-door",
    "phoenix-guest-launch",
    "phoenix-guest-stay",
    "phoenix-context",
)
UNITS = Path("etc/systemd/system")


def run(*words: str | Path, **environment: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=900, env={"PATH": os.environ["PATH"], **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.getuid() != 0:
        leave_out("left out without root")
    place = tmp_path_factory.mktemp("image")
    (place / "scratch").mkdir()
    file = place / "guest.ext4"
    path = f"{tool('debootstrap').parent}:{os.environ['PATH']}"
    run(
        DEPLOY / "image" / "build",
        "--size",
        "900M",
        "--packages",
        "openssh-server",
        file,
        PATH=path,
        TMPDIR=str(place / "scratch"),
    )
    assert list((place / "scratch").iterdir()) == []
    return file


@pytest.fixture(scope="module")
def root(image: Path) -> Path:
    """Parts of its tree, as debugfs takes them out of the file."""
    place = image.parent / "root"
    for name in ("etc", "usr/local/sbin", "usr/lib/systemd/system", "var/lib/dpkg", "var/lib/dbus"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        run(tool("debugfs"), "-R", f"rdump /{name} {(place / name).parent}", image)
    return place


def test_the_file_system_is_whole_and_has_the_size_that_was_asked_for(image: Path) -> None:
    run(tool("e2fsck"), "-f", "-n", image)
    assert image.stat().st_size == 900 * 2**20
    assert image.stat().st_blocks * 512 < 500 * 2**20


def test_the_guest_and_its_account_are_in_it(root: Path) -> None:
    for name in PARTS:
        file = root / "usr" / "local" / "sbin" / name
        assert file.read_bytes() == (DEPLOY / name).read_bytes()
        assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o755, 0)
    (account,) = [x for x in (root / "etc" / "passwd").read_text().splitlines() if x.startswith("phoenix:")]
    assert account.split(":")[6] == "/usr/sbin/nologin"
    packages = (root / "var" / "lib" / "dpkg" / "status").read_text()
    for name in ("curl", "util-linux", "procps", "findutils", "grep", "sed", "systemd-sysv", "openssh-server"):
        assert f"\nPackage: {name}\n" in f"\n{packages}"


def test_a_signal_of_the_host_shuts_it_down_and_networkd_has_its_network(root: Path) -> None:
    assert os.readlink(root / UNITS / "sigpwr.target") == "/lib/systemd/system/poweroff.target"
    wants = root / UNITS / "multi-user.target.wants"
    assert {"phoenix-guest.service", "phoenix-context.service", "systemd-networkd.service"} <= {
        x.name for x in wants.iterdir()
    }
    assert not (root / "etc" / "network" / "interfaces").exists()


def test_nothing_of_the_machine_that_built_it_is_in_it(root: Path) -> None:
    assert (root / "etc" / "machine-id").read_bytes() == (root / "etc" / "resolv.conf").read_bytes() == b""
    assert os.readlink(root / "var" / "lib" / "dbus" / "machine-id") == "/etc/machine-id"
    assert list((root / "etc" / "ssh").glob("ssh_host_*")) == []
    assert (root / "etc" / "hostname").read_text() == "phoenix\n"


def test_its_units_start_in_an_order_also_with_the_contextualisation_package(root: Path) -> None:
    units = f"{root / UNITS}:{root / 'usr/lib/systemd/system'}"
    words = (
        tool("systemd-analyze"),
        "verify",
        "--man=no",
        "--generators=no",
        root / "usr/lib/systemd/system/multi-user.target",
    )
    said = subprocess.run(
        words, env={"SYSTEMD_UNIT_PATH": units}, capture_output=True, text=True, check=False, timeout=200
    )
    assert "cycle" not in said.stdout + said.stderr
    for name, text in PACKAGE.items():
        (root / UNITS / name).write_text(f"[Unit]\nDescription={name}\n{text}")
        (root / UNITS / "multi-user.target.wants" / name).symlink_to(f"../{name}")
    said = subprocess.run(
        words, env={"SYSTEMD_UNIT_PATH": units}, capture_output=True, text=True, check=False, timeout=200
    )
    assert "cycle" not in said.stdout + said.stderr
    assert [x for x in faults(said.stderr) if "phoenix" in x] == []
