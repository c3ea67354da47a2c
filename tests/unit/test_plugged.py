"""What stands between a core and somebody else's policy: it passes on what is right, and names whose fault the rest is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Scenario, WebInput
from schemas import reasons as because
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.size import Size
from services.domain.exits import Exit, Stop
from services.scheduler.core.batch import best_effort
from services.scheduler.core.policies import order_first_fit, plugged, registry
from services.scheduler.core.policies.order import Order, Plan, Reserved, Situation, Start
from services.scheduler.core.policies.plugged import REASON_MAX
from services.scheduler.core.policies.scale import Memory, Rule, Track
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad
from services.scheduler.core.state.load import Sample
from services.scheduler.core.state.shape import Shape
from services.scheduler.lookahead.why import why
from tests.support.leases import lease
from tests.support.plugins import install, packages
from tests.support.scheduling import cluster, core, running
from tests.support.world import World

HOSTS = [HostLoad("h1", False, ("1",)), HostLoad("h2", False, ())]
CROWD = {"1": Candidate("1", 1, 5.0, 5.0)}
RULE = """'''As many as it is told.

Source: this test.
'''
import msgspec
from phoenix.plugin.policies import Rule, because, settings

API = 1

class Settings(msgspec.Struct, frozen=True):
    number: int = 1

def follow(memory, heard, policy):
    return memory

def wanted(memory, serving, current, policy):
    return {number}, because.ByPolicy(policy="told")

