"""When a batch core asks its order again, and what one decision says: passes are counted, decisions read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import MultiFactor
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.view import View
from services.scheduler.core.policies.order import Order, Plan, Situation
from tests.support.leases import lease
from tests.support.scheduling import cluster, core, decide, placed, running
from tests.support.world import World, batch, cloud

PATIENT: dict[str, Any] = {"boot_timeout_s": 1e6}


class Counted:
    """A core whose order starts nobody; `passes`: what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, due: float | None = None, **order: Any) -> None:
        self.passes: list[Situation] = []
        self.due = due

        def plan(situation: Situation) -> Plan:
            self.passes.append(situation)
            return Plan([], due=self.due or NEVER)

        counting = Order(plan, keeps_slots=due is not None, **order)
        monkeypatch.setattr(View, "order", property(lambda _: counting))

    def again(self, world: World, does: Callable[[World], Any]) -> int:
        """Passes after it."""
        self.passes.clear()
        does(world)
        world.settle()
        return len(self.passes)


def fruitless(**policy: Any) -> World:
    """Job 1 runs on h1, and 2 waits; h2 is free."""
    world = cluster(2, held=2, **(PATIENT | policy))
    world.strict = False
    running(world, walltime_s=1e6, nodes=2, cores=1, best_effort="min_run_s" in policy)
    world.submit(nodes=2, cores=4)
    world.settle()
    return world


def says_anything(world: World) -> None:
    world.write("admission", f.CheckpointReported(unit="1", attempt=1))


def extended(world: World) -> None:
    core(world)._expect("1")
    says_anything(world)


def later(seconds: float) -> Callable[[World], Any]:
    def wait(world: World) -> None:
        world.now += seconds
        says_anything(world)

    return wait


def adopt(world: World) -> None:
    config = cloud(batch("hpc", **PATIENT), batch("bio"))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))


@pytest.mark.parametrize(
    ("does", "asked"),
    [
        (says_anything, 0),
        (later(1000.0), 0),
        (extended, 0),
        (lambda world: world.submit(nodes=2, cores=4), 1),
        (lambda world: world.cancel("2"), 0),  # nobody waits any more
        (lambda world: world.report("1"), 1),
        (adopt, 1),
    ],
)
def test_a_fruitless_pass_is_repeated_when_something_could_bear_fruit(
    does: Callable[[World], Any], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fruitless()
    counted = Counted(monkeypatch)
    adopt(world)
    world.settle()
    assert counted.again(world, does) == asked
    assert counted.again(world, says_anything) == 0


@pytest.mark.parametrize(
    ("order", "policy"), [({"foresees": True}, {}), ({}, {"preemptions_per_hour_max": 5, "min_run_s": 1e6})]
)
def test_an_order_that_looks_ahead_is_asked_when_an_end_is_expected_otherwise(
    order: dict[str, Any], policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fruitless(**policy)
    counted = Counted(monkeypatch, **order)
    assert counted.again(world, lambda w: w.submit(nodes=2, cores=4)) == 1
    assert counted.again(world, says_anything) == 0
    assert counted.again(world, extended) == 1
    assert counted.again(world, says_anything) == 0


def test_an_order_is_asked_again_when_its_own_moment_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fruitless()
    counted = Counted(monkeypatch, due=world.now + 50.0)
    counted.again(world, lambda w: w.submit(nodes=2, cores=4))
    assert core(world).wake_at() == world.now + 50.0
    assert counted.again(world, later(49.0)) == 0
    counted.due = world.now + 90.0
    assert counted.again(world, later(1.0)) == 1
    assert core(world).wake_at() == world.now + 89.0
    assert counted.again(world, lambda w: [w.cancel("2"), w.cancel("3")]) == 0
    assert core(world).wake_at() > world.now + 89.0, "nobody waits for it"


def test_an_order_is_asked_again_when_time_lifts_a_guard_of_somebody_who_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fruitless(min_run_s=60.0)
    counted = Counted(monkeypatch)
    counted.again(world, lambda w: w.submit(nodes=2, cores=4))
    assert counted.again(world, later(59.0)) == 0
    assert counted.again(world, later(1.0)) > 0
    assert counted.again(world, later(1000.0)) == 0


def test_an_order_is_not_asked_while_nobody_waits_or_the_department_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(1, **PATIENT)
    world.strict = False
    counted = Counted(monkeypatch)
    assert counted.again(world, lambda w: w.grant("hpc")) == 0
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(batch("bio"))))
    assert counted.again(world, lambda w: w.submit()) == 0


