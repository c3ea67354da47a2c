"""Whoever tells a script first that its attempt is over, it hears SIGTERM once and has its grace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.test_process_driver import Hypervisor, started
from tests.integration.up_cloud import until
from tests.support.guest_door import HOST

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


async def test_who_ignores_term_when_gone_is_killed_after_the_grace(hypervisor: Hypervisor, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"#!/bin/sh\ntrap 'echo term >> {said}' TERM\necho up >> {said}\nwhile :; do sleep 60; done\n"
    hypervisor.door.add("1", script=script, grace_s=0.3)
    vm = await hypervisor.boot("1")
    await until_said(said, "up")
    await hypervisor.door.lose("1")
    assert await hypervisor.until_ended(vm) == ["gone"]
