"""The queue puts a lane in order only when somebody looks: nobody must be able to tell.

Q1  After any moves, with ranks given anew in between, whatever is asked is what a plain sort of all units says: the first of a
    lane, its n-th, all of them, the head of all, those of one length.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.size import Size
from services.scheduler.core.state.queue import LaneKey, Queue
from services.scheduler.core.state.shape import Place, Shape

SHAPES = [Shape(1, Size(cores, 1), False) for cores in (1, 2, 3)]
LENGTHS = (60.0, 3600.0)
move = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("remove"), st.integers(0, 40)),
    st.tuples(st.just("rank"), st.integers(1, 7)),
    st.tuples(st.just("first"), st.integers(0, 2)),
    st.tuples(st.just("nth"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("lengths"), st.integers(0, 2)),
    st.tuples(st.just("head"), st.just(0)),
)


class Plain:
    """Every unit with its shape and length; ranks are worked out when they are needed."""

    def __init__(self) -> None:
        self.units: dict[str, tuple[int, Shape, float]] = {}
        self.turn = 1
        self.entries = 0
        self.queue = Queue(lambda unit: self.units[unit][2])

    def rank(self, unit: str) -> int:
        return int(unit) * self.turn % 5

    def ranks(self, places: Sequence[Place]) -> list[int]:
        return [self.rank(place.unit) for place in places]

    def places(self, shape: Shape | None = None, length_s: float | None = None) -> list[Place]:
        return sorted(
            Place(self.rank(unit), entered, unit)
            for unit, (entered, its, length) in self.units.items()
            if shape in (None, its) and length_s in (None, length)
        )

    def add(self, shape: int, length: int) -> None:
        self.entries += 1
        unit = str(self.entries)
        self.units[unit] = (self.entries, SHAPES[shape], LENGTHS[length])
        self.queue.add(Place(self.rank(unit), self.entries, unit), SHAPES[shape], 0)

    def remove(self, number: int) -> None:
        names = sorted(self.units, key=int)
        if number < len(names):
            self.queue.remove(names[number])
            del self.units[names[number]]

    def rank_again(self, turn: int) -> None:
        self.turn = turn
        self.queue.rank_again(self.ranks)

    def look(self, what: str, shape: int, number: int = 0) -> None:
        expected = self.places(SHAPES[shape])
        lane = self.queue.lanes.get(LaneKey(SHAPES[shape], ""))
        assert (lane is None) is (not expected)
        if what == "head":
            assert self.queue.head() == min(self.places(), default=None)
        elif lane is not None and what == "first":
            assert lane.first == lane[0] == expected[0]
        elif lane is not None and what == "nth" and number < len(expected):
            assert lane[number] == expected[number]
        elif lane is not None and what == "lengths":
            lengths = self.queue.by_length(lane)
            assert lengths.lengths == sorted(lengths.places)
            for length_s, row in lengths.places.items():
                assert row[0] == row.first == row.places[0]
                assert row.places == self.places(SHAPES[shape], length_s)


@settings(max_examples=300, deadline=None)
@given(st.lists(move, max_size=60))
def test_a_queue_that_is_ordered_late_is_a_sorted_queue(moves: list[tuple[str, int] | tuple[str, int, int]]) -> None:
    plain = Plain()
    for name, first, *rest in moves:
        if name == "add":
            plain.add(first, *rest)
        elif name == "remove":
            plain.remove(first)
        elif name == "rank":
            plain.rank_again(first)
        else:
            plain.look(name, first, *rest)
    assert plain.queue.in_order() == plain.places()
    assert {unit: place for unit, (_, place) in plain.queue.where.items()} == {p.unit: p for p in plain.places()}
