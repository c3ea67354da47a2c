"""What a replay costs: a record of so many jobs read, folded and learned from, and the period played again.

    python -m benchmarks.whatif_replay [--jobs 20000] [--hosts 1000]

The journal is a simulated cloud's: jobs after the model of Lublin and Feitelson, a web department whose load is observed every
300 s; the period is its second half.
"""

from __future__ import annotations

import argparse
import resource
import time

from benchmarks.cloud import table
from phoenix.simulate import layout, lublin
from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Scenario, WebInput
from phoenix.whatif.past import Past
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from services.domain.capabilities import ALL
from tests.support.whatif import lines, record  # a record as the monitor sends it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, default=1000)
    asked = parser.parse_args()
    log = lublin.generate(asked.jobs, asked.hosts, 1, 0.8)
    works = tuple(layout.lay_out(log, cores_per_host=1))
    config = CloudConfig(
        name="bench",
        capabilities=ALL,
        departments=(
            Department(name="hpc", kind="batch", batch=BatchPolicy(order="easy")),
            Department(name="web", kind="web", web=WebPolicy()),
        ),
    )
    end_s = works[-1].submit_s
    load = tuple((i * 600.0, 1.0 + i % 40) for i in range(int(end_s / 600)))
    scenario = Scenario(
        label="bench",
        config=config,
        hosts=asked.hosts,
        jobs={"hpc": works},
        web={"web": WebInput(load=load, end_s=end_s)},
        window_s=end_s,
        signal_s=300.0,
    )
    simulation = Simulation(scenario, keep=True)
    simulation.run()
    assert simulation.journal.kept is not None
    since = end_s / 2
    size = sum(map(len, lines(simulation.journal.kept, since)))
    began = time.perf_counter()
    past = Past(record(simulation.journal.kept, since, end_s), since, end_s)
    read_s = time.perf_counter() - began
    began = time.perf_counter()
    played = past.play("again")
    play_s = time.perf_counter() - began
    facts = simulation.journal.facts
    rows: list[list[object]] = [["what", ""]]
    rows += [["facts of the record", f"{facts:,}"], ["its size, MB", f"{size / 1e6:.1f}"]]
    rows += [
        ["read, folded, learned from, s", f"{read_s:.2f}"],
        ["the same of a fact, us", f"{read_s / facts * 1e6:.1f}"],
    ]
    rows += [["events in the period", f"{len(past.events):,}"], ["played again, s", f"{play_s:.2f}"]]
    rows += [["facts written in that", f"{played.facts:,}"]]
    rows += [["memory at the most, MB", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}"]]
    table(rows)


if __name__ == "__main__":
    main()
