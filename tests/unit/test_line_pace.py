"""How fast a department's line is read (`runtime.flood_connections`)."""

from __future__ import annotations

import asyncio

import pytest

from services.runtime.flood_connections import REFUSED_S, YIELD_EVERY, Pace


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return found


async def _read(pace: Pace, messages: int, refused: int = 0) -> None:
    for number in range(messages):
        if number < refused:
            pace.refused()
        await pace.one_more()


async def test_others_have_their_turn_and_whoever_is_within_the_pace_waits_for_nothing(slept: list[float]) -> None:
    await _read(Pace(1e9, 1e9), 10 * YIELD_EVERY)
    assert slept == [0] * 10


async def test_what_is_refused_is_read_more_slowly_and_only_that(slept: list[float]) -> None:
    pace = Pace(1e9, 1e9)
    await _read(pace, YIELD_EVERY, refused=YIELD_EVERY)
    assert slept == [0, pytest.approx(YIELD_EVERY * REFUSED_S)]
    await _read(pace, YIELD_EVERY, refused=3)
    assert slept[2:] == [0, pytest.approx(3 * REFUSED_S)]
    await _read(pace, YIELD_EVERY)
    assert slept[4:] == [0]


async def test_after_its_burst_a_line_is_read_at_its_pace(slept: list[float]) -> None:
    await _read(Pace(0.001, 2 * YIELD_EVERY), 3 * YIELD_EVERY)
    assert slept == [0, 0, 0, pytest.approx(YIELD_EVERY / 0.001)]
