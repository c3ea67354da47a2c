"""Two who measure the same runs: the monitor's accounting of a simulated journal says what the simulator's own records say."""

from __future__ import annotations

import random

import pytest

from phoenix.simulate.engine import Simulation
from phoenix.simulate.verify import messages
from schemas.config import OnReclaim
from services.monitor.core.monitor import MonitorCore
from services.monitor.views.usage import EVER, usage
from services.runtime.journal.fold import Fold
from tests.unit.test_simulate_engine import batch, cloud, job, web

HOSTS = 12


@pytest.mark.parametrize("on_reclaim", ["requeue", "kill", "suspend"])
@pytest.mark.parametrize("seed", range(3))
def test_held_used_and_lost_are_the_simulators(on_reclaim: OnReclaim, seed: int) -> None:
    """Jobs of whole hosts beside a web demand that comes and goes."""
    chance = random.Random(seed)
    submits = sorted(chance.uniform(0, 3000) for _ in range(40))
    jobs = tuple(
        job(n, submit_s, chance.uniform(50, 900), chance.choice((1, 1, 2, 5))) for n, submit_s in enumerate(submits, 1)
    )
    demand = tuple((at * 250.0, chance.randrange(0, 9)) for at in range(16))
    scenario = cloud(
        batch(on_reclaim=on_reclaim), web(), hosts=HOSTS, jobs={"hpc": jobs}, demand=demand, window_s=6000.0
    )
    simulation = Simulation(scenario, keep=True)
    outcome = simulation.recorder.outcome(simulation.run())
    fold = Fold(None, MonitorCore)
    for message in messages(simulation):
        fold.feed(message)
    core = fold.core
    assert isinstance(core, MonitorCore)
    found = usage(core.accounting, "user", None, 0.0, EVER, fold.custody.state.at)
    hpc = found["departments"][0]
    cores = hpc["held_core_s"] / hpc["held_s"]
    lost = [record.lost_node_s for record in outcome.jobs if record.end in ("completed", "killed", "unfinished")]
    assert hpc["preempted"] == sum(record.preempted for record in outcome.jobs) > 0
    assert hpc["lost_core_s"] == pytest.approx(cores * sum(lost), rel=1e-6)
    assert hpc["ended"].get("completed", 0) == sum(record.end == "completed" for record in outcome.jobs)
    assert hpc["used_core_s"] >= hpc["lost_core_s"]
    assert (on_reclaim == "suspend") == (hpc["lost_core_s"] == 0.0)
