"""`phoenix audit`: the audit: who requested what, from where, and the outcome."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from phoenix.cli import cloud, period, printing, units
from phoenix.cli.errors import UNREACHABLE, CliError, usage
from phoenix.cli.http import Client
from phoenix.cli.parser import count

LAST: Final = 30
PAGE: Final = 1000
LOOK_S: Final = 1.0  # between two looks of --follow
AWAY_MAX: Final = 20  # looks in a row without an answer: the cloud is gone, not restarting
HELP: Final = """examples:
  phoenix audit                                     the last 30 requests that were granted or refused
  phoenix audit --refused --since 24h               what was refused in the last day
  phoenix audit --user alice --kind job.submit      what alice submitted
  phoenix audit --kind job. --department hpc        all that people of hpc asked of jobs
  phoenix audit --since 2026-11-01 --json           one JSON object a line
  phoenix audit --follow                            what is asked, until Ctrl-C
Operators see everything, managers what their department's people asked.
What is recorded, and for how long: docs/reference/audit.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", "-u", metavar="U", help="who asked")
    parser.add_argument("--department", "-d", metavar="D", help="requests by this department (operators: by operators)")
    parser.add_argument(
        "--kind", "-k", metavar="KIND", help="job.submit, config.apply, session.open, …; or job. for all of it"
    )
    outcome = parser.add_mutually_exclusive_group()
    outcome.add_argument(
        "--refused", action="store_const", dest="outcome", const="refused", help="only what was refused"
    )
    outcome.add_argument(
        "--granted", action="store_const", dest="outcome", const="granted", help="only what was granted"
    )
    period.add_since(parser)
    parser.add_argument("--last", "-n", type=count, metavar="N", help=f"how many (default {LAST}; with --since: all)")
    parser.add_argument("--follow", "-f", action="store_true", help="follow new requests, until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    if args.last is not None and args.last > PAGE:
        raise usage(f"--last is 1 to {PAGE}", "--since WHEN has no such bound")
    where = cloud.find(args)
    client = where.operator()
    chosen = {"user": args.user, "department": args.department, "kind": args.kind, "outcome": args.outcome}
    if args.since is not None:
        since = period.instant("--since", args.since, time.time())
        end, found = print_since(client, {**chosen, "since": units.when(since)}, args)
    else:
        answer = client.get("/v1/audit", limit=args.last or LAST, **chosen)
        _print(answer["records"], args.json)
        end, found = answer["end"], len(answer["records"])
    if not found and args.user:
        where.check_user(args.user)  # not before: who is no longer of the cloud is still in the audit
    if not found and not args.follow:
        print("phoenix: no matching requests are recorded", file=sys.stderr)
    if args.follow:
        for records in follow(client, chosen, end):
            _print(records, args.json)
    return 0


def print_since(client: Client, asked: dict[str, Any], args: argparse.Namespace) -> tuple[int, int]:
    """Print page after page; returns where the stream ended, and how many records there were."""
    shown: list[dict[str, Any]] = []
    after: int | None = None
    found = 0
    while True:
        answer = client.get("/v1/audit", limit=PAGE, after=after, **asked)
        if args.last is None:
            _print(answer["records"], args.json)
        shown = (shown + answer["records"])[-(args.last or 1) :]
        after, found = answer["next"], found + len(answer["records"])
        if after is None:
            if args.last is not None:
                _print(shown, args.json)
            return int(answer["end"]), found


def follow(client: Client, chosen: dict[str, Any], after: int) -> Iterator[list[dict[str, Any]]]:
    """What comes behind `after`, as it comes; a cloud that restarts is waited for."""
    away = 0
    while True:
        try:
            answer = client.get("/v1/audit", limit=PAGE, after=after, **chosen)
        except CliError as error:
            away += 1
            if error.code != UNREACHABLE or away > AWAY_MAX:
                raise
            time.sleep(LOOK_S)
            continue
        away = 0
        yield answer["records"]
        after = answer["next"] if answer["next"] is not None else answer["end"]
        if answer["next"] is None:
            time.sleep(LOOK_S)


def render(record: dict[str, Any]) -> str:
    """One line: when, who, what, from where, what came of it."""
    who = record.get("user") or "(unknown)"
    role = f" ({record['department']} {record['role']})" if record.get("role") else ""
    what = " ".join([record["kind"], *record.get("names", ())]) + (
        f" and {record['more']} more" if record.get("more") else ""
    )
    source = f"{record['via']} {record['peer']}" if record.get("peer") else record["via"]
    if record["outcome"] == "granted":
        came = f"granted, position {record['position']}" if record.get("position") is not None else "granted"
    else:
        came = f"refused ({record.get('code')}): {record.get('message', '')}"
    left = f"; {record['left_out']} more refusals were not recorded" if record.get("left_out") else ""
    return f"{units.iso(units.seconds(record['at']))}  {who}{role}  {what}  from {source}: {came}{left}"


def _print(records: list[dict[str, Any]], as_json: bool) -> None:
    for record in records:
        if as_json:
            printing.line(record)
        else:
            printing.text(render(record))
    sys.stdout.flush()
