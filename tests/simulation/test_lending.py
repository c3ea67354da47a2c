"""Days and nights on the virtual clock: two departments that lend each other hosts, by hand; and contracts at random."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from phoenix.simulate import experiment
from phoenix.simulate.engine import run
from phoenix.simulate.metrics import measure
from phoenix.simulate.scenarios import Inputs, cases
from phoenix.simulate.verify import verify
from phoenix.simulate.workload import Outcome, Scenario, Work
from schemas.config import CloudConfig, Department, Lending
from tests.simulation.test_random_clouds import _check_held, _check_jobs, _cloud

HOUR_S = 3600.0
DAY = Department(name="lab", kind="batch", windows=("daily 08:00-18:00 guarantee 6",))
HPC = Department(name="hpc", kind="batch")


def works(first: int, count: int, run_s: float, submit_s: float = 0.0) -> tuple[Work, ...]:
    return tuple(
        Work(number=first + i, submit_s=submit_s, run_s=run_s, nodes=1, exclusive=True, walltime_s=1e9)
        for i in range(count)
    )


def lived(scenario: Scenario) -> Outcome:
    outcome = run(scenario)
    assert verify(scenario, outcome) == []
    assert outcome.void == 0
    _check_held(outcome)
    return outcome


def held(outcome: Outcome, at: float) -> dict[str, int]:
    found: dict[str, int] = {}
    for since, department, hosts in outcome.held:
        if since <= at:
            found[department] = hosts
    return {name: hosts for name, hosts in found.items() if hosts}


def scenario(*contracts: Lending, hpc_run_s: float = 1e6, lab: tuple[Work, ...] = ()) -> Scenario:
    """Eight hosts; hpc's jobs are there first and fill them; the laboratory's come at 06:00."""
    return Scenario(
        label="day and night",
        config=CloudConfig(name="c", departments=(HPC, DAY), lending=contracts),
        hosts=8,
        jobs={"hpc": works(1, 8, hpc_run_s), "lab": lab or works(9, 8, 1e6, 6 * HOUR_S)},
        window_s=30 * HOUR_S,
    )


def test_by_day_the_guarantee_holds_and_by_night_jobs_end_in_peace() -> None:
    outcome = lived(scenario())
    assert held(outcome, 7 * HOUR_S) == {"hpc": 8}  # an occupied host is not taken for a weight
    assert held(outcome, 8 * HOUR_S + 1) == {"hpc": 2, "lab": 6}
    assert held(outcome, 29 * HOUR_S) == {"hpc": 2, "lab": 6}  # the evening takes nothing from jobs that run


def test_with_a_deadline_a_loan_comes_back_though_it_is_occupied() -> None:
    contract = Lending(lender="lab", borrower="hpc", deadline_s=7 * HOUR_S, notice_s=600.0)
    outcome = lived(scenario(contract))
    assert held(outcome, 7 * HOUR_S - 1) == {"hpc": 8}
    asked = 7 * HOUR_S  # seven hours after they were granted; half of eight are the laboratory's own
    assert held(outcome, asked + 590) == {"hpc": 8}
    assert held(outcome, asked + 601) == {"hpc": 4, "lab": 4}


def test_on_notice_whoever_ends_in_time_ends_in_peace() -> None:
    contract = Lending(lender="lab", borrower="hpc", notice_s=1800.0, credit=1.0)
    outcome = lived(scenario(contract, hpc_run_s=8 * HOUR_S + 1000.0))
    assert held(outcome, 8 * HOUR_S + 999) == {"hpc": 8}
    assert held(outcome, 8 * HOUR_S + 1001) == {"lab": 8}
    assert all(job.preempted == 0 for job in outcome.jobs)
    late = lived(scenario(contract, hpc_run_s=8 * HOUR_S + 2000.0))
    assert held(late, 8 * HOUR_S + 1801) == {"hpc": 2, "lab": 6}
    assert sum(job.preempted for job in late.jobs) == 6


def test_a_contract_for_the_night_bounds_what_is_lent_and_ends_in_the_morning() -> None:
    night = Lending(lender="lab", borrower="hpc", hosts=3, notice_s=60.0, windows=("daily 20:00-06:00",))
    outcome = lived(scenario(night, lab=works(9, 1, 10.0)))
    assert held(outcome, 1 * HOUR_S) == {"hpc": 7, "lab": 1}  # four are its own, and three are lent
    assert held(outcome, 6 * HOUR_S + 61) == {"hpc": 4, "lab": 4}
    assert held(outcome, 21 * HOUR_S) == {"hpc": 7, "lab": 1}


EXPERIMENT = """
[experiment]
window = "1d"
seeds = [1, 2]
[cluster]
hosts = 8
cores = 4
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 150, load = 0.7, processors = 32 }
[[department]]
name = "lab"
kind = "batch"
windows = ["daily 08:00-18:00 guarantee 6"]
jobs = { generator = "lublin", jobs = 60, load = 0.4, processors = 16 }
[[lending]]
lender = "*"
borrower = "*"
notice_s = 120
deadline_s = 3600
credit = 1.0
"""


def test_an_experiment_file_may_have_hours_and_contracts(tmp_path: Path) -> None:
    loaded = experiment.loads(EXPERIMENT, tmp_path / "lending.toml")
    given = Inputs(loaded)
    for case in cases(loaded):
        outcome = lived(given.scenario(case))
        assert measure(outcome).batch
    text = EXPERIMENT.replace('lender = "*"', 'lender = "lba"')
    with pytest.raises(experiment.ConfigError, match='did you mean "lab"'):
        experiment.loads(text, tmp_path / "lending.toml")


def _agreed(chance: random.Random, config: CloudConfig, *, bounded: bool) -> CloudConfig:
    """Hours and contracts; `bounded`: also such as may keep a job waiting for ever."""
    hours = ("Thu 00:01-00:03", "daily 00:00-00:02", "Thu 00:02-12:00")
    departments = [
        msgspec.structs.replace(
            d, windows=chance.choice(((), (f"{chance.choice(hours)} guarantee {chance.randint(0, 2)}",)))
        )
        for d in config.departments
    ]
    names = ["*", *(d.name for d in config.departments)]
    contracts = [
        Lending(
            lender=chance.choice(names),
            borrower=chance.choice(names),
            hosts=chance.choice((None, 0, 1, 3)) if bounded else None,
            notice_s=chance.choice((None, 5.0, 100.0)),
            deadline_s=chance.choice((None, 0.0, 30.0)),
            credit=chance.choice((0.0, 1.0, 50.0)),
            windows=chance.choice(((), (chance.choice(hours),))) if bounded else (),
        )
        for _ in range(chance.randint(0, 4))
    ]
    return msgspec.structs.replace(config, departments=tuple(departments), lending=tuple(contracts))


@pytest.mark.long
@pytest.mark.parametrize(("first", "bounded"), [(n, b) for n in (0, 20) for b in (False, True)])
def test_whatever_is_agreed_nothing_is_written_in_vain_and_nobody_starves(first: int, bounded: bool) -> None:
    for seed in range(first, first + 20):
        chance, given = random.Random(f"lending {seed}"), _cloud(seed)
        given = msgspec.structs.replace(given, config=_agreed(chance, given.config, bounded=bounded))
        outcome = run(given)
        assert outcome.void == 0
        assert verify(given, outcome) == []
        _check_held(outcome)
        if not bounded:
            _check_jobs(given, outcome)
