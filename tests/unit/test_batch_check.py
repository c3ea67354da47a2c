"""The batch core's check of itself: whatever it knows wrongly is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas import facts as f
from schemas.config import BatchLimits
from schemas.size import Size
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.state import Again, Checkpoint
from services.scheduler.core.state.limits import Limit
from services.scheduler.core.state.shape import Booking, Place, Shape
from tests.support.scheduling import cluster, core, running
from tests.support.world import World

SHAPE = Shape(1, Size(1, 1), False)


def house(order: str = "easy") -> tuple[World, BatchCore, str]:
    """One job runs, which is returned; two wait."""
    world = cluster(1, order=order, limits=BatchLimits(cores_max=100))
    job = running(world, walltime_s=600.0)
    for cores in (3, 4):
        world.submit(cores=cores, walltime_s=900.0, user=f"user{cores}")
    world.settle()
    return world, core(world), job


def forget_a_place(c: BatchCore) -> None:
    next(iter(c.view.jobs.queue.lanes.values()))._places.clear()


def forget_a_length(c: BatchCore) -> None:
    (lane,) = [lane for lane in c.view.jobs.queue.lanes.values() if lane.lengths]
    assert lane.lengths is not None
    lane.lengths.places.clear()


def later_limit(c: BatchCore) -> None:
    c.view.limits.heap[:] = [Limit(c.view.limits.heap[0].due + 1.0, *c.view.limits.heap[0][1:])]


WRONG: dict[str, Callable[[BatchCore], Any]] = {
    "queue": forget_a_place,
    "lengths": forget_a_length,
    "places": lambda c: c.view.jobs.queue.where.update({"2": (c.view.jobs.queue.where["2"][0], Place(7, 7, "2"))}),
    "bookings": lambda c: c.view.jobs.queue.book(Booking(1.0, 1, "9", 2.0, SHAPE)),
    "throttled": lambda c: c.view.jobs.queue.running.update({"9": 1}),
    "room": lambda c: c.view.room.busy.clear(),
    "capacities": lambda c: c.view.capacities.counts.clear(),
    "open": lambda c: c.view.open.clear(),
    "cancelling": lambda c: c.view.cancelling.update({"1": None}),
    "best-effort": lambda c: c.view.best_effort.update({"1": None}),
    "dependents": lambda c: c.view.jobs.dependents.update({"9": {"1": None}}),
    "waiting": lambda c: c.view.jobs.launches.waiting.update({"2": 2e6}),
    "failing": lambda c: c.view.jobs.launches.failing.update({"9": None}),
    "started": lambda c: c.view.limits.started.clear(),
    "next limit": later_limit,
    "suspended": lambda c: c.view.jobs.queue.suspended.update({"2": ("h1",)}),
    "budgets": lambda c: setattr(c.view.jobs.queue.budgets, "used", {}),
    "forecast": lambda c: c.view.foresee().endings.clear(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_view_that_is_not_what_a_fresh_core_has_is_named(name: str) -> None:
    _, c, _ = house()
    if name == "lengths":
        for lane in c.view.jobs.queue.lanes.values():
            c.view.jobs.queue.by_length(lane)
            break
    assert c.check() == []
    WRONG[name](c)
    assert [line for line in c.check() if line.startswith(f"view {name} differs from custody: ")]


def test_what_an_order_that_looks_back_has_is_not_missed() -> None:
    _, c, _ = house("fcfs")
    assert not c.view.foresaw
    assert c.check() == []


MISREMEMBERED: dict[str, Callable[[BatchCore, str], Any]] = {
    "1 has 0 units left of 1": lambda c, job: setattr(c.state.jobs[job], "left", 0),
    "1 has 2 units left of 1": lambda c, job: setattr(c.state.jobs[job], "left", 2),
    "9 is remembered as requeued and is no job's": lambda c, _: c.state.again.update({"9": Again(entered=0)}),
    "9 has a checkpoint and is no job's": lambda c, _: c.state.checkpoints.update(
        {"9": Checkpoint(attempt=1, at=0.0, saved_s=1.0)}
    ),
    "1 has saved 1.0 s of 2.0 s": lambda c, job: c.state.checkpoints.update(
        {job: Checkpoint(attempt=1, at=0.0, saved_s=1.0, base_s=2.0)}
    ),
    "9's machine is remembered and gone": lambda c, _: c.state.warm.update({"9": "ann"}),
    "2's machine is remembered and gone": lambda c, _: c.state.warm.update({"2": "ann"}),
}


@pytest.mark.parametrize("told", MISREMEMBERED)
def test_what_is_remembered_of_nobody_or_makes_no_sense_is_named(told: str) -> None:
    _, c, job = house()
    MISREMEMBERED[told](c, job)
    assert [line for line in c.check() if not line.startswith(("view ", "it rests"))] == [told]


def test_what_makes_sense_is_not_named() -> None:
    world, c, job = house()
    c.state.checkpoints[job] = Checkpoint(attempt=1, at=0.0, saved_s=1.0, base_s=1.0)
    c.state.warm[job] = "ann"  # its machine is open
    world.submit(array=(3, 4))
    world.settle()
    assert [line for line in c.check() if not line.startswith("it rests")] == []
    c.state.jobs["4"].left = 3
    assert "4 has 3 units left of 2" in c.check()


def test_a_core_may_rest_until_what_it_waits_for() -> None:
    _, c, _ = house()
    assert c.rests_until_woken()
    due = c.wake_at()
    c.custody.state.at = due
    assert not c.rests_until_woken(), "its moment has come"
    assert not [line for line in c.check() if line.startswith("it rests")]


def test_lines_of_several_faults_stand_beside_each_other() -> None:
    _, c, _ = house()
    c.view.jobs.queue.running["9"] = 1
    c.view.limits.started.clear()
    c.state.again["9"] = Again(entered=0)
    assert len(c.check()) == 3


def test_a_fact_that_changes_nothing_leaves_it_at_rest() -> None:
    world, c, _ = house()
    world.write("executor", f.HostObserved(host="h1", cpu=0.5, memory=0.5))
    assert c.rests_until_woken()
