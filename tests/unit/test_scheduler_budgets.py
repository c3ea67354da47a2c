"""What users, qualities and the department may start more, and lanes of the queue that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, Department, Quality, UserLimits
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.usage_limits import WHOLE, Account, Much
from services.scheduler.core.state.budgets import NOBODY, Budgets, Owner, needs
from services.scheduler.core.state.queue import LaneKey, Queue
from services.scheduler.core.state.shape import PLAIN, Booking, Kind, Place, Shape, Start

ONE = Shape(1, Size(1, 100), False)
WIDE = Shape(2, Size(3, 100), False)


def budgets(*, maximum_cores: int | None = None, quality: dict[str, Quality] | None = None, **each: Any) -> Budgets:
    policy = BatchPolicy(limits=BatchLimits(**each), quality=quality or {})
    found = Budgets.of(Department(name="hpc", kind="batch", batch=policy, maximum_cores=maximum_cores))
    assert found is not None
    return found


# ---------------------------------------------------------------------------------------------------------------- budgets


def test_nothing_is_counted_without_a_limit() -> None:
    assert Budgets.of(None) is None
    assert Budgets.of(Department(name="hpc", kind="batch", batch=BatchPolicy())) is None


def test_a_unit_counts_once_with_the_cores_and_hosts_of_all_its_nodes() -> None:
    assert needs(WIDE) == Much(1, Size(6, 200), 2)


def test_owners_are_told_apart_only_as_far_as_limits_do() -> None:
    urgent = Quality(together=UserLimits(cores_max=9))
    own = Quality(each_user=UserLimits(cores_max=9))
    assert budgets(maximum_cores=9).owner("ann", "urgent") == NOBODY
    assert budgets(cores_max=9).owner("ann", "urgent") == Owner("ann", "")
    assert budgets(quality={"urgent": urgent}).owner("ann", "urgent") == Owner("", "urgent")
    assert budgets(quality={"urgent": urgent}).owner("ann", "") == NOBODY
    assert budgets(quality={"urgent": own}).owner("ann", "urgent") == Owner("ann", "urgent")
    assert budgets(users={"bob": UserLimits(cores_max=9)}).owner("ann", "") == NOBODY
    assert budgets(cores_max=9, quality={"urgent": urgent}).owner("ann", "urgent") == Owner("ann", "urgent")


def test_open_attempts_are_counted_in_every_account_of_theirs_and_forgotten_with_the_last() -> None:
    found = budgets(maximum_cores=20, cores_max=9, quality={"urgent": Quality(together=UserLimits(hosts_max=5))})
    ann, bob = found.owner("ann", "urgent"), found.owner("bob", "")
    found.opened(ann, WIDE, 1)
    found.opened(bob, ONE, 1)
    assert found.used == {
        Account("", "ann"): Much(1, Size(6, 200), 2),
        Account("urgent", ""): Much(1, Size(6, 200), 2),
        WHOLE: Much(2, Size(7, 300), 3),
        Account("", "bob"): Much(1, Size(1, 100), 1),
    }
    found.opened(ann, WIDE, -1)
    assert found.used == {WHOLE: Much(1, Size(1, 100), 1), Account("", "bob"): Much(1, Size(1, 100), 1)}


@pytest.mark.parametrize(
    ("limit", "shape", "used", "allowed"),
    [
        ({"cores_max": 9}, ONE, 0, 9),
        ({"cores_max": 9}, ONE, 8, 1),
        ({"cores_max": 9}, ONE, 9, 0),
        ({"cores_max": 9}, WIDE, 0, 1),
        ({"cores_max": 12}, WIDE, 0, 2),
        ({"hosts_max": 5}, WIDE, 0, 2),
        ({"jobs_running_max": 2}, WIDE, 1, 1),
        ({"cores_max": 5, "jobs_running_max": 3}, ONE, 0, 3),
        ({"cores_max": 5}, WIDE, 0, 0),
    ],
)
def test_an_owner_may_start_as_many_as_all_its_limits_leave(
    limit: dict[str, Any], shape: Shape, used: int, allowed: int
) -> None:
    found = budgets(**limit)
    ann = found.owner("ann", "")
    for _ in range(used):
        found.opened(ann, ONE, 1)
    assert found.allowance(ann, shape, 100) == allowed
    assert found.allowance(ann, shape, 1) == min(1, allowed)
    assert (found.full(ann, shape) is None) is (allowed > 0)
    other = found.without([(ann, ONE)] * used)
    assert (other.used, other.allowance(ann, ONE, 1)) == ({}, 1)
    assert found.allowance(ann, shape, 100) == allowed, "asking what would be changes nothing"


def test_a_limit_at_the_door_bounds_nothing_that_starts() -> None:
    found = budgets(cores_max=9, users={"ann": UserLimits(jobs_submitted_max=1)}, jobs_submitted_max=1)
    assert found.allowance(found.owner("ann", ""), Shape(1, Size(0, 1), False), 5) == 5


def test_the_tightest_of_several_accounts_counts() -> None:
    for found in (budgets(maximum_cores=3, cores_max=5), budgets(maximum_cores=5, cores_max=3)):
        assert found.allowance(found.owner("ann", ""), ONE, 100) == 3


def full(found: Budgets, user: str, quality: str, shape: Shape, times: int) -> Reason:
    owner = found.owner(user, quality)
    for _ in range(times):
        found.opened(owner, ONE, 1)
    reason = found.full(owner, shape)
    assert reason is not None
    return reason


def test_who_is_full_is_told_which_limit_how_much_it_has_and_what_it_needs() -> None:
    told: dict[str, Any] = {"limit": "cores_max", "most": 5, "used": 2, "needs": 6}
    whole = because.DepartmentLimit(**told)
    assert full(budgets(maximum_cores=5), "ann", "", WIDE, 2) == whole
    assert full(budgets(cores_max=5), "ann", "", WIDE, 2) == because.UserLimit(user="ann", **told)
    urgent = {"urgent": Quality(together=UserLimits(cores_max=5))}
    assert full(budgets(quality=urgent), "ann", "urgent", WIDE, 2) == because.QualityLimit(quality="urgent", **told)
    each = {"urgent": Quality(each_user=UserLimits(hosts_max=3))}
    assert full(budgets(quality=each), "ann", "urgent", WIDE, 2) == because.UserLimit(
        user="ann", quality="urgent", limit="hosts_max", most=3, used=2, needs=2
    )
    jobs = because.UserLimit(user="ann", limit="jobs_running_max", most=2, used=2, needs=1)
    assert full(budgets(jobs_running_max=2, cores_max=100), "ann", "", WIDE, 2) == jobs


def start(unit: str, shape: Shape = ONE, victims: Sequence[str] = ()) -> Start:
    return Start(unit, shape, ("h",) * shape.nodes, because.FirstFit(), tuple(victims))


def test_the_starts_of_a_pass_are_cut_at_the_first_that_is_over_a_limit_with_those_before() -> None:
    found = budgets(cores_max=7, users={"bob": UserLimits(cores_max=1)})
    users = {"1": "ann", "2": "bob", "3": "ann", "4": "ann", "5": "bob", "v": "ann"}

    def cut(*starts: Start) -> list[str]:
        kept = found.cut(list(starts), lambda unit: found.owner(users[unit], ""), lambda _: WIDE)
        return [each.unit for each in kept]

    assert cut(start("1", WIDE), start("2"), start("3"), start("4")) == ["1", "2", "3"]
    assert cut(start("1", WIDE), start("2"), start("5"), start("3")) == ["1", "2"]
    found.opened(found.owner("ann", ""), WIDE, 1)
    assert cut(start("1", WIDE), start("2")) == []
    assert cut(start("1", WIDE, victims=["v"]), start("2")) == ["1", "2"], "who makes way counts no more"
    assert found.used[Account("", "ann")] == Much(1, Size(6, 200), 2)


def test_accounts_over_their_limits_are_named() -> None:
    found = budgets(cores_max=2, maximum_cores=100)
    bob, ann = found.owner("bob", ""), found.owner("ann", "")
    for owner in (bob, ann) * 2:
        found.opened(owner, ONE, 1)
    assert found.over() == []
    for owner in (bob, ann):
        found.opened(owner, ONE, 1)
    assert [line.split(" has ")[0] for line in found.over()] == [str(Account("", "ann")), str(Account("", "bob"))]
    assert "cores=3" in found.over()[0]


def test_every_account_of_a_start_and_of_its_victims_counts() -> None:
    found = budgets(maximum_cores=100, cores_max=6)
    ann = found.owner("ann", "")
    found.opened(ann, WIDE, 1)
    for cores, kept in ((6, 1), (7, 0)):
        (one,) = [start("1", Shape(1, Size(cores, 1), False), victims=["v"])]
        assert len(found.cut([one], lambda _: ann, lambda _: WIDE)) == kept


# ------------------------------------------------------------------------------------------------------------------ queue


def queue(limits: Budgets | None = None) -> Queue:
    """Whose flag has been taken down."""
    found = Queue(lambda unit: float(len(unit)), limits)
    assert found.grew
    found.grew = False
    return found


def add(to: Queue, unit: str, rank: int = 0, shape: Shape = ONE, throttle: int = 0, owner: Owner = NOBODY) -> Place:
    place = Place(rank, int(unit.split("_")[-1]), unit)
    to.add(place, shape, throttle, PLAIN, owner)
    return place


@pytest.mark.parametrize(
    ("throttle", "opened", "allowed"), [(0, 9, 3), (2, 0, 2), (2, 1, 1), (2, 2, 0), (2, 5, 0), (9, 0, 3)]
)
def test_an_array_may_start_as_many_as_its_throttle_leaves(throttle: int, opened: int, allowed: int) -> None:
    found = queue()
    for index in range(3):
        add(found, f"7_{index}", throttle=throttle)
    other = add(found, "9", shape=WIDE)
    found.opened("7", opened)
    (lane, _) = found.where["7_0"]
    assert found.allowance(lane) == allowed
    assert found.head() == (lane.first if allowed else other)
    assert found.ahead(other) == allowed, "who waits for its array is passed"
    assert found.ahead(lane.places[1]) == min(1, allowed)
    assert lane.key.array == ("7" if throttle else "")


def test_two_arrays_have_lanes_of_their_own_only_if_they_are_throttled() -> None:
    found = queue()
    for unit in ("7_0", "8_0"):
        add(found, unit, throttle=1)
        add(found, f"{unit}1")
    assert sorted((key.array, len(lane)) for key, lane in found.lanes.items()) == [("", 2), ("7", 1), ("8", 1)]


def test_a_lane_may_start_what_its_owner_may() -> None:
    limits = budgets(cores_max=2)
    ann = limits.owner("ann", "")
    found = queue(limits)
    for number in range(4):
        add(found, str(number), owner=ann)
    ((key, lane),) = found.lanes.items()
    assert (key.owner, found.allowance(lane), found.ahead(Place(0, 9, "9"))) == (ann, 2, 2)
    limits.opened(ann, WIDE, 1)
    assert (found.allowance(lane), found.head()) == (0, None)
    throttled = queue(limits)
    add(throttled, "7_0", throttle=1, owner=ann)
    assert throttled.allowance(throttled.where["7_0"][0]) == 0


def test_whatever_lets_somebody_start_raises_the_flag() -> None:
    found = queue()

    def raised() -> bool:
        grew, found.grew = found.grew, False
        return grew

    found.remove("nobody")
    assert not raised()
    add(found, "1")
    assert raised()
    found.remove("1")
    assert raised(), "in strict order the next one may start"
    booking = Booking(5.0, 1, "2", 9.0, ONE)
    found.book(booking)
    assert raised()
    assert found.bookings == {"2": booking}
    found.remove("2")
    assert raised()
    assert found.bookings == {}
    found.rank_again(lambda places: [place.rank for place in places])
    assert raised()
    found.opened("7", 2)
    assert raised()
    assert found.running == {"7": 2}
    found.opened("7", -2)
    assert raised()
    assert found.running == {}


def test_a_queue_is_read_in_the_order_of_now() -> None:
    found = queue()
    for number, shape in enumerate([ONE, WIDE, ONE, WIDE, ONE]):
        add(found, str(number), rank=number, shape=shape)
    found.suspended = {"0": ("h1",), "3": ("h2",), "4": ("h1",)}
    found.rank_again(lambda places: [-int(place.unit) for place in places])
    names = [place.unit for place in found.suspended_in_order()]
    assert names == ["4", "3", "0"]
    assert [place.unit for place in found.first(3)] == ["4", "3", "2"]
    assert [place.rank for place in found.in_order()] == [-4, -3, -2, -1, 0]
    assert len(found) == 5
    found.remove("3")
    assert [*found.suspended] == ["0", "4"]
    assert len(found) == 4


def test_the_first_of_a_lane_is_the_first_of_now_however_often_units_are_ranked() -> None:
    found = queue()
    for unit, rank in (("1", 3), ("2", 2), ("3", 1)):
        add(found, unit, rank=rank)
    ((_, lane),) = found.lanes.items()
    for first in ("2", "3", "1"):
        found.rank_again(lambda places, first=first: [int(place.unit != first) for place in places])  # type: ignore[misc]
        assert found.head() == lane.first == Place(0, int(first), first)
    found.rank_again(lambda places: [0 for _ in places])
    assert found.head() == Place(0, 1, "1"), "of equals who entered first"


def test_each_unit_needs_a_rank() -> None:
    found = queue()
    add(found, "1")
    add(found, "2")
    found.rank_again(lambda places: [0])
    with pytest.raises(ValueError, match="zip"):
        found.in_order()
    with pytest.raises(ValueError, match="zip"):
        found.head()


def test_units_of_a_lane_by_length_follow_who_comes_and_goes() -> None:
    found = queue()
    for unit in ("12", "5"):
        add(found, unit, rank=-int(unit))
    ((key, lane),) = found.lanes.items()
    assert key == LaneKey(ONE, "", Kind(), NOBODY)
    lengths = found.by_length(lane)
    add(found, "113")
    add(found, "4", rank=1)
    assert lengths.lengths == [1.0, 2.0, 3.0]
    assert {length: [p.unit for p in row.places] for length, row in lengths.places.items()} == {
        1.0: ["5", "4"],
        2.0: ["12"],
        3.0: ["113"],
    }
    found.remove("12")
    found.remove("5")
    assert found.by_length(lane) is lengths
    assert (lengths.lengths, [*lengths.places]) == ([1.0, 3.0], [1.0, 3.0])
