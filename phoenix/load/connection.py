"""One connection of the generator: a request at a time, its answer, and the end of either.

Rules
  1. It carries one request at a time; nothing is pipelined, so what is late is the server's.
  2. It tells its owner exactly once how a request ended, also when it was cut off or told to stop.
  3. It never asks again.  A browser would repeat a GET whose kept connection had just been closed; a generator that did so
     would hide what happened.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

from phoenix.load.record import Outcome
from phoenix.load.wire import Answer, WireError

Ended = Callable[["Connection", int, Outcome, int], None]  # connection, request, outcome, status


class Connection(asyncio.Protocol):
    """`ended` is called at each request's end, `lost` at the connection's."""

    def __init__(self, ended: Ended, lost: Callable[[Connection], None]) -> None:
        self._ended = ended
        self._lost = lost
        self._answer: Answer | None = None
        self._request = -1
        self._gone = False
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None  # until it is open
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Open and idle."""
        return (
            self.transport is not None
            and not self.transport.is_closing()
            and self._answer is None
            and not self._is_dropped(self.transport)
        )

    @staticmethod
    def _is_dropped(transport: asyncio.Transport) -> bool:
        """The server has closed it, and the event loop has not heard yet: an idle connection has nothing else to read."""
        socket = transport.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def ask(self, request: int, data: bytes) -> None:
        assert self._answer is None
        assert self.transport is not None
        self._request, self._answer = request, Answer()
        self.transport.write(data)

    def give_up(self, outcome: Outcome) -> None:
        """The request has failed for a reason of its own; the connection goes with it."""
        self.close()
        self._end(outcome, 0)

    def close(self) -> None:
        """It is over at once; its owner counts it no longer."""
        if self.opening is not None:
            self.opening.cancel()
        if self.transport is not None:
            self.transport.abort()
        self._leave()

    # ------------------------------------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._gone:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # unsolicited
            self.close()
            return
        try:
            answer.feed(data)
        except WireError:
            self.give_up(Outcome.MALFORMED)
            return
        if answer.done:
            if not answer.keep:
                self.close()
            self._end_answered(answer)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None:
            if self._answer.ended():
                self._end_answered(self._answer)
            else:
                self._end(Outcome.CLOSED, self._answer.status)
        self._leave()

    def _leave(self) -> None:
        if not self._gone:
            self._gone = True
            self._lost(self)

    def _end_answered(self, answer: Answer) -> None:
        self._end(Outcome.ANSWERED if answer.status < 400 else Outcome.STATUS, answer.status)

    def _end(self, outcome: Outcome, status: int) -> None:
        if self._answer is not None:
            request, self._request, self._answer = self._request, -1, None
            self._ended(self, request, outcome, status)
