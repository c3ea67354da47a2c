"""Whether guests' reports come in: admission is asked for signs of life while a walltime is about to pass, or waits for them.

Theory of operation
  A guest reports to admission, which may hang, be starting, or have lost the broker.  The scheduler must not take a job for
  over its time whose report only waits (`state.limits`, rule 4).  Admission renews its lease from the same loop that takes
  reports, four times in the lease's life, so a renewed lease is a sign of life; so is an attempt that has begun, which
  admission journals.

Rules
  1. The lease is looked at from `REPORT_S` and a lease's life before a walltime on: long enough to know, when it passes, that
     no report was held up, so that it is enforced at once.  A department whose jobs end in time costs nothing.
  2. A sign counts for half of the lease's life: two renewals.  A job whose report comes into a hung admission in that time
     before its walltime is taken for over its time; to leave no such moment, every walltime would have to wait.
  3. A longer silence than the lease's life is a gap: what was sent meanwhile comes late.
  4. What cannot be read is no sign of life.
"""

from __future__ import annotations

import asyncio
from typing import Final

import nats.errors
from nats.js.errors import Error as JetStreamError

from services.runtime.journal.leader import renewed
from services.runtime.service import Service
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.state.limits import REPORT_S

ADMISSION: Final = "admission"
LOOK_S: Final = 0.25  # half of the time between two renewals with the shortest lease that is usual (2 s)
LATELY: Final = 0.5  # of the lease's life


class Signs:
    """`since`, `last`: of the signs of life without a gap; 0: there is none.  `gap_s`: the lease's life."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._revision: int | None = None  # of the lease, as seen last
        self.since = self.last = 0.0

    def note(self, at: float) -> None:
        """It was alive at `at`."""
        if at > self.last:
            self.since = self.since if self.since and at - self.last <= self._gap_s else at
            self.last = at

    def look(self, revision: int | None, now: float) -> None:
        """`revision`: the lease's, None if it has no holder or cannot be read."""
        if revision is not None and self._revision not in (None, revision):
            self.note(now)
        self._revision = revision if revision is not None else self._revision


async def watch(service: Service, core: BatchCore) -> None:
    """For ever: keep the core informed since when, and how lately, admission is alive."""
    gap_s, limits = service.config.runtime.lease_ttl_s, core.view.limits
    signs = Signs(gap_s)
    while True:
        await asyncio.sleep(LOOK_S)
        if not service.is_leader or not limits.ends_by(service.now() + REPORT_S + gap_s):
            signs = Signs(gap_s)
            continue
        waiting = limits.awaits_reports(service.now())
        signs.note(limits.began_at)
        signs.look(await _revision(service), service.now())
        limits.heard_since, limits.heard_until = signs.since, signs.last + gap_s * LATELY
        if waiting and not limits.awaits_reports(service.now()):
            service.wake()


async def _revision(service: Service) -> int | None:
    try:
        async with asyncio.timeout(LOOK_S * 4):
            return await renewed(service.js, ADMISSION)
    except (nats.errors.Error, JetStreamError, TimeoutError):  # rule 4
        return None
