"""When a job starts: what is foreseen is what the core does, and it is told how sure that is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from schemas import reasons as because
from schemas.facts import Dependency, Lease
from schemas.start_estimate import Sure
from services.domain.text import sentence
from services.domain.text.starts import when_it_starts
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead import start_estimate
from services.scheduler.lookahead.start_estimate import FIRST, Start, foresee
from services.scheduler.lookahead.why import why
from tests.support.world import World, batch, cloud, web


def cluster(hosts: int = 2, **policy: Any) -> World:
    world = World(cloud(batch("hpc", **policy)))
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def ahead(world: World, *units: str) -> dict[str, Start]:
    world.settle()
    seat = world.seats["scheduler.hpc"]
    before = seat.custody.dump(), seat.core.dump()
    found = foresee(seat.core, world.now, units or None)
    assert (seat.custody.dump(), seat.core.dump()) == before, "to look ahead changes nothing"
    return found


def in_s(world: World, word: Start) -> float | None:
    return None if word.start_at is None else round(word.start_at - world.now, 3)


@pytest.mark.parametrize("order", ["first-fit", "easy", "conservative"])
def test_the_slot_of_a_lease_is_no_promise_where_the_order_keeps_no_time_for_it(order: str) -> None:
    world = cluster(order=order)
    unit = world.submit(lease=Lease(kind="advance", start_at=world.now + 500), walltime_s=60)
    word = ahead(world)[unit]
    assert (word.sure, word.start_at, because.fields(word.because)["order"]) == (Sure.CANNOT_SAY, None, order)
    assert "at the latest" not in (told := when_it_starts(to_builtins(word), world.now, sentence))
    assert f"but the order is now {order}, which keeps no time for it: it starts then if there is room" in told


def test_in_strict_order_each_starts_when_those_before_it_have_run_to_their_limits() -> None:
    world = cluster(order="fcfs")
    world.submit(nodes=2, cores=4, walltime_s=100)
    world.settle()
    one, two, three = (world.submit(cores=4, nodes=n, walltime_s=50) for n in (2, 1, 2))
    found = ahead(world)
    assert [in_s(world, found[unit]) for unit in (one, two, three)] == [100, 150, 200]
    assert found[one].hosts == ("h1", "h2")
    assert {word.sure for word in found.values()} == {Sure.BY_WALLTIMES}
    assert type(found[three].because) is because.ByWalltimes
    assert because.fields(found[three].because) == {"ends": 3}


def test_for_whom_the_order_keeps_room_is_planned() -> None:
    world = cluster(order="easy")
    world.submit(cores=4, walltime_s=100)
    world.settle()
    head, behind = world.submit(nodes=2, cores=4, walltime_s=10), world.submit(nodes=2, cores=4, walltime_s=10)
    found = ahead(world)
    assert (found[head].sure, in_s(world, found[head])) == (Sure.PLANNED, 100)
    assert type(found[head].because) is because.Reserved
    assert (found[behind].sure, in_s(world, found[behind])) == (Sure.BY_WALLTIMES, 110)
    both = cluster(order="conservative")
    both.submit(cores=4, walltime_s=100)
    both.settle()
    waiting = [both.submit(nodes=2, cores=4, walltime_s=10) for _ in range(2)]
    found = ahead(both)
    assert [(found[unit].sure, in_s(both, found[unit])) for unit in waiting] == [
        (Sure.PLANNED, 100),
        (Sure.PLANNED, 110),
    ]


@pytest.mark.parametrize("order", ["easy", "conservative"])
def test_the_present_is_no_promise_while_somebody_is_there_beyond_the_expected_end(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of ten seconds whose guest takes a minute to call: it has the host until then, and its ten seconds after it."""
    world = cluster(3, order=order, boot_timeout_s=1000.0)
    slow = world.submit(cores=4, walltime_s=10)
    world.submit(nodes=2, cores=4, walltime_s=5000)
    world.settle()
    first, then = world.submit(cores=4, walltime_s=1000), world.submit(cores=4, walltime_s=1000)
    core = world.seats["scheduler.hpc"].core
    world.settle()
    assert because.fields(why(core, first, world.now)[0])["reserved_in_s"] == 10
    world.now += 60.0
    for unit in (first, then):
        assert "reserved_in_s" not in because.fields(why(core, unit, world.now)[0])
    found = ahead(world, first)
    assert (found[first].sure, in_s(world, found[first])) == (Sure.BY_WALLTIMES, 10)
    monkeypatch.setattr(start_estimate, "STEPS_MAX", 0)
    found = ahead(world, first, then)
    assert {word.sure for word in found.values()} == {Sure.CANNOT_SAY}
    monkeypatch.undo()
    world.begin(slow)
    assert because.fields(why(core, first, world.now)[0])["reserved_in_s"] == 10
    found = ahead(world, first)
    assert (found[first].sure, in_s(world, found[first])) == (Sure.PLANNED, 10)


