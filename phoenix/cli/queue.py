"""`phoenix queue`: pending and running jobs, and when the first ones that wait will start, as far as that can be foreseen."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

from phoenix.cli import cloud, health_notes, printing, suggest, tables, units
from phoenix.cli.errors import CliError, usage
from phoenix.cli.http import Client, quote
from phoenix.cli.parser import count
from phoenix.client.states import FINAL
from services.domain import text as sentences
from services.domain.text.starts import MARKS

STATES: Final = (
    "pending",
    "held",
    "starting",
    "running",
    "suspended",
    "completing",
    "completed",
    "ended_early",
    "failed",
    "cancelled",
    "timeout",
    "killed",
)
HEAD: Final = ("JOB", "NAME", "DEPARTMENT", "USER", "STATE", "NODES", "CORES", "TIME", "HOSTS OR REASON")
STATE: Final = 4  # place of the state in a short line
START: Final = len(HEAD) - 1  # place of the column that is there if a start is known
_SHORT: dict[str, str] = {}
NAME_SHOWN: Final = 24  # characters of a job's name

HELP: Final = """examples:
  phoenix queue                         all pending and running jobs
  phoenix queue --state pending         only what waits
  phoenix queue --user alice --json     for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--department", "-d", metavar="D", help="only this department's")
    parser.add_argument("--state", "-t", metavar="STATE", help=f"only these, comma separated: {' '.join(STATES)}")
    parser.add_argument("--user", "-u", metavar="USER", help="only this user's")
    parser.add_argument("--limit", "-l", type=count, metavar="N", help="at most N lines")


def run(args: argparse.Namespace) -> int:
    states = _states(args.state)
    where = cloud.find(args)
    if args.department:
        where.check_department(args.department)
    if args.user:
        where.check_user(args.user)
    form, client = None if args.json else "lines", where.operator()
    answer = client.get(
        "/v1/queue", department=args.department, state=args.state, user=args.user, limit=args.limit, form=form
    )
    if args.json:
        jobs = [job for job in answer["jobs"] if _wanted(job, states, args.user)]
        known = starts(client, args.department) if any(job["state"] == "pending" for job in jobs) else {}
        printing.json({**answer, "jobs": [_with_start(job, known) for job in jobs]})
        return 0
    lines = answer["lines"]
    known = starts(client, args.department) if any(line[STATE] == "pending" for line in lines) else {}
    printing.text(
        render(lines, int(answer.get("total", len(lines))), known) if lines or not states else "no such job is here"
    )
    over = ",".join(sorted(states & FINAL))
    if over:
        print(f"phoenix: only the last jobs that ended are here; all: phoenix history --state {over}", file=sys.stderr)
    health_notes.tell(where, args.department)
    return 0


def starts(client: Client, department: str | None = None, job: str | None = None) -> dict[str, Any]:
    """Unit -> when it starts, of the first ones of each queue, or of one job; what cannot be predicted in time is left out."""
    try:
        return dict(
            client.get("/v1/starts" if job is None else f"/v1/starts/{quote(job)}", department=department)["starts"]
        )
    except (CliError, KeyError):
        return {}  # it is a word beside what was asked for


def _with_start(job: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return {**job, "start": known[job["unit"]]} if job.get("unit") in known else job


def render(lines: list[list[Any]], total: int, known: dict[str, Any] | None = None) -> str:
    """The table of the monitor's short lines, and a last line if there is more than it shows."""
    if not lines:
        return "no jobs wait or run"
    now, known = time.time(), known or {}
    rows, head = [_row(line, now) for line in lines], tuple[str, ...](HEAD)
    if any(word.get("start_at") for word in known.values()):
        rows = [
            (*row[:START], _start(known.get(line[0]), now), row[START]) for row, line in zip(rows, lines, strict=True)
        ]
        head = (*HEAD[:START], "START", HEAD[START])
    text = tables.render(head, rows, right="JOB NODES CORES TIME START")
    return f"{text}\n… {len(lines)} of {total} shown" if total > len(lines) else text


def _start(word: dict[str, Any] | None, now: float) -> str:
    """In how long: `12m05s` if that is planned, `~12m05s` if it is so by time limits."""
    at = units.seconds(word.get("start_at")) if word is not None else None
    return "" if word is None or at is None else f"{MARKS.get(word['sure'], '')}{units.span(at - now)}"


def _row(line: list[Any], now: float) -> tuple[str, ...]:
    unit, name, department, user, state, nodes, cores, started, where, *lease = line
    return (
        unit,
        f"{name[:NAME_SHOWN]} ({lease[0]} lease)" if lease else name[:NAME_SHOWN],
        department,
        user,
        shown(state),
        str(nodes),
        str(cores),
        "" if started is None else units.span(now - (units.seconds(started) or now)),
        _hosts(where) if isinstance(where, list) else f"({_reason(where, now)})",
    )


def shown(state: str) -> str:
    """A state, or how a job has ended, in words."""
    return state.replace("_", " ")


def _reason(reason: dict[str, Any], now: float) -> str:
    """Of a lease whose time has come the cloud's line, which time does not change, says only when that was to be."""
    code = reason["code"]
    if code == "lease_starts_at" and _has_come(reason.get("starts_at"), now):
        return sentences.short("lease_over" if _has_come(reason.get("ends_at"), now) else "lease_late")
    if len(reason) > 1:
        return sentences.short(reason)
    if code not in _SHORT:  # thousands of jobs share one without numbers
        _SHORT[code] = sentences.short(reason)
    return _SHORT[code]


def _has_come(time: object, now: float) -> bool:
    at = units.seconds(time)
    return at is not None and at <= now


def _hosts(hosts: list[str]) -> str:
    return ",".join(hosts) if len(hosts) <= 4 else f"{','.join(hosts[:3])},… ({len(hosts)})"


def _states(text: str | None) -> set[str]:
    chosen = {word.strip().lower() for word in (text or "").split(",") if word.strip()}
    for word in sorted(chosen - set(STATES)):
        raise usage(f"--state: there is no job state {word!r}", suggest.hint(word, STATES))
    return chosen


def _wanted(job: dict[str, Any], states: set[str], user: str | None) -> bool:
    """A server that does not know a filter ignores it: it is applied again here."""
    return (not states or job["state"] in states) and (not user or job["user"] == user)
