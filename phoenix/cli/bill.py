"""`phoenix bill`: the bill of each department, by a price table; each line leads to its job.

Rules
  1. Whole days (UTC).  Of days that are over it is the same whenever it is asked for, by the same table, whose digest is shown.
  2. A period that is not over is billed so far, and says until when, and that it will change.
  3. The table is the organisation's, which the monitor serves; `--prices` takes another one: what would it cost?
  4. What the table has no price for is reported, not left out silently.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.billing.bill import DAY_MS, HOUR_MS, Bill, Line, of_day
from phoenix.cli import cloud, files, printing, tables, units
from phoenix.cli.errors import FAILED, CliError
from phoenix.cli.errors import usage as mistyped
from phoenix.cli.http import Client
from phoenix.cli.period import instant
from services.runtime.config import prices as price_table
from services.runtime.config.prices import NAMES, Prices

BY: Final = {
    "department": ("department", "name"),
    "user": ("department", "user", "name"),
    "service": ("department", "service", "name"),
    "job": ("department", "unit", "name"),
    "day": ("day", "department"),
}
COLUMNS: Final = ("day", "so_far", *NAMES, "unit", "per", "price", "hours", "rate", "amount", "currency")
DAYS_MAX: Final = 3660
HELP: Final = """examples:
  phoenix bill                                                      this month, so far
  phoenix bill --since 2026-11-01 --until 2026-12-01 --by user      a month that is over: always the same
  phoenix bill --since 7d --department hpc --csv > lines.csv
  phoenix bill --prices dearer.toml                                 what would it cost by these prices?

