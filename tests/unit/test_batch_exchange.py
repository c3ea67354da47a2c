"""Which of several equal hosts a start gets, and what the balancer is told of hosts and their machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance, CloudConfig, Warm
from schemas.facts import Disposal
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Unit, Vm, vm_key
from services.scheduler.core.batch.affinity import Unexchanged, settle
from services.scheduler.core.batch.rebalance import Rebalance, able
from services.scheduler.core.batch.state import Again, Job, State
from services.scheduler.core.batch.view import View
from services.scheduler.core.policies.balance import Load, Machine
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Booking, Shape, Start
from tests.support.sizes import sized
from tests.support.world import batch, cloud

AT = 10_000.0
ONE, WIDE = Shape(1, Size(1, 100), False), Shape(2, Size(1, 100), False)


class Parked(msgspec.Struct):
    host: str
    user: str = "ann"
    cores: int = 1
    memory_mb: int = 100
    dept: str = "hpc"


def given(
    *parked: Parked,
    hosts: dict[str, int],
    origin: Sequence[str] = (),
    shuns: Sequence[str] = (),
    share: Any = "user",
    empty_only: bool = False,
) -> tuple[Room, Unexchanged]:
    """`hosts`: their cores in use.  `origin` is that of unit 1, and so is `shuns`."""
    custody, was = Custody(), {}
    for name, used in hosts.items():
        units = {"u": None} if used else {}
        custody.state.hosts[name] = Host(
            name=name, size=Size(4, 400), state="held", dept="hpc", used=Size(used), units=units
        )
    custody.index.held = {"hpc": dict.fromkeys(hosts)}
    for number, each in enumerate(parked, start=100):
        unit, key = str(number), vm_key(str(number), 1, 0)
        custody.state.units[unit] = Unit(id=unit, dept=each.dept, size=Size(each.cores, each.memory_mb))
        custody.state.vms[key] = Vm(unit=unit, attempt=1, rank=0, vm=number, host=each.host, allocated_at=0.0)
        custody.index.parked.setdefault(each.host, {})[key] = None
        if each.user:
            was[unit] = each.user
    custody.index.saved = {"1": {}} if origin else {}
    return Room.of(custody, "hpc"), Unexchanged(
        *(custody, "hpc", Warm(idle_s=60.0, share=share), lambda unit: "bob" if unit == "7" else "ann", was),
        *(lambda unit: tuple(origin) if unit == "1" else (), lambda unit: tuple(shuns) if unit == "1" else ()),
        empty_only,
    )


def start(unit: str, *hosts: str, shape: Shape = ONE, victims: Sequence[str] = ()) -> Start:
    return Start(unit, shape._replace(nodes=len(hosts)), hosts, because.FirstFit(), tuple(victims))


def settled(site: tuple[Room, Unexchanged], *starts: Start) -> list[tuple[str, ...]]:
    return [each.hosts for each in settle(list(starts), *site)]


EMPTY = dict.fromkeys("abcd", 0)
MIXED = {"a": 1, "b": 1, "c": 0, "d": 0}


@pytest.mark.parametrize(
    ("hosts", "origin", "planned", "expected"),
    [
        (EMPTY, ("d",), ("a",), ("d",)),
        (EMPTY, ("a",), ("a",), ("a",)),
        (EMPTY, ("c", "a"), ("a", "b"), ("c", "a")),
        (EMPTY, ("", "d"), ("a", "b"), ("a", "d")),
        (EMPTY, ("d",), ("a", "b"), ("d", "b")),
        (EMPTY, ("gone",), ("a",), ("a",)),
        (EMPTY, ("c", "c"), ("a", "b"), ("c", "b")),  # each host once
        (MIXED, ("d",), ("a",), ("a",)),  # what it offers is something else
        (MIXED, ("b",), ("a",), ("b",)),
    ],
)
def test_who_was_suspended_goes_home_rank_by_rank_where_that_is_as_good(
    hosts: dict[str, int], origin: tuple[str, ...], planned: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert settled(given(hosts=hosts, origin=origin), start("1", *planned)) == [expected]


def test_whoever_follows_goes_where_the_first_one_was_planned() -> None:
    site = given(hosts=EMPTY, origin=("c",))
    assert settled(site, start("1", "a"), start("2", "a"), start("3", "c")) == [("c",), ("c",), ("a",)]
    assert settled(site, start("2", "c"), start("1", "a")) == [("c",), ("a",)], "its home is settled already"


@pytest.mark.parametrize(("empty_only", "host"), [(False, "b"), (True, "a")])
def test_where_the_order_looks_ahead_only_empty_hosts_are_exchanged(empty_only: bool, host: str) -> None:
    assert settled(given(hosts=MIXED, origin=("b",), empty_only=empty_only), start("1", "a")) == [(host,)]
    assert settled(given(hosts=MIXED, origin=("d",), empty_only=empty_only), start("1", "c")) == [("d",)]


def test_hosts_where_somebody_makes_way_stay_as_they_are() -> None:
    site = given(hosts=EMPTY, origin=("a",))
    moved = settled(site, start("1", "b"), start("2", "a", victims=["9"]))
    assert moved == [("b",), ("a",)]
    assert settled(site, start("1", "b", victims=["9"])) == [("b",)]
    away = settled(site, start("1", "gone"))
    assert away == [("gone",)]
    assert settled(given(hosts=EMPTY, origin=("a",), empty_only=True), start("1", "gone")) == [("gone",)]


@pytest.mark.parametrize(
    ("shuns", "planned", "expected"),
    [
        (("a",), ("a",), ("b",)),
        (("b",), ("a",), ("a",)),
        (("a", "b"), ("a",), ("c",)),
        (("a", "b", "c", "d"), ("a",), ("a",)),
        (("b", "a", "d", "c"), ("a",), ("b",)),
        (("x", "b", "a", "c", "d"), ("a",), ("b",)),
        (("a",), ("a", "b"), ("b", "c")),
        (("a", "b"), ("a", "b"), ("c", "d")),
    ],
)
def test_who_failed_goes_elsewhere_or_where_that_was_longest_ago(
    shuns: tuple[str, ...], planned: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    found = settled(given(hosts=EMPTY, shuns=shuns), start("1", *planned), start("2", "d"))
    assert found[0] == expected
    assert settled(given(hosts={**MIXED, "b": 0}, shuns=("a",)), start("1", "a")) == [("a",)], "no other is equal"


@pytest.mark.parametrize(
    ("parked", "share", "fields", "host"),
    [
        (Parked("c"), "user", {}, "c"),
        (Parked("c", user="bob"), "user", {}, "a"),
        (Parked("c", user="bob"), "department", {}, "c"),
        (Parked("c", user=""), "department", {}, "c"),
        (Parked("c", user=""), "user", {}, "a"),
        (Parked("c", cores=2), "user", {}, "a"),
        (Parked("c", memory_mb=200), "user", {}, "a"),
        (Parked("c", dept="bio"), "user", {}, "a"),
        (Parked("gone"), "user", {}, "a"),
        (Parked("c"), "user", {"exclusive": True}, "a"),
    ],
)
def test_a_machine_waits_for_a_job_of_its_size_and_its_user(
    parked: Parked, share: Any, fields: dict[str, Any], host: str
) -> None:
    site = given(parked, hosts=EMPTY, share=share)
    assert settled(site, start("2", "a", shape=ONE._replace(**fields))) == [(host,)]
    assert settled(given(Parked("b"), hosts=EMPTY), start("2", "a", "c", shape=WIDE)) == [("a", "c")]
    assert settled(given(Parked("b"), hosts={"a": 0, "b": 1}), start("2", "a")) == [("a",)]


def test_each_machine_serves_one_and_who_has_one_stays() -> None:
    site = given(Parked("b"), Parked("d"), Parked("d"), hosts=EMPTY)
    assert settled(site, start("2", "d"), start("3", "a")) == [("d",), ("b",)]
    first = settled(given(Parked("d"), Parked("b"), hosts=EMPTY), start("2", "a"))
    assert first == [("b",)], "the first by name"
    assert settled(given(Parked("a"), hosts=EMPTY), start("2", "a"), start("7", "a")) == [("a",), ("a",)]
    four = settled(site, start("2", "a"), start("3", "c"), start("4", "b"), start("5", "d"))
    assert four == [("b",), ("d",), ("a",), ("c",)]
    assert settled(site, start("2", "b"), start("3", "b")) == [("b",), ("b",)]


def test_failing_that_a_host_where_nothing_waits_is_taken() -> None:
    site = given(Parked("a"), Parked("b"), hosts=EMPTY)
    bob = settled(site, start("7", "a"), start("7", "b"))
    assert bob == [("c",), ("d",)]
    assert settled(site, start("7", "c"), start("7", "a")) == [("c",), ("d",)]
    full = given(*map(Parked, "abcd"), hosts=EMPTY)
    assert settled(full, start("7", "b")) == [("b",)], "there is none left"


def test_where_nothing_waits_is_saved_or_has_failed_the_plan_is_taken_as_it_is() -> None:
    plan = [start("2", "b")]
    assert settle(plan, *given(hosts=EMPTY)) is plan
    assert settle(plan, *given(hosts=EMPTY, shuns=("b",))) is plan
    both = given(hosts=EMPTY, shuns=("b",))
    assert settled(both, start("2", "a"), start("1", "b")) == [("a",), ("c",)]


# -------------------------------------------------------------------------------------------------------------- balancing

RULES = Balance(enabled=True)
CAN: CloudConfig = msgspec.structs.replace(cloud(batch("hpc")), capabilities=("live_migration",))


def job(**fields: Any) -> Job:
    given_: dict[str, Any] = {"nodes": 1, "cores": 2, "memory_mb": 64, "exclusive": False, "walltime_s": 100.0}
    given_ |= {"priority": 0, "on_reclaim": None, "array": (), "throttle": 0, "after": (), "entered": 0, "left": 1}
    return Job(**sized(given_ | fields))


def unit(name: str, **fields: Any) -> Unit:
    given_: dict[str, Any] = {
        "state": "open",
        "attempt": 3,
        "cores": 2,
        "memory_mb": 64,
        "hosts": ("a",),
        "began_at": AT - 30.0,
    }
    return Unit(id=name, dept="hpc", **sized(given_ | fields))


def balancing(*units: Unit, used: dict[str, float], jobs: dict[str, Job] | None = None) -> Rebalance:
    """Hosts a to d of 8 cores; c is cordoned.  Each unit's VM is up."""
    custody = Custody()
    custody.state.at, custody.state.config = AT, CAN
    for name in "abcd":
        here = {one.id: None for one in units if name in one.hosts}
        cordoned = "x" if name == "c" else None
        host = Host(name=name, size=Size(8, 400), state="held", dept="hpc", units=here, cordoned=cordoned)
        host.used = Size(2, 64).times(len(here))
        custody.state.hosts[name] = host
    custody.index.held = {"hpc": dict.fromkeys("abcd")}
    for number, one in enumerate(units):
        vm = Vm(unit=one.id, attempt=3, rank=0, vm=number, host="a", allocated_at=0.0, started_at=AT - 40.0)
        custody.state.units[one.id] = one
        custody.state.vms[vm_key(one.id, 3, 0)] = vm
    state = State(jobs={one.id: job() for one in units} if jobs is None else jobs, used=dict(used))
    return Rebalance(View(custody, "hpc", state))


