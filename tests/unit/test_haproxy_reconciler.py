"""From instances and slots to commands: one step at a time, and never a wrong one."""

from __future__ import annotations

import pytest

from phoenix.haproxy.reconciler import (
    Command,
    DeclareDown,
    Drain,
    Maint,
    Plan,
    Ready,
    Server,
    SetAddress,
    SetLimit,
    SetPath,
    SetWeight,
    plan,
    weight_of,
)
from phoenix.haproxy.slots import Ordered, Slot
from phoenix.haproxy.table import Wanted
from tests.support.haproxy_model import Model

HERE = "10.0.0.1"


def wanted(number: int, *, path: str = "/healthz", **more: object) -> Wanted:
    return Wanted(f"web.{number}", 1, 0, (HERE, 8000 + number), health_path=path, **more)  # type: ignore[arg-type]


def slot(number: int, port: int = 1, ordered: Ordered = "maint", **more: object) -> Slot:
    values: dict[str, object] = {
        "is_up": ordered != "maint",
        "is_checked": True,
        "weight": 1,
        "path": "/healthz",
        **more,
    }
    return Slot(f"phoenix{number}", (HERE, port), ordered, **values)  # type: ignore[arg-type]


def commands(planned: Plan) -> dict[str, tuple[Command, ...]]:
    return {order.slot: order.commands for order in planned.orders}


@pytest.mark.parametrize(
    ("instances", "slots", "expected"),
    [
        # a new instance takes a free slot: first its address …
        ([wanted(1)], [slot(1), slot(2)], {"phoenix1": (SetAddress((HERE, 8001)),)}),
        ([wanted(1, cores=4)], [slot(1)], {"phoenix1": (SetWeight(4), SetAddress((HERE, 8001)))}),
        # … then, when HAProxy has it, drain …
        ([wanted(1)], [slot(1, 8001), slot(2)], {"phoenix1": (Drain(),)}),
        ([wanted(1)], [slot(1, 8001), slot(2, 8001)], {"phoenix1": (Drain(),)}),
        # … and ready as one that is down, until a check has passed
        ([wanted(1)], [slot(1, 8001, "drain")], {"phoenix1": (DeclareDown(), Ready())}),
        ([wanted(1)], [slot(1, 8001, "ready")], {}),
        ([wanted(1)], [slot(1, 8001, "ready", is_up=False)], {}),  # its health is HAProxy's business
        ([wanted(1, cores=8)], [slot(1, 8001, "ready")], {"phoenix1": (SetWeight(8),)}),
        # draining: no new requests; it keeps its slot until it is closed
        ([wanted(1, draining=True)], [slot(1, 8001, "ready")], {"phoenix1": (Drain(),)}),
        ([wanted(1, draining=True)], [slot(1, 8001, "drain", sessions=3)], {}),
        ([wanted(1, draining=True)], [slot(1, 8001, "drain")], {}),
        ([wanted(1, draining=True)], [slot(1)], {}),
        # closed: out, whatever it still works on
        ([], [slot(1, 8001, "drain", sessions=3)], {"phoenix1": (Maint(),)}),
        ([], [slot(1, 8001, "ready")], {"phoenix1": (Maint(),)}),
        ([], [slot(1, 8001)], {}),
        # two slots with one address: the later one goes, and not before it is quiet
        ([wanted(1)], [slot(1, 8001, "ready"), slot(2, 8001, "ready", sessions=1)], {"phoenix2": (Drain(),)}),
        ([wanted(1)], [slot(1, 8001, "ready"), slot(2, 8001, "drain", sessions=1)], {}),
        ([wanted(1)], [slot(1, 8001, "ready"), slot(2, 8001, "drain", queued=1)], {}),
        ([wanted(1)], [slot(1, 8001, "ready"), slot(2, 8001, "drain")], {"phoenix2": (Maint(),)}),
        ([wanted(1)], [slot(1, 8001, "drain"), slot(2, 8001, "ready")], {"phoenix1": (Maint(),)}),
        # a check that had begun for the last instance would pass for the next one
        ([wanted(1)], [slot(1, is_checking=True), slot(2)], {"phoenix2": (SetAddress((HERE, 8001)),)}),
        ([wanted(1)], [slot(1, 8001, is_checking=True)], {}),
        # the health path of what it runs, and how many requests it may have: before anything goes there …
        ([wanted(1, path="/up")], [slot(1)], {"phoenix1": (SetPath("/up", is_new=False), SetAddress((HERE, 8001)))}),
        ([wanted(1, path="/up")], [slot(1, 8001, path="")], {"phoenix1": (SetPath("/up", is_new=True),)}),
        ([wanted(1, connections=4)], [slot(1, limit=64)], {"phoenix1": (SetLimit(4), SetAddress((HERE, 8001)))}),
        ([wanted(1, connections=4)], [slot(1, 8001, limit=64)], {"phoenix1": (SetLimit(4), Drain())}),
        # … and whenever they are not what they should be
        ([wanted(1, path="/up")], [slot(1, 8001, "ready", path="")], {"phoenix1": (SetPath("/up", is_new=True),)}),
        ([wanted(1, connections=4)], [slot(1, 8001, "ready", limit=64)], {"phoenix1": (SetLimit(4),)}),
        ([wanted(1, connections=4)], [slot(1, 8001, "ready", limit=4)], {}),
        ([wanted(1, connections=0)], [slot(1, 8001, "ready", limit=64)], {}),  # nobody has said it
        # nobody has said what it is asked for: it could pass for well at another path
        ([wanted(1, path="")], [slot(1)], {}),
        (
            [wanted(1, path="")],
            [slot(1, 8001, "ready", path="/up")],
            {},
        ),  # a successor at the address: the audit is near
        # slots of the department's own making have no health check: nothing goes there
        ([wanted(1)], [slot(1, is_checked=False)], {}),
    ],
)
def test_one_step_in_whatever_order_slots_are_listed(
    instances: list[Wanted], slots: list[Slot], expected: dict[str, tuple[Command, ...]]
) -> None:
    assert commands(plan(instances, slots)) == expected
    assert commands(plan(instances, slots[::-1])) == expected


