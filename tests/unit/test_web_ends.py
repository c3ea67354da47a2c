"""How instances of a web department end: draining, fewest sessions, notice, and those that the balancer does not reach."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Policy
from schemas.custody import RULES
from schemas.facts import Disposal
from schemas.reasons import Code
from services.scheduler.web import WebCore
from services.scheduler.web_why import why
from tests.support.world import World, cloud, web

DRAIN_S = 5.0
NOTICE_S = 0.3  # as by default


def site(hosts: int = 4, *, held: int = 1, cores: int = 4, drained: bool = False, **policy: Any) -> World:
    """`held` of `hosts` hosts held by web; VMs start and guests call at once.  `drained`: what drains has drained at once."""
    world = World(cloud(web("web", **{"drain_s": DRAIN_S, "signal_timeout_s": 1e6, **policy})))
    names = world.hosts(hosts, cores=cores)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.settle()
    world.executor()
    world.guests()
    if drained:
        world.balancer()
    world.grant("web", *names[:held])
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def decide(world: World, kind: type | None = None) -> list[Any]:
    return [fact for fact in core(world).decide(world.now) if kind is None or isinstance(fact, kind)]


def scale(world: World, exact: int) -> None:
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=exact))
    world.settle()


def hear(world: World, unit: str, state: Literal["drained", "unreachable", "reachable"]) -> None:
    world.write("admission", f.InstanceReported(unit=unit, attempt=1, state=state, user="balancer"))


def sessions(world: World, *quiet: str) -> None:
    """The instances with the fewest sessions, the fewest first."""
    world.now += 1.0
    fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=0.7, samples=1, quiet=quiet)
    world.write("scheduler.web", fact)


def draining(world: World) -> list[str]:
    units = world.custody.state.units.values()
    return [unit.id for unit in units if unit.live and unit.drains_until is not None]


def serving(world: World) -> list[str]:
    units = world.custody.state.units.values()
    return [unit.id for unit in units if unit.live and unit.began_at is not None and unit.drains_until is None]


def ends(world: World) -> dict[str, tuple[Disposal, Code]]:
    return {fact.unit: (fact.disposal, fact.why.code) for fact in world.facts(f.AttemptClosed)}


# ------------------------------------------------------------------------------------------------------------------ drain


def test_what_is_not_needed_drains_and_is_closed_when_it_has() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    (fact,) = world.facts(f.InstanceDraining)
    assert (fact.unit, fact.until, fact.reason.code) == ("web.2", world.now + DRAIN_S, Code.SCALED_BY_PERSON)
    assert (serving(world), draining(world), core(world).state.serving) == (["web.1"], ["web.2"], 1)
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (2, 2)  # its host is claimed meanwhile
    hear(world, "web.2", "drained")
    world.settle()
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.DRAINED)}
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (1, 1)


def test_its_time_ends_though_sessions_are_open() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    assert core(world).wake_at() == world.now + DRAIN_S
    world.advance(DRAIN_S - 0.001)
    assert ends(world) == {}
    world.advance(0.001)
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.DRAIN_TIMEOUT)}


def test_one_that_is_not_in_service_is_closed_at_once_and_goes_first() -> None:
    world = site(held=3, instances_min=1)
    world.seats["guests"].paused = True
    scale(world, exact=2)
    world.grant("web", "h2")
    world.settle()
    scale(world, exact=1)
    assert (serving(world), draining(world)) == (["web.1"], [])
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.SCALED_BY_PERSON)}


def test_without_time_to_drain_it_is_closed_at_once() -> None:
    world = site(held=2, instances_min=2, drain_s=0.0)
    scale(world, exact=1)
    assert world.facts(f.InstanceDraining) == []
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.SCALED_BY_PERSON)}


def test_draining_is_for_ever_and_load_that_comes_back_starts_another_beside_it() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    scale(world, exact=2)
    assert draining(world) == ["web.2"]
    assert world.custody.state.demands["web"] == 3  # the new one does not wait for the old one's place
    world.grant("web", "h3")
    world.settle()
    assert serving(world) == ["web.1", "web.3"]
    hear(world, "web.2", "drained")
    world.settle()
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (2, 2)


def test_on_a_host_with_room_the_new_one_comes_beside_what_drains() -> None:
    world = site(held=1, instances_min=2, instances_per_host=3)
    scale(world, exact=1)
    scale(world, exact=2)
    assert (serving(world), draining(world)) == (["web.1", "web.3"], ["web.2"])
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (1, 1)


def test_a_report_of_what_does_not_drain_is_nothing() -> None:
    world = site(held=1)
    hear(world, "web.1", "drained")
    assert decide(world) == []
    assert core(world).state.drained == {}


def test_what_breaks_while_it_drains_is_no_failure() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    world.end_vm("web.2")
    world.settle()
    assert (core(world).state.failures, core(world).state.to_replace) == (0, 0)
    assert (serving(world), draining(world)) == (["web.1"], [])


def test_a_restart_in_the_middle_of_a_drain_forgets_nothing() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    world.now += 1
    world.restart("scheduler.web")
    assert core(world).wake_at() == world.now - 1 + DRAIN_S
    hear(world, "web.2", "drained")
    world.restart("scheduler.web")
    world.settle()
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.DRAINED)}


# ------------------------------------------------------------------------------------------------------- fewest sessions


def test_the_one_with_the_fewest_sessions_goes() -> None:
    world = site(held=3, instances_min=3)
    sessions(world, "web.2", "web.3", "web.1")
    scale(world, exact=2)
    assert draining(world) == ["web.2"]


def test_who_is_not_named_has_more_and_of_those_the_newest_goes() -> None:
    world = site(held=4, instances_min=4)
    sessions(world, "web.2")
    scale(world, exact=2)
    assert draining(world) == ["web.2", "web.4"]


def test_old_news_of_sessions_counts_no_more() -> None:
    world = site(held=3, instances_min=3, signal_timeout_s=10)
    sessions(world, "web.1")
    world.now += 10
    scale(world, exact=2)
    assert draining(world) == ["web.3"]


def test_news_without_sessions_forget_none() -> None:
    world = site(held=3, instances_min=3)
    sessions(world, "web.1")
    sessions(world)
    scale(world, exact=2)
    assert draining(world) == ["web.1"]


def test_when_a_host_can_be_saved_the_one_with_the_fewest_instances_is_emptied() -> None:
    world = site(held=2, instances_min=6, instances_per_host=4)  # four on h1, two on h2
    sessions(world, "web.1", "web.2", "web.6", "web.5")
    scale(world, exact=4)
    assert draining(world) == ["web.5", "web.6"]


def test_when_none_can_be_saved_those_with_the_fewest_sessions_go_wherever_they_are() -> None:
    world = site(held=2, instances_min=7, instances_per_host=4)
    sessions(world, "web.1", "web.6")
    scale(world, exact=5)
    assert draining(world) == ["web.1", "web.6"]


def test_of_hosts_with_as_many_the_one_with_fewer_sessions_is_emptied() -> None:
    world = site(held=2, instances_min=4, instances_per_host=2)
    sessions(world, "web.2", "web.1")
    scale(world, exact=2)
    assert draining(world) == ["web.1", "web.2"]


def test_on_a_cordoned_host_those_with_the_fewest_sessions_go_first() -> None:
    world = site(held=1, instances_min=2, instances_per_host=2)
    sessions(world, "web.1")
    world.cordon("h1")
    world.settle()
    scale(world, exact=1)
    assert draining(world) == ["web.1"]


# ------------------------------------------------------------------------------------------------------------------ notice


def test_on_notice_they_drain_until_shortly_before_it_is_due() -> None:
    world = site(held=2, instances_min=2)
    asked = world.now
    world.quota("web", 1)
    world.settle()
    (fact,) = world.facts(f.InstanceDraining)
    assert (fact.unit, fact.reason.code) == ("web.2", Code.RECLAIMED)
    assert fact.until - asked == pytest.approx(NOTICE_S - 0.1, abs=1e-6)
    assert core(world).wake_at() == fact.until
    assert world.custody.held("web") == 2
    world.advance(0.21)
    assert world.custody.held("web") == 1
    assert world.now < asked + NOTICE_S  # nobody was seized
    assert ends(world) == {"web.2": (Disposal.STOPPED, Code.DRAIN_TIMEOUT)}


def test_on_notice_a_host_goes_as_soon_as_its_last_session_has_ended() -> None:
    world = site(held=2, instances_min=2)
    world.quota("web", 1)
    world.settle()
    hear(world, "web.2", "drained")
    closed, released = decide(world)
    assert (closed.unit, closed.why.code, released.host, released.reason.code) == (
        "web.2",
        Code.DRAINED,
        "h2",
        Code.NOTICE,
    )


def test_on_notice_what_drains_already_has_no_longer() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    world.now += 1
    world.quota("web", 1)
    world.settle()
    first, second = world.facts(f.InstanceDraining)
    assert (first.unit, second.unit) == ("web.2", "web.2")
    assert second.until - world.now == pytest.approx(NOTICE_S - 0.1, abs=1e-6)
    world.advance(0.21)
    assert (world.custody.held("web"), serving(world)) == (1, ["web.1"])


def test_on_notice_what_would_have_drained_sooner_has_that_time() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    world.now += DRAIN_S - 0.05
    world.quota("web", 1)
    assert decide(world, f.InstanceDraining) == []
    world.advance(0.05)
    assert world.custody.held("web") == 1


def test_on_notice_an_idle_host_goes_at_once_and_so_does_one_that_serves_nobody_yet() -> None:
    world = site(held=1, instances_min=2)
    world.seats["guests"].paused = True
    world.grant("web", "h2")
    world.settle()
    world.quota("web", 1)
    closed, released = decide(world)
    assert (closed.unit, closed.why.code, released.host) == ("web.2", Code.RECLAIMED, "h2")


def test_two_notices_have_their_own_time() -> None:
    world = site(held=3, instances_min=3)
    asked = world.now
    world.quota("web", 2, by_s=0.3)
    world.quota("web", 1, by_s=10.0)
    world.settle()
    until = {fact.unit: fact.until - asked for fact in world.facts(f.InstanceDraining)}
    assert until == pytest.approx({"web.3": 0.2, "web.2": DRAIN_S})
    world.advance(0.21)
    assert world.custody.held("web") == 2
    world.advance(DRAIN_S)
    assert world.custody.held("web") == 1


def test_a_notice_that_is_withdrawn_lets_what_drains_end_and_replaces_it() -> None:
    world = site(held=2, instances_min=2)
    world.quota("web", 1)
    world.settle()
    world.quota("web", 4)
    world.settle()
    assert (draining(world), world.custody.held("web"), world.custody.state.demands["web"]) == (["web.2"], 2, 3)
    world.advance(1.0)
    assert serving(world) == ["web.1", "web.3"]


def test_a_short_notice_leaves_two_thirds_to_drain() -> None:
    world = site(held=2, instances_min=2)
    short = msgspec.structs.replace(cloud(web("web", instances_min=2)), policy=Policy(notice_s=0.03))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=short))
    world.quota("web", 1, by_s=0.03)
    world.settle()
    (fact,) = world.facts(f.InstanceDraining)
    assert fact.until - world.now == pytest.approx(0.02, abs=1e-6)


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
