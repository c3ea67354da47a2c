"""The nursery refuses what it cannot start, and continues with everything else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from phoenix.local.guest.machine import Launch, StartError
from phoenix.local.process import nursery, processes
from phoenix.local.process.cgroups import Cgroups, CgroupsUnavailableError
from phoenix.local.process.spawner import Containment, Spawner
from tests.support.left_out import leave_out
from tests.support.until import until


@pytest_asyncio.fixture
async def spawner() -> AsyncIterator[Spawner]:
    it = Spawner()
    it.start()
    yield it
    await it.close()


@pytest.fixture
def stdio() -> Iterator[tuple[int, int, int]]:
    null = os.open(os.devnull, os.O_RDWR)
    yield null, null, null
    os.close(null)


def launch(room: Path, *argv: str, **environment: str) -> Launch:
    return Launch(argv=argv, environment={"PATH": os.defpath, **environment}, room=str(room), sole=False)


async def test_a_frame_that_is_too_large_refuses_that_process_alone(
    spawner: Spawner, stdio: tuple[int, int, int], tmp_path: Path
) -> None:
    other = await spawner.run(launch(tmp_path, "sleep", "60"), Containment(), stdio)
    pid = spawner.pid
    with pytest.raises(StartError, match=f"too large .* at most {nursery.FRAME_BYTES_MAX}"):
        await spawner.run(launch(tmp_path, "true", X="x" * nursery.FRAME_BYTES_MAX), Containment(), stdio)
    after = await spawner.run(launch(tmp_path, "sh", "-c", "exit 7"), Containment(), stdio)
    assert (await after.wait()).code == 7
    assert other.runs
    assert spawner.pid == pid


async def test_a_frame_that_cannot_be_read_refuses_that_process_alone(
    spawner: Spawner, stdio: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await spawner.run(launch(tmp_path, "sleep", "60"), Containment(), stdio)
    with monkeypatch.context() as patch:
        patch.setattr("phoenix.local.process.spawner.json.dumps", lambda *_, **__: "{")
        with pytest.raises(StartError, match="cannot be read"):
            await spawner.run(launch(tmp_path, "true"), Containment(), stdio)
    assert other.runs


async def test_what_is_no_ascii_takes_no_more_room_on_its_way(
    spawner: Spawner, stdio: tuple[int, int, int], tmp_path: Path
) -> None:
    """As JSON escapes, these characters would be three times as long, and not fit."""
    text = "\N{EM DASH}" * 20_000
    words = [text] * (nursery.FRAME_BYTES_MAX // 3 // len(text) - 1)
    process = await spawner.run(launch(tmp_path, "true", *words), Containment(), stdio)
    assert (await process.wait()).code == nursery.EXIT_CANNOT_EXECUTE  # the kernel takes less than a frame does


async def test_a_process_more_than_a_machine_may_have_is_refused(
    spawner: Spawner, stdio: tuple[int, int, int], tmp_path: Path
) -> None:
    """By processes that are moved into the group: the kernel does not count those."""
    try:
        groups = Cgroups(f"test{os.getpid()}")
    except (CgroupsUnavailableError, OSError) as error:
        leave_out(f"left out without control groups: {error}")
    group = groups.create("vm", 1, 64)
    held = Containment(cgroups=group.paths)
    try:
        pids = group.pids
        assert pids is not None
        with open(f"{pids}/pids.max", "w") as limit:  # noqa: ASYNC230
            limit.write("2")
        one, two = [await spawner.run(launch(tmp_path, "sleep", "60"), held, stdio) for _ in range(2)]
        with pytest.raises(StartError, match="all 2 processes that this machine may have are in use"):
            await spawner.run(launch(tmp_path, "true"), held, stdio)
        assert one.runs
        one.signal(9)
        await one.wait()
        three = await spawner.run(launch(tmp_path, "true"), held, stdio)
        assert (await three.wait()).code == 0
        two.signal(9)
        await two.wait()
    finally:
        processes.purge(list(held.cgroups), None, None)
        await until(group.try_remove)
        groups.close()
