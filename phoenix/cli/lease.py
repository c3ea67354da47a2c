"""`phoenix lease`: machines for a time of one's own, or best-effort.

Rules
  1. `create` prints the lease's id and nothing else on stdout, as `submit` does; what is for people goes to stderr.
  2. A lease that is refused ends with exit code 1 and says what would be accepted; with --json the whole answer is on stdout.
  3. Every `create` and `extend` carries a request id, so that asking again after a lost answer cannot do it twice.
  4. A start and a deadline go out in whole seconds, rounded up.  What the cloud offers is asked for as it is shown, with --json
     to the millisecond.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from phoenix.cli import cloud, environment, printing, sbatch, submit, suggest, tables, units
from phoenix.cli.errors import CliError, in_words, usage
from phoenix.cli.http import Client, query, quote
from phoenix.cli.parser import count, job_id, worded
from phoenix.cli.retrying import ask_again
from schemas.dimensions import DIMENSIONS
from services.domain import text as sentences

VERBS: Final = ("create", "list", "show", "extend", "cancel")
_TIMED: Final = ("--start", "--deadline", "--until", "--by", "--duration", "-t")
SIZES: Final[
    dict[str, tuple[str, str, Callable[[str], int], str, str]]
] = {  # dimension -> long and short option, type, help
    "cores": ("--cores", "-c", count, "N", "cores on each (default 1)"),
    "memory_mb": ("--memory", "", sbatch.memory, "MEM", "memory on each: MiB, or 512M, 4G; 0: all"),
    "gpus": ("--gpus-per-node", "", count, "N", "GPUs on each"),
}
_OPTIONS: Final = {  # of fields of a request
    "duration_s": "--duration",
    "start_at": "--start",
    "deadline_at": "--deadline",
    "until_at": "--until",
    "by_s": "--by",
    **{field: option[0] for field, option in SIZES.items()},
    "nodes": "--nodes",
    "name": "--name",
    "request": "--request",
}
NAME_SHOWN: Final = 24  # characters of a lease's name in the list
HEAD: Final = (
    "LEASE",
    "NAME",
    "DEPARTMENT",
    "USER",
    "KIND",
    "STATE",
    "START",
    "END",
    "NODES",
    "CORES",
    "HOSTS OR REASON",
)
HELP: Final = """examples:
  phoenix lease create --nodes 2 --cores 4 --start +10m --duration 45m      two hosts' cores, in ten minutes
  phoenix lease create job.sh --start 2026-02-03T14:00 --duration 2h        run a script then (times are UTC)
  phoenix lease create --nodes 4 --deadline 18:00 --duration 1h             any hour that is over by then
  phoenix lease create --immediate --duration 30m                           now, or not at all
  phoenix lease create job.sh --best-effort --duration 8h                   when there is room; it makes way
  phoenix lease list                                                        what is reserved and what runs
  phoenix lease extend 17 --by 30m                                          or --until 15:30
  phoenix lease cancel 17                                                   its time is free again

