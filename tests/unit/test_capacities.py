"""What usable hosts could hold if they were empty, what a queue may ask for, and when hosts are expected to be free."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Broken, Host, Unit
from services.scheduler.core.batch.demand import PREFERRED_MAX, hosts_wanted, preferred
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.forecast import Ending, Forecast
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import PLAIN, Kind, Place, Shape
from tests.support.sizes import sized

FAST = {"FAST": "1"}


def host(name: str, cores: int = 4, memory_mb: int = 400, **fields: Any) -> Host:
    given = {"state": "held", "dept": "hpc"} | fields
    return Host(name=name, size=Size(cores, memory_mb), **given)


def fold(*hosts: Host, units: list[Unit] | None = None) -> Custody:
    custody = Custody()
    custody.state.hosts = {one.name: one for one in hosts}
    custody.state.units = {one.id: one for one in units or []}
    custody.index.held = {"hpc": {one.name: None for one in hosts if one.dept == "hpc"}}
    return custody


# ------------------------------------------------------------------------------------------------------------- capacities


@pytest.mark.parametrize(
    ("fields", "usable"),
    [
        ({"state": "free"}, True),
        ({"state": "held"}, True),
        ({"state": "draining"}, True),
        ({"state": "lost"}, False),
        ({"state": "absent"}, False),
        ({"state": "held", "cordoned": "repair"}, False),
        ({"state": "held", "cordoned": ""}, False),
        ({"state": "held", "dept": "bio"}, True),
    ],
)
def test_usable_is_what_may_be_held_and_is_not_cordoned(fields: dict[str, Any], usable: bool) -> None:
    found = Capacities.of(fold(host("a", **fields)))
    assert (found.of_host, found.counts) == (({"a": Size(4, 400)}, {Size(4, 400): 1}) if usable else ({}, {}))


def test_hosts_are_counted_by_kind_as_they_come_and_go_and_only_a_change_is_told() -> None:
    custody = fold(host("a"), host("b"), host("c", cores=8))
    found = Capacities.of(custody)
    assert found.counts == {Size(4, 400): 2, Size(8, 400): 1}
    assert not found.update(custody, "a")
    custody.state.hosts["a"].size = custody.state.hosts["a"].size._replace(cores=8)
    assert found.update(custody, "a")
    assert found.counts == {Size(4, 400): 1, Size(8, 400): 2}
    custody.state.hosts["a"].state = "lost"
    assert found.update(custody, "a")
    assert not found.update(custody, "a")
    del custody.state.hosts["b"]
    assert found.update(custody, "b")
    assert (found.of_host, found.counts) == ({"c": Size(8, 400)}, {Size(8, 400): 1})
    custody.state.hosts["a"].state = "free"
    assert found.update(custody, "a")
    assert found.counts == {Size(8, 400): 2}


@pytest.mark.parametrize(
    ("shape", "able", "ranks"),
    [
        (Shape(1, Size(1, 100), False), 3, 4),
        (Shape(1, Size(2, 100), False), 3, 2),
        (Shape(1, Size(3, 100), False), 3, 1),
        (Shape(1, Size(4, 100), False), 3, 1),
        (Shape(1, Size(5, 100), False), 1, 1),
        (Shape(1, Size(8, 800), False), 1, 1),
        (Shape(1, Size(8, 801), False), 0, 0),
        (Shape(1, Size(9, 100), False), 0, 0),
        (Shape(1, Size(1, 400), False), 3, 1),
        (Shape(1, Size(1, 401), False), 1, 1),
        (Shape(1, Size(1, 200), False), 3, 2),
        (Shape(1, Size(1, 0), False), 3, 4),
        (Shape(1, Size(0, 100), False), 3, 4),
        (Shape(1, Size(0, 0), False), 3, 4),
        (Shape(1, Size(1, 100), True), 3, 1),
        (Shape(1, Size(4, 400), True), 3, 1),
        (Shape(1, Size(8, 800), True), 1, 1),
        (Shape(1, Size(8, 801), True), 0, 0),
        (Shape(1, Size(9, 800), True), 0, 0),
    ],
)
def test_ranks_on_a_host_are_counted_on_the_smallest_kind_that_holds_one(shape: Shape, able: int, ranks: int) -> None:
    fast: dict[str, Any] = {"labels": FAST}
    found = Capacities.of(fold(host("a", **fast), host("b", **fast), host("c", 8, 800, **fast), host("d", 16, 9000)))
    assert (found.able(shape._replace(constraint="fast")), found.ranks(shape._replace(constraint="fast"))) == (
        able,
        ranks,
    )
    found = Capacities.of(fold(host("a"), host("b"), host("c", 8, 800)))
    assert (found.able(shape), found.ranks(shape)) == (able, ranks)


def test_a_host_without_cores_still_holds_a_rank_that_asks_for_nothing() -> None:
    assert Capacities.of(fold(host("a", 0, 100))).ranks(Shape(1, Size(), False)) == 1


def test_without_hosts_nothing_can_be_held() -> None:
    found = Capacities()
    for constraint in ("", "fast"):
        shape = Shape(1, Size(0, 0), False, constraint)
        assert (found.able(shape), found.ranks(shape)) == (0, 0)


# ----------------------------------------------------------------------------------------------------------------- demand

USABLE = Capacities.of(fold(*(host(f"h{n}", labels=FAST if n < 3 else {}) for n in range(6))))
ONE, WIDE, TWO = Shape(1, Size(4, 100), False), Shape(3, Size(1, 100), False), Shape(1, Size(2, 100), False)
QUICK = ONE._replace(constraint="fast")


def queue(*shapes: Shape) -> Queue:
    found = Queue(lambda _: 1.0)
    for number, shape in enumerate(shapes):
        found.add(Place(0, number, str(number)), shape, 0)
    return found


@pytest.mark.parametrize(
    ("shapes", "busy", "starting", "wanted"),
    [
        ([], 0, {}, 0),
        ([], 2, {}, 2),
        ([ONE, ONE], 1, {}, 3),
        ([ONE, ONE], 1, {ONE: 1}, 2),
        ([ONE, ONE], 1, {ONE: 2}, 1),
        ([ONE, ONE], 1, {TWO: 1}, 3),
        ([TWO, TWO, TWO], 0, {}, 2),
        ([WIDE], 0, {}, 3),
        ([WIDE], 3, {WIDE: 1}, 3),
        ([WIDE, WIDE], 0, {}, 3),
        ([WIDE] * 5, 0, {}, 4),
        ([WIDE, TWO], 1, {}, 5),
        ([ONE] * 5, 0, {}, 5),
        ([ONE] * 5, 1, {}, 6),
        ([ONE] * 9, 1, {}, 6),
        ([QUICK] * 9, 0, {}, 3),
        ([QUICK] * 2, 1, {}, 3),
        ([Shape(1, Size(5, 1), False)], 1, {}, 1),
    ],
)
def test_demand_is_what_runs_and_what_may_start_and_no_more_than_there_is(
    shapes: list[Shape], busy: int, starting: dict[Shape, int], wanted: int
) -> None:
    assert hosts_wanted(queue(*shapes), USABLE, busy, starting) == wanted


def test_units_of_one_shape_and_several_kinds_are_counted_together() -> None:
    found = queue(TWO)
    found.add(Place(0, 8, "8"), TWO, 0, Kind("a"))
    assert hosts_wanted(found, USABLE, 0, {}) == 1


def test_idle_hosts_of_no_use_are_wanted_beside_the_largest_number_once() -> None:
    idle = {Free.of(True, Size(4, 400)): 2, Free.of(True, Size(4, 400), ("fast",)): 1}
    assert hosts_wanted(queue(QUICK), USABLE, 0, {}, idle) == 3
    assert hosts_wanted(queue(QUICK), USABLE, 3, {}, idle) == 6
    assert hosts_wanted(queue(QUICK), USABLE, 4, {}, idle) == 6
    assert hosts_wanted(queue(ONE), USABLE, 0, {}, {Free.of(True, Size(1, 1)): 2}) == 1, (
        "only those with a constraint ask so"
    )
    tall = QUICK._replace(size=QUICK.size._replace(memory_mb=300))
    assert hosts_wanted(queue(QUICK, tall), USABLE, 0, {}, {Free.of(True, Size(4, 200), ("fast",)): 1}) == 3
    assert hosts_wanted(queue(tall, QUICK), USABLE, 0, {}, {Free.of(True, Size(4, 200), ("fast",)): 1}) == 3


def test_the_first_constraints_in_order_are_preferred() -> None:
    names = [f"c{n}" for n in range(PREFERRED_MAX + 1)]
    found = queue(ONE, *(ONE._replace(constraint=name) for name in reversed(names)))
    assert preferred(found) == tuple(names[:PREFERRED_MAX])
    assert preferred(queue(ONE)) == ()
    held_back = Queue(lambda _: 1.0)
    held_back.add(Place(0, 0, "7_0"), QUICK, 1)
    held_back.running = {"7": 1}
    assert preferred(held_back) == ()
    assert hosts_wanted(held_back, USABLE, 0, {}) == 0


# --------------------------------------------------------------------------------------------------------------- forecast


def unit(name: str, **fields: Any) -> Unit:
    given: dict[str, Any] = {"state": "open", "hosts": ("a",), "cores": 2, "memory_mb": 100, "placed_at": 10.0}
    return Unit(id=name, dept="hpc", **sized(given | fields))


KINDS = {"3": Kind("a", best_effort=True), "4": Kind("a"), "5": Kind("b", declared=True)}


def forecast(custody: Custody, *units: str) -> Forecast:
    return Forecast(
        *(custody, "hpc", lambda name, since: since + 100.0 * int(name), units),
        kind=lambda name: KINDS.get(name, PLAIN),
        waited_s=lambda name, since: since - 1.0,
    )


def test_an_end_is_counted_from_when_the_attempt_began_and_before_that_from_its_placement() -> None:
    one, other = unit("1"), unit("2", began_at=20.0, nodes=2, exclusive=True, grace_s=7.0)
    found = forecast(fold(units=[one, other]), "2", "1")
    assert found.endings == [
        Ending(110.0, "1", ("a",), Shape(1, Size(2, 100), False), PLAIN, 10.0, 9.0, 0.0),
        Ending(220.0, "2", ("a",), Shape(2, Size(2, 100), True), PLAIN, 20.0, 19.0, 7.0),
    ]
    one.began_at = 300.0
    found.unit_changed("1")
    assert [(each.unit, each.at, each.since) for each in found.endings] == [("2", 220.0, 20.0), ("1", 400.0, 300.0)]
    other.broken = Broken.VM_ENDED
    found.unit_changed("2")
    found.unit_changed("nobody")
    assert [each.unit for each in found.endings] == ["1"]
    early = unit("1", placed_at=None)
    assert forecast(fold(units=[early]), "1").endings[0].since == 0.0
    assert forecast(fold(units=[unit("1", began_at=0.0)]), "1").endings[0].since == 0.0


def test_what_production_has_is_counted_by_service_and_the_rest_by_name() -> None:
    units = [
        unit("3", exclusive=True),
        unit("4", nodes=2, cores=3),
        unit("5", exclusive=True, memory_mb=0),
        unit("6", cores=0, memory_mb=0),
        unit("7"),
    ]
    custody = fold(units=units)
    found = forecast(custody, "3", "4", "5", "6", "7")
    assert found.used == {"a": Size(6, 200), "b": Size(2), "": Size(2, 100)}
    assert ([*found.best_effort], [*found.declared], [*found.exclusive]) == (["3"], ["5"], ["5"])
    for one in units:
        one.state = "pending"
        found.unit_changed(one.id)
    assert found.views() == ([], {}, {}, {}, {}, {}, {})
    assert len(forecast(custody).views()) == 7


def test_expected_are_the_hosts_that_the_department_may_place_on() -> None:
    custody = fold(host("a"), host("b"), host("c", 8), host("d", cordoned="x"), host("e", dept="bio"))
    custody.state.hosts["f"] = host("f", state="draining")
    found = forecast(custody)
    assert [*found.held] == ["a", "b", "c"]
    for name in "abcdefg":
        found.host_changed(name)
    assert [*found.held] == ["a", "b", "c"]
    assert found.wholes == {Free.of(True, Size(4, 400)): 2, Free.of(True, Size(8, 400)): 1}
    custody.state.hosts["a"].units = {"1": None, "2": None}
    custody.state.hosts["a"].used = custody.state.hosts["a"].used._replace(cores=3)
    found.host_changed("a")
    assert found.held["a"] == Free.of(True, Size(4, 400)), "it is what it will be once it is empty"
    assert (found.units("a"), found.units("b")) == (2, 0)
    custody.state.hosts["b"].size = custody.state.hosts["b"].size._replace(cores=8)
    del custody.state.hosts["a"]
    for name in "ab":
        found.host_changed(name)
    assert (found.held, found.wholes) == (
        dict.fromkeys("bc", Free.of(True, Size(8, 400))),
        {Free.of(True, Size(8, 400)): 2},
    )
    assert not found.could_hold(Shape(3, Size(1, 1), False))
    assert found.could_hold(Shape(2, Size(8, 400), True))
    assert not found.could_hold(Shape(2, Size(9, 400), False))


def test_a_host_that_satisfies_other_constraints_is_another_host() -> None:
    custody = fold(host("a"))
    meant: dict[str, tuple[str, ...]] = {"a": ("fast",)}
    found = Forecast(custody, "hpc", lambda _name, _since: 0.0, [], serves=lambda one: meant[one.name])
    meant["a"] = ()
    found.host_changed("a")
    assert found.wholes == {Free.of(True, Size(4, 400)): 1}
