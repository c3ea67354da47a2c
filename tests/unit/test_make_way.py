"""Best-effort under every order, and the bounds on preemption: who makes way, who is guarded, and how it is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, MultiFactor, Quality
from schemas.facts import Disposal
from services.domain.core import NEVER
from services.domain.custody.rules import RULES
from services.domain.text import sentence
from services.scheduler.core.policies.registry import ORDERS
from services.scheduler.lookahead.why import why
from tests.support.scheduling import closed, cluster, core, decide, placed, running
from tests.support.world import World, batch, cloud

SHARED = {"services": {"a": 1.0}, "short_s": 1e6}
EVERY = sorted(({*ORDERS} - {"leases"}) | {"multi-factor"})  # there best-effort makes way for leases alone


def world_of(hosts: int, order: str = "first-fit", **policy: Any) -> World:
    policy = {"boot_timeout_s": 1e6} | policy
    return cluster(hosts, order=order, **(SHARED if order == "svmsched" else {}), **policy)


def service(world: World) -> dict[str, Any]:
    return {"service": "a"} if core(world).view.policy.order == "svmsched" else {}


def scavenger(world: World, *, after_s: float = 0.0, **fields: Any) -> str:
    return running(world, best_effort=True, after_s=after_s, walltime_s=7200.0, **service(world), **fields)


def moment(world: World) -> float:
    """When time lifts a bound; the core wakes by then."""
    found = core(world).view.guards.next_moment(core(world).view.best_effort, world.now)
    assert core(world).wake_at() <= found
    return found


def ask(world: World, cores: int = 4, **fields: Any) -> str:
    return world.submit(cores=cores, **service(world), **fields)


@pytest.mark.parametrize("order", EVERY)
def test_best_effort_makes_way_for_production_in_every_order(order: str) -> None:
    world = world_of(2, order)
    victim, other = scavenger(world), scavenger(world)
    job = ask(world)
    gone = closed(world)
    assert list(gone.values()) == [(Disposal.REQUEUE, because.Preempted)]
    assert next(iter(gone)) in (victim, other)
    world.settle()
    states = world.states()
    assert states[job] == "open"
    assert sorted([states[victim], states[other]]) == ["open", "pending"]


@pytest.mark.parametrize("order", EVERY)
def test_production_never_makes_way_and_nobody_goes_for_nothing(order: str) -> None:
    world = world_of(2, order)
    running(world, walltime_s=7200.0, **service(world))
    scavenger(world)
    ask(world, nodes=2)
    assert closed(world) == {}  # it would not fit without best-effort either


@pytest.mark.parametrize("order", EVERY)
def test_who_fits_beside_best_effort_makes_nobody_move(order: str) -> None:
    world = world_of(2, order)
    scavenger(world)
    job = ask(world)
    assert closed(world) == {}
    assert list(placed(world)) == [job]


def test_the_order_of_victims_says_who_goes() -> None:
    for victims, gone in (("smallest-shortest-spared", 1), ("youngest-first", 2), ("least-work-lost", 2)):
        world = world_of(3, victims=victims)
        jobs = [scavenger(world, after_s=100.0), scavenger(world, after_s=10.0, nodes=2)]
        ask(world)
        assert list(closed(world)) == [jobs[gone - 1]], victims


def test_orders_of_victims_that_look_at_costs_of_their_own_say_who_goes_too() -> None:
    world = world_of(2, victims="minimum-overhead")
    small, large = scavenger(world, memory_mb=100), scavenger(world, memory_mb=4000)
    ask(world)
    assert list(closed(world)) == [small]  # of equals it would be the newest
    assert large in world.states()


def test_a_strict_order_stays_strict_and_best_effort_uses_what_waits() -> None:
    world = world_of(3, "fcfs")
    running(world, walltime_s=7200.0)
    wide = ask(world, nodes=3)
    narrow = ask(world)
    idle = world.submit(cores=4, best_effort=True)
    world.settle()
    assert world.states() == {"1": "open", wide: "pending", narrow: "pending", idle: "open"}
    reason = next(fact.reason for fact in world.facts(f.UnitPlaced) if fact.unit == idle)
    assert type(reason) is because.BestEffort
    world.report("1")
    world.settle()
    assert world.states()[wide] == "open"  # it needed the host of best-effort too
    assert world.states()[idle] == "pending"


def test_easy_keeps_its_reservation_for_production_alone() -> None:
    world = world_of(3, "easy")
    running(world, walltime_s=1000.0)
    scavenger(world)
    head = ask(world, nodes=3, walltime_s=100.0)
    long, brief = ask(world, walltime_s=5000.0), ask(world, walltime_s=500.0)
    world.settle()
    assert world.states() == {"1": "open", "2": "open", head: "pending", long: "pending", brief: "open"}
    world.report("1")
    world.report(brief)
    world.settle()
    assert world.states()[head] == "open"


def test_production_goes_before_best_effort_whatever_the_priority() -> None:
    for order in ("fcfs", "first-fit", "easy", "conservative", "shortest-first", "multi-factor"):
        world = world_of(1, order)
        eager, job = world.submit(cores=4, best_effort=True, priority=1000), ask(world)
        world.settle()
        assert world.states() == {eager: "pending", job: "open"}, order


def test_a_quality_can_be_best_effort() -> None:
    world = world_of(1, quality={"scavenger": Quality(best_effort=True)})
    idle = running(world, best_effort=True, quality="scavenger")  # as the door says it
    job = ask(world)
    world.settle()
    assert world.states() == {idle: "pending", job: "open"}
    told = why(core(world), idle, world.now)[-1]
    assert type(told) is because.Preempted
    assert because.fields(told)["preempted"] == 1


def test_a_victim_that_fits_the_limits_is_still_minimal() -> None:
    world = world_of(2, limits=BatchLimits(cores_max=4))
    scavenger(world, user="bob")
    scavenger(world, user="cyd")
    ask(world)
    ask(world)
    assert len(closed(world)) == 1  # ann may have four cores only: one victim is enough
    world.settle()
    assert closed(world) == {}


@pytest.mark.parametrize("order", ["fcfs", "first-fit", "easy", "conservative", "shortest-first", "multi-factor"])
def test_best_effort_makes_way_where_it_fills_a_limit(order: str) -> None:
    world = world_of(6, order)
    department = batch("hpc", order=order, boot_timeout_s=1e6)
    world.write(
        "provisioner",
        f.ConfigAdopted(
            cloud="c1", custody_rules=RULES, config=cloud(msgspec.structs.replace(department, maximum_cores=8))
        ),
    )
    small = [scavenger(world, cores=2, user="bob") for _ in range(4)]
    job = ask(world)  # there are free hosts, and no cores left of the department's
    assert len(closed(world)) == 2
    world.settle()
    assert world.states()[job] == "open"
    assert [world.states()[each] for each in small].count("open") == 2
    assert closed(world) == {}
    other = ask(world, user="cyd")
    world.settle()
    assert [world.states()[each] for each in (other, *small)] == ["open", *["pending"] * 4]
    last = ask(world)
    world.settle()
    assert world.states()[last] == "pending"  # production has them all
    assert type(why(core(world), last, world.now)[0]) is because.DepartmentLimit


# ------------------------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("order", EVERY)
def test_an_attempt_runs_for_its_time_before_a_job_may_end_it(order: str) -> None:
    world = world_of(1, order, min_run_s=60.0)
    idle = scavenger(world, after_s=20.0)
    began = world.now - 20.0
    job = ask(world)
    world.settle()
    assert world.states() == {idle: "open", job: "pending"}
    told = why(core(world), job, world.now)[0]
    assert type(told) is because.Protected
    assert because.fields(told) == {"guarded": 1, "until_s": 40.0}
    assert (
        sentence(told)
        == "it would fit if best-effort made way; 1 attempt may not be ended for it yet; the next may in 40s"
    )
    assert moment(world) == began + 60.0
    world.advance(39.0)
    assert world.states()[job] == "pending"
    world.advance(2.0)
    assert world.states() == {idle: "pending", job: "open"}


def test_who_has_not_begun_is_guarded_too() -> None:
    world = world_of(1, min_run_s=60.0)
    idle = world.submit(cores=4, best_effort=True)
    world.settle()
    job = ask(world)
    world.settle()
    assert world.states() == {idle: "open", job: "pending"}
    world.start_vms(idle)
    world.begin(idle)
    assert core(world).wake_at() == world.now + 60.0


@pytest.mark.parametrize("order", EVERY)
def test_a_job_makes_way_only_so_often(order: str) -> None:
    world = world_of(1, order, preemptions_max=2)
    idle = scavenger(world)
    for _ in range(2):
        job = ask(world)
        world.settle()
        assert world.states()[job] == "open"
        world.report(job)
        world.settle()
        assert world.states()[idle] == "open"
    job = ask(world)
    world.settle()
    assert (world.states()[idle], world.states()[job]) == ("open", "pending")
    assert type(why(core(world), job, world.now)[0]) is because.Protected
    assert moment(world) == NEVER  # time alone lifts nothing


@pytest.mark.parametrize("order", EVERY)
def test_only_so_many_are_ended_in_an_hour(order: str) -> None:
    world = world_of(3, order, preemptions_per_hour_max=2)
    first = world.now
    for _ in range(3):
        scavenger(world)
    jobs = [ask(world) for _ in range(3)]
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "open", "pending"]
    told = why(core(world), jobs[2], world.now)[0]
    assert because.fields(told) == {"guarded": 0, "hour_spent": True, "until_s": 3600.0}
    assert moment(world) == first + 3600.0
    world.advance(3599.0)
    assert world.states()[jobs[2]] == "pending"
    world.advance(2.0)
    assert world.states()[jobs[2]] == "open"


@pytest.mark.parametrize("order", EVERY)
def test_a_start_that_needs_more_than_the_hour_has_left_holds_nobody_up(order: str) -> None:
    world = world_of(3, order, preemptions_per_hour_max=1)
    scavenger(world)
    scavenger(world)
    wide = ask(world, nodes=3, walltime_s=100.0)
    world.settle()
    assert world.states()[wide] == "pending"
    assert closed(world) == {}
    world.report("1")
    world.settle()
    assert world.states()[wide] == "open"


def test_with_a_bound_in_the_hour_who_is_lost_may_leave_fewer_to_end() -> None:
    world = world_of(2, preemptions_per_hour_max=1)
    old = scavenger(world, after_s=100.0)
    small = [scavenger(world, cores=2), scavenger(world, cores=2)]
    job = ask(world)
    world.settle()
    assert world.states()[job] == "pending"  # the two small ones are the cheapest, and two are too many
    world.lose(world.unit(small[0]).hosts[0])  # the table compares with a core that has just loaded
    world.settle()
    assert (world.states()[job], world.states()[old]) == ("open", "pending")


def test_a_notice_is_never_refused_and_chooses_the_guarded_last() -> None:
    for victims in ("smallest-shortest", "smallest-shortest-spared", "youngest-first", "least-work-lost"):
        world = world_of(3, victims=victims, min_run_s=60.0, preemptions_per_hour_max=1)
        old, wide = running(world, after_s=100.0), running(world, nodes=2, after_s=10.0)
        world.quota("hpc", 2)
        assert list(closed(world)) == [old], victims  # every price would have chosen otherwise or the same
        world.quota("hpc", 0)
        assert sorted(closed(world)) == sorted([old, wide]), victims


def test_best_effort_goes_on_notice_before_production_even_if_it_is_guarded() -> None:
    world = world_of(2, min_run_s=60.0)
    running(world, after_s=100.0)
    idle = scavenger(world)
    world.quota("hpc", 1)
    assert list(closed(world)) == [idle]


def test_preemption_costs_no_retry_and_the_end_says_what_it_was() -> None:
    world = world_of(1, requeues_max=1)
    idle = scavenger(world, retries=1)
    for _ in range(2):
        job = ask(world)
        last = [fact for fact in decide(world) if isinstance(fact, f.AttemptClosed)][-1]
        world.settle()
        world.report(job)
        world.settle()
    assert world.states()[idle] == "killed"
    assert last.disposal is Disposal.KILL
    assert type(last.why) is because.Preempted
    assert because.fields(last.why)["requeues"] == 1
    world = world_of(1)
    idle = scavenger(world, retries=1)
    job = ask(world)
    world.settle()
    world.report(job)
    world.settle()
    world.report(idle, exit=1)
    world.settle()
    assert world.states()[idle] == "open"  # the retry was still there


def test_the_bounds_are_folded_and_survive_a_restart_and_a_change_of_configuration() -> None:
    world = world_of(1, preemptions_max=1)
    idle, job = scavenger(world), ask(world)
    world.settle()
    world.report(job)
    world.settle()
    world.restart("scheduler.hpc")
    job = ask(world)
    world.settle()
    assert world.states() == {idle: "open", "2": "completed", job: "pending"}
    config = msgspec.structs.replace(cloud(batch("hpc", preemptions_max=2)))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    world.settle()
    assert world.states()[job] == "open"


def test_points_are_those_of_now_where_only_best_effort_leaves_room() -> None:
    world = world_of(1, "multi-factor", multi_factor=MultiFactor(period_s=10.0))
    scavenger(world)
    ask(world)
    book, room = core(world).view.jobs, core(world).view.room
    world.now += 100.0
    assert book.priorities.stale(world.now)
    assert not any(room.fits(key.shape) for key in book.queue.lanes)
    decide(world)  # nothing fits on what is free, and somebody makes way for the first one by the points of now
    assert not book.priorities.stale(world.now)
