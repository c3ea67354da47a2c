"""What-if replays: a journal that a simulated cloud wrote, played again from any moment on, is the same journal's outcome."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Latencies, Scenario, WebInput, Work
from phoenix.whatif.compare import fidelity, values
from phoenix.whatif.past import Past
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from services.domain.capabilities import ALL
from tests.support.whatif import record

WINDOW_S = 6000.0
ORDERS = ("fcfs", "first-fit", "easy", "conservative", "shortest-first", "multi-factor")


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    hosts = draw(st.integers(2, 6))
    at, works = 0.0, []
    for number in range(1, draw(st.integers(1, 25)) + 1):
        at += draw(st.sampled_from([0.0, 7.0, 60.0, 250.0]))
        works.append(
            Work(
                number=number,
                submit_s=at,
                run_s=draw(st.sampled_from([1.0, 30.0, 400.0, 1500.0])),
                nodes=draw(st.integers(1, hosts)),
                exclusive=draw(st.booleans()),
                walltime_s=draw(st.sampled_from([600.0, 2000.0])),
                user=draw(st.sampled_from(["ann", "bob"])),
                priority=draw(st.integers(0, 1)),
            )
        )
    load = [(i * 300.0, draw(st.floats(0.1, 4.0))) for i in range(20)]
    batch = BatchPolicy(
        order=draw(st.sampled_from(ORDERS)), on_reclaim=draw(st.sampled_from(["requeue", "kill", "suspend"]))
    )
    web = WebPolicy(rule=draw(st.sampled_from(["threshold", "target-tracking"])), instances_max=5)
    return Scenario(
        label="random",
        config=CloudConfig(
            name="random",
            capabilities=ALL,
            departments=(
                Department(name="hpc", kind="batch", batch=batch),
                Department(name="web", kind="web", web=web),
            ),
        ),
        hosts=hosts,
        jobs={"hpc": tuple(works)},
        web={"web": WebInput(load=tuple(load))},
        window_s=WINDOW_S,
        latencies=draw(st.sampled_from([Latencies(), Latencies(boot_s=5.0, end_s=1.0, suspend_s=2.0, resume_s=3.0)])),
    )


@settings(max_examples=15, deadline=None)
@given(scenario=scenarios(), since=st.sampled_from([0.5, 1000.25, 3001.5]))
def test_a_replay_under_the_same_configuration_is_what_happened(scenario: Scenario, since: float) -> None:
    """**P111**: jobs, hosts and instances, to the bit; but for jobs whose run time nobody has seen."""
    simulation = Simulation(scenario, keep=True)
    simulation.run()
    assert simulation.journal.kept is not None
    past = Past(record(simulation.journal.kept, since, WINDOW_S), since, WINDOW_S)
    past.pace = scenario.latencies
    played = past.play("again")
    happened = past.what_happened()
    assert played.void == 0
    assert fidelity(values(happened), values(played.outcome)) == []
    assert happened.jobs == played.outcome.jobs
    assert happened.held == played.outcome.held
    assert happened.web == played.outcome.web
