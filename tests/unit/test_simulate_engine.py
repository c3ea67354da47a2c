"""The simulated cloud: small scenarios whose every second can be worked out on paper, and what holds in random ones."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from phoenix.simulate import engine
from phoenix.simulate.engine import Restless, Simulation, run
from phoenix.simulate.load import Load
from phoenix.simulate.metrics import measure
from phoenix.simulate.verify import verify
from phoenix.simulate.workload import JobRecord, Latencies, Outcome, Scenario, WebInput, Work
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department, OnReclaim, Quality, WebPolicy
from schemas.facts import Fact, kind_of
from services.domain.capabilities import ALL
from services.domain.custody.meta import Meta

SLOW = Latencies(boot_s=5.0, end_s=1.0, suspend_s=2.0, resume_s=3.0)


def batch(name: str = "hpc", *, on_reclaim: OnReclaim = "requeue", order: str = "first-fit") -> Department:
    return Department(name=name, kind="batch", batch=BatchPolicy(on_reclaim=on_reclaim, order=order))


def web(name: str = "web", *, instances_max: int = 1000) -> Department:
    return Department(name=name, kind="web", web=WebPolicy(instances_min=0, instances_max=instances_max))


def job(
    number: int, submit_s: float, run_s: float, nodes: int = 1, *, walltime_s: float = 1e9, priority: int = 0
) -> Work:
    return Work(
        number=number,
        submit_s=submit_s,
        run_s=run_s,
        nodes=nodes,
        exclusive=True,
        walltime_s=walltime_s,
        priority=priority,
    )


def cloud(
    *departments: Department,
    hosts: int,
    jobs: Mapping[str, tuple[Work, ...]] | None = None,
    demand: tuple[tuple[float, int], ...] = (),
    latencies: Latencies | None = None,
    window_s: float | None = None,
) -> Scenario:
    return Scenario(
        label="by hand",
        config=CloudConfig(name="by-hand", departments=departments, capabilities=ALL),
        hosts=hosts,
        jobs=dict(jobs or {}),
        web={"web": WebInput(demand=demand)} if demand else {},
        latencies=latencies or Latencies(),
        window_s=window_s,
    )


def lived(scenario: Scenario) -> Outcome:
    """The outcome; and its facts, replayed apart, give the same bytes."""
    outcome = run(scenario)
    assert verify(scenario, outcome) == []
    assert outcome.void == 0
    return outcome


def times(record: JobRecord) -> tuple[float | None, float | None, float | None, str]:
    return record.start_s, record.last_start_s, record.end_s, record.end


# --------------------------------------------------------------------------------------------------------------- latencies


def test_a_boot_comes_before_each_job_and_an_end_gives_its_hosts_at_once() -> None:
    jobs = {"hpc": (job(1, 0.0, 10.0, 2), job(2, 1.0, 20.0, 2))}
    outcome = lived(cloud(batch(), hosts=2, jobs=jobs, latencies=SLOW))
    assert [times(record) for record in outcome.jobs] == [(5, 5, 15, "completed"), (20, 20, 40, "completed")]
    assert outcome.running == [(5, "hpc", 2), (15, "hpc", 0), (20, "hpc", 2), (40, "hpc", 0)]
    assert outcome.window_s == 40


def test_a_requeued_job_begins_anew_and_its_host_is_cleared_before_web_has_it() -> None:
    scenario = cloud(
        batch(), web(), hosts=2, jobs={"hpc": (job(1, 0.0, 100.0, 2),)}, demand=((50.0, 1), (80.0, 0)), latencies=SLOW
    )
    outcome = lived(scenario)
    (record,) = outcome.jobs
    # Runs 5 to 50; the host is clear at 51, serves at 56, is given back at 80 and clear at 81; boot until 86, end at 186.
    assert times(record) == (5, 86, 186, "completed")
    assert (record.preempted, record.lost_node_s, record.ran_node_s) == (1, 90, 290)
    assert outcome.web[0].levels == [(0, 0, 0), (50, 1, 0), (56, 1, 1), (80, 0, 0)]
    assert outcome.held == [(0, "hpc", 2), (50, "hpc", 1), (51, "web", 1), (80, "web", 0), (81, "hpc", 2)]
    metrics = measure(outcome)
    assert (metrics.web[0].shortfall_instance_s, metrics.web[0].longest_shortfall_s) == (6, 6)


def test_a_killed_job_is_gone_and_what_it_ran_is_lost() -> None:
    scenario = cloud(
        batch(on_reclaim="kill"), web(), hosts=2, jobs={"hpc": (job(1, 0.0, 100.0, 2),)}, demand=((50.0, 1),)
    )
    (record,) = lived(scenario).jobs
    assert times(record) == (0, 0, 50, "killed")
    assert (record.preempted, record.lost_node_s, record.ran_node_s) == (1, 100, 100)


def test_a_suspended_job_goes_on_where_it_stopped_even_if_its_resume_is_interrupted() -> None:
    scenario = cloud(
        batch(on_reclaim="suspend"),
        web(),
        hosts=2,
        jobs={"hpc": (job(1, 0.0, 100.0, 2, walltime_s=100.0),)},
        demand=((50.0, 1), (60.0, 0), (62.0, 1), (70.0, 0)),
        latencies=SLOW,
    )
    outcome = lived(scenario)
    (record,) = outcome.jobs
    # 45 s are done at 50; written by 52.  Placed at 61, it would be back at 64, but at 62 web wants the host again, which is
    # clear at 64.  Placed at 71, back at 74, and the other 55 s end at 129, just within its time limit.
    assert times(record) == (5, 74, 129, "completed")
    assert (record.preempted, record.lost_node_s, record.ran_node_s) == (2, 0, 200)
    assert outcome.web[0].levels == [(0, 0, 0), (50, 1, 0), (57, 1, 1), (60, 0, 0), (62, 1, 0), (69, 1, 1), (70, 0, 0)]


def test_a_boot_that_takes_longer_than_production_would_wait_is_waited_for() -> None:
    slow = Latencies(boot_s=7200.0)
    outcome = lived(
        cloud(batch(), web(), hosts=2, jobs={"hpc": (job(1, 0.0, 10.0),)}, demand=((0.0, 1),), latencies=slow)
    )
    assert times(outcome.jobs[0]) == (7200, 7200, 7210, "completed")
    assert outcome.jobs[0].preempted == 0
    assert outcome.web[0].levels == [(0, 1, 0), (7200, 1, 1)]


# ------------------------------------------------------------------------------------------------------------- time limits


def test_a_job_over_its_walltime_ends_then_and_so_does_the_run() -> None:
    outcome = lived(cloud(batch(), hosts=1, jobs={"hpc": (job(1, 0.0, 1000.0, walltime_s=30.0),)}, latencies=SLOW))
    assert times(outcome.jobs[0]) == (5, 5, 35, "timeout")
    assert outcome.jobs[0].lost_node_s == 30
    assert outcome.window_s == 35  # not when it would have ended


@pytest.mark.parametrize("seed", range(12))
def test_a_job_that_needs_just_its_walltime_completes_however_often_it_was_suspended(seed: int) -> None:
    chance = random.Random(seed)
    works, demand, at = [], [], 0.0
    for number, submit_s in enumerate(sorted(round(chance.uniform(0, 60), 3) for _ in range(12)), start=1):
        run_s = round(chance.uniform(1, 60), 2)
        works.append(job(number, submit_s, run_s, chance.randint(1, 4), walltime_s=run_s))
    for _ in range(60):
        at += round(chance.uniform(0.1, 9), 2)
        demand.append((at, chance.choice((0, 0, 1, 2, 4))))
    latencies = Latencies(boot_s=chance.choice((0, 0.7)), end_s=chance.choice((0, 0.3)), suspend_s=1.1, resume_s=0.9)
    scenario = cloud(
        *(batch(on_reclaim="suspend", order=chance.choice(("first-fit", "easy"))), web()),
        hosts=5,
        jobs={"hpc": tuple(works)},
        demand=(*demand, (at + 1, 0)),
        latencies=latencies,
    )
    outcome = lived(scenario)
    assert Counter(record.end for record in outcome.jobs) == {"completed": 12}
    for record in outcome.jobs:
        assert record.ran_node_s == pytest.approx(record.run_s * record.nodes + record.lost_node_s)
    assert sum(record.preempted for record in outcome.jobs) > 3  # else the seed shows nothing


# ------------------------------------------------------------------------------------------------------------- one instant


def test_at_one_instant_ends_come_first_then_demand_then_submissions_then_the_pass() -> None:
    jobs = {"hpc": (job(1, 0.0, 60.0), job(2, 0.0, 90.0), job(3, 60.0, 10.0))}
    outcome = lived(cloud(batch(on_reclaim="kill"), web(), hosts=2, jobs=jobs, demand=((60.0, 1), (120.0, 0))))
    # At 60 job 1 ends, so web takes its host and kills nobody; job 3 finds none until job 2 ends.
    assert [times(record) for record in outcome.jobs] == [
        (0, 0, 60, "completed"),
        (0, 0, 90, "completed"),
        (90, 90, 100, "completed"),
    ]


def test_the_queue_is_by_priority_then_in_log_order() -> None:
    works = (job(1, 0.0, 10.0), job(2, 0.0, 10.0), job(3, 0.0, 10.0, priority=5), job(4, 0.0, 10.0, priority=5))
    outcome = lived(cloud(batch(), hosts=1, jobs={"hpc": works}))
    assert {record.number: record.start_s for record in outcome.jobs} == {3: 0, 4: 10, 1: 20, 2: 30}


def test_an_end_at_the_windows_last_instant_counts_and_what_runs_then_is_unfinished() -> None:
    works = (job(1, 0.0, 60.0), job(2, 0.0, 60.5), job(3, 61.0, 1.0))
    outcome = lived(cloud(batch(), hosts=3, jobs={"hpc": works}, window_s=60.0))
    assert [record.end for record in outcome.jobs] == ["completed", "unfinished"]
    assert outcome.jobs[1].ran_node_s == 60


def test_numbers_that_do_not_rise_with_submissions_are_an_error() -> None:
    with pytest.raises(ValueError, match="job 1 is submitted after job 2"):
        run(cloud(batch(), hosts=1, jobs={"hpc": (job(1, 5.0, 10.0), job(2, 0.0, 10.0))}))


def test_what_no_host_could_hold_is_refused_at_the_door() -> None:
    small = msgspec.structs.replace(batch(), maximum=3)
    works = (
        job(1, 0.0, 1.0, 4),
        job(2, 0.0, 1.0, 3),
        Work(number=3, submit_s=0.0, run_s=1.0, nodes=1, cores=9),
        Work(number=4, submit_s=0.0, run_s=1.0, nodes=1, memory_mb=1 << 30),
    )
    outcome = lived(cloud(small, hosts=8, jobs={"hpc": works}))
    assert [record.end for record in outcome.jobs] == ["refused", "completed", "refused", "refused"]
    assert outcome.refused == 3


def test_what_is_larger_than_its_share_is_refused_at_the_door_but_short_and_best_effort_are_not() -> None:
    """A quarter of eight hosts is two.  As `services.admission.commands.service_share` decides, by the same function."""
    policy = BatchPolicy(order="svmsched", services={"app1": 3.0, "app2": 1.0}, short_s=60.0)
    shared = msgspec.structs.replace(batch(), batch=policy)

    def of_app2(number: int, nodes: int, walltime_s: float, *, best_effort: bool = False) -> Work:
        known = job(number, 0.0, 30.0, nodes)
        return msgspec.structs.replace(known, service="app2", walltime_s=walltime_s, best_effort=best_effort)

    works = (
        of_app2(1, 3, 600.0),
        of_app2(2, 2, 600.0),
        of_app2(3, 3, 60.0),
        of_app2(4, 3, 600.0, best_effort=True),
    )
    outcome = lived(cloud(shared, hosts=8, jobs={"hpc": works}))
    assert [record.end for record in outcome.jobs] == ["refused", "completed", "completed", "completed"]


def test_limits_and_best_effort_are_simulated_and_what_a_limit_could_never_hold_is_refused() -> None:
    policy = BatchPolicy(limits=BatchLimits(hosts_max=2), quality={"idle": Quality(best_effort=True)}, order="fcfs")
    limited = msgspec.structs.replace(batch(), batch=policy)

    def of(number: int, submit_s: float, nodes: int, user: str, **more: Any) -> Work:
        return msgspec.structs.replace(job(number, submit_s, 30.0, nodes), user=user, **more)

    works = (
        of(1, 0.0, 2, "idler", best_effort=True, quality="idle"),
        of(2, 5.0, 3, "ann"),
        of(3, 5.0, 2, "ann"),
        of(4, 5.0, 1, "ann"),
        of(5, 5.0, 1, "bob"),
    )
    outcome = lived(cloud(limited, hosts=3, jobs={"hpc": works}))
    assert [record.end for record in outcome.jobs] == ["completed", "refused", *["completed"] * 3]
    starts = [record.start_s for record in outcome.jobs]
    assert starts[2:] == [5.0, 35.0, 5.0]  # ann's second waits for her first; bob is not held up
    assert (outcome.jobs[0].last_start_s, outcome.jobs[0].end_s) == (35.0, 60.0)  # it made way, suspended after 5 s


# ------------------------------------------------------------------------------------------------------ several departments


def test_two_batch_departments_share_what_is_idle_and_lend_it_to_each_other() -> None:
    jobs = {"bio": (job(1, 0.0, 10.0, 4),), "hpc": (job(2, 0.0, 20.0, 2), job(3, 20.0, 5.0, 6))}
    outcome = lived(cloud(batch("bio"), batch("hpc"), hosts=6, jobs=jobs))
    starts = {record.number: record.start_s for record in outcome.jobs}
    assert starts == {1: 0, 2: 0, 3: 20}


def test_wide_jobs_of_two_departments_take_turns() -> None:
    jobs = {"bio": (job(1, 0.0, 10.0, 4),), "hpc": (job(2, 0.0, 10.0, 4),)}
    outcome = lived(cloud(batch("bio"), batch("hpc"), hosts=4, jobs=jobs))
    assert Counter(record.end for record in outcome.jobs) == {"completed": 2}
    first, second = sorted(outcome.jobs, key=lambda record: record.start_s or 0.0)
    assert first.end_s is not None
    assert second.start_s is not None
    assert second.start_s >= first.end_s


def test_two_web_departments_and_a_batch_one_never_hold_more_than_there_is() -> None:
    rising = (*((60.0 * i, i % 5) for i in range(30)), (1800.0, 0))
    falling = (*((60.0 * i, 4 - i % 4) for i in range(30)), (1800.0, 0))
    jobs = {"hpc": tuple(job(n, 20.0 * n, 100.0, 1 + n % 3) for n in range(1, 40))}
    scenario = msgspec.structs.replace(
        cloud(batch(), web("shop"), web("wiki"), hosts=8, jobs=jobs, latencies=SLOW),
        web={"shop": WebInput(demand=rising), "wiki": WebInput(demand=falling)},
    )
    outcome = lived(scenario)
    assert Counter(record.end for record in outcome.jobs) == {"completed": 39}
    held = dict.fromkeys(("hpc", "shop", "wiki"), 0)
    for index, (at, department, hosts) in enumerate(outcome.held):
        held[department] = hosts
        if index + 1 == len(outcome.held) or outcome.held[index + 1][0] > at:
            assert sum(held.values()) <= 8


# ------------------------------------------------------------------------------------------------------------ until the end


def test_without_a_window_web_input_that_stays_level_lasts_until_it_ends() -> None:
    scenario = cloud(web(), hosts=4)
    level = msgspec.structs.replace(scenario, web={"web": WebInput(demand=((0.0, 3),), end_s=600.0)})
    outcome = lived(level)
    assert outcome.window_s == 600
    assert measure(outcome).web[0].wanted_instance_s == 1800


def test_a_job_that_can_never_run_does_not_keep_the_cloud_going() -> None:
    wide = {"hpc": (job(1, 0.0, 10.0, 8), job(2, 0.0, 10.0, 1))}
    outcome = lived(cloud(batch(), web(), hosts=10, jobs=wide, demand=((0.0, 5),)))
    assert [record.end for record in outcome.jobs] == ["unfinished", "completed"]
    assert outcome.window_s == 10


@pytest.mark.parametrize("latencies", [Latencies(), Latencies(end_s=600.0)])
def test_two_departments_that_wait_for_ever_take_turns_but_not_for_ever(latencies: Latencies) -> None:
    wide = {"bio": (job(1, 0.0, 10.0, 8),), "hpc": (job(2, 0.0, 10.0, 8),)}
    outcome = lived(cloud(batch("bio"), batch(), web(), hosts=10, jobs=wide, demand=((0.0, 5),), latencies=latencies))
    assert [record.end for record in outcome.jobs] == ["unfinished", "unfinished"]
    assert outcome.window_s == 0


def test_cores_that_never_rest_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ROUNDS_MAX", 20)
    simulation = Simulation(cloud(batch(), hosts=1, jobs={"hpc": (job(1, 0.0, 10.0),)}))
    simulation.provisioner.core.wake_at = lambda: 0.0
    with pytest.raises(Restless, match="again and again"):
        simulation.run()


# -------------------------------------------------------------------------------------------------------------------- load


def test_load_is_followed_instance_by_instance_and_ends_with_its_input() -> None:
    given = WebInput(load=((0.0, 3.0), (300.0, 0.5)), end_s=600.0)
    scenario = msgspec.structs.replace(cloud(web(instances_max=9), hosts=9), web={"web": given})
    scenario = msgspec.structs.replace(scenario, config=_papers(scenario.config))
    outcome = lived(scenario)
    assert outcome.window_s == 600
    # One more after each 20 s at 80 % or more: 4 instances are busy for 75 %.  Then one fewer each 20 s, down to one.
    assert outcome.web[0].levels == [
        *((0, 1, 1), (20, 2, 2), (40, 3, 3), (60, 4, 4)),
        *((320, 3, 3), (340, 2, 2), (360, 1, 1)),
    ]


def _papers(config: CloudConfig) -> CloudConfig:
    (department,) = config.departments
    policy = msgspec.structs.replace(department.web or WebPolicy(), rule="threshold", instances_min=1)
    return msgspec.structs.replace(config, departments=(msgspec.structs.replace(department, web=policy),))


def test_load_ends_before_the_jobs_do_and_nothing_is_observed_any_more() -> None:
    given = WebInput(load=((0.0, 1.0),), end_s=100.0)
    scenario = cloud(batch(), web(), hosts=9, jobs={"hpc": (job(1, 0.0, 5000.0), job(2, 2500.0, 1000.0))})
    scenario = msgspec.structs.replace(scenario, web={"web": given})
    seen: list[float] = []

    def watch(fact: Fact, meta: Meta) -> None:
        if kind_of(fact) == "load.observed":
            seen.append(meta.at)

    scenario = msgspec.structs.replace(scenario, config=_with_web_minimum(scenario.config))
    outcome = run(scenario, watch=watch)
    assert seen == [20, 40, 60, 80, 100]
    assert outcome.window_s == 5000


def _with_web_minimum(config: CloudConfig) -> CloudConfig:
    departments = [
        d if d.web is None else msgspec.structs.replace(d, web=msgspec.structs.replace(d.web, instances_min=1))
        for d in config.departments
    ]
    return msgspec.structs.replace(config, departments=tuple(departments))


def test_an_interval_is_told_from_when_something_was_in_service() -> None:
    load = Load("web", ((0.0, 1.0),), 20.0, 100.0)
    load.serve(1, 0.0)
    load.serve(0, 8.0)
    load.serve(2, 10.0)
    fact = load.observe(20.0)
    assert fact is not None
    assert (fact.start, fact.end, fact.utilisation) == (10.0, 20.0, 0.5)  # not the 8 s before
    assert load.due == 40.0


def test_the_mean_is_exact_over_changes_of_load_and_service() -> None:
    load = Load("web", ((0.0, 1.0), (5.0, 3.0), (15.0, 0.0)), 20.0, 20.0)
    load.serve(2, 0.0)
    load.serve(4, 10.0)
    fact = load.observe(20.0)
    assert fact is not None
    # 5 s of 1/2, 5 s of 3 on 2, which is 1, 5 s of 3/4, 5 s of nothing
    assert fact.utilisation == pytest.approx((2.5 + 5 + 3.75) / 20)
    assert load.due == float("inf")


# ------------------------------------------------------------------------------------------------------------- determinism

_DIGEST = """
import msgspec, hashlib
from tests.unit.test_simulate_engine import mixed
from phoenix.simulate.engine import run
outcome = run(mixed())
outcome.wall_s = outcome.cpu_s = 0.0
print(hashlib.sha256(msgspec.json.encode(outcome)).hexdigest())
"""


def mixed() -> Scenario:
    """Something of everything."""
    chance = random.Random("mixed")
    works = [
        job(
            n,
            round(chance.uniform(0, 900), 1),
            chance.uniform(1, 200),
            chance.randint(1, 5),
            walltime_s=chance.choice((90, 900)),
        )
        for n in range(1, 61)
    ]
    demand = tuple((30.0 * i, chance.choice((0, 1, 2, 4))) for i in range(60))
    ordered = sorted(works, key=lambda work: work.submit_s)
    numbered = [msgspec.structs.replace(work, number=n) for n, work in enumerate(ordered, start=1)]
    return cloud(
        *(batch("bio", on_reclaim="suspend"), batch("hpc", order="easy"), web()),
        hosts=9,
        jobs={"bio": tuple(numbered[::3]), "hpc": tuple(w for i, w in enumerate(numbered) if i % 3)},
        demand=demand,
        latencies=SLOW,
    )


def test_a_scenario_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    outcome = run(mixed())
    outcome.wall_s = outcome.cpu_s = 0.0
    assert {"completed", "timeout"} <= {record.end for record in outcome.jobs}
    assert sum(record.preempted for record in outcome.jobs) > 5
    here = hashlib.sha256(msgspec.json.encode(outcome)).hexdigest()
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        )
        assert told.stdout.strip() == here


def test_something_of_everything_replays_to_the_same_bytes() -> None:
    assert verify(mixed(), run(mixed())) == []
