"""A job that starts processes without end, and one that looks at those of others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from phoenix.local.process.cgroups import tasks_max
from tests.support.hypervisor import ISOLATIONS, started

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
