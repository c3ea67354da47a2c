"""Room for bodies: how many bytes of requests a process holds at once, and whose.

Theory of operation
  A body is read before anything that others wait for is taken, so a slow one delays no other request: it takes memory, of which
  each caller has a part.  The parts are dynamic thresholds (Choudhury and Hahne, "Dynamic Queue Length Thresholds in a
  Shared-Memory Packet Switch", 1998): a caller may hold as much as is still free.  So one alone has a half, two
  have a third each, and the next one always finds some.

Rules
  1. A group (a department) holds at most as many bytes as are free; a caller at most as many as are free of its group's part.
  2. Bytes count as they come, not as they are announced, and until the request is answered.
  3. What is over a part is refused, never waited for: a refused caller holds nothing any longer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

HELD: Final[ContextVar[Held | None]] = ContextVar("held", default=None)  # of the request that is being answered


class Full(Exception):
    """The caller's part of the room is used up."""


class Room:
    """`total`: bytes; asked each time, as a configuration may change it."""

    def __init__(self, total: Callable[[], int]) -> None:
        self._total = total
        self.held = 0
        self._of_group: dict[str, int] = {}
        self._of: dict[tuple[str, str], int] = {}

    def part(self, group: str, caller: str) -> int:
        """Bytes that `caller` of `group` may hold now, those that it holds included (rule 1)."""
        of_group, own = self._of_group.get(group, 0), self._of.get((group, caller), 0)
        group_may = (self._total() - self.held + of_group) // 2
        return max(0, group_may - of_group + own) // 2

    def take(self, group: str, caller: str, count: int) -> None:
        """Raises `Full`, and takes nothing."""
        part, own = self.part(group, caller), self._of.get((group, caller), 0)
        if own + count > part:
            raise Full(
                f"{own + count} bytes on their way at once, and room for {part}: wait for an answer before sending more"
            )
        self._add(group, caller, count)

    def give_back(self, group: str, caller: str, count: int) -> None:
        self._add(group, caller, -count)
        if not self._of[group, caller]:
            del self._of[group, caller]
        if not self._of_group[group]:
            del self._of_group[group]

    def _add(self, group: str, caller: str, count: int) -> None:
        self.held += count
        self._of_group[group] = self._of_group.get(group, 0) + count
        self._of[group, caller] = self._of.get((group, caller), 0) + count


class Held:
    """What one request holds, until it is answered.  `read_body` finds it by `HELD`."""

    def __init__(self, room: Room, group: str, caller: str) -> None:
        self._room, self._group, self._caller = room, group, caller
        self._bytes = 0
        self._before: Token[Held | None]

    def take(self, count: int) -> None:
        self._room.take(self._group, self._caller, count)
        self._bytes += count

    def __enter__(self) -> Self:
        self._before = HELD.set(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        HELD.reset(self._before)
        if self._bytes:
            self._room.give_back(self._group, self._caller, self._bytes)
