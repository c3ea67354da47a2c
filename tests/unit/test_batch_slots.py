"""The times of leases: when the core is woken for a slot, what a slot wants, and how long before who makes way is told."""

from __future__ import annotations

import pytest

from schemas.config import CloudConfig, Leases, Policy
from schemas.size import Size
from services.domain.core import NEVER
from services.scheduler.core.batch import lease_times
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.state import State
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.shape import Booking, Shape
from tests.support.world import batch, cloud
from tests.unit.test_batch_giving_back import AT, fold, host, job, unit

SETTINGS = Leases(lead_s=60.0, margin_s=5.0, suspend_mb_per_s=10.0)
ONE = Shape(1, Size(4, 100), False)


def booking(name: str, start_s: float, end_s: float, shape: Shape = ONE) -> Booking:
    return Booking(AT + start_s, int(name), name, AT + end_s, shape)


def test_the_core_is_woken_before_a_slot_at_its_beginning_and_at_its_end() -> None:
    slots = [booking("1", 100.0, 200.0), booking("2", 150.0, 160.0)]
    moments = []
    at = AT
    while (at := lease_times.next_moment(slots, SETTINGS, at)) < NEVER:
        moments.append(at - AT)
    assert moments == [40.0, 90.0, 100.0, 150.0, 160.0, 200.0]
    assert lease_times.next_moment([], SETTINGS, AT) == NEVER


@pytest.mark.parametrize(
    ("slots", "wanted"),
    [
        ([], 0),
        ([booking("1", 60.0, 100.0)], 3),
        ([booking("1", 61.0, 100.0)], 0),
        ([booking("1", -50.0, 0.5)], 3),
        ([booking("1", -50.0, 0.0)], 0),
        ([booking("1", 0.0, 100.0), booking("2", 0.0, 50.0)], 4),
        ([booking(str(n), 0.0, 50.0, Shape(1, Size(2, 100), False)) for n in range(3)], 4),
        ([booking("1", 0.0, 50.0, Shape(3, Size(1, 100), False))], 5),
        ([booking("1", 0.0, 50.0, Shape(1, Size(5, 100), False))], 0),  # no host could hold it
        ([booking("1", 0.0, 50.0), booking("2", 0.0, 50.0, Shape(1, Size(1, 100), False))], 4),
        ([booking(str(n), 0.0, 50.0) for n in range(9)], 6),
        ([booking(str(n), 0.0, 50.0, Shape(2, Size(4, 100), False)) for n in range(2)], 6),
    ],
)
def test_slots_that_are_near_want_hosts_beside_what_does_not_make_way(slots: list[Booking], wanted: int) -> None:
    hosts = tuple(host(f"h{n}") for n in range(6))
    config = cloud(batch("hpc"))
    state = State(jobs={"7": job(), "8": job(best_effort=True), "9": job()})
    book = Jobs(fold(config=config), "hpc", state)
    for slot in slots:
        book.queue.book(slot)
    open_units = {"7": ("h1", "h2"), "8": ("h3",), "9": ("h2",)}
    capacities = Capacities.of(fold(hosts=hosts))
    assert lease_times.hosts_wanted(book, open_units, capacities, SETTINGS, AT) == wanted


@pytest.mark.parametrize(
    ("grace_s", "saved", "later", "expected"),
    [
        (None, True, False, 5.0 + 40.0),
        (None, True, True, 5.0 + 40.0),
        (None, False, False, 5.0 + 20.0),
        (None, False, True, 5.0 + 40.0),
        (3.0, False, False, 5.0 + 20.0),
    ],
)
def test_who_makes_way_for_a_slot_is_told_as_long_before_as_it_takes(
    grace_s: float | None, saved: bool, later: bool, expected: float
) -> None:
    custody = fold(config=CloudConfig(name="test", departments=(batch("hpc"),), policy=Policy(kill_s=20.0)))
    one = unit(nodes=2, memory_mb=200, grace_s=grace_s)
    assert lease_times.clearing_s(custody, one, SETTINGS, saved=saved, saves_later=later) == expected
    small = unit(memory_mb=100)
    assert lease_times.clearing_s(custody, small, SETTINGS, saved=True, saves_later=False) == 5.0 + 10.0
    assert lease_times.clearing_s(custody, small, SETTINGS, saved=False, saves_later=True) == 5.0 + 20.0
    patient = unit(grace_s=500.0)
    assert lease_times.clearing_s(custody, patient, SETTINGS, saved=False, saves_later=False) > 500.0
    custody.state.config = None
    assert lease_times.clearing_s(custody, unit(), SETTINGS, saved=False, saves_later=False) == 5.0
