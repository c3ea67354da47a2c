"""Whose bytes a process holds: parts of one room."""

from __future__ import annotations

import contextlib

import pytest

from services.runtime.http.body_budget import HELD, Full, Held, Room

CALLERS = [(group, caller) for group in "abc" for caller in "xyz"]


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("order", [CALLERS, CALLERS[::-1], CALLERS[::2]])
def test_whoever_comes_next_finds_room(order: list[tuple[str, str]], step: int) -> None:
    room = Room(lambda: 1000)
    for who in order:
        with contextlib.suppress(Full):
            while True:
                room.take(*who, step)
        assert room.held <= 1000 * 7 // 8  # of three departments, each at most a half of what others leave
    assert room.part("new", "comer") >= 1000 // 32


def test_what_a_request_holds_ends_with_it() -> None:
    room = Room(lambda: 1000)
    with Held(room, "hpc", "ann") as held:
        assert HELD.get() is held
        held.take(200)
        with pytest.raises(Full, match="251 bytes on their way at once, and room for 250"):
            held.take(51)
        assert room.held == 200
    assert HELD.get() is None
    assert (room.held, room.part("hpc", "ann")) == (0, 250)