The organisation's price table is the file that [billing] prices names in the configuration; one to begin with:
deploy/prices.toml. How it is read: docs/reference/billing.md"""


class Asked(msgspec.Struct):
    """The days of a bill (beginnings, milliseconds), its prices, and what they are called."""

    days: range
    prices: Prices
    table: str
    so_far: dict[int, float] = {}  # of days that are not over, by their beginning: until when (UTC seconds)

    @property
    def until(self) -> float | None:
        """Rule 2; None: the whole period is over."""
        return max(self.so_far.values(), default=None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices", type=files.named, metavar="FILE", help="this price table (TOML) instead of the organisation's"
    )
    parser.add_argument("--department", "-d", metavar="D", help="only this department")
    parser.add_argument("--since", metavar="DAY", help="from the beginning of that day (default: of this month), UTC")
    parser.add_argument("--until", metavar="DAY", help="up to the beginning of that day (default: until now)")
    parser.add_argument("--by", choices=tuple(BY), default="department", help="group by (default: department)")
    parser.add_argument("--csv", action="store_true", help="every line, as CSV")


def run(args: argparse.Namespace) -> int:
    days = period(args.since, args.until, time.time())
    local = _local(args.prices) if args.prices else None
    where = cloud.find(args)
    client, bill = where.operator(), Bill()
    prices, table = local or _served(client)
    asked, began = Asked(days, prices, table), 0.0
    for day in days:
        told = client.get("/v1/billable", day=units.exact(day / 1000), department=args.department)
        bill.add(of_day(prices, told))
        began = units.seconds(told["began"]) or 0.0
        if not told["over"]:
            asked.so_far[day] = units.seconds(told["until"]) or 0.0
    if args.department and not bill.lines and not bill.unpriced_ms:
        where.check_department(args.department)  # not before: one that was removed has its past
    for note in _notes(bill, asked, began, in_head=not (args.json or args.csv)):
        print(f"phoenix: {note}", file=sys.stderr)
    if args.json:
        printing.json(_plain(bill, asked))
    elif args.csv:
        printing.table(COLUMNS, (_row(line, asked) for line in bill.lines))
    else:
        printing.text(render(bill, asked, args.by))
    return 0


def _local(file: Path) -> tuple[Prices, str]:
    try:
        found = price_table.load(file)
    except price_table.Unusable as error:
        raise CliError(FAILED, f"{file} has problems:\n{error}") from None
    return found, f"{file.name} ({found.digest()})"


def _served(client: Client) -> tuple[Prices, str]:
    told = client.get("/v1/prices")
    return msgspec.convert(told["prices"], Prices), f"{told['file']} ({told['digest']})"


def _notes(bill: Bill, asked: Asked, began: float, *, in_head: bool) -> list[str]:
    """For standard error: what a reader of the sums alone would not see.  `in_head`: that it is so far is said there."""
    found = []
    if bill.unpriced_ms:  # rule 4
        found.append(f"no price matches {_hours(bill.unpriced_ms)} core-hours that were used; they cost nothing here")
    if asked.days.stop / 1000 <= began:
        found.append(f"there is no data for that time: the cloud began at {units.iso(began)}")
    if (until := asked.until) is not None and not in_head:
        found.append(f"this bill is so far, until {units.iso(until)}: it will change")
    return found


def period(since_text: str | None, until_text: str | None, now: float) -> range:
    """Beginnings of the days, milliseconds, up to the one that runs (rule 2)."""
    today = int(now * 1000) // DAY_MS * DAY_MS
    month = datetime.fromtimestamp(today / 1000, UTC).replace(day=1)
    since = _day("--since", since_text, now) if since_text else int(month.timestamp()) * 1000
    until = _day("--until", until_text, now) if until_text else today + DAY_MS
    if since > today:
        raise mistyped(f"--since {since_text} is to come", "it lies in the future: there is no data yet")
    if until <= since:
        raise mistyped(
            f"there is no day from {_text(since)} to {_text(until)} (UTC)", "--until names a day after that of --since"
        )
    if since < 0 or until - since > DAYS_MAX * DAY_MS:
        hint = f"a bill is of days since 1970, at most {DAYS_MAX}"
        raise mistyped(f"from {_text(since)} to {_text(until)} (UTC) is too long ago, or too long", hint)
    return range(since, min(until, today + DAY_MS), DAY_MS)


def _day(option: str, text: str, now: float) -> int:
    return int(instant(option, text, now) * 1000) // DAY_MS * DAY_MS


def _text(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def _hours(quantity_ms: int) -> str:
    """Four digits, for people; amounts are of the exact quantity."""
    return f"{quantity_ms / HOUR_MS:.4f}"


def _head(asked: Asked) -> str:
    """Which days, in what, by which table, and whether that is the last word (rule 2)."""
    days, currency = asked.days, asked.prices.currency or "units of the table"
    head = f"{_text(days.start)} to {_text(days.stop)} (UTC), in {currency}, by {asked.table}"
    if asked.until is None:
        return head
    day = _text(max(asked.so_far))
    return f"{head}\nSo far, until {units.iso(asked.until)}: this bill will change until {day} is over and closed."


def render(bill: Bill, asked: Asked, by: str) -> str:
    """Rows by `by`, a total of each department, and of all."""
    if not bill.lines:
        return f"{_head(asked)}\nNothing was used that has a price."
    sums: dict[tuple[str, ...], tuple[int, Decimal]] = {}
    for line in bill.lines:
        key = tuple(_text(line.day) if name == "day" else str(getattr(line, name)) for name in BY[by])
        quantity, amount = sums.get(key, (0, Decimal(0)))
        sums[key] = quantity + line.quantity_ms, amount + line.amount
    rows = [(*key, "" if by == "day" else _hours(q), str(amount)) for key, (q, amount) in sorted(sums.items())]
    departments = sorted({line.department for line in bill.lines})
    blank = ("",) * (len(BY[by]) - 1)
    rows += [(f"total {dept}", *blank, "", str(bill.total(dept))) for dept in departments]
    if len(departments) > 1:
        rows.append(("total", *blank, "", str(bill.total())))
    titles = tuple({"name": "WHAT", "unit": "JOB"}.get(name, name.upper()) for name in BY[by])
    return f"{_head(asked)}\n\n" + tables.render((*titles, "HOURS", "AMOUNT"), rows, right="HOURS AMOUNT")


def _row(line: Line, asked: Asked) -> dict[str, Any]:
    so_far = asked.so_far.get(line.day)
    return {
        **{name: getattr(line, name) for name in (*NAMES, "unit", "per")},
        "day": _text(line.day),
        "so_far": "" if so_far is None else units.exact(so_far),
        "price": line.name,
        "quantity_ms": line.quantity_ms,
        "hours": _hours(line.quantity_ms),
        "rate": line.rate,
        "amount": str(line.amount),
        "currency": asked.prices.currency,
    }


def _plain(bill: Bill, asked: Asked) -> dict[str, Any]:
    departments = sorted({line.department for line in bill.lines})
    return {
        "since": _text(asked.days.start),
        "until": _text(asked.days.stop),
        "so_far": None if asked.until is None else units.exact(asked.until),
        "prices": asked.table,
        "currency": asked.prices.currency,
        "lines": [_row(line, asked) for line in bill.lines],
        "departments": {name: str(bill.total(name)) for name in departments},
        "total": str(bill.total()),
        "unpriced_core_ms": bill.unpriced_ms,
    }
