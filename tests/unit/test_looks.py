"""Who looks ahead beside the scheduler's decisions: one at a time, with pauses, and one look for all who ask the same."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from services.scheduler.batch import BatchCore
from services.scheduler.foresee import Copied, copied
from services.scheduler.looks import PAUSE_MAX_S, WAITING_MAX, Busy, Looks
from services.scheduler.starts import FRESH_S, Starts
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


async def test_after_a_look_there_is_as_long_a_pause_as_it_took() -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    def work(_known: Copied) -> None:
        began = time.monotonic()
        while time.monotonic() == began:
            pass

    looks, hpc = Looks(rest), core(waiting())
    for _ in range(2):
        await looks.ahead(hpc, work)
    assert rests[0] == 0.0, "nobody has looked before"
    assert 0.0 < rests[1] <= PAUSE_MAX_S


async def test_a_look_that_fails_is_followed_by_a_pause_too_and_leaves_its_place() -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    def fail(_known: Copied) -> None:
        raise LookupError("a plug-in that cannot")

    looks, hpc = Looks(rest), core(waiting())
    for _ in range(WAITING_MAX + 1):  # or else the last one would be refused
        with pytest.raises(LookupError):
            await looks.ahead(hpc, fail)
    assert all(seconds > 0.0 for seconds in rests[1:])


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
