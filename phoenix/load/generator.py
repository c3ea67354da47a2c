"""The open loop: every request goes out when it is due, whatever has become of the ones before it.

Theory of operation
  One task sleeps until the next request is due, sends all that are, and sleeps again; never early, so no latency is reported
  too short, and up to a millisecond late, as exact as the loop's timers are.  It never waits for an answer, a connection or a
  queue; answers come in by callbacks.  So a server that stalls makes requests pile up in it, as people would, and each waits
  from its own time on.

Rules
  1. A request takes a kept connection that is idle (the one used last), else opens one.  A fresh one opens its own and
     closes it.
  2. At most `connections_max` are open.  When all are busy, the request fails at once as NOT_SENT: it is counted, and it is
     neither queued here nor forgotten.
  3. A connection that was idle for `IDLE_S` is not used again: servers close such ones about then, and the request that meets
     the closing would be lost without anybody's fault.
  4. A request that is not answered `timeout_s` after it was due has failed, and its connection is closed.
  5. Interrupted, it sends nothing more; what is under way has `FINISH_S`, and is then abandoned and counted as that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import time
from collections import deque
from typing import Final

from phoenix.load.connection import Connection
from phoenix.load.curve import FRESH, POST, LoadError, Plan
from phoenix.load.record import Outcome, Record
from phoenix.load.target import Target
from phoenix.load.wire import request

CONNECTIONS_MAX: Final = 512  # by default: half the files that a process may have open on most systems
OWN_FILES: Final = 64  # modules, pipes, sockets of the loop
IDLE_S: Final = 4.0  # less than the 5 s of the servers that are quickest to close
TICK_S: Final = 0.02  # how late a timeout may be noticed
FINISH_S: Final = 2.0


class Generator:
    """One run of a plan.  `stop()` ends it early.  LoadError if this process may not open that many connections."""

    def __init__(
        self, target: Target, plan: Plan, *, body: bytes = b"", timeout_s: float, connections_max: int = CONNECTIONS_MAX
    ) -> None:
        _allow_files(connections_max)
        self.record = Record(plan)
        self._target = target
        self._timeout_s = timeout_s
        self._most = connections_max
        self._bytes = [
            request("POST" if flags & POST else "GET", target.host, target.path, body, close=bool(flags & FRESH))
            for flags in range(4)
        ]
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._under_way: dict[int, Connection] = {}
        self._deadlines: deque[tuple[float, int]] = deque()
        self._stopped = asyncio.Event()
        self._done = asyncio.Event()  # nothing is under way
        self._done.set()
        self._began = 0.0

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> Record:
        """Everything; returns when the last request has ended."""
        loop = asyncio.get_running_loop()
        gc.collect()
        gc.freeze()  # a collection then looks at what the run itself has made, and makes no request late
        cpu_s = time.process_time()
        self.record.began_at, self._began = time.time(), loop.time()
        watch = asyncio.create_task(self._watch(), name="timeouts")
        try:
            await self._send_all()
            await self._finish()
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            self._close()
            gc.unfreeze()
        self.record.seconds = self._now()
        self.record.cpu_s = time.process_time() - cpu_s
        return self.record

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    # -------------------------------------------------------------------------------------------------------------- sending

    async def _send_all(self) -> None:
        due = self.record.plan.due
        index, count = 0, len(due)
        while index < count and not self._stopped.is_set():
            now = self._now()
            while index < count and due[index] <= now:
                self._send(index)
                index += 1
                await asyncio.sleep(0)  # answers are read between two requests, also when many are due at once
                now = self._now()
            if index < count:
                await self._sleep(due[index] - now)
        if not self._stopped.is_set():
            await self._sleep(self.record.plan.curve.end_s - self._now())

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until stopped."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()

    def _send(self, index: int) -> None:
        """Rules 1 and 2."""
        now = self._now()
        self.record.taken[index] = now
        self._deadlines.append((self.record.plan.due[index] + self._timeout_s, index))
        fresh = self.record.plan.flags[index] & FRESH
        kept = None if fresh else self._kept(now)
        if kept is not None:
            self._ask(kept, index)
            return
        if len(self._open) >= self._most and self._idle:
            self._idle.pop(0).close()
        if len(self._open) >= self._most:
            self._ended(None, index, Outcome.NOT_SENT, 0)
            return
        connection = Connection(self._ended, self._lost)
        self._opened(connection)
        self._take_on(index, connection)
        connection.opening = asyncio.create_task(self._connect(connection, index))

    def _kept(self, now: float) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < IDLE_S:
                return connection
            connection.close()
        return None

    def _opened(self, connection: Connection) -> None:
        self._open.add(connection)
        self.record.connections += 1
        self.record.connections_most = max(self.record.connections_most, len(self._open))

    async def _connect(self, connection: Connection, index: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, self._target.address, self._target.port
            )
        except OSError:
            connection.opening = None
            connection.close()
            self._ended(None, index, Outcome.REFUSED, 0)
            return
        connection.opening = None
        if connection.usable:
            self._ask(connection, index)
        else:  # the server has closed it before anything was sent
            self._ended(None, index, Outcome.CLOSED, 0)

    def _ask(self, connection: Connection, index: int) -> None:
        self._take_on(index, connection)
        self.record.sent[index] = self._now()
        connection.ask(index, self._bytes[self.record.plan.flags[index]])

    def _take_on(self, index: int, connection: Connection) -> None:
        self._under_way[index] = connection
        self._done.clear()

    # --------------------------------------------------------------------------------------------------------------- ending

    def _ended(self, connection: Connection | None, index: int, outcome: Outcome, status: int) -> None:
        """A request has ended, once and for all."""
        self._under_way.pop(index, None)
        if not self._under_way:
            self._done.set()
        now = self._now()
        self.record.ended[index] = now
        self.record.outcomes[index] = outcome
        self.record.statuses[index] = status
        if connection is None or not connection.usable:
            return
        if self.record.plan.flags[index] & FRESH:
            connection.close()
        else:
            connection.idle_since = now
            self._idle.append(connection)

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _watch(self) -> None:
        """Rule 4.  Deadlines come in the order of sending, as all have the same time."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self._now()
            while self._deadlines and self._deadlines[0][0] <= now:
                self._give_up(self._deadlines.popleft()[1], Outcome.TIMEOUT)

    def _give_up(self, index: int, outcome: Outcome) -> None:
        connection = self._under_way.get(index)
        if connection is None:
            return
        connection.give_up(outcome)
        if index in self._under_way:  # it was not asked yet
            self._ended(None, index, outcome, 0)

    async def _finish(self) -> None:
        """Wait for what is under way; rule 5."""
        stopped = asyncio.create_task(self._stopped.wait())
        done = asyncio.create_task(self._done.wait())
        await asyncio.wait((stopped, done), return_when=asyncio.FIRST_COMPLETED)
        if self._stopped.is_set():
            self.record.interrupted = True
            await asyncio.wait((done,), timeout=FINISH_S)
            for index in list(self._under_way):
                self._give_up(index, Outcome.ABANDONED)
        for task in (stopped, done):
            task.cancel()
        await asyncio.gather(stopped, done, return_exceptions=True)

    def _close(self) -> None:
        for connection in list(self._open):
            connection.close()


def _allow_files(connections: int) -> None:
    """Else the connection that is one too many would look as if the service had refused it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        raise LoadError(
            f"this process may open {hard} files, too few for {connections} connections (ulimit -n)"
        ) from None
