"""`phoenix usage`: who held and used how much of the cluster, who lent it, and what preemption cost.

Rules
  1. Sums are kept by the hour, and by the day of what is older than the history's details: the period that is shown may be a
     little longer than the one asked for, and the first line says which it is.
  2. Host-hours of departments, and those that none held, add up to all host-hours; used core-hours of the rows to the total.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from phoenix.cli import cloud, printing, tables, units
from phoenix.cli.period import add_span, span
from phoenix.cli.queue import shown
from schemas.dimensions import DIMENSIONS

BY: Final = ("department", "user", "service", "lease")
HELP: Final = """examples:
  phoenix usage                                    every department, since the beginning
  phoenix usage --since 24h                        the last day
  phoenix usage --by user --department hpc         who used it
  phoenix usage --by service --department hpc      shares granted and used (order svmsched)
  phoenix usage --since 2026-11-01 --until 2026-12-01 --by user --csv > november.csv"""
HOST_HEAD: Final = (
    "OF HOST-HOURS",
    "OWN",
    "HELD",
    "%",
    "OCCUPIED",
    "IDLE",
    "DRAINING",
    "LENT",
    "BORROWED",
    "TAKEN BACK",
)
CORE_HEAD: Final = ("OF CORE-HOURS", "USED", "%", "LOST", "FAILED", "JOBS", "ENDED", "PREEMPTED", "MEAN WAIT")
_MEANINGS: Final = {
    "(production)": "production of its own",
    "(no claimant)": "no department: a window, hosts taken out of use, or a changed configuration",
    "(batch_share)": "other batch departments, by guarantee or weight",
    "(web_share)": "other web departments, by priority, guarantee or weight",
    "(window)": "another guarantee or maximum at that hour",
    "(cordoned)": "hosts taken out of use",
    "(lending)": "a lender that had its own hosts back",
    "(department_removed)": "its removal from the configuration",
    "(idle_to_batch)": "other batch departments, by guarantee or weight",
}
_OPTIONAL: Final = {
    f"used_{d.hour}_s": d.hour for d in DIMENSIONS if d.optional and d.hour
}  # columns where anybody used it
_HOURS_S: Final = 3600.0
_DIGITS: Final = ((10, 4), (100, 3), (1_000, 2), (100_000, 1))  # below this many core-hours in all: digits
Form: TypeAlias = Callable[[float], str]  # seconds -> hours, with as many digits as the whole table has


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=BY, default="department", help="group by (default: department)")
    parser.add_argument("--department", "-d", metavar="D", help="only this department")
    add_span(parser)
    parser.add_argument("--csv", action="store_true", help="the rows as CSV, in seconds")


def run(args: argparse.Namespace) -> int:
    since, until = span(args.since, args.until, time.time())
    where = cloud.find(args)
    asked = {"by": args.by, "department": args.department, "since": units.when(since), "until": units.when(until)}
    answer = where.operator().get("/v1/usage", **asked)
    if args.department and not any(one["held_s"] or one["submitted"] for one in answer["departments"]):
        where.check_department(args.department)  # not before: one that was removed has its past
    if note := _before(answer, until) or _rounded(answer, since, until):
        print(f"phoenix: {note}", file=sys.stderr)
    if args.json:
        printing.json(answer)
    elif args.csv:
        _write_csv(answer)
    else:
        printing.text(render(answer))
    return 0


def _before(answer: dict[str, Any], until: float | None) -> str:
    """A period before everything."""
    began = _at(answer, "began")
    return f"the cloud began at {units.iso(began)}" if until is not None and until <= began else ""


def _rounded(answer: dict[str, Any], since: float | None, until: float | None) -> str:
    """Rule 1, if the period is longer than the one asked for."""
    parts = []
    first, last = _at(answer, "since"), _at(answer, "until")
    if since is not None and first < since - 1.0:
        parts.append(f"begins at {units.iso(first)}, not at {units.iso(since)}")
    if until is not None and last > until + 1.0:
        parts.append(f"ends at {units.iso(last)}, not at {units.iso(until)}")
    kept = "sums are kept by the hour, and by the day where they are old"
    return f"{kept}: this {' and '.join(parts)}" if parts else ""


# ------------------------------------------------------------------------------------------------------------------ tables


def render(answer: dict[str, Any]) -> str:
    if _at(answer, "until") <= _at(answer, "since"):
        return "there is no data for that time"
    hours = _form(answer["site"]["cores_s"])
    parts = [_sentence(answer, hours)]
    if answer["by"] == "department":
        parts.append(_hosts(answer, hours))
    parts.append(_cores(answer, hours))
    if answer["by"] == "service":
        parts += _shares(answer["rows"])
    parts += _remarks(answer, hours)
    return "\n\n".join(part for part in parts if part)


def _sentence(answer: dict[str, Any], hours: Form) -> str:
    """The period and the capacity."""
    since, until, site = _at(answer, "since"), _at(answer, "until"), answer["site"]
    seconds, usable = until - since, _there(site)
    hosts, cores = usable / seconds, site["cores_s"] / seconds
    return (
        f"{units.iso(since)} to {units.iso(until)} ({units.span(seconds)}): {_number(hosts)} hosts with {_number(cores)} cores"
        f" on average, {hours(usable)} host-hours and {hours(site['cores_s'])} core-hours."
        + (f"\nPercent of core-hours are of what {answer['department']} held." if answer["department"] else "")
    )


def _there(site: dict[str, Any]) -> float:
    """Seconds of hosts that could be held: what the sentence says, the total adds up to and percentages are of."""
    return float(site["hosts_s"] - site["lost_s"] - site["absent_s"])


def _hosts(answer: dict[str, Any], hours: Form) -> str:
    """Who held the hosts; below the total those that no department could hold."""
    site, departments = answer["site"], answer["departments"]
    whole = _there(site)
    rows: list[tuple[str, ...]] = []
    for one in departments:
        back = one["hosts_given_back"] + one["hosts_seized"]
        seized = f" ({one['hosts_seized']} seized)" if one["hosts_seized"] else ""
        rows.append(
            (
                one["department"],
                hours(one["own_s"]),
                hours(one["held_s"]),
                _percent(one["held_s"], whole),
                hours(one["occupied_s"]),
                hours(one["idle_s"]),
                hours(one["draining_s"]),
                hours(one["lent_s"]),
                hours(one["borrowed_s"]),
                units.count(back, "host") + seized if back else "",
            )
        )
    if answer["department"] is None:
        blank = ("",) * 5
        draining = sum(one["draining_s"] for one in departments)
        others = [("(draining)", draining), ("(free)", site["free_s"])]
        away = [("(lost)", site["lost_s"]), ("(absent)", site["absent_s"])]
        rows += [(name, "", hours(s), _percent(s, whole), *blank, "") for name, s in others if s or name == "(free)"]
        sums = [sum(one[key] for one in departments) for key in ("own_s", "occupied_s", "idle_s", "draining_s")]
        lent, borrowed = (sum(one[key] for one in departments) for key in ("lent_s", "borrowed_s"))
        held = sum(one["held_s"] for one in departments) + sum(s for _, s in others)
        total = ("total", hours(sums[0]), hours(held), _percent(held, whole), *map(hours, sums[1:]))
        rows.append((*total, hours(lent), hours(borrowed), ""))
        rows += [(name, "", hours(s), "", *blank, "") for name, s in away if s]
    return tables.render(HOST_HEAD, rows, right="OWN HELD % OCCUPIED IDLE DRAINING LENT BORROWED")


def _cores(answer: dict[str, Any], hours: Form) -> str:
    """Who used the cores; what is optional too, where anybody did."""
    by, departments = answer["by"], answer["departments"]
    whole = answer["site"]["cores_s"] if answer["department"] is None else sum(d["held_core_s"] for d in departments)
    some = departments if by == "department" else answer["rows"]
    several = by != "department" and len({row["department"] for row in some}) > 1
    total = _sum(departments)
    rows: list[tuple[str, ...]] = [_work(_name(one, by, several), one, whole, hours) for one in some]
    if len(some) != 1:
        rows.append(_work("total", total, whole, hours))
    head: tuple[str, ...] = CORE_HEAD
    more = {key: f"{hour.upper()}-HOURS" for key, hour in _OPTIONAL.items() if total[key]}
    for key, title in more.items():
        head = (*head, title)
        own = [hours(one[key]) for one in [*some, total]]
        rows = [(*row, amount) for row, amount in zip(rows, own, strict=False)]
    return tables.render(head, rows, right=" ".join(("USED % LOST FAILED JOBS PREEMPTED", *more.values())))


def _name(one: dict[str, Any], by: str, several: bool) -> str:
    nobody = {"user": "(instances)", "service": "(no service)", "lease": "(no lease)"}
    name = one[by] or nobody.get(by, "-")
    return f"{one['department']}/{name}" if several else str(name)


def _work(name: str, one: dict[str, Any], whole: float, hours: Form) -> tuple[str, ...]:
    wait = one["mean_wait_s"]
    return (
        name,
        hours(one["used_core_s"]),
        _percent(one["used_core_s"], whole),
        hours(one["lost_core_s"]),
        hours(one["failed_core_s"]),
        str(one["submitted"]),
        ", ".join(f"{count} {shown(end)}" for end, count in one["ended"].items()) or "-",
        str(one["preempted"]),
        "-" if wait is None else units.span(wait) if wait >= 10 else f"{wait:.1f}s",
    )


def _sum(some: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("used_core_s", "lost_core_s", "failed_core_s", *_OPTIONAL, "submitted", "preempted", "started")
    total: dict[str, Any] = {key: sum(one[key] for one in some) for key in keys}
    waited = sum((one["mean_wait_s"] or 0.0) * one["started"] for one in some)
    ends: dict[str, int] = {}
    for one in some:
        for end, count in one["ended"].items():
            ends[end] = ends.get(end, 0) + count
    return total | {"mean_wait_s": waited / total["started"] if total["started"] else None, "ended": ends}


def _shares(rows: list[dict[str, Any]]) -> list[str]:
    """Of each department with services: granted, used, lent, borrowed, in percent of what it held."""
    found = []
    for dept in dict.fromkeys(row["department"] for row in rows if "granted_pct" in row):
        mine = [row for row in rows if row["department"] == dept]
        keys = ("granted_pct", "usage_pct", "lent_pct", "borrowed_pct")
        lines = [(_name(row, "service", False), *(f"{row[key]:.2f}" for key in keys)) for row in mine]
        lines.append(("total", *(f"{sum(row[key] for row in mine):.2f}" for key in keys)))
        head = (f"SHARES OF {dept}, %", "GRANTED", "USED", "LENT", "BORROWED")
        found.append(tables.render(head, lines, right="GRANTED USED LENT BORROWED"))
    return found


def _remarks(answer: dict[str, Any], hours: Form) -> list[str]:
    lines = []
    for one in answer["departments"]:
        for to, seconds in one["lost_to"].items():
            lines.append(f"{one['department']} lost {hours(seconds)} core-hours of work to {_claimant(to)}.")
        recovered = one["recovered_core_s"]
        if recovered:
            lines.append(
                f"{one['department']}: {hours(recovered)} core-hours counted as lost before turned out done or saved."
            )
    if answer["rows_left_out"]:
        lines.append(f"{answer['rows_left_out']} smaller rows are not shown; the total has them.")
    return ["\n".join(lines)] if lines else []


def _claimant(to: str) -> str:
    """Who has what was lost: a department's name, else what the reason of the notice means."""
    return _MEANINGS.get(to, to)


def _write_csv(answer: dict[str, Any]) -> None:
    """Rows of the chosen kind, in seconds; columns are the keys of --json."""
    rows: list[dict[str, Any]] = answer["departments"] if answer["by"] == "department" else answer["rows"]
    period = {name: answer[name] for name in ("since", "until")}
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["department"]
    flat = ({key: _flat(value) for key, value in row.items()} for row in rows)
    printing.table([*period, *columns], (period | row for row in flat))


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return " ".join(f"{name}={number}" for name, number in value.items())
    return value


# ----------------------------------------------------------------------------------------------------------------- numbers


def _at(answer: dict[str, Any], name: str) -> float:
    """A time of the answer, UTC seconds."""
    return units.seconds(answer[name]) or 0.0


def _form(whole_s: float) -> Form:
    """Digits for a table with this sum of core-seconds: the smallest part that matters is still seen."""
    digits = next((digits for limit, digits in _DIGITS if whole_s < limit * _HOURS_S), 0)
    return lambda seconds: f"{seconds / _HOURS_S:,.{digits}f}" if seconds else "0"


def _number(value: float) -> str:
    """Of hosts and cores on average: whole if it is."""
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
