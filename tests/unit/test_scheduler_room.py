"""Room against the plain way of it: what each host offers, classes in order, what is set apart, best fit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import deepcopy

import pytest

from schemas.size import Size
from services.domain.constraints import satisfies
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Shape

NAMES = [f"h{n:02}" for n in range(14)]
CONSTRAINTS = ("fast", "gpu=yes")
SHAPES = [
    Shape(nodes, Size(cores, memory_mb), exclusive, constraint)
    for nodes in (1, 2, 5)
    for cores in (1, 4)
    for memory_mb in (0, 100, 300)
    for exclusive in (False, True)
    for constraint in ("", *CONSTRAINTS)
]


def held(*hosts: Host, at: float = 100.0) -> Custody:
    custody = Custody()
    custody.state.at = at
    custody.state.hosts = {host.name: host for host in hosts}
    custody.index.held = {"hpc": dict.fromkeys(host.name for host in hosts if host.dept == "hpc")}
    return custody


def host(name: str, **fields: object) -> Host:
    given = {"size": Size(4, 400), "state": "held", "dept": "hpc"} | fields
    return Host(name=name, **given)  # type: ignore[arg-type]


def serves(one: Host, constraints: Sequence[str]) -> tuple[str, ...]:
    return tuple(c for c in constraints if satisfies(one.name, one.cluster, one.labels, c))


def offers(one: Host, constraints: Sequence[str]) -> Free:
    left = Size(one.size.cores - one.used.cores, one.size.memory_mb - one.used.memory_mb)
    return Free.of(not one.units, left, serves(one, constraints))


def is_in(one: Host) -> bool:
    return one.state == "held" and one.dept == "hpc"


def set_apart(one: Host, at: float) -> bool:
    return one.cordoned is not None or one.exclusive or one.quarantine_until > at


def plain(custody: Custody, constraints: Sequence[str]) -> tuple[object, ...]:
    at, ours = custody.state.at, [one for one in custody.state.hosts.values() if is_in(one)]
    free = {one.name: offers(one, constraints) for one in ours if not set_apart(one, at)}
    classes = {each: sorted(name for name in free if free[name] == each) for each in free.values()}
    resting = {one.name: one.quarantine_until for one in ours if one.quarantine_until > at and one.cordoned is None}
    cordoned = {one.name: NEVER if one.drain_until is None else one.drain_until for one in ours if one.cordoned}
    return free, classes, sorted(classes), resting, {one.name: None for one in ours if one.units}, cordoned


def views(room: Room) -> tuple[object, ...]:
    return room.free, room.classes, room.order, room.resting, room.busy, room.cordoned


def changed(rng: random.Random, one: Host) -> None:
    """Something about the host is otherwise."""
    what = rng.randrange(8)
    if what == 0:
        one.state, one.dept = rng.choice([("held", "hpc"), ("held", "bio"), ("free", None), ("draining", "hpc")])  # type: ignore[assignment]
    elif what == 1:
        one.cordoned, one.drain_until = rng.choice([("repair", None), ("repair", 150.0), (None, None)])
    elif what == 2:
        one.quarantine_until = rng.choice([0.0, 100.0, 110.0, 130.0])
    elif what == 3:
        one.labels = rng.choice([{}, {"FAST": "1"}, {"GPU": "yes"}, {"GPU": "yes", "FAST": "no"}])
    elif what == 4:
        one.units, one.used, one.exclusive = {"1": None}, Size(1, 100), True
    elif what == 5:
        one.units, one.used, one.exclusive = {}, Size(), False
    else:
        memory_mb = rng.choice([0, 50, 200])
        one.units, one.used, one.exclusive = {"1": None}, Size(rng.randrange(5), memory_mb), False


def more(now: Free | None, then: Free | None) -> bool:
    """Something may fit on such a host that did not."""
    if now is None:
        return False
    return (
        then is None
        or now.serves != then.serves
        or any(a > b for a, b in zip((now.empty, *now.size), (then.empty, *then.size), strict=True))
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_room_that_follows_is_a_room_made_anew(seed: int) -> None:
    rng = random.Random(seed)
    custody = held(*(host(name) for name in NAMES))
    constraints = CONSTRAINTS if seed % 2 else ()
    room = Room.of(custody, "hpc", constraints)
    assert room.grew
    for _ in range(30):
        names = rng.sample(NAMES, rng.choice([1, 2, 4, 5, 9]))
        if rng.random() < 0.5:  # those that lie together
            first = rng.randrange(len(NAMES) - len(names))
            names = NAMES[first : first + len(names)]
        how = rng.random()
        for name in names:
            changed(random.Random(how), custody.state.hosts[name])
            if rng.random() < 0.2:
                changed(rng, custody.state.hosts[name])
        before, room.grew = dict(room.free), False
        room.update(custody, "hpc", names)
        assert views(room) == plain(custody, constraints)
        assert room.grew is any(more(room.free.get(name), before.get(name)) for name in names)
        custody.index.held = {"hpc": {name: None for name, one in custody.state.hosts.items() if is_in(one)}}
        assert views(Room.of(custody, "hpc", constraints)) == views(room)


def mixed(seed: int) -> Custody:
    """Hosts of which each offers something else, some none."""
    rng, custody = random.Random(seed), held(*(host(name) for name in NAMES))
    for one in custody.state.hosts.values():
        for _ in range(rng.randrange(4)):
            changed(rng, one)
    custody.index.held = {"hpc": {name: None for name, one in custody.state.hosts.items() if is_in(one)}}
    return custody


def best_fit(room: Room, shape: Shape) -> list[str]:
    """Those with room for a rank, best first."""
    fitting = []
    for name, free in room.free.items():
        enough = free.size.cores >= shape.size.cores and free.size.memory_mb >= shape.size.memory_mb
        meant = not shape.constraint or shape.constraint in free.serves
        if enough and meant and (free.empty or not shape.exclusive):
            fitting.append((free.empty, free.size, free.serves, name))
    return [name for *_, name in sorted(fitting)]


def after(room: Room, hosts: Sequence[str], shape: Shape) -> dict[str, Free]:
    left = {name: free for name, free in room.free.items() if name not in hosts or not shape.exclusive}
    for name in [] if shape.exclusive else hosts:
        left[name] = Free.of(False, room.free[name].size.minus(shape.size), room.free[name].serves)
    return left


def tidy(room: Room) -> bool:
    classes = {each: sorted(name for name in room.free if room.free[name] == each) for each in room.free.values()}
    return room.classes == classes and room.order == sorted(classes)


@pytest.mark.parametrize("seed", range(40))
def test_hosts_are_chosen_by_best_fit_and_their_room_is_used_up(seed: int) -> None:
    rng, room = random.Random(seed), Room.of(mixed(seed), "hpc", CONSTRAINTS)
    for shape in rng.sample(SHAPES, 20):
        best, then = best_fit(room, shape), deepcopy(room.free)
        expected = tuple(best[: shape.nodes]) if len(best) >= shape.nodes else None
        assert room.count(shape) == len(best)
        assert room.fits(shape) is (expected is not None)
        assert room.pick(shape) == expected
        assert room.free == then
        twin = room.copy()
        left = then if expected is None else after(room, expected, shape)
        assert room.take(shape) == expected
        if expected is not None:
            assert twin.free == then, "a copy is one to plan in"
            twin.use(expected, shape)
            assert (twin.free, twin.classes, twin.order) == (room.free, room.classes, room.order)
        assert room.free == left
        assert tidy(room)


def test_a_host_that_is_gone_is_in_no_room() -> None:
    custody = held(host("a"), host("b", units={"1": None}))
    room = Room.of(custody, "hpc")
    custody.state.hosts.clear()
    room.update(custody, "hpc", ["a", "b"])
    assert views(room) == ({}, {}, [], {}, {}, {})
    assert Room.of(held(host("a"), host("b")), "hpc").fits(Shape(2, Size(4, 400), True))
    assert Room.of(held(), "hpc").grew, "nobody has looked at it yet"


def test_a_copy_knows_constraints_and_nothing_of_hosts_that_are_set_apart() -> None:
    custody = held(host("a"), host("b", quarantine_until=200.0), host("c", cordoned="x"), host("d", units={"1": None}))
    room = Room.of(custody, "hpc", CONSTRAINTS)
    twin = room.copy()
    assert (twin.free, twin.classes, twin.order, twin.constraints) == (room.free, room.classes, room.order, CONSTRAINTS)
    assert (twin.resting, twin.cordoned, twin.busy) == ({}, {}, {})
    twin.take(Shape(1, Size(1, 1), False))
    twin.offer("e", Free.of(True, Size(1, 1)))
    assert tidy(room)
    assert [*room.free] == ["a", "d"]


def test_what_a_host_offers_from_now_on_takes_the_place_of_what_it_did() -> None:
    room = Room.of(held(host("a"), host("b")), "hpc")
    for name, free in [
        ("a", Free.of(False, Size(2, 100))),
        ("c", Free.of(False, Size(2, 100))),
        ("a", Free.of(True, Size(4, 400))),
    ]:
        room.offer(name, free)
        assert room.free[name] == free
        assert tidy(room)
    assert [*room.free] == ["a", "b", "c"]


def test_hosts_that_have_rested_are_in_at_that_moment_and_not_before() -> None:
    custody = held(
        host("a", quarantine_until=110.0),
        host("b", quarantine_until=120.0, units={"1": None}, used=Size(3, 300)),
        host("c", quarantine_until=120.0, labels={"FAST": "1"}),
        host("d"),
        host("e", quarantine_until=110.0, units={"1": None}, exclusive=True),  # taken as a whole: its end gives no room
    )
    room = Room.of(custody, "hpc", ("fast",))
    assert Room.of(held(host("d")), "hpc").next_rested() == NEVER
    assert room.next_rested() == 110.0
    assert room.rested(custody, 109.0) is room
    some = room.rested(custody, 110.0)
    assert ([*some.free], some.resting) == (["d", "a"], {"b": 120.0, "c": 120.0})
    every = room.rested(custody, 120.0)
    assert every.free == {
        "a": Free.of(True, Size(4, 400)),
        "b": Free.of(False, Size(1, 100)),
        "c": Free.of(True, Size(4, 400), ("fast",)),
        "d": Free.of(True, Size(4, 400)),
    }
    assert every.resting == {}
    assert tidy(every)
    assert [*room.free] == ["d"], "asking what will be changes nothing"
    custody.state.at = 120.0
    room.wake(custody, "hpc")
    assert (room.free, room.classes, room.order) == (every.free, every.classes, every.order)


def test_labels_make_classes_only_where_jobs_have_constraints() -> None:
    custody = held(host("a", labels={"FAST": "1"}), host("b"))
    room = Room.of(custody, "hpc")
    assert (room.constraints, room.classes) == ((), {Free.of(True, Size(4, 400)): ["a", "b"]})
    room.constrain(custody, "hpc", ("fast",))
    assert (room.constraints, room.free["a"].serves, room.free["b"].serves) == (("fast",), ("fast",), ())
    custody.state.hosts["b"].labels = {"FAST": "1"}
    room.update(custody, "hpc", ["b"])
    assert room.classes == {Free.of(True, Size(4, 400), ("fast",)): ["a", "b"]}
    room.constrain(custody, "hpc", ("gpu",))
    assert room.classes == {Free.of(True, Size(4, 400)): ["a", "b"]}
