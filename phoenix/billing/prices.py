"""The price table: a TOML file with a currency and `[[price]]` tables.

    currency = "EUR"
    digits = 2                      # of an amount; lines are rounded to them, half to even
    minimum = "1.00"                # of a department on a day on which it is charged anything; credits come off it

    [[price]]
    name = "core-hours by day"
    per = "core_hour"               # core_hour, host_hour, borrowed_host_hour; credits: lent_host_hour, lost_core_hour
    amount = "0.050"                # a decimal in quotes: binary fractions are no prices
    department = "hpc"              # user, service, lease (its kind, or "none"), quality likewise; what is not said fits all
    windows = ["Mon-Fri 08:00-18:00"]
    windows_zone = "UTC+01:00"

Rules
  1. Of the prices that fit, the first of the file counts: one of `core_hour` and `host_hour` for an attempt, one for a loss,
     one for a lent or borrowed host.  What no price fits costs nothing, and is told.
  2. A window is looked up at the beginning of each full hour (UTC), so windows begin and end with full hours there.
  3. Whatever is wrong with the file is told at once, each with its price and key.
"""

from __future__ import annotations

import tomllib
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from schemas import windows
from schemas.scaling import ZONE_ANY_H, Unreadable, offset_s

Per = Literal["core_hour", "host_hour", "borrowed_host_hour", "lent_host_hour", "lost_core_hour"]
PER: Final = get_args(Per)
CREDITS: Final = ("lent_host_hour", "lost_core_hour")
DIGITS_MAX: Final = 6
PRICES_MAX: Final = 1000
AMOUNT_MAX: Final = Decimal(10) ** 9
HOUR_S: Final = 3600.0


class Unusable(Exception):
    """The file cannot be used: `str()` says everything that is wrong, one a line."""


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    per: Per
    amount: str
    name: str = ""
    department: str | None = None
    user: str | None = None
    service: str | None = None
    lease: str | None = None
    quality: str | None = None
    windows: tuple[str, ...] = ()
    windows_zone: str = "UTC"

    @property
    def rate(self) -> Fraction:
        """Of an hour; of a credit negative."""
        sign = -1 if self.per in CREDITS else 1
        return sign * Fraction(Decimal(self.amount))

    def fits(self, of: dict[str, str], hour: int) -> bool:
        """`of`: department, user, service, lease, quality; `hour`: its beginning, milliseconds."""
        for key in ("department", "user", "service", "lease", "quality"):
            wanted = getattr(self, key)
            if wanted is not None and wanted != (of.get(key) or ("none" if key == "lease" else "")):
                return False
        if not self.windows:
            return True
        return windows.calendar(self.windows, self.windows_zone).open_at(hour / 1000) is not None


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    price: tuple[Price, ...]
    currency: str = ""
    digits: int = 2
    minimum: str = "0"

    def first(self, pers: tuple[str, ...], of: dict[str, str], hour: int) -> int | None:
        """Number of the price that counts (rule 1)."""
        return next((n for n, p in enumerate(self.price) if p.per in pers and p.fits(of, hour)), None)


def load(path: Path) -> Prices:
    """Raises `Unusable`."""
    try:
        return parse(path.read_text())
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
    except Unusable as error:
        raise Unusable("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def parse(text: str) -> Prices:
    try:
        found = msgspec.convert(tomllib.loads(text), Prices)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Unusable(str(error)) from None
    wrong = [*_table(found)]
    for number, price in enumerate(found.price, 1):
        wrong += [f"price {number}{f' ({price.name})' if price.name else ''}: {what}" for what in _price(price)]
    if wrong:
        raise Unusable("\n".join(wrong))
    return found


def _table(prices: Prices) -> list[str]:
    wrong = []
    if not 0 <= prices.digits <= DIGITS_MAX:
        wrong.append(f"digits = {prices.digits}: should be from 0 to {DIGITS_MAX}")
    if not 0 < len(prices.price) <= PRICES_MAX:
        wrong.append(f"{len(prices.price)} prices: there should be from 1 to {PRICES_MAX} [[price]] tables")
    return wrong + _amount("minimum", prices.minimum)


def _price(price: Price) -> list[str]:
    wrong = _amount("amount", price.amount)
    try:
        shift_min = offset_s(price.windows_zone, ZONE_ANY_H) // 60
    except Unreadable as error:
        return [*wrong, f"windows_zone = {price.windows_zone!r}: {error}"]
    for entry in price.windows:
        try:
            read = windows.read(entry)
        except Unreadable as error:
            wrong.append(f"windows: {entry!r}: {error}")
            continue
        if any((edge - shift_min) % 60 for window in read for edge in (window.begin, window.end)):
            wrong.append(f"windows: {entry!r} in {price.windows_zone} should begin and end with full hours of UTC")
        if any(window.guarantee is not None or window.maximum is not None for window in read):
            wrong.append(f"windows: {entry!r} should say hours alone")
    return wrong


def _amount(key: str, text: str) -> list[str]:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= AMOUNT_MAX:
        return [f'{key} = {text!r}: should be a decimal in quotes such as "0.05", not below 0']
    return []
