"""What a job has used in this machine: reported to admission now and then while the job runs, and before the VM is gone.

Theory of operation
  Totals since the job began here, in all its processes: CPU seconds, and the most memory that was seen.  The report has them;
  of a job that is stopped there is none, so the last report is sent in every ending for which the machine has a moment.

Rules
  1. CPU time is the control group's, which forgets no process.  Where there is none it is that of the processes that run, of
     their children that they have waited for, and of those that this guest has started and that have ended.
  2. Memory is the greater of what one process had resident at its peak, by the kernel's own mark, and of what all had together
     when they were looked at.
  3. Neither ever falls.
  4. First after `FIRST_S`, then half as often each time until `interval_s`; and at once when the job gets the order to end,
     since the grace may end before it does.
"""

from __future__ import annotations

import asyncio
import contextlib

from phoenix.local.guest.door import Door, GoneError, RefusedError
from phoenix.local.guest.machine import Ended, Machine

FIRST_S = 5.0  # a job that is over sooner is covered by its report
LEAST_S = 0.25  # more is not handed on


class Use:
    """`interval_s`: None or 0: the last word alone."""

    def __init__(self, door: Door, machine: Machine, interval_s: float | None) -> None:
        self._door, self._machine = door, machine
        self._interval_s = max(LEAST_S, interval_s) if interval_s else None
        self._ended_s = 0.0
        self._cpu_s, self._peak_kb = 0.0, 0
        self._hurry = asyncio.Event()

    def ended(self, ended: Ended) -> None:
        """A process that was started here, and what it has used."""
        self._ended_s += ended.cpu_seconds
        self._peak_kb = max(self._peak_kb, ended.max_rss_kb)

    def look(self) -> tuple[float, float]:
        """CPU seconds and MiB until now."""
        counted = self._machine.cpu_seconds()
        cpu_s = self._machine.used().cpu_seconds + self._ended_s if counted is None else counted
        self._cpu_s = max(self._cpu_s, cpu_s)
        self._peak_kb = max(self._peak_kb, self._machine.peak_kb())
        return self._known()

    def final(self) -> tuple[float, float]:
        """The same when nothing runs any more: to look for what does costs more than a short job."""
        counted = self._machine.cpu_seconds()
        self._cpu_s = max(self._cpu_s, self._ended_s if counted is None else counted)
        return self._known()

    def _known(self) -> tuple[float, float]:
        return round(self._cpu_s, 3), round(self._peak_kb / 1024, 3)

    def hurry(self) -> None:
        """The job has to end: what it holds now cannot be measured later."""
        self.look()
        self._hurry.set()

    async def tell(self) -> None:
        """As long as the job runs (rule 4); raises `GoneError` when its VM has no owner any longer."""
        wait_s = min(FIRST_S, self._interval_s) if self._interval_s else None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hurry.wait()
            try:
                await self._door.used(*self.look())
            except RefusedError:  # a door that does not know the call
                return
            if self._hurry.is_set():
                return
            assert wait_s is not None
            wait_s = min(2 * wait_s, self._interval_s or wait_s)

    async def say_last(self, deadline_s: float) -> None:
        """A door that is away does not keep the VM."""
        with contextlib.suppress(TimeoutError, GoneError, RefusedError):
            async with asyncio.timeout(deadline_s):
                await self._door.used(*self.look())
