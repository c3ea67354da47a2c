"""`phoenix launch` inside a job's script starts tasks on all ranks, through the guests, under each rank's own user."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phoenix.local.process import nursery
from phoenix.local.process.driver import ProcessDriver
from phoenix.local.process.spawner import FDS_A_LAUNCHED
from tests.support.guest_door import HOST, GuestDoor, Life

DEADLINE_S = 20.0


class Gang:
    """A driver and a door on which gangs run."""

    def __init__(self, driver: ProcessDriver, door: GuestDoor) -> None:
        self.driver = driver
        self.door = door
        self.ended: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def start(self, script: str, ranks: int, **boot: object) -> Life:
        """Boot all ranks; returns rank 0."""
        lives = [self.door.add("5", rank, ranks, script=script, user="ada", **boot) for rank in range(ranks)]
        self.vms = [self.door.vm("5", rank) for rank in range(ranks)]
        for vm in self.vms:
            await self.driver.boot(vm, HOST)
        return lives[0]

    async def run(self, script: str, ranks: int) -> Life:
        life = await self.start(script, ranks)
        async with asyncio.timeout(DEADLINE_S):
            _, why = await self.ended.get()
        assert why == "reported"
        return life


@pytest.fixture(params=["auto", "none"])
async def gang(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gang]:
    driver = ProcessDriver(tmp_path / "data", isolate=request.param)
    async with GuestDoor() as door:
        it = Gang(driver, door)
        await driver.start(lambda vm, why: it.ended.put_nowait((vm, why)))
        try:
            yield it
        finally:
            await driver.close()


async def test_tasks_run_on_all_ranks_with_labels(gang: Gang) -> None:
    script = """#!/bin/sh
export COLOUR=blue
phoenix launch -n 4 -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $PHOENIX_NODEID $COLOUR; echo err >&2'
echo code $?
"""
    life = await gang.run(script, ranks=2)
    lines = sorted(life.text().splitlines())
    assert lines == [
        "0: 0 of 4 on 0 blue",
        "1: 1 of 4 on 0 blue",
        "2: 2 of 4 on 1 blue",
        "3: 3 of 4 on 1 blue",
        "code 0",
    ]
    assert sorted(life.text("stderr").splitlines()) == [f"{task}: err" for task in range(4)]


async def test_the_first_failure_is_the_exit_code_and_all_tasks_are_waited_for(gang: Gang) -> None:
    script = """#!/bin/sh
phoenix launch sh -c 'if [ $PHOENIX_TASK_ID = 1 ]; then exit 7; fi; sleep 0.3; printf unfinished'
echo " code $?"
phoenix launch sh -c 'kill -9 $$'; echo "code $?"
phoenix launch no-such-program; echo "code $?"
"""
    life = await gang.run(script, ranks=2)
    assert life.text() == "unfinished\n code 7\ncode 137\ncode 127\n"


def test_a_place_of_path_that_may_not_be_looked_into_is_one_without_the_program(tmp_path: Path) -> None:
    """exec says EACCES then, as of a program that may not be run."""
    (tmp_path / "there").write_text("")
    refused, path = PermissionError(errno.EACCES, "Permission denied"), {"PATH": f"/no/such/place:{tmp_path}"}
    assert nursery._why_not("nosuch", path, refused) == ("there is no such program in PATH", 127)
    assert nursery._why_not("there", path, refused) == ("Permission denied", 126)
    assert nursery._why_not("./nosuch", path, refused) == ("there is no such program", 127)


async def test_signals_reach_every_task(gang: Gang) -> None:
    script = """#!/bin/sh
phoenix launch sh -c 'trap "echo told; exit 9" USR1; echo ready; while :; do sleep 0.05; done' > out &
pid=$!
while [ "$(grep -c ready out)" != 2 ]; do sleep 0.05; done
kill -USR1 $pid
wait $pid; echo "code $?"; sort out
"""
    life = await gang.run(script, ranks=2)
    assert life.text() == "code 9\nready\nready\ntold\ntold\n"


@pytest.mark.parametrize(("trap", "grace_s", "code"), [("exit 0", 60.0, 143), ("", 0.2, 137)])
async def test_a_task_whose_node_is_told_to_end_is_no_success_on_the_first_one(
    gang: Gang, monkeypatch: pytest.MonkeyPatch, trap: str, grace_s: float, code: int
) -> None:
    """The guest of rank 1 has the order, that of rank 0 not yet: its script must not end with 0 because its tasks tidy up, nor
    wait for ever because the node ended before its door had taken how the task ended."""
    monkeypatch.setattr("phoenix.local.process.driver.FAREWELL_S", DEADLINE_S)  # the machine may be busy
    task = f"trap '{trap}' TERM; echo up; while [ $PHOENIX_NODEID = 1 ]; do sleep 0.05; done"
    script = f"""#!/bin/sh
phoenix launch sh -c "{task}"; echo "code $?"
"""
    life = await gang.start(script.replace("$PHOENIX_NODEID", r"\$PHOENIX_NODEID"), ranks=2, grace_s=grace_s)
    await gang.door.until(lambda: life.text().count("up") == 2)
    gang.door.lives["5/1/1"].unavailable = 3  # times that its guest asks in vain
    (other,) = [vm for vm in gang.vms if vm.context["PHOENIX_ID"].endswith("/1")]
    await gang.driver.shutdown(other, HOST)
    await gang.door.until(lambda: "code" in life.text())
    assert life.text() == f"up\nup\ncode {code}\n"


async def test_much_output_arrives_complete(gang: Gang) -> None:
    script = "#!/bin/sh\nphoenix launch -n 2 seq 1 60000 | wc -l\n"
    life = await gang.run(script, ranks=2)
    assert life.text().strip() == "120000"


async def test_a_task_that_cannot_be_started_ends_with_126_and_says_why_and_the_others_go_on(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phoenix.local.process.spawner._open_files", lambda: 3 * FDS_A_LAUNCHED)
    script = """#!/bin/sh
phoenix launch -n 4 sh -c 'echo up; sleep 1'; echo "code $?"
phoenix launch sh -c 'echo on'; echo "code $?"
"""
    life = await gang.run(script, ranks=1)
    assert life.text() == "up\nup\ncode 126\non\ncode 0\n"  # beside the script there is room for two
    why = "phoenix: all 3 processes that may be launched on this hypervisor are in use"
    assert life.text("stderr").splitlines() == [why, why]


async def test_wrong_usage_says_what_would_be_right(gang: Gang) -> None:
    life = await gang.run(
        "#!/bin/sh\nphoenix launch -n x true; echo $?; phoenix launch; echo $?; phoenix no-such-command; echo $?", 1
    )
    assert life.text() == "2\n2\n2\n"
    assert "must be from 1 to" in life.text("stderr")
    assert "no command is given" in life.text("stderr")


async def test_ranks_are_users_of_their_own(gang: Gang) -> None:
    if gang.driver.isolation()["isolation"] == "none":
        assert "user" in gang.driver.isolation()["why"]
        return
    life = await gang.run("#!/bin/sh\nphoenix launch id -u\nid -u\n", ranks=2)
    first, second, script = map(int, life.text().split())
    assert os.getuid() not in (first, second)
    assert first != second
    assert script in (first, second)
