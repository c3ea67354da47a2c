"""Properties of facts that name elements of an array (PROTOCOL, Arrays).

A1  Whatever happens around it, such a fact leaves every core, and the history, in the state in which one fact for each of its
    elements would leave them.
A2  What is written of indices is read as the same indices.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas.envelope import UnknownFact, decode
from schemas.facts import Fact
from schemas.ids import element_id, job_of
from services.domain import specs
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.monitor.core.monitor import MonitorCore
from services.monitor.history.file import History
from services.monitor.history.schema import dump
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.policies.registry import ORDERS
from tests.properties.test_scheduler_cores import BOUNDS, KINDS, hpc, pick, play
from tests.support.examples import few
from tests.support.world import World
from tests.unit.frame_cores import cores

OF_ARRAYS = {"array-hold": f.ArrayHeld, "array-release": f.ArrayResumed, "array-cancel": f.ArrayCancelled}
SINGLE: dict[type, type[Any]] = {
    f.ArrayHeld: f.JobHeld,
    f.ArrayResumed: f.JobResumed,
    f.ArrayCancelled: f.JobCancelled,
}
ELEMENTS = ("0-3", "0-9", "1", "0-2:2", "1,3", "2-3", "7")
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*KINDS, "array", "array", *OF_ARRAYS, *OF_ARRAYS)), st.integers(0, 7), st.integers(0, 7)
    ),
    min_size=10,
    max_size=60,
)


class Folded(NamedTuple):
    """A core beside its custody; `history`: the monitor's."""

    custody: Custody
    core: Any
    history: History | None

    def state(self) -> tuple[bytes, bytes, list[str]]:
        """But for numbers of facts, and where each entity's facts are: an array's are its own."""
        voids, self.custody.state.voids = self.custody.state.voids, {}
        custody, self.custody.state.voids = self.custody.dump(), voids
        if isinstance(self.core, ProvisionerCore):
            return custody, re.sub(rb"^(.\xa5facts)[^\xa7]*", b"\\1", self.core.dump()), []
        if self.history is None:
            return custody, self.core.dump(), []
        self.history.commit()
        rows = [row for row in dump(self.history.database) if not row.startswith("story ")]
        return custody, self.core.dump(), rows

    def apply(self, fact: Fact, position: int, index: int, writer: str, at: float) -> None:
        if self.history is not None:
            self.history.skip_until = (0, 0)  # several facts are at one place here
        void = fold_fact(self.custody, fact, position, index, writer, at)
        broken, unsaved = tuple(self.custody.newly_broken), tuple(self.custody.newly_unsaved)
        meta = Meta(
            position=position,
            index=index,
            writer=writer,
            at=self.custody.state.at,
            void=void,
            broken=broken,
            unsaved=unsaved,
        )
        self.core.apply(fact, meta)


def fresh(name: str) -> Folded:
    custody = Custody()
    if name != "MonitorCore":
        return Folded(custody, cores()[name](custody), None)
    history, core = History(Path(":memory:")), MonitorCore(custody)
    core.watch = lambda fact, meta: history.note(core, fact, meta)
    history.open()
    return Folded(custody, core, history)


def one_by_one(custody: Custody, fact: f.OfArray) -> list[Fact]:
    """What the fact is worth at this place, element by element."""
    found = []
    for index in specs.array(fact.elements, 10_000)[0]:
        unit = custody.state.units.get(element_id(fact.job, index))
        if unit is None or unit.state == "final":
            continue
        is_so = unit.cancelled if isinstance(fact, f.ArrayCancelled) else unit.held == isinstance(fact, f.ArrayHeld)
        if not is_so:
            found.append(SINGLE[type(fact)](job=unit.id, user=fact.user))
    return found


def change(world: World, what: str, a: int, b: int) -> None:
    unit = pick(world, a, "pending", "open")
    if unit is not None and unit != job_of(unit):
        fact = OF_ARRAYS[what](job=job_of(unit), dept="hpc", elements=ELEMENTS[b % len(ELEMENTS)], user="ann")
        world.write("admission", fact)


@settings(max_examples=few(30, searching=60), deadline=None)
@given(st.sampled_from([*ORDERS, "multi-factor"]), BOUNDS, STEPS)
def test_a_fact_of_an_array_is_worth_what_one_for_each_element_is(
    order: str, bounds: dict[str, Any], steps: list[tuple[str, int, int]]
) -> None:
    world = hpc(order, short_s=20.0, **bounds)
    for what, a, b in steps:
        if what == "decide":
            world.step()
        elif what in OF_ARRAYS:
            change(world, what, a, b)
        else:
            play(world, (what, a, b))
    for name in cores():
        at_once, apart = fresh(name), fresh(name)
        for position, (writer, data) in enumerate(world.journal, 1):
            envelope = decode(data, writer)
            for index, fact in enumerate(envelope.facts):
                assert not isinstance(fact, UnknownFact)
                each = one_by_one(apart.custody, fact) if isinstance(fact, f.OfArray) else [fact]
                if each:  # what changes nothing is told to nobody
                    at_once.apply(fact, position, index, writer, envelope.at)
                for one in each:
                    apart.apply(one, position, index, writer, envelope.at)
            assert at_once.state() == apart.state(), f"{name} after {msgspec.to_builtins(envelope)}"
        assert at_once.core.check() == []
        assert at_once.core.decide(world.now) == apart.core.decide(world.now)


@given(
    st.lists(st.integers(0, 400), min_size=1, unique=True).map(sorted)
    | st.lists(st.integers(0, 999_999_999), min_size=1, unique=True).map(sorted)
)
def test_indices_are_read_as_they_were_written(indices: list[int]) -> None:
    text = specs.spelled(indices)
    assert specs.array(text, len(indices)) == (tuple(indices), 0)
    assert len(text) <= sum(len(str(index)) + 1 for index in indices)