def loads(found: Rebalance, **settings: Any) -> list[Load]:
    return found._loads(msgspec.structs.replace(RULES, **settings), AT)


BUSY = {"d": 0.1, "b": 0.5, "a": 0.9, "c": 0.9, "gone": 0.9}


def test_hosts_are_told_in_order_with_the_machines_of_those_that_may_give() -> None:
    found = balancing(unit("10"), unit("9"), used=BUSY)
    found.state.again["9"] = Again(entered=0, moved=2)
    machines = (Machine("9", Size(2, 64), 70.0, 2), Machine("10", Size(2, 64), 70.0, 0))
    assert loads(found) == [
        Load("a", 0.9, Size(8, 400), Size(4, 272), 2, machines),
        Load("b", 0.5, Size(8, 400), Size(8, 400), 0),
        Load("d", 0.1, Size(8, 400), Size(8, 400), 0),
    ]


@pytest.mark.parametrize(
    ("use", "power_saving", "gives"),
    [
        (0.75, False, False),
        (0.76, False, True),
        (0.1, False, False),
        (0.1, True, True),
        (0.25, True, False),
        (0.5, True, False),
    ],
)
def test_a_host_gives_above_the_band_and_to_save_power_below_it(use: float, power_saving: bool, gives: bool) -> None:
    found = balancing(unit("1"), used={"a": use, "b": 0.5})
    assert bool(loads(found, high=0.75, low=0.25, power_saving=power_saving)[0].machines) is gives


