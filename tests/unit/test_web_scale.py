"""Rule target-tracking: what is recommended, and when a window lets it happen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import WebPolicy
from services.domain.custody.rules import RULES
from services.domain.text import sentence
from services.scheduler.core.policies import scale_threshold
from services.scheduler.core.policies.scale import Heard, Level, Memory, Track
from services.scheduler.core.policies.scale_target import follow, recommended, wanted
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.core import WebCore
from services.scheduler.lookahead.why_web import why
from tests.support.world import World, cloud, web


def policy(**fields: Any) -> WebPolicy:
    return WebPolicy(**{"rule": "target-tracking", "tolerance": 0.0, "down_window_s": 60.0, **fields})


def heard(*spans: tuple[float, float, float], serving: int = 10, since: float = 0.0, **fields: Any) -> Memory:
    """(start, end, utilisation), one after the other."""
    memory = Memory([], Track())
    for start, end, utilisation in spans:
        memory = follow(memory, Heard(Sample(start, end, utilisation), serving, since), policy(**fields))
    return memory


def steps(*utilisations: float, seconds: float = 10.0) -> tuple[tuple[float, float, float], ...]:
    return tuple((i * seconds, (i + 1) * seconds, u) for i, u in enumerate(utilisations))


def verdict(memory: Memory, current: int = 10, **fields: Any) -> tuple[int, because.Kind]:
    count, reason = wanted(memory, memory.track.serving or 10, current, policy(**fields))
    return count, type(reason)


# ------------------------------------------------------------------------------------------------------- recommendations


@pytest.mark.parametrize(
    ("serving", "utilisation", "expected"),
    [
        (10, 0.8, 10),
        (3, 0.8, 3),  # 3 · 0.8 / 0.8 is more than 3 in floats
        (10, 0.801, 11),
        (10, 0.4, 5),
        (10, 1.0, 13),  # an overload grows by 1 / target
        (1, 1.0, 2),
        (10, 7.0, 20),  # a backlog doubles at most
        (10, 0.0, 1),  # never none
        (900, 1.0, 1000),  # never above instances_max
    ],
)
def test_what_keeps_the_target_is_recommended(serving: int, utilisation: float, expected: int) -> None:
    assert recommended(serving, utilisation, policy()) == expected


@pytest.mark.parametrize(("utilisation", "expected"), [(0.88, 10), (0.89, 12), (0.72, 10), (0.71, 9)])
def test_near_the_target_nothing_is_done(utilisation: float, expected: int) -> None:
    assert recommended(10, utilisation, policy(tolerance=0.1)) == expected


# --------------------------------------------------------------------------------------------------------------- windows


def test_up_by_one_observation_and_by_as_many_as_the_target_needs() -> None:
    assert verdict(heard(*steps(1.0))) == (13, because.UtilisationHigh)


def test_an_up_window_wants_it_wanted_all_the_time() -> None:
    fields: dict[str, Any] = {"up_window_s": 30.0}
    assert verdict(heard(*steps(1.0, 1.0), **fields), **fields) == (10, because.UtilisationSteady)  # not covered
    assert verdict(heard(*steps(1.0, 0.9, 1.0), **fields), **fields) == (12, because.UtilisationHigh)  # the least of it
    assert verdict(heard(*steps(1.0, 0.5, 1.0), **fields), **fields) == (10, because.UtilisationSteady)


def test_down_to_the_most_that_the_down_window_wanted() -> None:
    assert verdict(heard(*steps(0.4, 0.4, 0.4, 0.4, 0.4))) == (10, because.UtilisationSteady)  # 50 of 60 s
    assert verdict(heard(*steps(0.4, 0.4, 0.6, 0.4, 0.4, 0.4))) == (8, because.UtilisationLow)
    assert verdict(heard(*steps(0.6, *[0.4] * 6))) == (5, because.UtilisationLow)  # the first has left the window


def test_a_dip_shorter_than_the_window_costs_nothing() -> None:
    assert verdict(heard(*steps(*[0.8] * 6, *[0.1] * 5))) == (10, because.UtilisationSteady)


def test_a_gap_begins_the_windows_anew_and_a_change_of_the_number_does_not() -> None:
    spans = steps(*[0.4] * 6)
    later = tuple((start + 70, end + 70, u) for start, end, u in spans[:3])
    assert verdict(heard(*spans, *later)) == (10, because.UtilisationSteady)
    memory = heard(*spans)
    memory = follow(memory, Heard(Sample(60, 70, 0.4), 12, 60.0), policy())
    assert verdict(memory, current=12) == (6, because.UtilisationLow)


def test_an_observation_of_two_numbers_is_dropped_and_so_are_late_ones() -> None:
    memory = heard(*steps(0.5))
    assert follow(memory, Heard(Sample(10, 20, 1.0), 12, 15.0), policy()) == memory
    assert follow(memory, Heard(Sample(5, 20, 1.0), 10, 0.0), policy()) == memory
    assert follow(memory, Heard(Sample(20, 20, 1.0), 10, 0.0), policy()) == memory
    assert follow(memory, Heard(Sample(10, 20, 1.0), 0, 0.0), policy()) == memory


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.3, 1.0, 5.0, 20.0]), st.floats(0, 1.5), st.integers(1, 40)), max_size=60),
    st.sampled_from([0.0, 7.0, 60.0]),
    st.sampled_from([0.0, 7.0, 60.0]),
)
def test_the_levels_that_are_remembered_answer_as_all_of_them_would(
    observed: list[tuple[float, float, int]], up_s: float, down_s: float
) -> None:
    rule = policy(up_window_s=up_s, down_window_s=down_s, instances_max=50)
    memory, every, now = Memory([], Track()), list[Level](), 0.0
    for seconds, utilisation, serving in observed:
        memory = follow(memory, Heard(Sample(now, now + seconds, utilisation), serving, 0.0), rule)
        now += seconds
        every.append((now, recommended(serving, utilisation, rule)))
        track = memory.track
        assert track.high[0][1] == max(n for end, n in every if end > now - down_s + 1e-6 or end == now)
        assert track.low[0][1] == min(n for end, n in every if end > now - up_s + 1e-6 or end == now)
        for levels, sign in ((track.high, -1), (track.low, 1)):
            assert sorted({sign * n for _, n in levels}) == [sign * n for _, n in levels]
            assert len(levels) <= rule.instances_max
        count, reason = wanted(memory, serving, serving, rule)
        assert type(reason) is not because.UtilisationHigh or count > serving
        assert type(reason) is not because.UtilisationLow or count < serving
        assert 1 <= count <= max(serving, rule.instances_max)


# ---------------------------------------------------------------------------------------------------------- in the core


def site(**fields: Any) -> World:
    """A web department that tracks a target, on hosts of its own."""
    world = World(cloud(web("web", **{"rule": "target-tracking", "instances_per_host": 4, **fields})))
    world.hosts(8)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests()
    world.balancer()
    world.grant("web", "h1", "h2", "h3", "h4")
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def load(world: World, utilisation: float, seconds: int) -> None:
    for _ in range(seconds):
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=utilisation, samples=1)
        world.write("scheduler.web", fact)
        world.settle()


def grant_what_is_claimed(world: World) -> None:
    """World's tests have no provisioner here: one claim, one grant."""
    missing = world.custody.state.demands["web"] - world.custody.held("web")
    if missing > 0:
        world.grant("web", *sorted(world.custody.index.by_state["free"])[:missing])
        world.settle()


