"""Hosts that are set apart, as a web department sees them: instances serve on; on a drained host they are replaced first."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from tests.support.ending import scale, site
from tests.support.world import World


def claim(world: World) -> tuple[int, int | None]:
    fact = world.facts(f.DemandChanged)[-1]
    return fact.hosts, fact.instances


def running(world: World) -> list[str]:
    return [unit for unit, state in world.states("web").items() if state == "open"]


def test_what_serves_on_a_cordoned_host_serves_on_and_nothing_comes_beside_it() -> None:
    world = site(drained=True, instances_per_host=2)
    world.cordon("h1")
    world.settle()
    assert (running(world), claim(world)) == (["web.1"], (1, 1))
    scale(world, 2)
    assert claim(world) == (2, 2)
    world.grant("web", "h2")
    world.settle()
    assert {name: world.unit(name).hosts for name in running(world)} == {"web.1": ("h1",), "web.2": ("h2",)}


def test_a_cordoned_host_goes_back_when_nothing_is_left_on_it() -> None:
    world = site(drained=True, held=2, instances_min=2)
    world.cordon("h2")
    scale(world, 1)
    assert running(world) == ["web.1"]
    assert [(fact.host, type(fact.reason)) for fact in world.facts(f.HostReleased)] == [("h2", because.Cordoned)]


def test_a_drained_host_is_left_once_another_serves() -> None:
    world = site(drained=True)
    world.drain("h1", None)
    world.settle()
    assert claim(world) == (2, 1)
    assert running(world) == ["web.1"]
    world.seats["guests"].paused = True
    world.grant("web", "h2")
    world.settle()
    assert running(world) == ["web.1", "web.2"]  # the new one does not serve yet
    world.seats["guests"].paused = False
    world.settle()
    assert running(world) == ["web.2"]
    assert claim(world) == (1, 1)
    assert sorted(world.custody.index.held["web"]) == ["h2"]


@pytest.mark.parametrize("by_s", [5.0, None])
def test_a_drained_host_goes_back_at_its_deadline_though_no_other_serves(by_s: float | None) -> None:
    world = site(drained=True)
    world.drain("h1", by_s)
    world.settle()
    world.advance(4.9)
    assert running(world) == ["web.1"]
    world.advance(0.1)
    if by_s is None:
        assert running(world) == ["web.1"]
        return
    (closed,) = world.facts(f.AttemptClosed)
    assert (closed.unit, type(closed.why)) == ("web.1", because.HostDrained)
    assert [fact.host for fact in world.facts(f.HostReleased)] == ["h1"]


def test_on_notice_no_cordoned_host_goes_however_few_instances_it_has() -> None:
    world = site(drained=True, held=2, instances_min=3, instances_per_host=2)
    world.seats["guests"].paused = True  # so that no replacement can serve
    world.cordon("h2")
    world.settle()
    world.quota("web", 1)
    world.settle()
    assert [fact.host for fact in world.facts(f.HostReleased)] == ["h1"]
    assert running(world) == ["web.3"]
