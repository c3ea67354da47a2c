"""HAProxy, its agent, NATS, an instance, a host die under load: no request fails that was not under way on what died."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from phoenix.load.record import Outcome, Row
from tests.support.failures import FAULTS, INSTANCES, Dies, Front, Struck, front, judge, trial

LONG = "d" * 100  # a data directory whose sockets have no short path


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front(tmp_path_factory.mktemp("failures") / LONG) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("name", list(FAULTS))
async def test_no_request_fails_that_was_not_under_way_on_what_died(cloud: Front, name: str) -> None:
    found = await trial(cloud, FAULTS[name])
    assert found.unexplained == [], found.failed
    assert cloud.serving() == INSTANCES


def row(sent: float, ended: float, outcome: Outcome = Outcome.CLOSED, *, post: bool = False) -> Row:
    return Row(sent, sent, sent, ended, outcome, 0, fresh=False, post=post)


WELL = row(20.0, 20.1, Outcome.ANSWERED)


@pytest.mark.parametrize(
    ("dies", "failed", "may"),
    [
        ("nothing", row(9.0, 10.5, post=True), False),
        ("instance", row(9.0, 10.5, post=True), True),
        ("instance", row(9.0, 10.5), False),  # a GET is tried again
        ("instance", row(11.0, 11.5, post=True), False),  # sent when it was dead
        ("instance", row(9.0, 9.5, post=True), False),  # failed before it died
        ("front", row(9.0, 10.5), True),
        ("front", row(15.0, 15.1, Outcome.REFUSED), False),  # no client is refused while it is started again
        ("front", row(10.0, 10.05)._replace(sent=math.nan), True),  # its connection was there, and died with it
        ("front", row(15.0, 15.1)._replace(sent=math.nan), False),
        ("hangs", row(9.0, 15.0), True),
    ],
)
def test_only_what_was_under_way_there_may_fail(dies: Dies, failed: Row, may: bool) -> None:
    found = judge([failed, WELL], Struck(dies, 10.0, 10.1), 1.0)
    assert found.unexplained == ([] if may else [failed])
    assert (found.requests, sum(found.failed.values())) == (2, 1)
    assert found.slowest_s == pytest.approx(0.1)
