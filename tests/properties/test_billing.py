"""Properties of bills.

B1  Nothing is billed twice and nothing is left out: over whole days, the quantities of the lines are the cores and hosts of the
    attempts, the work lost to others, and the hosts lent, to the millisecond; own and borrowed hosts are the hosts that were
    held; whatever windows and days the prices have.
B2  A bill adds up: lines to departments, departments to the total, and a period cut in two to the whole, to the last digit.
B3  The bill of a day that is over is the same at every later moment, whatever facts come: late reports, and none for days.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from phoenix.billing.bill import DAY_MS, Bill, of_day
from services.monitor.history.reads import collected
from services.monitor.http import billable
from services.runtime.config.prices import PER, PER_JOB, Prices, parse
from tests.properties.test_accounting import STEPS, house, step
from tests.properties.test_history import Written, played

FIRST = 1_000_000_000 // DAY_MS * DAY_MS  # the day on which worlds begin
ANY = ["", 'department = "hpc"', 'kind = "web"', 'windows = ["Mon-Fri 08:00-18:00"]', "from = 1970-01-14"]
OF_JOBS = ['user = "ann"', 'lease = "none"', "until = 1970-01-14"]
AMOUNT = st.decimals(min_value=0, max_value=10, places=5).map(str)
SOME = [per for per in PER if per != "least_of_day"]
# A silence of more than 60 days is added up by the day, and which hours that are only the fact that ends it tells.
NO_LONG_SILENCE = STEPS.map(
    lambda steps: [(what, 1 if what == "long" and a % 4 == 2 else a, b) for what, a, b in steps]
)


BY_HOUR = """
[[price]]
per = "own_host_hour"
amount = "1"
windows = ["Mon-Sun 08:00-18:00"]
[[price]]
per = "lost_core_hour"
amount = "1"
"""
TAKEN_BACK = [("life", 0, 3), ("long", 0, 0), ("take", 0, 5), ("long", 1, 0), ("long", 1, 0), ("late", 1, 0)]


@st.composite
def tables(draw: st.DrawFn) -> Prices:
    """Some prices that fit some, and at the end one of each kind that fits all."""
    some = []
    for _ in range(draw(st.integers(0, 4))):
        per = draw(st.sampled_from(SOME))
        some.append((per, draw(AMOUNT), draw(st.sampled_from(ANY + OF_JOBS if per in PER_JOB else ANY))))
    some += [(per, draw(AMOUNT), "") for per in PER]
    text = "\n".join(f'[[price]]\nper = "{per}"\namount = "{amount}"\n{rest}' for per, amount, rest in some)
    return parse(f"digits = {draw(st.integers(0, 4))}\n{text}")


def told(written: Written, day: int, now: int) -> dict[str, Any]:
    """What the monitor says of the day at `now`, milliseconds."""
    running = billable.running_hours(written.core.accounting, day, None, now)
    found = billable.of_day(written.db, day, None, min(now, day + DAY_MS))
    return billable.shown(day, {**found, "holding": billable.together(found["holding"], running)})


def billed(written: Written, prices: Prices, since: int, until: int, now: int) -> Bill:
    bill = Bill()
    for day in range(since, until, DAY_MS):
        bill.add(of_day(prices, told(written, day, now)))
    return bill


@settings(max_examples=25, deadline=None)
@given(STEPS, tables(), st.integers(0, 50))
def test_a_bill_is_of_all_that_was_had_and_adds_up(steps: list[tuple[str, int, int]], prices: Prices, cut: int) -> None:
    world = played([*steps, ("long", 1, 0), ("submit", 0, 0)])
    written = Written().fold(world)
    now = round(world.now * 1000)
    until = now // DAY_MS * DAY_MS
    bill = billed(written, prices, FIRST, until, now)
    sums: dict[str, int] = {}
    for line in bill.lines:
        sums[line.per] = sums.get(line.per, 0) + line.quantity_ms
    had = (
        "SELECT coalesce(sum({} * (min(coalesce(ended_ms, :until), :until) - placed_ms)), 0) FROM attempts"
        " WHERE placed_ms < :until"
    )
    cores = written.db.execute(had.format("cores"), {"until": until}).fetchone()[0]
    assert bill.unpriced_ms == 0
    if not any(price.per == "host_hour" for price in prices.price[: -len(PER)]):
        assert sums.get("core_hour", 0) == cores
    else:
        assert sums.get("core_hour", 0) <= cores
    lost = "SELECT coalesce(sum(core_ms), 0) FROM losses WHERE told_ms < ? AND claimant IS NOT NULL"
    assert sums.get("lost_core_hour", 0) == written.db.execute(lost, (until,)).fetchone()[0]
    spans = collected(written.db, FIRST, until)[0].spans.values()
    assert sums.get("lent_host_hour", 0) == sum(span.lent for span in spans)
    assert sums.get("borrowed_host_hour", 0) == sum(span.borrowed for span in spans)
    held = (
        "SELECT coalesce(sum(min(coalesce(until_ms, :until), :until) - since_ms), 0) FROM whereabouts"
        " WHERE state = 'held' AND since_ms < :until"
    )
    hosts_ms = written.db.execute(held, {"until": until}).fetchone()[0]
    assert sums.get("own_host_hour", 0) + sums.get("borrowed_host_hour", 0) == hosts_ms

    departments = {line.department for line in bill.lines}
    assert bill.total() == sum((bill.total(dept) for dept in departments), Decimal(0))
    middle = min(until, FIRST + cut * DAY_MS)
    parts = [billed(written, prices, *part, now).lines for part in ((FIRST, middle), (middle, until))]
    assert parts[0] + parts[1] == bill.lines


@settings(max_examples=25, deadline=None)
@given(NO_LONG_SILENCE, tables(), st.integers(5, 50))
@example([*[("long", 1, 0)] * 5, ("submit", 0, 0)], parse(BY_HOUR), 5)  # days of silence, billed before it ends
@example(TAKEN_BACK, parse(BY_HOUR), 5)  # work is lost, and its success told days later
def test_the_bill_of_a_day_that_is_over_stays(steps: list[tuple[str, int, int]], prices: Prices, cut: int) -> None:
    world, written = house(), Written()
    for each in steps[:cut]:
        step(world, *each)
    now = round(world.now * 1000)
    until = now // DAY_MS * DAY_MS
    before = billed(written.fold(world), prices, FIRST, until, now)
    for each in steps[cut:]:
        step(world, *each)
    written.fold(world)
    for later in (round(world.now * 1000), round(world.now * 1000) + 4 * DAY_MS):
        assert billed(written, prices, FIRST, until, later) == before
