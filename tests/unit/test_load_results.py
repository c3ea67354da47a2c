"""What a run comes to: percentiles against the sorted truth, failures in them, the generator's word on itself."""

from __future__ import annotations

import csv
import io
import json
import random
from fractions import Fraction

import pytest

from phoenix.cli import load_report as tell
from phoenix.load.curve import FRESH, constant, plan
from phoenix.load.record import Outcome, Record
from phoenix.load.results import percentile, spread, sum_up


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 999, 1000, 1001])
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(count: int) -> None:
    dice = random.Random(count)
    values = [dice.expovariate(1.0) for _ in range(count)]
    for share in (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100), Fraction(999, 1000), Fraction(1)):
        truth = min(v for v in values if sum(other <= v for other in values) >= share * count)
        assert percentile(sorted(values), float(share)) == truth


def test_what_failed_counts_as_slower_than_all() -> None:
    found = spread([float(n) for n in range(1, 96)], failed=5)
    assert (found.p50, found.p90, found.p99, found.max) == (50.0, 90.0, None, 95.0)
    assert percentile([], 0.5) is None
    assert percentile([], 0.5, failed=3) is None


def test_a_stall_is_in_the_latencies_of_all_that_were_due_in_it() -> None:
    """100 a second for 10 s, and a server that answers nothing from 5 s to 6 s: a tenth of all is late, by half a second in
    the mean.  Who waited for each answer before asking again would have seen one slow request of 900."""
    record = _record(1000, 100.0)
    for index, due in enumerate(record.plan.due):
        _end(record, index, taken=due, ended=max(due + 0.001, 6.001) if 5 <= due < 6 else due + 0.001)
    found = sum_up(record, 1.0)
    assert found.latency_s.p50 == pytest.approx(0.001)
    assert found.latency_s.p90 == pytest.approx(0.001)
    assert found.latency_s.p99 == pytest.approx(0.9, abs=0.011)
    assert found.latency_s.p999 == pytest.approx(0.99, abs=0.011)
    assert [piece.p50 for piece in found.intervals] == [
        pytest.approx(0.5, abs=0.011) if piece.at_s == 5 else pytest.approx(0.001) for piece in found.intervals
    ]


def test_counts_by_kind_and_over_time() -> None:
    record = _record(10, 10.0)
    for index, due in enumerate(record.plan.due):
        _end(record, index, taken=due, ended=due + 0.01)
    _end(record, 3, taken=0.35, ended=0.36, outcome=Outcome.STATUS, status=503)
    _end(record, 4, taken=0.45, ended=0.46, outcome=Outcome.NOT_SENT)
    record.outcomes[9] = Outcome.UNDECIDED  # interrupted before it was due
    found = sum_up(record, 0.5)
    assert (found.requests, found.answered, found.failed) == (9, 7, 2)
    assert found.failures == {"not-sent": 1, "status-503": 1}
    assert [(piece.at_s, piece.due, piece.failed) for piece in found.intervals] == [(0.0, 5, 2), (0.5, 4, 0)]
    assert found.intervals[0].p99 is None
    assert "not sent: all 7 connections were busy" in found.generator.bottleneck[0]


def test_the_generator_says_when_it_was_the_bottleneck() -> None:
    record = _record(100, 100.0)
    for index, due in enumerate(record.plan.due):
        _end(record, index, taken=due + 0.0005, ended=due + 0.1)
    assert sum_up(record, 1.0, ceiling=200.0).generator.bottleneck == ()
    assert "half of what it can send" in sum_up(record, 1.0, ceiling=199.0).generator.bottleneck[0]
    record.cpu_s = 0.8
    assert "80% of a core" in sum_up(record, 1.0).generator.bottleneck[0]
    for index in (5, 6):
        record.taken[index] = record.plan.due[index] + 0.05
    assert "50.0 ms late" in sum_up(record, 1.0).generator.bottleneck[0]


def test_what_is_told() -> None:
    record = _record(4, 4.0, fresh=1.0)
    for index, due in enumerate(record.plan.due):
        _end(record, index, taken=due, ended=due + 0.25)
    _end(record, 1, taken=0.375, ended=0.4, outcome=Outcome.STATUS, status=502)
    found = sum_up(record, 1.0)
    text = tell.text(found)
    assert "1 (1 status-502)" in text
    assert "p99 failed" in text
    assert "p99 250.0 ms" in text
    assert json.loads(tell.json(found))["latency_s"]["p99"] is None
    rows = list(csv.DictReader(io.StringIO(tell.rows_csv(record))))
    assert [row["outcome"] for row in rows] == ["answered", "status-502", "answered", "answered"]
    assert (rows[0]["due_s"], rows[0]["sent_s"], rows[0]["connection"], rows[0]["method"]) == (
        "0.125000",
        "",
        "fresh",
        "GET",
    )


def test_nothing_at_all_is_told_too() -> None:
    assert "requests:" in tell.text(sum_up(_record(0, 0.0), 1.0))


def _record(count: int, rate: float, fresh: float = 0.0) -> Record:
    record = Record(
        plan(constant(rate, max(1.0, count / rate if rate else 1.0)), seed=1, paced=True, fresh_share=fresh)
    )
    assert len(record.plan.due) == count
    assert set(record.plan.flags) <= {FRESH if fresh else 0}
    record.seconds, record.connections_most = record.plan.curve.end_s, 7
    return record


def _end(
    record: Record, index: int, *, taken: float, ended: float, outcome: Outcome = Outcome.ANSWERED, status: int = 200
) -> None:
    record.taken[index], record.ended[index], record.outcomes[index] = taken, ended, outcome
    record.statuses[index] = status if outcome in (Outcome.ANSWERED, Outcome.STATUS) else 0


def test_a_machine_that_cannot_send_at_the_lowest_rate_has_no_ceiling_of_0() -> None:
    record = _record(100, 100.0)
    assert "below 250/s, the lowest rate tried, against" in tell.text(sum_up(record, 1.0, ceiling=0.0))
    assert "8,000/s against" in tell.text(sum_up(record, 1.0, ceiling=8000.0))
