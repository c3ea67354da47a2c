"""What `phoenix simulate policies` compares: every order with every order of victims, on the same windows of each log.

Rules
  1. Every log meets the same cloud: `HOSTS` hosts that a batch and a web department share.  The web department's demand is the
     World Cup's as in `phoenix-cloud` (peak 64, 10 on average), so batch has 150 hosts on average, and never fewer than 96.
  2. A log's fortnight is that in its middle, cut in two windows of a week.  Window 1 meets the first week of the World Cup,
     window 2 the second.  A job keeps its size: a host is a node of the log's machine.
  3. Submissions are drawn together, or apart, so that each window offers `LOAD` of 150 hosts.  So a window lasts as long as its
     log was idle less: its *span* is a week by that factor.
  4. All jobs run to their end: after the span nothing is submitted and web wants one host.  So turnaround and slowdown are of
     the same jobs whatever the policy; who completes fewer within the span has not got rid of the others.
  5. Victims are requeued, boots and ends take no time, nothing is killed: limits are what users asked for (3 x run time where
     the log does not say), at least the run time.
  6. Orders and victims are those that the product knows, with the settings as by default.  `svmsched` has three services of
     equal weight, each user belongs to one, and every job may borrow (`short_s` is without bound): without that it would refuse
     jobs wider than a third, and would be compared on other jobs.
  7. A decision is one call of the batch core: its time is the mean CPU time of all calls of a run, on this machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from phoenix.plugin.simulation import (
    BatchPolicy,
    CloudConfig,
    Department,
    LogJob,
    Outcome,
    Scenario,
    WebInput,
    WebPolicy,
    Work,
    bounded_slowdown,
    engine,
    layout,
    policy_names,
    stretches,
    swf,
    traces,
    turnaround_s,
)
from phoenix.plugin.simulation import facts as f
from phoenix_papers.phoenix_cloud.inputs import LOGS, generated_jobs, with_service

DEPT: Final = "hpc"
HOSTS: Final = 160  # the size of the paper's claim
WEB_PEAK: Final = 64
WEB_MEAN: Final = 10  # instance-hours of the World Cup's demand by its hours
LOAD: Final = 0.8  # chosen before the first run: busy enough that some jobs wait
WEEK_S: Final = 7 * 86400.0
WINDOWS: Final = 2
SERVICES: Final = ("a", "b", "c")
UNBOUNDED_S: Final = 1e9
REQUEUES_MAX: Final = 1_000_000  # a job comes back however often it was preempted


class Window(NamedTuple):
    """A part of a log, ready to be submitted; `factor`: by which its submissions were drawn together (rule 3)."""

    log: str
    number: int
    begin_s: float  # in the log
    span_s: float
    factor: float
    cores: int  # of a host
    works: tuple[Work, ...]
    demand: WebInput


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`completed`: within the span; `preempted`: attempts that were ended for web; `preempted_jobs`: jobs that this happened
    to; `utilisation`: what ran within the span, also what was lost, of all hosts."""

    log: str
    window: int
    hosts: int
    order: str
    victims: str
    submitted: int
    refused: int
    completed: int
    mean_turnaround_s: float
    mean_bounded_slowdown: float
    utilisation: float
    lost_node_s: float
    preempted: int
    preempted_jobs: int
    decisions: int
    decision_us: float


# ------------------------------------------------------------------------------------------------------------------ inputs


def orders() -> list[str]:
    """Every order that is installed."""
    return policy_names("order")


def victims() -> list[str]:
    return policy_names("victims")


def logs(given: Sequence[Path]) -> tuple[list[tuple[str, swf.Log | None]], list[str]]:
    """Name and log: a person's, else those of the public ones that are there, else a generated one (None); and notes."""
    if given:
        return [(path.name, swf.read(path)) for path in given], []
    found = [(name, path) for name, file in LOGS if (path := traces.find(file)) is not None]
    missing = [file for _, file in LOGS if traces.find(file) is None]
    notes = [f"{file} is not there ({traces.looked_in()}): it is left out" for file in missing]
    if not found:
        return [("generated", None)], [*notes, "jobs after Lublin and Feitelson stand in"]
    return [(name, swf.read(path)) for name, path in found], notes