@pytest.mark.parametrize(
    ("fields", "its", "up", "moves"),
    [
        ({}, {}, True, True),
        ({"nodes": 2}, {}, True, False),
        ({"began_at": None}, {}, True, False),
        ({"held": True}, {}, True, False),
        ({"cancelled": True}, {}, True, False),
        ({}, None, True, False),
        ({}, {"constraint": "fast"}, True, False),
        ({}, {"lease": f.Lease(kind="advance", start_at=AT)}, True, False),
        ({}, {"lease": f.Lease(kind="best-effort")}, True, True),
        ({}, {}, False, False),
        ({}, {}, None, False),
    ],
)
def test_who_may_move(fields: dict[str, Any], its: dict[str, Any] | None, up: bool | None, moves: bool) -> None:
    found = balancing(unit("1", **fields), used=BUSY, jobs={} if its is None else {"1": job(**its)})
    if up is None:
        found.custody.state.vms.clear()
    elif not up:
        found.custody.state.vms[vm_key("1", 3, 0)].started_at = None
    assert bool(loads(found)[0].machines) is moves


def test_what_does_not_allow_it_is_asked_first() -> None:
    assert balancing(used=BUSY)._may(RULES)
    assert not balancing(used=BUSY)._may(Balance())
    assert not balancing(used={"a": 0.9})._may(RULES)
    assert balancing(used={"a": 0.9, "b": 0.1})._may(RULES)
    found = balancing(used=BUSY)
    found.jobs.queue.book(Booking(1.0, 1, "9", 2.0, ONE))
    assert not found._may(RULES)
    assert not able(None)
    assert not able(cloud(batch("hpc")))