def test_a_department_grows_at_once_and_shrinks_after_its_window() -> None:
    world = site(down_window_s=20.0)
    load(world, 1.0, 1)
    assert core(world).state.target == 2
    load(world, 1.0, 2)
    grant_what_is_claimed(world)
    assert core(world).state.target == 4  # 1, 2, 3, 4: 1 / 0.8 more each time
    world.restart("scheduler.web")
    load(world, 0.3, 19)
    assert core(world).state.target == 4
    world.restart("scheduler.web")
    load(world, 0.3, 2)
    assert core(world).state.target == 2
    assert [type(fact.reason) for fact in world.facts(f.DemandChanged)][-1] is because.UtilisationLow
    assert world.voids == []


def test_a_backlog_is_seen_a_second_later_and_not_by_hurry() -> None:
    world = site()
    fact = f.LoadObserved(dept="web", start=world.now, end=world.now + 0.1, utilisation=1.0, samples=1)
    assert not core(world).would_change(fact, world.now + 0.1)


def test_the_rule_changes_with_the_configuration() -> None:
    world = site()
    load(world, 0.5, 30)
    assert core(world).state.samples == []
    threshold = web("web", rule="threshold", instances_per_host=4)
    adopted = f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(threshold))
    world.write("provisioner", adopted)
    load(world, 0.9, 19)
    assert core(world).state.target == 1
    load(world, 0.9, 1)
    assert core(world).state.target == 2


