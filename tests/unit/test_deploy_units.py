"""The units of a site's image are in no ordering cycle: systemd would leave out one of them, and not always the same.

``systemd-analyze verify`` reads nothing of this machine: what the units refer to is in a directory of the test, with the
ordering of Debian's and of the contextualisation package's units.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.boot_units import BEFORE_SHUTDOWN, PACKAGE, SERVICE, faults
from tests.support.tools import tool

DEPLOY = Path(__file__).parents[2] / "deploy" / "opennebula"
OURS = ("phoenix-guest.service", "phoenix-context.service")
UNITS = {
    "multi-user.target": "Requires=basic.target\nAfter=basic.target\n",
    "basic.target": "Requires=sysinit.target\nAfter=sysinit.target\n",
    "sysinit.target": "Wants=local-fs.target\nAfter=local-fs.target\nDefaultDependencies=no\n" + BEFORE_SHUTDOWN,
    "local-fs.target": "DefaultDependencies=no\n" + BEFORE_SHUTDOWN,
    "shutdown.target": "DefaultDependencies=no\n",
    "network-pre.target": "",
    "network.target": "After=network-pre.target\n",
    "network-online.target": "After=network.target systemd-networkd-wait-online.service\n",
    "systemd-networkd.service": "DefaultDependencies=no\nAfter=network-pre.target\nBefore=network.target multi-user.target\n"
    "Wants=network.target\n" + BEFORE_SHUTDOWN + SERVICE,
    "systemd-networkd-wait-online.service": "DefaultDependencies=no\nRequires=systemd-networkd.service\n"
    "After=systemd-networkd.service\nBefore=network-online.target\n" + BEFORE_SHUTDOWN + SERVICE,
}
WANTED = "[Install]\nWantedBy=multi-user.target\n"


def said(place: Path, units: dict[str, str], guest: str | None = None) -> str:
    """What systemd-analyze reports of multi-user.target with these units and ours; `guest`: another text of the guest's."""
    wants = place / "multi-user.target.wants"
    wants.mkdir(parents=True)
    for name, text in units.items():
        (place / name).write_text(f"[Unit]\nDescription={name}\n{text}")
    for name in OURS:
        shutil.copy(DEPLOY / name, place)
    if guest is not None:
        (place / OURS[0]).write_text(guest)
    for name in (*OURS, *PACKAGE):
        if (place / name).exists():
            (wants / name).symlink_to(place / name)
            assert name in PACKAGE or WANTED in (place / name).read_text()
    words: list[str | Path] = [
        tool("systemd-analyze"),
        "verify",
        "--man=no",
        "--generators=no",
        place / "multi-user.target",
    ]
    environment = {"SYSTEMD_UNIT_PATH": str(place), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=200)
    return done.stdout + done.stderr


def test_the_units_start_in_an_order_with_the_contextualisation_package(tmp_path: Path) -> None:
    assert faults(said(tmp_path / "units", UNITS | PACKAGE)) == []


def test_the_units_start_in_an_order_without_it(tmp_path: Path) -> None:
    assert faults(said(tmp_path / "units", UNITS)) == []


def test_a_guest_that_is_not_ordered_after_the_target_is_in_a_cycle(tmp_path: Path) -> None:
    """The fault that the tests above must find."""
    text = (DEPLOY / OURS[0]).read_text()
    without = text.replace("After=multi-user.target one-context.service", "After=one-context.service")
    assert without != text
    found = said(tmp_path / "units", UNITS | PACKAGE, without)
    assert "ordering cycle" in found
    assert any(unit in found for unit in ("one-context.service", "phoenix-guest.service"))
