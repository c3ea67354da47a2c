"""What `phoenix simulate svmsched` compares: seeded workloads like those of the thesis, and one scenario for each run.

Sources: R. Chakode, thesis, Univ. Grenoble 2012, chapter 7, and the paper that it takes its 96 jobs from (R. Chakode, B. O.
Yenke and J.-F. Méhaut, CLOSER 2011, section 6): the last 96 jobs of three partitions of the SHARCNET log with at most 8 cores.
That log is not at hand, so workloads are made with the proportions that are stated; what is open is chosen here, and named.

Rules
  1. Stated: 96 jobs, 65/19/12 of three services, on 6 hosts of 8 cores, 36 % of the jobs of at most 30 minutes with a little
     less than 20 % of the summed durations; 1,000 jobs, 50/30/20 %, on 20 hosts of 8 cores, 15 % of at most 15 minutes, none
     over 2 hours; jobs of 1, 4 and 8 cores; all of them production; a start takes 15.0 s.
  2. Chosen (`Workload`): 70 % of the jobs have one core, 20 % four, 10 % eight; short durations are uniform in the logarithm
     from 30 s to the bound, long ones from there to 2 hours; submissions are uniform over 5 hours (`spread`) or at time 0
     (`at_once`).  For the small workload other values were fitted, with `--sweep`, until it agreed with all that the sources
     tell beside the gain (`sweep.TOLD`): over 7.5 hours, short ones of 15 minutes at least, those of app1 with 4 or 8
     cores, most long ones near 30 minutes, and nearly all jobs of app2 and app3 with one core.
  3. Shares: a third each where the small workload is spread (the thesis' Fig. 7.3); as many as its jobs where it comes at once
     (Fig. 7.4, 7.5).
  4. A job's time limit is its duration and a second (the thesis knows durations).
  5. Who needs more than its static part could never start in it: such a job has one core.  So static and flexible runs have the
     same jobs.
  6. Utilisation is what ran over cores and makespan, as the thesis' figures are read; so a late last job weighs as much as an
     idle cluster.  Beside it, that within a fixed window: the time of submission where jobs are spread, else the time that the
     work would fill the cluster without a gap (no service can have more than 1 there).
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from phoenix.plugin.simulation import ALL_CAPABILITIES as ALL
from phoenix.plugin.simulation import (
    BatchPolicy,
    CloudConfig,
    Department,
    JobRecord,
    Latencies,
    Outcome,
    Scenario,
    Variates,
    Work,
)

Submission = Literal["spread", "at_once"]
DEPT: Final = "hpc"
HOST_CORES: Final = 8
HOST_MB: Final = 24_576
JOB_MB: Final = 256


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What rule 2 chooses (the defaults), and two things that are stated (rule 1); `--sweep` varies them.  Parts are of 1."""

    spread_s: Annotated[float, msgspec.Meta(ge=1, le=1e6)] = 5 * 3600.0  # submissions come within so long, where spread
    burst: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1  # how many jobs of a service in a row are submitted together
    shortest_s: Annotated[float, msgspec.Meta(ge=1, le=1799)] = 30.0  # the least duration of a short job
    long_from: Annotated[float, msgspec.Meta(ge=1, le=2)] = 1.0  # the least duration of a long job, in thresholds
    longest_s: Annotated[float, msgspec.Meta(ge=3600, le=1e6)] = 7200.0
    long_skew: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 1.0  # above 1 most long jobs are near the least duration
    # Parts of those jobs that have one core; None: as of the long jobs of app1.
    one_core: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    short_one_core: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    low_one_core: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None  # of app2's and app3's jobs, short ones too
    four_of_wide: Annotated[float, msgspec.Meta(ge=0, le=1)] = 2 / 3  # of those with more; the others have eight
    short_app1: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None  # of the short jobs; None: as of all jobs
    best_effort: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0  # of the jobs; stated: all are production
    save_mb_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0  # to suspend and resume one of those; 0: at once
    start_s: Annotated[float, msgspec.Meta(ge=0, le=1e4)] = 15.0  # stated


