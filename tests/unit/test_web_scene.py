"""Which instances end now, and when somebody may have to next (`scheduler.core.web.termination`,
`.replacement`, `.reclaim`), each rule at its boundary.

The stories over time are in `test_web_ends.py`, `test_web_notice.py` and `test_web_readiness.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import WebPolicy
from schemas.facts import Disposal
from services.domain import readiness
from services.domain.core import NEVER
from services.domain.custody.state import Quota
from services.domain.readiness import Unready
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.web import reclaim, replacement, termination
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.reclaim import ROOM_MAX_S
from services.scheduler.core.web.release import Roll
from services.scheduler.core.web.replacement import DOUBLINGS_MAX, WORDS_S
from services.scheduler.core.web.scene import Scene
from services.scheduler.core.web.state import State
from tests.unit.test_web_hosts import Site, numbers

LATE_S = 15.0  # not ready for so long: overdue
BOOT_S = 60.0
DRAIN_S = 30.0
SERVED_S = 1000.0


class Stage:
    """Instances as `Site` has them, which have served for SERVED_S, and words on who is not ready: ``1g 2b`` by its guest,
    or by a balancer, for just LATE_S; in capitals for a second less."""

    def __init__(self, spec: str, words: str = "", **state: Any) -> None:
        self.site = Site(spec)
        self.site.world.now += SERVED_S
        self.now = self.site.world.now
        unready = {}
        for word in words.split():
            who = readiness.GUEST if word[-1] in "gG" else "lb"
            at = self.now - LATE_S + (1.0 if word[-1].isupper() else 0.0)
            unready[f"web.{word[:-1]}"] = {who: Unready(at, "answer")}
        held = self.site.held
        self.state = State(**{"serving": held.serving, "unready": unready, **state})

    def scene(
        self, *, surge: int = 1, unavailable: int = 0, min_ready_s: float = 0.0, later_s: float = 0.0, **policy: Any
    ) -> Scene:
        terms = {"max_surge": surge, "max_unavailable": unavailable, "min_ready_s": min_ready_s}
        rules = WebPolicy(**{"unreachable_s": LATE_S, "boot_timeout_s": BOOT_S, **terms, **policy})
        custody, now = self.site.world.custody, self.now + later_s
        limits = Limits(custody, lambda _unit: NEVER, lambda: rules.boot_timeout_s)
        return Scene(custody, "web", rules, DRAIN_S, self.site.held, self.state, limits, self.state.roll, now)

    def closed(self, target: int, most: int = 99, **terms: Any) -> str:
        """Who is closed, in that order."""
        at = self.scene(**terms)
        return numbers([fact.unit for fact in (*termination.closings(at), *replacement.closings(at, target, most))])


def next_moment(at: Scene, target: int = 0) -> float:
    times = [*termination.moments(at), *reclaim.moments(at), *replacement.moments(at, target, 99)]
    return min((time for time in times if time > at.now), default=NEVER)


# ------------------------------------------------------------------------------------------------------ who is replaced


@pytest.mark.parametrize(
    ("words", "not_ready", "overdue"),
    [("", "", ""), ("2g", "2", "2"), ("2G", "2", ""), ("3g 1G 2g", "2 3 1", "2 3"), ("5g", "", ""), ("4g", "", "")],
)
def test_overdue_is_who_is_in_service_and_was_not_ready_for_long_enough(
    words: str, not_ready: str, overdue: str
) -> None:
    stage = Stage("sss b d", words)
    assert numbers(replacement.not_ready(stage.scene())) == not_ready
    assert numbers(replacement.overdue(stage.scene())) == overdue
    assert replacement.overdue(stage.scene(unreachable_s=0.0)) == []


@pytest.mark.parametrize(
    ("overdue", "surge", "target", "most", "spare"),
    [(3, 9, 4, 99, 3), (3, 2, 4, 99, 2), (3, 9, 4, 6, 2), (3, 9, 4, 4, 0), (3, 9, 4, 3, 0), (3, 9, 0, 99, 0), (0, 9, 4, 99, 0)],
)  # fmt: skip
def test_so_many_more_are_wanted_for_now_as_are_overdue_within_the_surge_and_the_maximum(
    overdue: int, surge: int, target: int, most: int, spare: int
) -> None:
    stage = Stage("ssss", " ".join(f"{n}g" for n in range(1, overdue + 1)))
    assert replacement.spare(stage.scene(surge=surge), target, most) == spare


@pytest.mark.parametrize(
    ("spec", "words", "target", "terms", "closed"),
    [
        # somebody is ready, and has been for long: as many go as are there beyond the wanted ones
        ("ssss", "1g 2g", 4, {}, ""),
        ("ssss", "1g 2g", 3, {}, "1"),
        ("ssss", "1g 2g", 2, {}, "1 2"),
        ("ssss", "1g 2g", 1, {}, "1 2"),
        ("ssss", "1g 2G", 3, {}, ""),  # one who is not overdue yet does not stand in for one
        ("ssss", "1g 2G", 2, {}, "1"),
        ("ssss", "", 2, {}, ""),
        ("ssss", "1g 2g", 0, {}, ""),
        # up to `max_unavailable` go before, less those that are missing
        ("ssss", "1g 2g 3g", 4, {"unavailable": 1}, "1"),
        ("ssss", "1g 2g 3g", 4, {"unavailable": 2}, "1 2"),
        ("ssss", "1g 2g 3g", 5, {"unavailable": 2}, "1"),
        ("ssss", "1g 2g 3g", 6, {"unavailable": 2}, ""),
        ("ssss", "1g 2g 3G", 4, {"unavailable": 2}, "1"),
        ("ssss", "1g 2g 3g", 3, {"unavailable": 1}, "1 2"),
        # nobody has proven that it stays well: those that have served before stay
        ("ssss", "1g 2g 3g 4g", 4, {"unavailable": 1}, "1"),
        ("ssss", "1g 2g 3g 4g", 3, {}, ""),
        ("ssss", "1b 2b 3b 4b", 3, {}, ""),
        ("ssss", "1b 2b 3b 4g", 4, {"unavailable": 2}, "1 2"),
        ("ssb", "1g 2g", 1, {}, ""),  # nor does who boots
    ],
)
def test_who_is_overdue_goes_as_successors_come(
    spec: str, words: str, target: int, terms: dict[str, Any], closed: str
) -> None:
    assert Stage(spec, words).closed(target, **terms) == closed


def test_who_goes_says_what_its_health_path_answered() -> None:
    [fact] = replacement.closings(Stage("ss", "1g").scene(), 1, 99)
    told = because.NotReady(unreachable_s=LATE_S, answer="answer")
    assert fact == f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.FAILED, why=told)


def test_nobody_is_replaced_in_a_department_that_has_stopped() -> None:
    assert Stage("ss", "1g", roll=Roll(stage="stopped")).closed(1) == ""


@pytest.mark.parametrize(("retry_s", "closed"), [(0.0, "1"), (0.1, "")])
def test_none_goes_early_before_the_next_try_is_due(retry_s: float, closed: str) -> None:
    stage = Stage("sss", "1g")
    stage.state.retry_at = stage.now + retry_s
    assert stage.closed(3, unavailable=1) == closed
    assert stage.closed(2, unavailable=1) == "1", "its successor is there"
    assert stage.closed(3, 3) == closed, "there may be no more"


@pytest.mark.parametrize(
    ("spec", "words", "so"),
    [
        ("ss", "1b 2b", True),
        ("ss", "1b", False),
        ("ss", "1b 2g", False),
        ("ss", "", False),
        ("ssb", "1b 2b", True),
        ("b", "", False),
    ],
)
def test_it_may_be_the_balancers_network_if_they_alone_say_so_of_all(spec: str, words: str, so: bool) -> None:
    assert replacement.is_balancers_word(Stage(spec, words).scene()) is so


# without successors: `max_unavailable` 0 and nobody can come


@pytest.mark.parametrize(
    ("spec", "most", "waits_s"),
    [
        ("ssss", 4, 0.0),  # there may be no more
        ("ssss", 3, 0.0),
        ("ssss", 5, BOOT_S),
        ("ssss -", 5, BOOT_S),
    ],
)
def test_where_no_successor_comes_one_goes_at_once_or_after_the_time_that_one_takes(
    spec: str, most: int, waits_s: float
) -> None:
    stage = Stage(spec, "1g 2g")
    assert stage.closed(4, most, later_s=waits_s) == "1"
    if waits_s:
        assert stage.closed(4, most, later_s=waits_s - 0.1) == ""
        stage.state.replaced_at = stage.now + 10.0
        assert stage.closed(4, most, later_s=waits_s + 9.9) == "", "that long after the last one"
        assert stage.closed(4, most, later_s=waits_s + 10.0) == "1"
    stage.state.retry_at = stage.now + 1e6
    assert stage.closed(4, most, later_s=waits_s) == ""


def test_none_goes_so_while_others_are_missing_that_can_come_or_a_successor_is_there() -> None:
    late = {"later_s": 10 * BOOT_S}
    assert Stage("ss", "1g").closed(3, 3, **late) == "", "there is a place for the third"
    assert Stage("ssss", "1g").closed(5, 5, **late) == "1", "there is none"
    assert Stage("sssb", "1g").closed(4, 4, **late) == "", "it is on its way"
    assert Stage("sss", "1g").closed(3, 3, **late) == "1"
    assert Stage("ssss", "1g").closed(5, 5, unavailable=1, **late) == "", "so many may be missing, and are"


@pytest.mark.parametrize(
    ("failures", "doublings"), [(0, 0), (1, 1), (3, 3), (DOUBLINGS_MAX, DOUBLINGS_MAX), (99, DOUBLINGS_MAX)]
)
@pytest.mark.parametrize("most", [2, 9])
def test_by_the_balancers_word_alone_one_goes_at_a_time_and_each_after_twice_as_long(
    failures: int, doublings: int, most: int
) -> None:
    stage = Stage("ss", "1b 2b", failures=failures)
    waits_s = BOOT_S * 2**doublings
    assert stage.closed(2, most, later_s=waits_s - 0.1) == ""
    assert stage.closed(2, most, later_s=waits_s) == "1"
    stage.state.replaced_at = stage.now + 1.0
    assert stage.closed(2, most, later_s=waits_s) == ""
    assert stage.closed(2, most, later_s=waits_s + 1.0) == "1"
    assert stage.closed(1, most, later_s=waits_s + 1.0) == "", "a successor is there, and is not ready either"


# ------------------------------------------------------------------------------------------------ who has proven to be well


@pytest.mark.parametrize(("ready_s", "closed"), [(WORDS_S - 0.1, ""), (WORDS_S, "1")])
@pytest.mark.parametrize("min_ready_s", [0.0, 2 * WORDS_S])
def test_somebody_must_have_been_ready_for_a_while_before_anybody_goes_for_it(
    ready_s: float, closed: str, min_ready_s: float
) -> None:
    stage = Stage("sss", "1g")
    more_s = max(0.0, min_ready_s - WORDS_S)
    stage.state.ready_at = {"web.2": stage.now - ready_s - more_s, "web.3": stage.now}
    assert stage.closed(2, min_ready_s=min_ready_s) == closed
    assert replacement.proven_s(stage.scene(min_ready_s=min_ready_s)) == max(min_ready_s, WORDS_S)


def test_of_those_that_are_all_ill_who_never_served_goes_first_and_the_newest() -> None:
    stage = Stage("ssss", "1g 2g 3g 4g")
    ill_at = stage.now - LATE_S
    stage.state.ready_at = {"web.3": ill_at - WORDS_S + 0.1, "web.4": ill_at}
    assert stage.closed(2) == "4 3"
    assert stage.closed(3) == "4"
    assert stage.closed(4, unavailable=1) == "4"
    assert stage.closed(4, unavailable=3) == "4 3"
    stage.state.ready_at = {"web.3": ill_at - WORDS_S, "web.4": ill_at}
    assert stage.closed(2) == "4"
    stage.state.ready_at = {}
    assert stage.closed(2) == "", "they may recover by themselves"
    assert stage.closed(4, unavailable=1) == "1"


# ----------------------------------------------------------------------------------------------- broken, ended, late, drained


def test_what_is_broken_is_closed_by_what_broke_it_and_by_its_guests_word_if_it_failed() -> None:
    site = Stage("s s s s").site
    site.world.lose(site.names[0])
    site.world.lose(site.names[1])
    for number in (3, 4):
        site.world.write(
            "executor", f.VmAllocated(unit=f"web.{number}", attempt=1, rank=0, vm=number, host=f"h{number}")
        )
        site.world.end_vm(f"web.{number}")
    said = f.InstanceReported(unit="x", attempt=1, state="ended", by="guest", exit=3)
    stage = Stage("-", ended={"web.2": said, "web.4": said})
    stage.site = site
    found = termination.closings(stage.scene())
    assert [(fact.unit, fact.disposal, type(fact.why)) for fact in found] == [
        ("web.1", Disposal.FAILED, because.LostHost),
        ("web.2", Disposal.FAILED, because.ProgramEnded),
        ("web.3", Disposal.FAILED, because.EndedVm),
        ("web.4", Disposal.FAILED, because.ProgramEnded),
    ]


def test_what_was_taken_with_its_host_did_not_fail_whatever_its_guest_says() -> None:
    stage = Stage("s -")
    world = stage.site.world
    world.quota("web", 0, by_s=0.0)
    world.write("provisioner", f.HostSeized(host="h1", dept="web"))
    assert world.unit("web.1").broken is not None
    stage.state.ended = {"web.1": f.InstanceReported(unit="web.1", attempt=1, state="ended", by="guest", exit=3)}
    [fact] = termination.closings(stage.scene())
    assert fact.disposal is Disposal.STOPPED
    assert type(fact.why) is not because.ProgramEnded


def test_who_ends_is_told_in_the_order_of_numbers_and_hosts_in_that_of_names() -> None:
    all_of_them = " ".join(map(str, range(1, 13)))
    assert Stage("dddd dddd dddd").closed(0) == all_of_them
    stage = Stage("ssss ssss ssss")
    held = stage.site.held
    for name in ("h3", "h1", "h2"):
        stage.site.world.drain(name, by_s=0.0)
        held.host_changed(name)
    back = reclaim.give_up(stage.scene()._replace(held=held), Picture(held, {}, {}, {}))
    assert [fact.host for fact in back if isinstance(fact, f.HostReleased)] == ["h1", "h2", "h3"]
    for name in stage.site.names:
        stage.site.world.lose(name)
    assert stage.closed(0) == all_of_them


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"exit": 0}, {"exit": 0}),
        ({"signal": 9}, {"signal": 9}),
        ({"oom": True}, {"oom": 1}),
        ({"said": "bye"}, {"said": "bye"}),
        ({}, {}),
        ({"exit": 1, "said": "x"}, {"exit": 1, "said": "x"}),
    ],
)
def test_how_a_program_ended_is_told_as_far_as_its_guest_knows(how: dict[str, Any], told: dict[str, Any]) -> None:
    said = f.InstanceReported(unit="web.1", attempt=1, state="ended", by="guest", **how)
    assert termination.why_ended(said) == because.ProgramEnded(**told)


@pytest.mark.parametrize(
    ("drained", "for_s", "code"), [(True, 9.0, because.Drained), (False, 0.0, because.DrainTimeout), (False, 0.1, None)]
)
@pytest.mark.parametrize("followed", [None, 7])
def test_what_drains_is_closed_when_it_has_or_when_its_time_is_over(
    drained: bool, for_s: float, code: because.Kind | None, followed: int | None
) -> None:
    stage = Stage(
        "d", drained={"web.1": None} if drained else {}, followed={} if followed is None else {"web.1": followed}
    )
    stage.site.world.unit("web.1").drains_until = stage.now + for_s
    found = termination.closings(stage.scene())
    told = {} if followed is None else {"release": followed}
    assert [(fact.disposal, fact.why) for fact in found] == ([] if code is None else [(Disposal.STOPPED, code(**told))])
    assert next_moment(stage.scene()) == (NEVER if for_s == 0.0 else stage.now + for_s)


def test_who_is_not_needed_drains_if_it_is_in_service_and_there_is_time() -> None:
    stage = Stage("sb")
    units = [stage.site.world.unit(f"web.{n}") for n in (1, 2)]
    why = because.ScaleDown(instances=0)
    assert termination.drains(stage.scene()._replace(drain_s=0.1), units[0])
    drains, closes = termination.ends(stage.scene(), units, why)
    assert drains == f.InstanceDraining(unit="web.1", attempt=1, until=stage.now + DRAIN_S, reason=why)
    assert closes == f.AttemptClosed(unit="web.2", attempt=1, disposal=Disposal.STOPPED, why=why)
    assert [type(fact) for fact in termination.ends(stage.scene()._replace(drain_s=0.0), units, why)] == [
        f.AttemptClosed
    ] * 2


# ---------------------------------------------------------------------------------------------------------------------- notice


def notice(spec: str, count: int, *lowerings: tuple[int, float], drain_s: float = DRAIN_S) -> tuple[Stage, list[str]]:
    """Each fact in a word; `lowerings`: to so many hosts, in so many seconds."""
    stage = Stage(spec)
    custody = stage.site.world.custody
    custody.state.quotas["web"] = Quota(hosts=lowerings[-1][0], lowerings=[(n, stage.now + s) for n, s in lowerings])
    found: list[str] = []
    for fact in reclaim.give_back(stage.scene()._replace(drain_s=drain_s), stage.site.picture(), count):
        if isinstance(fact, f.InstanceDraining):
            found.append(f"{numbers([fact.unit])} drains {round(fact.until - stage.now, 3)}")
        elif isinstance(fact, f.AttemptClosed):
            assert (fact.disposal, fact.why) == (Disposal.STOPPED, because.Reclaimed(hosts=count))
            found.append(f"{numbers([fact.unit])} closed")
        else:
            assert isinstance(fact, f.HostReleased)
            found.append(f"{fact.host} back")
    return stage, found


@pytest.mark.parametrize(
    ("spec", "count", "by_s", "drain_s", "found"),
    [
        ("s s", 1, 9.1, DRAIN_S, ["2 drains 9.0"]),
        ("s s", 1, 99.0, DRAIN_S, [f"2 drains {DRAIN_S}"]),
        ("s s", 2, 9.1, DRAIN_S, ["2 drains 9.0", "1 drains 9.0"]),
        ("s b", 1, 9.1, DRAIN_S, ["2 closed", "h2 back"]),
        ("s -", 1, 9.1, DRAIN_S, ["h2 back"]),
        ("sb", 1, 9.1, DRAIN_S, ["1 drains 9.0", "2 closed"]),
        ("sb", 1, 9.1, 0.0, ["1 closed", "2 closed", "h1 back"]),
        ("sb", 1, ROOM_MAX_S, DRAIN_S, ["1 closed", "2 closed", "h1 back"]),  # it is due
        ("sb", 1, ROOM_MAX_S + 0.1, DRAIN_S, ["1 drains 0.1", "2 closed"]),
        ("d", 1, 9.1, 0.0, []),  # it goes on draining
    ],
)
def test_on_notice_hosts_go_back_when_nothing_is_left_or_shortly_before_they_are_due(
    spec: str, count: int, by_s: float, drain_s: float, found: list[str]
) -> None:
    hosts = len(spec.split())
    assert notice(spec, count, (hosts - count, by_s), drain_s=drain_s)[1] == found


@pytest.mark.parametrize(("left_s", "found"), [(5.0, []), (9.0, []), (9.5, ["1 drains 9.0"])])
def test_on_notice_what_drains_already_has_no_longer(left_s: float, found: list[str]) -> None:
    stage = Stage("d")
    stage.site.world.unit("web.1").drains_until = stage.now + left_s
    stage.site.world.custody.state.quotas["web"] = Quota(hosts=0, lowerings=[(0, stage.now + 9.0 + ROOM_MAX_S)])
    facts = reclaim.give_back(stage.scene(), stage.site.picture(), 1)
    assert [round(fact.until - stage.now, 6) for fact in facts if isinstance(fact, f.InstanceDraining)] == (
        [9.0] if found else []
    )
    assert len(facts) == len(found)


def test_on_notice_each_host_has_the_soonest_deadline_that_it_is_needed_for() -> None:
    _, found = notice("s s s", 3, (2, 5.1), (1, 9.1), (0, 7.1))
    assert found == ["3 drains 5.0", "2 drains 7.0", "1 drains 7.0"]
    _, found = notice("s s", 2, (1, ROOM_MAX_S), (0, 9.1))
    assert found == ["2 closed", "h2 back", "1 drains 9.0"]
    _, found = notice("s s s", 1, (3, 5.1))
    assert found == ["3 closed", "h3 back"], "no notice has a deadline for it"


@pytest.mark.parametrize(("notice_s", "room_s"), [(0.03, 0.01), (0.3, ROOM_MAX_S), (9.0, ROOM_MAX_S)])
def test_a_notice_is_answered_a_tenth_of_a_second_before_or_a_third_of_it(notice_s: float, room_s: float) -> None:
    custody = Site("-").world.custody
    config = custody.state.config
    assert config is not None
    policy = msgspec.structs.replace(config.policy, notice_s=notice_s)
    custody.state.config = msgspec.structs.replace(config, policy=policy)
    assert reclaim.room_s(custody) == pytest.approx(room_s)
    custody.state.config = None
    assert reclaim.room_s(custody) == ROOM_MAX_S


# ------------------------------------------------------------------------------------------------ drained hosts, the wake-up


@pytest.mark.parametrize(("by_s", "back"), [(0.0, True), (0.1, False), (None, False)])
def test_a_drained_host_goes_back_at_its_deadline_with_all_that_is_left(by_s: float | None, back: bool) -> None:
    stage = Stage("sb s")
    stage.site.world.drain("h1", by_s=by_s)
    found = reclaim.give_up(stage.scene(), stage.site.picture(gone="2"))
    why = because.HostDrained(host="h1")
    closed = f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=why)
    assert found == ([closed, f.HostReleased(host="h1", reason=why)] if back else [])
    wakes = NEVER if not by_s else stage.now + by_s
    assert next_moment(stage.scene()) == wakes


@pytest.mark.parametrize(
    ("words", "state", "terms", "wakes_s"),
    [
        ("1G", {}, {}, 1.0),  # it is overdue
        ("1g 2G", {}, {}, 1.0),
        ("1g", {}, {}, BOOT_S),  # its place is its successor's
        ("1g", {"retry_at": 5.0}, {}, 5.0),
        ("1g", {"replaced_at": 7.0}, {}, BOOT_S + 7.0),
        ("1g", {"ready_at": {"web.1": -1.0}}, {}, BOOT_S),  # who is not ready proves nothing
        ("1g", {"ready_at": {"web.2": -1.0}}, {}, WORDS_S - 1.0),  # somebody has proven to be well
        ("1g", {"ready_at": {"web.2": -1.0}}, {"min_ready_s": 9.0}, 8.0),
        ("1g 2b", {}, {}, BOOT_S),
        ("1b 2b", {"failures": 2}, {}, BOOT_S * 4),
        ("", {"retry_at": 5.0}, {}, None),
    ],
)
def test_it_wakes_when_somebody_is_overdue_has_proven_to_be_well_or_may_go(
    words: str, state: dict[str, Any], terms: dict[str, Any], wakes_s: float | None
) -> None:
    stage = Stage("ss", words)
    for name, value in state.items():
        if name == "ready_at":
            value = {unit: at + stage.now for unit, at in value.items()}
        elif name != "failures":
            value += stage.now
        setattr(stage.state, name, value)
    at = stage.scene(**terms)
    assert next_moment(at, 2) == (NEVER if wakes_s is None else pytest.approx(stage.now + wakes_s))
