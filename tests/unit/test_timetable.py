"""The timetable of leases, by hand: what is exact, what is refused although luck could place it, and what is told."""

from __future__ import annotations

from schemas.size import Size
from services.domain.shape import Shape
from services.domain.timetable import Collision, Ground, Most, Slot, Timetable

HOSTS = [Size(4, 4096)] * 4


def slot(
    lease: str, start: float, end: float, nodes: int, cores: int = 4, memory_mb: int = 256, *, whole: bool = False
) -> Slot:
    return Slot(lease, start, end, Shape(nodes, Size(cores, memory_mb), whole))


def table(*slots: Slot, hosts_max: int | None = None) -> Timetable:
    return Timetable(Ground(HOSTS, hosts_max), slots)


def test_one_may_start_when_another_ends() -> None:
    others = table(slot("a", 10, 20, 4))
    assert others.collision(slot("n", 20, 30, 4)) is None
    assert others.collision(slot("n", 0, 10, 4)) is None
    assert others.collision(slot("n", 5, 30, 1)) == Collision(10, ("a",))
    assert others.collision(slot("n", 19, 30, 1)) == Collision(19, ("a",))


def test_narrow_leases_share_hosts_as_far_as_cores_and_memory_go() -> None:
    three = [slot(name, 0, 10, 4, 1) for name in "abc"]
    assert table(*three).collision(slot("n", 0, 10, 4, 1)) is None
    assert table(*three, slot("d", 0, 10, 4, 1)).collision(slot("n", 5, 15, 1, 1)) == Collision(5, tuple("abcd"))
    heavy = slot("m", 0, 10, 4, 1, 3000)
    assert table(heavy).collision(slot("n", 0, 10, 1, 1, 1096)) is None
    assert table(heavy).collision(slot("n", 0, 10, 1, 1, 1097)) is not None


def test_nobody_knows_where_the_others_stand() -> None:
    """Best fit would put both on one host; had another lease stood there when they began, they would be on two."""
    narrow = table(slot("a", 0, 10, 1, 1), slot("b", 0, 10, 1, 1))
    assert narrow.collision(slot("n", 0, 10, 3, 4)) == Collision(0, ("a", "b"))
    assert narrow.largest(slot("n", 0, 10, 3, 4)) == 2


def test_several_narrow_ones_may_stand_on_one_host_and_leave_too_little_of_it() -> None:
    """One of four, and only all of them together do."""
    three = [slot(name, 0, 10, 1, 1) for name in "abc"]
    assert table(*three).collision(slot("n", 0, 10, 4, 2)) == Collision(0, ("a", "b", "c"))
    assert table(*three).collision(slot("n", 0, 10, 3, 2)) is None
    assert table(*three[:2]).collision(slot("n", 0, 10, 4, 2)) is None


def test_the_smallest_hosts_are_spoiled_first() -> None:
    """By cores, and by memory; whichever host is the first that is known."""
    for hosts in ([Size(8, 4096), Size(4, 4096)], [Size(4, 4096), Size(8, 4096)]):
        cores = Timetable(Ground(hosts), [slot("a", 0, 10, 1, 1)])
        assert cores.collision(slot("n", 0, 10, 2, 4)) == Collision(0, ("a",))
        assert cores.collision(slot("n", 0, 10, 1, 4)) is None
    for hosts in ([Size(8, 8000), Size(8, 4000)], [Size(8, 4000), Size(8, 8000)]):
        memory = Timetable(Ground(hosts), [slot("a", 0, 10, 1, 1, 100)])
        assert memory.collision(slot("n", 0, 10, 2, 1, 4000)) == Collision(0, ("a",))
        assert memory.collision(slot("n", 0, 10, 2, 1, 3900)) is None


def test_a_host_is_able_if_it_has_the_cores_and_the_memory() -> None:
    ground = Ground([Size(4, 100), Size(4, 200), Size(2, 200)])
    able = {
        (cores, mb): ground.able(Shape(1, Size(cores, mb), False))
        for cores in (2, 3, 4, 5)
        for mb in (100, 101, 200, 201)
    }
    assert able == {
        (2, 100): 3, (2, 101): 2, (2, 200): 2, (2, 201): 0,
        **{(cores, mb): count for cores in (3, 4) for mb, count in ((100, 2), (101, 1), (200, 1), (201, 0))},
        **{(5, mb): 0 for mb in (100, 101, 200, 201)},
    }  # fmt: skip
    few = Ground([Size(4, 100), Size(4, 200), Size(2, 200)], 2)
    assert [few.able(Shape(1, Size(cores, 100), False)) for cores in (2, 3, 5)] == [2, 1, 0]
    assert (few.size, Ground([Size(4, 100)], 5).size, ground.size) == (2, 1, 3)


def test_the_most_that_leases_have_on_so_many_hosts() -> None:
    uses = [(3, 1), (1, 5), (2, 2), (3, 4)]
    for given in (uses, uses[::-1], [(3, 1), (2, 2)], []):
        assert [Most(given).on(hosts) for hosts in range(6)] == [
            sum(min(nodes, hosts) * amount for nodes, amount in given) for hosts in range(6)
        ]


def test_the_next_chance_is_the_next_end_in_whatever_order_leases_were_accepted() -> None:
    long, short = slot("a", 0, 50, 2), slot("b", 0, 10, 2)
    for others in (table(long, short), table(short, long)):
        assert others.earliest(slot("n", 5, 10, 2)) == 10
        assert others.earliest(slot("n", 5, 10, 2), start_max=10) == 10
        assert others.earliest(slot("n", 5, 10, 2), start_max=9) is None
        assert others.earliest(slot("n", 5, 10, 3)) == 50


def test_a_lease_that_was_accepted_is_not_crowded_out_later() -> None:
    """A narrow one that begins first would not harm itself, but the wide one that was promised all hosts."""
    assert table(slot("wide", 5, 10, 4)).collision(slot("n", 0, 20, 1, 1)) == Collision(5, ("wide",))


def test_whole_hosts_are_nobody_elses() -> None:
    assert table(slot("a", 0, 10, 2, 1, whole=True)).collision(slot("n", 0, 10, 2, 1)) is None
    assert table(slot("a", 0, 10, 2, 1, whole=True)).collision(slot("n", 0, 10, 3, 1)) is not None
    assert table(slot("a", 0, 10, 4, 1)).collision(slot("n", 0, 10, 1, 1, whole=True)) is not None


def test_only_hosts_that_are_the_departments_for_certain_count() -> None:
    assert table(hosts_max=2).largest(slot("n", 0, 10, 4)) == 2
    mixed = Ground([Size(8, 4096), Size(2, 4096), Size(2, 4096)], 2)
    assert Timetable(mixed, ()).collision(slot("n", 0, 10, 1, 8)) == Collision(0, ())  # it may be given the small ones


def test_alternatives() -> None:
    others = table(slot("a", 0, 10, 3), slot("b", 10, 20, 2), slot("c", 25, 40, 4))
    wanted = slot("n", 5, 10, 3)
    assert others.earliest(wanted) == 20  # five seconds, just between b and c
    assert others.earliest(wanted._replace(end=11)) == 40
    assert others.earliest(wanted._replace(end=11), start_max=39) is None
    assert others.earliest(slot("n", 5, 10, 5)) is None
    assert others.largest(wanted) == 1
    assert others.latest_end(slot("b", 10, 60, 2)) == 25


def test_a_lease_does_not_collide_with_itself() -> None:
    assert table(slot("a", 0, 10, 4)).collision(slot("a", 0, 20, 4)) is None
