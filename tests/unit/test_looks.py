"""Who looks ahead beside the scheduler's decisions: one at a time, with pauses, and one look for all who ask the same."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.looks import PAUSE_MAX_S, WAITING_MAX, Busy, Looks
from services.scheduler.lookahead.start_estimate import Copied, copied
from services.scheduler.lookahead.starts import FRESH_S, Starts
from tests.support.scheduling import cluster, core
from tests.support.world import World


class Counted(Looks):
    """How many looks there were."""

    looks = 0

    async def _look(self, core: BatchCore, work: Any) -> Any:
        self.looks += 1
        return await super()._look(core, work)


def waiting(jobs: int = 3) -> World:
    world = cluster(1)
    for _ in range(jobs):
        world.submit(cores=4, walltime_s=60)
    world.settle()
    return world


class Clock:
    """Stands still but for looks, which take `look_s`; pauses are written down."""

    def __init__(self, look_s: float) -> None:
        self.now, self.look_s = 100.0, look_s
        self.rests: list[float] = []

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def work(self, _known: Copied) -> None:
        self.now += self.look_s

    def fail(self, known: Copied) -> None:
        self.work(known)
        raise LookupError("a plug-in that cannot")


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.5, 0.5), (10.0, PAUSE_MAX_S)])
async def test_after_a_look_there_is_as_long_a_pause_as_it_took(look_s: float, pause_s: float) -> None:
    clock, hpc = Clock(look_s), core(waiting())
    looks = Looks(lambda: clock.now, clock.rest)
    await looks.ahead(hpc, clock.work)
    await looks.ahead(hpc, clock.work)
    clock.now += 60.0
    await looks.ahead(hpc, clock.work)
    assert clock.rests == [0.0, pause_s, 0.0], "who asks after the pause is answered at once"


async def test_a_look_that_fails_is_followed_by_a_pause_too_and_leaves_its_place() -> None:
    clock, hpc = Clock(0.5), core(waiting())
    looks = Looks(lambda: clock.now, clock.rest)
    for _ in range(WAITING_MAX + 1):  # or else the last one would be refused
        with pytest.raises(LookupError):
            await looks.ahead(hpc, clock.fail)
    assert clock.rests == [0.0] + [0.5] * WAITING_MAX


async def test_one_look_at_a_time_and_no_endless_queue() -> None:
    under_way: list[int] = []
    most: list[int] = []

    def work(_known: Copied) -> None:
        under_way.append(1)
        most.append(len(under_way))
        under_way.pop()

    looks, hpc = Looks(), core(waiting())
    ends = await asyncio.gather(*(looks.ahead(hpc, work) for _ in range(WAITING_MAX + 2)), return_exceptions=True)
    assert [isinstance(end, Busy) for end in ends] == [False] * WAITING_MAX + [True] * 2
    assert most == [1] * WAITING_MAX


async def test_the_copy_is_of_the_moment_of_the_look() -> None:
    world = waiting()
    seen: list[Copied] = []
    looks, hpc = Looks(), core(world)
    await looks.ahead(hpc, seen.append)
    assert seen == [copied(hpc)]


async def test_all_who_ask_for_the_first_ones_at_once_are_served_by_one_look() -> None:
    looks = Counted()
    starts, world = Starts(looks), waiting()
    answers = await asyncio.gather(*(starts.answer(core(world), b"", world.now) for _ in range(2 * WAITING_MAX)))
    assert looks.looks == 1
    assert {len(msgspec.json.decode(answer)["starts"]) for answer in answers} == {2}
    await starts.answer(core(world), b"", world.now + FRESH_S)
    assert looks.looks == 2
