"""The fair queue of the doors: shares, bounds, and that nobody starves, whatever is asked in which order."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime import fair_queue
from services.runtime.fair_queue import QUANTUM, QUIET_S, Bounds, FairQueue, Taken
from services.runtime.request_queue import AT_ONCE, Turn, Turns

DEPARTMENTS, CALLERS = ("bio", "hpc", "web"), ("ann", "bob", "eve")
SMALL = Bounds(
    waiting_max=5,
    waiting_bytes_max=100,
    department_waiting_max=8,
    department_bytes_max=150,
    depth_alone=20.0,
    depth_beside=3.0,
    rate_beside=10.0,
    burst=20.0,
    wait_max_s=30.0,
)
FREE = Bounds(depth_beside=1e9, rate_beside=1e9, burst=1e9)
asks = st.tuples(
    st.just("ask"),
    st.sampled_from(DEPARTMENTS),
    st.sampled_from(CALLERS),
    st.sampled_from((0.5, 1.0, 4.0, 50.0)),
    st.integers(0, 120),
)
steps = st.lists(
    st.one_of(asks, st.tuples(st.just("done")), st.tuples(st.just("pass"), st.floats(0.0, 10.0))), max_size=80
)


class House:
    """A server with a fair queue, and what was asked of it."""

    def __init__(self, bounds: Bounds) -> None:
        self.queue: FairQueue[int] = FairQueue(bounds)
        self.now, self.asked = 0.0, 0
        self.let_in: list[int] = []
        self.under_way: deque[Taken[int]] = deque()
        self.served: list[Taken[int]] = []

    def ask(self, department: str, caller: str, cost: float, size: int) -> str:
        self.asked += 1
        bound = self.queue.put(department, caller, self.asked, cost, size, self.now)
        if not bound:
            self.let_in.append(self.asked)
        return bound

    def serve(self) -> None:
        while (taken := self.queue.take(self.now)) is not None:
            self.served.append(taken)
            if not taken.is_late:
                self.under_way.append(taken)
        assert self.queue.check() == []

    def done(self) -> None:
        if self.under_way:
            taken = self.under_way.popleft()
            self.queue.done(taken.caller, taken.cost)

    def run(self, wanted: list[tuple[object, ...]]) -> None:
        for step in wanted:
            if step[0] == "ask":
                self.ask(*step[1:])  # type: ignore[arg-type]
            elif step[0] == "done":
                self.done()
            else:
                self.now += step[1]  # type: ignore[operator]
            self.serve()


@given(steps)
def test_whatever_is_let_in_is_served_once_and_in_each_callers_order(wanted: list[tuple[object, ...]]) -> None:
    house = House(SMALL)
    house.run(wanted)
    for _ in range(10_000):
        if not house.queue.waiting and not house.under_way:
            break
        house.done()
        house.now = max(house.now, min(house.queue.wake_at, house.now + QUIET_S))
        house.serve()
    assert sorted(taken.item for taken in house.served) == house.let_in
    of: dict[object, list[int]] = {}
    for taken in house.served:
        of.setdefault(taken.caller, []).append(taken.item)
    assert all(items == sorted(items) for items in of.values())


@given(steps)
def test_nothing_waits_beyond_its_bounds(wanted: list[tuple[object, ...]]) -> None:
    house = House(SMALL)
    for step in wanted:
        house.run([step])
        for (_, _), flow in house.queue._callers.items():
            assert len(flow.waiting) <= SMALL.waiting_max
            assert flow.bytes <= max(SMALL.waiting_bytes_max, 120)  # one request alone may be larger
            of = flow.department
            assert of.waiting <= SMALL.department_waiting_max
            assert of.bytes <= max(SMALL.department_bytes_max, 120)


@given(steps)
def test_whoever_could_be_served_does_not_wait(wanted: list[tuple[object, ...]]) -> None:
    """Work conservation within depth and pace: after `take` says no, nobody who waits is within both."""
    house = House(SMALL)
    for step in wanted:
        house.run([step])
        beside = house.queue.is_beside(house.now)
        assert not any(
            house.queue._may(flow, house.now, beside) for flow in house.queue._callers.values() if flow.waiting
        )


@given(steps)
def test_no_department_has_more_under_way_than_its_depth_however_many_ask(wanted: list[tuple[object, ...]]) -> None:
    house = House(dataclasses.replace(SMALL, department_depth=5.0))
    for step in wanted:
        house.run([step])
        under_way: dict[str, list[float]] = {}
        for taken in house.under_way:
            under_way.setdefault(taken.caller.department.name, []).append(taken.cost)
        for costs in under_way.values():
            assert sum(costs) <= 5.0 or len(costs) == 1  # one request always goes


@given(st.dictionaries(st.sampled_from(DEPARTMENTS), st.integers(1, 3), min_size=2), st.sampled_from((0.5, 1.0, 2.0)))
def test_departments_share_alike_whatever_they_ask_and_however_many_ask(asking: dict[str, int], cheap: float) -> None:
    """The bound of deficit round robin: between two that always wait, a quantum and the dearest request."""
    house, costs = House(FREE), {}
    for department, callers in asking.items():
        costs[department] = cheap if department == "hpc" else 2.0
        for caller in CALLERS[:callers]:
            for _ in range(300):
                assert house.ask(department, caller, costs[department], 1) == ""
    served: Counter[str] = Counter()
    for _ in range(100):
        taken = house.queue.take(0.0)
        assert taken is not None
        served[taken.caller.department.name] += 1
        had = {department: served[department] * costs[department] for department in asking}
        assert max(had.values()) - min(had.values()) <= 2 * QUANTUM + 2.0


@given(st.integers(1, 3), st.floats(0.5, 50.0))
def test_beside_others_a_caller_has_its_burst_and_then_its_pace(callers: int, cost: float) -> None:
    house = House(SMALL)
    house.ask("bio", "victim", 1.0, 1)
    had = 0.0
    while house.now < 40.0:
        for caller in CALLERS[:callers]:
            house.ask("hpc", caller, cost, 1)
        house.ask("bio", "victim", 1.0, 1)
        house.served.clear()
        house.serve()
        had += sum(taken.cost for taken in house.served if taken.caller.name == "ann")
        while house.under_way:
            house.done()
        house.now += 0.25
    assert had <= SMALL.burst + SMALL.rate_beside * house.now + cost


def test_a_lone_department_has_all_that_is_served_at_once() -> None:
    house = House(Bounds())
    for _ in range(1000):
        assert house.ask("hpc", "eve", 1.0, 300) == ""
    house.serve()
    assert len(house.under_way) == Bounds().depth_alone
    while house.queue.waiting:
        house.done()
        house.serve()
    assert house.now == 0.0


def test_who_comes_beside_a_flood_finds_it_at_its_pace() -> None:
    house = House(SMALL)
    had = 0.0
    for _ in range(200):
        house.ask("hpc", "eve", 1.0, 1)
        house.serve()
        while house.under_way:
            house.done()
        house.now += 0.01
    assert len(house.served) == 200, "alone"
    began = house.now
    while house.now < began + 10.0:
        house.ask("bio", "bob", 1.0, 1)
        for _ in range(5):
            house.ask("hpc", "eve", 1.0, 1)
        house.served.clear()
        house.serve()
        had += sum(taken.cost for taken in house.served if taken.caller.name == "eve")
        while house.under_way:
            house.done()
        house.now += 0.25
    pace = SMALL.rate_beside * 10.0
    assert pace - SMALL.depth_beside <= had <= pace + SMALL.depth_beside


def test_who_is_always_beside_others_is_paced_alone() -> None:
    house = House(dataclasses.replace(SMALL, is_beside=True, waiting_max=100, department_waiting_max=100))
    for _ in range(40):
        assert house.ask("hpc", "eve", 1.0, 1) == ""
    for _ in range(40):
        house.serve()
        house.done()
    assert len(house.served) == SMALL.burst
    assert house.queue.wake_at > house.now


def test_who_comes_beside_a_flood_is_next() -> None:
    house = House(Bounds())
    for _ in range(3000):
        house.ask("hpc", "eve", 1.0, 300)
    house.serve()
    house.ask("bio", "bob", 1.0, 300)
    house.serve()
    assert house.served[-1].caller.name == "bob"


def test_a_flood_of_one_refuses_no_other_one() -> None:
    house = House(SMALL)
    bounds = [house.ask("hpc", "eve", 50.0, 10) for _ in range(9)]
    assert bounds == [""] * 5 + ["caller"] * 4
    assert house.ask("hpc", "ann", 1.0, 10) == ""
    assert house.ask("bio", "bob", 1.0, 10) == ""


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("cost", [1.0, 3.0])
def test_who_comes_back_when_it_is_told_finds_room_and_work_left(beside: bool, cost: float) -> None:
    """Eve has used up her burst; her queue is full."""
    house = House(dataclasses.replace(SMALL, depth_alone=1.0, depth_beside=1.0, waiting_max=8))
    if beside:
        house.ask("bio", "bob", 1.0, 1)
    eve = house.queue._caller("hpc", "eve")
    house.queue.charge(eve, SMALL.burst, house.now)
    while not (bound := house.ask("hpc", "eve", cost, 1)):
        pass
    again_at = house.now + house.queue.drains_in_s("hpc", "eve", bound, house.now)
    assert house.ask("hpc", "eve", cost, 1) == "caller", "not at once"
    step = 0.02 if beside else cost / fair_queue.SERVED_PER_S
    while house.now < again_at - step / 2:
        house.serve()
        while house.under_way:
            house.done()
            if not beside:
                break  # a server serves one at a time
        house.now += step
        if beside:
            house.queue._departments["bio"].asked_at = house.now
    assert house.ask("hpc", "eve", cost, 1) == ""
    assert 2 <= len(eve.waiting) <= 6, "half of eight, roughly"


def test_a_department_that_is_full_drains_by_all_its_callers() -> None:
    house = House(dataclasses.replace(SMALL, is_beside=True))
    for caller in ("ann", "eve"):
        for _ in range(4):
            assert house.ask("hpc", caller, 2.0, 1) == ""
    assert house.ask("hpc", "bob", 2.0, 1) == "department"
    assert house.queue.drains_in_s("hpc", "bob", "department", 0.0) == pytest.approx(8 * 2.0 / 2 / 20.0)


def test_what_has_waited_too_long_is_not_served() -> None:
    house = House(SMALL)
    for _ in range(3):
        house.ask("hpc", "eve", 50.0, 1)
    house.serve()
    house.now = SMALL.wait_max_s + 1.0
    house.serve()
    assert [taken.is_late for taken in house.served] == [False, True, True]


def test_what_turned_out_dear_is_paid_for_before_the_next_turn() -> None:
    house = House(SMALL)
    house.ask("bio", "bob", 1.0, 1)
    house.ask("hpc", "eve", 1.0, 1)
    house.serve()
    eve = house.served[-1].caller
    while house.under_way:
        house.done()
    house.queue.charge(eve, 100.0, house.now)
    house.ask("hpc", "eve", 1.0, 1)
    house.serve()
    assert house.queue.waiting == 1
    assert house.queue.wake_at == pytest.approx((1.0 + 100.0 - SMALL.burst) / SMALL.rate_beside)


async def test_few_are_let_in_before_the_loop_comes_round() -> None:
    turns, begun = Turns(), [0]
    given: list[Turn] = []

    def start(turn: Turn | None) -> None:
        assert turn is not None
        begun[-1] += 1
        given.append(turn)

    for _ in range(40):
        assert turns.put("hpc", "ann", 1.0, 0, start) is None
    assert begun == [AT_ONCE]
    leo: list[Turn | None] = []
    assert turns.put("bio", "leo", 1.0, 0, leo.append) is None
    while sum(begun) < 40:
        begun.append(0)
        await asyncio.sleep(0)
        assert begun[-1] <= AT_ONCE
        assert leo, "who comes beside is among the next"
    assert len(given) == 40
