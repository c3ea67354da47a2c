"""Hung is not dead: which children send no sign of life, though their processes exist.

Theory of operation
  Children send `WATCHDOG=1` (sd_notify, `runtime.watchdog`) to a socket of the supervisor at least twice in `SILENT_S`.
  The kernel reports which process has sent it.  One that has begun and then stays silent for `SILENT_S` is replaced by the
  supervisor: SIGKILL, which a stopped process dies of too, and a new start.  So is one that has not begun within `BEGIN_S`.

Rules
  1. The time counts that the supervisor has itself seen pass, at most `TICK_MAX_S` between two looks.  When the whole machine
     stands still (suspended, or all processes stopped), or has no time for the supervisor, silence is no evidence.
  2. What waits in the socket is read before anybody is judged.
  3. A process that has not sent `WATCHDOG=1` yet is starting: it has `BEGIN_S` from when it was first looked for.  A service
     sends it before it waits for the broker or folds the journal, which may take minutes.
  4. The socket lies in DATA/run, which is closed to others.  Its address leads through a descriptor of this process, because a
     socket's path has at most 107 bytes and a data directory's has not.
"""

from __future__ import annotations

import math
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from services.runtime.watchdog import ADDRESS, ALIVE, PERIOD

# The longest pause of a healthy loop is a fraction of a second, on a machine with ten times its load some seconds.  With the
# new start (about three) it is within the 30 s for which `phoenix submit` waits for an answer.
SILENT_S: Final = 20.0
# The first beat comes after interpreter and imports: a second, on a machine with twenty times its load twenty.  Three times
# that, since a process that is killed too early is started again into the same load.
BEGIN_S: Final = 60.0
TICK_S: Final = 1.0
TICK_MAX_S: Final = 2.0
SOCKET: Final = "notify.sock"
_BYTES_MAX: Final = 4096
_SENDER: Final = 2  # SCM_CREDENTIALS, which Python does not name everywhere
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


class Silence:
    """Who is silent for how long (rules 1 and 3).  Times are of one monotonic clock.  `begin_s`: how long a start may take."""

    def __init__(self, now: float, begin_s: float = math.inf) -> None:
        self._looked_at, self._watched, self._begin_s = now, 0.0, begin_s
        self._heard: dict[int, float] = {}  # process id -> `_watched` then
        self._starting: dict[int, float] = {}  # … of one that has not begun -> `_watched` when it was first looked for

    def heard(self, pid: int) -> None:
        self._heard[pid] = self._watched

    def look(self, now: float) -> None:
        """Time has passed, and everything that was sent until now is heard."""
        self._watched += min(now - self._looked_at, TICK_MAX_S)
        self._looked_at = now

    def silent(self, pids: Iterable[int]) -> dict[int, str]:
        """Those of `pids` that have begun and stopped, or have not begun in time, and what is wrong; others are forgotten."""
        now = dict.fromkeys(pids)
        self._heard = {pid: at for pid, at in self._heard.items() if pid in now}
        self._starting = {pid: self._starting.get(pid, self._watched) for pid in now if pid not in self._heard}
        stopped = {pid: at for pid, at in self._heard.items() if self._watched - at > SILENT_S}
        hanging = {pid: at for pid, at in self._starting.items() if self._watched - at > self._begin_s}
        return dict.fromkeys(stopped, f"does not answer for {SILENT_S:.0f} s") | dict.fromkeys(
            hanging, f"has not begun within {self._begin_s:.0f} s"
        )


class Ear:
    """The socket."""

    def __init__(self, run: Path) -> None:
        self._directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.address = f"/proc/{os.getpid()}/fd/{self._directory}/{SOCKET}"
        self._path = run / SOCKET
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self.address)

    @property
    def environment(self) -> dict[str, str]:
        """For children."""
        return {ADDRESS: self.address, PERIOD: str(int(SILENT_S * 1e6))}

    def hear(self) -> list[int]:
        """Process ids of those who have said that they live, since the last time."""
        found: list[int] = []
        while True:
            try:
                data, control, _, _ = self._socket.recvmsg(_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return found
            lives = ALIVE.encode() in data.split(b"\n")
            found += [_CREDENTIALS.unpack(value)[0] for _, kind, value in control if kind == _SENDER and lives]

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)
        os.close(self._directory)
