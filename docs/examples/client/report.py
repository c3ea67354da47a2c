"""An operator's report on the last hours, from the history: a table of users in Markdown, and the jobs that waited longest.

python report.py [--data DIR] [--hours 24]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

from phoenix.client import Job, PhoenixError, SyncClient

HEAD = ("user", "department", "jobs", "completed", "failed", "other", "core-hours", "mean wait", "longest wait")
LONGEST = 5


def rows(jobs: list[Job]) -> list[tuple[str, ...]]:
    """One for each user of each department, who had most first."""
    found = []
    for user, department in {(job.user, job.department) for job in jobs}:
        own = [job for job in jobs if (job.user, job.department) == (user, department)]
        ends = Counter("completed" if job.succeeded else job.state for job in own if job.is_final)
        hours = sum(job.nodes * job.cores * (job.elapsed_s or 0.0) for job in own) / 3600
        waits = [job.wait_s for job in own if job.wait_s is not None]
        other = sum(ends.values()) - ends["completed"] - ends["failed"]
        numbers = (len(own), ends["completed"], ends["failed"], other)
        spans = (span(statistics.fmean(waits)), span(max(waits))) if waits else ("", "")
        found.append((hours, (user, department, *map(str, numbers), f"{hours:.3f}", *spans)))
    return [row for _, row in sorted(found, key=lambda each: (-each[0], each[1]))]


def span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *lines))


def main(args: argparse.Namespace) -> int:
    until = datetime.now(UTC)
    since = until - timedelta(hours=args.hours)
    with SyncClient.find(args.data) as phoenix:
        jobs = list(phoenix.history(since=since, until=until))
        held = {each.department: each.hosts_held for each in phoenix.departments()}
    print(f"# Jobs from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC\n")
    print(", ".join(f"{name} holds {hosts} hosts" for name, hosts in held.items()) + ".\n")
    print(table(HEAD, rows(jobs)))
    waited = sorted((job for job in jobs if job.wait_s is not None), key=lambda job: -(job.wait_s or 0.0))[:LONGEST]
    print("\n## Longest waits\n")
    print(
        table(
            ("job", "name", "user", "state", "wait"),
            [(job.unit, job.name, job.user, job.state, span(job.wait_s or 0.0)) for job in waited],
        )
    )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--hours", type=float, default=24.0)
    try:
        sys.exit(main(parser.parse_args()))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
