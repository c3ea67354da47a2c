"""What a batch core keeps of each fact: which ones end its rest, and what it remembers of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance, Warm
from schemas.facts import Disposal
from services.domain.core import NEVER
from services.domain.custody.rules import RULES
from services.scheduler.core.batch.reclaim import KEPT_S
from services.scheduler.core.batch.state import Paused, Refused
from services.scheduler.lookahead.why import why
from tests.support.closing import close, left_out
from tests.support.leases import lease
from tests.support.scheduling import able, cluster, core, decide, placed, running
from tests.support.world import World, batch, cloud, web


def adopt(world: World, *departments: Any) -> None:
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(*departments)))


def at_rest(**policy: Any) -> World:
    """Two hosts are held and one is free.  Job 1 runs, 2 waits for more than there is, 3 is another department's."""
    world = cluster(3, held=2, **policy)
    world.strict = False
    config = world.custody.state.config
    assert config is not None
    adopt(world, *config.departments, batch("bio"))
    running(world, nodes=2, best_effort=policy.get("min_run_s", 0.0) > 0.0)
    world.submit(nodes=9)
    world.submit("bio", nodes=2)
    world.settle()
    assert core(world).rests_until_woken()
    return world


def described(world: World, host: str, **fields: Any) -> None:
    given: dict[str, Any] = {"one_id": int(host[1:]), "cores": 4, "memory_mb": 8192}
    world.write("executor", f.HostDescribed(host=host, **(given | fields)))


def end(world: World, disposal: Disposal = Disposal.REQUEUE, code: because.Kind = because.Reclaimed) -> None:
    closing = f.AttemptClosed(unit="1", attempt=1, disposal=disposal, why=code())
    world.write("scheduler.hpc", closing)


def closes(world: World, dept: str) -> None:
    """That it was left out is known already."""
    world.write("provisioner", left_out(world.custody, dept))
    world.settle()
    world.settle()
    assert core(world).rests_until_woken()
    world.write("admission", f.DepartmentClosed(dept=dept))