def test_a_moment_at_which_priorities_are_others_is_not_passed_over_when_another_department_is_heard_first() -> None:
    world = cluster(1, order="multi-factor", multi_factor=MultiFactor(backfill="none", period_s=10.0), **PATIENT)
    running(world, user="bob", cores=3)
    waits = [world.submit(user=user, cores=cores) for user, cores in (("bob", 4), ("ann", 1))]
    world.settle()
    assert [world.unit(job).state for job in waits] == ["pending", "pending"], "bob's comes first and does not fit"
    moment = core(world).wake_at()
    assert moment == world.now + 10.0
    world.now = moment + 1.0
    world.strict = False  # nobody asks it for a decision
    world.submit("bio")
    assert core(world).wake_at() == moment
    assert placed(world) == {waits[1]: ("h1",)}, "bob has used something by now, and ann has not"


# ------------------------------------------------------------------------------------------------------------ one decision


def kinds(world: World) -> list[type]:
    return [type(fact) for fact in decide(world)]


def test_beside_a_closing_others_start_unless_a_slot_may_need_the_room() -> None:
    for booked in (False, True):
        world = cluster(2, **PATIENT)
        world.strict = False
        running(world)
        if booked:
            lease(world, 5000.0, nodes=2)
        world.settle()
        job = world.submit(cores=4)
        world.cancel("1")
        assert (f.UnitPlaced in kinds(world)) is not booked
        assert f.AttemptClosed in kinds(world)
        world.settle()
        assert world.states()[job] == "open"


def test_attempts_that_are_cancelled_together_end_in_the_order_of_submission() -> None:
    world = cluster(3)
    world.strict = False
    for _ in range(10):
        world.submit()
    world.settle()
    for job in ("10", "9"):
        world.cancel(job)
    assert [fact.unit for fact in decide(world) if isinstance(fact, f.AttemptClosed)] == ["9", "10"]


def test_cordoned_hosts_go_back_by_name_the_idle_ones_first_and_each_once() -> None:
    world = cluster(4)
    world.strict = False
    running(world)
    running(world)
    for host in ("h4", "h3"):
        world.cordon(host)
    assert [fact.host for fact in decide(world) if isinstance(fact, f.HostReleased)] == ["h3", "h4"]
    for host in ("h4", "h3", "h2"):
        world.drain(host)
    cordoned, drained = because.Cordoned(hosts=["h3"]), because.HostDrained(host="h2")
    found = decide(world)
    assert found[0] == f.HostReleased(host="h3", reason=cordoned)
    assert [getattr(fact, "unit", None) or fact.host for fact in found[1:]] == ["h4", "2", "h2"]  # type: ignore[attr-defined]
    assert found[-1] == f.HostReleased(host="h2", reason=drained)


def test_a_slot_that_waits_wakes_the_core_before_it_begins() -> None:
    world = cluster(1, **PATIENT)
    lease(world, 5000.0)
    world.settle()
    assert core(world).wake_at() == world.now + 5000.0 - core(world).view.policy.leases.lead_s


def test_without_a_configuration_it_is_never_woken() -> None:
    alone = BatchCore(Custody(), "hpc")
    assert (alone.decide(5.0), alone.wake_at()) == ([], NEVER)


def test_cordoned_hosts_in_use_are_wanted_beside_as_many_as_others_may_have() -> None:
    world = cluster(4)
    for _ in range(3):
        running(world)
    for host in ("h1", "h2"):
        world.cordon(host)
    for _ in range(9):
        world.submit(cores=4)
    world.settle()
    assert world.custody.state.demands["hpc"] == 4


def test_hosts_that_rest_for_long_go_back_by_name_and_only_idle_ones() -> None:
    world = cluster(3)
    world.strict = False
    running(world)
    for host in ("h3", "h2", "h1"):
        world.rest(host, 5000.0)
    assert [fact.host for fact in decide(world) if isinstance(fact, f.HostReleased)] == ["h2", "h3"]


def test_a_department_without_a_quota_gives_nothing_back() -> None:
    world = World(cloud(batch("hpc")))
    world.hosts(1)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    assert (core(world).view.notice(), decide(world), placed(world)) == (0, [], {})
    assert core(world).decided_at == world.now


def test_best_effort_that_makes_way_ends_in_the_decision_that_starts_who_needs_its_room() -> None:
    world = cluster(1)
    world.strict = False
    running(world, best_effort=True)
    world.submit(cores=4)
    assert kinds(world)[:2] == [f.AttemptClosed, f.UnitPlaced]


