"""The experiment on real processes, small: instances come and go under load without one failed request, and a load that rises
gets instances on hosts that batch gives up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from phoenix.load.curve import Curve
from phoenix.rush import flaps, play
from phoenix.rush.account import account
from phoenix.rush.setting import Setting, Variant
from tests.integration.up_cloud import Cloud

DEADLINE_S = 60.0
pytestmark = pytest.mark.timeout(240)
# However busy the machine is: what is late is not lost.
SMALL = Setting(cpus=2, hosts=5, instances_max=4, peak_instances=4, job_s=(20.0, 40.0), cpu_ms=40.0, timeout_s=30.0)


@pytest.mark.long
async def test_a_rise_of_the_load_takes_hosts_from_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two instances' load to four instances; an instance has a fifth of a core, and serves five requests a second.  The rule
    counts requests: where the machine is full of other work, instances do not get the CPU time that would make them busy."""
    monkeypatch.setattr(play, "SETTLE_S", 0.5)
    table = tmp_path / "shape.csv"
    table.write_text("at_s,requests\n0,12\n2,36\n4,36\n")
    curve = Curve((0.0, 2.0, 4.0), (6.0, 18.0, 18.0), 6.0)
    options = ("--shape", str(table), "--scale", "1")
    rule = Variant(name="target, by requests", requests_per_instance=4.0)
    one = await play.play(SMALL, rule, curve, options, SMALL.nominal_capacity, lambda _text: None)
    found = account(one)
    assert (found.load.failed, found.load.failures) == (0, {})
    assert found.load.requests == pytest.approx(84, abs=45)
    assert found.most > 2
    assert found.hosts_to_web >= 1
    assert found.batch.preempted >= 1
    assert found.batch.lost_core_s > 0
    assert [stage.mark for stage in found.stages][-1] == "serving"
    assert all(stage.max_s >= 0 for stage in found.stages)


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


async def test_whoever_ends_the_experiment_ends_its_cloud(tmp_path: Path) -> None:
    """SIGTERM in the middle of the start: nothing that it has started lives on, and its directory is gone."""
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "phoenix.rush.flaps", "--balancer", "embedded", "--out", str(tmp_path / "out")),
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not found(tmp_path, "phoenix-rush-*/data/run/*"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            command.terminate()
            assert await command.wait() == 130
    finally:
        if command.returncode is None:
            command.kill()
    assert Cloud(tmp_path).pids() == set()
    assert found(tmp_path, "phoenix-rush-*") == []


@pytest.mark.long
async def test_scaling_up_and_down_fails_no_request(tmp_path: Path) -> None:
    found = await flaps.flap(Setting(cpus=2, hosts=8), 2, tmp_path)
    assert found.failures == ()
    assert [step.to > step.before for step in found.steps] == [True, False]
    assert all(load.requests for load in found.loads.values())
    assert "1 ups" in flaps.text(found)
