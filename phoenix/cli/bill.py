"""`phoenix bill`: what departments owe for what they had, by a price table; each line leads to its job.

Rules
  1. Whole days (UTC) that are over: such a bill does not change any more, but for a late report of a job whose host was taken.
  2. What the table has no price for is told, not left out silently.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from phoenix.billing import prices as price_table
from phoenix.billing.bill import DAY_MS, HOUR_MS, Bill, Line, of_day
from phoenix.billing.prices import Prices
from phoenix.cli import cloud, emit, tables
from phoenix.cli.errors import FAILED, CliError
from phoenix.cli.errors import usage as mistyped
from phoenix.cli.period import instant

BY: Final = {
    "department": ("department", "name"),
    "user": ("department", "user", "name"),
    "service": ("department", "service", "name"),
    "job": ("department", "unit", "name"),
    "day": ("day", "department"),
}
COLUMNS: Final = (
    *("day", "department", "user", "service", "lease", "quality", "unit", "per", "price", "hours", "rate", "amount"),
    "currency",
)
DAYS_MAX: Final = 3660
HELP: Final = """examples:
  phoenix bill --prices prices.toml                                 this month, up to yesterday
  phoenix bill --prices prices.toml --since 2026-11-01 --until 2026-12-01 --by user
  phoenix bill --prices prices.toml --since 7d --department hpc --csv > lines.csv

A price table to begin with: deploy/prices.toml. How it is read: docs/billing.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prices", type=Path, required=True, metavar="FILE", help="the price table (TOML)")
    parser.add_argument("--department", "-d", metavar="D", help="only this department")
    parser.add_argument("--since", metavar="DAY", help="from the beginning of that day (default: of this month), UTC")
    parser.add_argument("--until", metavar="DAY", help="up to the beginning of that day (default: today)")
    parser.add_argument("--by", choices=tuple(BY), default="department", help="one row for each (default: department)")
    parser.add_argument("--csv", action="store_true", help="every line, as CSV")


def run(args: argparse.Namespace) -> int:
    try:
        prices = price_table.load(args.prices)
    except price_table.Unusable as error:
        raise CliError(FAILED, f"{args.prices} has problems:\n{error}") from None
    days = period(args.since, args.until, time.time())
    where = cloud.find(args)
    client, bill = where.operator(), Bill()
    for day in days:
        part = of_day(prices, client.get("/v1/billable", day=day / 1000, department=args.department))
        bill.lines += part.lines
        bill.unpriced_ms += part.unpriced_ms
    if args.department and not bill.lines and not bill.unpriced_ms:
        where.check_department(args.department)  # not before: one that was removed has its past
    if bill.unpriced_ms:
        used = _hours(bill.unpriced_ms)
        print(f"phoenix: no price fits {used} core-hours that were used; they cost nothing here", file=sys.stderr)
    if not bill.lines and not args.until:
        print(f"phoenix: {_not_over(days.stop)}", file=sys.stderr)
    if args.json:
        emit.json(_plain(bill, prices, days))
    elif args.csv:
        _write_csv(bill, prices)
    else:
        print(render(bill, prices, args.by, days))
    return 0


def period(since_text: str | None, until_text: str | None, now: float) -> range:
    """Beginnings of the days, milliseconds (rule 1)."""
    today = int(now * 1000) // DAY_MS * DAY_MS
    month = datetime.fromtimestamp(today / 1000, UTC).replace(day=1)
    since = _day(since_text, now) if since_text else int(month.timestamp()) * 1000
    until = _day(until_text, now) if until_text else today
    if until > today or since >= today:
        last = f"for the last day that is: --since {_text(today - DAY_MS)} --until {_text(today)}"
        raise mistyped(f"a bill is of days that are over, and {_not_over(today)}", last)
    if until <= since:
        raise mistyped(
            f"there is no day from {_text(since)} to {_text(until)} (UTC)", "--until names a day after that of --since"
        )
    if until - since > DAYS_MAX * DAY_MS:
        raise mistyped(f"more than {DAYS_MAX} days")
    return range(since, until, DAY_MS)


def _day(text: str, now: float) -> int:
    return int(instant(text, now) * 1000) // DAY_MS * DAY_MS


def _not_over(today: int) -> str:
    return f"today, {_text(today)} (UTC), is not over: its bill is possible from {_text(today + DAY_MS)} on"


def _text(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def _hours(quantity_ms: int) -> str:
    """Four digits, for people; amounts are of the exact quantity."""
    return f"{quantity_ms / HOUR_MS:.4f}"


def render(bill: Bill, prices: Prices, by: str, days: range) -> str:
    """Rows by `by`, a total of each department, and of all."""
    head = f"{_text(days.start)} to {_text(days.stop)} (UTC), in {prices.currency or 'units of the table'}"
    if not bill.lines:
        return f"{head}: nothing was used that has a price"
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
    return f"{head}\n\n" + tables.render((*titles, "HOURS", "AMOUNT"), rows, right="HOURS AMOUNT")


def _row(line: Line, prices: Prices) -> dict[str, Any]:
    return {
        **{name: getattr(line, name) for name in ("department", "user", "service", "lease", "quality", "unit", "per")},
        "day": _text(line.day),
        "price": line.name,
        "quantity_ms": line.quantity_ms,
        "hours": _hours(line.quantity_ms),
        "rate": line.rate,
        "amount": str(line.amount),
        "currency": prices.currency,
    }


def _plain(bill: Bill, prices: Prices, days: range) -> dict[str, Any]:
    departments = sorted({line.department for line in bill.lines})
    return {
        "since": _text(days.start),
        "until": _text(days.stop),
        "currency": prices.currency,
        "lines": [_row(line, prices) for line in bill.lines],
        "departments": {name: str(bill.total(name)) for name in departments},
        "total": str(bill.total()),
        "unpriced_core_ms": bill.unpriced_ms,
    }


def _write_csv(bill: Bill, prices: Prices) -> None:
    emit.table(COLUMNS, (_row(line, prices) for line in bill.lines))