def test_a_free_slot_that_has_the_address_goes_first_then_the_quiet_one_then_by_name() -> None:
    slots = [slot(1, sessions=2), slot(2), slot(10), slot(3, 8007)]
    planned = plan([wanted(1), wanted(7), wanted(2), wanted(3)], slots)
    assert commands(planned) == {
        "phoenix2": (SetAddress((HERE, 8001)),),
        "phoenix3": (Drain(),),
        "phoenix10": (SetAddress((HERE, 8002)),),
        "phoenix1": (SetAddress((HERE, 8003)),),
    }


def test_who_has_a_slot_keeps_it_and_the_last_to_come_wait() -> None:
    slots = [slot(1, 8003, "ready"), slot(2)]
    planned = plan([wanted(1), wanted(2), wanted(3)], slots)
    assert [one.unit for one in planned.waiting] == ["web.2"]
    assert commands(planned) == {"phoenix2": (SetAddress((HERE, 8001)),)}


def test_a_slot_that_becomes_free_in_this_step_is_not_given_away_in_it() -> None:
    planned = plan([wanted(2)], [slot(1, 8001, "ready")])
    assert commands(planned) == {"phoenix1": (Maint(),)}
    assert [one.unit for one in planned.waiting] == ["web.2"]


def test_one_that_waits_for_the_end_of_a_check_does_not_want_for_slots() -> None:
    assert plan([wanted(1)], [slot(1, is_checking=True)]).waiting == ()


def test_slots_without_checks_are_named() -> None:
    assert plan([], [slot(1, is_checked=False), slot(2)]).unchecked == ("phoenix1",)


def test_the_weight_is_the_cores_within_haproxys_bounds() -> None:
    assert [weight_of(cores) for cores in (0.05, 1.0, 2.0, 8.0, 1000.0)] == [1, 1, 2, 8, 256]


def test_a_whole_life_in_four_looks() -> None:
    model = Model(2, listening={(HERE, 8001): "/healthz"})
    one = wanted(1)
    served = []
    for _ in range(4):
        model.obey(plan([one], model.slots()).orders)
        served.append(model.servers[0].serves)
    assert served == [False, False, False, False]  # ready, and down until it is seen healthy
    model.check()
    assert model.servers[0].serves
    one.draining = True
    model.obey(plan([one], model.slots()).orders)
    assert model.servers[0].ordered == "drain"
    model.obey(plan([], model.slots()).orders)
    assert model.servers[0].ordered == "maint"


def test_without_a_map_of_health_paths_everything_is_checked_where_the_configuration_says() -> None:
    slots = [slot(1, 8001, path=""), slot(2, 8002, "ready", path=""), slot(3, path="")]
    planned = plan([wanted(1, path="/up"), wanted(2, path="/up"), wanted(3, path="/up")], slots, has_map=False)
    assert commands(planned) == {"phoenix1": (Drain(),), "phoenix3": (SetAddress((HERE, 8003)),)}


def test_one_whose_health_path_is_not_known_yet_does_not_want_for_slots() -> None:
    assert plan([wanted(1, path="")], []).waiting == ()


def test_the_words_are_haproxys() -> None:
    server = Server("web", "phoenix1", "/h.map")
    said = [command.text(server) for command in (SetAddress((HERE, 80)), SetWeight(3), Drain(), DeclareDown())]
    assert said == [
        "set server web/phoenix1 addr 10.0.0.1 port 80",
        "set server web/phoenix1 weight 3",
        "set server web/phoenix1 state drain",
        "set server web/phoenix1 health down",
    ]
    more = (Ready(), Maint(), SetLimit(4), SetPath("/up", is_new=True), SetPath("/up?a=1", is_new=False))
    assert [command.text(server) for command in more] == [
        "set server web/phoenix1 state ready",
        "set server web/phoenix1 state maint",
        "set maxconn server web/phoenix1 4",
        "add map /h.map phoenix1 /up",
        "set map /h.map phoenix1 /up?a=1",
    ]