RULE = Rule(follow, wanted, hurried=False)
"""
TOLD = "settings(Settings, policy.options).number"


def refused(act: Any, *given: Any) -> str:
    with pytest.raises(Stop) as stop:
        act(*given)
    assert stop.value.code is Exit.POLICY
    return stop.value.why


@pytest.mark.parametrize("name", list(registry.ORDERS))
def test_an_order_behind_it_says_the_same_of_itself(name: str) -> None:
    ours = registry.ORDERS[name]
    behind = plugged.order(ours, "order x")
    for field in Order._fields:
        mine, theirs = getattr(ours, field), getattr(behind, field)
        assert callable(mine) == callable(theirs)
        assert callable(mine) or mine == theirs


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (Choice([], ["h2"]), ""),
        (Choice(["1"], ["h1"]), ""),
        (Choice([], ["h1"]), "'h1' is not empty when the victims have ended"),
        (Choice([], []), "it gives back 0 hosts, and 1 are asked for"),
        (Choice([], ["h2", "h2"]), "it gives back 1 hosts, and 1 are asked for"),
        (Choice(["2"], ["h2"]), "'2' does not run there"),
        (Choice(["1", "1"], ["h2"]), "a victim is named twice"),
        (Choice([], ["h9"]), "'h9' is not one of the hosts"),
        (None, "it should be a Choice, not None"),
        (Choice(None, ["h2"]), "its victims and hosts should be lists of names"),  # type: ignore[arg-type]
        (Choice([[]], [[]]), "its victims and hosts should be lists of names"),  # type: ignore[list-item]
    ],
)
def test_a_choice_of_a_wrong_form_is_told(choice: Any, told: str) -> None:
    choose = plugged.victims(lambda *_given: choice, 'victims "x" of acme 1')
    if told:
        assert refused(choose, HOSTS, CROWD, 1).startswith(f'victims "x" of acme 1: its choice: {told}')
    else:
        assert choose(HOSTS, CROWD, 1) == choice


WHY = because.ByPolicy()


class Odd(str):
    """Looks like a name, and cannot be written."""


def crowd() -> tuple[World, Situation]:
    """Job 1 runs on h1, best-effort 2 on h2; job 3 and best-effort 4 wait."""
    world = cluster(2)
    running(world)
    running(world, best_effort=True)
    world.submit(cores=4)
    world.submit(cores=4, best_effort=True)
    return world, core(world).view.situation(world.now, core(world).view.room)


def start(unit: Any = "3", hosts: Any = ("h2",), reason: Any = WHY, victims: Any = ()) -> Start:
    return Start(unit, Shape(1, Size(4, 256), False), hosts, reason, victims)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (start([]), "it starts [], which does not wait"),
        (start(Odd("3")), "it starts '3', which does not wait"),
        (start(hosts=None), "it gives '3' the hosts None: a tuple of names is needed"),
        (start(hosts=(1,)), "it gives '3' the hosts (1,)"),
        (start(hosts=([],)), "it gives '3' the hosts ([],)"),
        (start(hosts=("h1", "h2")), "it gives '3' the hosts ('h1', 'h2'): 1 different ones are needed"),
        (start(hosts=("h2", "h2")), "it gives '3' the hosts ('h2', 'h2'): 1 different ones are needed"),
        (
            start()._replace(shape=Shape(1, Size(2, 256), False)),
            "it gives '3' another shape: Shape(nodes=1, size=Size(cores=2",
        ),
        (start(reason="because"), "it starts '3' without a Reason"),
        (start(reason=because.ByPolicy(details={"x": {"a": 1}})), "it starts '3' with a Reason that cannot be written"),
        (
            start(reason=because.ByPolicy(details={"x": float("inf")})),
            "it starts '3' with a Reason that cannot be written",
        ),
        (start(reason=because.ByPolicy(details={"x": 10**40})), "it starts '3' with a Reason that cannot be written"),
        (start(reason=because.ByPolicy(details={"x": "x" * 5000})), "it starts '3' with a Reason of 50"),
        (start(victims=None), "the victims for '3' should be a tuple of units, not None"),
        (start(victims=("1",)), "it names the victim '1', which is no best-effort that runs"),
        (start(victims=("3",)), "it names the victim '3', which is no best-effort that runs"),
        (start(victims=("9",)), "it names the victim '9', which is no best-effort that runs"),
        (start(victims=("2", "2")), "it names the victim '2' twice"),
        (start("4", victims=("2",)), "it names victims for '4', which is best-effort itself"),
        (start(victims=("2",)), ""),
    ],
)
def test_a_start_of_a_wrong_form_is_told(answer: Start, told: str) -> None:
    _, situation = crowd()
    plan = plugged.order(Order(lambda _: Plan([answer]), makes_way=True), 'order "x" of acme 1').plan
    if told:
        assert refused(plan, situation).startswith(f'order "x" of acme 1: plan: {told}')
        return
    assert plan(situation).starts == [answer]
    plan = plugged.order(Order(lambda _: Plan([answer])), 'order "x" of acme 1').plan
    assert "it names victims for '3', and does not say makes_way=True" in refused(plan, situation)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "it should return a Plan, not None"),
        ([], "it should return a Plan, not []"),
        (Plan([], waits=None), "its waits should have a function for each lane, not be None"),  # type: ignore[arg-type]
        (Plan([], waits={"lane": WHY}), "its waits should have a function for each lane"),  # type: ignore[dict-item]
        (Plan([], rest=Plan([])), "its rest should be a function or None"),  # type: ignore[arg-type]
        (Plan([], reservations=iter(())), "its reservations should be a list of Reserved"),
        (Plan([], reservations=["3"]), "each reservation should be a Reserved, not '3'"),  # type: ignore[list-item]
        (Plan([], reservations=[Reserved(3, 0.0)]), "each reservation should be a Reserved"),  # type: ignore[arg-type]
        (Plan([], reservations=[Reserved("3", "soon")]), "each reservation should be a Reserved"),  # type: ignore[arg-type]
        (Plan([], clear=[("1", "3")]), "it clears '1', which is no best-effort that runs"),
        (Plan([], clear=[("2", "3")]), "it clears '2' for '3', which is no lease that waits for its slot"),
        (Plan([], clear=[("2",)]), "its clear should hold pairs of unit and lease"),  # type: ignore[list-item]
        (Plan([], clear=None), "its clear should be a list of unit and lease, not None"),  # type: ignore[arg-type]
        (Plan([], clear=[["2", "3"]]), "its clear should hold pairs of unit and lease"),  # type: ignore[list-item]
        (Plan([], clear=[("2", "3", "4")]), "its clear should hold pairs of unit and lease"),  # type: ignore[list-item]
        (Plan([], due=True), "the next moment should be a time after 1000000"),
        (Plan([], due="soon"), "the next moment should be a time after 1000000"),  # type: ignore[arg-type]
        (Plan([], due=1_000_000.0), "the next moment should be a time after 1000000"),
        (Plan([], due=0.0), "the next moment should be a time after 1000000"),  # it would be asked without end
        (Plan([], due=float("nan")), "the next moment should be a time after 1000000"),
    ],
)
def test_a_plan_of_a_wrong_form_is_told(answer: Any, told: str) -> None:
    _, situation = crowd()
    plan = plugged.order(Order(lambda _: answer), 'order "x" of acme 1').plan
    assert refused(plan, situation).startswith(f'order "x" of acme 1: plan: {told}')


def raises(*_given: object) -> Any:
    raise ZeroDivisionError("by 0")


def test_what_an_order_tells_when_it_is_asked_is_heard_and_judged_then() -> None:
    _, situation = crowd()
    (lane, *_) = situation.queue.lanes
    who = 'order "x" of acme 1'

    def rest(answer: Any) -> Plan:
        plan = plugged.order(Order(lambda _: Plan([], rest=answer)), who).plan(situation)
        assert plan.rest is not None
        return plan.rest(0.0)

    whole = rest(lambda _now: Plan([], {lane: lambda _unit, _now: WHY}, iter([Reserved("3", 5.0)])))
    assert (list(whole.reservations), whole.waits[lane]("3", 0.0)) == ([Reserved("3", 5.0)], WHY)
    assert refused(rest, raises) == f"{who} in rest: ZeroDivisionError: by 0; its author must mend that"
    assert refused(rest, lambda _now: None).startswith(f"{who}: rest: it should return a Plan, not None")
    assert refused(rest(lambda _now: Plan([], {lane: raises})).waits[lane], "3", 0.0).startswith(
        f"{who} in waits: Zero"
    )
    odd = rest(lambda _now: Plan([], reservations=iter([Reserved("3", 5.0), "4"])))  # type: ignore[list-item]
    assert refused(list, odd.reservations).startswith(f"{who}: reservations: each reservation should be")
    failing = rest(lambda _now: Plan([], reservations=map(raises, "3")))
    assert refused(list, failing.reservations).startswith(f"{who} in reservations: ZeroDivisionError")
    told = plugged.order(Order(lambda _: Plan([], {lane: raises})), who).plan(situation)
    assert refused(told.waits[lane], "3", 0.0).startswith(f"{who} in waits: ZeroDivisionError")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "what starts should be a list of Start, not None"),
        ((), "what starts should be a list of Start, not ()"),
        (["3"], "what starts should be a list of Start, not ['3']"),
        ([start(), start()], "it starts '3' twice"),
        ([start()] * 101, "it starts 101 units, and 100 are allowed"),
        ([start()] * 100, "it starts '3' twice"),
        ([], ""),
    ],
)
def test_starts_of_a_wrong_form_are_told(answer: Any, told: str) -> None:
    _, situation = crowd()
    plan = plugged.order(Order(lambda _: Plan(answer)), 'order "x" of acme 1').plan
    situation = situation._replace(most=100)
    if told:
        assert refused(plan, situation).startswith(f'order "x" of acme 1: plan: {told}')
    else:
        assert plan(situation).starts == []


@pytest.mark.parametrize(("more", "told"), [(0, ""), (1, f"with a Reason of {REASON_MAX + 1} bytes")])
def test_a_reason_has_at_most_so_many_bytes(more: int, told: str) -> None:
    short = len(msgspec.json.encode(because.ByPolicy(details={"x": ""})))
    found = plugged.wrong_reason(because.ByPolicy(details={"x": "x" * (REASON_MAX - short + more)}))
    assert found.startswith(told) if told else found == ""


def test_what_is_written_of_an_instance_number_has_a_reason_too() -> None:
    assert plugged.wrong_number((0, because.ByPolicy())) == ""
    for odd in ([1, because.ByPolicy()], (1,), (1, "because"), (1, because.ByPolicy(), 2)):
        assert plugged.wrong_number(odd).startswith("it should return a number of instances and a Reason")  # type: ignore[arg-type]
    huge = because.ByPolicy(details={"x": "x" * REASON_MAX})
    assert plugged.wrong_number((1, huge)).startswith("a number of instances with a Reason of")
    assert plugged.wrong_memory((1, 2)).startswith("it should return a Memory")  # type: ignore[arg-type]


def test_an_order_that_keeps_slots_says_who_makes_way() -> None:
    keeps = Order(lambda _: Plan([]), keeps_slots=True)
    assert "x: it keeps the slots of leases, and does not say makes_way=True" in refused(plugged.order, keeps, "x")
    assert plugged.order(keeps._replace(makes_way=True), "x").keeps_slots


def test_who_is_guarded_makes_way_for_no_slot() -> None:
    world, _ = crowd()
    slot = lease(world, 50.0)
    situation = core(world).view.situation(world.now, core(world).view.room)
    plan = plugged.order(Order(lambda _: Plan([], clear=[("2", slot)], due=1e300)), "x").plan
    assert (plan(situation).clear, plan(situation).due) == ([("2", slot)], 1e300)
    assert plan(situation._replace(guarded=lambda unit: unit == "2")).clear == []


@pytest.mark.parametrize("count", [None, -1, 2.5, True])
def test_a_number_of_hosts_of_a_wrong_form_is_told(count: Any) -> None:
    _, situation = crowd()
    hosts = plugged.order(Order(lambda _: Plan([]), hosts=lambda *_: count), 'order "x" of acme 1').hosts
    assert refused(hosts, situation, []).startswith(f'order "x" of acme 1: hosts: it wants {count!r} hosts')


def test_an_order_that_chooses_victims_ends_nobody_who_is_guarded() -> None:
    world, situation = crowd()
    greedy = Order(lambda _: Plan([start(victims=("2",))]), makes_way=True)
    anybody = core(world).view.preemption.best_effort(world.now)
    assert best_effort.plan(greedy, situation, anybody).starts == [start(victims=("2",))]
    assert best_effort.plan(greedy, situation._replace(guarded=lambda unit: unit == "2"), anybody).starts == []


@pytest.mark.parametrize("memory", [None, (1, 2), Memory([Sample("x", 1, 2)], Track()), Memory([], None)])  # type: ignore[arg-type]
def test_what_a_rule_remembers_can_be_read_again(memory: Any) -> None:
    given = Rule(lambda *_: memory, lambda *_: (1, because.ByPolicy()), hurried=False)
    follow = plugged.rule(given, 'rule "x" of acme 1').follow
    assert "follow: " in refused(follow, Memory([], Track()), None, WebPolicy())
    kept = Memory([Sample(1.0, 2.0, 0.5)], Track(high=((1.0, 2),)))
    assert plugged.rule(given._replace(follow=lambda *_: kept), "x").follow(kept, None, WebPolicy()) == kept  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [3.0, -1, True, None, "3"])
def test_a_number_of_a_wrong_form_is_told(number: Any) -> None:
    given = Rule(lambda memory, *_: memory, lambda *_: (number, because.ByPolicy()), hurried=False)
    told = refused(plugged.rule(given, 'rule "x" of acme 1').wanted, None, 1, 1, WebPolicy())
    assert "wanted: the number of instances should be a whole number of 0 or more" in told


def instances(says: str, tmp_path: Path, **options: Any) -> list[int]:
    """How many instances a simulated department had under a rule that says so."""
    with packages(tmp_path / "site") as site:
        install(site, "told", RULE.replace("{number}", says), kind="scaling", target="RULE")
        policy = WebPolicy(rule="told", instances_max=9, options=options)
        config = CloudConfig(name="site", departments=(Department(name="shop", kind="web", web=policy),))
        load = WebInput(load=((0.0, 1.0),), end_s=60.0)
        simulation = Simulation(Scenario(label="x", config=config, hosts=9, web={"shop": load}, window_s=60.0))
        simulation.run()
        placed = [unit for unit in simulation.journal.custody.state.units.values() if unit.dept == "shop"]
        return [len(placed)]


def test_a_scaling_rule_decides_with_its_options(tmp_path: Path) -> None:
    assert instances(TOLD, tmp_path / "a", number=4) == [4]
    assert instances(TOLD, tmp_path / "b", number=7) == [7]
    assert instances(TOLD, tmp_path / "c", number=70) == [9]  # bounds are the core's


def test_a_scaling_rule_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r'rule "told" of acme-told 1\.2 in wanted: ZeroDivisionError'):
        instances("1 // 0", tmp_path)


def test_who_waits_under_an_order_that_gives_only_starts_is_told_why_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only_the_first(situation: Situation) -> Plan:
        return Plan([start for start in order_first_fit.plan(situation).starts if start.unit == "1"])

    def with_a_word(situation: Situation) -> Plan:
        stubborn = [key for key in situation.queue.lanes if key.shape.size.cores == 2]
        word = dict.fromkeys(stubborn, lambda unit, _now: because.ByPolicy(policy=unit))
        return only_the_first(situation)._replace(waits=word)

    for plan, told in (
        (only_the_first, because.WaitsBehind(ahead=1, job="2")),
        (with_a_word, because.ByPolicy(policy="3")),
    ):
        monkeypatch.setitem(registry.ORDERS, "first-fit", plugged.order(Order(plan), 'order "x" of acme 1'))
        world = cluster(2)
        jobs = [world.submit(cores=4), world.submit(cores=4, nodes=2), world.submit(cores=2)]
        assert jobs == ["1", "2", "3"]
        world.settle()
        assert world.states() == {"1": "open", "2": "pending", "3": "pending"}
        lacks, behind = (why(core(world), unit, world.now)[0] for unit in ("2", "3"))
        assert isinstance(lacks, because.WaitsForHosts)
        assert lacks.short == 1
        assert behind == told