def test_a_department_that_names_no_rule_has_what_its_load_needs_after_one_observation() -> None:
    world = World(cloud(web("web", instances_per_host=4)))
    names = world.hosts(2, cores=4)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.settle()
    world.executor()
    world.guests()
    world.grant("web", *names)
    world.settle()
    load(world, 1.0, 1)
    assert core(world).state.target == 2
    load(world, 1.0, 1)
    assert core(world).state.target == 3


def test_why_tells_the_target_and_the_window() -> None:
    world = site()
    load(world, 1.0, 1)
    told = [sentence(reason) for reason in world.facts(f.DemandChanged)[-1:] for reason in [reason.reason]]
    assert told == ["utilisation was 100 % with 1 instance: 2 keep it at the target of 80 %"]
    load(world, 0.72, 3)
    steady = why(core(world), world.now)[0]
    assert sentence(steady) == "utilisation was 72 % with 2 instances; the target is 80 %"
    shrunk = core(site(down_window_s=5.0))
    state = Track(since=0.0, end=60.0, serving=10, utilisation=0.31, high=((60.0, 4),), low=((60.0, 4),))
    low = wanted(Memory([], state), 10, 10, shrunk.policy)[1]
    assert (
        sentence(low) == "utilisation was 31 % with 10 instances: for 5s at most 4 were needed for the target of 80 %"
    )


def held_words(memory: Memory, current: int, **fields: Any) -> str:
    return sentence(wanted(memory, memory.track.serving, current, policy(**fields))[1])


def test_why_tells_what_a_window_holds_and_for_how_long() -> None:
    words = held_words(heard(*steps(0.8, 0.24, 0.24, 0.24)), 10)  # the level of second 10 leaves a window of 60 s at 70
    assert words == (
        "utilisation was 24 % with 10 instances; the target is 80 %; now it asks for 3, but it stays at 10: "
        "as many were wanted within the last 1m00s; fewer in 30s at the earliest"
    )
    words = held_words(heard(*steps(0.24, 0.24)), 12)  # after a claim of 12: nobody watched the load for as long
    assert words.endswith(
        "now it asks for 3, but it stays at 12: the load has not been observed for 1m00s yet; fewer in 40s at the earliest"
    )
    words = held_words(heard(*steps(0.8, 1.0), up_window_s=30.0), 10, up_window_s=30.0)
    assert words.endswith(
        "now it asks for 13, but it stays at 10: no more were wanted within the last 30s; more in 20s at the earliest"
    )


def test_why_tells_that_the_window_of_the_threshold_is_not_full() -> None:
    rule, heard_s = WebPolicy(window_s=20.0), [Sample(0.0, 1.0, 1.01), Sample(1.0, 8.0, 1.01)]
    words = sentence(scale_threshold.wanted(Memory(heard_s, Track()), 2, 2, rule)[1])
    assert words == (
        "the number of instances is held; the load of 20s decides, in 12s at the earliest (the window restarts when the "
        "number in service changes or signals resume)"
    )
    assert sentence(scale_threshold.wanted(Memory([], Track()), 0, 1, rule)[1]) == "no instance is in service yet"
