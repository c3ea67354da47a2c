"""The end of the demo's day: what was lost (nothing, or it fails), the summary, and the picture of hosts by holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from phoenix.local.demo_load import Web
from phoenix.local.stack_settings import Balancer
from schemas.units import seconds

COLOURS: Final = {"hpc": "#3b6fb6", "web": "#d9822b", "(free)": "#d8d8d8", "(draining)": "#8c8c8c", "(lost)": "#b03030"}
BALANCERS: Final = {
    "haproxy": "HAProxy, kept in step by phoenix-haproxy",
    "embedded": "the embedded one (HAProxy is not installed)",
}
LAST_LINE: Final = "finished"


@dataclass(frozen=True, slots=True)
class Day:
    """What is known when it is over.  `jobs`: as the monitor shows them; `outputs`: the last line of each; `summary`: the
    monitor's, its timeline from before the day began; times in UTC seconds."""

    submitted: Sequence[str]
    jobs: dict[str, dict[str, Any]]
    outputs: dict[str, str]
    summary: dict[str, Any]
    web: Web
    began_at: float
    ended_at: float
    balancer: Balancer = "embedded"


def lost(day: Day) -> list[str]:
    """Everything that should not have happened, a sentence each."""
    problems = []
    for job in day.submitted:
        found = day.jobs.get(job)
        state = found["state"] if found else "unknown"
        if state != "completed":
            problems.append(f"job {job} is {state}, not completed{_how(found)}")
        elif day.outputs.get(job) != f"{LAST_LINE} {job}":
            problems.append(f"the output of job {job} ends with {day.outputs.get(job)!r}")
    if day.web.failed:
        problems.append(f"{day.web.failed} web requests failed; the first: {day.web.first_failure}")
    if not day.web.served:
        problems.append("no web request was served")
    return problems


def _how(job: dict[str, Any] | None) -> str:
    """How its last attempt ended, for a reader who looks for the cause."""
    attempts = (job or {}).get("attempts") or []
    if not attempts:
        return ""
    last = attempts[-1]
    words = [f"{key} {last[key]}" for key in ("exit", "signal", "note", "ended_at") if last.get(key) is not None]
    return f" (attempt {len(attempts)}: {', '.join(words)})"


def preemptions(day: Day) -> int:
    """Attempts that were ended because their host went to the web department."""
    attempts = [attempt for job in day.jobs.values() for attempt in job.get("attempts") or []]
    return sum(1 for attempt in attempts if attempt.get("disposal") == "requeue")


def text(day: Day) -> str:
    """The summary, a line each."""
    summary = day.summary
    completed = sum(1 for job in day.jobs.values() if job["state"] == "completed")
    requeued = sum(1 for job in day.jobs.values() if len(job.get("attempts") or []) > 1)
    claims = summary.get("claims") or []
    median, longest = summary.get("claim_median_s"), summary.get("claim_max_s")
    lines = [
        ("jobs completed", f"{completed} of {len(day.submitted)}"),
        ("jobs requeued", f"{requeued} ({preemptions(day)} attempts gave their host to web)"),
        ("mean turnaround", f"{turnaround_s(day):.1f} s"),
        (
            "claims of web",
            f"{len(claims)}; from signal to granted host {_ms(median)} (median), {_ms(longest)} (longest)",
        ),
        ("hosts of web", f"{_most(day, 'web')} at the most, {_last(day, 'web')} at the end"),
        (
            "web requests",
            f"{day.web.served} served, {day.web.failed} failed, the slowest took {day.web.slowest_s:.2f} s",
        ),
        ("load balancer", BALANCERS[day.balancer]),
    ]
    return "\n".join(f"  {name:<16} {value}" for name, value in lines)


def turnaround_s(day: Day) -> float:
    """Mean time from submission to completion."""
    mean = day.summary.get("mean_turnaround_s")
    return float(mean) if mean is not None else 0.0


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def _most(day: Day, owner: str) -> int:
    return max((owners.get(owner, 0) for _, owners in owners_over_time(day)), default=0)


def _last(day: Day, owner: str) -> int:
    timeline = owners_over_time(day)
    return timeline[-1][1].get(owner, 0) if timeline else 0


def owners_over_time(day: Day) -> list[tuple[float, dict[str, int]]]:
    """(seconds since the day began, hosts by owner): from 0 to the day's end, including holders from before it began."""
    timeline = [(seconds(one["at"]) or 0.0, dict(one["owners"])) for one in day.summary.get("timeline") or []]
    before = [owners for at, owners in timeline if at <= day.began_at]
    found = [(0.0, before[-1])] if before else []
    found += [(at - day.began_at, owners) for at, owners in timeline if day.began_at < at < day.ended_at]
    return [*found, (day.ended_at - day.began_at, found[-1][1])] if found else []


def picture(day: Day, path: Path) -> None:
    """Hosts by owner over time, as SVG or PNG (by the file's name)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    timeline = owners_over_time(day)
    owners = [o for o in COLOURS if any(found.get(o) for _, found in timeline)]
    owners += sorted({o for _, found in timeline for o in found} - set(owners))
    times = [at for at, _ in timeline]
    figure, axes = plt.subplots(figsize=(9, 4.2))
    layers = [[found.get(owner, 0) for _, found in timeline] for owner in owners]
    axes.stackplot(times, layers, labels=owners, colors=[COLOURS.get(o, "#6aa84f") for o in owners], step="post")
    axes.set_xlim(max(0.0, times[0]), times[-1])
    axes.set_ylim(0, max(sum(column) for column in zip(*layers, strict=True)))
    axes.set_xlabel("seconds")
    axes.set_ylabel("hosts")
    axes.set_title("Hosts by holder", loc="left")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 1.12), ncols=len(owners), frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
