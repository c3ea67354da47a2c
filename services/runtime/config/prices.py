"""The price table: a TOML file with a currency and `[[price]]` tables, named by `[billing] prices` or by the request.

    currency = "EUR"
    digits = 4                      # of an amount; lines are rounded to them, half to even

    [[price]]
    name = "core-hours by day"
    per = "core_hour"               # what it is the price of: `Per`
    amount = "0.050"                # a decimal in quotes: binary fractions are no prices
    department = "hpc"              # kind (batch or web), user, service, lease (its kind, or "none"), quality likewise
    from = 2026-11-01               # from the beginning of that day (UTC) …
    until = 2027-01-01              # … to the beginning of that one
    windows = ["Mon-Fri 08:00-18:00"]
    windows_zone = "UTC+01:00"

Rules
  1. Of the prices that fit, the first of the file counts: one of `core_hour` and `host_hour` for an attempt, one of
     `gpu_hour` for its GPUs beside it (and so for each of `BESIDE`), one for a loss, one for a host within its department's
     own, beyond it, or lent, one for the least of a day.  What no price fits costs nothing, and is reported.
  2. A price changes by a date: the old one gets `until`, the new one `from`.  So what was billed stays what it was.
  3. A window is looked up at the beginning of each full hour (UTC), so windows begin and end with full hours there.
  4. All problems of the file are reported at once, as of the configuration: file, line, key, price, value, what would be
     right.  A key that can never fit what the price is of is wrong: that price would never apply.
  5. An amount is digits with at most `DECIMALS_MAX` decimals: a power of ten would be read, and its fraction fill the memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from schemas.dimensions import DIMENSIONS
from services.domain import windows
from services.domain.scaling import ZONE_ANY_H, Unreadable, offset_s
from services.runtime.config import file as config
from services.runtime.config.file import ConfigError
from services.runtime.config.form import Form, Lines, Path_, Problem, shown

USED: Final = ("core_hour", "host_hour")
BESIDE: Final = {f"{d.hour}_hour": d.field for d in DIMENSIONS if d.hour and d.optional}  # price -> what it is of
CREDITS: Final = ("lent_host_hour", "lost_core_hour")
Per = Literal[
    "core_hour",
    "gpu_hour",
    "host_hour",
    "own_host_hour",
    "borrowed_host_hour",
    "lent_host_hour",
    "lost_core_hour",
    "least_of_day",
]
PER: Final = get_args(Per)
NAMES: Final = ("department", "kind", "user", "service", "lease", "quality")
OF_JOBS: Final = ("user", "service", "lease", "quality")  # a department's hosts have none of them
PER_JOB: Final = (*USED, *BESIDE, "lost_core_hour")
DIGITS_MAX: Final = 6
PRICES_MAX: Final = 1000
AMOUNT_MAX: Final = Decimal(10) ** 9
DECIMALS_MAX: Final = 12
_DECIMAL: Final = re.compile(rf"[0-9]+(\.[0-9]{{1,{DECIMALS_MAX}}})?", re.ASCII)
DIGEST_CHARS: Final = 12  # enough to tell two tables apart


class Unusable(Exception):
    """The file cannot be used: `str()` says everything that is wrong, one a line."""


class Price(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from"}):
    per: Per
    amount: str
    name: str = ""
    department: str | None = None
    kind: Literal["batch", "web"] | None = None
    user: str | None = None
    service: str | None = None
    lease: Literal["advance", "deadline", "immediate", "best-effort", "none"] | None = None
    quality: str | None = None
    since: date | None = None
    until: date | None = None
    windows: tuple[str, ...] = ()
    windows_zone: str = "UTC"

    @property
    def rate(self) -> Fraction:
        """Of an hour; of a credit negative."""
        sign = -1 if self.per in CREDITS else 1
        return sign * Fraction(Decimal(self.amount))

    def fits(self, of: dict[str, str], hour: int) -> bool:
        """`of`: department, kind, user, service, lease, quality; `hour`: its beginning, milliseconds."""
        for key in NAMES:
            wanted = getattr(self, key)
            if wanted is not None and wanted != (of.get(key) or ("none" if key == "lease" else "")):
                return False
        if (self.since and hour < _ms(self.since)) or (self.until and hour >= _ms(self.until)):
            return False
        if not self.windows:
            return True
        return windows.calendar(self.windows, self.windows_zone).open_at(hour / 1000) is not None


def _ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    currency: str = ""
    digits: int = 4


class Prices(_Head, frozen=True, kw_only=True):
    price: tuple[Price, ...]

    def first(self, pers: tuple[str, ...], of: dict[str, str], hour: int) -> int | None:
        """Number of the price that counts (rule 1)."""
        return next((n for n, p in enumerate(self.price) if p.per in pers and p.fits(of, hour)), None)

    def of(self, department: str | None) -> Prices:
        """What this department may have to pay; None: everything."""
        mine = tuple(p for p in self.price if department is None or p.department in (None, department))
        return msgspec.structs.replace(self, price=mine)

    def digest(self) -> str:
        """Of what it says: the same for the same prices, however the file is laid out."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:DIGEST_CHARS]


