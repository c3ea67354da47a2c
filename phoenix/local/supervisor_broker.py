"""The broker's probe: does nats-server greet, and does it still write; and when is it to be started again.

Theory of operation
  A stream whose write failed once is written no more (`services.runtime.broker.stores`): nothing but another start of
  nats-server mends it, also when the disk has space again.  So the probe asks for such streams from time to time, reports what
  it found (`ailing`, which `phoenix status` shows), and once there is space reports that the broker is `stuck`, which the
  supervisor mends (`Child.renew`).

Rules
  1. Without room nothing is started again: nats-server would stop at its next write, or not come up.
  2. A restart that did not help is not repeated at once: each waits twice as long, up to `PAUSE_MAX_S`; a broker that has
     written for `SETTLED_S` begins again.
  3. What cannot be asked is no evidence that streams are not written.
  4. A broker that greets no client for `SILENT_S`, as the supervisor counts it (`supervisor_watch`, rule 1), hangs.  One
     that has not greeted since its start is reading its store, which may take minutes.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import nats.errors

from phoenix.local.supervisor_probe import listens
from phoenix.local.supervisor_watch import SILENT_S, Silence
from services.runtime.broker import stores
from services.runtime.config.tables import Config

ASK_S: Final = 2.0  # a connection and one answer: about ten milliseconds
ROOM_BYTES: Final = 16 << 20  # two of JetStream's largest blocks (8 MiB): it comes up, and can write for a while
PAUSE_FIRST_S: Final = 5.0  # nats-server starts within a second, its clients are back within another
PAUSE_MAX_S: Final = 300.0
SETTLED_S: Final = 600.0
_IT: Final = 0  # the only one whose silence is looked at
FILES_S: Final = 2.0  # a file system that hangs says nothing of its room


class Restarts:
    """Rules 1 and 2.  Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._pause_s = PAUSE_FIRST_S
        self._last: float | None = None

    def is_due(self, free: int, now: float) -> bool:
        """Whether a broker that has stopped writing is to be started again."""
        return free >= ROOM_BYTES and (self._last is None or now - self._last >= self._pause_s)

    def done(self, now: float) -> None:
        fresh = self._last is None or now - self._last > SETTLED_S
        self._pause_s = PAUSE_FIRST_S if fresh else min(PAUSE_MAX_S, self._pause_s * 2)
        self._last = now


class BrokerProbe:
    """`ailing`: what needs attention.  `stuck`: why only another start helps, and would now; or nothing."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._greets = listens(config.nats.host, config.nats.port, b"INFO ")
        self._restarts = Restarts()
        self._ask_at = 0.0
        self.ailing: list[str] = []
        self.started()

    def started(self) -> None:
        """There is a new process."""
        self.stuck = ""
        self._silence = Silence(time.monotonic())

    async def __call__(self) -> bool:
        greets, now = await self._greets(), time.monotonic()
        self._silence.look(now)
        if not greets:
            if self._silence.silent([_IT]):
                self.stuck = f"does not answer for {SILENT_S:.0f} s"
            return False
        self._silence.heard(_IT)
        if now >= self._ask_at:
            self._ask_at = now + ASK_S
            await self._ask(now)
        return True

    async def _ask(self, now: float) -> None:
        try:
            stopped = await stores.stopped(self._config, servers=1)
            async with asyncio.timeout(FILES_S):
                free = await asyncio.to_thread(_free_bytes, self._config.nats.store_dir)
        except (nats.errors.Error, OSError, TimeoutError):  # rule 3
            return
        self.ailing = [complaint(stopped, free)] if stopped else []
        if stopped and self._restarts.is_due(free, now):
            self._restarts.done(now)
            self.stuck = self.ailing[0]


def complaint(stopped: dict[str, str], free: int) -> str:
    names, why = ", ".join(sorted(stopped)), next(iter(stopped.values()))
    mb = free >> 20
    if free < ROOM_BYTES:
        then = f"{mb} MiB are free: free more space, and with {ROOM_BYTES >> 20} MiB it is started again by itself"
    else:
        then = f"{mb} MiB are free: it is started again by itself"
    return f"nothing more is written to {names} ({why}); {then}"


def _free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
