"""Instances at the door: how they are listed, and what balancers may report of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Department, WebPolicy
from schemas.releases import Release
from schemas.requests import InstanceReport
from schemas.times import exact
from services.admission.commands import instances
from services.admission.commands.compose import Caller
from services.domain.custody.rules import RULES
from services.domain.refusal import Refused
from tests.support.admission import ANN, ROOT, WAL, WIM, Fold, cloud, fold


def reported(world: Fold, caller: Caller = WIM, now: float = 100.0, **asked: Any) -> list[Any]:
    request = InstanceReport(**{"unit": "web.1", "attempt": 1, **asked})
    return instances.report(world.core, caller, "web", request, now, ())


def in_service() -> Fold:
    world = fold()
    world.place("web.1", "w1", dept="web")
    world.put(f.AttemptBegan(unit="web.1", attempt=1, addresses=("h:1",)))
    return world


def drains(world: Fold) -> None:
    fact = f.InstanceDraining(unit="web.1", attempt=1, until=9e9, reason=because.ScaleDown())
    assert world.put(fact, writer="scheduler.web") is None


def test_a_balancer_says_once_that_an_instance_has_drained_and_only_of_one_that_drains() -> None:
    world = in_service()
    with pytest.raises(Refused, match="does not drain") as refused:
        reported(world, state="drained")
    assert refused.value.code == "conflict"
    drains(world)
    (fact,) = reported(world, state="drained", why="all gone")
    assert fact == f.InstanceReported(unit="web.1", attempt=1, state="drained", user="wim", why="all gone")
    request = InstanceReport(unit="web.1", attempt=1, state="drained")
    assert instances.report(world.core, WIM, "web", request, 100.0, [fact]) == []
    assert world.put(fact) is None
    assert reported(world, state="drained") == []
    assert reported(world, state="unready") == []  # it goes anyway
    world.close("web.1", f.Disposal.STOPPED, dept="web")
    with pytest.raises(Refused, match="is over"):
        reported(world, state="drained")


def test_of_a_department_that_names_its_balancers_nobody_else_reports() -> None:
    world = in_service()
    named = [
        msgspec.structs.replace(one, web=msgspec.structs.replace(one.web, balancers=("lb",))) if one.web else one
        for one in cloud().departments
    ]
    config = msgspec.structs.replace(cloud(), departments=tuple(named))
    assert reported(world, WAL, state="unready")  # nobody is named yet
    world.put(f.ConfigAdopted(cloud="c", custody_rules=RULES, config=config), writer="provisioner")
    with pytest.raises(Refused, match=r"reports by wal do not count \(balancers of web: lb\); those of") as refused:
        reported(world, WAL, state="unready")
    assert (refused.value.code, refused.value.field) == ("denied", "user")
    for caller in (WIM, ROOT, Caller("lb", "web", "user")):
        assert reported(world, caller, state="unready")


def test_unready_is_a_level_that_ready_takes_back() -> None:
    world = in_service()
    assert reported(world, state="ready") == []
    (fact,) = reported(world, state="unready", why="HTTP 500", now=100.0)
    world.put(fact)
    assert reported(world, state="unready", why="HTTP 500") == []
    at = world.core.reported("web.1")["wim"].at
    with pytest.raises(Refused, match="a moment ago") as refused:
        reported(world, state="ready", now=at + 0.5)
    assert refused.value.code == "limit"
    assert reported(world, state="unready", why="refused", now=at + 4.9) == []
    assert [x.why for x in reported(world, state="unready", why="refused", now=at + 5.0)] == ["refused"]
    (fact,) = reported(world, state="ready", now=at + 1.0)
    world.put(fact)
    assert [x.state for x in reported(world, state="unready", now=at + 9.0)] == ["unready"]


def test_each_watcher_has_a_word_of_its_own_and_there_are_not_many() -> None:
    world = in_service()
    guests = f.InstanceReported(unit="web.1", attempt=1, state="unready", by="guest", why="refused")
    assert instances.news(world.core, guests, 100.0, ()) == [guests]
    world.put(guests)
    at = world.core.reported("web.1")[""].at
    assert instances.news(world.core, guests, at + 60.0, ()) == []
    assert reported(world, state="ready", now=at + 60.0) == []  # it has not called it unready
    for number in range(instances.WATCHERS_MAX - 1):
        world.put(msgspec.structs.replace(guests, user=f"u{number}", by="balancer"))
    with pytest.raises(Refused, match=r"8 watch web\.1 already") as refused:
        reported(world, state="unready", now=at + 60.0)
    assert refused.value.code == "limit"


def test_a_program_ends_once() -> None:
    world = in_service()
    over = f.InstanceReported(unit="web.1", attempt=1, state="ended", by="guest", exit=1)
    world.put(f.InstanceReported(unit="web.1", attempt=1, state="unready", by="guest", why="refused"))
    at = world.core.reported("web.1")[""].at
    assert instances.news(world.core, over, at, ()) == [over]  # however soon after another word
    assert instances.news(world.core, over, 100.0, [over]) == []
    world.put(over)
    ready = msgspec.structs.replace(over, state="ready", exit=None)
    assert instances.news(world.core, ready, 9e9, ()) == []


def test_what_a_guest_said_of_the_start_is_over_when_it_begins() -> None:
    world = fold()
    world.place("web.1", "w1", dept="web")
    world.put(f.InstanceReported(unit="web.1", attempt=1, state="unready", by="guest", why="refused"))
    assert set(world.core.reported("web.1")) == {""}
    world.put(f.AttemptBegan(unit="web.1", attempt=1, addresses=("h:1",)))
    assert world.core.reported("web.1") == {}


def test_who_may_report_what_of_whose_instances() -> None:
    world = in_service()
    assert reported(world, WAL, state="unready")[0].user == "wal"
    assert reported(world, ROOT, state="unready")[0].user == "root"
    for caller, asked, code in (
        (ANN, {}, "denied"),
        (WIM, {"unit": "web.2"}, "unknown"),
        (WIM, {"unit": world.submit()}, "unknown"),
        (WIM, {"attempt": 2}, "conflict"),
    ):
        with pytest.raises(Refused) as refused:
            reported(world, caller, **{"state": "unready", **asked})
        assert refused.value.code == code


def test_a_web_department_cannot_report_anothers_instances() -> None:
    """It speaks in its own name, to its own address, of an instance that is not its own."""
    config = cloud()
    shop = Department(name="shop", kind="web", web=WebPolicy())
    world = fold()
    world.adopt(msgspec.structs.replace(config, departments=(*config.departments, shop)))
    world.host("s1", 2, 4000, "shop")
    assert world.place("shop.1", "s1", dept="shop") is None
    with pytest.raises(Refused, match=r"web has no instance shop\.1"):
        reported(world, unit="shop.1", state="unready")


def test_an_instance_that_has_begun_is_asked_where_its_program_answers_whatever_the_configuration_says_since() -> None:
    world = in_service()
    placed = f.UnitPlaced(unit="web.2", attempt=1, hosts=("w1",), cores=1, memory_mb=1)
    assert world.put(placed, writer="scheduler.web") is None  # it boots, and runs what the configuration says then

    def told() -> list[tuple[str, str, int]]:
        department = world.core.department("web")
        assert department is not None
        found = instances.listed(world.core, department).instances
        return [(one.unit, one.health_path, one.connections) for one in found]

    def adopt(**changes: Any) -> None:
        config = cloud()
        web = [
            msgspec.structs.replace(d, web=WebPolicy(**changes)) if d.name == "web" else d for d in config.departments
        ]
        world.adopt(msgspec.structs.replace(config, departments=tuple(web)))

    adopt(health_path="/up", command=("shop",))
    assert told() == [("web.1", "/healthz", 4), ("web.2", "/up", 64)]
    adopt(health_path="/ready", command=("shop",))
    assert told() == [("web.1", "/healthz", 4), ("web.2", "/ready", 64)]
    adopt(health_path="/ready", command=("shop",), connections_per_instance=9)
    assert told() == [("web.1", "/healthz", 9), ("web.2", "/ready", 9)]
    world.core.load(world.core.dump())
    assert told()[0] == ("web.1", "/healthz", 9)
    assert world.core.check() == []
    world.close("web.1", f.Disposal.STOPPED, dept="web")
    assert world.core.begun_with("web.1") is None
    assert world.core.check() == []


def test_an_instance_is_listed_with_its_state_and_the_health_path_of_its_release() -> None:
    world = in_service()
    release = f.ReleaseRequested(
        dept="web", release=1, user="wim", content=Release(health_path="/new", command=("shop",))
    )
    assert world.put(release) is None
    placed = f.UnitPlaced(unit="web.2", attempt=1, hosts=("w1",), cores=1, memory_mb=1, release=1)
    assert world.put(placed, writer="scheduler.web") is None
    drains(world)
    department = world.core.department("web")
    assert department is not None
    told = instances.listed(world.core, department)
    assert [(x.unit, x.state, x.address, x.release, x.health_path, x.drains_until) for x in told.instances] == [
        ("web.1", "draining", "h:1", 0, "/healthz", exact(9e9)),
        ("web.2", "starting", None, 1, "/new", None),
    ]
    assert [one.connections for one in told.instances] == [
        4,
        64,
    ]  # the built-in program; nobody knows how a command works
    asks = msgspec.structs.replace(department, web=WebPolicy(connections_per_instance=16))
    assert [one.connections for one in instances.listed(world.core, asks).instances] == [16, 16]
