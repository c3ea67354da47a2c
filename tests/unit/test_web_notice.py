"""Instances of a web department whose hosts must go: they drain as long as the notice leaves."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Policy
from schemas.facts import Disposal
from services.domain.custody.rules import RULES
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.web.core import WebCore
from tests.support.ending import DRAIN_S, NOTICE_S, core, decide, draining, ends, hear, scale, serving, sessions, site
from tests.support.world import World, cloud, web

# ------------------------------------------------------------------------------------------------------------------ notice


def test_on_notice_they_drain_until_shortly_before_it_is_due() -> None:
    world = site(held=2, instances_min=2)
    asked = world.now
    world.quota("web", 1)
    world.settle()
    (fact,) = world.facts(f.InstanceDraining)
    assert (fact.unit, type(fact.reason)) == ("web.2", because.Reclaimed)
    assert fact.until - asked == pytest.approx(NOTICE_S - 0.1, abs=1e-6)
    assert core(world).wake_at() == fact.until
    assert world.custody.held("web") == 2
    world.advance(0.21)
    assert world.custody.held("web") == 1
    assert world.now < asked + NOTICE_S  # nobody was seized
    assert ends(world) == {"web.2": (Disposal.STOPPED, because.DrainTimeout)}


def test_on_notice_a_host_goes_as_soon_as_its_last_session_has_ended() -> None:
    world = site(held=2, instances_min=2)
    world.quota("web", 1)
    world.settle()
    hear(world, "web.2", "drained")
    closed, released = decide(world)
    assert (closed.unit, type(closed.why), released.host, type(released.reason)) == (
        "web.2",
        because.Drained,
        "h2",
        because.Notice,
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
    assert (closed.unit, type(closed.why), released.host) == ("web.2", because.Reclaimed, "h2")


def test_on_notice_the_host_with_the_fewest_sessions_goes() -> None:
    world = site(held=2, instances_min=4, instances_per_host=2)
    sessions(world, "web.1", "web.3", "web.4", "web.9")  # the fewest of all on h1, fewer together on h2
    world.quota("web", 1)
    world.settle()
    assert draining(world) == ["web.3", "web.4"]


def test_on_notice_an_idle_host_goes_before_one_where_something_still_ends() -> None:
    world = site(held=2, instances_min=2)
    scale(world, exact=1)
    world.seats["executor"].paused = True
    hear(world, "web.2", "drained")
    world.settle()  # the VM on h2 is still there
    world.seats["scheduler.web"].paused = True
    world.grant("web", "h3")
    world.quota("web", 2)
    world.seats["scheduler.web"].paused = False
    world.settle()
    assert [fact.host for fact in world.facts(f.HostReleased)] == ["h3"]


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


def test_where_the_schedulers_clock_is_late_what_is_seized_is_what_has_drained() -> None:
    """Clocks may differ by more than a notice is long (S6)."""
    world = World(cloud(web("web", instances_min=3, drain_s=60.0), web("shop", priority=5, instances_min=0)))
    world.hosts(3)
    world.seat("provisioner", ProvisionerCore)
    for name in ("web", "shop"):
        world.seat(f"scheduler.{name}", partial(WebCore, dept=name))
    world.executor()
    world.guests()
    world.advance(1.0)
    world.write("admission", f.ScaleRequested(dept="shop", user="ann", exact=1))
    world.settle()
    (drains,) = draining(world)
    world.seats["scheduler.web"].paused = True
    world.advance(NOTICE_S)
    (seized,) = world.facts(f.HostSeized)
    assert (seized.host, drains) == (world.unit("web.3").hosts[0], "web.3")
    assert serving(world)[:2] == ["web.1", "web.2"]


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


def test_a_full_host_that_goes_drains_all_of_its_eight_at_once_within_the_notice() -> None:
    world = site(hosts=2, held=2, cores=8, instances_min=16, instances_per_host=8)
    asked = world.now
    world.quota("web", 1)
    world.settle()
    assert draining(world) == [f"web.{n}" for n in range(9, 17)]
    for name in draining(world)[1:]:
        hear(world, name, "drained")
    world.settle()
    assert (draining(world), world.custody.held("web")) == (["web.9"], 2)  # one session keeps the host …
    world.advance(NOTICE_S - 0.1 + 0.001)
    assert world.custody.held("web") == 1  # … until shortly before it would be taken
    assert world.now < asked + NOTICE_S


def test_another_department_has_the_hosts_within_the_notice_whatever_drains() -> None:
    departments = web("web", instances_min=4, drain_s=60.0), web("shop", priority=5, instances_min=0, drain_s=60.0)
    world = World(cloud(*departments))
    world.hosts(4)
    world.seat("provisioner", ProvisionerCore)
    for name in ("web", "shop"):
        world.seat(f"scheduler.{name}", partial(WebCore, dept=name))
    world.executor()
    world.guests()
    world.advance(1.0)
    assert world.custody.held("web") == 4
    asked = world.now
    world.write("admission", f.ScaleRequested(dept="shop", user="ann", exact=3))
    while world.custody.held("shop") < 3:
        world.advance(0.01)
    assert world.now - asked < NOTICE_S  # VMs end at once here; else grace_s is added
    assert world.facts(f.HostSeized) == []
