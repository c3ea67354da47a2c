"""`phoenix history`: jobs since the beginning, also those that memory has forgotten; what sacct is to Slurm.

Rules
  1. A job is of the period if it was there in it: submitted before its end, and not over before its beginning.
  2. Pages are fetched until there are as many rows as asked for; the last line says if there are more.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

from phoenix.cli import cloud, history_rebuild, printing, suggest, tables, units
from phoenix.cli.errors import usage as mistyped
from phoenix.cli.parser import count
from phoenix.cli.period import add_span, span
from phoenix.cli.queue import NAME_SHOWN, STATES, shown
from schemas.size import FIELDS
from services.domain import text as sentences

SORTS: Final = ("submitted", "started", "ended", "wait", "elapsed", "cores")
HEAD: Final = (
    *("JOB", "NAME", "DEPARTMENT", "USER", "STATE", "SUBMITTED", "STARTED", "ENDED", "WAIT", "ELAPSED", "CORES"),
    *("HOSTS", "EXIT", "REASON"),
)
COLUMNS: Final = (  # of --csv: keys of --json
    *("unit", "job", "name", "department", "user", "service", "quality", "lease_kind", "state", "submitted_at"),
    *(
        "started_at",
        "ended_at",
        "wait_s",
        "elapsed_s",
        "nodes",
        *FIELDS,
        "attempt",
        "hosts",
        "exit_code",
    ),
    *("cpu_seconds", "max_rss_mb", "reason"),
)
LIMIT: Final = 100  # rows, unless it is said
PAGE: Final = 1000  # rows of one question
HOSTS_SHOWN: Final = 3
HELP: Final = """examples:
  phoenix history                                       the newest hundred jobs
  phoenix history --since 24h --state failed,timeout    what went wrong since yesterday
  phoenix history --user alice --name 'train-*' --sort elapsed
  phoenix history --host host003 --since 2026-11-20 --until 2026-11-21
  phoenix history --since 2026-11-01 --until 2026-12-01 --all --csv > november.csv
  phoenix history rebuild                               rebuild history.sqlite from archive and journal"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", metavar="rebuild", help="rebuild the file; the cloud keeps running")
    parser.add_argument("--department", "-d", metavar="D", help="only this department's")
    parser.add_argument("--user", "-u", metavar="USER", help="only this user's")
    parser.add_argument("--state", "-t", metavar="STATE", help=f"only these, comma separated: {' '.join(STATES)}")
    parser.add_argument("--name", metavar="PATTERN", help="only jobs of that name; * and ? stand for any")
    parser.add_argument("--host", metavar="HOST", help="only jobs of which an attempt was on this host")
    add_span(parser)
    parser.add_argument("--sort", choices=SORTS, default="submitted", help="newest, longest, largest first")
    parser.add_argument("--ascending", action="store_true", help="oldest, shortest, smallest first")
    parser.add_argument(
        "--limit", "-l", type=count, default=LIMIT, metavar="N", help=f"at most N jobs (default: {LIMIT})"
    )
    parser.add_argument("--all", "-a", action="store_true", help="all of them")
    parser.add_argument("--after", metavar="C", help="the page behind an earlier one (its `next` in --json)")
    parser.add_argument("--csv", action="store_true", help="as CSV, times in UTC, durations in seconds")


def run(args: argparse.Namespace) -> int:
    if args.verb is not None:
        if args.verb != "rebuild":
            raise mistyped(f"history has no {args.verb!r}", suggest.hint(args.verb, ("rebuild",)))
        data = cloud.data_dir(args)
        return history_rebuild.run(data, Path(cloud.describe(data)["config"]))
    found, following = _fetch(args)
    if args.json:
        printing.json({"jobs": found, "next": following})
    elif args.csv:
        _write_csv(found)
    else:
        printing.text(render(found, more=following is not None))
    return 0


def _fetch(args: argparse.Namespace) -> tuple[list[dict[str, Any]], str | None]:
    since, until = span(args.since, args.until, time.time())
    for state in (args.state or "").split(","):
        if state and state not in STATES:
            raise mistyped(f"--state: {state!r} is no state", suggest.hint(state, STATES))
    where = cloud.find(args)
    asked: dict[str, Any] = {"department": args.department, "user": args.user, "state": args.state, "name": args.name}
    asked |= {"host": args.host, "since": units.when(since), "until": units.when(until), "sort": args.sort}
    asked |= {"order": "ascending" if args.ascending else None}
    client, found, following = where.operator(), [], args.after
    left = sys.maxsize if args.all else args.limit
    while True:
        answer = client.get("/v1/jobs", **asked, limit=min(PAGE, left), after=following)
        found += answer["jobs"]
        left, following = left - len(answer["jobs"]), answer["next"]
        if following is None or left <= 0:
            break
    if args.department and not found:
        where.check_department(args.department)  # not before: what is no longer of the cloud has a history
    if args.user and not found:
        where.check_user(args.user)
    if args.host and not found:
        where.check_host(args.host)
    return found, following


def render(jobs: list[dict[str, Any]], *, more: bool = False) -> str:
    if not jobs:
        return "no such job is known"
    text = tables.render(HEAD, [_row(job) for job in jobs], right="JOB WAIT ELAPSED CORES EXIT")
    return f"{text}\n… the first {len(jobs)}; more with --limit or --all" if more else text


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    name, lease = job["name"][:NAME_SHOWN], job["lease_kind"]
    return (
        job["unit"],
        f"{name} ({lease} lease)" if lease else name,
        job["department"],
        job["user"],
        shown(job["state"]),
        *(units.second(job[key]) for key in ("submitted_at", "started_at", "ended_at")),
        units.span(job["wait_s"]),
        units.span(job["elapsed_s"]) if job["attempt"] else "",
        str(job["nodes"] * job["cores"]),
        units.some(job["hosts"], HOSTS_SHOWN),
        "" if job["exit_code"] is None else str(job["exit_code"]),
        sentences.sentence(job["reason"]) if job["reason"] else "",
    )


def _write_csv(jobs: list[dict[str, Any]]) -> None:
    rows = ({"hosts": " ".join(job["hosts"]), "reason": (job["reason"] or {}).get("code", "")} for job in jobs)
    printing.table(COLUMNS, (job | told for job, told in zip(jobs, rows, strict=True)))
