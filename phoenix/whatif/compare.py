"""Numbers side by side: what happened, the replay under the present configuration, and the one under the new one.

Rules
  1. Every number is the simulator's (`simulate.metrics`): of completed jobs, by nearest rank, over the whole period.  As a
     configuration under which few jobs complete would look quick, `mean_wait_of_all_s` is of all that were not refused: who
     still waits has waited until the period's end.
  2. The reported difference is between the two replays: what the model lacks, it lacks in both.  How far the model is from
     what happened is reported beside it (`fidelity`).
  3. A number that one side does not have is null there, and so is its difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from phoenix.simulate.metrics import (
    BatchMetrics,
    Distribution,
    Metrics,
    WebMetrics,
    distribution,
    end_of,
    held_by_department,
    measure,
    stretches,
    turnaround_s,
    wait_s,
)
from phoenix.simulate.workload import JobRecord, Outcome
from schemas.config import CloudConfig
from services.domain.sharing.lending import next_change, owned

Values = dict[str, float | None]
CLOUD: Final = "(cloud)"
_HOUR_S: Final = 3600.0
_STATISTICS: Final = ("mean", "median", "p95")
COUNTS: Final = ("submitted", "completed", "unfinished", "killed", "timeout", "cancelled", "failed", "refused")


def values(outcome: Outcome, config: CloudConfig | None = None, since: float = 0.0) -> dict[str, Values]:
    """department -> name -> value; the cloud's under `CLOUD`.  `config`: that was in force, for what was lent."""
    metrics = measure(outcome)
    found: dict[str, Values] = {}
    waited = waits_of_all(outcome)
    for batch in metrics.batch:
        found[batch.department] = {**_of_batch(batch), "mean_wait_of_all_s": waited.get(batch.department)}
    for web in metrics.web:
        found.setdefault(web.department, {}).update(_of_web(web))
    for held in metrics.held:
        found.setdefault(held.department, {})["held_host_h"] = held.held_host_s / _HOUR_S
    for dept, lent in (lending(outcome, config, since) if config is not None else {}).items():
        found.setdefault(dept, {}).update(lent)
    found[CLOUD] = _of_cloud(metrics)
    return found


def waits_of_all(outcome: Outcome) -> dict[str, float]:
    """department -> mean wait of rule 1."""
    jobs: dict[str, list[JobRecord]] = {}
    for job in outcome.jobs:
        jobs.setdefault(job.department, []).append(job)
    return {dept: waited for dept, found in jobs.items() if (waited := _waited(found, outcome.window_s)) is not None}


def _waited(jobs: Iterable[JobRecord], window_s: float) -> float | None:
    """On average until it started, ended or the period did; None if all were refused."""
    waits = []
    for job in jobs:
        if job.end != "refused":
            known = [at for at in (job.start_s, job.end_s, window_s) if at is not None]
            waits.append(max(0.0, min(known) - job.submit_s))
    return math.fsum(waits) / len(waits) if waits else None


def _of_batch(batch: BatchMetrics) -> Values:
    found: Values = {name: getattr(batch, name) for name in COUNTS}
    found |= _times("wait", batch.wait_s) | _times("turnaround", batch.turnaround_s)
    found |= {"preempted": batch.preempted, "lost_node_h": batch.preemption_lost_node_s / _HOUR_S}
    return found


def _times(name: str, told: Distribution) -> Values:
    return {f"{which}_{name}_s": getattr(told, which) for which in _STATISTICS}


def _of_web(web: WebMetrics) -> Values:
    return {
        "in_service_instance_h": web.in_service_instance_s / _HOUR_S,
        "peak_in_service": web.peak_in_service,
        "shortfall_instance_s": web.shortfall_instance_s,
        "longest_shortfall_s": web.longest_shortfall_s,
        "overload_instance_s": web.overload_instance_s,
    }


def _of_cloud(metrics: Metrics) -> Values:
    return {
        "hosts_moved": metrics.hosts_moved,
        "held_utilisation": metrics.held_utilisation,
        "useful_utilisation": metrics.total.useful_utilisation,
    }


def lending(outcome: Outcome, config: CloudConfig, since: float) -> dict[str, Values]:
    """Host-hours that each department lent (held fewer than its own) and borrowed, at every moment, as `phoenix usage` counts
    them; what is its own says `sharing.lending`, by the hours of the week that began at `since`."""
    edges, at = [0.0], since
    while (at := next_change(config, at)) < since + outcome.window_s:
        edges.append(at - since)
    held = held_by_department(outcome)
    found: dict[str, Values] = {}
    for begin, end in pairwise([*edges, outcome.window_s]):
        for dept, own in owned(config, since + begin, outcome.hosts).items():
            sums = found.setdefault(dept, {"lent_host_h": 0.0, "borrowed_host_h": 0.0})
            for start, until, hosts in stretches(held.get(dept, [(0.0, 0)]), end):
                hours = (until - max(start, begin)) / _HOUR_S
                if hours > 0:
                    sums["lent_host_h"] = (sums["lent_host_h"] or 0.0) + max(0, own - hosts) * hours
                    sums["borrowed_host_h"] = (sums["borrowed_host_h"] or 0.0) + max(0, hosts - own) * hours
    return found


def by_user(outcome: Outcome) -> dict[str, dict[str, Values]]:
    """department -> user -> name -> value."""
    jobs: dict[tuple[str, str], list[JobRecord]] = {}
    for job in outcome.jobs:
        jobs.setdefault((job.department, job.user), []).append(job)
    found: dict[str, dict[str, Values]] = {}
    for dept, user in sorted(jobs):
        found.setdefault(dept, {})[user] = _of_jobs(jobs[dept, user], outcome.window_s)
    return found


def _of_jobs(jobs: Sequence[JobRecord], window_s: float) -> Values:
    ends = [(job, end_of(job, window_s)) for job in jobs]
    done = [job for job, end in ends if end == "completed"]
    found: Values = {"submitted": len(ends), "completed": len(done)}
    found |= {"preempted": sum(job.preempted for job, _ in ends), "mean_wait_of_all_s": _waited(jobs, window_s)}
    found |= _times("wait", distribution(map(wait_s, done)))
    return found | _times("turnaround", distribution(map(turnaround_s, done)))


def differences(one: dict[str, Values], other: dict[str, Values]) -> dict[str, Values]:
    """`other` minus `one`, where both have a value."""
    return {
        dept: {name: _minus(other.get(dept, {}).get(name), value) for name, value in known.items()}
        for dept, known in one.items()
    }


def _minus(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old


def fidelity(happened: dict[str, Values], replayed: dict[str, Values]) -> list[dict[str, Any]]:
    """Rule 2: where the replay of what was in force is not what happened; rows of department, metric and three numbers."""
    rows = []
    for dept, known in happened.items():
        for name, value in known.items():
            again = replayed.get(dept, {}).get(name)
            if name in _FIDELITY and value is not None and again is not None and _apart(value, again):
                row = {"department": dept, "metric": name, "happened": value, "replayed": again}
                rows.append({**row, "difference": again - value})
    return rows


_FIDELITY: Final = (
    "completed",
    "mean_wait_s",
    "mean_wait_of_all_s",
    "mean_turnaround_s",
    "preempted",
    "lost_node_h",
    "held_host_h",
    "lent_host_h",
    "in_service_instance_h",
    "shortfall_instance_s",
    "hosts_moved",
)


def _apart(value: float, again: float) -> bool:
    """Closer than a millisecond or a millionth is the same."""
    return abs(again - value) > max(1e-3, 1e-6 * abs(value))
