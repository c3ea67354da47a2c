"""Simulated clouds at random: several departments, every order and victim policy, latencies, load and demand, windows or none.

What must be true of each: nothing is written in vain, the replay gives the same bytes, no more is held than there is, every
node-second is accounted for, no job is over a time limit that it keeps, and without a window everything that can run has ended.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

import pytest

from phoenix.simulate.engine import run
from phoenix.simulate.verify import verify
from phoenix.simulate.workload import Latencies, Outcome, Scenario, WebInput, Work
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from services.domain.capabilities import ALL
from services.scheduler.core.policies import registry

ORDERS: Final = tuple(
    order for order in registry.names("order") if order != "svmsched"
)  # that one needs services: a cloud of its own
VICTIMS: Final = tuple(registry.VICTIMS)


def _batch(chance: random.Random, name: str, hosts: int) -> Department:
    policy = BatchPolicy(
        order=chance.choice(ORDERS),
        victims=chance.choice(VICTIMS),
        on_reclaim=chance.choice(("kill", "requeue", "suspend", "migrate")),
        requeues_max=chance.choice((100, 2)),
    )
    return Department(
        name=name,
        kind="batch",
        batch=policy,
        weight=chance.choice((1.0, 2.0, 0.5)),
        guarantee=chance.choice((0, 0, 1)),
        maximum=chance.choice((None, None, hosts - 1)),
    )


def _web(chance: random.Random, name: str) -> Department:
    policy = WebPolicy(
        rule=chance.choice(("threshold", "target-tracking")),
        instances_min=0,
        instances_max=chance.choice((3, 50)),
        drain_s=chance.choice((0.0, 5.0)),
    )
    return Department(
        name=name, kind="web", web=policy, priority=chance.randint(0, 2), guarantee=chance.choice((0, 0, 1))
    )


def _works(chance: random.Random, names: list[str], hosts: int, cores: int) -> dict[str, tuple[Work, ...]]:
    works: dict[str, list[Work]] = {name: [] for name in names}
    at = 0.0
    for number in range(1, chance.randint(5, 40)):
        at += chance.choice((0.0, 0.0, 1.0, 5.0, 30.5))
        run_s = round(chance.choice((0.0, 1.0, 10.0, chance.uniform(1, 100))), 3)
        whole = chance.random() < 0.6
        work = Work(
            number=number,
            submit_s=at,
            run_s=run_s,
            nodes=chance.randint(1, hosts - 2),
            cores=1 if whole else chance.randint(1, cores),
            exclusive=whole,
            walltime_s=chance.choice((1e9, max(run_s, 0.5), 3 * run_s + 1, 20.0)),
            priority=chance.choice((0, 0, 3)),
        )
        works[chance.choice(names)].append(work)
    return {name: tuple(given) for name, given in works.items()}


def _input(chance: random.Random) -> WebInput:
    """Which ends with nothing wanted."""
    starts = list(itertools.accumulate(chance.choice((1.5, 10.0, 60.0)) for _ in range(chance.randint(1, 25))))
    if chance.random() < 0.3:
        load = (*((at, chance.uniform(0, 4)) for at in starts), (starts[-1] + 60.0, 0.0))
        return WebInput(load=load, end_s=starts[-1] + 160.0)
    return WebInput(demand=(*((at, chance.randint(0, 4)) for at in starts), (starts[-1] + 60.0, 0)))


def _cloud(seed: int) -> Scenario:
    chance = random.Random(f"cloud {seed}")
    hosts, cores = chance.randint(3, 10), chance.choice((1, 4, 8))
    batch, web = ["art", "bio", "hpc"][: chance.choice((1, 1, 2, 3))], ["shop", "wiki"][: chance.choice((0, 1, 1, 2))]
    departments = [*(_batch(chance, name, hosts) for name in batch), *(_web(chance, name) for name in web)]
    return Scenario(
        label=f"cloud {seed}",
        config=CloudConfig(name="random", departments=tuple(departments), capabilities=ALL),
        hosts=hosts,
        host_cores=cores,
        jobs=_works(chance, batch, hosts, cores),
        web={name: _input(chance) for name in web},
        window_s=chance.choice((None, None, 300.0)),
        latencies=Latencies(
            boot_s=chance.choice((0.0, 3.3, 100.0)),
            end_s=chance.choice((0.0, 1.1, 40.0)),
            suspend_s=chance.choice((0.0, 2.2)),
            resume_s=chance.choice((0.0, 0.7)),
        ),
        signal_s=chance.choice((20.0, 7.0)),
    )


def _check_jobs(scenario: Scenario, outcome: Outcome) -> None:
    works = {work.number: work for given in scenario.jobs.values() for work in given}
    load = any(
        given.load for given in scenario.web.values()
    )  # its department keeps what it had when nobody watches any more
    for job in outcome.jobs:
        work = works[job.number]
        assert not (job.end == "timeout" and work.walltime_s >= work.run_s), job
        assert not (job.end == "unfinished" and scenario.window_s is None and not load), job
        assert job.end_s is None or job.end_s <= outcome.window_s
        if job.end == "completed":
            assert job.ran_node_s == pytest.approx(work.run_s * work.nodes + job.lost_node_s, abs=1e-6), job


def _check_held(outcome: Outcome) -> None:
    held: dict[str, int] = {}
    for _, changes in itertools.groupby(outcome.held, key=lambda row: row[0]):
        held |= {department: hosts for _, department, hosts in changes}
        assert sum(held.values()) <= outcome.hosts


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_whatever_is_simulated_is_accounted_for(first: int) -> None:
    for seed in range(first, first + 20):
        scenario = _cloud(seed)
        outcome = run(scenario)
        assert outcome.void == 0
        assert verify(scenario, outcome) == []
        _check_jobs(scenario, outcome)
        _check_held(outcome)
