"""A bill by hand: hours, windows, credits, the minimum, rounding; and price tables that cannot be used."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from phoenix.billing import prices as price_table
from phoenix.billing.bill import HOUR_MS, of_day, rounded
from phoenix.billing.prices import Unusable, parse
from phoenix.cli import emit
from phoenix.cli.bill import period, render
from phoenix.cli.errors import CliError

MONDAY = 1_795_392_000_000  # 2026-11-23, 00:00 UTC
TABLE = """
digits = 2
[[price]]
name = "day"
per = "core_hour"
amount = "0.50"
windows = ["Mon-Fri 08:00-18:00"]
windows_zone = "UTC+01:00"
[[price]]
name = "night"
per = "core_hour"
amount = "0.25"
[[price]]
name = "lost"
per = "lost_core_hour"
amount = "0.125"
[[price]]
name = "lent"
per = "lent_host_hour"
amount = "1"
"""


def attempt(begin_h: float, end_h: float, cores: int = 4, **fields: Any) -> dict[str, Any]:
    of = {"unit": "1", "attempt": 1, "department": "hpc", "user": "ann", "service": "", "lease": "", "quality": ""}
    times = {"from_ms": MONDAY + round(begin_h * HOUR_MS), "until_ms": MONDAY + round(end_h * HOUR_MS)}
    return {**of, "cores": cores, "hosts": "h1,h2", **times, **fields}


def day(*attempts: dict[str, Any], losses: Any = (), holding: Any = ()) -> dict[str, Any]:
    return {"day": MONDAY / 1000, "attempts": list(attempts), "losses": list(losses), "holding": list(holding)}


def test_hours_are_priced_where_they_begin() -> None:
    bill = of_day(parse(TABLE), day(attempt(6.5, 8.0)))  # 7:30 to 9:00 in UTC+1: the day begins at 7:00 UTC
    assert [(x.name, x.quantity_ms / HOUR_MS, x.amount) for x in bill.lines] == [
        ("day", 4.0, Decimal("2.00")),
        ("night", 2.0, Decimal("0.50")),
    ]
    assert bill.total("hpc") == Decimal("2.50")


def test_credits_have_a_minus_and_name_their_job_or_department() -> None:
    lost = {**attempt(0, 0), "claimant": "web", "at_ms": MONDAY, "core_ms": 3 * HOUR_MS}
    lent = {"department": "hpc", "begin_ms": MONDAY + HOUR_MS, "lent_ms": 2 * HOUR_MS, "borrowed_ms": 0}
    bill = of_day(parse(TABLE), day(losses=[lost], holding=[lent]))
    assert [(x.name, x.unit, x.amount) for x in bill.lines] == [
        ("lent", "", Decimal("-2.00")),
        ("lost", "1", Decimal("-0.38")),  # 0.375, half to even
    ]


def test_who_has_a_line_pays_the_minimum_of_the_day() -> None:
    bill = of_day(parse('minimum = "5.00"\n' + TABLE), day(attempt(0, 1)))
    assert [(x.per, x.amount) for x in bill.lines] == [("core_hour", Decimal("1.00")), ("minimum", Decimal("4.00"))]
    assert of_day(parse('minimum = "5.00"\n' + TABLE), day()).lines == []


def test_the_first_price_that_fits_counts_and_what_none_fits_is_told() -> None:
    advance = '[[price]]\nper = "host_hour"\namount = "1"\nlease = "advance"\n'
    table = parse(advance + '[[price]]\nper = "core_hour"\namount = "2"\nuser = "bob"')
    others = attempt(0, 1, unit="2", user="bob"), attempt(0, 1, unit="3")
    bill = of_day(table, day(attempt(0, 1, lease="advance"), *others))
    assert [(x.unit, x.amount) for x in bill.lines] == [("1", Decimal("2.00")), ("2", Decimal("8.00"))]
    assert bill.unpriced_ms == 4 * HOUR_MS


@pytest.mark.parametrize(
    ("amount", "told"), [("1/200", "0.00"), ("3/200", "0.02"), ("-1/200", "0.00"), ("7/3", "2.33")]
)
def test_rounding_is_half_to_even(amount: str, told: str) -> None:
    assert rounded(Fraction(amount), 2) == Decimal(told)


KINDS = '"core_hour", "host_hour", "borrowed_host_hour", "lent_host_hour", "lost_core_hour"'


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "p.toml: price: 0 prices: there should be from 1 to 1000 [[price]] tables"),
        ("price = []", "p.toml:1: price: 0 prices: there should be from 1 to 1000 [[price]] tables"),
        (
            '[[price]]\nper = "core_hour"\namount = "abc"',
            'p.toml:3: price.amount (of "number 1"): "abc": should be a decimal in quotes such as "0.05", from 0 to',
        ),
        ('[[price]]\nper = "core_hour"\namount = "1e-999999999"', "should be a decimal"),
        ('[[price]]\nper = "core_hour"\namount = "1000000001"', "from 0 to 1,000,000,000"),
        ('minimum = "1_0"\n[[price]]\nper = "core_hour"\namount = "1"', "should be a decimal"),
        ('[[price]]\nper = "core_hour"\namount = "-1"', '"-1": should be a decimal in quotes such as "0.05", from 0'),
        ('digits = 9\n[[price]]\nper = "core_hour"\namount = "1"', "p.toml:1: digits: 9: should be from 0 to 6"),
        (
            '[[price]]\nname = "x"\nper = "core_hour"\namount = "1"\nwindows = ["Mon 08:30-10:00"]',
            'p.toml:5: price.windows (of "x"): "Mon 08:30-10:00": in UTC it should begin and end with full hours of UTC',
        ),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nwindows = ["someday"]',
            'p.toml:4: price.windows (of "number 1"): "someday": ',
        ),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nwindows_zone = "CET"',
            'p.toml:4: price.windows_zone (of "number 1"): "CET": ',
        ),
        ("[[price]\n", "p.toml: the file: unusable: should be TOML: "),
    ],
)
def test_what_is_wrong_with_a_table_is_told(text: str, wrong: str) -> None:
    with pytest.raises(Unusable) as told:
        parse(text, "p.toml")
    assert wrong in str(told.value)


def test_everything_wrong_with_a_table_is_told_at_once_with_its_line_and_what_would_be_right() -> None:
    text = """curency = "EUR"