def test_broken_attempts_are_closed_in_the_order_of_submission() -> None:
    world = cluster(3)
    world.strict = False
    for _ in range(10):
        world.submit()
    world.settle()
    for job in ("10", "9"):
        world.start_vms(job)
        world.end_vm(job)
    assert [fact.unit for fact in decide(world) if isinstance(fact, f.AttemptClosed)] == ["9", "10"]


# -------------------------------------------------------------------------------------------------------- what is not lost


def test_after_a_notice_an_order_is_asked_for_its_moment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(3, **PATIENT)
    world.strict = False
    running(world, walltime_s=1e6)
    world.settle()
    counted = Counted(monkeypatch, due=world.now + 50.0)
    counted.again(world, lambda w: w.submit(nodes=3))
    assert core(world).wake_at() == world.now + 50.0
    assert counted.again(world, lambda w: w.quota("hpc", 2)) == 1
    assert core(world).wake_at() == world.now + 50.0


def test_after_a_closing_beside_a_slot_an_order_is_asked_for_its_moment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(2, **PATIENT, requeues_max=0)
    world.strict = False
    running(world, walltime_s=1e6, on_reclaim="kill")
    lease(world, 5000.0)
    counted = Counted(monkeypatch, due=world.now + 50.0)
    world.settle()
    assert counted.again(world, lambda w: w.lose("h1")) == 1
    assert core(world).wake_at() == world.now + 50.0


def test_who_is_to_make_way_for_a_slot_is_told_again_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(1, **PATIENT)
    world.strict = False
    idle = running(world, best_effort=True, walltime_s=1e6)
    slot = lease(world, 0.0)
    clears = Order(lambda _: Plan([], clear=[(idle, slot)]), makes_way=True, keeps_slots=True)
    monkeypatch.setattr(View, "order", property(lambda _: clears))
    first = [fact for fact in decide(world) if isinstance(fact, f.AttemptClosed)]
    assert [fact.unit for fact in first] == [idle]
    assert [fact for fact in decide(world) if isinstance(fact, f.AttemptClosed)] == first


def test_an_order_that_looks_ahead_is_asked_when_there_are_fewer_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fruitless()
    counted = Counted(monkeypatch, foresees=True)
    counted.again(world, lambda w: w.submit(nodes=2, cores=4))
    assert counted.again(world, lambda w: w.cordon("h2")) == 1
    assert counted.again(world, says_anything) == 0


def test_a_bound_by_the_hour_wakes_it_only_where_somebody_could_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fruitless(preemptions_per_hour_max=5)
    core(world).state.made_way.append(world.now)
    counted = Counted(monkeypatch)
    counted.again(world, lambda w: w.submit(nodes=2, cores=4))
    assert core(world).wake_at() > world.now + 3600.0
    assert counted.again(world, later(3600.0)) == 0


def test_a_host_that_has_rested_does_not_wake_it_for_ever() -> None:
    world = cluster(2, **PATIENT)
    world.submit(nodes=3)
    world.rest("h1", 60.0)
    world.settle()
    world.now += 60.0
    assert decide(world) == []
    assert core(world).wake_at() > world.now


def test_a_demand_goes_down_in_the_decision_in_which_time_lets_somebody_start_beside_others() -> None:
    world = cluster(2, held=1, **PATIENT)
    world.strict = False
    running(world, cores=2)
    world.rest("h1", 60.0)
    world.submit(cores=2)
    world.settle()
    before = world.custody.state.demands["hpc"]
    world.now += 60.0
    found = [fact for fact in decide(world) if isinstance(fact, f.UnitPlaced | f.DemandChanged)]
    told = [fact.hosts if isinstance(fact, f.DemandChanged) else fact.unit for fact in found]
    assert (before, told) == (2, ["2", 1])


def test_other_constraints_of_as_many_hosts_are_another_demand() -> None:
    world = cluster(2, held=0)
    world.strict = False
    described = f.HostDescribed(host="h2", one_id=2, cores=4, memory_mb=8192, labels={"GPU": "yes"})
    world.write("executor", described)
    job = world.submit(constraint="gpu=yes", cores=4)
    world.settle()
    assert core(world).state.prefer == ("gpu=yes",)
    world.cancel(job)
    world.submit(cores=4)
    (told,) = [fact for fact in decide(world) if isinstance(fact, f.DemandChanged)]
    assert (told.hosts, told.prefer) == (world.custody.state.demands["hpc"], ())
