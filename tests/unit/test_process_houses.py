"""A data directory whose cloud starts with another isolation than before: the house of the other kind is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phoenix.local.process import vm_dirs
from phoenix.local.process.driver import ProcessDriver
from phoenix.local.process.sweep import MARKER
from phoenix.local.process.vm_dirs import House


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where houses of strangers are: below the test's own directory."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(vm_dirs.tempfile, "gettempdir", lambda: str(found))
    return found


def test_after_an_orderly_end_the_link_leads_nowhere_and_is_replaced(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    House(data, strangers=True).demolish()
    assert (data / "vms").is_symlink()
    house = House(data, strangers=False)
    assert not (data / "vms").is_symlink()
    assert (house.path, house.former) == (data / "vms", None)
    house.demolish()
    again = House(data, strangers=True)
    assert (data / "vms").readlink() == again.path
    again.demolish()


def test_after_a_crash_the_other_house_goes_with_its_rooms(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    before = House(data, strangers=True)
    (before.rooms / "7").mkdir()
    (before.rooms / "7" / "left").touch()
    house = House(data, strangers=False)
    assert house.former == before.path
    house.empty()
    assert list(elsewhere.iterdir()) == []
    assert house.rooms.is_dir()
    house.demolish()


@pytest.mark.parametrize("name", ["phoenix-000000000000", "mine"])
def test_what_is_no_house_of_ours_is_not_removed(name: str, tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (elsewhere / name).mkdir()
    (data / "vms").symlink_to(elsewhere / name)
    house = House(data, strangers=False)
    house.empty()
    assert (elsewhere / name).is_dir()
    assert not (data / "vms").is_symlink()
    house.demolish()


async def test_a_hypervisor_without_isolation_ends_what_one_with_it_has_left(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    before = House(data, strangers=True)
    marked = {**os.environ, MARKER.rstrip("="): f"{before.rooms}/7"}
    left = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE, env=marked)
    driver = ProcessDriver(data, isolate="none")
    await driver.start(lambda _vm, _why: None)
    try:
        assert await left.wait() < 0
        assert driver.isolation()["isolation"] == "none"
        assert os.listdir(elsewhere) == []
    finally:
        await driver.close()
