"""The balancer's line: who has a place at an instance, who waits, and who is turned away at once."""

from __future__ import annotations

import asyncio

from phoenix.local.balancer.line import LINE_MAX, LINE_PER_PLACE, OVERLOAD_WAIT_S, RUSH_S, WAIT_S, Line
from phoenix.local.balancer.pool import Instance, Pool

CLOCK = [1000.0]


def line_of(*connections: int, wait_s: float = WAIT_S) -> tuple[Line, list[Instance]]:
    """Instances in service, with so many places each.  Its clock stands."""
    pool = Pool(drain_s=5.0, connections=64)
    for number, places in enumerate(connections, start=1):
        pool.began(f"web.{number}", 1, [f"127.0.0.1:{9000 + number}"], now=0.0)
        instance = pool.all()[-1]
        instance.connections = places
        pool.answered(instance)
    return Line(pool, wait_s, clock=lambda: CLOCK[0]), pool.all()


async def joined(line: Line, count: int) -> list[asyncio.Task[Instance | None]]:
    """So many that wait, in this order."""
    tasks = []
    for _ in range(count):
        ahead = len(line)
        tasks.append(asyncio.create_task(line.enter()))
        await asyncio.sleep(0)
        assert len(line) == ahead + 1
    return tasks


async def leave_all(tasks: list[asyncio.Task[Instance | None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_instance_has_so_many_at_a_time_and_who_waits_is_served_in_order() -> None:
    line, (one, two) = line_of(2, 1)
    assert [await line.enter() for _ in range(3)] == [one, two, one]
    first, second = await joined(line, 2)
    assert (one.open_requests, two.open_requests, len(line)) == (2, 1, 2)
    line.leave(two, 0.1)
    assert await first is two
    assert (two.open_requests, len(line)) == (1, 1)
    line.leave(one, 0.1)
    assert await second is one
    assert (one.open_requests, len(line)) == (2, 0)


async def test_a_new_instance_takes_at_once_what_waits() -> None:
    pool = Pool(drain_s=5.0, connections=2)
    line = Line(pool)
    waiting = await joined(line, 3)
    pool.began("web.1", 1, ["127.0.0.1:9001"], now=0.0)
    pool.answered(pool.all()[0])
    line.move()
    assert [(await task) is pool.all()[0] for task in waiting[:2]] == [True, True]
    assert len(line) == 1
    await leave_all(waiting)


async def test_the_line_is_as_long_as_the_instances_can_work_off_and_who_comes_then_is_told_at_once() -> None:
    line, (one,) = line_of(1)
    assert await line.enter() is one
    waiting = await joined(line, LINE_PER_PLACE)
    assert await line.enter() is None
    line.leave(one, 0.1)
    waiting += await joined(line, 1)  # one has left the line
    await leave_all(waiting)
    assert len(line) == 0


async def kept(line: Line, seconds: float) -> None:
    """So many requests that each kept its place for so long that nothing else counts any more."""
    for _ in range(200):
        instance = await line.enter()
        assert instance is not None
        line.leave(instance, seconds)


async def test_who_would_not_be_served_in_time_is_told_at_once() -> None:
    line, (one,) = line_of(1, wait_s=6.0)
    await kept(line, 2.0)
    assert await line.enter() is one
    waiting = await joined(line, 3)  # 0, 2 and 4 seconds
    assert await line.enter() is None
    one.connections = 2
    line.move()
    assert await waiting[0] is one
    waiting += await joined(line, 3)  # with two places there is room for 2, 3, and 4 seconds
    await leave_all(waiting)


async def test_a_line_that_stands_for_long_is_an_overload_and_becomes_short() -> None:
    line, (one,) = line_of(1)
    await kept(line, OVERLOAD_WAIT_S)
    assert await line.enter() is one
    waiting = await joined(line, 3)
    CLOCK[0] += RUSH_S - 0.1
    waiting += await joined(line, 1)  # a rush: instances are being started for it
    CLOCK[0] += 0.2
    assert await line.enter() is None
    for task in waiting[:3]:
        line.leave(one, OVERLOAD_WAIT_S)
        assert await task is one
    waiting += await joined(line, 1)  # one ahead, as long as that is in time
    assert await line.enter() is None
    for task in waiting[3:]:
        line.leave(one, OVERLOAD_WAIT_S)
        assert await task is one
    line.leave(one, OVERLOAD_WAIT_S)
    assert await line.enter() is one
    waiting = await joined(line, 3)  # the next rush
    await leave_all(waiting)


async def test_while_no_instance_is_in_service_many_may_wait_and_not_more() -> None:
    line, _ = line_of()
    waiting = await joined(line, LINE_MAX)
    assert await line.enter() is None
    await leave_all(waiting)


async def test_who_goes_leaves_the_line_and_gives_back_the_place_it_was_just_given() -> None:
    line, (one,) = line_of(1)
    assert await line.enter() is one
    first, second, third = await joined(line, 3)
    first.cancel()
    await asyncio.sleep(0)
    assert len(line) == 2
    line.leave(one, 0.1)  # the place is the second's, which goes before it hears of it
    second.cancel()
    assert await third is one
    assert one.open_requests == 1


async def test_one_that_an_instance_has_failed_goes_first_and_is_never_turned_away() -> None:
    line, (one,) = line_of(1)
    assert await line.enter() is one
    waiting = await joined(line, LINE_PER_PLACE)
    again = asyncio.create_task(line.enter(again=True))
    await asyncio.sleep(0)
    line.leave(one, None)
    assert await again is one
    await leave_all(waiting)
