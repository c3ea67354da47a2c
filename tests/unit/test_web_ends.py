"""How instances of a web department end: draining, and who has the fewest sessions."""

from __future__ import annotations

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from tests.support.ending import DRAIN_S, core, decide, draining, ends, hear, scale, serving, sessions, site

# ------------------------------------------------------------------------------------------------------------------ drain


def test_what_is_not_needed_drains_and_is_closed_when_it_has() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    (fact,) = world.facts(f.InstanceDraining)
    assert (fact.unit, fact.until, type(fact.reason)) == ("web.2", world.now + DRAIN_S, because.ScaledByPerson)
    assert (serving(world), draining(world), core(world).state.serving) == (["web.1"], ["web.2"], 1)
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (2, 2)  # its host is claimed meanwhile
    hear(world, "web.2", "drained")
    world.settle()
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.Drained)}
    assert (world.custody.state.demands["web"], world.custody.held("web")) == (1, 1)


def test_its_time_ends_though_sessions_are_open() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    assert core(world).wake_at() == world.now + DRAIN_S
    world.advance(DRAIN_S - 0.001)
    assert ends(world) == {}
    world.advance(0.001)
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.DrainTimeout)}


def test_one_that_is_not_in_service_is_closed_at_once_and_goes_first() -> None:
    world = site(held=3, instances_min=1)
    world.seats["guests"].paused = True
    scale(world, exact=2)
    world.grant("web", "h2")
    world.settle()
    scale(world, exact=1)
    assert (serving(world), draining(world)) == (["web.1"], [])
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.ScaledByPerson)}


def test_without_time_to_drain_it_is_closed_at_once() -> None:
    world = site(held=2, instances_min=2, drain_s=0.0)
    scale(world, exact=1)
    assert world.facts(f.InstanceDraining) == []
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.ScaledByPerson)}


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


def test_what_drains_on_a_drained_host_takes_no_room_that_anybody_could_have() -> None:
    world = site(held=1, instances_min=1)
    world.drain("h1", None)
    world.grant("web", "h2")
    world.settle()
    assert (serving(world), draining(world)) == (["web.2"], ["web.1"])
    assert world.custody.state.demands["web"] == 2  # the successor's, and the cordoned one until it is left
    hear(world, "web.1", "drained")
    world.settle()
    assert world.custody.state.demands["web"] == 1


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
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.Drained)}


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


# ------------------------------------------------------------------------------------------------------ eight on a host


def test_eight_instances_of_one_core_fill_a_host_of_eight_and_the_ninth_takes_another() -> None:
    """As in the paper."""
    world = site(hosts=3, held=1, cores=8, drained=True, instances_min=8, instances_per_host=8)
    assert len(serving(world)) == 8
    assert {world.unit(name).hosts for name in serving(world)} == {("h1",)}
    assert world.custody.state.demands["web"] == 1
    scale(world, exact=9)
    assert (len(serving(world)), world.custody.state.demands["web"]) == (8, 2)
    world.grant("web", "h2")
    world.settle()
    assert [world.unit(name).hosts for name in serving(world)] == [("h1",)] * 8 + [("h2",)]
    sessions(world, "web.1", "web.9")  # one fewer needs one host fewer: the one with the fewest instances is emptied
    scale(world, exact=8)
    assert [fact.unit for fact in world.facts(f.InstanceDraining)] == ["web.9"]
    assert (world.custody.held("web"), world.custody.state.demands["web"]) == (1, 1)
    sessions(world, "web.1")  # no host can be saved: the one with the fewest sessions goes, and its place is free
    scale(world, exact=7)
    scale(world, exact=8)
    assert serving(world) == [*(f"web.{n}" for n in range(2, 9)), "web.10"]
    assert world.unit("web.10").hosts == ("h1",)
