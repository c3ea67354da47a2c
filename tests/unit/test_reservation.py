"""A reservation: on which hosts somebody else would be in the head's way, and when it will fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.size import Size
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Place, Shape

HEAD = Place(0, 1, "1")
WHOLE = Free.of(True, Size(4, 400))


@pytest.mark.parametrize(
    ("free", "shape", "spoils"),
    [
        (WHOLE, Shape(1, Size(2, 200), False), False),
        (WHOLE, Shape(1, Size(3, 200), False), True),
        (WHOLE, Shape(1, Size(2, 201), False), True),
        (WHOLE, Shape(1, Size(1, 100), True), True),
        (Free.of(False, Size(1, 400)), Shape(1, Size(1, 100), False), False),
    ],
)
def test_a_host_is_spoilt_where_the_head_would_fit_but_for_the_other(free: Free, shape: Shape, spoils: bool) -> None:
    gap = Gap(HEAD, Shape(1, Size(2, 200), False), 100.0, {"h1": free}, 0)
    assert gap.spoils("h1", shape) is spoils


def expected(endings: list[Ending], **units: int) -> Any:
    return SimpleNamespace(endings=endings, held=dict.fromkeys(units, WHOLE), units=lambda name: units[name])


def test_hosts_in_quarantine_do_not_count_however_empty_they_get() -> None:
    shape = Shape(1, Size(4, 400), False)
    forecast = expected([Ending(10.0, "2", ("h1",), shape), Ending(20.0, "3", ("h2",), shape)], h1=1, h2=1)
    gap = gap_for(HEAD, shape, Room(()), forecast, [], ["h1"])
    assert gap is not None
    assert (gap.at, gap.later) == (20.0, {"h2": WHOLE})


def test_of_a_host_that_offers_nothing_now_the_end_of_one_of_several_leaves_what_it_had() -> None:
    half = Shape(1, Size(2, 200), False)
    forecast = expected([Ending(10.0, "2", ("h1",), half), Ending(20.0, "3", ("h1",), half)], h1=2)
    gap = gap_for(HEAD, half, Room(()), forecast, [], [])
    assert gap is not None
    assert (gap.at, gap.later, gap.spare) == (10.0, {"h1": Free.of(False, Size(2, 200))}, 0)
