"""What is left of a journal that is nearly full is for what ends things."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.examples import FACTS
from schemas.facts import Fact
from services.domain.refusal import Refused
from services.runtime.broker.objects import Objects
from services.runtime.drafts import Draft
from services.runtime.journal.fold import Fold, Stored
from services.runtime.journal.headroom import OVERHEAD, Room
from services.runtime.journal.snapshots import BYTES_MAX, Every, Keeper, bytes_between
from services.runtime.log import get_log
from services.runtime.proposals import Proposal
from tests.support.toy import ToyCore, job

CANCEL = f.JobCancelled(job="1", user="ann")
PLACED = f.UnitPlaced(unit="1", attempt=1, hosts=("h1",), cores=1, memory_mb=1)
BEGIN = {
    "job.submitted",
    "job.held",
    "job.resumed",
    "array.held",
    "array.resumed",
    "lease.extended",
    "unit.placed",
    "checkpoint.reported",
    "scale.requested",
    "release.requested",
}


def room(used: int = 0, most: int = 1_000_000, position: int = 10) -> tuple[Room, list[bool]]:
    """And what it was when it said that it had changed."""
    told: list[bool] = []
    made = Room(lambda: told.append(made.scarce), get_log(service="test"))
    made.looked(used, most, position)
    return made, told


def messages(*positions: int, size: int = 0) -> list[Stored]:
    return [Stored(position, "s", b"x" * size, 0.0) for position in positions]


@pytest.mark.parametrize(
    ("used", "most", "scarce"),
    [(899_999, 1_000_000, False), (900_000, 1_000_000, True), (10**12, 0, False), (10**12, -1, False), (0, 0, False)],
)
def test_its_last_tenth_is_reserved(used: int, most: int, scarce: bool) -> None:
    made, told = room(used, most)
    assert (made.scarce, told) == (scarce, [True] * scarce)


def test_what_is_folded_since_the_look_makes_the_next_one_due_and_what_was_before_does_not() -> None:
    made, told = room(899_000)
    assert made.folded(messages(9, 10, size=1000)) == 2 * (1000 + OVERHEAD)
    made.folded(messages(11, size=1000 - OVERHEAD - 1))
    assert not made._due.is_set()
    made.folded(messages(12))
    assert made._due.is_set()
    assert told == [], "the broker alone knows what was trimmed meanwhile"
    made.looked(900_000, 1_000_000, 12)
    made.looked(899_999, 1_000_000, 12)
    assert told == [True, False]


def test_what_begins_or_changes_something_is_known_and_all_else_ends_or_tells() -> None:
    assert {f.kind_of(fact) for fact in FACTS if f.begins(fact)} == BEGIN
    assert not f.begins(f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1))


async def test_requests_that_end_are_taken_and_others_refused_with_what_to_do() -> None:
    def asks(*facts: Fact) -> Proposal:
        return Proposal(lambda _now, _drafted: list(facts), "r", asyncio.get_running_loop().create_future())

    made, _ = room(950_000)
    begins, both, ends = asks(job(1)), asks(CANCEL, f.JobHeld(job="2", user="ann")), asks(CANCEL)
    draft = Draft()
    draft.add_proposals(deque([begins, both, ends]), 0.0, 0, made)
    assert draft.facts == [CANCEL]
    for refused in (begins, both):
        error = refused.answer.exception()
        assert isinstance(error, Refused)
        assert (error.code, "nearly full" in error.message, "only cancelling works" in error.message) == (
            "unavailable",
            True,
            True,
        )
    assert made.refused == 2


def test_snapshots_are_taken_by_bytes_too_and_oftener_of_a_small_journal() -> None:
    assert bytes_between(-1) == bytes_between(0) == bytes_between(1 << 40) == BYTES_MAX
    assert bytes_between(16_000_000) == 1_000_000


@pytest.mark.parametrize(
    ("size", "keeps", "caught_up", "due"),
    [(999, True, True, False), (1000, True, True, True), (1000, False, True, False), (1000, True, False, False)],
)
def test_a_snapshot_is_due_after_so_many_bytes(size: int, keeps: bool, caught_up: bool, due: bool) -> None:
    keeper = Keeper(
        cast("Objects", None),
        "admission",
        "j",
        Fold("admission", ToyCore),
        every=Every(10, 1000),
        log=get_log(service="test"),
    )
    keeper.note(1, size, keeps=keeps, caught_up=caught_up)
    assert keeper._due.is_set() is due


@pytest.mark.parametrize("why", [because.Reclaimed()])
def test_a_job_may_end_and_its_host_go_back_when_nothing_may_begin(why: f.Reason) -> None:
    closed = f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.REQUEUE, why=why)
    assert [x for x in (closed, f.HostReleased(host="h1"), PLACED) if f.begins(x)] == [PLACED]