def test_a_move_is_a_closing_and_a_placement_and_says_what_it_was_for() -> None:
    units = [unit(str(n), memory_mb=20) for n in range(1, 5)]
    found = balancing(*units, used={"a": 0.95444, "b": 0.05})
    settings = msgspec.structs.replace(RULES, mb_per_s=7.0)
    closing, placement = found.facts(settings, AT)
    told = {"host": "a", "to": "b", "used_pct": 95.4, "cost_s": 2.857}
    assert closing == f.AttemptClosed(
        unit="1",
        attempt=3,
        disposal=Disposal.MIGRATE,
        why=because.Balanced(**told),  # type: ignore[arg-type]
    )
    why = because.Balanced(from_hosts=["a"])
    assert placement == f.UnitPlaced(
        unit="1", attempt=4, hosts=("b",), cores=2, memory_mb=20, reason=why, moved_from=("a",)
    )
    assert found.facts(Balance(), AT) == []
    found.forget(placement)
    assert found.state.used == {}


def test_what_is_told_of_a_host_is_remembered_while_custody_knows_it() -> None:
    found = balancing(used={})
    for host in ("a", "gone"):
        found.observed(f.HostObserved(host=host, cpu=0.4, memory=0.2))
    assert found.state.used == {"a": 0.4}
    found.forget(f.HostLost(host="b", reason="x"))
    found.forget(f.HostLost(host="a", reason="x"))
    assert found.state.used == {}
