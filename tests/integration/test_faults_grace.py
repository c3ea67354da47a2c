"""Whatever announces first that the attempt is over, its script gets SIGTERM once and has its grace; the guest's report states
whether that was before it ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phoenix.local.process import processes
from tests.integration.up_cloud import until
from tests.support.guest_door import HOST
from tests.support.hypervisor import Hypervisor, started

STUBBORN = """#!/bin/sh
trap 'echo term >> {said}; sleep 0.4; echo rested >> {said}; exit 143' TERM
echo up >> {said}
while :; do sleep 60; done
"""


@pytest.fixture
async def hypervisor(tmp_path: Path) -> AsyncIterator[Hypervisor]:
    async with started(tmp_path / "data", "none") as it:
        yield it


async def until_said(said: Path, word: str) -> None:
    await asyncio.to_thread(until, lambda: said.exists() and word in said.read_text(), f"not said: {word}")


@pytest.mark.parametrize("told_too", [False, True])
async def test_who_is_gone_has_its_grace_and_hears_term_once(
    hypervisor: Hypervisor, tmp_path: Path, told_too: bool
) -> None:
    """`told_too`: the executor's terminate follows, as it does when a job is reclaimed."""
    said = tmp_path / "said"
    hypervisor.door.add("1", script=STUBBORN.format(said=said), grace_s=60)
    vm = await hypervisor.boot("1")
    await until_said(said, "up")
    await asyncio.sleep(0.3)  # the guest polls for commands from then on: `agent.SHORT_JOB_S`
    await hypervisor.door.lose("1")
    await until_said(said, "term")
    if told_too:
        await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), 40)
    else:
        assert await hypervisor.until_ended(vm) == ["gone"]
    assert said.read_text() == "up\nterm\nrested\n"


TIDY = "#!/bin/sh\ntrap 'exit 0' TERM\necho up >> {said}\nwhile :; do sleep 0.05; done\n"


async def test_a_script_that_ends_with_0_on_sigterm_is_reported_as_told_to_end(
    hypervisor: Hypervisor, tmp_path: Path
) -> None:
    life = hypervisor.door.add("1", script=TIDY.format(said=tmp_path / "said"), grace_s=60)
    vm = await hypervisor.boot("1")
    await until_said(tmp_path / "said", "up")
    await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), 40)
    assert life.report is not None
    assert (life.report["exit"], life.report["terminated"], life.report["stay"]) == (0, True, False)


async def test_who_had_ended_before_its_guest_heard_of_it_was_not_told(hypervisor: Hypervisor, tmp_path: Path) -> None:
    """The nursery sleeps: the script is an unnoticed zombie when the VM is shut down."""
    said, go = tmp_path / "said", tmp_path / "go"
    script = f"#!/bin/sh\necho $$ up >> {said}\nuntil [ -e {go} ]; do sleep 0.05; done\n"
    life = hypervisor.door.add("1", script=script, grace_s=60)
    vm = await hypervisor.boot("1")
    await until_said(said, "up")
    nursery, pid = hypervisor.driver._spawner.pid, int(said.read_text().split()[0])
    assert nursery is not None
    os.kill(nursery, signal.SIGSTOP)
    try:
        go.touch()
        await asyncio.to_thread(until, lambda: processes.state(pid) in "ZX", "it has not ended")
        shutdown = asyncio.create_task(hypervisor.driver.shutdown(vm, HOST))
        guest = hypervisor.driver._vms[vm.vm_id].guest
        await asyncio.to_thread(until, lambda: guest.told_to_end, "the guest was not told")
    finally:
        os.kill(nursery, signal.SIGCONT)
    await asyncio.wait_for(shutdown, 40)
    assert life.report is not None
    assert (life.report["exit"], life.report["terminated"]) == (0, False)


@pytest.mark.parametrize(
    ("script", "wish"),
    [
        ("trap 'exit 0' TERM; kill -TERM $$; sleep 60", None),
        ("trap 'exit 0' USR1; while :; do sleep 0.05; done", {"number": 10, "before_s": 60, "script": True}),
    ],
    ids=["signalled by itself", "warned before its limit"],
)
async def test_a_signal_that_is_no_stop_of_the_guest_is_none_in_its_report(
    hypervisor: Hypervisor, script: str, wish: object
) -> None:
    life = hypervisor.door.add("1", script=f"#!/bin/sh\n{script}\n", walltime_s=60.5, signal=wish)
    assert await hypervisor.until_ended(await hypervisor.boot("1")) == ["reported"]
    assert life.report is not None
    assert (life.report["exit"], life.report["terminated"]) == (0, False)


async def test_who_ignores_term_when_gone_is_killed_after_the_grace(hypervisor: Hypervisor, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"#!/bin/sh\ntrap 'echo term >> {said}' TERM\necho up >> {said}\nwhile :; do sleep 60; done\n"
    hypervisor.door.add("1", script=script, grace_s=0.3)
    vm = await hypervisor.boot("1")
    await until_said(said, "up")
    await hypervisor.door.lose("1")
    assert await hypervisor.until_ended(vm) == ["gone"]
