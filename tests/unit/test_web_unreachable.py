"""Instances that the load balancer does not reach, one after the other; and what `phoenix why` tells of those that end."""

from __future__ import annotations

from schemas import facts as f
from schemas.facts import Disposal
from schemas.reasons import Code
from services.scheduler.web.why import why
from tests.support.ending import DRAIN_S, core, decide, ends, hear, scale, serving, sessions, site

# ------------------------------------------------------------------------------------------------------------- unreachable


def test_the_successor_of_an_unreachable_one_comes_first_and_has_to_be_reached() -> None:
    world = site(held=2, instances_min=2, unreachable_s=10.0)
    hear(world, "web.1", "unreachable")
    world.settle()
    assert (serving(world), world.custody.state.demands["web"]) == (["web.1", "web.2"], 3)
    world.grant("web", "h3")
    world.settle()
    assert serving(world) == ["web.1", "web.2", "web.3"]
    assert world.facts(f.UnitPlaced)[-1].reason.code is Code.REPLACEMENT
    world.advance(10.0)  # web.2 has been in service so long, and is reached
    assert ends(world) == {"web.1": (Disposal.FAILED, Code.UNREACHABLE)}
    assert (serving(world), world.custody.state.demands["web"]) == (["web.2", "web.3"], 2)


def test_one_that_is_reached_again_stays_and_the_newest_is_too_many() -> None:
    world = site(held=3, instances_min=2, unreachable_s=10.0, drained=True)
    hear(world, "web.1", "unreachable")
    world.grant("web", "h3")
    world.settle()
    hear(world, "web.1", "reachable")
    world.settle()
    assert serving(world) == ["web.1", "web.2"]
    assert ends(world) == {"web.3": (Disposal.STOPPED, Code.DRAINED)}


def test_one_at_a_time() -> None:
    world = site(hosts=6, held=4, instances_min=4, unreachable_s=10.0)
    world.advance(60)
    for name in ("web.2", "web.1"):
        hear(world, name, "unreachable")
    world.grant("web", "h5")
    world.seats["guests"].paused = True
    world.settle()
    assert (list(ends(world)), world.custody.state.demands["web"]) == ([], 5)
    world.seats["guests"].paused = False
    world.settle()
    assert list(ends(world)) == ["web.2", "web.1"]  # each when a successor serves, the longest unreached first
    assert len(serving(world)) == 4


def test_said_again_it_is_unreachable_since_the_first_time() -> None:
    world = site(hosts=2, held=2, instances_min=2, instances_max=2, unreachable_s=10.0, boot_timeout_s=60.0)
    hear(world, "web.1", "unreachable")
    world.advance(30)
    hear(world, "web.1", "unreachable")
    world.advance(30)
    assert list(ends(world)) == ["web.1"]


def test_if_none_is_reached_it_may_be_the_balancer_and_they_go_slowly() -> None:
    world = site(hosts=3, held=2, instances_min=2, unreachable_s=10.0, boot_timeout_s=60.0)
    world.advance(100)
    world.grant("web", "h3")
    for name in ("web.1", "web.2"):
        hear(world, name, "unreachable")
    world.settle()
    hear(world, "web.3", "unreachable")
    world.advance(59.9)
    assert ends(world) == {}
    world.advance(0.1)
    assert list(ends(world)) == ["web.1"]
    hear(world, "web.4", "unreachable")
    world.advance(59.9)
    assert list(ends(world)) == ["web.1"]
    world.advance(0.2)
    assert list(ends(world)) == ["web.1", "web.2"]


def test_where_there_may_be_no_more_it_is_closed_first_but_not_soon() -> None:
    world = site(held=1, instances_min=1, instances_max=1, unreachable_s=10.0, boot_timeout_s=60.0)
    hear(world, "web.1", "unreachable")
    world.advance(59.9)
    assert (ends(world), world.custody.state.demands["web"]) == ({}, 1)
    world.advance(0.1)
    assert ends(world) == {"web.1": (Disposal.FAILED, Code.UNREACHABLE)}
    assert serving(world) == ["web.2"]


def test_where_hosts_are_short_its_place_is_its_successors() -> None:
    world = site(hosts=2, held=2, instances_min=3, unreachable_s=10.0, boot_timeout_s=60.0)
    hear(world, "web.1", "unreachable")
    world.advance(59.9)
    assert ends(world) == {}
    world.advance(0.2)
    assert ends(world) == {"web.1": (Disposal.FAILED, Code.UNREACHABLE)}
    assert serving(world) == ["web.2", "web.3"]


def test_while_somebody_is_on_the_way_it_stays_though_hosts_are_short() -> None:
    world = site(hosts=3, held=2, instances_min=4, unreachable_s=10.0, boot_timeout_s=60.0)
    hear(world, "web.1", "unreachable")
    world.advance(50)
    world.seats["guests"].paused = True
    world.grant("web", "h3")
    world.advance(20)
    assert ends(world) == {}
    world.seats["guests"].paused = False
    world.settle()
    assert list(ends(world)) == ["web.1"]


def test_with_unreachable_s_0_nobody_is_replaced() -> None:
    world = site(held=2, instances_min=1, unreachable_s=0.0)
    hear(world, "web.1", "unreachable")
    assert decide(world) == []
    world.advance(1000)
    assert ends(world) == {}


def test_an_unreachable_one_goes_first_when_there_are_too_many() -> None:
    world = site(hosts=3, held=3, instances_min=3, unreachable_s=10.0)
    sessions(world, "web.3")
    hear(world, "web.2", "unreachable")
    scale(world, exact=1)
    assert [fact.unit for fact in world.facts(f.InstanceDraining)] == ["web.2", "web.3"]


def test_one_that_is_on_its_way_cannot_be_reached_yet_and_that_is_no_news() -> None:
    world = site(held=1)
    world.seats["guests"].paused = True
    scale(world, exact=2)
    world.grant("web", "h2")
    world.settle()
    hear(world, "web.2", "unreachable")
    assert core(world).state.unreachable == {}


def test_unreachable_again_and_again_is_a_failure_in_a_row() -> None:
    world = site(held=1, instances_min=1, instances_max=1, unreachable_s=1.0, boot_timeout_s=10.0)
    for number in (1, 2, 3):
        hear(world, f"web.{number}", "unreachable")
        world.advance(10.1)
        assert core(world).state.failures == number
        world.advance(1.0)


# -------------------------------------------------------------------------------------------------------------------- why


def test_why_tells_who_drains_and_who_is_not_reached() -> None:
    world = site(held=3, instances_min=3, unreachable_s=10.0)
    scale(world, exact=2)
    hear(world, "web.1", "unreachable")
    world.now += 1.0
    told = {reason.code: reason.params for reason in why(core(world), world.now)}
    assert told[Code.DRAINING] == {"instances": 1, "left_s": DRAIN_S - 1.0}
    assert told[Code.UNREACHABLE] == {"instances": 1, "units": ["web.1"]}
