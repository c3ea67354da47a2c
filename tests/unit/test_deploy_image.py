"""The command that builds a site's image: what it refuses before it begins, and what a build that fails leaves.

The builds themselves are long (tests/integration/test_image_build.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import tool
from tests.support.until import until

BUILD = Path(__file__).parents[2] / "deploy" / "opennebula" / "image" / "build"


def built(*words: str, path: Path | None = None, tmp: Path = Path("/tmp")) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin", "TMPDIR": str(tmp)}
    return subprocess.run(
        [BUILD, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which FILE?"),
        (("a", "b"), "one FILE, not also b"),
        (("--sise", "4G", "a"), "there is no option --sise"),
        (("a", "--size"), "--size needs a value"),
        (("--for", "xen", "a"), "--for is kvm or lxc, not xen"),
        (("--for", "lxc", "a.qcow2"), "an image for LXC is a raw file system: call it a.ext4"),
        (("--size", "4", "a"), "--size is a number with M or G, such as 8G, not 4"),
        (("--size", "4.5G", "a"), "--size is a number with M or G, such as 8G, not 4.5G"),
        (("--size", "-4G", "a"), "--size is a number with M or G, such as 8G, not -4G"),
        (("--size", "399M", "a"), "--size: Debian and the guest need 400M at least, not 399M"),
        (("--within", "1h", "a"), "--within is a number of seconds, not 1h"),
        (("--suite", "../etc", "a"), "--suite is the name of a Debian release, such as bookworm, not ../etc"),
        (("--mirror", "deb.debian.org", "a"), "deb.debian.org is no address of a mirror (http, https or file)"),
        (("--mirror", "none", "a"), "--mirror is an address"),
        (("--packages", "python3 $(reboot)", "a"), "--packages: $(reboot) is no name of a Debian package"),
        (("--packages", "-o", "a"), "--packages: -o is no name of a Debian package"),
        (("--context", "one-context.rpm", "a"), "--context is a Debian package (.deb), not one-context.rpm"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = built(*words, tmp=tmp_path)
    first, usage = done.stderr.splitlines()[:2]
    assert (done.returncode, first) == (2, f"build: {message}")
    assert usage.startswith("usage: image/build [--for kvm|lxc]")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_or_written_is_reported_at_once(tmp_path: Path) -> None:
    for words, message in (
        (("--context", "/nowhere/one-context.deb", "a"), "--context: /nowhere/one-context.deb cannot be read"),
        ((str(tmp_path),), f"{tmp_path} is a directory"),
        (("/nowhere/a.ext4",), "there is no directory /nowhere"),
    ):
        done = built(*words, tmp=tmp_path)
        assert (done.returncode, done.stderr) == (1, f"build: {message}\n")


def test_each_program_that_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    """On a machine that has nothing of it."""
    place = tmp_path / "image"
    place.mkdir()
    text = BUILD.read_text()
    nothing = text.replace("\nPATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n", f"\nPATH={tmp_path}\n")
    assert nothing != text
    (place / "build").write_text(nothing.replace("/usr/lib/grub", "/nowhere"))
    for name in ("dirname", "timeout"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    words: list[str | Path] = ["/bin/sh", place / "build", tmp_path / "a.qcow2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "build: programs are missing: apt-get install --no-install-recommends debootstrap e2fsprogs"
    )
    assert done.stderr.endswith("fdisk grub-common grub-pc-bin qemu-utils\n")


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A directory for the front of PATH: a debootstrap that the test writes, and an id that answers as root's."""
    tool("mke2fs")
    place = tmp_path / "bin"
    place.mkdir()
    program(place / "id", "echo 0")
    return place


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_build_that_fails_says_why_and_leaves_the_image_of_before(tmp_path: Path, fake: Path) -> None:
    program(fake / "debootstrap", 'mkdir -p "$5/etc"; echo "E: no mirror"; exit 9')
    (tmp_path / "images").mkdir()
    image = tmp_path / "images" / "guest.ext4"
    image.write_text("of before")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = built(str(image), path=fake, tmp=scratch)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Debian bookworm, by debootstrap ...",
        "  E: no mirror",
        "build: Debian bookworm, by debootstrap failed (9)",
    ]
    assert image.read_text() == "of before"
    assert [x.name for x in image.parent.iterdir()] == ["guest.ext4"]
    assert list(scratch.iterdir()) == []


def test_a_build_that_does_not_end_is_given_up(tmp_path: Path, fake: Path) -> None:
    program(fake / "debootstrap", "exec sleep 300")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = built("--within", "1", str(tmp_path / "a.ext4"), path=fake, tmp=scratch)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "build: Debian bookworm, by debootstrap: given up after 1 s (--within)",
    )
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "a.ext4").exists()


async def test_a_build_that_is_interrupted_leaves_nothing(tmp_path: Path, fake: Path) -> None:
    program(fake / "debootstrap", f"echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 300")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {"PATH": f"{fake}:/usr/bin:/bin", "TMPDIR": str(scratch)}
    words = [BUILD, tmp_path / "a.ext4"]
    build = await asyncio.create_subprocess_exec(
        *words, env=environment, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    await until((tmp_path / "pid").exists, "debootstrap runs")
    pid = int((tmp_path / "pid").read_text())
    build.send_signal(signal.SIGINT)
    assert await build.wait() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "a.ext4").exists()