times: 2026-02-03T14:00:00Z, 14:30 (the next, UTC; with --until today's), +10m; durations: 90s, 45m, 2h, H:MM:SS"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verb", choices=VERBS, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", metavar="create|list|show|extend|cancel [SCRIPT [ARGUMENT…] | ID]")
    parser.add_argument(
        "--department", "-d", metavar="D", help="the department (create: default yours, or the only batch one)"
    )
    size = parser.add_argument_group("create: what")
    size.add_argument("--nodes", "-N", type=count, metavar="N", help="different hosts (default 1)")
    for field, (long, short, kind, metavar, text) in SIZES.items():
        size.add_argument(*filter(None, (long, short)), dest=field, type=kind, metavar=metavar, help=text)
    size.add_argument("--exclusive", action="store_true", help="exclusive use of whole hosts")
    size.add_argument("--name", "-J", metavar="NAME", help="default: the script's name, or lease")
    when = parser.add_argument_group("create: when")
    when.add_argument("--duration", "-t", type=worded(_duration), metavar="TIME", help="how long: 45m, 2h")
    when.add_argument("--start", metavar="TIME", help="from this time on; with --deadline: not before")
    when.add_argument("--deadline", metavar="TIME", help="at the earliest time at which it can be over by then")
    when.add_argument("--immediate", action="store_true", help="now, or refused")
    when.add_argument("--best-effort", action="store_true", help="when there is room; it makes way for the others")
    parser.add_argument("--request", metavar="ID", help="create, extend: the same request id is done only once")
    other = parser.add_argument_group("list, extend")
    other.add_argument("--all", action="store_true", help="list: those that have ended too")
    other.add_argument("--by", type=worded(_duration), metavar="TIME", help="extend: by this long")
    other.add_argument("--until", metavar="TIME", help="extend: until this time")


def prepared(argv: list[str]) -> list[str]:
    """The verb as an option: argparse takes words that stand together only, and options may stand between verb and script.
    A time below 0 as its option's value: it is refused with what would be right."""
    found: list[str] = []
    for word in ["--verb", *argv] if argv[:1] and argv[0] in VERBS else argv:
        if found and found[-1] in _TIMED and word[:1] == "-" and word[1:2].isdigit():  # a time, not an option
            found[-1] += f"={word}" if found[-1].startswith("--") else word
        else:
            found.append(word)
    return found


def run(args: argparse.Namespace) -> int:
    words = list(args.words)
    verb = args.verb or (words.pop(0) if words else "")
    if verb not in _RUN:
        hint = suggest.hint(verb, VERBS) if verb else f"phoenix lease {'|'.join(VERBS)}"
        raise usage(f"lease has no {verb!r}" if verb else "lease what?", hint)
    try:
        return _RUN[verb](args, words)
    except CliError as error:
        raise in_words(error, _OPTIONS) from error


# --------------------------------------------------------------------------------------------------------------- changes


def _create(args: argparse.Namespace, words: list[str]) -> int:
    request = _request(args, words, time.time())
    where = cloud.find(args)
    department = where.department(args.department, "batch")
    client = where.member(department) if department else where.operator()
    answer = ask_again(client, query("/v1/leases", department=department), request)
    if args.json:
        printing.json(answer)
        return 0
    print(answer["lease"], flush=True)
    print(f"phoenix: {_promise(answer)}", file=sys.stderr)
    _warn(answer)
    return 0


def _request(args: argparse.Namespace, words: list[str], now: float) -> dict[str, Any]:
    script, *arguments = words or [""]
    if args.duration is None:
        raise usage("how long?", "--duration 45m")
    start, deadline = _whole("--start", args.start, now), _whole("--deadline", args.deadline, now)
    return {
        "request": args.request or os.urandom(12).hex(),
        "name": args.name or (Path(script).name if script else "lease"),
        "kind": _kind(args),
        "duration_s": args.duration,
        "start_at": start,
        "deadline_at": deadline,
        "nodes": args.nodes or 1,
        **{d.field: getattr(args, d.field) or (0 if d.optional else getattr(args, d.field)) for d in DIMENSIONS},
        "cores": args.cores or 1,
        "exclusive": args.exclusive,
        "script": submit.read_script(script, "name a script, or leave it out: the machines are held then")
        if script
        else None,
        "argv": arguments,
        "environment": environment.exported(None, os.environ) if script else {},
    }


def _kind(args: argparse.Namespace) -> str:
    """The one that the options name."""
    timed = ["deadline"] if args.deadline else ["advance"] if args.start else []
    named = timed + ["immediate"] * args.immediate + ["best-effort"] * args.best_effort
    if len(named) != 1:
        told = f"{' and '.join(named)}: one of them" if named else "when?"
        raise usage(told, "--start TIME, --deadline TIME, --immediate or --best-effort")
    return named[0]


def _extend(args: argparse.Namespace, words: list[str]) -> int:
    lease = _id(words, "extend")
    if (args.by is None) == (args.until is None):
        raise usage("how much longer?", f"phoenix lease extend {lease} --by 30m, or --until 15:30")
    now = time.time()
    until = _instant("--until", args.until, now)
    if until is not None and units.is_clock(args.until) and units.day(until) != units.day(now):
        day = units.day(now + 86400)
        told = f"--until: {args.until} has passed today (UTC)"
        raise usage(told, f"of another day write it with the day, such as {day}T{args.until.strip()}")
    request = {"by_s": args.by, "until_at": units.when(until), "request": args.request or os.urandom(12).hex()}
    answer = ask_again(cloud.find(args).operator(), f"/v1/leases/{quote(lease)}/extend", request)
    if args.json:
        printing.json(answer)
        return 0
    print(f"{lease}: until {units.second(answer['end_at'])}" if answer.get("end_at") else f"{lease}: extended")
    _warn(answer)
    return 0


def _cancel(args: argparse.Namespace, words: list[str]) -> int:
    lease = _id(words, "cancel")
    answer = ask_again(cloud.find(args).operator(), f"/v1/leases/{quote(lease)}/cancel", {})
    if args.json:
        printing.json(answer)
    else:
        print(f"{lease}: cancelled")
    return 0


def _id(words: list[str], verb: str) -> str:
    if len(words) != 1:
        raise usage(f"{verb} which lease?", f"phoenix lease {verb} ID; `phoenix lease list` shows them")
    try:
        return job_id(words[0])
    except argparse.ArgumentTypeError as error:
        raise usage(str(error)) from error


def _warn(answer: dict[str, Any]) -> None:
    if answer.get("warning"):
        print(f"phoenix: warning: {answer['warning']}", file=sys.stderr)


def _promise(answer: dict[str, Any]) -> str:
    size = units.count(int(answer["nodes"]), "node")
    if answer.get("start_at") is None:
        return f"lease {answer['lease']}: {size}, when there is room"
    return (
        f"lease {answer['lease']}: {size} from {units.second(answer['start_at'])} to {units.second(answer['end_at'])}"
    )


# ----------------------------------------------------------------------------------------------------------------- reads


def _list(args: argparse.Namespace, words: list[str]) -> int:
    if words:
        raise usage(f"list takes no {words[0]!r}", "phoenix lease list --department D")
    where = cloud.find(args)
    if args.department:
        where.check_department(args.department)
    answer = where.operator().get("/v1/leases", department=args.department, all=1 if args.all else None)
    if args.json:
        printing.json(answer)
    else:
        printing.text(render(answer["leases"]))
    return 0


def render(leases: list[dict[str, Any]]) -> str:
    if not leases:
        return "no leases"
    rows = [
        (
            lease["lease"],
            lease["name"][:NAME_SHOWN],
            lease["department"],
            lease["user"],
            lease["kind"],
            lease["state"],
            units.second(lease.get("start_at") or lease.get("began_at")),
            "-" if _never_began(lease) else units.second(lease.get("ended_at") or lease.get("end_at")),
            str(lease["nodes"]),
            str(lease["cores"]),
            _where(lease),
        )
        for lease in leases
    ]
    return tables.render(HEAD, rows, right="LEASE NODES CORES")


def _where(lease: dict[str, Any]) -> str:
    if lease["hosts"]:
        return ",".join(lease["hosts"])
    if lease["state"] == "ended":
        return (
            f"({lease['ending']} {units.second(lease['ended_at'])})" if _never_began(lease) else f"({lease['ending']})"
        )
    return f"({sentences.short(lease['reason'])})" if lease["state"] in ("waiting", "suspended") else ""


def _never_began(lease: dict[str, Any]) -> bool:
    """True if it was over before its time: it has no end then."""
    end, start = units.seconds(lease.get("ended_at")), units.seconds(lease.get("start_at"))
    return end is not None and start is not None and end < start


def _show(args: argparse.Namespace, words: list[str]) -> int:
    name = _id(words, "show")
    lease = fetch(cloud.find(args).operator(), name)
    if args.json:
        printing.json(lease)
    else:
        print(tables.pairs(pairs(lease)))
    return 0


def fetch(client: Client, name: str) -> dict[str, Any]:
    try:
        return dict(client.get(f"/v1/leases/{quote(name)}"))
    except CliError as error:
        raise CliError(
            error.code, error.message, error.hint or f"`phoenix show {name}` knows jobs and old leases"
        ) from error


_LABELS: Final = (
    ("lease", "lease"),
    ("name", "name"),
    ("kind", "kind"),
    ("state", "state"),
    ("ending", "ending"),
    ("department", "department"),
    ("user", "user"),
    ("nodes", "nodes"),
    *((dimension.field, dimension.label) for dimension in DIMENSIONS),
    ("start_at", "start"),
    ("end_at", "end"),
    ("deadline_at", "deadline"),
    ("began_at", "began"),
    ("ended_at", "ended"),
    ("submitted_at", "accepted"),
)


def pairs(lease: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values, as `show` prints them."""
    found = []
    unsaid = [dimension.field for dimension in DIMENSIONS if not dimension.is_shown(lease.get(dimension.field))]
    for key, label in _LABELS:
        if lease.get(key) is not None and key not in unsaid:
            found.append((label, units.second(lease[key]) if key.endswith("_at") else str(lease[key])))
    found.append(("duration", units.span(lease["duration_s"])))
    if lease["hosts"]:
        found.append(("hosts", ", ".join(lease["hosts"])))
    if lease["preempted"]:
        found.append(("made way", units.count(lease["preempted"], "time")))
    for dimension in DIMENSIONS:
        if dimension.hour and dimension.is_shown(lease.get(dimension.field)):
            used, reserved = (lease.get(f"{dimension.hour}_s_{word}", 0.0) / 3600 for word in ("used", "reserved"))
            found.append((f"{dimension.singular} hours", f"{used:.2f} used of {reserved:.2f}"))
    if lease["state"] in ("waiting", "suspended"):
        found.append(("reason", sentences.sentence(lease["reason"])))
    return found


# ----------------------------------------------------------------------------------------------------------------- words


def _instant(option: str, text: str | None, now: float) -> float | None:
    if text is None:
        return None
    try:
        return units.parse_instant(text, now)
    except ValueError as error:
        raise usage(f"{option}: {error}") from error


def _whole(option: str, text: str | None, now: float) -> str | None:
    """Rule 4."""
    instant = _instant(option, text, now)
    return None if instant is None else units.exact(math.ceil(instant))


def _duration(text: str) -> float:
    seconds = units.parse_time_s(text)
    if seconds <= 0:
        raise ValueError("a time above 0 is needed, such as 45m")
    return seconds


_RUN: Final[dict[str, Callable[[argparse.Namespace, list[str]], int]]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "extend": _extend,
    "cancel": _cancel,
}
