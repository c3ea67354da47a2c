"""A bill: lines of one UTC day each, by job or instance and price, from what the monitor says of the day (`/v1/billable`).

Theory of operation
  What was had is cut at full hours; each hour's price is looked up; hours of one job under one price on one day are one line.
  Quantities are whole milliseconds and prices decimals, so an amount is an exact fraction, and is rounded once, in its line.

Rules
  1. Only lines are rounded: totals are sums of lines, so a bill adds up.  A line never spans two days, so a period cut in two
     at a midnight (UTC) is the sum of its parts, to the last digit.
  2. Rounding is half to even, to the table's digits.
  3. Every line names what it is for: the job, element, instance, or the department whose hosts they are.
  4. A credit is a line with a minus: hosts lent, and work lost because a host was needed by another.  What turned out saved
     later is charged back, at the price of the hour of the loss, on the day on which that is known.
  5. A held host is within its department's own or beyond it: own and borrowed host-hours add up to those held.
  6. What a department is charged for a day on which it is charged anything is at least the `least_of_day` that fits: the rest
     is a line of its own.  Credits come off that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from schemas import units
from services.runtime.config.prices import BESIDE, CREDITS, NAMES, USED, Prices

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LEAST: Final = "least_of_day"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """`quantity_ms`: core- or host-milliseconds; `day`: its beginning, milliseconds; `price`: number in the table, from 0."""

    day: int
    department: str
    kind: str = ""
    user: str = ""
    service: str = ""
    lease: str = ""
    quality: str = ""
    unit: str = ""
    per: str
    price: int
    name: str
    quantity_ms: int
    rate: str
    amount: Decimal


class Bill(msgspec.Struct, kw_only=True):
    """`unpriced_ms`: core-milliseconds used that no price fits."""

    lines: list[Line] = []
    unpriced_ms: int = 0

    def add(self, other: Bill) -> None:
        self.lines += other.lines
        self.unpriced_ms += other.unpriced_ms

    def total(self, department: str | None = None) -> Decimal:
        return sum((x.amount for x in self.lines if department in (None, x.department)), Decimal(0))


def of_day(prices: Prices, told: dict[str, Any]) -> Bill:
    """The bill of one day; `told`: what the monitor says of it."""
    day = milliseconds(told["day"])
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    bill = Bill()
    for some, unit, pers, hour, cores_ms, hosts_ms in _pieces(told):
        of = {**some, "kind": told["kinds"].get(some["department"], "")}
        number = prices.first(pers, of, hour)
        if number is None:
            bill.unpriced_ms += cores_ms if pers == USED else 0
            continue
        amount_ms = hosts_ms if "host" in prices.price[number].per else cores_ms
        key = (*(of.get(name, "") for name in NAMES), unit, str(number))
        sums[key] = number, sums.get(key, (number, 0))[1] + amount_ms
    for key, (number, quantity) in sorted(sums.items()):
        if quantity:
            bill.lines.append(_line(prices, day, key, number, quantity))
    bill.lines += _least(prices, day, bill.lines)
    return bill


def _pieces(told: dict[str, Any]) -> Iterator[tuple[dict[str, str], str, tuple[str, ...], int, int, int]]:
    """(of whom, unit, kinds of price, hour, milliseconds of cores or of what has a price beside them, host-milliseconds)."""
    for a in told["attempts"]:
        hosts = len(a["hosts"])
        for hour, length in hours(milliseconds(a["from_at"]), milliseconds(a["until_at"])):
            yield a, a["unit"], USED, hour, a["cores"] * length, hosts * length
            for per, field in BESIDE.items():
                if a[field]:
                    yield a, a["unit"], (per,), hour, a[field] * length, 0
    for loss in told["losses"]:
        hour = milliseconds(loss["at"]) // HOUR_MS * HOUR_MS
        yield loss, loss["unit"], ("lost_core_hour",), hour, round(loss["core_s"] * 1000), 0
    for had in told["holding"]:
        of, hour = {"department": had["department"]}, milliseconds(had["begin_at"])
        held, borrowed, lent = (round(had[name] * 1000) for name in ("held_s", "borrowed_s", "lent_s"))
        yield of, "", ("own_host_hour",), hour, 0, held - borrowed  # rule 5
        yield of, "", ("borrowed_host_hour",), hour, 0, borrowed
        yield of, "", ("lent_host_hour",), hour, 0, lent


def milliseconds(at: str) -> int:
    """Of a time as answers have it."""
    return round((units.seconds(at) or 0.0) * 1000)


def hours(since: int, until: int) -> Iterator[tuple[int, int]]:
    """The span cut at full hours: (beginning of the hour, milliseconds in it)."""
    while since < until:
        hour = since // HOUR_MS * HOUR_MS
        end = min(until, hour + HOUR_MS)
        yield hour, end - since
        since = end


def _line(prices: Prices, day: int, key: tuple[str, ...], number: int, quantity: int) -> Line:
    price = prices.price[number]
    return Line(
        day=day,
        **dict(zip((*NAMES, "unit"), key, strict=False)),
        per=price.per,
        price=number,
        name=price.name or price.per,
        quantity_ms=quantity,
        rate=price.amount,
        amount=rounded(price.rate * quantity / HOUR_MS, prices.digits),
    )


def rounded(amount: Fraction, digits: int) -> Decimal:
    """Half to even (rule 2); exact."""
    return Decimal(round(amount * 10**digits)).scaleb(-digits)


def _least(prices: Prices, day: int, lines: Iterable[Line]) -> list[Line]:
    """Rule 6."""
    sums: dict[tuple[str, str], Decimal] = {}
    for line in lines:
        if line.per not in CREDITS:
            sums[line.department, line.kind] = sums.get((line.department, line.kind), Decimal(0)) + line.amount
    found = []
    for (dept, kind), amount in sorted(sums.items()):
        number = prices.first((LEAST,), {"department": dept, "kind": kind}, day)
        if number is None:
            continue
        key = (dept, kind, *("",) * (len(NAMES) - 1), str(number))
        line = _line(prices, day, key, number, 0)
        rest = rounded(prices.price[number].rate, prices.digits) - amount
        if rest > 0:
            found.append(msgspec.structs.replace(line, amount=rest))
    return found
