"""The timetable of leases: what it accepts can be placed by the scheduler's own room, and what it offers instead is true.

T1  Whatever was accepted, with shared and whole hosts of different sizes: at every start the real `Room` (best fit) has room,
    also if leases end early, start late, or stand wherever they happen to stand.
T2  With whole hosts a yes is exact: accepted if and only if the hosts suffice at every instant.
T3  The earliest start is accepted, and none before it is.
T4  The smaller size is accepted, and one more node is not.
T5  Extended to the latest end it is accepted, and a second longer it is not.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.size import FIELDS, Size, total
from services.domain.shape import Shape
from services.domain.timetable import Ground, Slot, Timetable
from services.scheduler.core.state.room import Free, Room

REST = [st.integers(0, 2) for _ in FIELDS[2:]]
HOSTS = st.lists(st.builds(Size, st.integers(1, 6), st.sampled_from([512, 1024, 4096]), *REST), min_size=1, max_size=6)
PARTS = st.builds(
    Shape,
    nodes=st.integers(1, 4),
    size=st.builds(Size, st.integers(1, 5), st.sampled_from([128, 500, 1024]), *REST),
    exclusive=st.sampled_from([False, False, False, True]),
    constraint=st.just(""),
)
WHOLE = st.builds(
    Shape, nodes=st.integers(1, 4), size=st.just(Size(4, 64)), exclusive=st.booleans(), constraint=st.just("")
)


@st.composite
def wishes(draw: st.DrawFn, parts: st.SearchStrategy[Shape] = PARTS) -> list[Slot]:
    made = []
    for number in range(draw(st.integers(1, 9))):
        start = draw(st.integers(0, 20))
        made.append(Slot(str(number), start, start + draw(st.integers(1, 10)), draw(parts)))
    return made


def accepted(ground: Ground, wished: list[Slot]) -> list[Slot]:
    found: list[Slot] = []
    for slot in wished:
        if Timetable(ground, found).collision(slot) is None:
            found.append(slot)
    return found


class Site:
    """Hosts and who stands on them."""

    def __init__(self, hosts: list[Size]) -> None:
        self.hosts = {f"h{i}": host for i, host in enumerate(hosts)}
        self.standing: dict[str, tuple[Shape, tuple[str, ...]]] = {}

    def room(self) -> Room:
        room = Room(())
        for name, size in self.hosts.items():
            there = [part for part, hosts in self.standing.values() if name in hosts]
            if any(part.exclusive for part in there):
                continue
            room.offer(name, Free.of(not there, size.minus(total(part.size for part in there))))
        return room

    def place(self, slot: Slot, draw: Any | None) -> None:
        """By best fit, or on any hosts with room."""
        room, shape = self.room(), slot.part
        if draw is None:
            hosts = room.take(shape)
        else:
            able = [name for name, free in room.free.items() if free.fits(shape)]
            hosts = tuple(draw(st.permutations(able))[: shape.nodes]) if len(able) >= shape.nodes else None
        assert hosts is not None, f"lease {slot.lease} has no room beside {self.standing}"
        self.standing[slot.lease] = (slot.part, hosts)


@settings(max_examples=400, deadline=None)
@given(st.data(), HOSTS, wishes(), st.booleans())
def test_t1_what_was_accepted_finds_room(data: Any, hosts: list[Size], wished: list[Slot], best: bool) -> None:
    hosts_max = data.draw(st.none() | st.integers(1, len(hosts)))
    slots = accepted(Ground(hosts, hosts_max), wished)
    held = data.draw(st.permutations(hosts))[:hosts_max]  # whichever the department was given
    site, lives = Site(list(held)), {}
    for slot in slots:
        late = data.draw(st.integers(0, int(slot.end - slot.start) - 1))
        early = data.draw(st.integers(0, int(slot.end - slot.start) - 1 - late))
        lives[slot.lease] = (slot.start + late, slot.end - early)
    for at in range(32):
        for slot in slots:
            if lives[slot.lease][1] <= at:
                site.standing.pop(slot.lease, None)
        starting = [slot for slot in slots if lives[slot.lease][0] == at]
        for slot in data.draw(st.permutations(starting)) if len(starting) > 1 else starting:
            site.place(slot, None if best else data.draw)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), wishes(WHOLE))
def test_t2_with_whole_hosts_a_yes_is_exact(hosts: int, wished: list[Slot]) -> None:
    ground, found = Ground([Size(4, 4096)] * hosts), []
    for slot in wished:
        fits = all(
            sum(s.part.nodes for s in [*found, slot] if s.start <= at < s.end) <= hosts
            for at in range(int(slot.start), int(slot.end))
        )
        assert (Timetable(ground, found).collision(slot) is None) == fits
        if fits:
            found.append(slot)


@settings(max_examples=200, deadline=None)
@given(HOSTS, wishes(), st.integers(0, 30))
def test_t3_the_earliest_start_is_the_earliest(hosts: list[Size], wished: list[Slot], more: int) -> None:
    ground = Ground(hosts)
    *before, last = wished
    table = Timetable(ground, accepted(ground, before))
    start_max = last.start + more
    found = table.earliest(last, start_max)
    lasts = last.end - last.start
    good = [
        start
        for start in range(int(last.start), int(start_max) + 1)
        if table.collision(last._replace(start=float(start), end=start + lasts)) is None
    ]
    assert found == (good[0] if good else None)


@settings(max_examples=200, deadline=None)
@given(HOSTS, wishes())
def test_t4_and_t5_smaller_and_longer(hosts: list[Size], wished: list[Slot]) -> None:
    ground = Ground(hosts)
    *before, last = wished
    slots = accepted(ground, before)
    table = Timetable(ground, slots)

    def fits(nodes: int) -> bool:
        return table.collision(last._replace(part=last.part._replace(nodes=nodes))) is None

    most = table.largest(last)
    assert [fits(nodes) for nodes in range(1, last.part.nodes + 1)] == [
        n <= most for n in range(1, last.part.nodes + 1)
    ]
    for slot in slots:
        end = table.latest_end(slot._replace(end=slot.end + 20))
        assert slot.end <= end
        assert table.collision(slot._replace(end=end)) is None
        assert end == slot.end + 20 or table.collision(slot._replace(end=end + 1)) is not None
