"""What a web department claims, and why instances come and go (`services.scheduler.web.core`, `.beside`), at each boundary."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.reasons import Code, because
from schemas.releases import Release
from services.runtime.core import NEVER
from services.scheduler.web import beside as web_beside
from services.scheduler.web import rolls as web_rolls
from services.scheduler.web.answers import Bucket
from services.scheduler.web.beside import HOSTS_MAX, Room
from services.scheduler.web.core import WebCore
from services.scheduler.web.release import Plan, Roll
from services.scheduler.web.rolls import Step
from services.scheduler.web.signals import LOAD_LOST_S
from tests.unit.test_web_hosts import Site

TIMEOUT_S = 30.0


def core(site: Site, **policy: Any) -> WebCore:
    """Of what `Site` has, with two instances a host unless said otherwise."""
    custody = site.world.custody
    config = custody.state.config
    assert config is not None
    given = {"instances_per_host": 2, "signal_timeout_s": TIMEOUT_S, "instance_memory_mb": 1024, **policy}
    web = msgspec.structs.replace(config.departments[0].web, **given)  # type: ignore[type-var]
    department = msgspec.structs.replace(config.departments[0], web=web)
    custody.state.config = msgspec.structs.replace(config, departments=(department,))
    found = WebCore(custody, "web")
    found.state.serving = found.holdings.serving
    return found


def needed(found: WebCore, wanted: int, draining: int = 0) -> int:
    return found._needed(found._picture(found.scene(0.0), []), wanted, draining)


# ------------------------------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    ("wanted", "draining", "hosts"), [(0, 0, 0), (1, 0, 1), (2, 0, 1), (3, 0, 2), (2, 1, 2), (2, 2, 2), (4, 1, 3)]
)
def test_hosts_are_needed_for_all_that_take_room(wanted: int, draining: int, hosts: int) -> None:
    assert needed(core(Site("ss ss - -")), wanted, draining) == hosts


@pytest.mark.parametrize(("wanted", "hosts"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 3)])
def test_who_stays_on_a_cordoned_host_needs_no_other_place_and_its_host_is_needed_beside(
    wanted: int, hosts: int
) -> None:
    site = Site("s ss - -")
    site.world.cordon("h1")
    site.world.cordon("h4")  # idle: it goes back
    assert needed(core(site), wanted) == hosts


def test_no_more_hosts_are_needed_than_can_carry_an_instance_where_some_cannot() -> None:
    site = Site("ss - -")
    assert needed(core(site), 9) == 5
    site.world.custody.state.hosts["h3"].cores = 0
    assert [needed(core(site), wanted) for wanted in (9, 4, 2)] == [2, 2, 1]


def test_a_small_host_is_needed_beside_while_others_are_short() -> None:
    site = Site("ss - -")
    site.world.write("scheduler.web", f.HostReleased(host="h2"))
    site.world.write("executor", f.HostCleared(host="h2"))
    site.world.custody.state.hosts["h3"].cores = 0
    assert [needed(core(site), wanted) for wanted in (0, 2, 3)] == [0, 1, 3]
    site.world.cordon("h3")
    assert needed(core(site), 3) == 3
    site.world.grant("web", "h2")
    assert needed(core(site), 3) == 2


def test_what_is_in_use_is_claimed_whatever_is_needed() -> None:
    found = core(Site("s s -"))
    seen = found._picture(found.scene(0.0), [])
    assert [found.claim(seen, wanted, 0) for wanted in (0, 4, 6)] == [2, 2, 3]


def step_of(found: WebCore, plan: Plan | None, roll: Roll | None = None) -> Step:
    at = found.releases(0.0)
    return Step(None, at if roll is None else at._replace(roll=roll), plan)


@pytest.mark.parametrize(
    ("surge", "planned", "claim", "target", "room", "before", "if_idle"),
    [
        ("claim", True, 3, 2, Room(3, 0), 0, 0),
        ("idle", True, 2, 2, Room(4, 0), 0, 1),
        ("idle", True, 1, 2, Room(2, 0), 0, 0),
        ("idle", True, 5, 2, Room(4, 0), 0, 1),  # no more than the surge
        ("idle", True, 1, 4, Room(4, 0), 0, 0),
        ("idle", True, 3, 4, Room(3, 3), 0, 1),  # what drains beyond the wanted ones is beside
        ("idle", False, 3, 2, Room(2, 0), 2, 2),  # kept until they are empty again
        ("idle", False, 3, 2, Room(2, 0), 1, 1),
        ("idle", False, 1, 2, Room(2, 0), 1, 0),
        ("claim", False, 3, 2, Room(2, 0), 1, 0),
    ],
)
def test_hosts_of_the_surge_may_be_wanted_only_if_they_are_idle(
    surge: str, planned: bool, claim: int, target: int, room: Room, before: int, if_idle: int
) -> None:
    found = core(Site("ss ss - -"), surge=surge, max_surge=2, max_unavailable=0)
    found.state.if_idle = before
    step = step_of(found, Plan((), 0, 0, room.wanted) if planned else None)
    seen = found._picture(found.scene(0.0), [])
    assert found._if_idle(seen, step, target, room, claim) == if_idle


@pytest.mark.parametrize(
    ("plan_room", "target", "draining", "room"),
    [
        (None, 2, 3, Room(9, 3)),
        (2, 2, 3, Room(2, 1)),
        (3, 2, 3, Room(3, 0)),
        (1, 2, 1, Room(1, 1)),
        (1, 2, 9, Room(1, 2)),
    ],
)
def test_a_roll_claims_no_more_beside_than_its_surge(
    plan_room: int | None, target: int, draining: int, room: Room
) -> None:
    found = core(Site("ss ss"), max_surge=1, max_unavailable=0)
    step = step_of(found, None if plan_room is None else Plan((), 0, 0, plan_room))
    assert found._room(step, target, 9, draining) == room


# ------------------------------------------------------------------------------------------------------------------ reasons


@pytest.mark.parametrize(
    ("by_person", "target", "reason", "code", "found"),
    [
        (True, 3, because(Code.AT_MINIMUM), Code.SCALE_UP, because(Code.SCALED_BY_PERSON, instances=3)),
        (True, 4, because(Code.AT_MINIMUM), Code.SCALE_UP, because(Code.SCALE_UP, instances=4)),
        (False, 3, because(Code.AT_MINIMUM), Code.SCALE_UP, because(Code.SCALE_UP, instances=3)),
        (False, 3, because(Code.SCALED_BY_PERSON), Code.SCALE_DOWN, because(Code.SCALED_BY_PERSON, instances=3)),
        (False, 3, because(Code.CLAIMED, by="ann"), Code.SCALE_UP, because(Code.SCALE_UP, instances=3, by="ann")),
        (False, 3, because(Code.CLAIMED, by="ann"), Code.SCALE_DOWN, because(Code.SCALE_DOWN, instances=3)),
    ],
)
def test_an_instance_comes_or_goes_by_a_persons_word_or_the_loads(
    by_person: bool, target: int, reason: Any, code: Code, found: Any
) -> None:
    web = core(Site("ss"))
    web.state.by_person, web.state.target = by_person, 3
    assert web._cause(target, reason, code) == found


def told(
    spec: str, room: Room, *, target: int = 2, fewer: int = 0, planned: bool = False, **what: Any
) -> dict[str, Any]:
    site = Site(spec)
    for name in what.get("cordoned", ()):
        site.world.cordon(name)
    for name in what.get("small", ()):
        site.world.custody.state.hosts[name].cores = 0
    web = core(site)
    step = step_of(web, Plan((), 0, 0, 0) if planned else None, Roll(wanted=7))
    reason = web_beside.why(web._picture(web.scene(0.0), []), step, target, room, fewer)
    assert reason.code is Code.ROOM_BESIDE
    return dict(reason.params)


def test_why_other_hosts_are_claimed_tells_all_that_takes_room_beside_the_wanted() -> None:
    assert told("ss - -", Room(2, 0)) == {}
    assert told("ss", Room(2, 0), fewer=1) == {}
    assert told("ss - -", Room(3, 0)) == {"not_ready": 1}
    assert told("ss - -", Room(3, 0), planned=True) == {"release": 7, "surge": 1}
    assert told("ss - -", Room(1, 3)) == {"draining": 3}
    assert told("ss s -", Room(2, 0), cordoned=("h2", "h3")) == {"cordoned": ["h2"]}
    assert told("ss - -", Room(2, 0), small=("h3",)) == {"small": 1}
    assert [told("ss - -", Room(2, 0), fewer=fewer).get("freed") for fewer in (-1, 0, 1, 2, 9)] == [
        None, None, ["h2"], ["h2", "h3"], ["h2", "h3"]
    ]  # fmt: skip
    many = " ".join(["s"] * (HOSTS_MAX + 1))
    names = tuple(f"h{n}" for n in range(1, HOSTS_MAX + 2))
    assert len(told(many, Room(2, 0), cordoned=names)["cordoned"]) == HOSTS_MAX
    assert len(told("s " + " ".join(["-"] * (HOSTS_MAX + 1)), Room(2, 0), fewer=99)["freed"]) == HOSTS_MAX


# ----------------------------------------------------------------------------------------------------- who is ready, wake-up


def test_who_is_ready_is_in_service_does_not_drain_and_nobody_says_otherwise() -> None:
    found = core(Site("ssb d"))
    assert found.ready == 2
    found.state.unready = {"web.1": {}, "web.3": {}, "web.4": {}}
    assert found.ready == 1


@pytest.mark.parametrize(
    ("state", "wakes_s"),
    [
        ({}, TIMEOUT_S),
        ({"missing": True}, NEVER),
        ({"serving": 0}, NEVER),
        ({"until": 5.0}, 5.0),
        ({"until": 99.0}, TIMEOUT_S),
        ({"retry_at": 7.0}, 7.0),
        ({"load_at": 0.0, "claim": 3, "missing": True}, LOAD_LOST_S),
        ({"load_at": 0.0, "missing": True}, NEVER),
    ],
)
def test_it_wakes_when_a_word_ends_a_signal_is_missing_or_a_try_is_due(state: dict[str, Any], wakes_s: float) -> None:
    site = Site("ss")
    found = core(site)
    now = site.world.now
    found._decided_at, found.state.heard_at = now, now
    for name, value in state.items():
        setattr(found.state, name, now + value if name in ("until", "retry_at", "load_at") else value)
    assert found._wake() == now + wakes_s


@pytest.mark.parametrize("for_s", [0.0, 9.0])
def test_it_wakes_when_a_quarantine_is_over(for_s: float) -> None:
    site = Site("ss -")
    site.world.rest("h2", for_s=for_s)
    found = core(site)
    found.state.missing, found._decided_at = True, site.world.now
    assert found._wake() == (site.world.now + for_s if for_s else NEVER)


# ---------------------------------------------------------------------------------------------------------------- rolling


def test_who_stands_on_a_cordoned_host_leaves_first_and_what_drains_is_told_before_all() -> None:
    site = Site("ss ss sd")
    site.world.cordon("h2")
    found = core(site)
    seen = found._picture(found.scene(0.0), [])
    order = [one.number for one in web_rolls._in_order(found.releases(0.0), seen)]
    assert order == [6, 4, 3, 5, 2, 1]
    site.world.drain("h1", by_s=None)
    found = core(site)
    seen = found._picture(found.scene(0.0), [])
    stays = {one.number: one.stays for one in web_rolls._in_order(found.releases(0.0), seen)}
    assert stays == {6: True, 4: True, 3: True, 5: True, 2: False, 1: False}


def test_only_a_newer_request_is_looked_at() -> None:
    site = Site("ss")
    for number in (1, 2):
        site.world.write("admission", f.ReleaseRequested(dept="web", release=number, user="wes", content=Release()))
    found = core(site)
    for asked, word in ((1, 2), (2, None)):
        found.state.roll = Roll(asked=asked, failures=1)
        at = found.releases(site.world.now)
        step = web_rolls.step(at, found._picture(found.scene(site.world.now), []), 2)
        assert (None if step.word is None else step.word.release) == word


def test_answers_that_are_worse_have_a_say_though_releases_have_none() -> None:
    site = Site("ss")
    found = core(site)
    found.state.roll = Roll(wanted=2, asked=2, good=(1, 2))
    assert web_rolls.step(found.releases(0.0), found._picture(found.scene(0.0), []), 2).word is None
    found.state.answers = {2: [Bucket(float(n), n + 1.0, 50, 25) for n in range(4)], 1: [Bucket(0.0, 1.0, 1000, 0)]}
    word = web_rolls.step(found.releases(0.0), found._picture(found.scene(0.0), []), 2).word
    assert word is not None
    assert (word.state, word.back_to) == ("rolled_back", 1)


def test_what_serves_in_a_snapshot_that_knows_no_releases_is_a_way_back() -> None:
    found = core(Site("ss"))
    assert not found.state.roll.good
    found.load(found.dump())
    assert found.state.roll.good == (0,)
