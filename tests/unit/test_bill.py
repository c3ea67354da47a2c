"""A bill by hand: hours, windows, credits, the minimum, rounding; and price tables that cannot be used."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from phoenix.billing.bill import HOUR_MS, of_day, rounded
from phoenix.cli import printing
from phoenix.cli.bill import Asked, _notes, _plain, period, render
from phoenix.cli.errors import CliError
from schemas.size import Size
from schemas.units import exact
from services.runtime.config import prices as price_table
from services.runtime.config.prices import Unusable, parse

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


def at(milliseconds: int) -> str:
    return exact(milliseconds / 1000)


def attempt(begin_h: float, end_h: float, cores: int = 4, **fields: Any) -> dict[str, Any]:
    of = {"unit": "1", "attempt": 1, "department": "hpc", "user": "ann", "service": "", "lease": "", "quality": ""}
    times = {"from_at": at(MONDAY + round(begin_h * HOUR_MS)), "until_at": at(MONDAY + round(end_h * HOUR_MS))}
    return {**of, **Size(cores).fields(), "hosts": ["h1", "h2"], **times, **fields}


def day(*attempts: dict[str, Any], losses: Any = (), holding: Any = ()) -> dict[str, Any]:
    told = {"attempts": list(attempts), "losses": list(losses), "holding": list(holding)}
    return {"day": at(MONDAY), "kinds": {"hpc": "batch", "web": "web"}, **told}


def held(held_h: int, borrowed_h: int, lent_h: int, department: str = "hpc", hour: int = 0) -> dict[str, Any]:
    spans = {"held_s": held_h, "borrowed_s": borrowed_h, "lent_s": lent_h}
    spans = {name: hours * 3600.0 for name, hours in spans.items()}
    return {"department": department, "begin_at": at(MONDAY + hour * HOUR_MS), **spans}


def test_gpus_have_a_price_of_their_own_beside_that_of_cores() -> None:
    table = TABLE + '[[price]]\nname = "cards"\nper = "gpu_hour"\namount = "3"\nuser = "ann"\n'
    bill = of_day(parse(table), day(attempt(0.0, 1.5, gpus=2), attempt(2.0, 3.0, unit="2")))
    found = [(x.name, x.unit, x.quantity_ms / HOUR_MS, x.amount) for x in bill.lines]
    assert ("cards", "1", 3.0, Decimal("9.00")) in found
    assert [name for name, *_ in found] == ["night", "cards", "night"], "one without GPUs pays for none"
    of_leases = parse(table.replace('user = "ann"', 'lease = "advance"'))
    leased = of_day(of_leases, day(attempt(0.0, 1.5, gpus=2, lease="advance"), attempt(2.0, 3.0, unit="2", gpus=2)))
    assert [x.unit for x in leased.lines if x.name == "cards"] == ["1"]
    unpriced = of_day(parse(TABLE), day(attempt(0.0, 1.5, gpus=2)))
    assert [x.name for x in unpriced.lines] == ["night"]
    assert unpriced.unpriced_ms == 0, "it is of core-hours"


def test_hours_are_priced_where_they_begin() -> None:
    bill = of_day(parse(TABLE), day(attempt(6.5, 8.0)))  # 7:30 to 9:00 in UTC+1: the day begins at 7:00 UTC
    assert [(x.name, x.quantity_ms / HOUR_MS, x.amount) for x in bill.lines] == [
        ("day", 4.0, Decimal("2.00")),
        ("night", 2.0, Decimal("0.50")),
    ]
    assert bill.total("hpc") == Decimal("2.50")


def test_credits_have_a_minus_and_name_their_job_or_department() -> None:
    lost = {**attempt(0, 0), "claimant": "web", "at": at(MONDAY), "core_s": 3 * 3600.0}
    bill = of_day(parse(TABLE), day(losses=[lost], holding=[held(3, 0, 2)]))
    assert [(x.name, x.unit, x.amount) for x in bill.lines] == [
        ("lent", "", Decimal("-2.00")),
        ("lost", "1", Decimal("-0.38")),  # 0.375, half to even
    ]


LEAST = '[[price]]\nper = "least_of_day"\namount = "5.00"\n'


def test_who_has_a_line_pays_the_least_of_the_day() -> None:
    bill = of_day(parse(TABLE + LEAST), day(attempt(0, 1)))
    assert [(x.per, x.amount) for x in bill.lines] == [
        ("core_hour", Decimal("1.00")),
        ("least_of_day", Decimal("4.00")),
    ]
    assert of_day(parse(TABLE + LEAST), day()).lines == []
    assert [x.per for x in of_day(parse(TABLE + LEAST), day(attempt(0, 5))).lines] == ["core_hour"]
    assert [x.name for x in of_day(parse(TABLE + LEAST), day(holding=[held(0, 0, 1)])).lines] == [
        "lent"
    ]  # a credit alone


def test_the_least_of_a_day_is_of_a_department_a_kind_and_a_time() -> None:
    own = LEAST + 'department = "hpc"\nfrom = 2026-11-24\n' + LEAST.replace("5", "3") + 'kind = "web"\n'
    bill = of_day(parse(TABLE + own), day(attempt(0, 1), attempt(0, 1, department="web")))
    assert [(x.department, x.amount) for x in bill.lines if x.per == "least_of_day"] == [("web", Decimal("2.00"))]


HELD = """
[[price]]
per = "own_host_hour"
amount = "1"
kind = "batch"
[[price]]
per = "own_host_hour"
amount = "2"
[[price]]
per = "borrowed_host_hour"
amount = "10"
department = "web"
[[price]]
per = "borrowed_host_hour"
amount = "5"
"""


def test_a_held_host_is_within_its_departments_own_or_borrowed() -> None:
    bill = of_day(parse(HELD), day(holding=[held(5, 2, 0), held(4, 1, 0, "web")]))
    assert [(x.department, x.per, x.quantity_ms // HOUR_MS, x.amount) for x in bill.lines] == [
        ("hpc", "own_host_hour", 3, 3),
        ("hpc", "borrowed_host_hour", 2, 10),
        ("web", "own_host_hour", 3, 6),
        ("web", "borrowed_host_hour", 1, 10),
    ]


DATED = """
[[price]]
per = "core_hour"
amount = "1"
until = 2026-11-23
[[price]]
per = "core_hour"
amount = "2"
from = 2026-11-23
until = 2026-11-24
[[price]]
per = "core_hour"
amount = "4"
from = 2026-11-24
"""


@pytest.mark.parametrize(("days", "amount"), [(-1, 1), (0, 2), (1, 4)])
def test_a_price_is_valid_from_the_beginning_of_a_day_to_that_of_another(days: int, amount: int) -> None:
    prices, first = parse(DATED), MONDAY + days * 24 * HOUR_MS
    for hour in (first, first + 23 * HOUR_MS):
        number = prices.first(("core_hour",), {"department": "hpc"}, hour)
        assert number is not None
        assert prices.price[number].amount == str(amount)


def test_what_is_taken_back_has_the_price_of_its_loss() -> None:
    table = DATED.replace("core_hour", "lost_core_hour")
    of = {**attempt(0, 0), "claimant": "web"}
    back = {**of, "at": at(MONDAY - 1), "core_s": -3600.0}  # it was lost on Sunday
    bill = of_day(parse(table), day(losses=[back, {**of, "at": at(MONDAY), "core_s": 3600.0}]))
    assert [(x.quantity_ms, x.amount) for x in bill.lines] == [(-HOUR_MS, 1), (HOUR_MS, -2)]


def test_a_department_sees_the_prices_of_all_and_its_own() -> None:
    prices = parse(HELD)
    assert [p.amount for p in prices.of("hpc").price] == ["1", "2", "5"]
    assert prices.of(None) == prices
    assert prices.of("hpc").digest() != prices.digest() == parse("# the same\n" + HELD).digest()


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


KINDS = ", ".join(f'"{per}"' for per in price_table.PER)


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
        ('[[price]]\nper = "least_of_day"\namount = "1_0"', "should be a decimal"),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nfrom = 2026-11-01\nuntil = 2026-11-01',
            'p.toml:5: price.until (of "number 1"): 2026-11-01: should be a day after from (2026-11-01)',
        ),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nfrom = 2026-11-01T08:00:00Z',
            'p.toml:4: price.from (of "number 1"): 2026-11-01 08:00:00+00:00: should be a date, as 2026-11-01',
        ),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nkind = "wbe"',
            'price.kind (of "number 1"): "wbe": should be one of "batch", "web"; did you mean "web"?',
        ),
        (
            '[[price]]\nper = "core_hour"\namount = "1"\nlease = "advnace"',
            'price.lease (of "number 1"): "advnace": should be one of "advance", "deadline", "immediate", "best-effort"',
        ),
        (
            '[[price]]\nper = "lent_host_hour"\namount = "1"\nuser = "ann"',
            'price.user (of "number 1"): "ann": should not be here: lent_host_hour is of a department; user goes with',
        ),
        (
            '[[price]]\nper = "least_of_day"\namount = "1"\nwindows = ["Mon 08:00-10:00"]',
            "should not be here: least_of_day is of a whole day",
        ),
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
DAY = 24 * HOUR_MS


def test_a_bill_is_up_to_the_day_that_runs() -> None:
    assert list(period("2d", None, NOON)) == [MONDAY - 2 * DAY, MONDAY - DAY, MONDAY]
    assert list(period("2d", "2026-11-23", NOON)) == [MONDAY - 2 * DAY, MONDAY - DAY]
    assert list(period("2026-11-23", "2026-12-01", NOON)) == [MONDAY]  # the rest is to come
    assert len(period(None, None, NOON)) == 23
    assert list(period(None, None, NOON - 22 * 86_400)) == [MONDAY - 22 * DAY]  # on the first of a month
    with pytest.raises(CliError, match="--since 2026-11-24 is to come"):
        period("2026-11-24", None, NOON)
    for until in ("2026-11-20", "2026-11-21"):
        with pytest.raises(CliError, match=f"there is no day from 2026-11-21 to {until}"):
            period("2026-11-21", until, NOON)


def test_a_bill_so_far_says_so_and_until_when() -> None:
    prices = parse(TABLE)
    bill = of_day(prices, day(attempt(0, 1)))
    asked = Asked(range(MONDAY, MONDAY + DAY, DAY), prices, "p.toml (abc)")
    closed = render(bill, asked, "department")
    assert closed.splitlines()[:2] == ["2026-11-23 to 2026-11-24 (UTC), in units of the table, by p.toml (abc)", ""]
    asked.so_far[MONDAY] = NOON
    told = "So far, until 2026-11-23T12:00:00Z: this bill will change until 2026-11-23 is over and closed."
    assert render(bill, asked, "department").splitlines()[1] == told
    assert _plain(bill, asked)["so_far"] == "2026-11-23T12:00:00.000Z"
    assert _plain(bill, asked)["lines"][0]["so_far"] == "2026-11-23T12:00:00.000Z"
    assert (
        "there is no data for that time: the cloud began at 2026-11-24"
        in _notes(bill, asked, MONDAY / 1000 + 86_400, in_head=True)[-1]
    )


def test_a_cell_of_a_csv_is_never_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["=HYPERLINK(1)", "+1+1", "-2+3", "@x", "\tx", "a=b", "-3.20", 'say "x", y\nz', None, 0, -1.5]
    printing.table(["name"], [{"name": name} for name in names])
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
    text = render(bill, Asked(range(MONDAY, MONDAY + DAY, DAY), found, "prices.toml"), "department")
    assert "by night and at weekends" in text
    assert bill.unpriced_ms == 0
