"""The launch channel: blocks, numbering, limits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.admission.guests import launch
from services.admission.guests.launch import EventBody, EventsBody, LaunchBody, Launches, blocks, refuse_beyond
from services.domain.refusal import Refused

KEY = ("7", 1)


@given(tasks=st.integers(1, 500), ranks=st.integers(1, 40))
def test_blocks_cover_every_task_once_in_order_and_evenly(tasks: int, ranks: int) -> None:
    found = blocks(tasks, ranks)
    assert [task for block in found for task in block] == list(range(tasks))
    sizes = [len(block) for block in found]
    assert len(sizes) == ranks
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def said(task: int, data: str = "") -> EventBody:
    return EventBody(task=task, stream="stdout", data=data)


async def test_numbers_only_grow_also_over_a_restart() -> None:
    first = Launches()
    first.launch(KEY, 2, LaunchBody(id="a", argv=("x",), tasks=2))
    (command,) = await first.commands(KEY, 2, 0, 0, 0.0)
    restarted = Launches()  # takes more than the one microsecond that its clock counts by
    restarted.launch(KEY, 2, LaunchBody(id="b", argv=("x",), tasks=2))
    assert [c.id for c in await restarted.commands(KEY, 2, 0, command.n, 0.0)] == ["b"]


async def test_ranks_count_their_events_apart_and_what_was_read_is_forgotten() -> None:
    launches = Launches()
    launches.launch(KEY, 2, LaunchBody(id="a", argv=("x",), tasks=2))
    launches.add_events(KEY, 0, "a", EventsBody(events=(said(0), said(0)), first=0))
    launches.add_events(KEY, 1, "a", EventsBody(events=(said(1),), first=0))
    launches.add_events(KEY, 0, "a", EventsBody(events=(said(0), said(0), said(0)), first=0))  # one is new
    found = await launches.events(KEY, "a", 0, 0.0)
    assert [event.rank for event in found] == [0, 0, 1, 0]
    assert [event.n for event in found] == sorted({event.n for event in found})
    assert await launches.events(KEY, "a", found[2].n, 0.0) == found[3:]
    assert await launches.events(KEY, "a", 0, 0.0) == found[3:]


def test_more_tasks_than_cores_are_refused_in_words() -> None:
    refuse_beyond(4, 4)
    with pytest.raises(Refused, match=r"2 tasks on the 1 core of this job: .* or launch with --overcommit"):
        refuse_beyond(2, 1)


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LAUNCHES_MAX", 1)
    launches = Launches()
    launches.launch(KEY, 1, LaunchBody(id="a", argv=("x",)))
    with pytest.raises(Refused):
        launches.launch(KEY, 1, LaunchBody(id="b", argv=("x",)))
    monkeypatch.setattr(launch, "EVENTS_MAX_BYTES", 3000)
    launches.add_events(KEY, 0, "a", EventsBody(events=tuple(said(0, "A" * 1000) for _ in range(5)), first=0))
    first = await launches.events(KEY, "a", 0, 0.0)
    assert len(first) == 2
    assert len(await launches.events(KEY, "a", first[-1].n, 0.0)) == 2


async def test_an_attempt_that_ended_is_forgotten() -> None:
    launches = Launches()
    launches.launch(KEY, 1, LaunchBody(id="a", argv=("x",)))
    launches.forget("7")
    with pytest.raises(Refused):
        await launches.events(KEY, "a", 0, 0.0)
    with pytest.raises(Refused):
        launches.add_events(KEY, 0, "a", EventsBody(events=(said(0),), first=0))
    with pytest.raises(Refused):
        launches.signal(KEY, "a", 9)


async def test_what_the_kernel_would_not_execute_is_refused_at_the_door() -> None:
    launches = Launches()
    for body, words in (
        (
            LaunchBody(
                id="a", argv=("x", "\N{EM DASH}" * 100_000), environment={"A": "x" * 100_000, "B": "€" * 300_000}
            ),
            "bytes",
        ),
        (LaunchBody(id="a", argv=("x\0",)), "NUL"),
        (LaunchBody(id="a", argv=("x",), environment={"A=B": ""}), "'='"),
    ):
        with pytest.raises(Refused, match=words):
            launches.launch(KEY, 1, body)
    with pytest.raises(Refused, match="at most 4096"):
        launches.launch(KEY, 2, LaunchBody(id="a", argv=("x",), tasks=2 * launch.RANK_TASKS_MAX + 1))
    assert await launches.commands(KEY, 2, 0, 0, 0.0) == []


async def test_what_ranks_have_not_fetched_is_bounded_of_an_attempt_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    body = LaunchBody(id="a", argv=("x" * 1000,), tasks=2)
    held = 1000 + 2 * launch.COMMAND_BYTES
    monkeypatch.setattr(launch, "HELD_MAX_BYTES", 2 * held)
    monkeypatch.setattr(launch, "HELD_IN_ALL_MAX_BYTES", 3 * held)
    launches = Launches()

    def more(key: launch.Key, name: str) -> None:
        launches.launch(key, 2, msgspec.structs.replace(body, id=name))

    more(KEY, "a")
    more(KEY, "b")
    with pytest.raises(Refused, match="not yet fetched"):
        more(KEY, "c")
    more(("8", 1), "a")
    with pytest.raises(Refused, match="not yet fetched"):
        more(("8", 1), "b")
    for rank in (0, 1):  # the one that is fetched makes room, once all ranks have it
        with pytest.raises(Refused, match="not yet fetched"):
            more(KEY, "c")
        (first, second) = await launches.commands(KEY, 2, rank, 0, 0.0)
        assert await launches.commands(KEY, 2, rank, first.n, 0.0) == [second]
    more(KEY, "c")
    with pytest.raises(Refused, match="not yet fetched"):
        more(("8", 1), "b")
    launches.forget("7")
    more(("8", 1), "b")
    launches.forget("8")
    assert launches._held_bytes == 0
