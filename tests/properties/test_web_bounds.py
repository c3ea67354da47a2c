"""Bounds of a web department's number, under any load.

B1  However the load oscillates, no hour has more changes of direction than the flap budget, and a number is only ever held
    where the load asks for fewer.
B2  In no period does the rule take more steps in a direction than a step limit allows.
B3  Between two wake-ups a floor by the clock, and a forecast, stay what they are: deciding at those times is enough.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import WebPolicy
from services.scheduler.core.policies import scale_forecast
from services.scheduler.core.policies.scale_forecast import Bucket
from services.scheduler.core.policies.scale_schedule import Timetable
from services.scheduler.core.web.core import WebCore
from tests.support.world import World, cloud, web

HOUR = 3600.0
SERVING_MAX = 30
LOADS = st.lists(
    st.tuples(st.floats(0, 24), st.integers(1, 12)), min_size=2, max_size=40
)  # busy instances, for so long
RULES = st.sampled_from(
    [
        {"rule": "threshold", "window_s": 20.0},
        {"rule": "target-tracking", "tolerance": 0.0, "down_window_s": 0.0},
        {"rule": "target-tracking", "tolerance": 0.1, "down_window_s": 60.0},
    ]
)


def bounded(rule: dict[str, Any], **bounds: Any) -> WebPolicy:
    most = {"instances_max": SERVING_MAX, "instances_per_host": SERVING_MAX, "signal_timeout_s": 900.0}
    return WebPolicy(**{**rule, **most, **bounds})


def site(policy: WebPolicy) -> World:
    world = World(cloud(web("web", **{name: getattr(policy, name) for name in policy.__struct_fields__})))
    world.strict = False  # each envelope of hours; `test_web_core_moves` verifies these bounds as well
    world.hosts(1, cores=SERVING_MAX)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests()
    world.balancer()
    world.grant("web", "h1")
    world.settle()
    return world


def follow(world: World, loads: list[tuple[float, int]], every_s: float) -> list[tuple[float, int]]:
    """(when, instances) whenever the number changed."""
    core: WebCore = world.seats["scheduler.web"].core
    found = [(world.now, core.state.target or 0)]
    for busy, times in loads:
        for _ in range(times):
            world.now += every_s
            used = min(1.0, busy / max(1, core.state.serving))
            fact = f.LoadObserved(dept="web", start=world.now - every_s, end=world.now, utilisation=used, samples=1)
            world.write("scheduler.web", fact)
            before = core.state.target
            wanted, reason = core.desired(world.now)[:2]
            assert type(reason) is not because.FlapBudget or (
                wanted == before and because.fields(reason)["wanted"] < wanted
            )  # type: ignore[operator]
            world.settle()
            if core.state.target != before:
                found.append((world.now, core.state.target or 0))
    assert core.check() == []
    return found


def turns(changes: list[tuple[float, int]]) -> list[float]:
    ways = [(at, after > before) for (_, before), (at, after) in pairwise(changes)]
    return [at for (_, before), (at, after) in pairwise(ways) if before is not after]


@settings(max_examples=40, deadline=None)
@given(LOADS, RULES, st.integers(2, 7), st.sampled_from([20.0, 120.0, 400.0]))
def test_no_hour_has_more_turns_than_the_budget(
    loads: list[tuple[float, int]], rule: dict[str, Any], budget: int, every_s: float
) -> None:
    policy = bounded(rule, turns_per_hour_max=budget)
    found = turns(follow(site(policy), loads, every_s))
    for at in found:
        assert sum(1 for other in found if at - HOUR < other <= at) <= budget  # B1


@settings(max_examples=30, deadline=None)
@given(LOADS, RULES, st.integers(1, 4), st.integers(1, 3), st.sampled_from([60, 300]))
def test_no_period_has_more_steps_than_a_limit(
    loads: list[tuple[float, int]], rule: dict[str, Any], up: int, down: int, period_s: int
) -> None:
    limits = {"up_limits": (f"{up} in {period_s}s",), "down_limits": (f"{down} in {period_s}s", "50% in 60s")}
    policy = bounded(rule, **limits)
    changes = follow(site(policy), loads, 20.0)
    steps = [(at, after - before) for (_, before), (at, after) in pairwise(changes)]
    for at, _ in steps:
        recent = [by for other, by in steps if at - period_s < other <= at]
        assert sum(by for by in recent if by > 0) <= up  # B2
        assert -sum(by for by in recent if by < 0) <= down


DAYS = st.sampled_from(["Mon-Fri", "Sat,Sun", "daily", "Sun-Mon", "Wed"])
TIMES = st.tuples(st.integers(0, 23), st.integers(0, 59))
ENTRIES = st.lists(st.tuples(DAYS, TIMES, TIMES, st.integers(1, 9)), max_size=5)
WEEK_S = 7 * 86_400.0


@settings(max_examples=80, deadline=None)
@given(ENTRIES, st.sampled_from(["UTC", "UTC+05:30", "UTC-03:00"]), st.floats(1e9, 1e9 + 2 * WEEK_S), st.floats(0, 1))
def test_a_floor_by_the_clock_changes_only_when_it_wakes(
    entries: list[tuple[str, tuple[int, int], tuple[int, int], int]], zone: str, now: float, part: float
) -> None:
    texts = [f"{days} {a:02}:{b:02}-{c:02}:{d:02} at least {n}" for days, (a, b), (c, d), n in entries]
    table = Timetable(texts, zone)
    due = min(table.wake_at(now), now + 2 * WEEK_S)
    assert due > now
    for between in (now + (due - now) * part, due - 1e-3):
        assert not now <= between < due or table.floor(between) == table.floor(now)  # B3
    assert table.floor(now)[0] == table.floor(now + WEEK_S)[0]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=96, max_size=96),
    st.floats(0, 3600),
    st.floats(86_400, 2 * 86_400),
    st.floats(0, 1),
)
def test_a_forecast_changes_only_when_it_wakes(yesterday: list[int], ahead_s: float, now: float, part: float) -> None:
    past = [Bucket(number, 900.0, 900.0 * busy) for number, busy in enumerate(yesterday)]
    policy = WebPolicy(forecast_days=1, forecast_ahead_s=ahead_s)
    due = scale_forecast.wake_at(now, policy)
    assert due > now
    for between in (now + (due - now) * part, due - 1e-3):
        if now <= between < due:
            assert scale_forecast.floor(past, between, policy) == scale_forecast.floor(past, now, policy)  # B3
