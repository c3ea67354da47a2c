"""Bounds of a web department's number: step limits, floors by the clock, forecast, flap budget; alone and together."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import WebPolicy
from services.domain.core import NEVER
from services.domain.scaling import Limit, Span, Unreadable, limit, offset_s, spans
from services.domain.text import sentence
from services.scheduler.core.policies import scale_flaps, scale_forecast, scale_steps
from services.scheduler.core.policies.scale import Heard
from services.scheduler.core.policies.scale_flaps import Course
from services.scheduler.core.policies.scale_forecast import Bucket
from services.scheduler.core.policies.scale_schedule import Timetable
from services.scheduler.core.policies.scale_steps import Change
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.core import WebCore
from services.scheduler.lookahead.why_web import why
from tests.support.world import World, cloud, web

HOUR, DAY = 3600.0, 86_400.0
MONDAY = 1_000_080_000.0  # 10 September 2001, 00:00 UTC

# ----------------------------------------------------------------------------------------------------------------- texts


def test_an_entry_is_a_span_for_each_of_its_days() -> None:
    assert spans("Mon-Fri 08:00-18:00 at least 6") == [Span(d * 1440 + 480, d * 1440 + 1080, 6) for d in range(5)]
    assert spans("Sat-Mon,Wed 8:00-9:30 at least 1") == [Span(d * 1440 + 480, d * 1440 + 570, 1) for d in (0, 2, 5, 6)]
    assert spans("sun 22:00-06:00 at least 3") == [Span(6 * 1440 + 1320, 7 * 1440 + 360, 3)]  # into Monday
    assert len(spans("daily 00:00-24:00 at least 2")) == 7


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("workdays", "should be such as"),
        ("Mon-Fri 08:00-18:00 6", "should be such as"),
        ("Mon-Fry 08:00-18:00 at least 6", 'not "Fry"'),
        ("Mon 08:61-18:00 at least 6", "not 08:61"),
        ("Mon 08:00-24:01 at least 6", "not 24:01"),
        ("Mon 08:00-08:00 at least 6", "the whole day is 00:00-24:00"),
        ("Mon 24:00-08:00 at least 6", "the whole day is 00:00-24:00"),
    ],
)
def test_an_entry_that_cannot_be_read_says_what_would_be_right(text: str, right: str) -> None:
    with pytest.raises(Unreadable, match=right):
        spans(text)


def test_zones_are_offsets() -> None:
    assert [offset_s(text) for text in ("UTC", "UTC+02:00", "UTC-03:30")] == [0, 7200, -12_600]
    for text in ("CET", "UTC+2", "UTC+15:00", "UTC+01:75"):
        with pytest.raises(Unreadable, match="summer time"):
            offset_s(text)


def test_limits_are_instances_or_per_cent_in_a_period() -> None:
    assert (limit("4 in 60s"), limit("50% in 300s")) == (Limit(4, False, 60.0), Limit(50, True, 300.0))
    for text in ("4", "4 in 0s", "4 in 1801s", "0 in 60s", "1001% in 60s", "-1 in 60s", "4 in 60"):
        with pytest.raises(Unreadable, match="should"):
            limit(text)


# -------------------------------------------------------------------------------------------------------------- schedule


def test_the_greatest_entry_that_holds_is_the_floor() -> None:
    table = Timetable(["Mon-Fri 08:00-18:00 at least 6", "Mon 12:00-14:00 at least 9", "unreadable"], "UTC")
    hours = {
        7.99: 0,
        8: 6,
        11.99: 6,
        12: 9,
        13.99: 9,
        14: 6,
        17.99: 6,
        18: 0,
        24 + 13: 6,
        5 * 24 + 9: 0,
        7 * 24 + 13: 9,
    }
    assert {hour: table.floor(MONDAY + hour * HOUR)[0] for hour in hours} == hours
    assert table.floor(MONDAY + 13 * HOUR) == (9, MONDAY + 14 * HOUR)
    assert table.floor(MONDAY + 15 * HOUR) == (6, MONDAY + 18 * HOUR)
    assert table.floor(MONDAY) == (0, NEVER)


def test_it_wakes_at_each_begin_and_end() -> None:
    table = Timetable(["Mon 08:00-18:00 at least 6", "Sun 23:00-01:00 at least 2"], "UTC")
    at, edges = MONDAY, []
    for _ in range(5):
        at = table.wake_at(at)
        edges.append((at - MONDAY) / HOUR)
    assert edges == [1, 8, 18, 6 * 24 + 23, 7 * 24 + 1]
    assert table.floor(MONDAY + 0.5 * HOUR) == (2, MONDAY + HOUR)
    assert Timetable([], "UTC").wake_at(MONDAY) == NEVER


def test_the_offset_moves_the_hours() -> None:
    table = Timetable(["Mon 08:00-18:00 at least 6"], "UTC+02:00")
    assert [table.floor(MONDAY + hour * HOUR)[0] for hour in (5.9, 6, 15.9, 16)] == [0, 6, 6, 0]


# ----------------------------------------------------------------------------------------------------------- step limits


@pytest.mark.parametrize(
    ("changes", "current", "wanted", "limits", "expected"),
    [
        ([], 10, 30, ["4 in 60s"], 14),
        ([], 10, 12, ["4 in 60s"], 12),
        ([(-30, 4)], 10, 30, ["4 in 60s"], 10),  # they have been taken
        ([(-30, 1)], 10, 30, ["4 in 60s"], 13),
        ([(-60, 4)], 10, 30, ["4 in 60s"], 14),  # the period is over
        ([(-30, -3)], 10, 30, ["4 in 60s"], 14),  # what went gives nothing back
        ([(-40, 3), (-30, -3)], 10, 30, ["4 in 60s"], 11),
        ([(-30, 4)], 10, 30, ["100% in 60s"], 12),  # 6 there were
        ([], 10, 30, ["50% in 60s"], 15),
        ([], 1, 30, ["10% in 60s"], 2),  # one is always possible
        ([], 0, 30, ["10% in 60s"], 1),
        ([], 10, 30, ["4 in 60s", "100% in 60s"], 14),  # the strictest
        ([(-30, 9)], 10, 30, ["4 in 60s"], 10),  # more than allowed, by a floor: none is taken back
        ([], 10, 1, ["2 in 60s"], 8),
        ([(-30, -2)], 8, 1, ["2 in 60s"], 8),
        ([], 5, 1, ["10% in 60s"], 4),
        ([], 10, 1, ["50% in 60s", "3 in 60s"], 7),
    ],
)
def test_a_step_is_as_large_as_all_limits_allow(
    changes: list[tuple[float, int]], current: int, wanted: int, limits: list[str], expected: int
) -> None:
    known = [Change(1000.0 + at, by) for at, by in changes]
    assert scale_steps.allowed(known, current, wanted, scale_steps.limits(limits), 1000.0) == expected


def test_what_is_remembered_of_changes_is_bounded() -> None:
    changes: list[Change] = []
    for second in range(5000):
        changes = scale_steps.follow(changes, float(second), 1)
    assert len(changes) == scale_steps.CHANGES_MAX
    assert scale_steps.follow(changes, 9000.0, -2) == [Change(9000.0, -2)]
    assert scale_steps.limits(["nonsense", "4 in 60s"]) == [Limit(4, False, 60.0)]


# ----------------------------------------------------------------------------------------------------------- flap budget


def course(*changes: tuple[float, int]) -> Course:
    found = Course()
    for at, by in changes:
        found = scale_flaps.follow(found, at, by)
    return found


def test_a_turn_is_a_change_against_the_one_before() -> None:
    assert course((1, 3), (2, 1), (3, -1), (4, -2), (5, 2)) == Course(1, (3, 5))
    assert course((1, -1), (2, 1)) == Course(1, (2,))


def test_the_number_may_fall_when_it_and_the_way_up_are_in_the_budget() -> None:
    there = course((0, 1), (10, -1), (20, 1))
    assert scale_flaps.free_at(there, 4, 30.0) == 30.0
    assert scale_flaps.free_at(there, 3, 30.0) == 10.0 + HOUR
    assert scale_flaps.free_at(there, 2, 30.0) == 20.0 + HOUR
    assert scale_flaps.free_at(there, 3, 10.0 + HOUR) == 10.0 + HOUR  # from then on
    assert scale_flaps.free_at(there, 0, 30.0) == 30.0  # no budget
    assert scale_flaps.free_at(course((0, 1), (10, -1)), 2, 30.0) == 30.0  # it goes down already


def test_turns_of_the_last_hour_are_remembered() -> None:
    found = course(*[(10.0 * n, (-1) ** n) for n in range(1000)])
    assert len(found.turns) == scale_flaps.TURNS_MAX
    assert scale_flaps.follow(found, 99_999.0, found.heading * -1).turns == (99_999.0,)


# --------------------------------------------------------------------------------------------------------------- forecast


def lived(*spans_: tuple[float, float, float], serving: int = 10) -> list[Bucket]:
    past: list[Bucket] = []
    for start, end, utilisation in spans_:
        past = scale_forecast.follow(past, Heard(Sample(start, end, utilisation), serving, 0.0))
    return past


def foresee(past: list[Bucket], now: float, **fields: Any) -> tuple[int, int]:
    given = {"rule": "target-tracking", "forecast_days": 3, "forecast_margin": 0.0, "forecast_ahead_s": 0.0, **fields}
    return scale_forecast.floor(past, now, WebPolicy(**given))


def test_a_bucket_is_the_time_and_the_busy_instances_of_a_quarter() -> None:
    assert lived((0, 300, 0.5), (300, 900, 0.8), (900, 1000, 0.1)) == [Bucket(0, 900, 6300), Bucket(1, 100, 100)]
    assert lived((0, 10, 50.0)) == [Bucket(0, 10, 200)]  # a backlog counts as two busy ones each
    known = lived((900, 910, 0.5))
    for late in (Heard(Sample(800, 810, 1.0), 4, 0.0), Heard(Sample(905, 915, 1.0), 4, 906.0)):
        assert scale_forecast.follow(known, late) == known  # late; of two numbers


def test_the_floor_is_the_mean_of_this_time_of_the_last_days() -> None:
    past = lived(*[(d * DAY, d * DAY + 900, u) for d, u in enumerate((0.9, 0.4, 0.8, 0.6))])  # busy: 9, 4, 8, 6
    assert foresee(past, 4 * DAY) == (8, 3)  # (4 + 8 + 6) / 3 = 6, at 80 %: 7.5
    assert foresee(past, 4 * DAY, forecast_days=1) == (8, 1)
    assert foresee(past, 4 * DAY, forecast_margin=0.5) == (12, 3)
    assert foresee(past, 4 * DAY, rule="threshold", threshold=0.5) == (12, 3)
    assert foresee(past, 4 * DAY, forecast_days=7) == (9, 4)
    assert foresee(past, 4 * DAY, forecast_days=0) == (0, 0)
    assert foresee(past, 4 * DAY + 900) == (0, 0)  # nothing is known of that quarter
    assert foresee(past, 4 * DAY - 300, forecast_ahead_s=300.0) == (8, 3)
    assert foresee(past, 4 * DAY - 301, forecast_ahead_s=300.0) == (0, 0)


def test_a_quarter_that_was_hardly_observed_tells_nothing() -> None:
    assert foresee(lived((0, 200, 0.9)), DAY) == (0, 0)
    assert foresee(lived((0, 225, 0.9)), DAY) == (12, 1)


def test_a_week_is_remembered() -> None:
    past = lived(*[(n * 900.0, n * 900.0 + 900, 0.4) for n in range(2000)])
    assert len(past) == scale_forecast.KEPT
    assert foresee(past, 2000 * 900.0, forecast_days=7) == (5, 7)
    assert scale_forecast.follow(past, Heard(Sample(9e6, 9e6 + 1, 0.1), 1, 0.0)) == [Bucket(10_000, 1.0, 0.1)]


def test_it_wakes_when_the_floor_may_be_another_one() -> None:
    policy = WebPolicy(forecast_days=1, forecast_ahead_s=300.0)
    assert [scale_forecast.wake_at(at, policy) for at in (0.0, 599.0, 600.0, 900.0)] == [600, 600, 900, 1500]
    assert scale_forecast.wake_at(0.0, WebPolicy()) == NEVER


# ---------------------------------------------------------------------------------------------------------- in the core


def site(now: float = MONDAY + 7 * HOUR, **policy: Any) -> World:
    """A web department on hosts of its own: two of them, for 40 instances."""
    given = {"rule": "target-tracking", "tolerance": 0.0, "down_window_s": 0.0, "instances_per_host": 20, **policy}
    world = World(cloud(web("web", **given)), now=now)
    world.hosts(2, cores=20)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests()
    world.balancer()
    world.grant("web", "h1", "h2")
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def load(world: World, busy: float, seconds: int = 1) -> None:
    """So many busy instances."""
    for _ in range(seconds):
        world.now += 1.0
        used = min(1.0, busy / max(1, core(world).state.serving))
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=used, samples=1)
        world.write("scheduler.web", fact)
        world.settle()


def told(world: World) -> str:
    return sentence(why(core(world), world.now)[0])


def last(world: World) -> tuple[int, because.Kind]:
    fact = world.facts(f.DemandChanged)[-1]
    return fact.instances, type(fact.reason)


def test_the_schedule_raises_the_floor_at_its_hour_and_the_load_lowers_it_after() -> None:
    world = site(schedule=("Mon-Fri 08:00-18:00 at least 6",), signal_timeout_s=10.0)
    assert core(world).state.target == 1
    world.advance(HOUR - 1)
    assert core(world).state.target == 1
    world.advance(1)  # though no signal comes: the floor does not depend on it
    assert (6, because.Schedule) in [(fact.instances, type(fact.reason)) for fact in world.facts(f.DemandChanged)]
    assert core(world).state.serving == 6
    load(world, 0.5, 3)
    assert told(world) == "the schedule asks for at least 6 instances for another 9h59m"
    world.advance(10 * HOUR)
    load(world, 0.5, 2)
    assert last(world) == (1, because.UtilisationLow)
    assert world.voids == []


def test_steps_are_limited_and_why_says_by_what() -> None:
    world = site(up_limits=("2 in 60s",), down_limits=("1 in 30s",))
    load(world, 10.0, 10)
    assert core(world).state.target == 3
    assert told(world) == "the load asks for 4 instead of 3, a step goes to 3: 2 in 60s"
    load(world, 10.0, 60)
    assert core(world).state.target == 5
    world.restart("scheduler.web")
    load(world, 0.1, 31)
    assert core(world).state.target in (3, 4)
    assert last(world)[1] is because.StepLimit


def test_a_floor_is_not_limited_and_the_maximum_limits_everything() -> None:
    world = site(up_limits=("2 in 60s",), schedule=("daily 00:00-24:00 at least 9",), instances_max=12)
    assert last(world) == (9, because.Schedule)
    world.write("admission", f.ScaleRequested(dept="web", user="wes", minimum=15))
    world.settle()
    assert last(world) == (12, because.ScaledByPerson)
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=1))
    world.settle()
    assert last(world) == (1, because.ScaledByPerson)  # and below every floor, if a person says so


def test_yesterdays_load_is_a_floor_today_and_a_restart_forgets_nothing() -> None:
    world = site(forecast_days=1, forecast_margin=0.1, forecast_ahead_s=0.0, signal_timeout_s=900.0)
    for _ in range(3):  # three quarters of an hour, an observation in five minutes
        for _ in range(3):
            world.now += 300.0
            used = min(1.0, 4.0 / core(world).state.serving)
            world.write(
                "scheduler.web",
                f.LoadObserved(dept="web", start=world.now - 300, end=world.now, utilisation=used, samples=1),
            )
            world.settle()
    world.restart("scheduler.web")
    load(world, 0.5, 5)
    assert core(world).state.target == 1
    world.advance(MONDAY + DAY + 7 * HOUR + 1800 - world.now)
    assert last(world) == (6, because.Forecast) or core(world).state.missing
    assert core(world).state.target == 6  # 4 · 1.1 / 0.8
    load(world, 0.5, 2)
    assert told(world) == "at least 6 instances: the mean load at this time of 1 day before, and 10 %"


def test_a_spent_flap_budget_holds_the_higher_number_and_says_until_when() -> None:
    world = site(turns_per_hour_max=4)
    for _ in range(5):
        load(world, 8.0, 12)
        load(world, 0.5, 3)
    assert core(world).state.target == 10
    expected = "the load asks for 1; the number turned 4 times in the last hour (4 are allowed, with the way up again)"
    assert told(world).startswith(f"{expected}: it stays at 10 for another 59m")
    world.restart("scheduler.web")
    load(world, 0.5, 3)
    assert core(world).state.target == 10
    world.now += HOUR
    load(world, 0.5, 2)
    assert core(world).state.target == 1


@pytest.mark.parametrize(
    "bound", [{"up_limits": ("1 in 60s",)}, {"down_limits": ("1 in 60s",)}, {"turns_per_hour_max": 2}]
)
def test_it_wakes_when_a_bound_that_holds_the_number_ends(bound: dict[str, Any]) -> None:
    """Also if nobody says anything meanwhile (chaos, seed 151)."""
    world = site(signal_timeout_s=9000.0, **bound)
    for busy in (6.0, 0.5, 6.0) if "up_limits" in bound else (6.0, 0.5, 6.0, 0.5):
        load(world, busy, 12)
    held = core(world).state.target
    assert type(core(world).desired(world.now)[1]) in (because.StepLimit, because.FlapBudget)
    assert core(world).decide(world.now) == []
    world.advance(HOUR + 1)  # from wake-up to wake-up
    assert core(world).state.target != held


@pytest.mark.parametrize("rule", [{"rule": "threshold", "window_s": 20.0}, {"rule": "target-tracking"}])
def test_an_oscillating_load_turns_the_whole_core_no_more_often_than_its_budget(rule: dict[str, Any]) -> None:
    """Two hours of high and low in turn, a restart in each; without a budget the same load turns it far more often."""
    most = {budget: _most_turns_in_an_hour(site(turns_per_hour_max=budget, **rule)) for budget in (0, 4)}
    assert most[4] <= 4
    assert most[0] > 20


def _most_turns_in_an_hour(world: World) -> int:
    world.strict = False
    number, way, turns = core(world).state.target or 0, 0, list[float]()
    for step in range(2 * 180):
        world.now += 20.0
        used = min(1.0, (9.0 if step % 12 < 6 else 0.5) / max(1, core(world).state.serving))
        fact = f.LoadObserved(dept="web", start=world.now - 20, end=world.now, utilisation=used, samples=1)
        world.write("scheduler.web", fact)
        world.settle()
        if step % 180 == 90:
            world.restart("scheduler.web")
        now = core(world).state.target or 0
        if now != number:
            turns += [world.now] if way and way != (now > number) - (now < number) else []
            number, way = now, (now > number) - (now < number)
    return max(sum(at - HOUR < other <= at for other in turns) for at in turns)
