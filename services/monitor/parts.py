"""Work that may be long, done in parts: other tasks of the event loop have a turn after each.

A piece of work is a generator that pauses after so much as takes a few milliseconds, and returns what came of it.  It reads no
clock: its parts are counted in what is looked at and what is rendered.

Rules
  1. Between two parts facts are folded.  What was looked at before is not looked at again: each row of an answer is of the
     moment at which it was made, and what has gone meanwhile is left out.
  2. What is short has one part, and takes nothing beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

Answer = TypeVar("Answer")
Parts: TypeAlias = Generator[None, None, Answer]

PART: Final = 600  # of work: one or two milliseconds; to look at something is 1
NOTED: Final = 1  # to note what has changed of a unit: some microseconds; but in a rush it has to keep up with the fold
# a row: thirty times as long, but a queue that waits for its turn 1,000 times would never be there
RENDERED: Final = 10
WRITTEN: Final = 2  # one that is there, as JSON


class Work:
    """How much of a part is done: ``if work.add(RENDERED): yield``."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def add(self, much: int = 1) -> bool:
        """Whether the part is over."""
        self._done += much
        if self._done < PART:
            return False
        self._done = 0
        return True


async def in_parts(work: Parts[Answer]) -> Answer:
    """Its answer; others have their turn after each part."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        await asyncio.sleep(0)


def at_once(work: Parts[Answer]) -> Answer:
    """Its answer, for callers without a loop to keep free."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
