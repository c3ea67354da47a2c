"""Numbers side by side: what happened, the replay under the present configuration, and the one under the new one.

Rules
  1. Every number is the simulator's (`simulate.metrics`): of completed jobs, by nearest rank, over the whole period.
  2. The difference that is told is between the two replays: what the model lacks, it lacks in both.  How far the model is from
     what happened is told beside (`fidelity`).
  3. A number that one side does not have is null there, and so is its difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from phoenix.simulate.metrics import (
    BatchMetrics,
    Distribution,
    Metrics,
    WebMetrics,
    distribution,
    end_of,
    measure,
    turnaround_s,
    wait_s,
)
from phoenix.simulate.workload import JobRecord, Outcome

Values = dict[str, float | None]
CLOUD: Final = "(cloud)"
_HOUR_S: Final = 3600.0
_STATISTICS: Final = ("mean", "median", "p95")
COUNTS: Final = ("submitted", "completed", "unfinished", "killed", "timeout", "cancelled", "failed", "refused")


def values(outcome: Outcome) -> dict[str, Values]:
    """department -> name -> value; the cloud's under `CLOUD`."""
    metrics = measure(outcome)
    found: dict[str, Values] = {}
    for batch in metrics.batch:
        found[batch.department] = _of_batch(batch)
    for web in metrics.web:
        found.setdefault(web.department, {}).update(_of_web(web))
    for held in metrics.held:
        found.setdefault(held.department, {})["held_host_h"] = held.held_host_s / _HOUR_S
    found[CLOUD] = _of_cloud(metrics)
    return found


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


def by_user(outcome: Outcome) -> dict[str, dict[str, Values]]:
    """department -> user -> name -> value."""
    jobs: dict[tuple[str, str], list[JobRecord]] = {}
    for job in outcome.jobs:
        jobs.setdefault((job.department, job.user), []).append(job)
    found: dict[str, dict[str, Values]] = {}
    for dept, user in sorted(jobs):
        found.setdefault(dept, {})[user] = _of_jobs(jobs[dept, user], outcome.window_s)
    return found


def _of_jobs(jobs: Iterable[JobRecord], window_s: float) -> Values:
    ends = [(job, end_of(job, window_s)) for job in jobs]
    done = [job for job, end in ends if end == "completed"]
    found: Values = {"submitted": len(ends), "completed": len(done)}
    found |= {"preempted": sum(job.preempted for job, _ in ends)}
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
    "mean_turnaround_s",
    "preempted",
    "lost_node_h",
    "held_host_h",
    "in_service_instance_h",
    "shortfall_instance_s",
    "hosts_moved",
)


def _apart(value: float, again: float) -> bool:
    """Closer than a millisecond or a millionth is the same."""
    return abs(again - value) > max(1e-3, 1e-6 * abs(value))
