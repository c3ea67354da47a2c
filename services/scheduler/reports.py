"""Whether guests' reports come in: admission is asked for signs of life while a walltime that has passed waits for them.

Theory of operation
  A guest reports to admission, which may hang, be starting, or have lost the broker.  The scheduler must not take a job for
  over its time whose report only waits (`derived.limits`, rule 4).  Admission renews its lease from the same loop that takes
  reports, four times in the lease's life, so a lease that is renewed says that it lives.

Rules
  1. Nobody is asked while no walltime has passed: an idle department costs nothing.
  2. Once admission has been alive for `REPORT_S` without a gap, whoever had ended before that has been heard: a guest tries
     again after two seconds at the latest.
  3. What cannot be read is no sign of life.
"""

from __future__ import annotations

import asyncio
from typing import Final

import nats.errors
from nats.js.errors import Error as JetStreamError

from services.runtime.journal.leader import renewed
from services.runtime.service import Service
from services.scheduler.batch.core import BatchCore

ADMISSION: Final = "admission"
LOOK_S: Final = 0.25  # half of the time between two renewals with the shortest lease that is usual (2 s)
REPORT_S: Final = 3.0


class Signs:
    """Rule 2.  `gap_s`: the lease's life; a longer silence is a gap."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._revision: int | None = None  # of the lease, as seen last
        self._since = self._last = 0.0  # of the signs without a gap

    def look(self, revision: int | None, now: float) -> float | None:
        """`revision`: the lease's, None if nobody holds it or it cannot be read.  Reports of what had ended by then are in."""
        if revision is not None and self._revision not in (None, revision):
            self._since = self._since if self._since and now - self._last <= self._gap_s else now
            self._last = now
        self._revision = revision if revision is not None else self._revision
        alive = self._since and now - self._last <= self._gap_s
        return now - REPORT_S if alive and now - self._since >= REPORT_S else None


async def watch(service: Service, core: BatchCore) -> None:
    """For ever: tell the core until when reports are in."""
    gap_s = service.config.runtime.lease_ttl_s
    signs = Signs(gap_s)
    while True:
        await asyncio.sleep(LOOK_S)
        if not service.is_leader or not core.limits.awaits_reports(service.now()):
            signs = Signs(gap_s)
            continue
        until = signs.look(await _revision(service), service.now())
        if until is not None:
            core.limits.heard_until = until
            service.wake()


async def _revision(service: Service) -> int | None:
    try:
        async with asyncio.timeout(LOOK_S * 4):
            return await renewed(service.js, ADMISSION)
    except (nats.errors.Error, JetStreamError, TimeoutError):  # rule 3
        return None
