"""An alarm that is put off rings all the same: it is set again by who hears it."""

from __future__ import annotations

import asyncio

from services.runtime.alarm import Alarm

LONG_S = 3600.0  # longer than the test


async def test_it_rings_and_can_be_set_again() -> None:
    rung = asyncio.Event()
    alarm = Alarm(rung.set)
    for _ in range(2):
        alarm.set(0.0)
        await rung.wait()
        rung.clear()


async def test_an_earlier_time_counts() -> None:
    rung = asyncio.Event()
    alarm = Alarm(rung.set)
    alarm.set(LONG_S)
    alarm.set(0.0)
    await rung.wait()
    rung.clear()
    alarm.set(0.0)
    alarm.set(LONG_S)
    await rung.wait()


async def test_to_put_it_off_makes_no_timer() -> None:
    loop, made = asyncio.get_running_loop(), 0
    alarm = Alarm(lambda: None)
    call_at = loop.call_at

    def counted(*given: object, **named: object) -> asyncio.TimerHandle:
        nonlocal made
        made += 1
        return call_at(*given, **named)  # type: ignore[arg-type]

    loop.call_at = counted  # type: ignore[method-assign,assignment]
    try:
        for more in range(100):
            alarm.set(LONG_S + more)
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]
        alarm.cancel()
    assert made == 1


async def test_cancelled_it_is_silent() -> None:
    rung: list[str] = []
    alarm, after = Alarm(lambda: rung.append("first")), asyncio.Event()
    alarm.set(0.0)
    alarm.cancel()
    asyncio.get_running_loop().call_later(0.0, after.set)
    await after.wait()
    assert not rung
