"""Policies that are arithmetic, at their boundaries: costs of preemption, priorities, floors, limits, leases of one's own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas import reasons as because
from schemas.config import CloudConfig, Department, Leases, MultiFactor, WebPolicy
from schemas.times import exact
from services.domain.core import NEVER
from services.domain.exits import Stop
from services.domain.scaling import limit
from services.scheduler.core.policies import leases_elsewhere, order_multi_factor, preemption_costs, registry
from services.scheduler.core.policies import scale_flaps as flaps
from services.scheduler.core.policies import scale_forecast as forecast
from services.scheduler.core.policies import scale_steps as steps
from services.scheduler.core.policies import scale_target as target
from services.scheduler.core.policies import scale_threshold as threshold
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.policies.preemption_costs import Cost
from services.scheduler.core.policies.registry import source, summary
from services.scheduler.core.policies.scale import Heard, Memory, Track
from services.scheduler.core.policies.scale_schedule import Timetable
from services.scheduler.core.policies.victims import Candidate
from services.scheduler.core.state.load import Sample
from tests.support.leases import lease, site
from tests.support.scheduling import cluster, core
from tests.support.world import World

HOUR_S, DAY_S = 3600.0, 86_400.0
MONDAY = 4 * DAY_S  # 5 January 1970


# ----------------------------------------------------------------------------------------------------------------- preemption


def test_machines_are_suspended_and_resumed_one_after_the_other() -> None:
    settings = Leases(suspend_mb_per_s=100.0, resume_mb_per_s=50.0)
    assert preemption_costs.suspend_s(3, 1000, settings) == 30.0
    assert preemption_costs.resume_s(3, 1000, settings) == 60.0
    assert preemption_costs.overhead_s(3, 1000, settings) == 90.0


def test_both_costs_are_weighed_as_parts_of_the_widest_difference() -> None:
    costs = [Cost("1", 10.0, 400.0), Cost("2", 30.0, 100.0), Cost("3", 20.0, 200.0)]
    found = preemption_costs.combined(costs, 0.25)
    assert [cost.combined for cost in found] == [pytest.approx(x) for x in (0.25, 0.75, 0.25 / 3 + 0.375)]
    assert [cost._replace(combined=0.0) for cost in found] == costs
    equal = preemption_costs.combined([Cost("1", 10.0, 5.0), Cost("2", 10.0, 5.0)], 0.25)
    assert [cost.combined for cost in equal] == [0.0, 0.0]
    assert preemption_costs.combined([], 0.25) == []


@pytest.mark.parametrize(
    ("victims", "expected"),
    [
        ("minimum-waiting-time", ["1", "3", "2"]),
        ("minimum-overhead", ["2", "3", "1"]),
        ("combined", ["1", "3", "2"]),
    ],
)
def test_the_cheapest_goes_first_by_the_cost_that_the_policy_names(victims: Any, expected: list[str]) -> None:
    costs = [Cost("1", 10.0, 400.0), Cost("2", 30.0, 100.0), Cost("3", 20.0, 200.0)]
    settings = Leases(victims=victims, alpha=0.25)
    assert preemption_costs.cheapest_first(costs, settings) == expected
    equal = [Cost("1", 1.0, 1.0), Cost("2", 1.0, 1.0, grace_s=9.0), Cost("3", 1.0, 1.0)]
    assert preemption_costs.cheapest_first(equal, settings) == ["3", "1", "2"]  # who leaves soonest, then who came last


def test_who_has_waited_is_asked_of_the_time_at_which_its_attempt_began_or_else_was_placed() -> None:
    world = cluster(3)
    begun, placed = world.submit(memory_mb=500, nodes=2), world.submit(memory_mb=100)
    world.settle()
    at = world.now
    world.now += 7
    world.start_vms(begun)
    world.begin(begun)
    asked: dict[str, float] = {}

    def waited_s(unit: str, since: float) -> float:
        asked[unit] = since
        return since - at

    candidates = {unit: Candidate(unit, 1, 0.0, 0.0) for unit in (begun, placed)}
    settings = Leases(suspend_mb_per_s=100.0, resume_mb_per_s=100.0, alpha=0.25)
    found = preemption_costs.priced(world.custody, candidates, waited_s, settings)
    assert asked == {begun: at + 7, placed: at}
    assert [(c.waited_s, c.overhead_s, c.combined) for c in found.values()] == [(7.0, 20.0, 1.0), (0.0, 2.0, 0.0)]


# ----------------------------------------------------------------------------------------------------------------- priorities


def test_a_priority_is_the_sum_of_all_factors_rounded_down() -> None:
    assert order_multi_factor.priority(1.0, 20.0, 300.0, 4000.0, 5.5, 6.4) == 4332
    assert order_multi_factor.priority(0.0, 0.0, -0.5, 0.0, 0.0, 0.0) == -1


@pytest.mark.parametrize(
    ("settings", "usage", "expected"),
    [
        ({}, {}, {"ann": (0.0, 1.0, 1.0)}),
        ({}, {"ann": 0.5}, {"ann": (1.0, 1.0, 0.5)}),
        ({"shares": {"bob": 3.0}}, {"bob": 1.0, "ann": 3.0}, {"ann": (0.75, 0.25, 0.125), "bob": (0.25, 0.75, None)}),
        (
            {"shares": {"bob": 0.25, "ann": 0.25}, "damping": 2.0},
            {"bob": 0.4},
            {"ann": (0.0, 0.5, 1.0), "bob": (1.0, 0.5, 0.5)},
        ),
        ({"share_default": 0.0}, {"ann": 1.0}, {"ann": (1.0, 0.0, 0.0)}),
        (
            {"shares": {"zoe": 1.0}},
            {"bob": 1.0},
            {"ann": (0.0, 1 / 3, 1.0), "bob": (1.0, 1 / 3, 1 / 8), "zoe": (0.0, 1 / 3, 1.0)},
        ),
    ],
)
def test_a_users_standing_is_its_part_of_the_usage_against_its_part_of_the_shares(
    settings: dict[str, Any], usage: dict[str, float], expected: dict[str, tuple[float, float, float | None]]
) -> None:
    found = order_multi_factor.fair(MultiFactor(**settings), usage, ["ann"])
    assert list(found) == list(expected)  # by name
    for name, (used, share, factor) in expected.items():
        assert found[name][:2] == pytest.approx((used, share))
        assert factor is None or found[name].factor == pytest.approx(factor)


def test_a_departments_factor_is_its_weight_against_the_greatest_of_batch() -> None:
    batch = {"hpc": 4.0, "bio": 1.0, "art": 2.0}
    departments = tuple(Department(name=name, kind="batch", weight=weight) for name, weight in batch.items())
    config = CloudConfig(name="c", departments=(*departments, Department(name="web", kind="web", weight=9.0)))
    factors = [order_multi_factor.department_factor(config, name) for name in ("hpc", "bio", "art", "web", "none")]
    assert factors == [1.0, 0.25, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(("priority", "expected"), [(50, 0.5), (100, 1.0), (101, 1.0), (-100, -1.0), (-250, -1.0)])
def test_a_jobs_own_priority_counts_up_to_the_full_one_and_other_factors_only_if_given(
    priority: int, expected: float
) -> None:
    settings = MultiFactor(weight_quality=1.0, weight_user=1.0, weight_department=1.0)
    found = order_multi_factor.points(settings, 0.0, 0.0, 0, priority)
    assert (found.quality, found.user, found.department) == (expected, 0.0, 0.0)


# ---------------------------------------------------------------------------------------------------------------- web's rules


def test_a_change_of_direction_is_a_turn_and_counts_for_an_hour() -> None:
    up, down = flaps.follow(flaps.Course(), 0.0, 2), flaps.follow(flaps.Course(), 0.0, -2)
    assert (up, down) == (flaps.Course(1), flaps.Course(-1))
    turned = flaps.follow(up, 10.0, -1)
    assert turned == flaps.Course(-1, (10.0,))
    assert (flaps.recent(turned, 10.0 + HOUR_S - 1), flaps.recent(turned, 10.0 + HOUR_S)) == ((10.0,), ())


def test_a_limit_frees_what_it_counted_when_its_period_is_over() -> None:
    changes = steps.follow(steps.follow([], 0.0, 1), 30.0, 2)
    limits = [limit("2 in 60s"), limit("5 in 100s")]
    assert [steps.next_free(changes, limits, now) for now in (0.0, 60.0, 100.0, 130.0)] == [60.0, 90.0, 130.0, math.inf]
    assert steps.follow(changes, 1800.0, 1) == [*changes[1:], steps.Change(1800.0, 1)]


@pytest.mark.parametrize(
    ("text", "current", "wanted", "expected"),
    [
        ("100% in 60s", 200, 999, 400),
        ("50% in 60s", 3, 9, 5),  # rounded up
        ("10% in 60s", 1, 9, 2),  # at least one
        ("3 in 60s", 5, 1, 2),
        ("3 in 60s", 5, 5, 5),
    ],
)
def test_a_limit_allows_so_many_or_such_a_part(text: str, current: int, wanted: int, expected: int) -> None:
    assert steps.allowed([], current, wanted, [limit(text)], 0.0) == expected


def web(**fields: Any) -> WebPolicy:
    return WebPolicy(**{"window_s": 20.0, "threshold": 0.8} | fields)


def threshold_of(utilisation: float, serving: int) -> tuple[int, Any]:
    policy = web()
    memory = threshold.follow(Memory([], Track()), Heard(Sample(0.0, 20.0, utilisation), serving, 0.0), policy)
    return threshold.wanted(memory, serving, serving, policy)


def test_the_threshold_itself_is_high_and_exactly_what_fewer_would_have_is_not_low() -> None:
    seen: dict[str, Any] = {"instances": 3, "window_s": 20.0}
    assert threshold_of(0.8, 3) == (4, because.UtilisationHigh(threshold=0.8, utilisation=0.8, **seen))
    assert threshold_of(0.79996, 3) == (3, because.UtilisationSteady(utilisation=0.8, **seen))
    low = because.UtilisationLow(threshold=0.5333, utilisation=0.1235, **seen)
    assert threshold_of(0.123456, 3) == (2, low)


@pytest.mark.parametrize(("ends", "left_s"), [((), None), ((5.0,), 15.0), ((5.0, 11.98765), 8.012), ((20.0,), None)])
def test_until_its_window_is_full_the_rule_says_how_long_that_takes(
    ends: tuple[float, ...], left_s: float | None
) -> None:
    policy, memory, start = web(), Memory([], Track()), 0.0
    for end in ends:
        memory, start = threshold.follow(memory, Heard(Sample(start, end, 0.5), 2, 0.0), policy), end
    assert threshold._left_s(memory, policy) == left_s
    if ends != (20.0,):
        told = because.UtilisationSteady(instances=2, open_s=20.0, left_s=left_s)
        assert threshold.wanted(memory, 2, 2, policy) == (2, told)


def test_a_second_less_than_a_window_is_left_until_it_is_full() -> None:
    memory = threshold.follow(Memory([], Track()), Heard(Sample(0.0, 19.5, 0.5), 2, 0.0), web())
    assert threshold._left_s(memory, web()) == 0.5


def test_with_nobody_in_service_target_tracking_leaves_the_number_as_it_is() -> None:
    policy = web(rule="target-tracking", target=0.5)
    memory = target.follow(Memory([], Track()), Heard(Sample(0.0, 20.0, 1.0), 3, 0.0), policy)
    assert target.wanted(memory, 0, 5, policy) == (5, because.UtilisationSteady(instances=0))
    assert target.wanted(Memory([], Track()), 3, 5, policy) == (5, because.UtilisationSteady(instances=3))


def test_what_target_tracking_says_has_four_digits_and_milliseconds() -> None:
    policy = web(rule="target-tracking", target=0.5, tolerance=0.0, down_window_s=60.0, up_window_s=0.0)
    memory = target.follow(Memory([], Track()), Heard(Sample(0.0, 20.12345, 0.123456), 4, 0.0), policy)
    count, reason = target.wanted(memory, 4, 4, policy)
    assert (count, type(reason)) == (4, because.UtilisationSteady)
    told = {"held": 4, "asked": 1, "held_s": 60.0, "against": 0, "left_s": 39.877}
    assert because.fields(reason) == {"utilisation": 0.1235, "instances": 4, "target": 0.5} | told


NINE, NOON, FIVE = MONDAY + 9 * HOUR_S, MONDAY + 12 * HOUR_S, MONDAY + 17 * HOUR_S


def test_a_floor_is_the_greatest_of_its_hour_and_ends_with_the_last_that_says_so() -> None:
    both = Timetable(("Mon 09:00-12:00 at least 3", "Mon 09:00-17:00 at least 3", "Mon 09:00-10:00 at least 5"), "UTC")
    assert [both.floor(at) for at in (NINE - 1, NINE, NINE + HOUR_S, NOON, FIVE - 1, FIVE)] == [
        (0, NEVER), (5, NINE + HOUR_S), (3, FIVE), (3, FIVE), (3, FIVE), (0, NEVER),
    ]  # fmt: skip
    other_way_round = Timetable(("Mon 09:00-17:00 at least 3", "Mon 09:00-12:00 at least 3"), "UTC")
    assert other_way_round.floor(NINE) == (3, FIVE)
    greater = Timetable(("Mon 09:00-17:00 at least 3", "Mon 09:00-12:00 at least 4"), "UTC")
    assert (greater.floor(NINE), greater.floor(NOON)) == ((4, NOON), (3, FIVE))


def test_a_timetable_wakes_at_its_next_edge() -> None:
    table = Timetable(("Mon 09:00-17:00 at least 3", "Mon 12:00-13:00 at least 4"), "UTC")
    edges = [NINE, NOON, NOON + HOUR_S, FIVE, NINE + 7 * DAY_S]
    assert [table.wake_at(at) for at in (NINE - 1, *edges[:-1])] == edges
    assert Timetable((), "UTC").wake_at(0.0) == NEVER


def test_what_cannot_be_read_is_left_out_of_a_timetable() -> None:
    table = Timetable(("at noon", "Mon 09:00-12:00 at least 3"), "nowhere")  # another zone than one can read is UTC
    assert (table.floor(NINE - 1), table.floor(NINE)) == ((0, NEVER), (3, NOON))


def heard(start: float, end: float, utilisation: float = 0.5, since: float = 0.0) -> Heard:
    return Heard(Sample(start, end, utilisation), 2, since)


def test_a_forecast_adds_to_the_bucket_that_fills_and_keeps_those_before() -> None:
    past: list[forecast.Bucket] = []
    for start in (0.0, 900.0, 1800.0, 1900.0):
        past = forecast.follow(past, heard(start, start + 100.0))
    assert past == [
        forecast.Bucket(0, 100.0, 100.0),
        forecast.Bucket(1, 100.0, 100.0),
        forecast.Bucket(2, 200.0, 200.0),
    ]
    for dropped in (
        heard(2000.0, 2000.0),
        heard(2100.0, 2000.0),
        heard(100.0, 200.0),
        heard(2000.0, 2100.0, since=2001.0),
    ):
        assert forecast.follow(past, dropped) == past
    assert forecast.follow(past, heard(2000.0, 2100.0, since=2000.0))[-1].seconds == 300.0


# ------------------------------------------------------------------------------------------------------------ leases elsewhere


def due(world: World, **fields: Any) -> Situation:
    mine = core(world)
    return mine.view.situation(world.now, mine.view.room)._replace(**fields)


def test_a_lease_of_an_order_that_keeps_no_times_starts_in_its_hours_if_there_is_room() -> None:
    world = site(2, order="easy")
    later, wide, first, second = (
        lease(world, 50.0), lease(world, 20.0, nodes=3), lease(world, 10.0), lease(world, 20.0),
    )  # fmt: skip
    begun = world.now

    def starts(at: float, **fields: Any) -> list[str]:
        return [start.unit for start in leases_elsewhere.plan(due(world, now=begun + at, **fields)).starts]

    assert [starts(at) for at in (9.0, 10.0, 20.0, 50.0)] == [[], [first], [first, second], [first, second]]
    assert [starts(at) for at in (109.0, 110.0, 120.0, 150.0)] == [[first, second], [second, later], [later], []]
    assert [starts(20.0, most=n) for n in (0, 1, 3)] == [[], [first], [first, second]]
    situation = due(world, now=begun + 10.0)
    (start,) = leases_elsewhere.plan(situation).starts
    assert (start.hosts, start.reason) == (("h1",), because.LeaseStarts(ends_at=exact(begun + 110.0)))
    assert situation.room.count(start.shape) == 2  # as before
    assert wide in situation.queue.bookings
    moments = [leases_elsewhere.plan(due(world, now=begun + at)).due for at in (0.0, 10.0, 20.0, 50.0)]
    assert moments == [begun + 10.0, begun + 20.0, begun + 50.0, NEVER]


# ------------------------------------------------------------------------------------------------------------------- the tables


def test_what_is_not_said_of_a_situation_holds_nobody_back() -> None:
    found = due(site(1))
    plain = Situation(found.queue, found.room, found.now, found.most, found.forecast)
    assert (plain.guarded("1"), plain.clearing_s("1"), plain.turns) == (False, 0.0, ("", ""))


@pytest.mark.parametrize(
    ("asked", "kind"), [(registry.order, "order"), (registry.victims, "victims"), (registry.rule, "rule")]
)
def test_a_policy_that_is_not_here_is_missing_by_its_kind_and_name(asked: Any, kind: str) -> None:
    with pytest.raises(Stop, match=f'names {kind} "tarot": no package that is installed here brings it'):
        asked("tarot")


def test_a_theory_begins_with_a_summary_and_may_name_its_source() -> None:
    theory = "Who goes\nfirst.\n\nSomething.\n\nSource: A. Author,\nA book.\n\nMore: so"
    assert (summary(theory), source(theory)) == ("Who goes first.", "A. Author, A book.")
    assert (summary("One.\n\nTwo."), source("One.\n\nSource\n\nSources: B.")) == ("One.", "B.")
    assert source("One.\n\nTwo: three") == ""
