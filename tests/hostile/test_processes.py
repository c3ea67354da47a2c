"""A job that starts processes without end, and one that looks at those of others."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from phoenix.local.process.cgroups import tasks_max
from tests.support.guest_door import HOST
from tests.support.hypervisor import ISOLATIONS, started
from tests.support.tools import missing, tool

FORKS = """#!/bin/sh
perl -e 'my $n = 0; while ($n < 2000) { my $pid = fork(); last unless defined $pid; if (!$pid) { sleep 300; exit } $n++ }
    print "forked $n\\n"'
"""
APART = [
    isolate for isolate in ISOLATIONS if isolate != "none"
]  # without users a job's processes are the cloud's user's


@pytest.mark.parametrize("isolate", APART or [None])
async def test_a_job_has_so_many_processes_and_no_more(tmp_path: Path, isolate: str | None) -> None:
    if isolate is None:
        assert os.geteuid() != 0
        return
    async with started(tmp_path / "data", isolate, core_share=0.05) as hypervisor:
        life = await hypervisor.run("1", FORKS)
        found = re.fullmatch(r"forked (\d+)\n", life.text())
        assert found is not None, life.text("stderr")
        most = tasks_max(1.0)
        assert most - 10 < int(found[1]) < most


def may_mount() -> None:
    if APART and subprocess.run([tool("unshare"), "--mount", "true"], check=False, capture_output=True).returncode:
        missing("the right to a mount namespace")


async def test_a_job_sees_no_arguments_of_others(tmp_path: Path) -> None:
    """Neither of another job nor of the cloud; its own it does."""
    may_mount()
    async with started(tmp_path / "data", (*APART, "none")[0]) as hypervisor:
        victim = hypervisor.door.add("1", script="#!/bin/sh\necho up; sleep 300\n", argv=["open-sesame"])
        vm = await hypervisor.boot("1")
        await hypervisor.door.until(lambda: victim.text() == "up\n")
        look = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$each; echo; done 2>/dev/null\n"
        spy = await hypervisor.run("2", f"#!/bin/sh\n{look}", argv=["my-own"])
        assert "my-own" in spy.text()
        assert ("open-sesame" in spy.text()) == (not APART)
        await hypervisor.driver.cancel(vm, HOST)
