"""What a run was worth: numbers about jobs, hosts and web service levels, from an `Outcome` and nothing else.

`measure` is a pure function; it decides nothing and never reads a clock, so equal outcomes give equal numbers on any machine.
How long the simulation itself took is not in here (`report.Run` has it).

Rules; `docs/reference/simulator-metrics.md` has each name with its definition and source:
  1. The window is [0, window_s].  What ends after it has not ended: such a job is `unfinished`, whatever became of it later.
  2. Turnaround, wait and bounded slowdown are of completed jobs.  Jobs that did not complete have none, and are counted beside.
  3. A percentile is by nearest rank: the smallest value that at least p % of the jobs do not exceed.  It is a value some job
     had, needs no rounding arithmetic, and is what a service level says ("95 % of jobs wait at most so long").
  4. Utilisation is of all hosts of the cloud for the whole window, so that departments add up.  A job that uses some of a
     host's cores counts as that share of the host.
  5. Levels that change several times at one instant have the last value of that instant.
  6. Sums of floats are `math.fsum`: exact, so that no order of jobs changes a digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from phoenix.simulate.workload import End, JobRecord, Outcome, WebRecord

# Feitelson and Rudolph: below it, a job's run time says little about what its user expects
SLOWDOWN_THRESHOLD_S: Final = 10.0
TOTAL: Final = "total"  # the department name of the sum over all batch departments
_LOST_OTHERWISE: Final = ("timeout", "cancelled", "failed")  # what these jobs lost says nothing about preemption

_T = TypeVar("_T")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over completed jobs; all None if no job completed."""

    count: int = 0
    mean: float | None = None
    median: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class BatchMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A batch department, or all of them (`department` is `total`)."""

    department: str
    submitted: int
    completed: int
    killed: int
    timeout: int
    cancelled: int
    failed: int
    refused: int
    unfinished: int
    never_started: int  # of those that are unfinished
    preempted: int  # attempts that ended because hosts were needed
    requeued: int  # those after which the job lived on
    requeued_jobs: int  # jobs that this happened to, once or more
    turnaround_s: Distribution
    wait_s: Distribution
    bounded_slowdown: Distribution
    user_fairness: float | None  # of users' mean bounded slowdowns, 1: all alike
    makespan_s: float | None
    ran_node_s: float
    lost_node_s: float  # whatever the reason
    preemption_lost_node_s: float
    checkpoints: int
    checkpoint_node_s: float  # that saved what was not lost
    allocated_utilisation: float
    useful_utilisation: float


class WebMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A web department's service level."""

    department: str
    wanted_instance_s: float
    in_service_instance_s: float
    peak_wanted: int
    peak_in_service: int
    shortfall_instance_s: float
    shortfall_share: float  # of what was wanted
    short_s: float  # how long anything was short
    longest_shortfall_s: float
    peak_shortfall: int
    load_instance_s: float | None = None  # None, as the next two: the demand was given, not decided from a load
    overload_instance_s: float | None = None  # load beyond what was in service, whatever the rule wanted
    longest_overload_s: float | None = None


class HeldMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What hosts a department held."""

    department: str
    held_host_s: float
    held_utilisation: float
    peak_held: int
    gained: int  # hosts that came to it after time 0


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    hosts: int
    window_s: float
    total: BatchMetrics
    batch: tuple[BatchMetrics, ...]  # by name
    web: tuple[WebMetrics, ...]  # by name
    held: tuple[HeldMetrics, ...]  # by name
    held_utilisation: float
    hosts_moved: int
    hosts_moved_per_hour: float


def measure(outcome: Outcome) -> Metrics:
    """All metrics of a run."""
    by_department: dict[str, list[JobRecord]] = {}
    for job in outcome.jobs:
        by_department.setdefault(job.department, []).append(job)
    held = tuple(_held(name, rows, outcome) for name, rows in held_by_department(outcome).items())
    moved = sum(each.gained for each in held)
    return Metrics(
        hosts=outcome.hosts,
        window_s=outcome.window_s,
        total=_batch(TOTAL, outcome.jobs, outcome),
        batch=tuple(_batch(name, by_department[name], outcome) for name in sorted(by_department)),
        web=tuple(
            _web(record, outcome.window_s) for record in sorted(outcome.web, key=lambda record: record.department)
        ),
        held=held,
        held_utilisation=_share(math.fsum(each.held_host_s for each in held), outcome),
        hosts_moved=moved,
        hosts_moved_per_hour=moved * 3600.0 / outcome.window_s if outcome.window_s > 0 else 0.0,
    )


# ------------------------------------------------------------------------------------------------------------- of one job


def end_of(job: JobRecord, window_s: float) -> End:
    """How the job had ended when the window ended (rule 1).  A refused job has no end time and is refused all the same."""
    if job.end == "refused":
        return "refused"
    return job.end if job.end_s is not None and job.end_s <= window_s else "unfinished"


def turnaround_s(job: JobRecord) -> float | None:
    """End minus submission; None if it has not ended."""
    return None if job.end_s is None else job.end_s - job.submit_s


def wait_s(job: JobRecord) -> float | None:
    """First start minus submission; None if it never started.  Waiting again after a preemption is not in it."""
    return None if job.start_s is None else job.start_s - job.submit_s


def bounded_slowdown(job: JobRecord) -> float | None:
    """max(1, turnaround / max(run time, 10 s)); None if the job has not ended.  The run time is that of an undisturbed run."""
    turnaround = turnaround_s(job)
    return None if turnaround is None else max(1.0, turnaround / max(job.run_s, SLOWDOWN_THRESHOLD_S))


def requeues(job: JobRecord, window_s: float) -> int:
    """How often a preemption let the job live on: all of them, but for the one that killed it."""
    return max(0, job.preempted - (end_of(job, window_s) == "killed"))


# ---------------------------------------------------------------------------------------------------------- distributions


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest of the ordered values that at least `percent` % of them do not exceed; 0 < percent <= 100."""
    return ordered[-(-percent * len(ordered) // 100) - 1]


def distribution(values: Iterable[float | None]) -> Distribution:
    """Mean, percentiles and maximum of what is there."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return Distribution()
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        median=nearest_rank(ordered, 50),
        p90=nearest_rank(ordered, 90),
        p95=nearest_rank(ordered, 95),
        p99=nearest_rank(ordered, 99),
        max=ordered[-1],
    )


# ------------------------------------------------------------------------------------------------------------------ levels


def stretches(rows: Sequence[tuple[float, _T]], window_s: float) -> Iterator[tuple[float, float, _T]]:
    """(from, until, level) for each level that lasts, within the window; `rows` are (from, level) in order of time."""
    untils = [*(at for at, _ in rows[1:]), window_s]
    for (since, level), until in zip(rows, untils, strict=False):
        since, until = max(since, 0.0), min(until, window_s)
        if since < until:
            yield since, until, level


def held_by_department(outcome: Outcome) -> dict[str, list[tuple[float, int]]]:
    """(from, hosts) of each department, departments by name."""
    found: dict[str, list[tuple[float, int]]] = {}
    for at, department, hosts in outcome.held:
        found.setdefault(department, []).append((at, hosts))
    return {name: found[name] for name in sorted(found)}


def hosts_gained(rows: Iterable[tuple[float, int]]) -> int:
    """Hosts that came after time 0: the sum of the rises from instant to instant.  What is there at time 0 was not moved."""
    settled = {max(at, 0.0): hosts for at, hosts in rows}  # rule 5: the last one of an instant stays
    levels = [*([] if 0.0 in settled else [0]), *settled.values()]
    return sum(max(0, later - earlier) for earlier, later in pairwise(levels))


def _share(host_s: float, outcome: Outcome) -> float:
    all_host_s = outcome.hosts * outcome.window_s
    return host_s / all_host_s if all_host_s > 0 else 0.0


def _held(department: str, rows: list[tuple[float, int]], outcome: Outcome) -> HeldMetrics:
    lasting = list(stretches(rows, outcome.window_s))
    host_s = math.fsum((until - since) * hosts for since, until, hosts in lasting)
    return HeldMetrics(
        department=department,
        held_host_s=host_s,
        held_utilisation=_share(host_s, outcome),
        peak_held=max((hosts for _, _, hosts in lasting), default=0),
        gained=hosts_gained((at, hosts) for at, hosts in rows if at < outcome.window_s),
    )


# ------------------------------------------------------------------------------------------------------------- departments


def _batch(department: str, jobs: Sequence[JobRecord], outcome: Outcome) -> BatchMetrics:
    ends = [end_of(job, outcome.window_s) for job in jobs]
    completed = [job for job, end in zip(jobs, ends, strict=True) if end == "completed"]
    went_back = [requeues(job, outcome.window_s) for job in jobs]
    return BatchMetrics(
        department=department,
        submitted=len(jobs),
        completed=len(completed),
        killed=ends.count("killed"),
        timeout=ends.count("timeout"),
        cancelled=ends.count("cancelled"),
        failed=ends.count("failed"),
        refused=ends.count("refused"),
        unfinished=ends.count("unfinished"),
        never_started=sum(
            end == "unfinished" and (job.start_s is None or job.start_s > outcome.window_s)
            for job, end in zip(jobs, ends, strict=True)
        ),
        preempted=sum(job.preempted for job in jobs),
        requeued=sum(went_back),
        requeued_jobs=sum(count > 0 for count in went_back),
        turnaround_s=distribution(map(turnaround_s, completed)),
        wait_s=distribution(map(wait_s, completed)),
        bounded_slowdown=distribution(map(bounded_slowdown, completed)),
        user_fairness=_user_fairness(completed),
        makespan_s=_makespan_s(jobs, completed),
        ran_node_s=math.fsum(job.ran_node_s for job in jobs),
        lost_node_s=math.fsum(job.lost_node_s for job in jobs),
        preemption_lost_node_s=math.fsum(
            job.lost_node_s for job, end in zip(jobs, ends, strict=True) if end not in _LOST_OTHERWISE
        ),
        checkpoints=sum(job.checkpoints for job in jobs),
        checkpoint_node_s=math.fsum(job.checkpoint_node_s for job in jobs),
        allocated_utilisation=_share(math.fsum(job.ran_node_s * _weight(job, outcome) for job in jobs), outcome),
        useful_utilisation=_share(
            math.fsum(
                (job.ran_node_s - job.lost_node_s - job.checkpoint_node_s) * _weight(job, outcome) for job in jobs
            ),
            outcome,
        ),
    )


def _weight(job: JobRecord, outcome: Outcome) -> float:
    """The share of a host that one node of the job takes (rule 4)."""
    return min(1.0, job.cores / outcome.host_cores)


def _user_fairness(completed: Sequence[JobRecord]) -> float | None:
    """Jain's index of the users' mean bounded slowdowns: (sum of x)² / (users · sum of x²)."""
    by_user: dict[str, list[float]] = {}
    for job in completed:
        by_user.setdefault(job.user, []).append(bounded_slowdown(job) or 1.0)
    means = [math.fsum(values) / len(values) for values in by_user.values()]
    return math.fsum(means) ** 2 / (len(means) * math.fsum(mean**2 for mean in means)) if means else None


def _makespan_s(jobs: Sequence[JobRecord], completed: Sequence[JobRecord]) -> float | None:
    """From the first submission to the last completion."""
    ends = [job.end_s for job in completed if job.end_s is not None]
    return max(ends) - min(job.submit_s for job in jobs) if ends else None


def _web(record: WebRecord, window_s: float) -> WebMetrics:
    rows = [(at, (float(wanted), serving)) for at, wanted, serving in record.levels]
    lasting = [(until - since, *level) for since, until, level in stretches(rows, window_s)]
    wanted_instance_s = math.fsum(length * wanted for length, wanted, _ in lasting)
    shortfall, short_s, longest_s = _missing(rows, window_s)
    overload: dict[str, float] = {}
    if record.load:
        against = load_and_service(record)
        overload["load_instance_s"] = math.fsum((b - a) * load for a, b, (load, _) in stretches(against, window_s))
        overload["overload_instance_s"], _, overload["longest_overload_s"] = _missing(against, window_s)
    return WebMetrics(
        department=record.department,
        wanted_instance_s=wanted_instance_s,
        in_service_instance_s=math.fsum(length * serving for length, _, serving in lasting),
        peak_wanted=int(max((wanted for _, wanted, _ in lasting), default=0)),
        peak_in_service=max((serving for _, _, serving in lasting), default=0),
        shortfall_instance_s=shortfall,
        shortfall_share=shortfall / wanted_instance_s if wanted_instance_s > 0 else 0.0,
        short_s=short_s,
        longest_shortfall_s=longest_s,
        peak_shortfall=int(max((wanted - serving for _, wanted, serving in lasting if wanted > serving), default=0)),
        **overload,
    )


def load_and_service(record: WebRecord) -> list[tuple[float, tuple[float, int]]]:
    """(from, (load, in service)): the two levels on one time line; before its first row a level is 0."""
    changes = [(at, 0, load) for at, load in record.load] + [
        (at, 1, float(serving)) for at, _, serving in record.levels
    ]
    level, rows = [0.0, 0.0], []
    for at, which, value in sorted(
        changes, key=lambda change: change[0]
    ):  # stable: the last of an instant stays the last
        level[which] = value
        rows.append((at, (level[0], int(level[1]))))
    return rows


def _missing(rows: Sequence[tuple[float, tuple[float, int]]], window_s: float) -> tuple[float, float, float]:
    """Of (from, (needed, there)): needed minus there where positive, as an integral; the time it was; its longest stretch."""
    parts, lengths, longest, began = [], [], 0.0, None
    for since, until, (needed, there) in stretches(rows, window_s):
        if needed <= there:
            began = None
            continue
        began = since if began is None else began
        longest = max(longest, until - began)
        lengths.append(until - since)
        parts.append((until - since) * (needed - there))
    return math.fsum(parts), math.fsum(lengths), longest
