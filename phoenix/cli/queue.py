"""`phoenix queue`: what waits and runs."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from phoenix.cli import cloud, emit, sentences, suggest, tables, units
from phoenix.cli.errors import usage

STATES: Final = (
    "pending",
    "held",
    "starting",
    "running",
    "suspended",
    "completing",
    "completed",
    "failed",
    "cancelled",
    "timeout",
    "killed",
)
HEAD: Final = ("JOB", "NAME", "DEPARTMENT", "USER", "STATE", "NODES", "CORES", "TIME", "HOSTS OR REASON")
NAME_SHOWN: Final = 24  # characters of a job's name

HELP: Final = """examples:
  phoenix queue                         everything that waits and runs
  phoenix queue --state pending         only what waits
  phoenix queue --user alice --json     for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--department", "-d", metavar="D", help="only this department's")
    parser.add_argument("--state", "-t", metavar="STATE", help=f"only these, comma separated: {' '.join(STATES)}")
    parser.add_argument("--user", "-u", metavar="USER", help="only this user's")
    parser.add_argument("--limit", "-l", type=int, metavar="N", help="at most N lines")


def run(args: argparse.Namespace) -> int:
    states = _states(args.state)
    where = cloud.find(args)
    if args.department:
        where.check_department(args.department)
    answer = where.operator().get(
        "/v1/queue", department=args.department, state=args.state, user=args.user, limit=args.limit
    )
    jobs = [job for job in answer["jobs"] if _wanted(job, states, args.user)]
    if args.json:
        emit.json({**answer, "jobs": [in_utc(job) for job in jobs]})
        return 0
    print(render(jobs, int(answer.get("total", len(jobs)))))
    return 0


def render(jobs: list[dict[str, Any]], total: int) -> str:
    """The table, and a last line if there is more than it shows."""
    if not jobs:
        return "no jobs wait or run"
    now = time.time()
    text = tables.render(HEAD, [_row(job, now) for job in jobs], right="JOB NODES CORES TIME")
    return f"{text}\n… {len(jobs)} of {total} shown" if total > len(jobs) else text


def in_utc(job: dict[str, Any]) -> dict[str, Any]:
    """The same with every time (`…_at`) as ISO 8601 in UTC."""
    return {key: units.iso(value) if key.endswith("_at") else value for key, value in job.items()}


def _row(job: dict[str, Any], now: float) -> tuple[str, ...]:
    started = units.seconds(job.get("started_at"))
    hosts, reason = job.get("hosts"), job.get("reason")
    where = _hosts(hosts) if hosts else f"({sentences.short(reason)})" if reason else ""
    return (
        job.get("unit") or job["job"],
        (job.get("name") or "")[:NAME_SHOWN],
        job["department"],
        job["user"],
        job["state"],
        str(job.get("nodes", "")),
        str(job.get("cores", "")),
        "" if started is None else units.span(now - started),
        where,
    )


def _hosts(hosts: list[str]) -> str:
    return ",".join(hosts) if len(hosts) <= 4 else f"{','.join(hosts[:3])},… ({len(hosts)})"


def _states(text: str | None) -> set[str]:
    chosen = {word.strip().lower() for word in (text or "").split(",") if word.strip()}
    for word in sorted(chosen - set(STATES)):
        raise usage(f"there is no job state {word!r}", suggest.hint(word, STATES))
    return chosen


def _wanted(job: dict[str, Any], states: set[str], user: str | None) -> bool:
    """A server that does not know a filter ignores it: it is applied again here."""
    return (not states or job["state"] in states) and (not user or job["user"] == user)
