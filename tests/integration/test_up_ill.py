"""Each case of `make outage` on one cloud: it is reported by status, metric and page, harms no more than it must, and heals.
How soon is measured there and not here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.load.curve import constant, plan
from phoenix.load.record import Outcome, Record
from tests.support.outage import CASES, HEALED_S, INSTANCES, TOLD_S, Ward, eyes_on, judge, trial, ward

WELL = (1.0, 2.0, 3.0)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with ward(Path(tmp_path_factory.mktemp("ward"))) as found:
        yield found


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", list(CASES))
async def test_it_is_told_harms_no_more_than_it_must_and_heals(cloud: Ward, name: str) -> None:
    case = CASES[name]
    async with eyes_on(cloud) as page:
        found = await trial(cloud, page, case)
    assert max(found.told_s) < math.inf
    assert found.unexplained == [], found.failed
    assert (found.taken <= case.taken, found.replaced <= case.replaced) == (True, True)
    assert cloud.serving() == INSTANCES


def record(*ended: tuple[Outcome, int]) -> Record:
    found = Record(plan(constant(100.0, 1.0), seed=1))
    for index, (outcome, status) in enumerate(ended):
        found.outcomes[index], found.statuses[index] = outcome, status
        found.ended[index] = found.plan.due[index] + 0.25
    return found


ANSWERED, TURNED_AWAY = (Outcome.ANSWERED, 200), (Outcome.STATUS, 503)


def test_what_may_happen_is_no_miss() -> None:
    found = judge(CASES["a rush at twice the capacity"], [record(ANSWERED), record(TURNED_AWAY)], WELL, 5.0, 0, 0)
    assert (found.misses, found.requests, dict(found.failed)) == ([], 2, {"status-503": 1})
    assert found.slowest_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("told_s", "healed_s", "taken", "replaced", "miss"),
    [
        ((TOLD_S + 0.1, 1.0, 1.0), 1.0, 0, 0, "status said it after 6.1 s"),
        ((1.0, math.inf, 1.0), 1.0, 0, 0, "metric said it after inf s"),
        (WELL, HEALED_S + 1, 0, 0, "it had not healed after 41 s"),
        (WELL, 1.0, 1, 0, "1 instances that served went while it lasted, and 0 later"),
        (WELL, 1.0, 0, 2, "0 instances that served went while it lasted, and 2 later"),
    ],
)
def test_a_miss_is_named(told_s: tuple[float, ...], healed_s: float, taken: int, replaced: int, miss: str) -> None:
    case = CASES["the health path of all"]
    assert judge(case, [record(ANSWERED)], told_s, healed_s, taken, replaced).misses == [miss]


def test_a_request_that_may_not_fail_is_a_miss() -> None:
    found = judge(CASES["the health path of all"], [record(ANSWERED, TURNED_AWAY)], WELL, 1.0, 0, 0)
    assert found.misses == ["1 requests failed: {'status-503': 1}"]
    assert len(found.unexplained) == 1


def test_who_is_turned_away_late_is_a_miss() -> None:
    late = record(ANSWERED, TURNED_AWAY)
    late.ended[1] = late.plan.due[1] + 8.0
    found = judge(CASES["a rush at twice the capacity"], [late], WELL, 5.0, 0, 0)
    assert found.misses == ["1 requests were turned away after more than 1 s"]
    assert found.unexplained == []
