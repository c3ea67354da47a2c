"""Turns of callers at the doors of a process: a fair queue, and the event loop's side of it.

    put ─▶ waits in the queue ─▶ its turn: `Turn` ─▶ served ─▶ leave ─▶ the next one
     ╰─▶ refused at once: too much of this caller, or of its department, waits already

Rules
  1. A refusal is sent before more of the request is read than its caller and kind, and says when to try again.
  2. A turn that was handed out is given back, whatever becomes of the request.
  3. At most `AT_ONCE` cost is let in in one go: whatever has come meanwhile, from others too, is considered before the next
     ones.
  4. Over NATS refusals are answered at a bounded rate for each caller: what is beyond it is counted only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from services.domain.refusal import Refused
from services.runtime import families_shell
from services.runtime.fair_queue import Bound, Bounds, Caller, FairQueue
from services.runtime.token_bucket import Buckets

RETRY_LEAST_S: Final = 0.1  # in which a caller at its pace is let in some ten times
NOBODY: Final = "@"  # department of callers without a token; no department's name has an @
AT_ONCE: Final = 8.0
ANSWERED_PER_S: Final = 100.0  # refusals over NATS: 15 µs each
ANSWERED_BURST: Final = 1_000.0
BYTES_A_COST: Final = 64 << 10  # a millisecond's decoding

REFUSED: Final = families_shell.TURNS_REFUSED.live(None)
_Start: TypeAlias = Callable[["Turn | None"], None]  # None: it has waited too long


def _count(department: str, reason: str) -> None:
    REFUSED.labels("" if department == NOBODY else department, reason).inc()


class Turn:
    """Leave to be served, until `leave`."""

    __slots__ = ("_caller", "_cost", "_left", "_turns")

    def __init__(self, turns: Turns, caller: Caller[_Start], cost: float) -> None:
        self._turns, self._caller, self._cost, self._left = turns, caller, cost, False

    def leave(self, extra: float = 0.0) -> None:
        """Rule 2; a second time it is nothing.  `extra`: how much dearer it was than was known before."""
        if not self._left:
            self._left = True
            self._turns.left(self._caller, self._cost, extra)


class Turns:
    def __init__(self, bounds: Bounds | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.queue: FairQueue[_Start] = FairQueue(bounds)
        self._now = monotonic
        self._timer: asyncio.TimerHandle | None = None
        self._answered = Buckets(ANSWERED_PER_S, ANSWERED_BURST)
        self._handing_out = False
        self._room = AT_ONCE  # for what is let in before the loop has looked around
        self._making_room = False

    def put(self, department: str, caller: str, cost: float, size: int, start: _Start) -> Refused | None:
        """`start` is called when it is this caller's turn, maybe at once.  Else why it is refused."""
        cost += size / BYTES_A_COST
        bound = self.queue.put(department, caller, start, cost, size, self._now())
        if not bound:
            self._hand_out()
            return None
        _count(department, bound)
        whose = f"of {department}" if bound == "department" else "of yours"
        return self._later(f"too many requests {whose} are already waiting", department, caller, bound)

    def _later(self, text: str, department: str, caller: str, bound: Bound) -> Refused:
        """With the time in which half of what waits is served."""
        wait_s = max(RETRY_LEAST_S, self.queue.drains_in_s(department, caller, bound, self._now()))
        return Refused("limit", f"{text}: try again in {wait_s:.1f} s, with fewer", retry_after_s=round(wait_s, 1))

    def answers(self, department: str, caller: str) -> bool:
        """Rule 4."""
        now = self._now()
        if self._answered.of(caller, now).take(now):
            return True
        _count(department, "unanswered")
        return False

    async def wait(self, department: str, caller: str, cost: float, size: int = 0) -> Turn:
        """For its turn.  Raises `Refused` (limit)."""
        turn: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

        def start(given: Turn | None) -> None:
            if turn.cancelled():  # its caller has gone
                if given is not None:
                    given.leave()
            elif given is not None:
                turn.set_result(given)
            else:
                turn.set_exception(
                    self._later("the request waited too long for its turn", department, caller, "caller")
                )

        refused = self.put(department, caller, cost, size, start)
        if refused is not None:
            raise refused
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                turn.result().leave()
            raise

    @asynccontextmanager
    async def turn(self, department: str, caller: str, cost: float, size: int = 0) -> AsyncIterator[Turn]:
        """Raises `Refused` (limit)."""
        turn = await self.wait(department, caller, cost, size)
        try:
            yield turn
        finally:
            turn.leave()

    def left(self, caller: Caller[_Start], cost: float, extra: float) -> None:
        self.queue.done(caller, cost)
        if extra:
            self.queue.charge(caller, extra, self._now())
        self._hand_out()

    def _hand_out(self) -> None:
        """To those whose turn it is, as far as there is room; not within itself, when a start ends at once."""
        if self._handing_out or not self.queue.waiting or self._room <= 0.0:
            return
        self._handing_out = True
        try:
            while self._room > 0.0 and (taken := self.queue.take(self._now())) is not None:
                self._room -= taken.cost
                if taken.is_late:
                    _count(taken.caller.department.name, "late")
                taken.item(None if taken.is_late else Turn(self, taken.caller, taken.cost))
        finally:
            self._handing_out = False
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.queue.wake_at != float("inf"):
            self._timer = loop.call_later(max(0.0, self.queue.wake_at - self._now()), self._woken)
        if self._room < AT_ONCE and not self._making_room:
            self._making_room = True
            loop.call_soon(self._make_room)

    def _make_room(self) -> None:
        """Rule 3: the loop has come round."""
        self._room, self._making_room = AT_ONCE, False
        self._hand_out()

    def _woken(self) -> None:
        self._timer = None
        self._hand_out()