[[price]]
name = "day"
per = "core_hour"
amount = 0.12
[[price]]
per = "hosthour"
amuont = "1"
windows = ["someday"]
"""
    with pytest.raises(Unusable) as told:
        parse(text, "p.toml")
    assert str(told.value).splitlines() == [
        'p.toml:1: curency: "EUR": there is no such key; did you mean "currency"?',
        'p.toml:5: price.amount (of "day"): 0.12: should be a decimal in quotes: "0.12"',
        'p.toml:6: price.amount (of "number 2"): missing: should be a decimal in quotes such as "0.05"',
        f'p.toml:7: price.per (of "number 2"): "hosthour": should be one of {KINDS}; did you mean "host_hour"?',
        'p.toml:8: price.amuont (of "number 2"): "1": there is no such key; did you mean "amount"?',
        'p.toml:9: price.windows (of "number 2"): "someday": ' + str(told.value).rpartition('"someday": ')[2],
    ]


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"none\.toml: the file: unusable: cannot be read"):
        price_table.load(tmp_path / "none.toml")
    (tmp_path / "p.toml").write_bytes(b"\xff")
    with pytest.raises(Unusable, match="should be UTF-8 text"):
        price_table.load(tmp_path / "p.toml")


NOON = MONDAY / 1000 + 43_200  # of Monday, 23 November 2026


def test_a_bill_is_of_days_that_are_over() -> None:
    assert list(period("2d", None, NOON)) == [MONDAY - 2 * 24 * HOUR_MS, MONDAY - 24 * HOUR_MS]
    for since, until in (("2026-11-23", None), ("1h", None), ("7d", "2026-11-24"), ("2027-01-01", None)):
        with pytest.raises(
            CliError, match=r"today, 2026-11-23 \(UTC\), is not over: its bill is possible from"
        ) as told:
            period(since, until, NOON)
        assert told.value.hint == "for the last day that is: --since 2026-11-22 --until 2026-11-23"
    with pytest.raises(CliError, match="there is no day from 2026-11-21 to 2026-11-20"):
        period("2026-11-21", "2026-11-20", NOON)


def test_on_the_first_of_a_month_that_month_has_no_bill_yet() -> None:
    with pytest.raises(CliError, match=r"today, 2026-12-01 \(UTC\), is not over"):
        period(None, None, NOON + 8 * 86_400)


def test_a_cell_of_a_csv_is_never_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["=HYPERLINK(1)", "+1+1", "-2+3", "@x", "\tx", "a=b", "-3.20", 'say "x", y\nz', None, 0, -1.5]
    emit.table(["name"], [{"name": name} for name in names])
    told = [row[0] for row in csv.reader(io.StringIO(capsys.readouterr().out))]
    assert told == [
        "name",
        "'=HYPERLINK(1)",
        "'+1+1",
        "'-2+3",
        "'@x",
        "'\tx",
        "a=b",
        "-3.20",
        names[7],
        "",
        "0",
        "-1.5",
    ]


def test_the_table_that_comes_along_can_be_used() -> None:
    found = price_table.load(Path(__file__).parents[2] / "deploy" / "prices.toml")
    bill = of_day(found, day(attempt(0, 24)))
    text = render(bill, found, "department", range(MONDAY, MONDAY + 1, 1))
    assert "by night and at weekends" in text
    assert bill.unpriced_ms == 0
