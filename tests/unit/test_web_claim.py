"""What a web department claims, and why instances come and go (`scheduler.core.web.core`, `.claim`), at each boundary."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Basis
from schemas.facts import Disposal
from schemas.releases import Release
from services.domain.core import NEVER
from services.domain.custody.state import Quota
from services.scheduler.core.policies.scale_steps import Change
from services.scheduler.core.web import claim as web_claim
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web import termination
from services.scheduler.core.web.answers import Bucket
from services.scheduler.core.web.autoscaler import Number
from services.scheduler.core.web.claim import HOSTS_MAX, Room
from services.scheduler.core.web.core import Said, WebCore
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.release import Plan, Roll
from services.scheduler.core.web.rolls import Step
from services.scheduler.core.web.signals import LOAD_LOST_S
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
    found.state.serving = found.inventory.serving
    return found


def seen_by(found: WebCore, now: float = 0.0) -> Picture:
    return found.said(now).seen


def needed(found: WebCore, wanted: int, draining: int = 0) -> int:
    return web_claim.needed(seen_by(found), found.packing, Room(wanted, draining))


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
    site.world.custody.state.hosts["h3"].size = site.world.custody.state.hosts["h3"].size._replace(cores=0)
    assert [needed(core(site), wanted) for wanted in (9, 4, 2)] == [2, 2, 1]


def test_a_small_host_is_needed_beside_while_others_are_short() -> None:
    site = Site("ss - -")
    site.world.write("scheduler.web", f.HostReleased(host="h2"))
    site.world.write("executor", f.HostCleared(host="h2"))
    site.world.custody.state.hosts["h3"].size = site.world.custody.state.hosts["h3"].size._replace(cores=0)
    assert [needed(core(site), wanted) for wanted in (0, 2, 3)] == [0, 1, 3]
    site.world.cordon("h3")
    assert needed(core(site), 3) == 3
    site.world.grant("web", "h2")
    assert needed(core(site), 3) == 2


def test_what_is_in_use_is_claimed_whatever_is_needed() -> None:
    found = core(Site("s s -"))
    rooms = [Room(wanted, 0) for wanted in (0, 4, 6)]
    assert [web_claim.claim(seen_by(found), found.packing, room) for room in rooms] == [2, 2, 3]


def step_of(found: WebCore, plan: Plan | None, roll: Roll | None = None) -> Step:
    at = found.scene(0.0)
    return Step(None, at if roll is None else at._replace(roll=roll), plan)


@pytest.mark.parametrize(
    ("planned", "claim", "target", "room", "before", "if_idle"),
    [
        (True, 2, 2, Room(4, 0), 0, 1),
        (True, 1, 2, Room(2, 0), 0, 0),
        (True, 5, 2, Room(4, 0), 0, 1),  # no more than the surge
        (True, 1, 4, Room(4, 0), 0, 0),
        (True, 2, 4, Room(2, 2), 0, 0),
        (True, 3, 4, Room(3, 3), 0, 1),  # what drains beyond the wanted ones is beside
        (False, 3, 2, Room(2, 0), 2, 2),  # kept until they are empty again
        (False, 3, 2, Room(2, 0), 1, 1),
        (False, 1, 2, Room(2, 0), 1, 0),
    ],
)
def test_hosts_of_the_surge_may_be_wanted_only_if_they_are_idle(
    planned: bool, claim: int, target: int, room: Room, before: int, if_idle: int
) -> None:
    found = core(Site("ss ss - -"), surge="idle", max_surge=2, max_unavailable=0)
    step = step_of(found, Plan((), 0, 0, room.wanted) if planned else None)
    assert web_claim.if_idle(seen_by(found), found.packing, step, target, room, claim, before) == if_idle


def test_where_the_surge_is_claimed_nothing_is_wanted_only_if_it_is_idle() -> None:
    found = core(Site("ss ss - -"), surge="claim", max_surge=2, max_unavailable=0)
    found.state.if_idle = 1
    for plan, room in ((Plan((), 0, 0, 3), Room(3, 0)), (None, Room(2, 0))):
        [told] = found._claims(said_of(found, 2, step_of(found, plan)), room, 0.0)
        assert (told.hosts, told.if_idle) == (2, 0)


def test_a_surge_that_fills_part_of_a_host_takes_all_of_it() -> None:
    found = core(Site("ss ss - -"), surge="idle", max_surge=3, max_unavailable=0)
    step = step_of(found, Plan((), 0, 0, 5))
    assert web_claim.if_idle(seen_by(found), found.packing, step, 2, Room(5, 0), 9, 0) == 2


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
    assert web_claim.room(step, target, 9, draining) == room


# ------------------------------------------------------------------------------------------------------------------ reasons


@pytest.mark.parametrize(
    ("by_person", "number", "code", "found"),
    [
        (True, Number(3, because.AtMinimum()), because.ScaleUp, because.ScaledByPerson(instances=3)),
        (True, Number(4, because.AtMinimum()), because.ScaleUp, because.ScaleUp(instances=4)),
        (False, Number(3, because.AtMinimum()), because.ScaleUp, because.ScaleUp(instances=3)),
        (
            False,
            Number(3, because.ScaledByPerson(), Basis.PERSON),
            because.ScaleDown,
            because.ScaledByPerson(instances=3),
        ),
        (
            False,
            Number(3, because.Claimed(by="ann"), by="ann"),
            because.ScaleUp,
            because.ScaleUp(instances=3, by="ann"),
        ),
        (False, Number(3, because.Claimed(by="ann"), by="ann"), because.ScaleDown, because.ScaleDown(instances=3)),
    ],
)
def test_an_instance_comes_or_goes_by_a_persons_word_or_the_loads(
    by_person: bool, number: Number, code: because.Kind, found: Any
) -> None:
    web = core(Site("ss"))
    web.state.by_person, web.state.target = by_person, 3
    assert web._cause(number, up=code is because.ScaleUp) == found


def told(
    spec: str, room: Room, *, target: int = 2, fewer: int = 0, planned: bool = False, **what: Any
) -> dict[str, Any]:
    site = Site(spec)
    for name in what.get("cordoned", ()):
        site.world.cordon(name)
    for name in what.get("small", ()):
        site.world.custody.state.hosts[name].size = site.world.custody.state.hosts[name].size._replace(cores=0)
    web = core(site)
    step = step_of(web, Plan((), 0, 0, 0) if planned else None, Roll(wanted=7))
    reason = web_claim.why(seen_by(web), step, target, room, fewer)
    assert type(reason) is because.RoomBeside
    return dict(because.fields(reason))


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
    found.decided_at, found.state.heard_at = now, now
    for name, value in state.items():
        setattr(found.state, name, now + value if name in ("until", "retry_at", "load_at") else value)
    assert found.wake() == now + wakes_s


@pytest.mark.parametrize("for_s", [0.0, 9.0])
def test_it_wakes_when_a_quarantine_is_over(for_s: float) -> None:
    site = Site("ss -")
    site.world.rest("h2", for_s=for_s)
    found = core(site)
    found.state.missing, found.decided_at = True, site.world.now
    assert found.wake() == (site.world.now + for_s if for_s else NEVER)


# ---------------------------------------------------------------------------------------------------------------- rolling


def test_who_stands_on_a_cordoned_host_leaves_first_and_what_drains_is_told_before_all() -> None:
    site = Site("ss ss sd")
    site.world.cordon("h2")
    found = core(site)
    seen = seen_by(found)
    order = [one.number for one in web_rolls._in_order(found.scene(0.0), seen)]
    assert order == [6, 4, 3, 5, 2, 1]
    site.world.drain("h1", by_s=None)
    found = core(site)
    seen = seen_by(found)
    stays = {one.number: one.stays for one in web_rolls._in_order(found.scene(0.0), seen)}
    assert stays == {6: True, 4: True, 3: True, 5: True, 2: False, 1: False}


def test_only_a_newer_request_is_looked_at() -> None:
    site = Site("ss")
    for number in (1, 2):
        site.world.write("admission", f.ReleaseRequested(dept="web", release=number, user="wes", content=Release()))
    found = core(site)
    for asked, word in ((1, 2), (2, None)):
        found.state.roll = Roll(asked=asked, failures=1)
        at = found.scene(site.world.now)
        step = web_rolls.step(at, seen_by(found, site.world.now), 2)
        assert (None if step.word is None else step.word.release) == word


def test_answers_that_are_worse_have_a_say_though_releases_have_none() -> None:
    site = Site("ss")
    found = core(site)
    found.state.roll = Roll(wanted=2, asked=2, good=(1, 2))
    assert web_rolls.step(found.scene(0.0), seen_by(found), 2).word is None
    found.state.answers = {2: [Bucket(float(n), n + 1.0, 50, 25) for n in range(4)], 1: [Bucket(0.0, 1.0, 1000, 0)]}
    word = web_rolls.step(found.scene(0.0), seen_by(found), 2).word
    assert word is not None
    assert (word.state, word.back_to) == ("rolled_back", 1)


def test_what_serves_in_a_snapshot_that_knows_no_releases_is_a_way_back() -> None:
    found = core(Site("ss"))
    assert not found.state.roll.good
    found.load(found.dump())
    assert found.state.roll.good == (0,)


# ------------------------------------------------------------------------------------------------------------- new instances


def said_of(found: WebCore, target: int, step: Step | None = None, now: float = 0.0) -> Said:
    """A decision that has said nothing yet, where so many instances are wanted."""
    said = found.said(now)
    said.target, said.number, said.step = target, Number(target, because.AtMinimum()), step or said.step
    return said


def placed(
    found: WebCore, target: int, *, spare: int = 0, step: Step | None = None
) -> list[tuple[str, str, because.Kind]]:
    """Who comes where, and why, with number at 0.0."""
    said = said_of(found, target, step)
    said.spare = spare
    facts = found._placements(said)
    assert all(fact.reason is not None for fact in facts)
    return [(fact.unit, fact.hosts[0], type(fact.reason)) for fact in facts if fact.reason is not None]


@pytest.mark.parametrize(
    ("target", "spare", "to_replace", "codes"),
    [
        (2, 0, 0, []),
        (3, 0, 0, [because.ScaleUp]),
        (4, 0, 1, [because.Replacement, because.ScaleUp]),
        (2, 1, 0, [because.Replacement]),
        (3, 1, 0, [because.Replacement, because.ScaleUp]),
        (4, 1, 1, [because.Replacement, because.Replacement, because.ScaleUp]),
        (9, 0, 0, [because.ScaleUp] * 4),  # as many as have room
    ],
)
def test_so_many_come_as_are_short_and_those_that_stand_in_for_others_first(
    target: int, spare: int, to_replace: int, codes: list[because.Kind]
) -> None:
    found = core(Site("ss - -"))
    found.state.to_replace = to_replace
    expected = [(f"web.{3 + i}", f"h{2 + i // 2}", code) for i, code in enumerate(codes)]
    assert placed(found, target, spare=spare) == expected


@pytest.mark.parametrize(
    ("word", "stage", "retry_s", "comes"),
    [
        (False, "", 0.0, True),
        (False, "", 0.1, False),
        (False, "rolling", 0.1, False),
        (True, "complete", 0.1, False),
        (True, "rolling", 0.1, True),  # another release has not failed yet
    ],
)
def test_none_comes_before_the_next_try_is_due_unless_the_release_is_another_one_now(
    word: bool, stage: Any, retry_s: float, comes: bool
) -> None:
    found = core(Site("ss -"))
    found.state.retry_at = retry_s
    said = f.ReleaseChanged(dept="web", release=7, state="rolling", reason=because.Rolling(release=7))
    step = step_of(found, Plan((), 3, 1, 3), Roll(wanted=7, stage=stage))._replace(word=said if word else None)
    code = because.Rolling if stage == "rolling" else because.ScaleUp
    assert placed(found, 3, step=step) == ([("web.3", "h2", code)] if comes else [])


# -------------------------------------------------------------------------------------------------------- what is claimed


def claimed(found: WebCore, target: int, room: Room, now: float = 0.0) -> f.DemandChanged | None:
    told = found._claims(said_of(found, target, now=now), room, now)
    return told[0] if told else None


def asked(site: Site, hosts: int, **state: Any) -> WebCore:
    """What it has said is `hosts`."""
    site.world.write("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=2))
    found = core(site, surge="idle")
    for name, value in {"target": 2, **state}.items():
        setattr(found.state, name, value)
    return found


def test_the_same_claim_is_not_said_again() -> None:
    found = asked(Site("ss -"), 1)
    assert claimed(found, 2, Room(2, 0)) is None
    for target, room in ((3, Room(3, 0)), (2, Room(3, 0)), (3, Room(2, 0))):
        assert claimed(found, target, room) is not None
    empty = core(Site("-"))
    assert empty.state.target is None
    assert claimed(empty, 0, Room(0, 0)) is None, "who has said nothing wants nothing"
    assert claimed(empty, 1, Room(1, 0)) is not None


def test_a_signal_that_is_missing_is_told_once_and_only_of_a_department_that_there_is() -> None:
    found = asked(Site("ss -"), 1)
    late = found.custody.state.at + 2 * TIMEOUT_S
    told = claimed(found, 2, Room(2, 0), late)
    assert told is not None
    assert told.reason == because.SignalMissing(timeout_s=TIMEOUT_S, instances=2)
    found.state.missing = True
    assert claimed(found, 2, Room(2, 0), late) is None
    found.state.missing, found.department = False, None
    assert claimed(found, 2, Room(2, 0), late) is None


def test_hosts_that_are_wanted_if_idle_are_none_of_the_claim_and_were_claimed_before() -> None:
    found = asked(Site("ss - - -"), 1, if_idle=2)
    told = claimed(found, 2, Room(4, 0))
    assert told is not None
    assert (told.hosts, told.if_idle) == (2, 0)
    assert told.reason is not None
    assert because.fields(told.reason)["freed"] == ["h2"], "of three hosts two are wanted now"
    [told] = found._claims(said_of(found, 2, step_of(found, Plan((), 0, 0, 4))), Room(4, 0), 0.0)
    assert (told.hosts, told.if_idle) == (1, 1)


def test_of_cordoned_hosts_the_names_are_told_in_their_order() -> None:
    site = Site("s s s")
    web = core(site)
    for name in ("h3", "h1"):
        site.world.cordon(name)
        web.inventory.host_changed(name)
    reason = web_claim.why(seen_by(web), step_of(web, None), 3, Room(3, 0), 0)
    assert because.fields(reason)["cordoned"] == ["h1", "h3"]


def test_one_that_is_closed_is_gone_and_one_that_leaves_drains_if_it_may() -> None:
    found = core(Site("sd b"))
    closes, ends = found.said(0.0), found.said(0.0)
    units = [closes.at.unit(f"web.{n}") for n in (1, 3)]
    why = because.EndedVm()
    for _ in range(2):
        closes.close([termination.close(unit, Disposal.FAILED, why) for unit in units])
    assert (list(closes.seen.gone), closes.seen.count, closes.seen.draining) == (["web.1", "web.3"], 0, 1)
    assert [fact.unit for fact in closes.closings] == ["web.1", "web.3"], "each is closed once"
    ends.at = ends.at._replace(drain_s=1.0)
    ends.end(units, why)
    assert (list(ends.seen.gone), list(ends.seen.drained), ends.seen.count) == (["web.3"], ["web.1"], 0)
    assert found.scene(0.0).drain_s == found.policy.drain_s
    found.department = None
    assert (found.scene(0.0).drain_s, found.most()) == (0.0, 0)


def test_it_wakes_when_a_limit_allows_more_unless_there_is_no_department_any_more() -> None:
    site = Site("ss")
    found = core(site, up_limits=("1 in 10s",))
    now = site.world.now
    found.decided_at, found.state.missing, found.state.changes = now, True, [Change(now - 4.0, 1)]
    assert found.wake() == now + 6.0
    found.department = None
    assert found.wake() == NEVER


@pytest.mark.parametrize(("quota", "notice"), [(None, 0), (0, 2), (1, 1), (2, 0), (3, 0)])
def test_on_notice_is_who_holds_more_than_its_quota(quota: int | None, notice: int) -> None:
    found = core(Site("ss -"))
    found.custody.state.quotas.pop("web", None)
    if quota is not None:
        found.custody.state.quotas["web"] = Quota(hosts=quota)
    assert found.notice() == notice


@pytest.mark.parametrize(
    ("before", "claim", "hurries"), [(None, 1, False), (None, 3, True), (3, 3, False), (3, 4, True), (3, None, False)]
)
def test_only_more_than_was_claimed_hurries(before: int | None, claim: int | None, hurries: bool) -> None:
    found = core(Site("ss - -"), instances_min=1, instances_max=8, rule="target-tracking")
    now = found.custody.state.at
    found.state.target, found.state.claim, found.state.heard_at = 2, before, now
    fact = f.LoadObserved(dept="web", start=now - 1.0, end=now, samples=1, claim=claim)
    assert found.would_change(fact, now) is hurries


@pytest.mark.parametrize("ready_s", [7.0, 40.0])
def test_it_wakes_when_an_instance_that_a_roll_waits_for_will_be_ready(ready_s: float) -> None:
    site = Site("ss")
    found = core(site, min_ready_s=ready_s)
    now = site.world.now
    found.decided_at, found.state.missing, found.state.roll = now, True, Roll(wanted=7, stage="rolling")
    assert found.wake() == now + ready_s


@pytest.mark.parametrize(
    ("wanted", "target", "maximum", "surge", "told"),
    [
        (7, 2, None, "claim", {"max_unavailable": 0, "helps": 1}),
        (7, 2, 2, "claim", {"max_unavailable": 0, "helps": 1}),
        (7, 2, 1, "claim", {"max_unavailable": 0, "helps": 1, "maximum": 1}),
        (7, 2, 2, "idle", {"max_unavailable": 0, "helps": 1, "surge": "idle"}),
        (7, 2, 1, "idle", {"max_unavailable": 0, "helps": 1, "maximum": 1}),
        (0, 3, None, "idle", {}),  # nobody is left to make room
    ],
)
def test_a_roll_that_only_a_host_helps_on_says_why_there_is_none(
    wanted: int, target: int, maximum: int | None, surge: str, told: dict[str, Any]
) -> None:
    for spec in ("ss", "ss -"):
        found = core(Site(spec), max_surge=1, max_unavailable=0, min_ready_s=0.0, surge=surge)
        at = found.scene(found.custody.state.at)._replace(roll=Roll(wanted=wanted, asked=wanted, stage="rolling"))
        stuck = [
            dict(because.fields(one)) for one in web_rolls.why(at, target, maximum) if type(one) is because.RollStuck
        ]
        expected = {"department": "web", "release": wanted, "hosts": 1, **told}
        assert stuck == ([expected] if spec == "ss" else [])