def test_room_that_is_kept_is_no_promise_if_somebody_may_come_before() -> None:
    """If the long one ends early, who waits for it goes before: the order knows nothing of that yet."""
    world = cluster(3, order="easy")
    long = world.submit(nodes=1, cores=4, walltime_s=200)
    world.submit(nodes=1, cores=4, walltime_s=100)
    world.settle()
    world.submit(nodes=3, cores=4, walltime_s=50, after=(Dependency(condition="afterok", job=long),))
    wide = world.submit(nodes=2, cores=4, walltime_s=10)
    found = ahead(world, wide)
    assert (found[wide].sure, in_s(world, found[wide])) == (Sure.BY_WALLTIMES, 100.0)


def test_a_time_slot_was_agreed() -> None:
    world = cluster(order="leases")
    unit = world.submit(lease=Lease(kind="advance", start_at=world.now + 500), walltime_s=60)
    word = ahead(world, unit)[unit]
    assert (word.sure, in_s(world, word), type(word.because)) == (Sure.PLANNED, 500, because.LeaseStartsAt)


def test_what_no_end_changes_is_told_instead_of_a_time() -> None:
    world = cluster()
    held, wide = world.submit(held=True), world.submit(nodes=5, cores=4)
    bad = world.submit()
    after = world.submit(after=(Dependency(condition="afterok", job=bad),))
    world.settle()
    world.report(bad, exit=1)
    found = ahead(world, held, wide, after)
    assert {word.start_at for word in found.values()} == {None}
    assert {word.sure for word in found.values()} == {Sure.CANNOT_SAY}
    assert type(found[held].because) is because.Held
    assert type(found[wide].because) is because.TooLargeNow
    assert type(found[after].because) is because.DependencyFailed


def test_a_dependency_is_taken_to_be_met_and_that_is_said() -> None:
    world = cluster()
    first = world.submit(walltime_s=30)
    second = world.submit(after=(Dependency(condition="afterok", job=first),))
    word = ahead(world, second)[second]
    assert (in_s(world, word), because.fields(word.because)["after"]) == (30, [first])


def test_a_throttled_array_goes_on_element_by_element() -> None:
    world = cluster()
    array = world.submit(array=(1, 2, 3), throttle=1, walltime_s=20)
    found = ahead(world, f"{array}_2", f"{array}_3")
    assert [in_s(world, word) for word in found.values()] == [20, 40]


def test_what_web_may_claim_is_told() -> None:
    world = World(cloud(batch("hpc", guarantee=1), web("web")))
    world.hosts(3)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", "h1", "h2", "h3")
    world.submit(nodes=3, cores=4, walltime_s=10)
    world.settle()
    unit = world.submit()
    assert because.fields(ahead(world, unit)[unit].because) == {"ends": 1, "claimable": 2}


def test_web_claims_no_more_than_its_instances_need() -> None:
    world = World(cloud(batch("hpc"), web("web", instances_max=3, instances_per_host=2)))
    world.hosts(4)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("web", "h4")
    world.grant("hpc", "h1", "h2", "h3")
    world.submit(nodes=3, cores=4, walltime_s=10)
    world.settle()
    unit = world.submit()
    assert because.fields(ahead(world, unit)[unit].because) == {"ends": 1, "claimable": 1}