class Setting(NamedTuple):
    """One of the thesis' experiments.  `threshold_s`: what it calls short."""

    name: str
    figure: str
    hosts: int
    jobs: dict[str, int]  # of each service
    weights: dict[str, float]
    short_part: float
    threshold_s: float
    submission: Submission
    workload: Workload = Workload()

    @property
    def cores(self) -> int:
        return self.hosts * HOST_CORES


_SMALL: Final = {"app1": 65, "app2": 19, "app3": 12}
# Rule 2: what agrees with every figure that the sources tell.
_FITTED: Final = Workload(
    spread_s=7.5 * 3600, shortest_s=900.0, long_skew=2.0, short_one_core=0.0, low_one_core=0.95, four_of_wide=0.55
)
_LARGE: Final = {"app1": 500, "app2": 300, "app3": 200}
SETTINGS: Final = (
    Setting("thirds", "7.3", 6, _SMALL, dict.fromkeys(_SMALL, 1.0), 0.36, 1800.0, "spread", _FITTED),
    Setting("sized", "7.4", 6, _SMALL, {k: float(v) for k, v in _SMALL.items()}, 0.36, 1800.0, "at_once", _FITTED),
    Setting("large", "7.5", 20, _LARGE, {k: float(v) for k, v in _LARGE.items()}, 0.15, 900.0, "at_once"),
)
THRESHOLDS_S: Final = (0.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`completed_s`: when each service's last job ended; `turnaround_s`, `wait_s`: its means."""

    setting: str
    figure: str
    jobs: int
    cores: int
    submission: str
    policy: Literal["static", "flexible"]
    threshold_s: float
    seed: int
    utilisation: float
    window_s: float  # the same for all thresholds of a setting and seed (rule 6)
    window_utilisation: float
    makespan_s: float
    completed_s: dict[str, float]
    turnaround_s: dict[str, float]
    wait_s: dict[str, float]
    wait_max_s: dict[str, float]
    borrowed: int  # starts above a share


def works(setting: Setting, seed: int) -> tuple[Work, ...]:
    """The jobs of one seed, in the order of submission."""
    chance = Variates(seed, f"svmsched/{setting.name}").uniform
    given = setting.workload
    services = [service for service, count in setting.jobs.items() for _ in range(count)]
    _shuffle(services, chance)
    shorts = [number < round(setting.short_part * len(services)) for number in range(len(services))]
    _shuffle(shorts, chance)
    if given.short_app1 is not None:
        _give(shorts, [service == "app1" for service in services], given.short_app1)
    spread = setting.submission == "spread"
    submits = sorted(math.floor(chance() * given.spread_s) if spread else 0 for _ in services)
    found: list[Work] = []
    for service, brief, submit_s in zip(services, shorts, _bursts(services, submits, given.burst), strict=True):
        low, high = (
            (given.shortest_s, setting.threshold_s - 1)
            if brief
            else (given.long_from * setting.threshold_s, given.longest_s)
        )
        run_s = float(math.floor(low * (high / low) ** (chance() if brief else chance() ** given.long_skew)))
        cores = _cores(given, chance(), brief=brief, low=service != "app1")
        if cores > setting.cores * setting.weights[service] / sum(setting.weights.values()):
            cores = 1
        found.append(
            Work(
                number=len(found) + 1,
                submit_s=float(submit_s),
                run_s=run_s,
                nodes=1,
                cores=cores,
                memory_mb=JOB_MB,
                walltime_s=run_s + 1,
                service=service,
                best_effort=given.best_effort > 0 and chance() < given.best_effort,
            )
        )
    found.sort(key=lambda work: work.submit_s)  # those of a burst stay in their order
    return tuple(msgspec.structs.replace(work, number=number) for number, work in enumerate(found, start=1))


def _bursts(services: list[str], submits: list[int], size: int) -> list[int]:
    """Of each service, `size` jobs at a time come with the first of them."""
    seen: dict[str, int] = dict.fromkeys(services, 0)
    first_s: dict[str, int] = {}
    found = []
    for service, submit_s in zip(services, submits, strict=True):
        if seen[service] % size == 0:
            first_s[service] = submit_s
        seen[service] += 1
        found.append(first_s[service])
    return found


def _cores(given: Workload, chance: float, *, brief: bool, low: bool) -> int:
    one = given.one_core
    if brief and given.short_one_core is not None:
        one = given.short_one_core
    if low and given.low_one_core is not None:
        one = given.low_one_core
    return 1 if chance < one else 4 if chance < round(one + (1 - one) * given.four_of_wide, 9) else 8


def _give(shorts: list[bool], mine: list[bool], part: float) -> None:
    """Exchanges lengths, the first ones first, until `part` of the short jobs are mine, as far as there are jobs."""
    wanted = max(sum(shorts) - mine.count(False), min(round(part * sum(shorts)), sum(mine)))
    while (now := sum(short for short, own in zip(shorts, mine, strict=True) if own)) != wanted:
        more = now < wanted
        for own in (True, False):
            place = next(n for n, short in enumerate(shorts) if mine[n] is own and short is not (own is more))
            shorts[place] = own is more


def _shuffle(items: list[str] | list[bool], chance: object) -> None:
    """Fisher and Yates, on the uniform stream alone."""
    for last in range(len(items) - 1, 0, -1):
        other = math.floor(chance() * (last + 1))  # type: ignore[operator]
        items[last], items[other] = items[other], items[last]  # type: ignore[assignment]


def scenario(setting: Setting, threshold_s: float, seed: int) -> Scenario:
    given = setting.workload
    policy = BatchPolicy(
        order="svmsched",
        requeue_place="end",
        services=dict(setting.weights),
        short_s=threshold_s,
        walltime_max_s=10 * given.longest_s,
    )
    department = Department(name=DEPT, kind="batch", batch=policy)
    return Scenario(
        label=f"{setting.name} {threshold_s:g} s, seed {seed}",
        config=CloudConfig(name="svmsched", departments=(department,), capabilities=ALL),
        hosts=setting.hosts,
        host_cores=HOST_CORES,
        host_memory_mb=HOST_MB,
        jobs={DEPT: works(setting, seed)},
        latencies=Latencies(
            boot_s=given.start_s, suspend_mb_per_s=given.save_mb_per_s, resume_mb_per_s=given.save_mb_per_s
        ),
    )


def measured(setting: Setting, threshold_s: float, seed: int, outcome: Outcome, borrowed: int) -> Run:
    """Utilisation as the brief resolves it: work of production over cores and makespan."""
    service_of = {work.number: work.service for work in works(setting, seed)}
    ended = {record.number: record.end_s for record in outcome.jobs if record.end == "completed" and record.end_s}
    if len(ended) != len(outcome.jobs):
        raise AssertionError(f"{len(outcome.jobs) - len(ended)} jobs of {outcome.label} did not complete")
    makespan_s = max(ended.values()) - min(record.submit_s for record in outcome.jobs)
    work = math.fsum(record.run_s * record.cores * record.nodes for record in outcome.jobs)
    window_s = setting.workload.spread_s if setting.submission == "spread" else work / setting.cores
    within = math.fsum(ran_within(record, window_s) * record.cores * record.nodes for record in outcome.jobs)
    mine = {s: [r for r in outcome.jobs if service_of[r.number] == s] for s in setting.jobs}
    return Run(
        setting=setting.name,
        figure=setting.figure,
        jobs=len(outcome.jobs),
        cores=setting.cores,
        submission=setting.submission,
        policy="flexible" if threshold_s else "static",
        threshold_s=threshold_s,
        seed=seed,
        utilisation=work / (setting.cores * makespan_s),
        window_s=window_s,
        window_utilisation=within / (setting.cores * window_s),
        makespan_s=makespan_s,
        completed_s={s: max(ended[r.number] for r in records) for s, records in mine.items()},
        turnaround_s={s: _mean([ended[r.number] - r.submit_s for r in rs]) for s, rs in mine.items()},
        wait_s={s: _mean([waited(r) for r in rs]) for s, rs in mine.items()},
        wait_max_s={s: max(waited(r) for r in rs) for s, rs in mine.items()},
        borrowed=borrowed,
    )


def ran_within(record: JobRecord, window_s: float) -> float:
    """Seconds that the job ran before the window's end; it is never preempted here."""
    if record.start_s is None or record.end_s is None:
        return 0.0
    return max(0.0, min(record.end_s, window_s) - record.start_s)


def waited(record: JobRecord) -> float:
    return (record.start_s or 0.0) - record.submit_s


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