def windows(name: str, log: swf.Log | None, demand: WebInput, hosts: int, load: float) -> list[Window]:
    """Rules 2 and 3.  Windows without a job are left out."""
    jobs = generated_jobs() if log is None else log.jobs
    cores = 8 if log is None else log.processors_per_node or 1
    days = math.ceil((jobs[-1].submit_s + 1) / 86400)
    begin_s = 86400.0 * max(0, (days - 7 * WINDOWS) // 2)
    found = []
    for number in range(1, WINDOWS + 1):
        part = (begin_s + (number - 1) * WEEK_S, begin_s + number * WEEK_S)
        mine = [job for job in jobs if part[0] <= job.submit_s < part[1]]
        if mine:
            factor = load * (hosts - WEB_MEAN) / (_node_s(mine, cores) / WEEK_S)
            works = layout.lay_out(
                jobs, cores_per_host=cores, use_memory=False, window=part, load_factor=factor, walltime="requested"
            )
            web = cut(demand, (number - 1) * WEEK_S, WEEK_S / factor)
            found.append(Window(name, number, part[0], WEEK_S / factor, factor, cores, tuple(works), web))
    return found


def _node_s(jobs: Sequence[LogJob], cores: int) -> float:
    return math.fsum(job.run_s * math.ceil(job.processors / cores) for job in jobs)


def cut(demand: WebInput, begin_s: float, span_s: float) -> WebInput:
    """The demand from there on for so long; then one (rule 4)."""
    before = [n for at, n in demand.demand if at <= begin_s][-1:] or [1]
    inside = [(at - begin_s, n) for at, n in demand.demand if begin_s < at < begin_s + span_s]
    return WebInput(demand=((0.0, before[0]), *inside, (span_s, 1)), end_s=span_s)


# -------------------------------------------------------------------------------------------------------------------- runs


def scenario(window: Window, hosts: int, order: str, chosen: str) -> Scenario:
    shared = order == "svmsched"
    policy = BatchPolicy(
        order=order,
        victims=chosen,
        requeue_place="end",
        requeues_max=REQUEUES_MAX,
        walltime_max_s=UNBOUNDED_S,
        services=dict.fromkeys(SERVICES, 1.0) if shared else {},
        short_s=UNBOUNDED_S if shared else 600.0,
    )
    works = tuple(with_service(work, SERVICES) for work in window.works) if shared else window.works
    departments = (
        Department(name=DEPT, kind="batch", batch=policy),
        Department(name="web", kind="web", web=WebPolicy(rule="threshold", instances_max=hosts, drain_s=0.0)),
    )
    return Scenario(
        label=f"{window.log} {window.number}, {order}, {chosen}",
        config=CloudConfig(name="policies", departments=departments),
        hosts=hosts,
        host_cores=window.cores,
        jobs={DEPT: works},
        web={"web": window.demand},
    )


def made(window: Window, hosts: int, order: str, chosen: str) -> Run:
    """One run, and what it was worth."""
    simulation = engine.Simulation(scenario(window, hosts, order, chosen))
    core, took = simulation.batch[0].core, []
    decide = core.decide

    def timed(now: float) -> list[f.Fact]:
        began = time.process_time()
        found = cast("list[f.Fact]", decide(now))
        took.append(time.process_time() - began)
        return found

    core.decide = timed
    outcome = simulation.recorder.outcome(simulation.run())
    return measured(window, order, chosen, outcome, took)


def measured(window: Window, order: str, chosen: str, outcome: Outcome, took: Sequence[float]) -> Run:
    done = [job for job in outcome.jobs if job.end == "completed"]
    if len(done) + outcome.refused != len(outcome.jobs):
        raise AssertionError(f"{outcome.label}: {len(outcome.jobs) - len(done)} jobs did not complete")
    nodes = [(at, count) for at, dept, count in outcome.running if dept == DEPT]
    ran = math.fsum((until - since) * count for since, until, count in stretches(nodes, window.span_s))
    return Run(
        log=window.log,
        window=window.number,
        hosts=outcome.hosts,
        order=order,
        victims=chosen,
        submitted=len(outcome.jobs),
        refused=outcome.refused,
        completed=sum(job.end_s is not None and job.end_s <= window.span_s for job in done),
        mean_turnaround_s=mean([turnaround_s(job) or 0.0 for job in done]),
        mean_bounded_slowdown=mean([bounded_slowdown(job) or 1.0 for job in done]),
        utilisation=ran / (outcome.hosts * window.span_s),
        lost_node_s=math.fsum(job.lost_node_s for job in outcome.jobs),
        preempted=sum(job.preempted for job in outcome.jobs),
        preempted_jobs=sum(job.preempted > 0 for job in outcome.jobs),
        decisions=len(took),
        decision_us=1e6 * mean(took),
    )


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