def test_who_runs_or_is_of_another_department_is_not_in_the_answer() -> None:
    world = cluster()
    runs = world.submit()
    assert ahead(world, runs, "99", "web.1") == {}


def test_of_a_long_queue_the_first_ones_are_looked_at() -> None:
    world = cluster(order="first-fit")
    world.strict = False
    for _ in range(FIRST + 30):
        world.submit(nodes=2, cores=4, walltime_s=10)
    found = ahead(world)
    assert len(found) == FIRST
    assert [in_s(world, word) for word in found.values()] == [10.0 * (n + 1) for n in range(FIRST)]


def test_how_far_is_looked_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.scheduler.lookahead.start_estimate.STEPS_MAX", 4)
    world = cluster(1, order="fcfs")
    world.strict = False
    units = [world.submit(cores=4, walltime_s=10) for _ in range(6)]
    found = ahead(world, *units[1:])
    near, far = found[units[1]], found[units[-1]]
    assert (near.sure, in_s(world, near)) == (Sure.BY_WALLTIMES, 10.0)
    assert (far.sure, far.start_at, type(far.because)) == (Sure.CANNOT_SAY, None, because.TooFar)
    assert sentence(far.because).startswith("it is beyond the forecast: 2 attempts end before it, in 20s")


def test_what_is_foreseen_is_told() -> None:
    told = {"start_at": 1_780_000_100.0, "hosts": ["h1"], "sure": "planned", "because": {"code": "reserved"}}
    assert when_it_starts(told, 1_780_000_000.0, sentence) == (
        "at 2026-05-28T20:28:20Z at the latest, in 1m40s, on h1: room is kept for it"
    )
    params = {"ends": 2, "after": ["7"], "claimable": 3}
    told |= {"sure": "by_walltimes", "hosts": [], "because": {"code": "by_walltimes", "params": params}}
    assert when_it_starts(told, 1_780_000_000.0, sentence) == (
        "at 2026-05-28T20:28:20Z, in 1m40s: that holds if the 2 attempts ahead of it run to their time limits, job 7 ends "
        "as it should, nothing comes that goes first, and no host is taken away; web may claim 3 of the department's hosts "
        "before that"
    )
    told |= {"start_at": None, "sure": "cannot_say", "because": {"code": "held", "params": {}}}
    assert when_it_starts(told, 1_780_000_000.0, sentence) == "this cannot be predicted: it is held"
    needs = {"nodes": 4, "cores": 1, "held": 3, "free": 3, "short": 1}
    told |= {"because": {"code": "waits_for_hosts", "params": needs}}
    assert when_it_starts(told, 1_780_000_000.0, sentence) == (
        "this cannot be predicted: also when all that runs now has ended, it needs 4 hosts with 1 core each; 3 of the 3 "
        "hosts that the department holds have free capacity for it"
    )


def test_what_can_never_start_is_not_called_unpredictable() -> None:
    for reason in (
        {"code": "dependency_failed", "condition": "afterok", "job": "3"},
        {"code": "department_removed", "department": "hpc"},
        {"code": "lease_over"},
    ):
        told = {"start_at": None, "hosts": [], "sure": "cannot_say", "because": reason}
        assert when_it_starts(told, 1_780_000_000.0, sentence) == "never, as it stands"


def test_what_a_start_hangs_on_is_told_of_one_and_of_several() -> None:
    rest = "nothing comes that goes first, and no host is taken away"
    for reason, expected in (
        (because.ByWalltimes(ends=0), rest),
        (because.ByWalltimes(ends=1), f"the attempt ahead of it runs to its time limit, {rest}"),
        (because.ByWalltimes(ends=2), f"the 2 attempts ahead of it run to their time limits, {rest}"),
        (because.ByWalltimes(ends=0, after=["3"]), f"job 3 ends as it should, {rest}"),
        (because.ByWalltimes(ends=0, after=["3", "4"]), f"jobs 3, 4 end as they should, {rest}"),
    ):
        assert sentence(reason) == f"that holds if {expected}"
