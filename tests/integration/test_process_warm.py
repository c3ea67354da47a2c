"""A VM that takes one job after another: each finds a machine on which nothing has run."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.guest_door import HOST, Life, job_token_of, token_of
from tests.support.hypervisor import Hypervisor, exists, started

ISOLATIONS = ["none"] if os.geteuid() else ["uid+cgroup", "uid", "none"]
pytestmark = pytest.mark.timeout(60)

LEAVES_MUCH = """#!/bin/sh
echo secret > file; mkdir -p deep/er; echo secret > deep/er/file; echo secret > "$TMPDIR/file"; chmod -R go-rwx .
cp "$PHOENIX_TOKEN_FILE" token; ln -s / root; mkfifo pipe
(setsid setsid sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 &)
while [ ! -s pid ]; do sleep 0.02; done
echo "$PHOENIX_ROOM"; cat pid; cat "$PHOENIX_TOKEN_FILE"; echo
"""
LOOKS_AROUND = """#!/bin/sh
find . "$TMPDIR" -type f; ls -A; cat "$1"/work/file "$1"/token "$1"/script 2>/dev/null && echo FOUND
kill -0 "$2" 2>/dev/null && echo ALIVE
tr '\\0' '\\n' < /proc/self/environ | grep -c "^EARLIER="; echo "$PHOENIX_JOB_ID $PHOENIX_ID"; cat "$PHOENIX_TOKEN_FILE"
"""


@pytest.fixture
async def hypervisor(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hypervisor]:
    isolate = getattr(request, "param", ISOLATIONS[0])
    async with started(tmp_path / "data", isolate) as it:
        yield it


async def parked(hypervisor: Hypervisor, life: Life) -> None:
    await hypervisor.door.until(lambda: life.asked_next)


@pytest.mark.parametrize("hypervisor", ISOLATIONS, indirect=True)
async def test_the_second_job_finds_neither_files_nor_processes_of_the_first(hypervisor: Hypervisor) -> None:
    first = hypervisor.door.add("1", script=LEAVES_MUCH, environment={"EARLIER": "1"})
    first.stay = True
    vm = await hypervisor.boot("1")
    await parked(hypervisor, first)
    room, pid, token = first.text().split()
    assert first.report is not None
    assert first.report["stay"] is True
    assert not exists(room)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert hypervisor.driver._vms[vm.vm_id].machine.pids() == []
    second = hypervisor.door.add("2", script=LOOKS_AROUND, argv=[room, pid])
    await hypervisor.door.bind(first, "2/1/0")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert second.text().split("\n") == ["0", "2 cloud/2/1/0", job_token_of("cloud/2/1/0")]
    assert second.report is not None
    assert second.report["exit"] == 0
    assert token == job_token_of("cloud/1/1/0") != token_of("cloud/1/1/0")
    assert len(second.began) == 1


LEAVES_OUTSIDE = """#!/bin/sh
umask 077
mkdir -p "/tmp/phoenix-left-$(id -u)/deep" "/dev/shm/phoenix-left-$(id -u)"
echo secret > "/tmp/phoenix-left-$(id -u)/deep/file"; echo secret > "/dev/shm/phoenix-left-$(id -u)/file"
ln -s / "/tmp/phoenix-left-$(id -u)/deep/root"; mkfifo "/var/tmp/phoenix-left-$(id -u)"
ipcmk -M 64 -p 0600 >/dev/null; ipcmk -S 1 -p 0600 >/dev/null; ipcmk -Q -p 0600 >/dev/null
id -u
"""
LOOKS_OUTSIDE = """#!/bin/sh
id -u
me=$(id -u); ls -d "/tmp/phoenix-left-$me" "/dev/shm/phoenix-left-$me" "/var/tmp/phoenix-left-$me" 2>/dev/null
ipcs -m -s -q | grep " $(id -u) "
"""


@pytest.mark.parametrize("hypervisor", [i for i in ISOLATIONS if i != "none"], indirect=True)
@pytest.mark.parametrize("stay", [True, False])
async def test_what_was_left_outside_the_room_is_not_the_next_jobs(hypervisor: Hypervisor, stay: bool) -> None:
    first = hypervisor.door.add("1", script=LEAVES_OUTSIDE)
    second = hypervisor.door.add("2", script=LOOKS_OUTSIDE)
    first.stay = stay
    vm = await hypervisor.boot("1")
    if stay:
        await parked(hypervisor, first)
        await hypervisor.door.bind(first, "2/1/0")
    else:
        await hypervisor.until_ended(vm)
        vm = await hypervisor.boot("2")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert second.text() == first.text()  # the same uid, and nothing else


async def test_a_third_job_and_then_gone(hypervisor: Hypervisor) -> None:
    lives = [hypervisor.door.add(str(n), script=f"#!/bin/sh\nls -A; echo {n} > f; cat f\n") for n in (1, 2, 3)]
    for life in lives:
        life.stay = True
    vm = await hypervisor.boot("1")
    for life, following in itertools.pairwise(lives):
        await parked(hypervisor, life)
        await hypervisor.door.bind(life, f"{following.boot['unit']}/1/0")
    await parked(hypervisor, lives[2])
    assert vm.vm_id not in hypervisor.ended
    await hypervisor.door.dismiss(lives[2])
    assert await hypervisor.until_ended(vm) == ["gone"]
    assert [life.text() for life in lives] == ["1\n", "2\n", "3\n"]


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$"])
async def test_only_a_success_stays(hypervisor: Hypervisor, script: str) -> None:
    life = await hypervisor.run("1", f"#!/bin/sh\n{script}\n")
    assert life.report is not None
    assert life.report["stay"] is False


async def test_one_node_of_several_does_not_offer_to_stay(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/bin/sh\n", ranks=2)
    assert life.report is not None
    assert life.report["stay"] is False


@pytest.mark.parametrize("end", ["shutdown", "cancel"])
async def test_a_vm_that_waits_is_ended_at_once(hypervisor: Hypervisor, end: str) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\n", grace_s=100)
    life.stay = True
    vm = await hypervisor.boot("1")
    await parked(hypervisor, life)
    async with asyncio.timeout(3):
        await getattr(hypervisor.driver, end)(vm, HOST)
    assert vm.vm_id not in hypervisor.driver._vms


async def test_the_way_to_the_next_job_outlives_an_admission_that_is_away(hypervisor: Hypervisor) -> None:
    first = hypervisor.door.add("1", script="#!/bin/sh\n")
    second = hypervisor.door.add("2", script="#!/bin/sh\necho two\n")
    first.stay = True
    vm = await hypervisor.boot("1")
    await parked(hypervisor, first)
    first.unavailable = 3
    await hypervisor.door.bind(first, "2/1/0")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert second.text() == "two\n"