WAKE: dict[str, Callable[[World], Any]] = {
    "a job": lambda w: w.submit(nodes=9),
    "a hold": lambda w: w.write("admission", f.JobHeld(job="2", user="ann")),
    "a cancelled job that waits": lambda w: w.cancel("2"),
    "a cancelled job that runs": lambda w: w.cancel("1"),
    "a checkpoint": lambda w: w.write("admission", f.CheckpointReported(unit="1", attempt=1)),
    "a report": lambda w: w.report("1"),
    "a closing": end,
    "a broken attempt": lambda w: w.end_vm("1"),
    "a lost host": lambda w: w.lose("h1"),
    "a free host that is lost": lambda w: w.lose("h3"),
    "a host of another size": lambda w: described(w, "h3", cores=8),
    "a cordon": lambda w: w.cordon("h2"),
    "a quota": lambda w: w.quota("hpc", 3),
    "a demand": lambda w: w.write("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=7, reason=because.Queue())),
    "a configuration": lambda w: adopt(w, batch("hpc"), batch("bio")),
    "starts that go on": lambda w: w.write("executor", f.StartsResumed(why="x")),
    "a void fact": lambda w: w.write("executor", f.HostCleared(host="h1")),
    "a closed department": lambda w: closes(w, "hpc"),
}
LEAVE: dict[str, Callable[[World], Any]] = {
    "another's job": lambda w: w.submit("bio"),
    "another's hold": lambda w: w.write("admission", f.JobHeld(job="3", user="ann")),
    "another's cancelled job": lambda w: w.cancel("3"),
    "another's quota": lambda w: w.quota("bio", 1),
    "another's demand": lambda w: w.write(
        "scheduler.bio", f.DemandChanged(dept="bio", hosts=1, reason=because.Queue())
    ),
    "a free host that is granted": lambda w: w.grant("bio", "h3"),
    "the same again": lambda w: described(w, "h3"),
    "a host's use": lambda w: w.write("executor", f.HostObserved(host="h1", cpu=0.9, memory=0.1)),
    "starts that are paused": lambda w: w.write("executor", f.StartsPaused(since=1.0, failed=9, tried=9, why="x")),
    "another department that is closed": lambda w: closes(w, "bio"),
}


@pytest.mark.parametrize("what", WAKE)
def test_what_may_give_it_something_to_say_ends_its_rest(what: str) -> None:
    world = at_rest()
    WAKE[what](world)
    assert not core(world).rests_until_woken()
    assert core(world).check() == []


@pytest.mark.parametrize("what", LEAVE)
def test_what_does_not_concern_it_leaves_it_at_rest(what: str) -> None:
    world = at_rest()
    LEAVE[what](world)
    assert core(world).rests_until_woken()
    assert core(world).check() == []


@pytest.mark.parametrize("enabled", [False, True])
def test_where_jobs_move_what_lets_one_move_ends_its_rest(enabled: bool) -> None:
    def rests(does: Callable[[World], Any], begins: bool = False) -> bool:
        world = cluster(2, balance=Balance(enabled=enabled))
        world.strict = False
        job = world.submit()
        world.settle()
        if begins:
            world.start_vms(job)
        world.settle()
        world.settle()
        assert core(world).rests_until_woken()
        does(world)
        return core(world).rests_until_woken()

    assert rests(lambda w: w.write("executor", f.HostObserved(host="h1", cpu=0.9, memory=0.1))) is not enabled
    assert rests(lambda w: w.start_vms("1")) is not enabled
    assert not (enabled and rests(lambda w: w.begin("1"), begins=True))


def test_a_lease_that_is_extended_is_one_for_the_forecast_and_the_limits() -> None:
    world = cluster(1, order="easy")
    job = lease(world, 0.0)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.submit(nodes=1, cores=4)
    world.settle()
    world.strict = False
    c, ends_at = core(world), core(world).view.foresee().endings[0].at
    world.write("admission", f.LeaseExtended(job=job, walltime_s=250.0))
    assert not c.rests_until_woken()
    assert c.view.foresee().endings[0].at == ends_at + 150.0
    assert c.view.limits.next_due() == ends_at + 150.0


def test_its_jobs_are_open_while_their_attempts_are() -> None:
    world = cluster(2, limits=msgspec.convert({"cores_max": 8}, type=type(batch().batch.limits)))  # type: ignore[union-attr]
    job, idle = running(world, service="a"), running(world, best_effort=True, service="b")
    c = core(world)
    assert (c.view.open, c.view.best_effort, c.view.cancelling) == ({job: ("h1",), idle: ("h2",)}, {idle: None}, {})
    assert (c.state.turn, c.state.turn_best_effort) == ("a", "b")
    world.strict = False
    world.cancel(idle)
    assert c.view.cancelling == {idle: None}
    world.settle()
    world.report(job)
    assert (c.view.open, c.view.best_effort, c.view.cancelling) == ({}, {}, {})
    assert c.view.jobs.queue.budgets is not None
    assert c.view.jobs.queue.budgets.used == {}


def test_a_closed_department_has_nothing_open() -> None:
    world = cluster(2)
    running(world)
    world.strict = False
    close(world, "hpc")
    c = core(world)
    assert (c.view.open, c.view.limits.next_due(), c.view.active, c.state.jobs) == ({}, NEVER, False, {})


def test_whoever_made_way_is_counted_and_others_are_not() -> None:
    for code, count in ((because.Preempted, 1), (because.Reclaimed, 0)):
        world = at_rest()
        end(world, code=code)
        assert core(world).state.made_way == [world.now] * count


# ---------------------------------------------------------------------------------------------------- what was said of VMs


def refused(world: World, why: str = "no", failure: str = "quota") -> Refused | None:
    world.write("executor", f.VmRefused(unit="1", attempt=1, rank=0, failure=failure, why=why))
    return core(world).state.refused.get("1")


def test_why_a_machine_was_refused_or_ended_is_remembered_of_the_attempt() -> None:
    world = cluster(2)
    world.strict = False
    world.submit(nodes=2)
    world.settle()
    assert refused(world) == Refused(attempt=1, failure="quota", why="no")
    world.start_vms("1")
    world.end_vm("1", 1, why="it crashed")
    assert core(world).state.refused["1"] == Refused(attempt=1, failure="", why="it crashed")
    world.end_vm("1", 0, why="and the other one")
    assert core(world).state.refused["1"].why == "it crashed", "the first one broke it"
    world.settle()
    world.start_vms("1")
    world.end_vm("1", 0, why="again")
    assert core(world).state.refused["1"] == Refused(attempt=2, failure="", why="again")


def test_once_it_has_begun_nothing_is_told_of_how_it_was_refused() -> None:
    world = cluster(1)
    world.submit()
    world.settle()
    refused(world)
    world.start_vms("1")
    world.begin("1")
    assert core(world).state.refused == {}
    world.report("1")
    assert refused(world) is None


def test_a_machine_that_ends_without_breaking_its_attempt_says_nothing() -> None:
    world = cluster(1)
    world.strict = False
    running(world)
    world.report("1")
    world.end_vm("1")
    assert core(world).state.refused == {}
    world.submit()
    world.settle()
    world.start_vms("2")
    world.lose("h1")
    world.end_vm("2")
    assert core(world).state.refused == {}, "its host was lost before"


def test_that_starts_are_paused_is_remembered_until_they_go_on() -> None:
    world = cluster(1)
    world.write("executor", f.StartsPaused(since=5.0, failed=9, tried=9, why="x"))
    assert core(world).state.paused == Paused(since=5.0, why="x")
    world.submit()
    world.settle()
    [reason] = why(core(world), "1", world.now)
    assert isinstance(reason, because.Starting)
    assert (reason.paused_since, reason.paused_why) == ("1970-01-01T00:00:05.000Z", "x")
    world.write("executor", f.StartsResumed(why="x"))
    assert core(world).state.paused is None


@pytest.mark.parametrize(
    ("idle_s", "nodes", "exit", "warm"),
    [(60.0, 1, 0, True), (0.0, 1, 0, False), (60.0, 2, 0, False), (60.0, 1, 1, False)],
)
def test_whose_machine_may_wait_for_a_job_is_remembered_until_it_ends(
    idle_s: float, nodes: int, exit: int, warm: bool
) -> None:
    world = cluster(2, warm=Warm(idle_s=idle_s))
    job = running(world, nodes=nodes, user="bob")
    world.report(job, exit)
    assert core(world).state.warm == ({job: "bob"} if warm else {})
    world.end_vm(job)
    assert core(world).state.warm == {}


def test_what_is_known_of_a_hosts_use_is_forgotten_with_what_made_it_so() -> None:
    world = cluster(2, balance=Balance(enabled=True))
    world.write("executor", *[f.HostObserved(host=name, cpu=0.4, memory=0.1) for name in ("h1", "h2")])
    world.lose("h1")
    assert core(world).state.used == {"h2": 0.4}


# -------------------------------------------------------------------------------------------------------- time, and wake-ups


def test_it_is_woken_by_what_would_let_somebody_start_and_only_where_somebody_waits() -> None:
    for waits in (False, True):
        world = cluster(1)
        world.rest("h1", 60.0)
        if waits:
            world.submit()
        world.settle()
        assert core(world).wake_at() == (world.now + 60.0 if waits else NEVER)
        world = cluster(1, min_run_s=500.0)
        running(world, best_effort=True, walltime_s=9e9)
        if waits:
            world.submit(cores=4)
        world.settle()
        assert core(world).wake_at() == (world.now + 500.0 if waits else world.now + 9e9)


def test_a_drained_host_wakes_it_at_its_deadline() -> None:
    world = cluster(1)
    running(world, walltime_s=9e9)
    world.drain("h1", by_s=50.0)
    world.settle()
    assert core(world).wake_at() == world.now + 50.0
    world.strict = False
    world.now += 49.0
    assert decide(world) == []
    world.now += 1.0
    assert [type(fact) for fact in decide(world)] == [f.AttemptClosed, f.HostReleased]


def test_who_waits_for_another_to_begin_starts_when_it_has() -> None:
    world = cluster(1)
    world.submit()
    waits = world.submit(after=(f.Dependency(condition="after", job="1"),))
    world.settle()
    world.start_vms("1")
    world.begin("1")
    assert [*placed(world)] == [waits]


def test_what_an_order_foresaw_is_forgotten_with_the_order() -> None:
    world = at_rest(order="easy")
    core(world).view.foresee()
    adopt(world, batch("hpc"))
    assert not core(world).view.foresaw


@pytest.mark.parametrize(("for_s", "back"), [(KEPT_S, False), (KEPT_S + 1.0, True)])
def test_an_idle_host_that_rests_for_longer_than_it_is_kept_goes_back(for_s: float, back: bool) -> None:
    world = cluster(2, held=1)
    world.strict = False
    world.rest("h1", for_s)
    found = [fact for fact in decide(world) if isinstance(fact, f.HostReleased)]
    expected = f.HostReleased(host="h1", reason=because.NotNeeded(quarantine="starts failed"))
    assert found == ([expected] if back else [])


# ------------------------------------------------------------------------------------------------------------------ demand


def told(world: World) -> tuple[int, Any] | None:
    found = [fact for fact in decide(world) if isinstance(fact, f.DemandChanged)]
    return (found[0].hosts, because.fields(found[0].reason)) if found and found[0].reason else None


def test_a_demand_is_told_in_the_decision_that_starts_some_of_it() -> None:
    world = cluster(6, held=2)
    for _ in range(5):
        world.submit(cores=4)
    assert told(world) == (5, {"pending": 3, "running": 2})
    world.settle()
    assert told(world) is None
    lease(world, 1e6)
    world.submit(cores=4)
    assert told(world) == (6, {"pending": 5, "running": 2})
    world = cluster(6, held=1)
    world.submit(cores=1)
    world.submit(cores=1)
    assert told(world) == (1, {"pending": 0, "running": 2})


def test_two_cordoned_hosts_in_use_are_wanted_beside_the_rest() -> None:
    world = cluster(4)
    for _ in range(3):
        running(world)
    for host in ("h1", "h2"):
        world.cordon(host)
    world.settle()
    assert world.custody.state.demands["hpc"] == 3


def test_who_is_another_kind_of_department_now_starts_nothing_and_wants_nothing() -> None:
    world = cluster(2)
    running(world)
    world.submit(constraint="fast")
    world.settle()
    adopt(world, web("hpc"))
    assert placed(world) == {}
    world.settle()
    assert (world.custody.state.demands["hpc"], core(world).state.prefer) == (0, ())


def test_attempts_on_a_drained_host_end_in_the_order_of_submission() -> None:
    world = cluster(5, cores=2)
    world.strict = False
    for _ in range(10):
        world.submit()
    world.settle()
    world.drain(world.unit("9").hosts[0])
    assert world.unit("10").hosts == world.unit("9").hosts
    assert [fact.unit for fact in decide(world) if isinstance(fact, f.AttemptClosed)] == ["9", "10"]


def test_what_could_not_be_saved_is_told_to_the_book_at_once() -> None:
    world = able(1)
    world.strict = False
    job = running(world, on_reclaim="suspend", after_s=5.0)
    world.drain("h1")
    world.decide(world.seats["scheduler.hpc"])
    core(world).decide(world.now)
    world.end_vm(job, why="it could not be saved")
    assert core(world).state.again[job].why == because.NotSaved()
    assert not core(world).rests_until_woken()