def load(path: Path) -> Prices:
    """Raises `Unusable`."""
    try:
        return parse(config.text_of(path), path.name)
    except ConfigError as error:
        raise Unusable(str(error)) from None


def parse(text: str, name: str = "prices") -> Prices:
    """`name` stands in messages.  Raises `Unusable`."""
    try:
        document = config.document_of(text, name)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    form = Form(Path.cwd())
    head = form.table(_Head, {key: value for key, value in document.items() if key != "price"}, ())
    found = Prices(price=form.tables(Price, document.get("price", []), ("price",)), **msgspec.structs.asdict(head))
    broken = {problem.path for problem in form.problems}
    wrong = [_as_decimal(problem) for problem in form.problems]
    wrong += [problem for problem in _meant(found) if problem.path not in broken]
    if wrong:
        raise Unusable(str(ConfigError(wrong, name, Lines(text))))
    return found


def _as_decimal(problem: Problem) -> Problem:
    """An amount that is a number, or missing."""
    if problem.path[-1] != "amount":
        return problem
    try:
        example = f': "{Decimal(problem.found)}"'
    except InvalidOperation:
        example = ' such as "0.05"'
    return msgspec.structs.replace(problem, right=f"should be a decimal in quotes{example}")


def _meant(prices: Prices) -> Iterator[Problem]:
    """What is wrong with values of the right form."""
    if not 0 <= prices.digits <= DIGITS_MAX:
        yield _problem(("digits",), prices.digits, f"should be from 0 to {DIGITS_MAX}")
    if not 0 < len(prices.price) <= PRICES_MAX:
        right = f"there should be from 1 to {PRICES_MAX} [[price]] tables"
        yield Problem(path=("price",), found=f"{len(prices.price)} prices", right=right)
    for number, price in enumerate(prices.price):
        path, label = ("price", number), price.name or f"number {number + 1}"
        yield from _amount(price, path, label)
        yield from _fitting(price, path, label)
        yield from _windows(price, path, label)


def _amount(price: Price, path: Path_, label: str) -> Iterator[Problem]:
    """Rule 5."""
    if not _DECIMAL.fullmatch(price.amount) or Decimal(price.amount) > AMOUNT_MAX:
        right = f'should be a decimal in quotes such as "0.05", from 0 to {AMOUNT_MAX:,}'
        yield _problem((*path, "amount"), price.amount, right, label)


def _fitting(price: Price, path: Path_, label: str) -> Iterator[Problem]:
    """Keys that can never fit (rule 4)."""
    for key in OF_JOBS if price.per not in PER_JOB else ():
        if (value := getattr(price, key)) is not None:
            right = f"should not be here: {price.per} is of a department; {key} goes with {', '.join(PER_JOB)}"
            yield _problem((*path, key), value, right, label)
    if price.windows and price.per == "least_of_day":
        yield _problem(
            (*path, "windows"), price.windows[0], "should not be here: least_of_day is of a whole day", label
        )
    if price.since and price.until and price.until <= price.since:
        yield _problem((*path, "until"), price.until, f"should be a day after from ({price.since})", label)


def _windows(price: Price, path: Path_, label: str) -> Iterator[Problem]:
    try:
        shift_min = offset_s(price.windows_zone, ZONE_ANY_H) // 60
    except Unreadable as error:
        yield _problem((*path, "windows_zone"), price.windows_zone, str(error), label)
        return
    for entry in price.windows:
        for right in _window(entry, shift_min, price.windows_zone):
            yield _problem((*path, "windows"), entry, right, label)


def _window(entry: str, shift_min: int, zone: str) -> Iterator[str]:
    """What would be right."""
    try:
        read = windows.read(entry)
    except Unreadable as error:
        yield str(error)
        return
    if any((edge - shift_min) % 60 for window in read for edge in (window.begin, window.end)):
        yield f"in {zone} it should begin and end with full hours of UTC"
    if any(window.guarantee is not None or window.maximum is not None for window in read):
        yield "should name hours only"


def _problem(path: Path_, value: object, right: str, label: str = "") -> Problem:
    return Problem(path=path, found=shown(value), right=right, label=label)
