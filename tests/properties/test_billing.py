"""Properties of bills.

B1  Nothing is billed twice and nothing is left out: over whole days, the quantities of the lines are the cores and hosts of the
    attempts, the work lost to others, and the hosts lent and borrowed, to the millisecond; whatever windows the prices have.
B2  A bill adds up: lines to departments, departments to the total, and a period cut in two to the whole, to the last digit.
"""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from phoenix.billing.bill import DAY_MS, Bill, of_day
from phoenix.billing.prices import Prices, parse
from services.monitor.history.reads import collected
from services.monitor.serve import billable
from tests.properties.test_accounting import STEPS
from tests.properties.test_history import Written, played

FIRST = 1_000_000_000 // DAY_MS * DAY_MS  # the day on which worlds begin
ANY = st.sampled_from(["", 'department = "hpc"', 'user = "ann"', 'windows = ["Mon-Fri 08:00-18:00"]', 'lease = "none"'])
AMOUNT = st.decimals(min_value=0, max_value=10, places=5).map(str)


@st.composite
def tables(draw: st.DrawFn) -> Prices:
    """Some prices that fit some, and at the end one of each kind that fits all."""
    pers = ["core_hour", "host_hour", "lost_core_hour", "lent_host_hour", "borrowed_host_hour"]
    some = [(draw(st.sampled_from(pers)), draw(AMOUNT), draw(ANY)) for _ in range(draw(st.integers(0, 4)))]
    some += [(per, draw(AMOUNT), "") for per in pers]
    text = "\n".join(f'[[price]]\nper = "{per}"\namount = "{amount}"\n{rest}' for per, amount, rest in some)
    return parse(f'digits = {draw(st.integers(0, 4))}\nminimum = "{draw(AMOUNT)}"\n{text}')


def billed(written: Written, prices: Prices, since: int, until: int) -> Bill:
    bill = Bill()
    for day in range(since, until, DAY_MS):
        told = {"day": day / 1000, **billable.of_day(written.db, day, None)}
        part = of_day(prices, told)
        bill.lines += part.lines
        bill.unpriced_ms += part.unpriced_ms
    return bill


@settings(max_examples=25, deadline=None)
@given(STEPS, tables(), st.integers(0, 50))
def test_a_bill_is_of_all_that_was_had_and_adds_up(steps: list[tuple[str, int, int]], prices: Prices, cut: int) -> None:
    world = played([*steps, ("long", 1, 0), ("submit", 0, 0)])
    written = Written().fold(world)
    until = round(world.now * 1000) // DAY_MS * DAY_MS
    bill = billed(written, prices, FIRST, until)
    sums: dict[str, int] = {}
    for line in bill.lines:
        sums[line.per] = sums.get(line.per, 0) + line.quantity_ms
    had = (
        "SELECT coalesce(sum({} * (min(coalesce(ended_ms, :until), :until) - placed_ms)), 0) FROM attempts"
        " WHERE placed_ms < :until"
    )
    cores = written.db.execute(had.format("cores"), {"until": until}).fetchone()[0]
    assert bill.unpriced_ms == 0
    if not any(price.per == "host_hour" for price in prices.price[:-5]):
        assert sums.get("core_hour", 0) == cores
    else:
        assert sums.get("core_hour", 0) <= cores
    lost = "SELECT coalesce(sum(core_ms), 0) FROM losses WHERE at_ms < ? AND claimant IS NOT NULL"
    assert sums.get("lost_core_hour", 0) == written.db.execute(lost, (until,)).fetchone()[0]
    spans = collected(written.db, FIRST, until)[0].spans.values()
    assert sums.get("lent_host_hour", 0) == sum(span.lent for span in spans)
    assert sums.get("borrowed_host_hour", 0) == sum(span.borrowed for span in spans)

    departments = {line.department for line in bill.lines}
    assert bill.total() == sum((bill.total(dept) for dept in departments), Decimal(0))
    middle = min(until, FIRST + cut * DAY_MS)
    parts = billed(written, prices, FIRST, middle).lines + billed(written, prices, middle, until).lines
    assert parts == bill.lines
