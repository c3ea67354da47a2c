"""The batch core at the size it is made for: a thousand hosts, ten thousand pending jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from schemas import facts as f
from schemas.envelope import FACTS_MAX
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.view import STARTS_MAX
from tests.support.world import World, batch, cloud

# Calls of functions in a full pass: measured 665, and 15,334 with slots of leases, however long the queue is.  One for each of
# ten thousand jobs would be more.
CALLS_MAX, CALLS_OF_SLOTS_MAX = 2000, 20_000


def cluster(hosts: int, order: str = "first-fit") -> World:
    world = World(cloud(batch("hpc", order=order)))
    world.strict = False  # the checks look at everything, each time
    names = world.hosts(hosts, cores=8)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def calls_of(call: Callable[[], object]) -> int:
    """How many functions are called meanwhile, those of C included."""
    found = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_ten_thousand_jobs_that_cannot_start_cost_no_time() -> None:
    world = cluster(1000)
    core: BatchCore = world.seats["scheduler.hpc"].core
    world.submit(array=tuple(range(1000)), cores=8)
    world.settle()
    assert len(core.view.open) == 1000
    for number in range(1000):
        world.submit(array=tuple(range(10)), nodes=1 + number % 4, cores=1 + number % 8, memory_mb=100 * (number % 5))
    world.settle()
    assert len(core.view.jobs.queue) == 10_000

    def full_pass() -> None:
        core.view.room.grew, core.report.wanted, core._rests = True, None, False
        assert core.decide(world.now) == []

    assert calls_of(full_pass) < CALLS_MAX
    assert calls_of(lambda: core.decide(world.now)) < CALLS_MAX / 10
    world.seats["scheduler.hpc"].verify(world.now)


def test_a_notice_larger_than_an_envelope_is_answered_in_pieces_that_are_valid() -> None:
    world = cluster(1200)
    core: BatchCore = world.seats["scheduler.hpc"].core
    world.submit(array=tuple(range(1200)), cores=8)
    assert len([fact for fact in core.decide(world.now) if isinstance(fact, f.UnitPlaced)]) == STARTS_MAX
    world.settle()
    world.quota("hpc", 0)
    facts = core.decide(world.now)
    assert len(facts) == FACTS_MAX
    assert sum(isinstance(fact, f.HostReleased) for fact in facts) == FACTS_MAX // 2
    world.settle()
    assert world.custody.held("hpc") == 0
    assert set(world.states().values()) == {"pending"}
    assert world.voids == []


@pytest.mark.parametrize("in_s", [1000.0, -5.0])
def test_slots_of_leases_that_are_to_come_or_late_cost_no_time(in_s: float) -> None:
    world = cluster(1000, order="leases")
    core: BatchCore = world.seats["scheduler.hpc"].core
    world.submit(array=tuple(range(1000)), cores=8, best_effort=in_s > 0)
    world.settle()
    for number in range(1000):
        world.submit(array=tuple(range(10)), nodes=1 + number % 4, cores=1 + number % 8)
    for number in range(20):
        slot = f.Lease(kind="advance", start_at=world.now + in_s + number)
        world.submit(nodes=4, cores=4, lease=slot, walltime_s=500.0)
    world.settle()

    def full_pass() -> None:
        core.view.room.grew, core.report.wanted, core._rests = True, None, False
        assert core.decide(world.now) == []

    assert calls_of(full_pass) < CALLS_OF_SLOTS_MAX
