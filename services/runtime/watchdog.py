"""A process reports to its parent that it is alive: sd_notify(3), as systemd and the supervisor of `phoenix up` read it.

Rules
  1. The beat comes from the event loop, so it stops when the loop does: a process that is stopped, or hangs in one call, is
     silent.
  2. Without `NOTIFY_SOCKET` nothing is sent.  A beat that cannot be sent (the kernel keeps ten that were not
     read) is sent again soon.
  3. The address is for this process alone: it is taken out of the environment, so that no child answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final

ADDRESS: Final = "NOTIFY_SOCKET"
PERIOD: Final = "WATCHDOG_USEC"
_PID: Final = "WATCHDOG_PID"
AGAIN_S: Final = 0.2
READY: Final = "READY=1"
ALIVE: Final = "WATCHDOG=1"


class Heart:
    """`interval_s`: half of what is allowed; 0: no beats are expected."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address, period = environment.pop(ADDRESS, ""), environment.pop(PERIOD, "")
        meant = environment.pop(_PID, "") in ("", str(os.getpid()))
        self.interval_s = int(period) / 2e6 if meant and period.isdecimal() else 0.0
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None

    def say(self, state: str) -> bool:
        """False if it cannot be sent now."""
        with contextlib.suppress(OSError):
            return self._socket is None or self._socket.sendto(state.encode(), self._address) > 0
        return False

    async def beat(self) -> None:
        """For ever, if beats are expected."""
        while self._socket is not None and self.interval_s > 0:
            sent = self.say(ALIVE)
            await asyncio.sleep(self.interval_s if sent else min(AGAIN_S, self.interval_s))
