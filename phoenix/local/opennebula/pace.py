"""The pace of a real `oned`, to measure what it costs: a launch, an end and a connection each wait their turn.

The embedded server is faster than `oned` 7.4 by more than a factor of ten. What does not depend on OpenNebula's pace
(a warm VM that takes the next job) looks no better than what does, until this is switched on (`--pace`).

1. One lane each for allocations, for launches (BOOT to RUNNING) and for ends (EPILOG to DONE): what enters a lane
   leaves it one after the other, in order, at the lane's rate, however many wait. One alone takes one turn.
2. At most `CONNECTIONS_MAX` connections are open, `BACKLOG` more wait in the kernel, and each carries one call. One
   that is silent for `SILENT_S` is dropped; until then it keeps its place, as there.
3. Nothing else changes: the states, answers and messages are those of the server without it.
Source: measured on `oned` 7.4.0, SQLite, dummy drivers, two cores (112 to 182 allocations a second, 30 to 40 VMs to
RUNNING, 50 to 68 to DONE, whatever the concurrency).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from aiohttp import web

from services.runtime.http.given import given

ALLOCATED_PER_S: Final = 150.0
LAUNCHED_PER_S: Final = 35.0
ENDED_PER_S: Final = 60.0
CONNECTIONS_MAX: Final = 15  # oned's MAX_CONN
BACKLOG: Final = 15  # its MAX_CONN_BACKLOG: beyond both a caller's SYN is lost, and comes again a second later
SILENT_S: Final = 15.0  # its TIMEOUT


class Lane:
    """One after the other, at most `per_s` a second."""

    def __init__(self, per_s: float) -> None:
        self._gap_s = 1.0 / per_s
        self._free_at = 0.0

    async def turn(self) -> None:
        """Returns when it has been this one's turn. Who is cancelled while waiting has used it up, as a message that
        oned has queued."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + self._gap_s
        await asyncio.sleep(self._free_at - now)


class Pace:
    """The lanes."""

    def __init__(
        self,
        allocated_per_s: float = ALLOCATED_PER_S,
        launched_per_s: float = LAUNCHED_PER_S,
        ended_per_s: float = ENDED_PER_S,
    ) -> None:
        self.allocations = Lane(allocated_per_s)
        self.launches = Lane(launched_per_s)
        self.ends = Lane(ended_per_s)
        self._of = {"boot": self.launches, "restore": self.launches, "clean": self.ends}

    async def before(self, step: str) -> None:
        """Before the hypervisor is asked for `step` of a VM's life."""
        lane = self._of.get(step)
        if lane is not None:
            await lane.turn()


class Door(web.Server):
    """Accepts no more than `CONNECTIONS_MAX` at once (rule 2)."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler, access_log=None)
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)
        self._silent: dict[Any, asyncio.TimerHandle] = {}
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._socket is not None, "the listener has not been opened"
        name: tuple[str, int] = self._socket.getsockname()
        return name

    def open(self, bind: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._socket = next(iter(given(bind, port)), None) or socket.create_server((bind, port))
        self._socket.listen(BACKLOG)
        self._socket.setblocking(False)
        self._task = asyncio.create_task(self._accept(self._socket), name="door")

    async def close(self) -> None:
        """Accept no more; who is connected stays so."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            connection, _ = await loop.sock_accept(listening)
            try:
                await loop.connect_accepted_socket(self, connection)
            except OSError:  # it went as it came
                connection.close()
                self._free.release()

    def heard(self, transport: Any) -> None:
        """A call has arrived there."""
        timer = self._silent.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def connection_made(self, handler: Any, transport: Any) -> None:
        """aiohttp: a connection was accepted."""
        super().connection_made(handler, transport)
        self._silent[transport] = asyncio.get_running_loop().call_later(SILENT_S, transport.abort)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """aiohttp: a connection is gone."""
        transport = self._connections.get(handler)
        super().connection_lost(handler, exc)
        if transport is not None:
            self.heard(transport)
            self._free.release()
