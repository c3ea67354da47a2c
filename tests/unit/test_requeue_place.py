"""Where a job that was preempted waits: in its own place, or at the end of the queue (`requeue_place`)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from services.scheduler.core.policies.registry import ORDERS
from tests.support.scheduling import cluster, core
from tests.support.world import RULES, World, batch, cloud

NAMES = sorted({*ORDERS, "multi-factor"})


def crowded(order: str = "first-fit", **policy: Any) -> tuple[World, str, str, str]:
    """Two hosts with a job on each, of which the first has run for less and is a notice's victim; and one that waits."""
    shared: dict[str, Any] = {"services": {"a": 1.0}} if order == "svmsched" else {}
    world = cluster(2, order=order, **shared, **policy)
    service = {"service": "a"} if shared else {}
    first, second, waiting = [world.submit(cores=4, **service) for _ in range(3)]
    world.settle()
    world.begin(second)
    world.now += 10.0
    world.begin(first)
    assert world.states() == {first: "open", second: "open", waiting: "pending"}
    return world, first, second, waiting


def queue(world: World) -> list[str]:
    return [place.unit for place in core(world).view.jobs.queue.in_order()]


def take(world: World, unit: str, how: str = "notice") -> None:
    """The host of a running job goes."""
    (host,) = world.unit(unit).hosts
    if how == "lost":
        world.lose(host)
    elif how == "seized":
        world.seats["scheduler.hpc"].paused = True
        world.quota("hpc", 1)
        world.write("provisioner", f.HostSeized(host=host, dept="hpc"))
        world.seats["scheduler.hpc"].paused = False
    else:
        world.quota("hpc", 1)
    world.settle()


@pytest.mark.parametrize("how", ["notice", "seized", "lost"])
@pytest.mark.parametrize("order", NAMES)
def test_a_job_whose_host_was_taken_starts_again_before_one_that_was_behind_it(order: str, how: str) -> None:
    world, first, second, waiting = crowded(order)
    take(world, first, how)
    assert queue(world) == [first, waiting]
    world.report(second)
    world.settle()
    assert world.states() == {first: "open", second: "completed", waiting: "pending"}


@pytest.mark.parametrize("order", NAMES)
def test_at_the_end_it_starts_after_those_that_waited(order: str) -> None:
    world, first, second, waiting = crowded(order, requeue_place="end")
    take(world, first)
    assert queue(world) == [waiting, first]
    world.report(second)
    world.settle()
    assert world.states() == {first: "pending", second: "completed", waiting: "open"}


def test_one_whose_vm_failed_is_in_nobodys_way() -> None:
    world, first, second, waiting = crowded()
    world.start_vms(second)
    world.end_vm(second)
    world.settle()
    assert world.states() == {first: "open", second: "pending", waiting: "open"}


def test_best_effort_that_made_way_is_before_best_effort_that_came_later() -> None:
    world = cluster(1)
    first = world.submit(cores=4, best_effort=True)
    world.settle()
    later = world.submit(cores=4, best_effort=True)
    production = world.submit(cores=4)
    world.settle()
    assert world.states() == {first: "pending", later: "pending", production: "open"}
    assert queue(world) == [first, later]


def test_a_new_configuration_counts_from_the_next_preemption_on() -> None:
    world, first, _, waiting = crowded(requeue_place="end")
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(batch("hpc"))))
    take(world, first)
    assert queue(world) == [first, waiting]
