"""Each program in `benchmarks` comes to its end at its smallest size, and prints figures.  They are no results."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks import accasim
from benchmarks.accasim_logs import generated, write
from benchmarks.against import output_of
from tests.support.benchmark_programs import LOG, SCRATCH, SMALL, WEB
from tests.support.left_out import leave_out
from tests.support.tools import tool
from tests.unit.frame_source import ROOT

RUN_S = 240.0  # ten times what the longest takes on an idle machine
JOBS, NODES, MINUTES = 20, 64, 60
pytestmark = [pytest.mark.long, pytest.mark.timeout(RUN_S + 120)]


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, str]:
    """What is in place of a file in the options, and the file."""
    log, web = tmp_path / "jobs.swf", tmp_path / "requests.csv"
    write(log, generated(JOBS, NODES))
    lines = [f"{minute},{100 + minute}" for minute in range(MINUTES)]
    web.write_text("\n".join(["minute,requests", *lines, ""]))
    return {LOG: str(log), WEB: str(web), SCRATCH: str(tmp_path)}


def ask_for(needs: str) -> None:
    """A program that not every machine has."""
    if needs != "accasim":
        tool(needs)
    elif not (accasim.HOME / "bin" / "python").exists():
        leave_out("left out without AccaSim (python -m benchmarks.accasim installs it)")


@pytest.mark.parametrize("name", sorted(SMALL))
def test_each_runs_at_its_smallest(name: str, logs: dict[str, str]) -> None:
    small = SMALL[name]
    if small.needs:
        ask_for(small.needs)
    python = accasim.HOME / "bin" / "python" if name == "accasim_theirs" else sys.executable
    options = [logs.get(word, word) for word in small.options.split()]
    told = output_of([str(python), "-m", f"benchmarks.{name}", *options], ROOT, RUN_S)
    assert small.says in told, told
    assert re.search(r"(?<![\w.])[0-9]+(\.[0-9]+)?(?![\w.])", told), told
