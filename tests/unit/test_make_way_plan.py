"""Who makes way for which start: the plan that is made of an order's, on a ground made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, Department
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Unit
from services.scheduler.core.batch.best_effort import BestEffort, plan, seen, why
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.order import Order, Plan, Situation
from services.scheduler.core.state.budgets import NOBODY, Budgets, Owner
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import PLAIN, Kind, Place, Shape, Start

IDLE = Kind(best_effort=True)
AT = 1000.0


def shape(cores: int = 4, nodes: int = 1) -> Shape:
    return Shape(nodes, Size(cores, 1), False)


class Yard:
    """Hosts a, b, … of 4 cores with live attempts on them (those called x… are best-effort), and who waits (so too)."""

    def __init__(self, hosts: str, runs: dict[str, tuple[str, int]], waits: dict[str, Shape], **limits: Any) -> None:
        self.custody = Custody()
        for name in hosts:
            here = {unit: None for unit, (where, _) in runs.items() if name in where}
            used = sum(cores for where, cores in runs.values() if name in where)
            host = Host(name=name, size=Size(4, 100), state="held", dept="hpc", units=here, used=Size(used))
            self.custody.state.hosts[name] = host
        self.custody.index.held = {"hpc": dict.fromkeys(hosts)}
        for number, (unit, (where, cores)) in enumerate(runs.items()):
            self.custody.state.units[unit] = Unit(
                id=unit, dept="hpc", state="open", attempt=1, nodes=len(where), size=Size(cores, 0),
                hosts=tuple(where), placed_at=AT + number, began_at=AT + number,
            )  # fmt: skip
        department = Department(name="hpc", kind="batch", batch=BatchPolicy(limits=BatchLimits(**limits)))
        self.budgets = Budgets.of(department)
        self.running = {unit: None for unit in runs if unit.startswith("x")}
        self.queue = Queue(lambda _: 1.0, self.budgets)
        for number, (unit, its) in enumerate(waits.items()):
            self.queue.add(Place(0, number, unit), its, 0, self.kind(unit), self.owner(unit))
        for unit, (where, cores) in runs.items():
            if self.budgets:
                self.budgets.opened(self.owner(unit), shape(cores, len(where)), 1)
        self.runs = list(runs)

    def kind(self, unit: str) -> Kind:
        return IDLE if unit.startswith("x") else PLAIN

    def owner(self, unit: str) -> Owner:
        return self.budgets.owner("ann", "") if self.budgets else NOBODY

    def situation(self) -> Situation:
        forecast = Forecast(self.custody, "hpc", lambda _, since: since + 100.0, self.runs, self.kind)
        return Situation(self.queue, Room.of(self.custody, "hpc"), AT, 100, lambda: forecast)

    def best_effort(self, guarded: Sequence[str] = (), left: int | None = None) -> BestEffort:
        return BestEffort(
            self.running, lambda unit: unit in guarded, left,
            lambda endings: sorted(endings, key=lambda each: each.unit), self.owner,
        )  # fmt: skip

    def plan(self, order: str | Order = "first-fit", **how: Any) -> list[tuple[str, str, tuple[str, ...]]]:
        named = registry.order(order) if isinstance(order, str) else order
        starts = plan(named, self.situation(), self.best_effort(**how)).starts
        return [(start.unit, "".join(start.hosts), start.victims) for start in starts]


def in_turn(*hosts: str) -> Order:
    """Jobs 2, 3, … start there."""
    starts = [
        Start(str(n), shape(), (host,), because.FirstFit(), anywhere=True) for n, host in enumerate(hosts, start=2)
    ]
    return Order(lambda _: Plan(starts))


FULL = {"x1": ("a", 4), "x2": ("b", 4)}


def test_without_best_effort_the_order_alone_decides() -> None:
    yard = Yard("ab", {"1": ("a", 4)}, {"2": shape()})
    asked: list[Situation] = []
    order = Order(lambda situation: asked.append(situation) or [])  # type: ignore[func-returns-value]
    situation = yard.situation()
    assert plan(order, situation, yard.best_effort()) == []
    assert asked == [situation]
    assert asked[0].queue is situation.queue


def test_who_goes_first_makes_way_and_nobody_who_is_not_needed() -> None:
    assert Yard("ab", FULL, {"2": shape()}).plan() == [("2", "a", ("x1",))]
    assert Yard("ab", FULL, {"2": shape(4, 2)}).plan() == [("2", "ab", ("x1", "x2"))]
    assert Yard("abc", FULL, {"2": shape()}).plan() == [("2", "c", ())], "free hosts first"
    small = {"x1": ("a", 1), "x2": ("a", 3), "x3": ("b", 4)}
    assert Yard("ab", small, {"2": shape(3)}).plan() == [("2", "a", ("x2",))]


def test_the_pass_ends_with_the_first_start_for_which_somebody_goes() -> None:
    waits = {"2": shape(), "3": shape(), "4": shape()}
    assert Yard("abc", FULL, waits).plan(in_turn("c", "a", "b")) == [("2", "c", ()), ("3", "a", ("x1",))]
    assert Yard("abcd", FULL, waits).plan(in_turn("c", "d", "b"))[:2] == [("2", "c", ()), ("3", "d", ())]


def test_who_is_guarded_stays_and_the_order_sees_it_as_production() -> None:
    assert Yard("ab", FULL, {"2": shape()}).plan(guarded=["x1"]) == [("2", "b", ("x2",))]
    assert Yard("ab", FULL, {"2": shape()}).plan(guarded=["x1", "x2"]) == []
    assert Yard("ab", FULL, {"2": shape(4, 2)}).plan(guarded=["x1"]) == []


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (None, [("2", "ab", ("x1", "x2"))]),
        (2, [("2", "ab", ("x1", "x2"))]),
        (1, [("3", "c", ())]),
        (0, [("3", "c", ())]),
    ],
)
def test_a_start_that_needs_more_than_the_hour_has_left_is_planned_as_if_all_were_guarded(
    left: int | None, expected: list[Any]
) -> None:
    waits = {"2": shape(4, 2), "3": shape(1)}
    yard = Yard("abc", FULL | {"1": ("c", 3)}, waits)
    assert yard.plan(left=left) == expected


def test_what_is_free_and_no_production_can_use_is_best_efforts() -> None:
    yard = Yard("abc", {"1": ("a", 4), "x1": ("b", 3)}, {"2": shape(4, 3), "x5": shape(4), "x6": shape(1)})
    assert yard.plan() == [("x5", "c", ()), ("x6", "b", ())]
    starts = plan(registry.order("first-fit"), yard.situation(), yard.best_effort()).starts
    assert [start.reason for start in starts] == [because.BestEffort()] * 2
    busy = Yard("abc", {"x1": ("b", 3)}, {"2": shape(), "x5": shape(1)})
    assert busy.plan() == [("2", "a", ())], "production first"
    assert Yard("ab", FULL, {}).plan() == []


@pytest.mark.parametrize(("code", "hosts", "victims"), [(because.FirstFit, "c", ()), (because.Backfill, "a", ("x1",))])
def test_a_start_behind_a_reservation_has_the_hosts_that_were_chosen_for_it(
    code: because.Kind, hosts: str, victims: tuple[str, ...]
) -> None:
    order = Order(lambda _: Plan([Start("2", shape(), ("a",), code(), anywhere=code is because.FirstFit)]))
    assert Yard("abc", FULL, {"2": shape()}).plan(order) == [("2", hosts, victims)]
    gone = Order(lambda _: Plan([Start("2", shape(), ("z",), because.Backfill())]))
    assert Yard("abc", FULL, {"2": shape()}).plan(gone) == [("2", "z", ())], "as the order has it"


def test_of_the_hosts_that_were_chosen_for_it_only_those_in_use_are_cleared() -> None:
    order = Order(lambda _: Plan([Start("2", shape(4, 2), ("c", "a"), because.Backfill())]))
    assert Yard("abc", FULL, {"2": shape(4, 2)}).plan(order) == [("2", "ca", ("x1",))]


def test_at_the_first_start_that_cannot_be_the_order_is_asked_without_those_who_could_go() -> None:
    wide = [Start("2", shape(4, 2), ("a", "b"), because.Backfill()), *in_turn("c").plan(None).starts]  # type: ignore[arg-type]
    assert len(Yard("abc", FULL, {"2": shape()}).plan(Order(lambda _: Plan(wide)), left=1)) == 2
    nowhere = [Start("2", shape(), ("z",), because.Backfill()), *in_turn("c").plan(None).starts]  # type: ignore[arg-type]
    assert len(Yard("abc", FULL, {"2": shape()}).plan(Order(lambda _: Plan(nowhere)))) == 2


def test_the_departments_order_says_who_goes_first() -> None:
    assert Yard("ab", {"x2": ("a", 4), "x1": ("b", 4)}, {"2": shape()}).plan() == [("2", "b", ("x1",))]


def test_best_effort_that_waits_is_production_to_no_order() -> None:
    assert Yard("ab", {}, {"2": shape(), "x5": shape()}).plan() == [("2", "a", ())]


def test_after_a_start_elsewhere_than_planned_the_rest_is_planned_anew() -> None:
    starts = [
        Start("2", shape(), ("a",), because.FirstFit(), anywhere=True),
        Start("3", shape(), ("d",), because.FirstFit(), anywhere=True),
    ]
    assert Yard("abcd", FULL, {"2": shape(), "3": shape()}).plan(Order(lambda _: Plan(starts))) == [("2", "c", ())]


# ----------------------------------------------------------------------------------------------------------------- limits


def test_who_fills_a_limit_makes_way_too_and_nobody_who_need_not() -> None:
    runs = {"x1": ("a", 1), "x2": ("b", 4), "x3": ("c", 1)}
    assert Yard("abcd", runs, {"2": shape()}, cores_max=6).plan() == [("2", "d", ("x2",))]
    assert Yard("abcd", runs, {"2": shape()}, cores_max=10).plan() == [("2", "d", ())]
    assert Yard("abcd", runs, {"2": shape()}, cores_max=9).plan() == [("2", "d", ("x1",))]
    assert Yard("abcd", runs, {"2": shape()}, cores_max=4).plan() == [("2", "d", ("x1", "x2", "x3"))]
    assert Yard("abc", runs, {"2": shape()}, cores_max=9).plan() == [("2", "a", ("x1",))], "it counts already"
    assert Yard("abc", runs, {"2": shape()}, cores_max=8).plan() == [("2", "a", ("x1", "x2"))]
    assert Yard("abcd", runs, {"2": shape()}, cores_max=4).plan(left=2) == []
    assert Yard("abc", runs, {"2": shape()}, cores_max=99).plan() == [("2", "a", ("x1",))]
    more = {"x1": ("a", 4), "x2": ("b", 1), "x3": ("c", 2), "x4": ("d", 3)}
    assert Yard("abcde", more, {"2": shape()}, cores_max=8).plan() == [("2", "e", ("x1", "x3"))]
    dearer = {"x1": ("a", 1), "x2": ("b", 2), "x3": ("c", 3)}
    assert Yard("abcd", dearer, {"2": shape()}, cores_max=6).plan() == [("2", "d", ("x1", "x3"))], "the dearest stays"


def test_starts_of_a_pass_count_for_each_other() -> None:
    yard = Yard("abc", {"x1": ("a", 1)}, {"2": shape(), "3": shape()}, cores_max=8)
    roomy = Yard("abc", {"x1": ("a", 1)}, {"2": shape(), "3": shape()}, cores_max=9)
    assert roomy.plan(in_turn("b", "c")) == [("2", "b", ()), ("3", "c", ())]
    assert yard.plan(in_turn("b", "c")) == [("2", "b", ()), ("3", "c", ("x1",))]


# --------------------------------------------------------------------------------------- orders that say who makes way


class Asked:
    """An order that plans what it is told, and what is asked of it."""

    def __init__(self, *starts: tuple[str, Sequence[str]]) -> None:
        self.starts = [Start(unit, shape(), ("a",), because.FirstFit(), tuple(gone)) for unit, gone in starts]
        self.guarded: list[Callable[[str], bool]] = []

    def plan(self, situation: Situation) -> Plan:
        self.guarded.append(situation.guarded)
        return Plan(self.starts)


@pytest.mark.parametrize(
    ("left", "guarded", "kept", "asked"),
    [
        (None, (), ["1", "2", "3"], 1),
        (3, (), ["1", "2", "3"], 1),
        (2, (), ["1", "2"], 1),
        (1, (), ["1", "2"], 1),
        (0, (), ["1"], 1),
        (None, ("x1",), ["1", "3"], 1),
        (None, ("x3",), ["1", "2"], 1),
    ],
)
def test_of_such_an_order_as_many_starts_are_taken_as_may_have_their_victims(
    left: int | None, guarded: tuple[str, ...], kept: list[str], asked: int
) -> None:
    order = Asked(("1", ()), ("2", ("x1",)), ("3", ("x2", "x3")))
    yard = Yard("ab", FULL, {"2": shape()})
    situation = yard.situation()._replace(guarded=lambda unit: unit in guarded)
    found = plan(Order(order.plan, makes_way=True), situation, yard.best_effort(left=left))
    assert [start.unit for start in found.starts] == kept
    assert len(order.guarded) == asked


@pytest.mark.parametrize(
    ("first", "left", "asked"),
    [(("x1", "x2"), 1, 2), (("x1",), 0, 1), (("x1",), 1, 1), ((), 0, 1)],
)
def test_where_the_first_may_not_it_is_asked_again_with_everybody_guarded(
    first: tuple[str, ...], left: int, asked: int
) -> None:
    order = Asked(("1", first), ("2", ()))
    yard = Yard("ab", FULL, {"2": shape()})
    found = plan(Order(order.plan, makes_way=True), yard.situation(), yard.best_effort(left=left))
    assert len(order.guarded) == asked
    assert order.guarded[-1]("anybody") is (asked == 2 or left == 0)
    assert [start.unit for start in found.starts] == (["1", "2"] if len(first) <= left else [])
    nobody = Asked()
    assert plan(Order(nobody.plan, makes_way=True), yard.situation(), yard.best_effort(left=1)).starts == []
    assert len(nobody.guarded) == 1, "nothing would start in any case"


# ----------------------------------------------------------------------------------------------------------- explanations


def test_the_order_plans_production_on_the_room_of_those_who_stay() -> None:
    yard = Yard("ab", FULL | {"1": ("b", 0)}, {"2": shape(), "x3": shape()}, cores_max=9)
    situation = yard.situation()
    order = Order(lambda _: Plan([]))
    found = seen(order, situation, yard.best_effort(guarded=["x2"]))
    assert (found.room.free["a"].size.cores, found.room.free["b"].size.cores) == (4, 0)
    assert [key.kind for key in found.queue.lanes] == [PLAIN]
    assert found.queue.budgets is not None
    assert [much.size.cores for much in found.queue.budgets.used.values()] == [4]
    assert [each.unit for each in found.forecast().endings] == ["x2", "1"]
    assert seen(order._replace(makes_way=True), situation, yard.best_effort()) is situation
    calm = Yard("a", {"1": ("a", 1)}, {"2": shape(), "x3": shape()})
    whole = calm.situation()
    alone = seen(order, whole, calm.best_effort())
    assert (alone.room is whole.room, [key.kind for key in alone.queue.lanes]) == (True, [PLAIN])


def test_hosts_that_rest_rest_in_what_the_order_sees() -> None:
    yard = Yard("ab", FULL, {"2": shape()})
    situation = yard.situation()
    situation.room.resting["z"] = AT + 5.0
    assert seen(Order(lambda _: Plan([])), situation, yard.best_effort()).room.resting == {"z": AT + 5.0}


@pytest.mark.parametrize(
    ("guarded", "left", "asked", "until", "told"),
    [
        (("x1", "x2"), None, shape(), AT + 5.04, {"guarded": 2, "until_s": 5.0}),
        (("x1", "x2"), None, shape(), AT - 5.0, {"guarded": 2, "until_s": 0.0}),
        (("x1", "x2"), None, shape(), float("inf"), {"guarded": 2}),
        (("x1",), None, shape(), AT, None),
        (("x1",), None, shape(4, 2), AT + 7.0, {"guarded": 1, "until_s": 7.0}),
        ((), 0, shape(), AT + 7.0, {"guarded": 0, "hour_spent": 1, "until_s": 7.0}),
        ((), 1, shape(), AT + 7.0, None),
        (("x1", "x2"), None, shape(4, 3), AT, None),
        (("x1", "x2"), None, shape(5), AT, None),
    ],
)
def test_production_that_would_fit_without_those_who_are_guarded_is_told_so(
    guarded: tuple[str, ...], left: int | None, asked: Shape, until: float, told: dict[str, Any] | None
) -> None:
    yard = Yard("ab", FULL, {"2": shape()})
    expected: Reason | None = None if told is None else because.Protected(**told)
    assert why(yard.situation(), yard.best_effort(guarded, left), asked, until) == expected
    calm = Yard("ab", {"1": ("a", 4)}, {"2": shape()})
    assert why(calm.situation(), calm.best_effort(), asked, until) is None
